"""Public functions of `ops`, by topic. Each function of `graphcell.ops` is in this package too: `from mindspore.ops import functional as F`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from graphcell.missing import refuse


def __getattr__(name: str) -> Any:
    found = getattr(sys.modules["graphcell.ops"], name, None)
    if found is None or name.startswith("_") or isinstance(found, ModuleType):
        refuse(__name__, name)
    return found
