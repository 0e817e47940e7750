"""What the tests of calls share."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from graphcell import Tensor
from graphcell.codegen.llvm import target
from graphcell.ir.op import Op
from graphcell.ir.types import TensorType
from graphcell.runtime.calling import native
from graphcell.runtime.threads import pool


@dataclasses.dataclass(frozen=True)
class CallsPython(Op):
    """Runs Python in the middle of a graph."""

    function: Callable[[Any], Any]
    name = "test_calls_python"

    def infer(self, *operands: TensorType) -> TensorType:
        return operands[0]

    def eval(self, *arrays: Any) -> Any:
        return self.function(arrays[0])


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


def texts_begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is translated from now on, but for the runtime's own code."""
    pool(), native()
    begun: list[str] = []
    begin = target.Translator.begin

    def noted(self: Any, text: str, apart: bool = True) -> None:
        begun.append(text)
        begin(self, text, apart)

    monkeypatch.setattr(target.Translator, "begin", noted)
    return begun
