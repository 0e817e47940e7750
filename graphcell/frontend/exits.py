"""The break and return of a loop that becomes one op, where a Tensor decides on them: flags that the loop
carries.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from graphcell import buffer
from graphcell import dtype as dt
from graphcell.frontend.carries import Carry
from graphcell.frontend.control import Control
from graphcell.frontend.numbers import WeakNumber, is_number, number
from graphcell.frontend.places import AttributePlace
from graphcell.frontend.signals import Flag, Signal
from graphcell.frontend.trees import flatten, unflatten
from graphcell.ir.types import TensorType
from graphcell.ops.functional.comparison import logical_and, logical_or
from graphcell.tensor import Tensor

_BOOL = TensorType(dt.bool_, ())


class Exits:
    """Flags, kept in places that `carry` carries: `going` (the loop goes on), `broken`, `returned`, and the
    `value` that is returned.
    """

    def __init__(self, interpreter: Control, carry: Carry):
        self.interpreter, self.carry = interpreter, carry
        self.state = interpreter.bear(SimpleNamespace(going=True, broken=False, returned=False, value=None))

    @property
    def used(self) -> bool:
        """True once the loop is known to have such an exit."""
        return self._place("going").key in self.carry.places

    @property
    def going(self) -> Tensor:
        """Whether the loop goes on, as a value of the graph under construction."""
        truth = self.interpreter.truth(self.state.going)
        assert isinstance(truth, Tensor)
        return truth

    def go_on_while(self, truth: Flag) -> None:
        """Says what decides whether the loop goes on; before the loop, and at the end of each iteration."""
        self._set("going", truth)
        if not self.used:
            self.carry.expect(self._place("going"), _BOOL)

    def note(self, signal: Signal) -> bool:
        """Sets the flags after an iteration that ended with `signal`; False if they must be carried first."""
        if not self._is_carried(signal):
            return False
        before = self.state
        left = _or(signal.broken, signal.returned)
        going = self.interpreter.negated(left)
        self._set("going", logical_and(self.going, going))
        if signal.broken is not False:
            self._set("broken", _or(before.broken, signal.broken))
        if signal.returned is not False:
            value = signal.value
            if isinstance(signal.returned, Tensor):
                value = self.interpreter.choose(signal.returned, lambda: signal.value, lambda: before.value)
            self._set("value", value)
            self._set("returned", _or(before.returned, signal.returned))
        return True

    def signal(self) -> Signal | None:
        """How the loop ended, to be called after it."""
        if not self.used:
            return None
        return Signal(broken=self.state.broken, returned=self.state.returned, value=self.state.value)

    def _is_carried(self, signal: Signal) -> bool:
        wanted = (
            ["going"]
            + ["broken"] * (signal.broken is not False)
            + ["returned"] * (signal.returned is not False)
        )
        missing = [name for name in wanted if self._place(name).key not in self.carry.places]
        for name in missing:
            if name == "returned":
                self.state.value = _zeros_like(signal.value)
                self.carry.expect(self._place("value"))
            self.carry.expect(self._place(name), _BOOL)
        return not missing

    def _place(self, name: str) -> AttributePlace:
        return AttributePlace(self.state, name)

    def _set(self, name: str, value: Any) -> None:
        self.interpreter.assign(self._place(name), value)


def exit_of(signal: Signal) -> tuple[Tensor, Signal | None]:
    """Whether a loop was left as `signal` says, and how it then ends seen from outside."""
    left = _or(signal.broken, signal.returned)
    assert isinstance(left, Tensor)
    if signal.returned is False:
        return left, None
    return left, Signal(returned=True if signal.broken is False else signal.returned, value=signal.value)


def _or(a: Flag, b: Flag) -> Flag:
    if a is False or b is True:
        return b
    return a if b is False or a is True else logical_or(a, b)


def _zeros_like(value: Any) -> Any:
    """A value of the same structure and types, for what is not returned yet. Python constants stay
    themselves.
    """
    leaves, tree = flatten(value)
    return unflatten(tree, iter([_zero(x) for x in leaves]))


def _zero(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        zeros = buffer.empty(leaf.shape, leaf.dtype.np_type)
    elif isinstance(leaf, WeakNumber):
        zeros = buffer.empty((), leaf.default_dtype.np_type)
    else:
        return leaf
    zeros[...] = np.zeros((), zeros.dtype)
    tensor = Tensor.of_array(zeros)  # a constant of the graph, since one is under construction
    return number(tensor) if is_number(leaf) else tensor
