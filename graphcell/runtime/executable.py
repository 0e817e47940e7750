"""A compiled graph: binds Tensors to addresses and runs everything in one native call.

Enters: an optimised or raw Graph, and which outputs are written back into which inputs. Leaves: an `Executable`; calling it with Tensors
gives Tensors. Safe to call from several threads. A host call that raises ends the run with that exception.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import llvmlite
import numpy as np

from graphcell import buffer
from graphcell.codegen.llvm import target as machine
from graphcell.codegen.lower import lower
from graphcell.codegen.program import PROFILE, HostCall, Program, Step
from graphcell.context import config
from graphcell.errors import ExecutionError, OutOfMemoryError
from graphcell.ir.graph import Graph
from graphcell.ir.op import Array, evaluate
from graphcell.passes.pipeline import PassRecord, run_pipeline
from graphcell.runtime.cache import make_key, open_cache
from graphcell.runtime.threads import default_size, pool
from graphcell.tensor import StorageEpoch, Tensor

_RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_HOST = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)
_KEPT_OUTPUTS = 2


@dataclass
class Compilation:
    """What there is to see of a compilation."""

    graph: Graph
    optimized: Graph
    passes: list[PassRecord]
    program: Program
    seconds: dict[str, float] = field(default_factory=dict)
    from_cache: bool = False


class _Threads:
    """The number of threads that `set_context(runtime_num_threads=…)` asked for when it was last looked at (0: not set)."""

    applied = 0

    @classmethod
    def apply(cls) -> None:
        """Gives the pool the size that the configuration asks for; the environment's GRAPHCELL_NUM_THREADS goes before."""
        cls.applied = config.runtime_num_threads
        pool().resize(default_size(config.runtime_num_threads))


class _Output:
    """Buffers of one output: one that the user has let go of is given out again."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]):
        self.shape, self.dtype = shape, dtype
        self.kept: list[tuple[Array, int]] = []

    def take(self) -> tuple[Array, int]:
        for data, address in self.kept:
            # seen from here: `data` is held by the tuple, the local name and the argument, its memory by `data.base` and the argument
            if sys.getrefcount(data) <= 3 and sys.getrefcount(data.base) <= 2:
                return data, address
        data = buffer.empty(self.shape, self.dtype)
        entry = (data, data.ctypes.data)
        if len(self.kept) < _KEPT_OUTPUTS:
            self.kept.append(entry)
        return entry


class _Workspace:
    """What one call needs for itself: the arena and the tables of addresses."""

    def __init__(self, executable: Executable):
        program = executable.compilation.program
        try:
            self.arena = buffer.empty((program.arena_bytes,), np.dtype(np.uint8))
        except OutOfMemoryError as e:
            raise OutOfMemoryError(f"{executable.name}: its temporaries need {program.arena_bytes:,} bytes") from e
        constants = executable.constants
        count = len(executable.compilation.graph.inputs)
        self.inputs = (ctypes.c_void_p * (count + len(constants)))()
        for k, array in enumerate(constants):
            self.inputs[count + k] = array.ctypes.data
        self.outputs = (ctypes.c_void_p * max(1, len(executable.outputs)))()
        self.error: BaseException | None = None
        self.callback = _HOST(self._call_host)
        self.host_calls = program.host_calls
        self.fixed = (
            ctypes.addressof(self.inputs), ctypes.addressof(self.outputs), self.arena.ctypes.data,
            pool().address, ctypes.cast(self.callback, ctypes.c_void_p).value,
        )

    def _call_host(self, number: int, context: int) -> int:
        try:
            run_host_call(self.host_calls[number], context)
        except BaseException as e:  # carried over the native frames, raised by the caller
            self.error = e
            return 1
        return 0


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


class Executable:
    """A graph as native code.

    Attributes:
        updates: (output position, input position) of outputs written into the buffers of inputs.
        compilation: graphs, passes, kernels and times, for people who look inside.
    """

    def __init__(self, name: str, compilation: Compilation, updates: tuple[tuple[int, int], ...], library: machine.Library):
        self.name, self.compilation, self.updates = name, compilation, updates
        self.library = library
        self.constants = [buffer.copy(a) for a in compilation.program.constants]
        self._run = _RUN(library.address("run"))
        updated = dict(updates)
        graph = compilation.graph
        self.outputs = [_Output(v.type.shape, v.type.dtype.np_type) for k, v in enumerate(graph.outputs) if k not in updated]
        self._updated_inputs = tuple(sorted(set(updated.values())))
        used = {v for node in graph.nodes for v in node.operands} | set(graph.outputs)
        self._keep = tuple(v in used for v in (graph.inputs[k] for k in self._updated_inputs))
        self._spare: list[_Workspace] = []
        self._lock = threading.Lock()

    def __call__(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Runs on Tensors that have the types of the graph's inputs; returns the outputs that are not written back.

        Raises:
            MemoryError: the temporaries or outputs do not fit into memory.
        """
        if config.runtime_num_threads != _Threads.applied:
            _Threads.apply()
        try:
            space = self._spare.pop()
        except IndexError:
            space = _Workspace(self)
        try:
            addresses = [t.address() for t in inputs]
            for k, keep in zip(self._updated_inputs, self._keep, strict=True):
                addresses[k] = inputs[k].own_buffer(keep)
            space.inputs[: len(addresses)] = addresses  # type: ignore[assignment]
            taken = []
            for k, output in enumerate(self.outputs):
                with self._lock:
                    data, address = output.take()
                space.outputs[k] = address
                taken.append(Tensor.of_buffer(data, address))
            if self._run(*space.fixed):
                error, space.error = space.error, None
                raise error or ExecutionError(f"{self.name}: the native code failed")
            return tuple(taken)
        finally:
            self._spare.append(space)

    @property
    def arena_bytes(self) -> int:
        """Bytes of all temporaries."""
        return self.compilation.program.arena_bytes

    def profile(self) -> list[tuple[Step, int]]:
        """The cycles spent in each step so far, most first; only for programs compiled with GRAPHCELL_PROFILE=1.

        Raises:
            RuntimeError: for any other.
        """
        program = self.compilation.program
        if not program.profiled:
            raise ExecutionError(f"{self.name} was compiled without counters", hint="set GRAPHCELL_PROFILE=1 before compiling")
        counters = (ctypes.c_int64 * len(program.steps)).from_address(self.library.address(PROFILE))
        return sorted(zip(program.steps, counters, strict=True), key=lambda row: -row[1])

    def kernels(self) -> str:
        """The steps of the program, each with its kernel."""
        return "\n".join(f"// {s.title}, {s.blocks} blocks\n{s.kernel}" for s in self.compilation.program.steps)

    def llvm(self) -> str:
        """The LLVM assembly as optimised."""
        return machine.optimized_text(self.compilation.program.text, machine.host())

    def asm(self) -> str:
        """The machine code as assembly."""
        return machine.assembly(self.compilation.program.text, machine.host())


def compile_graph(graph: Graph, updates: tuple[tuple[int, int], ...] = (), name: str = "") -> Executable:
    """Compiles `graph` for this machine, or loads its code from the cache.

    Args:
        updates: (output position, input position) pairs: those outputs are written into the buffers of those inputs.
    """
    name = name or graph.name
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    optimized, passes = run_pipeline(graph, name)
    seconds["passes"] = time.perf_counter() - start
    host = machine.host()
    start = time.perf_counter()
    program = lower(optimized, updates, host)
    seconds["kernels"] = time.perf_counter() - start
    start = time.perf_counter()
    code, from_cache = _object_code(program.text, host)
    library = machine.load_object(code)
    seconds["machine code"] = time.perf_counter() - start
    return Executable(name, Compilation(graph, optimized, passes, program, seconds, from_cache), updates, library)


def _object_code(text: str, host: machine.Target) -> tuple[bytes, bool]:
    from graphcell.version import __version__

    key = make_key(text, repr(host), repr(machine.PASSES), __version__, llvmlite.__version__, sys.version)
    cache = open_cache()
    found = cache.get(key)
    if found is not None:
        return found[1], True
    code = machine.compile_object(text, host)
    cache.put(key, {}, code)
    return code, False


__all__ = ["Compilation", "Executable", "StorageEpoch", "compile_graph", "run_host_call"]
