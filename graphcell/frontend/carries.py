"""What a loop carries from one iteration to the next, found by interpreting its body.

Enters: guesses. Leaves: the places and storages that the body changes, each leaf with one type for all
iterations. Numbers that change become Tensors (or, where they grow by a constant, functions of the loop's
index); numbers that do not stay constants.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field
from typing import Any

from graphcell.errors import BranchTypeError, DataDependentTypeError, GraphcellError, UnboundNameError
from graphcell.frontend.core import Core
from graphcell.frontend.joins import conflict_of, value_in
from graphcell.frontend.numbers import WeakNumber, affine_of, is_number, number
from graphcell.frontend.places import CellPlace, Log, NamePlace, Place, Speculation, Unbound, Unstable
from graphcell.frontend.trees import (
    NUMBERS,
    Tree,
    describe,
    fits,
    flatten,
    join_numbers,
    same_constant,
    type_of,
    unchanged,
    unflatten,
)
from graphcell.ir.graph import Value
from graphcell.ir.types import TensorType
from graphcell.ops.dispatch import Trace
from graphcell.records import dataclass
from graphcell.tensor import Tensor


@dataclass(slots=True)
class Leaf:
    """One varying part of a carried value. `type` None: a number that has not changed so far. `step`: it
    grows by that much.
    """

    start: Any
    type: TensorType | None = None
    step: int | None = None
    is_number: bool = False
    """It is a Python number before the loop and after each iteration."""

    def __post_init__(self) -> None:
        self.is_number = is_number(self.start)

    def accept(self, end: Any, counted: Any) -> bool:
        """Takes note of the value after an iteration; True if the leaf's type had to change. `counted`: the
        loop, if its trip count is known.

        Raises:
            BranchTypeError: no one type fits. Speculation: the loop cannot be one op.
        """
        self.is_number = self.is_number and is_number(end)
        if self.step is not None:
            wanted = (counted, self.step, self.start + self.step)
            if not (isinstance(end, WeakNumber) and end.affine == wanted):
                raise Speculation(
                    "a number changes from one iteration to the next, but not by the same amount"
                )
            return False
        if self.type is None:
            if same_constant(self.start, end):
                return False
            return self._release(end, counted)
        found = type_of(end)
        if found == self.type or (
            is_number(end) and not self.type.shape and found.dtype.category <= self.type.dtype.category
        ):
            return False
        if (
            is_number(self.start)
            and not found.shape
            and (is_number(end) or found.dtype.category >= self.type.dtype.category)
        ):
            self.type = TensorType(
                join_numbers(self.type.dtype, found.dtype) if is_number(end) else found.dtype, ()
            )
            return True
        kind = DataDependentTypeError if found.dtype is self.type.dtype else BranchTypeError
        raise kind(f"{describe_type(self.type)} before the loop and {describe(end)} after an iteration")

    def _release(self, end: Any, counted: Any) -> bool:
        """A number that turned out to change."""
        if counted is not None and type(self.start) is int and type(end) is int:
            self.step = end - self.start
            return True
        if counted is not None and (type(end) in NUMBERS or isinstance(end, WeakNumber)):
            raise Speculation("a number changes from one iteration to the next")
        mine, other = type_of(self.start), type_of(end)
        if other.shape or (not is_number(end) and mine.dtype.category > other.dtype.category):
            raise BranchTypeError(
                f"{describe(self.start)} before the loop and {describe(end)} after an iteration"
            )
        self.type = TensorType(join_numbers(mine.dtype, other.dtype) if is_number(end) else other.dtype, ())
        return True


def describe_type(type: TensorType) -> str:
    return f"Tensor {type}"


@dataclass(slots=True)
class Carried:
    """A place that the body changes. `conflict`: its types do not fit, so reading it is an error. `entered`:
    its value in the body.
    """

    place: Place
    tree: Tree
    leaves: list[Leaf]
    conflict: Unbound | None = None
    entered: Any = None
    is_guess: bool = False


@dataclass(slots=True)
class Carry:
    """All that is carried. `counted`: the loop object if the trip count is known, else None.

    `excluded`: guesses that were wrong. `loop_variables`: places that every iteration sets first.
    `temporary`: places that had no value before the loop, with the value that they have after the body.
    """

    interpreter: Core
    counted: Any = None
    places: dict[Hashable, Carried] = field(default_factory=dict)
    storages: dict[int, Tensor] = field(default_factory=dict)
    excluded: set[Hashable] = field(default_factory=set)
    loop_variables: set[Hashable] = field(default_factory=set)
    temporary: dict[Hashable, tuple[Place, Any]] = field(default_factory=dict)

    def guess(self, place: Place, as_tensors: bool) -> None:
        """Expects `place` to change; its numbers too, with `as_tensors`."""
        value = place.get()
        if isinstance(value, Unbound) or place.key in self.excluded or place.key in self.places:
            return
        leaves, tree = flatten(value)
        if any(isinstance(x, Tensor) for x in leaves) or (as_tensors and leaves):
            carried = self._add(place, leaves, tree)
            carried.is_guess = True
            if as_tensors and self.counted is None:
                for leaf in carried.leaves:
                    leaf.type = type_of(leaf.start)

    def expect(self, place: Place, type: TensorType | None = None) -> None:
        """Carries `place` in any case; as Tensors of `type`, if given."""
        carried = self._add(place, *flatten(place.get()))
        for leaf in carried.leaves:
            leaf.type = type or leaf.type

    def hold(self, place: Place) -> None:
        """Carries `place` in any case, its numbers as Tensors."""
        for leaf in self._add(place, *flatten(place.get())).leaves:
            leaf.type = type_of(leaf.start)

    def _add(self, place: Place, leaves: Sequence[Any], tree: Tree) -> Carried:
        made = [Leaf(x, None if type(x) in NUMBERS else type_of(x)) for x in leaves]
        carried = self.places[place.key] = Carried(place, tree, made)
        return carried

    # -- the body ------------------------------------------------------------------------------------------
    def enter(self, trace: Trace, index: WeakNumber | None = None) -> list[Value]:
        """Gives every carried place its value in `trace`; the inputs that stand for the leaves, in order."""
        inputs: list[Value] = []
        for carried in self.places.values():
            leaves = (
                [self._entered(leaf, carried.place.name, trace, inputs, index) for leaf in carried.leaves]
                if carried.conflict is None
                else []
            )
            carried.entered = carried.conflict or unflatten(carried.tree, iter(leaves))
            self.interpreter.assign(carried.place, carried.entered)
        for tensor in self.storages.values():
            value = trace.input(tensor.ir_type, str(getattr(tensor, "name", "")))
            inputs.append(value)
            trace.write(tensor, value)
        return inputs

    @staticmethod
    def _entered(leaf: Leaf, name: str, trace: Trace, inputs: list[Value], index: WeakNumber | None) -> Any:
        if leaf.step is not None and index is not None:
            return affine_of(index, leaf.step, leaf.start)
        if leaf.type is None:
            return leaf.start
        value = trace.input(leaf.type, name)
        inputs.append(value)
        tensor = Tensor.of_value(value)
        return number(tensor) if leaf.is_number else tensor

    def settle(self, log: Log, trace: Trace) -> bool:
        """Compares the state after the body with what was expected; False if the body must be interpreted
        again.
        """
        stable = True
        self.temporary.clear()
        for key, (place, old) in log.entries.items():
            if key not in self.loop_variables and not self._settle_place(key, place, old):
                stable = False
        for tensor, _ in trace.writes():
            inside = id(tensor) in log.births or (tensor._value is not None and tensor._value in trace.own)
            if id(tensor) not in self.storages and not inside:
                self.storages[id(tensor)] = tensor
                stable = False
        return stable

    def _settle_place(self, key: Hashable, place: Place, old: Any) -> bool:
        end = place.get()
        carried = self.places.get(key)
        if carried is None:
            if isinstance(old, Unbound):
                self.temporary[key] = (place, end)
                return True
            if unchanged(old, end):
                return True
            self._settle_leaves(self._add(place, *flatten(old)), end)
            return False
        elif carried.conflict is not None:
            return True
        elif end is carried.entered and carried.is_guess:
            del self.places[key]
            self.excluded.add(key)
            return False
        return self._settle_leaves(carried, end)

    def _settle_leaves(self, carried: Carried, end: Any) -> bool:
        place = carried.place
        is_name = isinstance(place, (NamePlace, CellPlace))
        if isinstance(end, Unbound) and is_name and self.counted is None:  # it says itself why it has no value
            carried.conflict = end
            return False
        try:
            leaves, tree = flatten(end)
            if isinstance(end, Unbound) or not fits(carried.tree, tree):
                before = unflatten(carried.tree, iter([leaf.start for leaf in carried.leaves]))
                raise conflict_of(before, end)(
                    f"{describe(before)} before the loop and {describe(end)} after an iteration"
                )
            changes = [leaf.accept(x, self.counted) for leaf, x in zip(carried.leaves, leaves, strict=True)]
            return not any(changes)
        except BranchTypeError as error:
            if self.counted is not None:
                raise Unstable(f"{place.label} is {error.message}") from None
            conflict = _conflict(place, error)
            if not is_name:
                raise conflict.error() from None  # type: ignore[misc]
            carried.conflict = conflict
            return False

    def conflicts(self) -> list[Carried]:
        """What has another type after an iteration than before the loop."""
        return [carried for carried in self.places.values() if carried.conflict is not None]

    # -- the op --------------------------------------------------------------------------------------------
    def starts(self, outer: Trace) -> list[Value]:
        """The operands for the carried inputs."""
        values = [value_in(outer, leaf.start, leaf.type) for leaf in self._tensors()]  # type: ignore[arg-type]
        return [*values, *map(outer.read, self.storages.values())]

    def ends(self, trace: Trace) -> list[Value]:
        """The carried outputs, to be called before the state is undone."""
        values = []
        for carried in self.places.values():
            if carried.conflict is not None:
                continue
            leaves, _ = flatten(carried.place.get())
            for leaf, end in zip(carried.leaves, leaves, strict=True):
                if leaf.type is not None:
                    values.append(value_in(trace, end, leaf.type))
        return [*values, *map(trace.read, self.storages.values())]

    def _tensors(self) -> list[Leaf]:
        return [
            leaf
            for c in self.places.values()
            if c.conflict is None
            for leaf in c.leaves
            if leaf.type is not None
        ]

    def take(self, outer: Trace, results: Sequence[Value], trip_count: int) -> None:
        """Gives every carried place its value after the loop."""
        values = iter(results)
        for carried in self.places.values():
            if carried.conflict is not None:
                self.interpreter.assign(carried.place, carried.conflict)
                continue
            leaves = [self._after(leaf, carried.place.name, values, trip_count) for leaf in carried.leaves]
            self.interpreter.assign(carried.place, unflatten(carried.tree, iter(leaves)))
        for tensor, value in zip(self.storages.values(), values, strict=True):
            outer.write(tensor, value)

    @staticmethod
    def _after(leaf: Leaf, name: str, values: Any, trip_count: int) -> Any:
        if leaf.step is not None:
            return leaf.start + leaf.step * trip_count
        if leaf.type is None:
            return leaf.start
        value = next(values)
        value.name = value.name or name
        tensor = Tensor.of_value(value)
        return number(tensor) if leaf.is_number else tensor


def _conflict(place: Place, error: BranchTypeError) -> Unbound:
    message = f"{place.label} is {error.message}; a loop that a Tensor decides on needs one type"
    hint = "give it its final shape and dtype before the loop (for what is added up: ops.zeros of that shape; the sum of an int32 Tensor is int64)"
    return Unbound(lambda: type(error)(message, hint=hint))


def unset_by_loop(name: str) -> Unbound:
    """What a name is after a loop that may not run at all."""

    def error() -> GraphcellError:
        return UnboundNameError(
            f"The local variable '{name}' is assigned only inside a loop that a Tensor decides on, which may not run at all.",
            hint=f"assign '{name}' before the loop",
        )

    return Unbound(error)
