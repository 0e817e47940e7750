"""Loops: unrolled at compile time, or one op. A `while` on a Tensor becomes `While`; a `for` with a known
trip count becomes `For` where that pays.

The body is interpreted with symbolic values for what it changes, again and again until their types settle.
What such a trial did is undone. A break or return that a Tensor decides on becomes a flag that is carried
along.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from graphcell import dtype as dt
from graphcell.errors import BranchTypeError, GraphcellError, UnsupportedSyntaxError
from graphcell.frontend.carries import Carry, unset_by_loop
from graphcell.frontend.control import region
from graphcell.frontend.counted import CountedLoop, Items, SymbolicRange, items_of
from graphcell.frontend.exits import Exits, exit_of
from graphcell.frontend.frame import Frame
from graphcell.frontend.patterns import Patterns
from graphcell.frontend.places import LeftEarly, Log, Never, Speculation, Unbound, Unstable
from graphcell.frontend.signals import Chain, Done, Signal
from graphcell.frontend.supported import assigned_names, read_outside, returns_or_breaks, updated_names
from graphcell.frontend.trials import Trial
from graphcell.ir.graph import Value
from graphcell.ops.control import While
from graphcell.ops.creation import Full
from graphcell.ops.dispatch import Trace
from graphcell.ops.functional.common import full
from graphcell.ops.functional.comparison import logical_and
from graphcell.passes.count_loops import count_loop
from graphcell.tensor import Tensor, state

WORTH = 8
"""Loops of fewer iterations are unrolled."""
_ATTEMPTS = 24


class Loops(Patterns):
    """Adds `while` and `for`."""

    # -- while ---------------------------------------------------------------------------------------------
    def run_block_While(self, node: ast.While, frame: Frame, rest: Chain) -> Chain | Done:
        escapes = returns_or_breaks(tuple(node.body))
        assigns = any(isinstance(n, ast.NamedExpr) for n in ast.walk(node.test))
        while True:
            with Trial(self) as trial:
                truth = self.condition(node.test, frame)
                if isinstance(truth, bool) or assigns:
                    trial.keep()
            if isinstance(truth, Tensor):
                frame.node = node.test
                return self.after(self._while(node, frame, truth if assigns else None), rest, frame)
            if not truth:
                return rest.before(node.orelse)
            signal, known = self._iteration(node, frame, escapes)
            if not known:
                frame.node = node.test
                if not assigns and self._has_late_names(node, frame):
                    return self.after(self._first_apart(node, frame), rest, frame)
                return self.after(
                    _WhileLoop(self, node, frame, full((), True, dt.bool_) if assigns else None).build(),
                    rest,
                    frame,
                )
            if signal is not None and signal.broken:
                return rest
            if signal is not None and signal.returned:
                return Done(signal)

    def _while(self, node: ast.While, frame: Frame, first: Tensor | None) -> Signal | None:
        """One op; or, where only the first iteration finds a name with another type, an op behind an iteration of its own. Not if the condition assigns names:
        its value is carried then.
        """
        loop = _WhileLoop(self, node, frame, first)
        try:
            return loop.build()
        except BranchTypeError as error:
            if first is not None or not loop.carry.conflicts():
                raise
            unsettled = error
        truth = self.condition(node.test, frame)
        assert isinstance(truth, Tensor)
        try:
            signal = self.branch(truth, lambda: self._first_apart(node, frame), lambda: self._otherwise(node, frame))
        except BranchTypeError:
            raise unsettled from None
        for carried in loop.carry.conflicts():
            if isinstance(carried.place.get(), Unbound):
                self.assign(carried.place, carried.conflict)
        return signal

    def _iteration(self, node: ast.While, frame: Frame, escapes: bool) -> tuple[Signal | None, bool]:
        """One iteration at compile time; undone if a Tensor decides how it ends (second result)."""
        if not escapes:
            return self.run(Chain(node.body), frame), True
        with Trial(self) as trial:
            signal = self.run(Chain(node.body), frame)
            known = signal is None or signal.is_known
            if known:
                trial.keep()
        return signal, known

    @staticmethod
    def _has_late_names(node: ast.While, frame: Frame) -> bool:
        """True if the body assigns names that have no value yet and are read elsewhere."""
        late = {name for name in assigned_names(tuple(node.body)) if isinstance(frame.place(name).get(), Unbound)}
        return bool(late) and bool(late & read_outside(frame.source.node, node))

    def _first_apart(self, node: ast.While, frame: Frame) -> Signal | None:
        """A loop that runs at least once, with its first iteration before the op: names that it assigns have values from then on."""
        signal = self.run(Chain(node.body), frame)
        frame.node = node.test

        def more() -> Signal | None:
            return _WhileLoop(self, node, frame).build()

        if signal is None or (signal.broken is False and signal.returned is False):
            return more()
        return self.ended(signal, more)

    # -- for -----------------------------------------------------------------------------------------------
    def run_block_For(self, node: ast.For, frame: Frame, rest: Chain) -> Chain | Done:
        items = items_of(self, node.iter, frame)
        frame.node = node
        if isinstance(items, SymbolicRange):
            return self._over_symbolic_range(node, items, frame, rest)
        if isinstance(items, Items) and items.count >= WORTH:
            signal = self._counted(node, items, frame)
        else:
            signal = self._unrolled(node, iter(items), frame)
        return self.after(signal, rest, frame)

    def _over_symbolic_range(
        self, node: ast.For, items: SymbolicRange, frame: Frame, rest: Chain
    ) -> Chain | Done:
        """`for i in range(n)` with n known only while the graph runs: as a `while` that counts."""
        counter, stop = f".index{node.lineno}.{node.col_offset}", f".stop{node.lineno}.{node.col_offset}"
        self.store(counter, items.start, frame)
        self.store(stop, items.stop, frame)
        names = [ast.Name(counter, ast.Load()), ast.Name(stop, ast.Load())]
        test = ast.Compare(names[0], [ast.Lt() if items.step > 0 else ast.Gt()], [names[1]])
        take = ast.Assign([node.target], ast.Name(counter, ast.Load()))
        count = ast.AugAssign(ast.Name(counter, ast.Store()), ast.Add(), ast.Constant(items.step))
        head = [
            ast.fix_missing_locations(ast.copy_location(statement, node.iter)) for statement in (take, count)
        ]
        loop = ast.While(ast.copy_location(test, node.iter), [*head, *node.body], node.orelse)
        return self.run_block_While(ast.fix_missing_locations(ast.copy_location(loop, node)), frame, rest)

    def _counted(self, node: ast.For, items: Items, frame: Frame) -> Signal | None:
        """One op if that is possible (perhaps after a first iteration that settles types), else unrolled."""
        try:
            return CountedLoop(self, node, items, 0, frame).build()
        except Unstable as e:
            kept = isinstance(e, LeftEarly)
        except (Speculation, Never, Exception) as e:
            return self._not_counted(node, items, 0, frame, e)
        signal = self._one(node, items.element(0), frame)
        if signal is None:
            return self._counted_rest(node, items, frame, kept)
        return self._left(node, signal, lambda: self._counted_rest(node, items, frame, kept), frame)

    def _counted_rest(self, node: ast.For, items: Items, frame: Frame, kept: bool) -> Signal | None:
        """The iterations after the first, see `CountedLoop`."""
        try:
            return CountedLoop(self, node, items, 1, frame, kept).build()
        except (Speculation, Never, Exception) as e:
            return self._not_counted(node, items, 1, frame, e)

    def _not_counted(self, node: ast.For, items: Items, first: int, frame: Frame, error: BaseException) -> Signal | None:
        reason = error.message if isinstance(error, GraphcellError) else str(error) or "an iteration always raises"
        self.remarks.append(
            f"{frame.source.file}:{node.lineno}: the loop is unrolled ({items.count} iterations): {reason}"
        )
        return self._unrolled(node, items.elements(first), frame)

    def _one(self, node: ast.For, item: Any, frame: Frame) -> Signal | None:
        """One iteration; None if the loop goes on as usual."""
        frame.node = node.target
        self.bind(node.target, item, frame)
        signal = self.run(Chain(node.body), frame)
        if signal is None or (signal.broken is False and signal.returned is False):
            return None
        return signal

    def _unrolled(self, node: ast.For, items: Iterator[Any], frame: Frame) -> Signal | None:
        """Iteration by iteration, then the else clause; gives how that ends."""
        for item in items:
            signal = self._one(node, item, frame)
            if signal is not None:
                return self._left(node, signal, lambda: self._unrolled(node, items, frame), frame)
        return self._otherwise(node, frame)

    def _left(self, node: ast.For, signal: Signal, more: Callable[[], Signal | None], frame: Frame) -> Signal | None:
        """What follows an iteration that ended, or may have ended, with break or return."""
        if signal.is_known:
            return None if signal.broken else signal
        frame.node = node.target
        return self.ended(signal, more)

    def finished(self, signal: Signal | None, node: ast.For | ast.While, frame: Frame) -> Signal | None:
        """How a loop ends that became one op and was left as `signal` says, if at all: its else clause may
        follow.
        """
        if signal is None or (signal.is_known and not any(signal.flags)):
            return self._otherwise(node, frame)
        if not node.orelse or signal.is_known:
            return None if signal.returned is False else Signal(returned=signal.returned, value=signal.value)
        return self.ended(signal, lambda: self._otherwise(node, frame))

    def _otherwise(self, node: ast.For | ast.While, frame: Frame) -> Signal | None:
        """The else clause, if there is one."""
        return self.run(Chain(node.orelse), frame) if node.orelse else None

    def ended(self, signal: Signal, more: Callable[[], Signal | None]) -> Signal | None:
        """After an iteration whose end only the graph knows: out of the loop, or `more`."""
        left, ended = exit_of(signal)
        return self.branch(left, lambda: ended, more)


class _WhileLoop:
    """One `while` on its way to a `While`.

    `first`: given where the condition assigns something (`:=`): its first value. The loop then carries the
    condition's value, and computes the next one at the end of the body. `endless`: the condition always holds, so that only a break or return
    ends the loop.
    """

    endless = False

    def __init__(self, interpreter: Loops, node: ast.While, frame: Frame, first: Tensor | None = None):
        self.interpreter, self.node, self.frame, self.first = interpreter, node, frame, first
        body = node.body
        self.carry = Carry(interpreter)
        self.exits = Exits(interpreter, self.carry)
        assert state.trace is not None
        self.outer = state.trace
        updated = updated_names(tuple(body))
        for name in sorted(assigned_names(tuple(body))):
            self.carry.guess(frame.place(name), name in updated)
        if first is not None:
            self.exits.go_on_while(first)

    def build(self) -> Signal | None:
        """Interprets until the types settle, then appends the op; gives how the loop ends."""
        for _ in range(_ATTEMPTS):
            with Trial(self.interpreter) as trial:
                built = self._attempt()
                if built is not None:
                    trial.keep()
            if built is not None:
                return self._append(*built)
        raise BranchTypeError(
            "the types of what this loop changes do not settle",
            hint="give every variable its final dtype before the loop",
        )

    def _attempt(self) -> tuple[Trace, list[Value], list[Value], Trace, list[Value], Value] | None:
        interpreter, name = self.interpreter, self.outer.builder.name
        body = Trace(f"{name}.body", self.outer)
        interpreter.conditional += 1
        try:
            with interpreter.logged() as log, body.active():
                inputs = self.carry.enter(body)
                if not self._run_body() or not self.carry.settle(log, body):
                    return None
                ends = self.carry.ends(body)
            test = Trace(f"{name}.condition", self.outer)
            with interpreter.logged() as log, test.active():
                test_inputs = self.carry.enter(test)
                truth = test.read(self._condition())
                self._check_condition(log, test)
        finally:
            interpreter.conditional -= 1
        return body, inputs, ends, test, test_inputs, truth

    def _run_body(self) -> bool:
        """One iteration; False if its ways out must be carried first."""
        interpreter = self.interpreter
        signal = interpreter.run(Chain(self.node.body), self.frame)
        leaves = signal is not None and not (signal.broken is False and signal.returned is False)
        if leaves and signal is not None and not self.exits.note(signal):
            return False
        if self.first is not None:
            self.exits.go_on_while(interpreter.both(self.exits.going, self._test) if leaves else self._test())
        return True

    def _test(self) -> Tensor:
        truth = self.interpreter.condition(self.node.test, self.frame)
        self.endless = truth is True and self.first is None
        return full((), truth, dt.bool_) if isinstance(truth, bool) else truth

    def _condition(self) -> Tensor:
        """The condition of the op."""
        if self.first is not None:
            return self.exits.going
        return logical_and(self.exits.going, self._test()) if self.exits.used else self._test()

    def _check_condition(self, log: Log, test: Trace) -> None:
        changed = [place.label for key, (place, _) in log.entries.items() if key not in self.carry.places]
        changed += [
            "a Parameter or Tensor"
            for tensor, value in test.writes()
            if value not in test.builder.inputs and id(tensor) not in log.births
        ]
        if changed:
            raise UnsupportedSyntaxError(
                f"the condition of this loop changes {changed[0]}, and a Tensor decides on the loop.",
                hint="move the change into the loop's body",
            )

    def _append(
        self,
        body: Trace,
        inputs: list[Value],
        ends: list[Value],
        test: Trace,
        test_inputs: list[Value],
        truth: Value,
    ) -> Signal | None:
        outer = self.outer
        self.frame.node = self.node.test
        outside = list(dict.fromkeys([*body.lifted, *test.lifted]))
        op = While(
            region(test, outside, [truth], test_inputs), region(body, outside, ends, inputs), len(inputs)
        )
        operands = [*self.carry.starts(outer), *map(outer.lift, outside)]
        made_by = {v: node.op for node in outer.builder.nodes for v in node.results}

        def number(v: Value) -> bool | int | float | None:
            maker = made_by.get(v)
            return maker.value if isinstance(maker, Full) else None

        counted = count_loop(op, operands, number, lambda op, *values: outer.append_values(op, values))
        results = counted or outer.append_values(op, operands)
        self.carry.take(outer, results, 0)
        for place, _ in self.carry.temporary.values():
            before = place.get()
            says_why = isinstance(before, Unbound) and before.error is not None
            self.interpreter.assign(place, before if says_why else unset_by_loop(place.name))
        signal = self.exits.signal()
        if self.endless and signal is not None and signal.broken is False:
            signal = Signal(returned=True, value=signal.value)
        return self.interpreter.finished(signal, self.node, self.frame)
