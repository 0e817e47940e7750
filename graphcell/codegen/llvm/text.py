"""A thin typed emitter of LLVM assembly text: functions, blocks and loops; what they are made of is in values.py and instructions.py.

Enters: calls such as ``b.fma(x, y, z)`` on typed operands. Leaves: the text of a module for ``llvmlite.binding.parse_assembly``.
Refuses: operands whose types differ (`TypeError`), at the call that mixes them. Text is used instead of an object model because it
is an order of magnitude cheaper to produce, and it is what LLVM prints anyway.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from graphcell.codegen.llvm.instructions import Instructions
from graphcell.codegen.llvm.values import (
    F32,
    F64,
    FLOAT_KINDS,
    FLUSHED_ATTRIBUTE,
    I1,
    I8,
    I32,
    I64,
    NONTEMPORAL,
    PTR,
    VOID,
    LType,
    Module,
    Val,
    const,
    constant_mask,
    float_literal,
    i64,
    mask_of,
)
from graphcell.records import dataclass

__all__ = [
    "F32", "F64", "FLOAT_KINDS", "I1", "I8", "I32", "I64", "PTR", "VOID", "FunctionBuilder", "LType", "Loop", "Module", "Val",
    "const", "constant_mask", "float_literal", "i64", "mask_of",
]  # fmt: skip


@dataclass
class Loop:
    """Handle of a loop under construction: `index`, the carried values at the top of the body, and `carry` for the next ones."""

    index: Val
    carried: tuple[Val, ...]
    results: tuple[Val, ...] = ()
    _next: tuple[Val, ...] | None = None

    def carry(self, *values: Val) -> None:
        """Gives the carried values of the next iteration (as many, of the same types, as came in)."""
        if [v.type for v in values] != [v.type for v in self.carried]:
            raise TypeError(f"loop carries {[str(v.type) for v in self.carried]}, got {[str(v.type) for v in values]}")
        self._next = values


class FunctionBuilder(Instructions):
    """Appends instructions to one function. `b` in the code that uses it.

    Structured control flow only (`loop`, `if_then`), so every block is closed by the method that opened it.
    """

    def __init__(self, module: Module, name: str, params: Sequence[tuple[str, LType]], result: LType = VOID, *,
                 internal: bool = True, attributes: str = "nounwind", param_attributes: dict[str, str] | None = None):
        super().__init__(module)
        self.name, self.result = name, result
        self.args = {n: Val(f"%{n}", t) for n, t in params}
        extra = param_attributes or {}
        args = ", ".join(f"{t} {extra[n] + ' ' if n in extra else ''}%{n}" for n, t in params)
        self._head, self._attributes = f"define {'internal ' if internal else ''}{result} @{name}({args})", attributes

    @property
    def position(self) -> str:
        """The block that is being written: a value made here is known to all that follows in the same block."""
        return self._block

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        """What `once` makes here is not known behind."""
        self._made.append({})
        yield
        self._made.pop()

    @property
    def length(self) -> int:
        """Lines so far."""
        return len(self._lines)

    def leave_as_it_is(self) -> None:
        """Has LLVM translate the function quickly, line by line: for long code that runs once while what it calls takes the time."""
        self._attributes += " noinline optnone"

    def keep_numbers(self) -> None:
        """Has the function keep its numbers as constants when others are the same but for these: they would take registers in an inner loop."""
        self.module.exact.add(self.name)

    # -- structure ---------------------------------------------------------------------------------------------------
    def finish(self, value: Val | None = None) -> str:
        """Closes the function with a return, adds it to the module, returns its name."""
        self._lines.append(f"  ret {value}" if value is not None else "  ret void")
        attributes = f"{self._attributes} {FLUSHED_ATTRIBUTE}" if self.module.flushes else self._attributes
        body = [f"{self._head} {attributes} {{", self._lines[0], *self._entry, *self._lines[1:], "}"]
        self.module.functions[self.name] = "\n".join(body)
        return self.name

    def _label(self, stem: str) -> str:
        self._count += 1
        return f"{stem}.{self._count}"

    def _start_block(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label

    @contextlib.contextmanager
    def loop(self, start: Val | int, stop: Val | int, step: Val | int = 1, *, carried: Sequence[Val] = (),
             name: str = "loop", at_least_once: bool = False) -> Iterator[Loop]:
        """for (index = start; index < stop; index += step), with loop-carried values.

        With `at_least_once` the test stands at the bottom only; the caller promises start < stop. Without it, a loop that carries values is tested
        before it and at its bottom, so that it is one block if its body is: LLVM may spill accumulators that a loop's head hands to another block.
        After the block, `loop.results` holds the carried values at exit.
        """
        start, stop, step = (i64(x) if isinstance(x, int) else x for x in (start, stop, step))
        if self._same("loop", start, stop, step) != I64:
            raise TypeError(f"loop: bounds are i64, got {start.type}")
        before = self._block
        head, body, end = self._label(f"{name}.head"), self._label(f"{name}.body"), self._label(f"{name}.end")
        tested_at_top = not at_least_once and not carried
        if at_least_once or tested_at_top:
            self.effect(f"br label %{head if tested_at_top else body}")
        else:
            self.effect(f"br i1 {self.icmp('slt', start, stop).text}, label %{body}, label %{end}")
        self._start_block(head if tested_at_top else body)
        index, phis, patch = self._phis(start, carried, before)
        if tested_at_top:
            self.effect(f"br i1 {self.icmp('slt', index, stop).text}, label %{body}, label %{end}")
            self._start_block(body)
        handle = Loop(index, phis)
        with self._apart():
            yield handle
        following = handle._next if handle._next is not None else phis
        index_after, last = self.raw(f"add nsw i64 {index.text}, {step.text}", I64), self._block
        self._patch(patch, (index_after, *following), last)
        if tested_at_top:
            self.effect(f"br label %{head}")
        else:
            self.effect(f"br i1 {self.icmp('slt', index_after, stop).text}, label %{body}, label %{end}")
        self._start_block(end)
        if at_least_once or not carried:
            handle.results = tuple(following)
        else:
            pairs = zip(carried, following, strict=True)
            handle.results = tuple(self.raw(f"phi {x.type} [{x.text}, %{before}], [{y.text}, %{last}]", x.type) for x, y in pairs)

    def _phis(self, start: Val, carried: Sequence[Val], before: str) -> tuple[Val, tuple[Val, ...], int]:
        at = len(self._lines)
        vals = [self.raw(f"phi {v.type} [{v.text}, %{before}], [", v.type) for v in (start, *carried)]
        return vals[0], tuple(vals[1:]), at

    def _patch(self, at: int, values: Sequence[Val], block: str) -> None:
        for k, v in enumerate(values):
            self._lines[at + k] += f"{v.text}, %{block}]"

    @contextlib.contextmanager
    def if_then(self, condition: Val) -> Iterator[None]:
        """Emits the body under `condition` (an i1 scalar)."""
        then, end = self._label("then"), self._label("endif")
        self.effect(f"br i1 {condition.text}, label %{then}, label %{end}")
        self._start_block(then)
        with self._apart():
            yield
        self.effect(f"br label %{end}")
        self._start_block(end)

    def while_loop(self, condition: Callable[[], Val], body: Callable[[], object]) -> None:
        """`condition()` returns an i1 scalar and is emitted before each iteration of `body()`; state lives in memory."""
        head, inside, end = self._label("while.head"), self._label("while.body"), self._label("while.end")
        self.effect(f"br label %{head}")
        self._start_block(head)
        go = condition()
        self.effect(f"br i1 {go.text}, label %{inside}, label %{end}")
        self._start_block(inside)
        with self._apart():
            body()
        self.effect(f"br label %{head}")
        self._start_block(end)

    def if_else(self, condition: Val, then: Callable[[], object], otherwise: Callable[[], object]) -> None:
        """Emits `then()` or `otherwise()`; state lives in memory."""
        yes, no, end = self._label("then"), self._label("else"), self._label("endif")
        self.effect(f"br i1 {condition.text}, label %{yes}, label %{no}")
        for label, emit in ((yes, then), (no, otherwise)):
            self._start_block(label)
            with self._apart():
                emit()
            self.effect(f"br label %{end}")
        self._start_block(end)

    def store_past_caches(self, value: Val, pointer: Val) -> None:
        """Stores a vector whose cache line is not read first and does not stay; where it does not lie on a boundary of its length, as any other."""
        size = value.type.bytes * value.type.lanes
        address = self.raw(f"ptrtoint ptr {pointer.text} to i64", I64)
        on_boundary = self.icmp("eq", self.and_(address, i64(size - 1)), i64(0))
        self.if_else(
            on_boundary,
            lambda: self.effect(f"store {value}, ptr {pointer.text}, align {size}, {NONTEMPORAL}"),
            lambda: self.store(value, pointer),
        )

    def order_stores(self) -> None:
        """What this thread stored past the caches is seen before all that it stores from here on. x86 only."""
        self.intrinsic("x86.sse.sfence", VOID)

    def return_if(self, condition: Val, value: Val | None = None) -> None:
        """Returns from the function early."""
        out, on = self._label("return"), self._label("continue")
        self.effect(f"br i1 {condition.text}, label %{out}, label %{on}")
        self._start_block(out)
        self.effect(f"ret {value}" if value is not None else "ret void")
        self._start_block(on)
