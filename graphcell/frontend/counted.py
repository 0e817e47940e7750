"""`for` loops with a known trip count as one op, `For`.

Enters: a range, the rows of a Tensor, or `enumerate`, `zip` and `reversed` of these. `x[i]` of a Tensor that
the loop does not change becomes a scanned operand; a list that the body only appends to becomes a stacked
result. Refuses (`Speculation`), so that the loop is unrolled: bodies that need the index as a plain number,
change objects outside, or carry values whose type changes.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NoReturn

from graphcell import dtype as dt
from graphcell.errors import ConcretizationError
from graphcell.frontend.carries import Carry
from graphcell.frontend.control import region
from graphcell.frontend.exits import Exits
from graphcell.frontend.frame import Frame
from graphcell.frontend.joins import value_in
from graphcell.frontend.numbers import WeakNumber, affine_of, is_number, number
from graphcell.frontend.places import ItemsPlace, LeftEarly, Log, NamePlace, Place, Speculation, Unbound
from graphcell.frontend.signals import Chain, Signal
from graphcell.frontend.supported import assigned_names, only_appended, read_outside, updated_names
from graphcell.frontend.trees import Constant, Tree, flatten, type_of, unflatten
from graphcell.frontend.trials import Trial
from graphcell.ir.graph import Value
from graphcell.ir.types import TensorType
from graphcell.ops.control import For
from graphcell.ops.dispatch import Trace, apply1
from graphcell.ops.functional.common import full
from graphcell.ops.movement import Reshape, Slice
from graphcell.records import dataclass
from graphcell.tensor import Tensor, state

if TYPE_CHECKING:
    from graphcell.frontend.loops import Loops

_ATTEMPTS = 24


# -- what is iterated over ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Items:
    """A sequence whose element at an index, a plain one or a loop's, can be computed."""

    count: int
    element: Callable[[Any], Any]

    def elements(self, first: int) -> Iterator[Any]:
        """The elements from `first` on, at compile time."""
        return map(self.element, range(first, self.count))

    def __iter__(self) -> Iterator[Any]:
        return self.elements(0)


@dataclass(frozen=True)
class SymbolicRange:
    """A range whose ends are known only while the graph runs; its step is a plain number. Only `for` statements can run over it."""

    start: Any
    stop: Any
    step: int

    def _refuse(self, *_: Any) -> NoReturn:
        raise ConcretizationError(
            "the numbers of a range are asked for whose ends are not known while the graph is being built",
            hint="write a `for` statement over the range, or use ops.arange",
        )

    __iter__ = __len__ = __getitem__ = __contains__ = __reversed__ = _refuse


def items_of(interpreter: Loops, node: ast.expr, frame: Frame) -> Any:
    """What a loop iterates over: Items, or any Python iterable."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        function = interpreter.load(node.func.id, frame)
        if function in (builtins.enumerate, builtins.zip, builtins.reversed) and not any(
            isinstance(a, ast.Starred) for a in node.args
        ):
            count = 1 if function is builtins.enumerate else len(node.args)
            parts = [items_of(interpreter, a, frame) for a in node.args[:count]]
            extra = [interpreter.evaluate(a, frame) for a in node.args[count:]]
            frame.node = node
            return _combined(interpreter, function, parts, extra)
    value = interpreter.evaluate(node, frame)
    frame.node = node
    return _plain_items(interpreter, value)


def _plain_items(interpreter: Loops, value: Any) -> Any:
    if type(value) is range:
        return Items(
            len(value), lambda k: value[k] if type(k) is int else affine_of(k, value.step, value.start)
        )
    if isinstance(value, Tensor):
        if not value.ndim:
            return interpreter.iterate(value)  # for its error
        return Items(value.shape[0], lambda k: interpreter.load_item(value, k))
    return value


def _combined(interpreter: Loops, function: Any, parts: Sequence[Any], extra: Sequence[Any]) -> Any:
    if not parts or not all(isinstance(p, Items) for p in parts):
        plain = [p if not isinstance(p, Items) else list(p) for p in parts]
        return function(*plain, *extra)
    if function is builtins.zip:
        return Items(min(p.count for p in parts), lambda k: tuple([p.element(k) for p in parts]))
    inner = parts[0]
    if function is builtins.enumerate:
        start = extra[0] if extra else 0
        return Items(
            inner.count, lambda k: (k + start if type(k) is int else affine_of(k, 1, start), inner.element(k))
        )
    last = inner.count - 1
    return Items(inner.count, lambda k: inner.element(last - k if type(k) is int else affine_of(k, -1, last)))


# -- the loop ----------------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Appended:
    """A list that the body appends to: the value of one iteration."""

    place: ItemsPlace
    items: list[Any]


@dataclass(slots=True)
class _Late:
    """A name that has no value before the loop but is read after it."""

    place: Place
    tree: Tree
    leaves: list[Any]
    values: list[Value | None]


@dataclass(slots=True)
class _Body:
    """A body that was interpreted successfully."""

    trace: Trace
    index: Value
    inputs: list[Value]
    ends: list[Value]
    late: list[_Late] = field(default_factory=list)
    appended: list[tuple[ItemsPlace, Tree, list[Any], list[Value | None]]] = field(default_factory=list)


class CountedLoop:
    """One `for` on its way to a `For`, over the elements from `first` on.

    `kept`: the loop's variables have values already, those of the iteration before `first`, and are carried, since they are read after a
    loop that a Tensor may end early.
    """

    def __init__(self, interpreter: Loops, node: ast.For, items: Items, first: int, frame: Frame, kept: bool = False):
        self.interpreter, self.node, self.items, self.first, self.frame = (
            interpreter,
            node,
            items,
            first,
            frame,
        )
        self.trip_count = items.count - first
        assert state.trace is not None
        self.outer = state.trace
        self.carry = Carry(interpreter, self)
        self.exits = Exits(interpreter, self.carry)
        self.trace = self.outer
        self.scans: dict[tuple[Value, int, int], Value] = {}
        self.target: ast.expr = node.target
        self.body = list(node.body)
        if kept:
            self._take_item_in_body()
        body = tuple(self.body)
        targets = _names_in(self.target)
        if targets & assigned_names(body):
            raise Speculation("the loop's variable is assigned in its body")
        self.carry.loop_variables = {frame.place(name).key for name in targets}
        updated = updated_names(body)
        for name in sorted(assigned_names(body)):
            self.carry.guess(frame.place(name), name in updated)
        for name in sorted(_names_in(node.target) if kept else ()):
            self.carry.hold(frame.place(name))
        self.lists = self._appendable_lists(body)

    def _take_item_in_body(self) -> None:
        """`for .item in ...: i = .item; ...`: what the loop binds is a name of its own, and `i` is one that the body assigns."""
        node = self.node
        name = f".item{node.lineno}.{node.col_offset}"
        take = ast.Assign([node.target], ast.Name(name, ast.Load()))
        self.body.insert(0, ast.fix_missing_locations(ast.copy_location(take, node.target)))
        self.target = ast.copy_location(ast.Name(name, ast.Store()), node.target)

    def _appendable_lists(self, body: tuple[ast.stmt, ...]) -> set[int]:
        """Lists that one local name refers to and nothing else, which the body only appends to."""
        interpreter, found = self.interpreter, set()
        for name in list(self.frame.locals):
            value = self.frame.locals[name]
            if type(value) is not list or not only_appended(body, name):
                continue
            notes = (id(value) in interpreter.born) + sum(id(value) in log.births for log in interpreter.logs)
            if sys.getrefcount(value) <= 3 + notes:  # the name, the variable here, the argument
                found.add(id(value))
        return found

    def build(self) -> Signal | None:
        """Interprets the body until its types settle, then appends the op; gives how the loop ends.

        Raises:
            Speculation: it cannot be one op. Any error that interpreting the body raises.
        """
        for _ in range(_ATTEMPTS):
            with Trial(self.interpreter, strict=True) as trial:
                body = self._attempt()
                if body is not None:
                    trial.keep()
            if body is not None:
                return self._append(body)
        raise Speculation("the types of what the loop changes do not settle")

    def _attempt(self) -> _Body | None:
        interpreter = self.interpreter
        trace = self.trace = Trace(f"{self.outer.builder.name}.body", self.outer)
        self.scans = {}
        index = trace.input(TensorType(dt.int64, ()), "index")
        counter = WeakNumber(Tensor.of_value(index), (self, 1, 0))
        interpreter.loops.append(self)
        try:
            with interpreter.logged(strict=True) as log, trace.active():
                inputs = self.carry.enter(trace, counter)
                signal = self._iteration(affine_of(counter, 1, self.first))
                if signal is not None and signal.is_known:
                    raise Speculation("its first iteration always leaves it")
                if signal is not None and not self.exits.note(signal):
                    return None
                appended = self._appended(log)
                if not self.carry.settle(log, trace):
                    return None
                self._check_names()
                body = _Body(trace, index, inputs, self.carry.ends(trace))
                self._collect(body, appended, log)
        finally:
            interpreter.loops.pop()
        return body

    def _iteration(self, counter: Any) -> Signal | None:
        if not self.exits.used:
            return self._pass(counter)
        return self.interpreter.branch(self.exits.going, lambda: self._pass(counter), lambda: None)

    def _pass(self, counter: Any) -> Signal | None:
        interpreter, frame = self.interpreter, self.frame
        frame.node = self.target
        interpreter.bind(self.target, self.items.element(counter), frame)
        signal = interpreter.run(Chain(self.body), frame)
        if signal is None or (signal.broken is False and signal.returned is False):
            return None
        return Signal(broken=signal.broken, returned=signal.returned, value=signal.value)

    def _check_names(self) -> None:
        """Names without a value before the loop, of which only the graph knows in which iteration they got their last one."""
        if not self.exits.used or self.first:
            return
        names = _names_in(self.target) | {place.name for place, _ in self.carry.temporary.values() if isinstance(place, NamePlace)}
        if names & read_outside(self.frame.source.node, self.node):
            raise LeftEarly("what an iteration assigns is read after the loop, which a Tensor may end early")

    # -- rows, lists, late names ---------------------------------------------------------------------------
    def row(self, tensor: Tensor, index: WeakNumber) -> Tensor | None:
        """`tensor[index]` as a slice of a scanned operand, if the loop does not change `tensor`."""
        if index.affine is None or index.affine[0] is not self or not tensor.ndim or state.trace is None:
            return None
        value = state.trace.newest(tensor)
        for scope in state.trace.chain():
            if value in scope.own:
                return None
            if scope is self.trace:
                break
        scale, offset = index.affine[1:]
        extent = tensor.shape[0]
        ends = (offset, offset + scale * (self.trip_count - 1))
        if max(ends) < 0:
            offset, ends = offset + extent, (ends[0] + extent, ends[1] + extent)
        if min(ends) < 0 or max(ends) >= extent:
            raise Speculation("an index is out of range, or negative for some iterations only")
        key = (value, scale, offset)
        row = self.scans.get(key)
        if row is None:
            row = self.scans[key] = self.trace.input(
                tensor.ir_type.with_shape(tensor.shape[1:]), f"{value.name}.row" if value.name else ""
            )
        return Tensor.of_value(row)

    def _appended(self, log: Log) -> list[_Appended]:
        """Takes the lists that were appended to out of the log, so that they are not carried."""
        found = []
        for key, (place, old) in list(log.entries.items()):
            if (
                isinstance(place, ItemsPlace)
                and id(place.container) in self.lists
                and len(place.container) > len(old)
            ):
                found.append(_Appended(place, place.container[len(old) :]))
                place.set(old)
                del log.entries[key]
        return found

    def _collect(self, body: _Body, appended: list[_Appended], log: Log) -> None:
        for list_ in appended:
            leaves, tree, values = self._leaves(body, list_.items, log)
            body.appended.append((list_.place, tree, leaves, values))
        read = read_outside(self.frame.source.node, self.node)
        for place, end in self.carry.temporary.values():
            if not isinstance(place, NamePlace) or place.name not in read or isinstance(end, Unbound):
                continue
            leaves, tree, values = self._leaves(body, end, log)
            body.late.append(_Late(place, tree, leaves, values))

    def _leaves(self, body: _Body, value: Any, log: Log) -> tuple[list[Any], Tree, list[Value | None]]:
        """The leaves of something that is used after the loop, and the graph's values for those that are
        Tensors.
        """
        leaves, tree = flatten(value)
        self._check_constants(tree, log)
        for leaf in leaves:
            self._at(leaf, 0)  # for what it refuses
        return (
            leaves,
            tree,
            [value_in(body.trace, x, type_of(x)) if isinstance(x, Tensor) else None for x in leaves],
        )

    def _check_constants(self, tree: Tree, log: Log) -> None:
        """Objects made in the body would be others in every iteration."""
        if tree.kind is Constant and id(tree.constant) in log.births:
            raise Speculation("an object made in the loop is used after it")
        for child in tree.children:
            self._check_constants(child, log)

    # -- the op --------------------------------------------------------------------------------------------
    def _append(self, body: _Body) -> Signal | None:
        outer = self.outer
        self.frame.node = self.node.iter
        late = [v for item in body.late for v in item.values if v is not None]
        stacked = [v for item in body.appended for v in item[3] if v is not None]
        spare = [Value(v.type) for v in late]
        outside = list(body.trace.lifted)
        explicit = [body.index, *body.inputs, *spare, *self.scans.values()]
        graph = region(body.trace, outside, [*body.ends, *late, *stacked], explicit)
        starts = self.carry.starts(outer)
        zeros = [outer.read(full(v.type.shape, 0, v.type.dtype)) for v in late]
        scanned = [self._scanned(*key) for key in self.scans]
        op = For(graph, self.trip_count, len(starts) + len(zeros), len(scanned), False)
        results = outer.append_values(op, [*starts, *zeros, *scanned, *map(outer.lift, outside)])
        self.carry.take(outer, results[: len(starts)], self.trip_count)
        rest = iter(results[len(starts) :])
        self._take_late(body, rest)
        self._take_appended(body, rest)
        signal = self.exits.signal()
        if signal is None:
            self.interpreter.bind(self.target, self.items.element(self.items.count - 1), self.frame)
        else:
            self._forget_target()
        return self.interpreter.finished(signal, self.node, self.frame)

    def _scanned(self, value: Value, scale: int, offset: int) -> Value:
        shape = value.type.shape
        tensor = Tensor.of_value(self.outer.lift(value))
        if (scale, offset, shape[0]) == (1, 0, self.trip_count):
            return self.outer.lift(value)
        rest = len(shape) - 1
        cut = Slice((offset, *(0,) * rest), (self.trip_count, *shape[1:]), (scale, *(1,) * rest))
        return self.outer.read(apply1(cut, tensor))

    def _take_late(self, body: _Body, results: Iterator[Value]) -> None:
        for item in body.late:
            leaves = [
                self._last(x) if v is None else _alike(x, Tensor.of_value(next(results)))
                for x, v in zip(item.leaves, item.values, strict=True)
            ]
            self.interpreter.assign(item.place, unflatten(item.tree, iter(leaves)))
        handled = {item.place.key for item in body.late}
        for key, (place, _) in self.carry.temporary.items():
            if key not in handled:
                self.interpreter.assign(place, Unbound())

    def _take_appended(self, body: _Body, results: Iterator[Value]) -> None:
        for place, tree, leaves, values in body.appended:
            stacks = [None if v is None else Tensor.of_value(next(results)) for v in values]
            content = list(place.container)
            for k in range(self.trip_count):
                row = [
                    self._at(x, k) if s is None else _alike(x, _row(s, k)) for x, s in zip(leaves, stacks, strict=True)
                ]
                content.extend(unflatten(tree, iter(row)))
            self.interpreter.assign(place, content)

    def _last(self, leaf: Any) -> Any:
        return self._at(leaf, self.trip_count - 1)

    def _at(self, leaf: Any, k: int) -> Any:
        """A number at iteration `k`."""
        if not isinstance(leaf, WeakNumber):
            return leaf
        if leaf.affine is None or leaf.affine[0] is not self:
            raise Speculation("a number computed of the loop's index is used after the loop")
        return leaf.affine[1] * k + leaf.affine[2]

    def _forget_target(self) -> None:
        """The loop may have been left early, so its variable is known while the graph runs only."""
        for name in _names_in(self.target):
            self.interpreter.assign(self.frame.place(name), Unbound())


def _names_in(target: ast.expr) -> set[str]:
    return assigned_names((ast.Assign([target], ast.Constant(None)),))


def _alike(leaf: Any, tensor: Tensor) -> Tensor:
    """`tensor`, as a number if `leaf` is one."""
    return number(tensor) if is_number(leaf) else tensor


def _row(stack: Tensor, k: int) -> Tensor:
    shape = stack.shape
    rest = len(shape) - 1
    piece = apply1(Slice((k, *(0,) * rest), (1, *shape[1:]), (1,) * (rest + 1)), stack)
    return apply1(Reshape(shape[1:]), piece)
