"""A program under construction.

`Lowering` collects kernels, constants and host calls of one program; `Calls` emits the calls of kernels, of the thread pool and of the host
into its entry function.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from graphcell.codegen.kernel import LoopKernel
from graphcell.codegen.llvm import parts
from graphcell.codegen.llvm.contraction import Plan
from graphcell.codegen.llvm.loops import emit_loops
from graphcell.codegen.llvm.merge_functions import merge_functions
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.quicker import emit_quicker
from graphcell.codegen.llvm.text import I8, I32, I64, PTR, VOID, FunctionBuilder, Module, Val, const, i64
from graphcell.codegen.llvm.underflow import Flushing
from graphcell.codegen.program import ASKING, PROFILE, HostCall, Step
from graphcell.codegen.reach import Reach
from graphcell.codegen.units import Units
from graphcell.ir.op import Array
from graphcell.ir.types import TensorType
from graphcell.records import dataclass

PARALLEL_FROM = 60_000
"""Rough scalar instructions from which a kernel may be shared by threads (see sharing.py)."""
ENTRIES = ("run", "prepare")
"""The functions of a program that the runtime calls."""
MOST_STACK_BYTES = 1 << 17
"""Scratch memory of a thread up to this size lies on its stack, which a user's thread may have little of."""
ALIGNMENT = 64
LONG_ENTRY = 1000
"""Lines of an entry function from which LLVM would spend more on it than it is worth: a tenth of its time for ResNet-18."""


@dataclass(frozen=True)
class Local:
    """A place in the memory that a thread has to itself while it runs a kernel, bytes from its beginning."""

    offset: int


Argument = int | Local
"""A buffer of a function, by its number among those of a step or as what a thread has to itself."""


@dataclass(frozen=True)
class First:
    """A function all of whose blocks each thread runs before its first block of another."""

    function: str
    arguments: tuple[Argument, ...]
    blocks: int


@dataclass(frozen=True)
class Private:
    """What a thread has to itself while it runs a kernel.

    Attributes:
        arguments: of the kernel.
        nbytes: of the thread's memory.
        first: what fills it, before the kernel.
    """

    arguments: tuple[Argument, ...]
    nbytes: int
    first: tuple[First, ...] = ()


class Translates(Protocol):
    """Who takes the functions of a program to be translated. `goes_along`: whether that is of use before the last of them are emitted."""

    @property
    def goes_along(self) -> bool: ...
    def take(self, module: Module, followed: bool) -> None:
        """Takes the functions of the module that are not `finished`; `followed`: others will name them."""


class Lowering:
    """Shared state of one program: the module, kernels that exist already, constants, host calls."""

    def __init__(self, target: Target, translates: Translates | None = None):
        self.target, self._translates = target, translates
        self.module = target.module()
        self.kernels: dict[object, str] = {}
        self.plans: dict[object, Plan] = {}
        self.constants: list[Array] = []
        self.host_calls: list[HostCall] = []
        self.steps: list[Step] = []
        self.context_slots = 1
        self.teams = 0
        """Functions of teams so far."""
        self._trampolines: dict[str, tuple[int, Private | None]] = {}
        self.is_shared, self.way = False, ""
        """Whether threads share a part of the step that is being emitted, and how a team divides it."""
        self._counts: Val | None = None
        """In the code of several threads: whether this is the one that counts the cycles of a step."""
        self.profiled = os.environ.get("GRAPHCELL_PROFILE", "0") not in ("", "0")

    def function(self, stem: str, kernel: object, emit: Callable[[str], str]) -> str:
        """The name of the function of a kernel, which `emit` adds under a name if there is none yet."""
        key = (stem, kernel)
        if key not in self.kernels:
            self.kernels[key] = emit(f"{stem}{len(self.kernels)}")
        return self.kernels[key]

    def loop_function(self, kernel: LoopKernel) -> str:
        return self.function("loops", kernel, lambda name: emit_loops(self.module, name, kernel, self.target))

    @contextmanager
    def step(self, b: FunctionBuilder, title: str, kernel: str, blocks: int) -> Iterator[None]:
        """Lists a step; what is emitted inside is timed if the program is profiled."""
        number = len(self.steps)
        self.steps.append(Step(title, kernel, blocks))
        start = self._cycles(b) if self.profiled else None
        self.is_shared, self.way = False, ""
        yield
        self.steps[number] = Step(title, kernel, blocks, self.is_shared, self.way)
        if start is None:
            return
        spent = b.sub(self._cycles(b), start)
        slot = b.gep(Val(f"@{PROFILE}", PTR), number, I64)
        with b.if_then(self._counts) if self._counts is not None else nullcontext():
            b.store(b.add(b.load(slot, I64), spent), slot)

    @contextmanager
    def counted_by(self, condition: Val) -> Iterator[None]:
        """The cycles of steps that are emitted inside are counted by the thread for which a condition holds."""
        self._counts = condition
        yield
        self._counts = None

    def _cycles(self, b: FunctionBuilder) -> Val:
        return b.intrinsic("readcyclecounter", I64)

    def hand_over(self) -> None:
        """Has the functions that are complete translated while others are emitted, if they are many."""
        module = self.module
        if self._translates is None or not self._translates.goes_along or sum(map(len, module.functions.values())) < parts.LEAST_LETTERS:
            return
        assert not module.finished, "once a program"
        module.settle()
        module.hide_functions(ENTRIES)
        stand_ins = merge_functions(module)
        self._translates.take(module, True)
        module.finished, module.functions, module.stand_ins = module.functions, {}, stand_ins

    def finish(self) -> str:
        """The assembly of the whole program."""
        if self.profiled:
            self.module.add_global(PROFILE, f"global [{max(1, len(self.steps))} x i64] zeroinitializer, align 64")
        self.module.settle()
        self.module.hide_functions(ENTRIES)
        merge_functions(self.module)
        if self._translates is not None:
            self._translates.take(self.module, False)
        return str(self.module)

    def trampoline(self, function: str, pointers: int, private: Private | None) -> str:
        """`void f(ptr context, i64 begin, i64 end)` that takes the buffers from a table, for the thread pool; with something to be done first, a kernel that
        asks for its blocks (runtime/threads.py)."""
        asks = private is not None and bool(private.first)
        name = f"{function}.{'asking' if asks else 'shared'}"
        if self._trampolines.setdefault(name, (pointers, private)) != (pointers, private):
            raise AssertionError(f"{function} is called in two ways")
        if not self.module.has_function(name):
            asking = [("whoami", I64), ("more", PTR)] if asks else []
            b = FunctionBuilder(self.module, name, [("context", PTR), ("begin", I64), ("end", I64), *asking])
            buffers = [b.load(b.gep(b.args["context"], k, PTR), PTR) for k in range(pointers)]
            if private is None:
                b.call(function, VOID, *buffers, b.args["begin"], b.args["end"])
            elif private.nbytes <= MOST_STACK_BYTES:
                _run_privately(b, function, buffers, private, b.alloca(I8, max(1, private.nbytes)))
            else:
                self._run_on_heap(b, function, buffers, private)
            b.finish()
        return name

    def alone(self) -> Val:
        """A function that does what the pool's `parallel_for` does, but for teams, in this thread."""
        if not self.module.has_function("alone"):
            b = FunctionBuilder(self.module, "alone", [("kernel", PTR), ("context", PTR), ("blocks", I64)])
            kernel, context, blocks = b.args.values()
            b.if_else(
                b.icmp("slt", blocks, i64(ASKING // 2)),
                lambda: b.call_pointer(kernel, VOID, context, i64(0), b.sub(blocks, i64(ASKING)), i64(0), const(0, PTR)),
                lambda: b.call_pointer(kernel, VOID, context, i64(0), blocks),
            )
            b.finish()
        return Val("@alone", PTR)

    def _run_on_heap(self, b: FunctionBuilder, function: str, buffers: list[Val], private: Private) -> None:
        """With memory from the heap; where there is none left, the process ends as it does for any other allocation in C."""
        self.module.declare("malloc", PTR, [I64])
        self.module.declare("free", VOID, [PTR])
        block = b.call("malloc", PTR, i64(private.nbytes + ALIGNMENT))
        address = b.raw(f"ptrtoint ptr {block.text} to i64", I64)
        with b.if_then(b.icmp("eq", address, i64(0))):
            b.intrinsic("trap", VOID)
        _run_privately(b, function, buffers, private, b.gep(block, b.sub(i64(ALIGNMENT), b.and_(address, i64(ALIGNMENT - 1))), I8))
        b.call("free", VOID, block)


def _run_privately(b: FunctionBuilder, function: str, buffers: Sequence[Val], private: Private, memory: Val) -> None:
    """Blocks `begin` to `end` of a function, after what is to be done first, then all that there are to ask for."""

    def run(function: str, arguments: tuple[Argument, ...], begin: Val, end: Val) -> None:
        places = [buffers[a] if isinstance(a, int) else b.gep(memory, a.offset, I8) for a in arguments]
        b.call(function, VOID, *places, begin, end)

    for first in private.first:
        run(first.function, first.arguments, i64(0), i64(first.blocks))
    run(function, private.arguments, b.args["begin"], b.args["end"])
    if private.first:
        taken, more = b.alloca(I64, 2), b.args["more"]
        with b.if_then(b.icmp("ne", more, const(0, PTR))):
            b.while_loop(
                lambda: b.icmp("ne", b.call_pointer(more, I64, b.args["whoami"], taken), i64(0)),
                lambda: run(function, private.arguments, b.load(taken, I64), b.load(b.gep(taken, 1, I64), I64)),
            )


class Calls:
    """How the entry function calls kernels, the thread pool and the host.

    Attributes:
        shared_from: rough scalar instructions of a step from which threads may share it.
        units: of rows, by which the threads of a team divide steps; None if there is no team.
    """

    shared_from = PARALLEL_FROM
    units: Units | None = None

    def __init__(self, lowering: Lowering, b: FunctionBuilder, inputs: int):
        self.lowering, self.inputs = lowering, inputs
        self.context = Val("%context", PTR)
        self.pool, self.callback, self.table = b.args["parallel_for"], b.args["call_host"], b.args["inputs"]
        self.may_share = True
        """Whether threads share what is called now, if it is worth it."""
        self._flushing = Flushing(b) if lowering.target.flushes else None

    @contextmanager
    def part(self, b: FunctionBuilder, target: Val, source: Val, type: TensorType) -> Iterator[tuple[Val, Val]]:
        """Which bytes of a value, as begin and length, this thread copies by what is emitted inside."""
        yield i64(0), i64(type.nbytes)

    def read(self, b: FunctionBuilder) -> AbstractContextManager[None]:
        """What is emitted inside reads what steps before have written."""
        return nullcontext()

    def settle(self, b: FunctionBuilder) -> None:
        """What follows runs after other steps than those before it here: the top of a loop, a branch, what comes after them. All threads have to be here."""

    def finish(self, b: FunctionBuilder) -> None:
        """Closes the entry function, which succeeded."""
        if self._flushing is not None:
            self._flushing.suspend(b)
        b.reserve(self.context, PTR, self.lowering.context_slots)
        if b.length >= LONG_ENTRY:
            b.leave_as_it_is()
        b.finish(const(0, I32))

    def _fill(self, b: FunctionBuilder, buffers: Sequence[Val]) -> None:
        self.lowering.context_slots = max(self.lowering.context_slots, len(buffers))
        for k, p in enumerate(buffers):
            b.store(p, b.gep(self.context, k, PTR))

    def blocks(
        self, b: FunctionBuilder, function: str, buffers: Sequence[Val], blocks: int, work: int, private: Private | None = None, reach: Reach | None = None
    ) -> None:
        """All blocks of a function.

        Args:
            work: rough scalar instructions of all of them.
            private: what each thread needs for itself, if that is anything; then `buffers` are those that are not.
            reach: what they touch, if it is known.
        """
        if not blocks:
            return
        if not self._shares(blocks, work):
            self._call(b, function, buffers, i64(0), i64(blocks), private)
            return
        self.lowering.is_shared = True
        name = self.lowering.trampoline(function, len(buffers), private)
        self._fill(b, buffers)
        asks = private is not None and private.first
        b.call_pointer(self.pool, VOID, Val(f"@{name}", PTR), self.context, i64(blocks + ASKING if asks else blocks))

    def _shares(self, blocks: int, work: int) -> bool:
        return self.may_share and blocks > 1 and work >= self.shared_from

    def _call(self, b: FunctionBuilder, function: str, buffers: Sequence[Val], begin: Val, end: Val, private: Private | None) -> None:
        """Blocks of a function, by this thread."""
        if private is None:
            b.call(function, VOID, *buffers, begin, end)
        else:
            name = self.lowering.trampoline(function, len(buffers), private)
            self._fill(b, buffers)
            b.call(name, VOID, self.context, begin, end, *((i64(0), const(0, PTR)) if private.first else ()))

    def team(self, b: FunctionBuilder, function: str, buffers: Sequence[Val], threads: int) -> None:
        """Has a team of so many threads at most go through a function, or this one alone, whatever is quicker."""
        self._fill(b, buffers)
        emit_quicker(
            b,
            f"{function}.times",
            lambda: b.call(function, VOID, self.context, i64(0), i64(1), Val("null", PTR)),
            lambda: b.call_pointer(self.pool, VOID, Val(f"@{function}", PTR), self.context, i64(-threads)),
        )

    def host(self, b: FunctionBuilder, call: HostCall, buffers: Sequence[Val]) -> None:
        number = len(self.lowering.host_calls)
        self.lowering.host_calls.append(call)
        with self.lowering.step(b, f"call {call.op}", "host", 1):
            self._fill(b, buffers)
            if self._flushing is not None:
                self._flushing.suspend(b)
            failed = b.call_pointer(self.callback, I32, i64(number), self.context)
        b.return_if(b.icmp("ne", failed, const(0, I32)), const(1, I32))
        if self._flushing is not None:
            self._flushing.resume(b)

    def constant(self, b: FunctionBuilder, array: Array) -> Val:
        known = self.lowering.constants
        number = next((k for k, other in enumerate(known) if other is array), len(known))
        if number == len(known):
            known.append(array)
        return b.load(b.gep(self.table, self.inputs + 1 + number, PTR), PTR)

    def kept(self, b: FunctionBuilder) -> Val:
        """The memory that `prepare` fills."""
        return b.load(b.gep(self.table, self.inputs, PTR), PTR)
