"""`apply`: the one door through which every primitive goes.

With a graph under construction (`Trace`) the op is appended to it; otherwise its `eval` runs, and the tapes that follow one of the
operands record it. Enters: an op and its operand Tensors. Leaves: a tuple of Tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

from graphcell.errors import ExecutionError, GraphcellError, Span
from graphcell.ir.graph import Builder, Graph, Value
from graphcell.ir.op import Op, evaluate, exact_key, infer_types
from graphcell.ir.types import TensorType
from graphcell.ops.base import View
from graphcell.ops.kernels import NATIVE_SHARE, Native, Work, spent
from graphcell.records import dataclass
from graphcell.tensor import Tensor, state

_signatures: dict[tuple[Any, ...], Signature] = {}
_KEPT_SIGNATURES = 8192


class Signature(Work):
    """An op with the types of its operands: checked once, and run natively when that is worth it."""

    __slots__ = ("each", "exact", "has_regions", "is_candidate", "op", "results", "rules")

    def __init__(self, op: Op, types: tuple[TensorType, ...]):
        super().__init__()
        results = infer_types(op, types)  # for its errors, too
        self.op = op
        self.each = op.eval_nanoseconds(types, results)
        self.has_regions = bool(op.regions)
        self.is_candidate = bool(types or op.name == "full") and not (op.has_effect or isinstance(op, View))
        self.exact = exact_key(op)
        self.results = len(results)
        self.rules: dict[tuple[bool, ...], Any] = {}  # graphcell.passes.rules.Rule, by which operands need gradients

    @staticmethod
    def of(op: Op, operands: Sequence[Tensor]) -> Signature:
        """The signature of an op on these operands. Raises what `infer` raises."""
        key: list[Any] = [op.__class__, op]  # alike parameters of other ops have the same hash
        for t in operands:
            data = t._data
            if data is None:
                data = t.array()
            key.append(data.dtype)
            key.append(data.shape)
        found = _signatures.get(place := tuple(key))
        if found is None:
            found = Signature(op, tuple([t.ir_type for t in operands]))
            if len(_signatures) >= _KEPT_SIGNATURES:
                _signatures.clear()
            _signatures[place] = found
        return found

    def run(self, op: Op, operands: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The op's results."""
        if self.kernel is not None and (op is self.op or exact_key(op) == self.exact):  # 0.0 and -0.0 are equal, but other kernels
            results = self.run_natively(operands, self.each)
            if results is not NotImplemented:
                spent.nanoseconds += NATIVE_SHARE * self.each
                return results  # type: ignore[no-any-return]
        outputs = tuple(map(Tensor.of_array, evaluate(op, tuple([t.array() for t in operands]))))
        spent.nanoseconds += self.each
        if self.is_candidate and self.is_due(self.each):
            self.kernel = Native.compile(_graph_of(self.op, operands))
        return outputs


def _graph_of(op: Op, operands: Sequence[Tensor]) -> Graph:
    """A graph of this op alone."""
    builder = Builder(op.name)
    inputs = [builder.input(t.ir_type, f"x{k}") for k, t in enumerate(operands)]
    return builder.finish(builder.append(op, inputs, None))


def apply(op: Op, *operands: Tensor) -> tuple[Tensor, ...]:
    """Applies `op`: appends it to the graph under construction, or evaluates it now."""
    trace = state.trace
    if trace is not None:
        return trace.append(op, operands)
    signature = Signature.of(op, operands)
    tapes = state.tapes
    if not signature.has_regions:
        outputs = signature.run(op, operands)
        for tape in tapes:
            tape.record(signature, operands, outputs)
        return outputs
    if tapes:
        return _record_region(signature, op, operands)
    return _run_graph(op, operands) if hasattr(op, "runner") else signature.run(op, operands)


def _run_graph(op: Op, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Runs an op that is the call of a graph."""
    return op.runner(op.regions[0], operands)  # type: ignore[attr-defined, no-any-return]


def apply1(op: Op, *operands: Tensor) -> Tensor:
    """`apply` for ops with one result."""
    return apply(op, *operands)[0]


class Trace:
    """A graph under construction, with what it took from outside and what it changed.

    `parent` is the trace around a region. Values of outer traces are *lifted*: they become inputs of this graph, and `lifted` remembers
    which outer value each stands for. Concrete Tensors met on the way are captured by the outermost trace as inputs, so that later
    changes of their data are seen; Tensors made while tracing are constants. A write to a Tensor (a Parameter, `x[0] = …`) makes a new
    newest value in `newest_values`; the graph itself stays pure.
    """

    def __init__(self, name: str, parent: Trace | None = None):
        self.builder = Builder(name)
        self.parent = parent
        self.root: Trace = parent.root if parent is not None else self
        self.own: set[Value] = set()
        self.lifted: dict[Value, Value] = {}  # outer value -> input of this graph
        self.captured: dict[int, tuple[Tensor, Value]] = {}  # root only: id(tensor) -> tensor, input
        self.constants: dict[int, tuple[Tensor, Value]] = {}
        self.newest_values: dict[int, tuple[Tensor, Value]] = {}
        self.forwards: dict[int, Any] = {}  # id(cell) -> its last forward pass, for its gradient (graphcell/pullback.py)
        self.output_types: dict[Any, tuple[list[TensorType], int, list[int], list[Any]]] = {}  # root only: of Cells with hooks (graphcell/nn/hooks.py)
        self.noted: dict[tuple[int, str], tuple[Tensor, str, Any]] = {}  # root only: what was asked of Tensors beside their values
        self.before_change: Callable[[Any], None] = lambda container: None  # root only: to be called before a dict or list from outside changes
        self.span: Callable[[], Span | None] = parent.span if parent is not None else lambda: None

    # -- building ----------------------------------------------------------------------------------------------------
    def input(self, type: TensorType, name: str = "") -> Value:
        value = self.builder.input(type, name)
        self.own.add(value)
        return value

    def append(self, op: Op, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(map(Tensor.of_value, self.append_values(op, [self.read(t) for t in operands])))

    def append_values(self, op: Op, operands: Sequence[Value]) -> tuple[Value, ...]:
        results = self.builder.append(op, operands, self.span())
        self.own.update(results)
        return results

    def inline(self, graph: Graph, arguments: Sequence[Value]) -> tuple[Value, ...]:
        """Copies `graph` here; arguments may be outer values."""
        before = len(self.builder.nodes)
        outputs = self.builder.inline(graph, [self.lift(v) for v in arguments])
        for node in self.builder.nodes[before:]:
            self.own.update(node.results)
        return outputs

    # -- reading and writing storages --------------------------------------------------------------------------------
    def newest(self, tensor: Tensor) -> Value:
        """The newest value of a Tensor, wherever it was made (not yet lifted into this graph)."""
        scope: Trace | None = self
        while scope is not None:
            entry = scope.newest_values.get(id(tensor))
            if entry is not None:
                return entry[1]
            scope = scope.parent
        if tensor._value is not None:
            return tensor._value
        return self._constant(tensor) if tensor._constant else self.root.capture(tensor)

    def read(self, tensor: Tensor) -> Value:
        """The newest value of a Tensor, as a value of this graph."""
        return self.lift(self.newest(tensor))

    def write(self, tensor: Tensor, value: Value) -> None:
        """Makes `value` the newest of `tensor` for all that follows in this graph."""
        self.newest_values[id(tensor)] = (tensor, value)

    def note(self, tensor: Tensor, name: str, value: Any) -> Any:
        """Notes that the graph depends on an attribute of `tensor` being `value`; changing it must count in `StateEpoch`. Gives back `value`."""
        self.root.noted[id(tensor), name] = (tensor, name, value)
        return value

    def lift(self, value: Value) -> Value:
        """`value` as a value of this graph: itself, or the input that stands for an outer value."""
        if value in self.own:
            return value
        found = self.lifted.get(value)
        if found is None:
            if self.parent is None:
                raise GraphcellError("a Tensor of another graph was used in this one; it must be passed as an argument")
            self.parent.lift(value)  # every graph between must have it too
            found = self.lifted[value] = self.input(value.type, value.name)
        return found

    def capture(self, tensor: Tensor) -> Value:
        entry = self.captured.get(id(tensor))
        if entry is None:
            name = getattr(tensor, "name", "") or f"captured{len(self.captured)}"
            entry = self.captured[id(tensor)] = (tensor, self.input(tensor.ir_type, str(name)))
        return entry[1]

    def _constant(self, tensor: Tensor) -> Value:
        from graphcell.ops.creation import constant_op

        for scope in self.chain():
            entry = scope.constants.get(id(tensor))
            if entry is not None:
                return entry[1]
        value = self.append_values(constant_op(tensor.array()), ())[0]
        self.constants[id(tensor)] = (tensor, value)
        return value

    def chain(self) -> Iterator[Trace]:
        """This trace and those around it, innermost first."""
        scope: Trace | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def writes(self) -> list[tuple[Tensor, Value]]:
        """The Tensors that this graph changed, with their newest values."""
        return list(self.newest_values.values())

    def finish(self, outputs: Sequence[Value]) -> Graph:
        return self.builder.finish([self.lift(v) for v in outputs])

    @contextmanager
    def active(self) -> Iterator[Trace]:
        """Makes this the graph that ops are appended to."""
        before = state.trace
        state.trace = self
        try:
            yield self
        finally:
            state.trace = before


@contextmanager
def no_trace() -> Iterator[None]:
    """Ops inside run eagerly even while a graph is being built (for compile-time values)."""
    before, state.trace = state.trace, None
    try:
        yield
    finally:
        state.trace = before


@dataclass(slots=True)
class TapeEntry:
    """One recorded op: its gradient rule, what that keeps, and the tape's numbers of the values it connects."""

    rule: Any  # graphcell.passes.rules.Rule
    kept: tuple[Tensor, ...]
    operands: tuple[int, ...]  # of the operands that need gradients
    results: tuple[int, ...]  # of the results that have cotangents
    types: tuple[TensorType, ...]  # of the latter, if they are several

    def propagate(self, tape: Tape, table: dict[int, Tensor]) -> None:
        """Takes the cotangents of the results out of `table` (number -> cotangent) and adds those of the operands."""
        from graphcell.passes.autodiff import accumulate, zeros_of_type

        given = [tape.hooked(n, table.pop(n, None)) for n in self.results]
        full = [g for g in given if g is not None]
        if not full:
            return
        if len(full) < len(given):
            full = [zeros_of_type(t) if g is None else g for t, g in zip(self.types, given, strict=True)]
        for number, g in zip(self.operands, self.rule.backward(self.kept, full), strict=True):
            if g is not None:
                accumulate(table, number, g)


@dataclass(slots=True)
class PackedEntry:
    """A recorded op whose kept Tensors the user packs away until the backward pass."""

    entry: TapeEntry  # without them
    packed: tuple[Any, ...]
    unpack: Callable[[Any], Any]

    @staticmethod
    def of(entry: TapeEntry, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> PackedEntry:
        """`entry`, packed."""
        kept, entry.kept = entry.kept, ()
        with packing(None):
            return PackedEntry(entry, tuple([pack(t) for t in kept]), unpack)

    def propagate(self, tape: Tape, table: dict[int, Tensor]) -> None:
        with packing(None):
            kept = tuple([self.unpack(p) for p in self.packed])
        for t in kept:
            if not isinstance(t, Tensor):
                raise ExecutionError(f"unpack_hook must return the Tensor that was packed, but returned {type(t).__name__}")
        replace(self.entry, kept=kept).propagate(tape, table)


@contextmanager
def packing(hooks: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None) -> Iterator[None]:
    """What tapes keep inside goes through `hooks` (pack, unpack); None: it is kept as it is."""
    before, state.packing = state.packing, hooks
    try:
        yield
    finally:
        state.packing = before


class Entry(Protocol):
    """What a tape has recorded."""

    def propagate(self, tape: Tape, table: dict[int, Tensor]) -> None: ...


class Block(Protocol):
    """A part of the computation that is not recorded but run again for its gradients (graphcell/ops/recomputed.py)."""

    def note(self, storage: Tensor) -> None: ...


class Tape:
    """Records the eager ops that depend on the watched Tensors, for reverse-mode differentiation by the ops' own gradient rules.

    Every tracked value has a number. A Tensor's number changes when it is written in place, so that gradients flow through the value
    that was read. Of an op's operands and results only those are kept alive that its rule reads, as snapshots: what is written into
    their Tensors afterwards does not reach them. While `block` is set, values get numbers but nothing is kept: the block will be run again.
    """

    def __init__(self) -> None:
        self.block: Block | None = None
        self._numbers: dict[int, tuple[weakref.ref[Tensor], int]] = {}  # id(tensor) -> tensor, number of its newest value
        self._watched: dict[int, tuple[Tensor, int]] = {}  # id(tensor) -> tensor, number of its value when watched
        self._entries: list[Entry] = []
        self._hooks: dict[int, Mapping[int, Callable[[Tensor], Tensor]]] = {}  # number -> what its gradient passes through
        self.count = 0

    def __len__(self) -> int:
        return len(self._entries)

    def successor(self) -> Tape:
        """An empty tape that follows the same values and numbers new ones on from here."""
        new = Tape()
        new._numbers, new.count = dict(self._numbers), self.count
        return new

    # -- what is tracked ---------------------------------------------------------------------------------------------
    def watch(self, tensor: Tensor) -> None:
        """Tracks `tensor`, so that its gradient can be asked for."""
        number = self.number(tensor)
        number = self._track(tensor) if number is None else number
        self._watched[id(tensor)] = (tensor, number)
        if tensor.gradient_hooks:
            self._hooks[number] = tensor.gradient_hooks

    def number(self, tensor: Tensor) -> int | None:
        """The number of the newest value of `tensor`, or None if it is not tracked."""
        entry = self._numbers.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def hook(self, tensor: Tensor) -> None:
        """Lets the gradient of the value that `tensor` has now pass through the Tensor's hooks."""
        number = self.number(tensor)
        if number is not None:
            self._hooks[number] = tensor.gradient_hooks

    def alias(self, copy: Tensor, tensor: Tensor) -> None:
        """Lets `copy` stand for the value that `tensor` has now."""
        number = self.number(tensor)
        if number is not None:
            self._numbers[id(copy)] = (weakref.ref(copy), number)

    def write(self, target: Tensor, value: Tensor) -> None:
        """Notes that `target` has the value of `value` from now on."""
        self._numbers.pop(id(target), None)
        self.alias(target, value)

    def _track(self, tensor: Tensor) -> int:
        self.count += 1
        self._numbers[id(tensor)] = (weakref.ref(tensor), self.count)
        return self.count

    # -- recording ---------------------------------------------------------------------------------------------------
    def record(self, signature: Signature, operands: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
        """Notes an op without regions that has been run."""
        table = self._numbers
        numbers: list[int] = []
        needed: list[bool] = []
        for t in operands:
            entry = table.get(id(t))
            tracked = entry is not None and entry[0]() is t
            needed.append(tracked)
            if tracked:
                numbers.append(entry[1])  # type: ignore[index]
        if not numbers or signature.op.name == "stop_gradient":
            return
        rule = signature.rules.get(wanted := tuple(needed))
        if rule is None:
            from graphcell.passes.rules import rule_of

            rule = signature.rules[wanted] = rule_of(signature.op, tuple(t.ir_type for t in operands), wanted)
        self.add(rule, tuple(numbers), operands, outputs, ())

    def add(
        self, rule: Any, numbers: tuple[int, ...], operands: Sequence[Tensor], outputs: Sequence[Tensor], residuals: Sequence[Tensor]
    ) -> None:
        """Notes that `outputs` were made of `operands`, with gradients by `rule`; `numbers` are those of the operands that are tracked."""
        if not rule.seeds:
            return
        results = tuple([self._track(outputs[k]) for k in rule.seeds])
        if self.block is not None:
            return
        kept = (*[self._snapshot(operands[k]) for k in rule.operands], *[self._snapshot(outputs[k]) for k in rule.results], *residuals)
        types = tuple([outputs[k].ir_type for k in rule.seeds]) if len(results) > 1 else ()  # to fill in cotangents that are not there
        entry = TapeEntry(rule, kept, numbers, results, types)
        self.note(entry if state.packing is None else PackedEntry.of(entry, *state.packing))

    def note(self, entry: Entry) -> None:
        """Adds an entry."""
        self._entries.append(entry)

    def _snapshot(self, tensor: Tensor) -> Tensor:
        copy = Tensor.of_array(tensor.array())
        for tape in state.tapes:
            if tape is not self:
                tape.alias(copy, tensor)
        return copy

    # -- gradients ---------------------------------------------------------------------------------------------------
    def gradients(
        self, outputs: Sequence[Tensor], cotangents: Sequence[Tensor | None], wrt: Sequence[Tensor], release: bool = False
    ) -> list[Tensor | None]:
        """Cotangents of the watched Tensors `wrt` given those of `outputs`; None where nothing flows.

        With `release` each entry is let go of as soon as it has been used, and the tape is empty afterwards.
        """
        from graphcell.passes.autodiff import accumulate

        table: dict[int, Tensor] = {}
        for t, g in zip(outputs, cotangents, strict=True):
            number = self.number(t)
            if g is not None and number is not None:
                accumulate(table, number, g)
        for entry in self.newest_first(release):
            entry.propagate(self, table)
        numbers = (self._watched.get(id(t)) for t in wrt)
        return [None if n is None else self.hooked(n[1], table.get(n[1])) for n in numbers]

    def hooked(self, number: int, gradient: Tensor | None) -> Tensor | None:
        """The whole gradient of a value, after its hooks."""
        if gradient is None or number not in self._hooks:
            return gradient
        for hook in tuple(self._hooks[number].values()):
            gradient = hook(gradient)
        return gradient

    def newest_first(self, release: bool) -> Iterator[Entry]:
        """What was recorded, backwards; with `release`, each entry leaves the tape."""
        if not release:
            yield from reversed(self._entries)
            return
        while self._entries:
            yield self._entries.pop()


def _record_region(signature: Signature, op: Op, operands: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Runs an op that holds graphs under the tapes. The innermost tape that follows an operand has the op leave its residuals; the tapes
    around it see that forward op, and later the backward op, as ops of their own."""
    from graphcell.passes.rules import region_rule

    tapes = state.tapes
    tape, outer = tapes[-1], tapes[:-1]
    numbers = list(map(tape.number, operands))
    needed = tuple([n is not None for n in numbers])
    forward, rule = region_rule(op, needed)  # type: ignore[arg-type]
    if not outer and hasattr(forward, "runner"):  # compiled: nothing inside looks at tapes
        results = _run_graph(forward, operands)
    else:
        state.tapes = outer
        try:
            results = apply(forward, *operands)
        finally:
            state.tapes = tapes
    if rule is None:
        return results
    count = signature.results
    tape.add(rule, tuple([n for n in numbers if n is not None]), operands, results[:count], results[count:])
    return results[:count]


def written_in(target: Tensor) -> Tensor:
    """What holds the values that change when `target` is written to: in a Cell with a `to_float` dtype, not the Parameter in that dtype but
    the Parameter itself, or a step that is small beside the sum would be lost, and rounded what is not written to.
    """
    source: Tensor | None = target.__dict__.get("written_through")
    return target if source is None or source.dtype is target.dtype else source


def write(target: Tensor, value: Tensor) -> None:
    """Makes `value`, of the same dtype and shape, the newest value of `target`: in the graph under construction, or in its buffer.

    To gradients a Parameter stays one variable, whatever is written into it (see `Overwrite`).
    What shows the value of a Parameter, perhaps in the dtype of a Cell's `to_float`, is written through to that; `value` may then be of
    the Parameter's dtype.
    """
    source = target.__dict__.get("written_through")
    if source is not None:
        from graphcell.ops.functional.common import cast

        write(source, cast(value, source.dtype))
        value = cast(value, target.dtype)
    if state.trace is not None:
        new = state.trace.read(value)
        if target.is_variable:
            from graphcell.ops.arithmetic import Overwrite

            new = state.trace.append_values(Overwrite(), (state.trace.read(target), new))[0]
        state.trace.write(target, new)
        return
    for tape in () if target.is_variable else state.tapes:
        tape.write(target, value)
    note_change(target)
    target.rebind(value.array())


def note_change(storage: Tensor) -> None:
    """To be called eagerly before the value of a storage changes: what is run again starts from the old one."""
    for tape in state.tapes:
        if tape.block is not None:
            tape.block.note(storage)


@contextmanager
def recording(tape: Tape) -> Iterator[Tape]:
    """Adds `tape` to those that record in this thread."""
    before = state.tapes
    state.tapes = (*before, tape)
    try:
        yield tape
    finally:
        state.tapes = before
