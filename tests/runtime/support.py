"""What the tests of calls share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from graphcell import Tensor
from graphcell.runtime.calling import native


def t(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32))


def hits(function: Any) -> int:
    """How many calls of the graph used last went through native code."""
    record = function._last.record
    return 0 if record is None else record.hits


def warm(function: Any, *args: Any, **kwargs: Any) -> Any:
    for _ in range(3):
        result = function(*args, **kwargs)
    return result


@contextlib.contextmanager
def served(function: Any, calls: int) -> Iterator[None]:
    """Checks that so many of the calls inside are native, where there are native calls at all."""
    before = hits(function)
    yield
    if native() is not None:
        assert hits(function) - before == calls
