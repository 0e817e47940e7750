"""Workspaces: what one run of native code needs for itself, and the buffers of its outputs.

Enters: an executable. Leaves: `Workspaces`, which lends a workspace to each run and runs the code on the addresses in it. Refuses:
nothing; a host call that raised is raised again by the run.

An output's buffer is given out again when nobody sees it.
"""

from __future__ import annotations

import ctypes
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from graphcell import buffer
from graphcell.buffer import RetiredBuffers
from graphcell.codegen.program import HostCall
from graphcell.context import config
from graphcell.errors import ExecutionError, OutOfMemoryError
from graphcell.ir.op import Array, evaluate
from graphcell.ir.types import TensorType
from graphcell.locks import Lock
from graphcell.runtime.calling import KEPT_OUTPUTS, BindingState, OutputState, SpaceState, native
from graphcell.runtime.kept import PREPARE, KeptMemory
from graphcell.runtime.threads import default_size, pool
from graphcell.tensor import ContentsEpoch, Tensor

if TYPE_CHECKING:
    from graphcell.runtime.executable import Executable

_HOST = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)
_RUN = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 5)
_SHORT_NANOSECONDS = 40_000
"""Runs that take less keep Python's lock: letting go of it and taking it again costs too much, and nobody waits long."""


class Threads:
    """The number of threads that `set_context(runtime_num_threads=…)` asked for when it was last looked at (0: not set)."""

    applied: Any = None

    @classmethod
    def apply(cls) -> None:
        """Gives the pool the size that the configuration asks for; the environment's GRAPHCELL_NUM_THREADS goes before."""
        wanted = config.runtime_num_threads
        if cls.applied != wanted:
            pool().resize(default_size(wanted))
        cls.applied = wanted
        code = native()
        if code is not None:
            code.set_threads(wanted)


class OutputPool:
    """Buffers of one output, which take `nbytes` at most: one that the user has let go of is given out again."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], state: Any):
        kept: list[Array] = []
        newest = 0
        lock = Lock()  # native calls come here without that of the workspaces

        def make() -> Array:
            nonlocal newest
            data = buffer.empty(shape, dtype)
            with lock:
                if len(kept) < KEPT_OUTPUTS:
                    place = len(kept)
                    kept.append(data)
                    state.arrays[place] = id(data)
                    state.count = place + 1
                    return data
                newest = (newest + 1) % KEPT_OUTPUTS
                before, kept[newest] = kept[newest], data  # the one given out longest ago is likely to be held for long
                state.arrays[newest] = id(data)
            del before  # not earlier: native code of another thread may look at it
            return data

        self.kept, self.make, self.state = kept, make, state
        self.nbytes = KEPT_OUTPUTS * math.prod(shape) * dtype.itemsize
        state.make = id(make)

    def take(self) -> Array:
        """A buffer that nobody sees."""
        for data in self.kept:
            # seen from here: `data` is held by the list, the local name and the argument, its memory by `data.base` and the argument
            if sys.getrefcount(data) <= 3 and sys.getrefcount(data.base) <= 2:
                return data
        return self.make()


def memory_for(executable: Executable, nbytes: int) -> Array:
    """So much memory for what an executable computes on the way.

    Raises:
        OutOfMemoryError: there is none.
    """
    try:
        return buffer.empty((nbytes,), np.dtype(np.uint8))
    except OutOfMemoryError as e:
        raise OutOfMemoryError(f"{executable.name}: its temporaries need {nbytes:,} bytes") from e


class Workspace:
    """What one call needs for itself: the arena and the tables of addresses. Without `has_arena` others use that, too, at other times:
    who makes it puts its address in `state`.
    """

    def __init__(self, executable: Executable, has_arena: bool = True):
        program = executable.compilation.program
        self.arena = memory_for(executable, program.arena_bytes if has_arena else 0)
        constants = executable.constants
        count = len(executable.compilation.graph.inputs)
        outputs = max(1, len(executable.output_types))
        self.inputs = (ctypes.c_int64 * (count + 1 + len(constants)))()  # the graph's inputs, the kept memory, the constants
        for k, array in enumerate(constants):
            self.inputs[count + 1 + k] = buffer.address(array)
        self.outputs, self.arrays = (ctypes.c_int64 * outputs)(), (ctypes.c_int64 * outputs)()
        self.errors: list[BaseException] = []
        self.fail = _raiser(executable.name, self.errors)
        self.state = SpaceState(
            epoch=-1, inputs=ctypes.addressof(self.inputs), outputs=ctypes.addressof(self.outputs), arena=buffer.address(self.arena),
            pool=pool().address, fail=id(self.fail), arrays=ctypes.addressof(self.arrays),
        )  # fmt: skip
        self._callback = _HOST(_caller(program.host_calls, self.errors, self.state))
        self.state.callback = ctypes.cast(self._callback, ctypes.c_void_p).value
        self.address = ctypes.addressof(self.state)

    def set_inputs(self, first: int, addresses: Sequence[int]) -> None:
        """Puts the addresses of the graph's inputs, from number `first` on, in their table."""
        self.inputs[first : first + len(addresses)] = list[Any](addresses)


def _raiser(name: str, errors: list[BaseException]) -> Callable[[], Any]:
    def fail() -> Any:
        raise errors.pop() if errors else ExecutionError(f"{name}: the native code failed")

    return fail


def _caller(host_calls: Sequence[HostCall], errors: list[BaseException], space: Any) -> Callable[[int, int], int]:
    def call_host(number: int, context: int) -> int:
        inside = RetiredBuffers.host_calls.generations
        inside.append(space.generation)
        try:
            run_host_call(host_calls[number], context)
        except BaseException as e:  # carried over the native frames, raised by the caller
            errors[:] = [e]
            return 1
        finally:
            inside.pop()
        return 0

    return call_host


def run_host_call(call: HostCall, context: int) -> None:
    """Evaluates an op on buffers whose addresses stand in the table at `context`."""
    count = len(call.operands)
    addresses = (ctypes.c_void_p * (count + len(call.results))).from_address(context)
    arrays = [_array_at(addresses[k], t.shape, t.dtype.np_type) for k, t in enumerate(call.operands)]
    for array in arrays:
        array.flags.writeable = False
    results = evaluate(call.op, tuple(arrays))
    for k, (result, t) in enumerate(zip(results, call.results, strict=True)):
        if result.shape != t.shape or result.dtype != t.dtype.np_type:
            raise ExecutionError(f"{call.op.name}: eval gave {result.dtype}{list(result.shape)} where {t} was inferred")
        _array_at(addresses[count + k], t.shape, t.dtype.np_type)[...] = result


def _array_at(address: int | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if nbytes == 0 or address is None:
        return np.empty(shape, dtype)
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    array: Array = np.frombuffer(memory, dtype).reshape(shape)  # type: ignore[call-overload]
    return array


class Space(Protocol):
    """A workspace as runs see it: tables of addresses, the state that native code looks at, and what raises the error of a failed run."""

    inputs: Any
    outputs: Any
    state: Any
    address: int
    fail: Callable[[], Any]


class Runs:
    """Runs of one native function, each in a workspace of its own; `pools`: the buffers of its outputs.

    Args:
        entry: the function's address.
        types: of its outputs, but those that are written into inputs.
        make: makes a workspace.
        home: whose workspaces to use; by default it has its own.
        writes: whether the function writes into inputs.
        unbounded: whether how long a run takes may depend on values.
    """

    def __init__(
        self, entry: int, types: Sequence[TensorType], make: Callable[[], Space], home: Runs | None = None, writes: bool = False, unbounded: bool = False
    ):
        self._slots = (OutputState * max(1, len(types)))()
        self.pools = [OutputPool(t.shape, t.dtype.np_type, state) for t, state in zip(types, self._slots)]
        self.state = BindingState(
            run=entry, releases=1, outputs=len(types), slots=ctypes.addressof(self._slots), writes=int(writes), contents=-1
        )
        self.address = ctypes.addressof(self.state)
        self._home = home  # lives as long as this
        self.state.home = self.address if home is None else home.address
        self.made: dict[int, Space] = {} if home is None else home.made
        self._spare: list[Space] = [] if home is None else home._spare  # without native calls
        self.runs = 0
        self.unbounded = unbounded
        self._make, self._writes = make, writes
        self._function = _RUN(entry)
        self._lock = Lock()

    def pop(self) -> Any:
        """Begins a call: a workspace for it. From now on no buffer that it gets the address of is freed."""
        while True:
            space = self._pop()
            if space is not None:
                return space
            self._add(self._make())

    def _pop(self) -> Any:
        code = native()
        if code is not None:
            address = code.pop(self.address)
            return None if address is None else self.made[address]
        try:
            space = self._spare.pop()
        except IndexError:  # another thread may have taken the last one just now
            return None
        space.state.generation = RetiredBuffers.begin()
        return space

    def _add(self, space: Space) -> None:
        self.made[space.address] = space
        code = native()
        if code is not None:
            code.add(self.address, space.address)
        else:
            self._spare.append(space)

    def push(self, space: Space) -> None:
        """Ends a call and takes its workspace back."""
        code = native()
        if code is not None:
            code.push(self.address, space.address)
        else:
            RetiredBuffers.end(space.state.generation)
            self._spare.append(space)
        RetiredBuffers.clear()

    def run(self, space: Space) -> tuple[Tensor, ...]:
        """Runs on the addresses in `space.inputs`; returns the outputs that are not written back."""
        taken = []
        with self._lock:
            for k, output in enumerate(self.pools):
                data = output.take()
                space.outputs[k] = address = buffer.address(data)
                taken.append(Tensor.of_buffer(data, address))
        start = time.perf_counter_ns()
        failed = self._run(space)
        self._note(time.perf_counter_ns() - start)
        if self._writes:
            ContentsEpoch.value += 1
        if failed:
            space.fail()
        return tuple(taken)

    def _run(self, space: Space) -> int:
        code = native()
        if code is not None:
            return int(code.run(self.address, space.address))
        state = space.state
        state.plan = self.state.plan
        return int(self._function(state.inputs, state.outputs, state.arena, state.pool, state.callback))

    def _note(self, nanoseconds: int) -> None:
        """Learns whether runs are short; those that branch may become long at any time."""
        self.runs += 1
        if nanoseconds < _SHORT_NANOSECONDS and not self.unbounded:
            self.state.releases = 0


class Workspaces(Runs):
    """The runs of one executable, and what it keeps of its frozen inputs."""

    def __init__(self, executable: Executable):
        program = executable.compilation.program
        unbounded = bool(program.host_calls) or executable.branches
        super().__init__(executable.entry, executable.output_types, lambda: Workspace(executable), None, bool(executable.updates), unbounded)
        kept = program.kept
        self.kept = None if kept is None else KeptMemory(kept, PREPARE(executable.library.address("prepare")), executable.name)

    def prepare(self, space: Workspace, tensors: Sequence[Tensor], first: int) -> None:
        """Brings up to date what the program keeps of its frozen inputs; `tensors` are the graph's inputs from number `first` on."""
        kept, state = self.kept, space.state
        if kept is None:
            return
        done = kept.refresh(tensors, first, space.inputs, state.arena, state.pool, state.callback)
        self.state.contents = kept.contents
        if not done:
            space.fail()
