"""Public functions of `ops`, by topic. Each function of `graphcell.ops` is in this package too: `from mindspore.ops import functional as F`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


def __getattr__(name: str) -> Any:
    found = getattr(sys.modules["graphcell.ops"], name, None)
    if found is None or name.startswith("_") or isinstance(found, ModuleType):
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return found
