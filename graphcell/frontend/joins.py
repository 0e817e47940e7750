"""Joining what two branches leave behind: values are unified leaf by leaf, and become results of one op.

Enters: two finished `Arm`s and pairs of values. Leaves: the pairs of graph values that the op must give, and
how the joined values are put together again from its results. Refuses values of different structure or type,
with both places.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field
from typing import Any

from graphcell.errors import BranchTypeError, DataDependentTypeError, GraphcellError, Span, UnboundNameError
from graphcell.frontend.numbers import WeakNumber, is_number, number
from graphcell.frontend.places import Log, Unbound
from graphcell.frontend.signals import Signal
from graphcell.frontend.trees import (
    NUMBERS,
    Tree,
    describe,
    fits,
    flatten,
    join_numbers,
    same_constant,
    type_of,
    unflatten,
)
from graphcell.ir.graph import Value
from graphcell.ir.types import TensorType
from graphcell.ops.dispatch import Trace
from graphcell.ops.functional.common import cast, full
from graphcell.ops.functional.comparison import logical_not
from graphcell.records import dataclass
from graphcell.tensor import Tensor


class _Dead:
    """The value of anything in a branch that does not reach the join: it fits everything."""


DEAD = _Dead()


@dataclass(slots=True)
class Arm:
    """One branch that has been interpreted: its graph, what it changed, and how it ended. `label`: "true" or
    "false".
    """

    label: str
    trace: Trace
    log: Log
    signal: Signal | None = None
    finals: dict[Hashable, Any] = field(default_factory=dict)
    spans: dict[Hashable, Span] = field(default_factory=dict)

    @property
    def is_dead(self) -> bool:
        """True if the branch never ends but by an exception."""
        return self.signal is not None and self.signal.raised

    @property
    def returns(self) -> bool:
        """True if the branch always leaves the function."""
        return self.signal is not None and (self.signal.raised or self.signal.returned is True)

    def final(self, key: Hashable, old: Any) -> Any:
        """The value of a place at the end of the branch."""
        return self.finals.get(key, old)


@dataclass(frozen=True, slots=True)
class Slot:
    """Result `index` of the op. `is_number`: it was a Python number in both branches."""

    index: int
    is_number: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """A joined value: its structure, and leaves that are constants or Slots."""

    tree: Tree
    leaves: tuple[Any, ...]

    def value(self, results: Sequence[Tensor]) -> Any:
        """The joined value, given the op's results."""
        return unflatten(self.tree, iter([_resolve(leaf, results) for leaf in self.leaves]))


def _resolve(leaf: Any, results: Sequence[Tensor]) -> Any:
    if not isinstance(leaf, Slot):
        return leaf
    tensor = results[leaf.index]
    return number(Tensor.of_value(tensor._value)) if leaf.is_number and tensor._value is not None else tensor


class Join:
    """Collects pairs of values, one of each branch."""

    def __init__(self, condition: Tensor, then: Arm, otherwise: Arm):
        self.condition, self.then, self.otherwise = condition, then, otherwise
        self.pairs: list[tuple[Value, Value]] = []
        self._slots: dict[tuple[Value, Value], int] = {}

    def merge(self, a: Any, b: Any, what: str) -> Plan | None:
        """The plan of a value that is `a` in the first branch and `b` in the second; None if it is dead in
        both.

        Raises:
            BranchTypeError: if they cannot be unified.
        """
        if a is DEAD and b is DEAD:
            return None
        if a is b:
            return _constant(a)
        left, tree = flatten(b if a is DEAD else a)
        right, other = flatten(a if b is DEAD else b)
        if not fits(tree, other):
            raise conflict_of(a, b)(
                f"{what} is {describe(a)} in the {self.then.label} branch and {describe(b)} in the {self.otherwise.label} branch"
            )
        if a is DEAD:
            left = [DEAD] * len(left)
        if b is DEAD:
            right = [DEAD] * len(right)
        return Plan(tree, tuple([self._leaf(x, y, what) for x, y in zip(left, right, strict=True)]))

    def _leaf(self, x: Any, y: Any, what: str) -> Any:
        if x is y or (x is DEAD and type(y) in NUMBERS):
            return y
        if (y is DEAD and type(x) in NUMBERS) or (type(x) in NUMBERS and same_constant(x, y)):
            return x
        if x is True and y is False:
            return (
                number(Tensor.of_value(self.condition._value))
                if self.condition._value is not None
                else self.condition
            )
        if x is False and y is True:
            return number(logical_not(self.condition))
        common = _unify(x, y)
        if common is None:
            raise conflict_of(x, y)(
                f"{what} is {describe(x)} in the {self.then.label} branch and {describe(y)} in the {self.otherwise.label} branch",
                hint="give both branches one shape and dtype (cast with .astype, or broadcast)",
            )
        pair = value_in(self.then.trace, x, common), value_in(self.otherwise.trace, y, common)
        return Slot(self._slot(pair), all(v is DEAD or is_number(v) for v in (x, y)))

    def _slot(self, pair: tuple[Value, Value]) -> int:
        index = self._slots.get(pair)
        if index is None:
            index = self._slots[pair] = len(self.pairs)
            self.pairs.append(pair)
        return index

    def add(self, a: Value, b: Value) -> int:
        """A pair of graph values of one type; gives its place among the results."""
        return self._slot((a, b))


def _constant(value: Any) -> Plan:
    """A plan for a value that is one and the same object in both branches."""
    return Plan(Tree(None), (value,))


def _unify(x: Any, y: Any) -> TensorType | None:
    """The common type of two leaves, or None."""
    if x is DEAD or y is DEAD:
        return type_of(y if x is DEAD else x)
    a, b = type_of(x), type_of(y)
    if a == b:
        return a
    if a.shape or b.shape:
        return None
    if is_number(x) and is_number(y):
        return TensorType(join_numbers(a.dtype, b.dtype), ())
    if is_number(x) and a.dtype.category <= b.dtype.category:
        return b
    if is_number(y) and b.dtype.category <= a.dtype.category:
        return a
    return None


def value_in(trace: Trace, leaf: Any, type: TensorType) -> Value:
    """A leaf as a value of `type` in `trace`."""
    with trace.active():
        if leaf is DEAD:
            tensor = full(type.shape, 0, type.dtype)
        elif isinstance(leaf, Tensor):
            tensor = leaf if leaf.dtype is type.dtype else cast(leaf, type.dtype)
        elif isinstance(leaf, WeakNumber):
            tensor = leaf.as_tensor(type.dtype)
        else:
            tensor = full((), leaf, type.dtype)
        return trace.read(tensor)


def unbound_in_one(name: str, missing: str, present: str) -> Unbound:
    """What a name is after branches of which only one assigns it."""

    def error() -> GraphcellError:
        return UnboundNameError(
            f"The local variable '{name}' is not defined in {missing} branch, but defined in {present} branch.",
            hint=f"assign '{name}' in both branches, or before the `if`",
        )

    return Unbound(error)


def conflicting(name: str, error: BranchTypeError, then: Arm, otherwise: Arm, key: Hashable) -> Unbound:
    """What a name is after branches that give it types that do not join; only reading it is an error."""
    places = []
    for arm in (then, otherwise):
        span = arm.spans.get(key)
        if span is not None:
            places.append(f"    in the {arm.label} branch at {span.place()}:  {span.source.strip()}")
    message = "\n".join([error.message, *places])
    return Unbound(lambda: type(error)(message, hint=error.hint))


def conflict_of(a: Any, b: Any) -> type[BranchTypeError]:
    """The class of the error that says that `a` and `b` have no common type."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return DataDependentTypeError if a.dtype is b.dtype else BranchTypeError
    return DataDependentTypeError if a is None or b is None or type(a) is type(b) else BranchTypeError
