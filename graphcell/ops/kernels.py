"""When a computation of the eager mode moves from numpy to native code.

Enters: computations that are done again and again: an op on operands of one signature, its gradient rule, or a function of the library
that is a composition of many ops (`composite`). Leaves: the same results, equal but for rounding. The first calls run op by op in numpy;
once that took as long as compiling would have taken, the computation is compiled (or loaded from the cache on disk) as one graph. How long
it took is estimated from shapes (`Op.eval_nanoseconds`), not measured: a program gives the same bits at each run.
Refuses nothing: what cannot be compiled stays in numpy. GRAPHCELL_EAGER_KERNELS=0 in the environment keeps everything there, and
GRAPHCELL_EAGER_KERNELS=now compiles at the first call, for comparison.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from graphcell.ir.graph import Graph
from graphcell.tensor import Tensor, state

SWITCH_VARIABLE = "GRAPHCELL_EAGER_KERNELS"
_CHOICE = os.environ.get(SWITCH_VARIABLE, "").strip()
LEAST_CALLS = 1 if _CHOICE == "now" else 3
"""A computation is not compiled before so many calls, unless it is very long."""
WORTH_NANOSECONDS = 0 if _CHOICE == "now" else 25_000_000
"""About what it takes to compile a small graph."""
LONG_NANOSECONDS = 20 * WORTH_NANOSECONDS

F = TypeVar("F", bound=Callable[..., Any])


class Kernel(Protocol):
    """A compiled graph; gives NotImplemented for operands that are not contiguous, which numpy reads as they are."""

    def __call__(self, *operands: Tensor) -> Any: ...

    def copying(self, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The same for operands of whatever layout; those that are not contiguous are from now on."""


class Native:
    """What the runtime provides: `compile` makes a kernel of a graph (None if it would only call back into Python), `composite` makes a
    function that runs as a graph of its own."""

    compile: ClassVar[Callable[[Graph], Kernel | None]] = staticmethod(lambda graph: None)
    composite: ClassVar[Callable[[Callable[..., Any]], Callable[..., Any]] | None] = None
    enabled: ClassVar[bool] = _CHOICE != "0"


class _Spent(threading.local):
    """About how long this thread has computed eagerly."""

    nanoseconds = 0.0


spent = _Spent()
NATIVE_SHARE = 0.1
"""Of the time in numpy that native code takes, about."""
_COPY_NANOSECONDS = 0.3
"""Of a byte."""


class Work:
    """One computation: how much time it took so far in numpy, about, and its kernel once that was worth compiling."""

    __slots__ = ("calls", "kernel", "nanoseconds")

    def __init__(self) -> None:
        self.calls, self.nanoseconds = 0, 0.0
        self.kernel: Kernel | None = None

    def run_natively(self, operands: Sequence[Tensor], nanoseconds: float) -> Any:
        """What the kernel gives; NotImplemented where numpy, which takes so long, is quicker: it reads operands that are not contiguous as they lie."""
        assert self.kernel is not None
        results = self.kernel(*operands)
        if results is not NotImplemented:
            return results
        apart = sum(t._data.nbytes for t in operands if t._data is not None and not t._data.flags.c_contiguous)
        return self.kernel.copying(operands) if 2 * _COPY_NANOSECONDS * apart < nanoseconds else NotImplemented

    def is_due(self, nanoseconds: float) -> bool:
        """Notes a call in numpy that takes so long; True, once, when it should be compiled."""
        if self.calls < 0:
            return False
        self.calls += 1
        self.nanoseconds += nanoseconds
        is_too_early = self.calls < LEAST_CALLS and self.nanoseconds < LONG_NANOSECONDS
        if is_too_early or self.nanoseconds < WORTH_NANOSECONDS or not Native.enabled:
            return False
        self.calls = -1
        return True


def composite(function: F) -> F:
    """Lets a function of Tensors that is composed of ops run as one graph in eager mode; in a graph under construction it is inlined.

    The function must depend on nothing but its arguments (Tensors, numbers, strings, None, tuples and lists of these) and return a
    Tensor or a tuple of Tensors. It may assign to Tensors in its arguments.
    """
    compiled: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal compiled
        if state.automatic is not None:
            from graphcell.ops.automatic import called

            return called(call, function, args, kwargs)
        if state.trace is not None or not Native.enabled:
            return function(*args, **kwargs)
        if compiled is None:
            if Native.composite is None:
                return function(*args, **kwargs)
            compiled = Native.composite(function)
        return compiled(*args, **kwargs)

    return call  # type: ignore[return-value]


def elementary(function: F) -> F:
    """`composite` for functions of one op, or little more: where a tape records, it records that op."""
    together = composite(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if state.automatic is not None:
            return together(*args, **kwargs)
        return function(*args, **kwargs) if state.trace is not None or state.tapes else together(*args, **kwargs)

    return call  # type: ignore[return-value]
