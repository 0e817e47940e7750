"""What a call of an executable needs besides its code: workspaces, buffers of outputs, bound Tensors, and what native calls look at.

Enters: an executable, the Tensors that its graph reads from outside, the arguments of a call. Leaves: `Binding`, which runs it on the
Tensors in the arguments, and `Record`, by which calling.py's native code does the same without Python. Refuses: arguments that cannot
be compared natively (`Record.of` gives None).

Addresses of bound Tensors are looked up again when `StorageEpoch` moved. An output's buffer is given out again when nobody sees it.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcell import buffer
from graphcell.codegen.program import HostCall
from graphcell.context import config
from graphcell.errors import ExecutionError, OutOfMemoryError
from graphcell.ir.op import Array, evaluate
from graphcell.runtime.calling import (
    ANY,
    AS_TUPLE,
    DICT,
    EQUAL,
    FINISH,
    FLOAT,
    IDENTICAL,
    KEPT_OUTPUTS,
    KEPT_RECORDS,
    LIST,
    SINGLE,
    TENSOR,
    TUPLE,
    BindingState,
    NodeState,
    OutputState,
    RecordState,
    SpaceState,
    TableState,
    native,
)  # fmt: skip
from graphcell.runtime.kept import PREPARE, KeptMemory
from graphcell.runtime.threads import default_size, pool
from graphcell.tensor import ContentsEpoch, RetiredBuffers, StorageEpoch, Tensor

if TYPE_CHECKING:
    from graphcell.runtime.executable import Executable

_HOST = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)
_RUN = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 5)
_TRIES = 3
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
    """Buffers of one output: one that the user has let go of is given out again."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], state: Any):
        kept: list[Array] = []
        newest = 0
        lock = threading.Lock()  # native calls come here without that of the workspaces

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
        state.make = id(make)

    def take(self) -> Array:
        """A buffer that nobody sees."""
        for data in self.kept:
            # seen from here: `data` is held by the list, the local name and the argument, its memory by `data.base` and the argument
            if sys.getrefcount(data) <= 3 and sys.getrefcount(data.base) <= 2:
                return data
        return self.make()


class Workspace:
    """What one call needs for itself: the arena and the tables of addresses."""

    def __init__(self, executable: Executable):
        program = executable.compilation.program
        try:
            self.arena = buffer.empty((program.arena_bytes,), np.dtype(np.uint8))
        except OutOfMemoryError as e:
            raise OutOfMemoryError(f"{executable.name}: its temporaries need {program.arena_bytes:,} bytes") from e
        constants = executable.constants
        count = len(executable.compilation.graph.inputs)
        outputs = max(1, len(executable.output_types))
        self.inputs = (ctypes.c_int64 * (count + 1 + len(constants)))()  # the graph's inputs, the kept memory, the constants
        for k, array in enumerate(constants):
            self.inputs[count + 1 + k] = buffer.address(array)
        self.outputs, self.arrays = (ctypes.c_int64 * outputs)(), (ctypes.c_int64 * outputs)()
        self._error: list[BaseException] = []
        self.fail = _raiser(executable.name, self._error)
        self._callback = _HOST(_caller(program.host_calls, self._error))
        self.state = SpaceState(
            epoch=-1, inputs=ctypes.addressof(self.inputs), outputs=ctypes.addressof(self.outputs), arena=buffer.address(self.arena),
            pool=pool().address, callback=ctypes.cast(self._callback, ctypes.c_void_p).value, fail=id(self.fail),
            arrays=ctypes.addressof(self.arrays),
        )  # fmt: skip
        self.address = ctypes.addressof(self.state)


    def set_inputs(self, first: int, addresses: Sequence[int]) -> None:
        """Puts the addresses of the graph's inputs, from number `first` on, in their table."""
        self.inputs[first : first + len(addresses)] = list[Any](addresses)


def _raiser(name: str, errors: list[BaseException]) -> Callable[[], Any]:
    def fail() -> Any:
        raise errors.pop() if errors else ExecutionError(f"{name}: the native code failed")

    return fail


def _caller(host_calls: Sequence[HostCall], errors: list[BaseException]) -> Callable[[int, int], int]:
    def call_host(number: int, context: int) -> int:
        try:
            run_host_call(host_calls[number], context)
        except BaseException as e:  # carried over the native frames, raised by the caller
            errors[:] = [e]
            return 1
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


class Workspaces:
    """The workspaces of one executable that no call uses, the pools of its outputs, and its runs."""

    def __init__(self, executable: Executable):
        self.executable = executable
        program = executable.compilation.program
        types = executable.output_types
        self._slots = (OutputState * max(1, len(types)))()
        self.pools = [OutputPool(t.shape, t.dtype.np_type, state) for t, state in zip(types, self._slots)]
        self.state = BindingState(
            run=executable.entry, releases=1, outputs=len(types), slots=ctypes.addressof(self._slots), writes=int(bool(executable.updates)), contents=-1
        )
        kept = program.kept
        self.kept = None if kept is None else KeptMemory(kept, PREPARE(executable.library.address("prepare")), executable.name)
        self.address = ctypes.addressof(self.state)
        self.runs = 0
        self._unbounded = bool(program.host_calls) or executable.branches
        self._made: dict[int, Workspace] = {}
        self._spare: list[Workspace] = []  # without native calls
        self._function = _RUN(executable.entry)
        self._lock = threading.Lock()

    def pop(self) -> Workspace:
        """Begins a call: a workspace for it. From now on no buffer that it gets the address of is freed."""
        code = native()
        if code is None:
            RetiredBuffers.count(1)
            space = self._spare.pop() if self._spare else None
        else:
            address = code.pop(self.address)
            space = None if address is None else self._made[address]
        if space is not None:
            return space
        try:
            space = Workspace(self.executable)
        except BaseException:
            self.push(None)
            raise
        self._made[space.address] = space
        return space

    def push(self, space: Workspace | None) -> None:
        """Ends a call and takes its workspace back."""
        code = native()
        if code is not None:
            code.push(self.address, None if space is None else space.address)
        else:
            RetiredBuffers.count(-1)
            if space is not None:
                self._spare.append(space)
        RetiredBuffers.clear()

    def prepare(self, kept: KeptMemory, space: Workspace, tensors: Sequence[Tensor], first: int) -> None:
        """Brings up to date what the program keeps of its frozen inputs; `tensors` are the graph's inputs from number `first` on."""
        state = space.state
        done = kept.refresh(tensors, first, space.inputs, state.arena, state.pool, state.callback)
        self.state.contents = kept.contents
        if not done:
            space.fail()

    def run(self, space: Workspace) -> tuple[Tensor, ...]:
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
        if self.executable.updates:
            ContentsEpoch.value += 1
        if failed:
            space.fail()
        return tuple(taken)

    def _run(self, space: Workspace) -> int:
        code = native()
        if code is not None:
            return int(code.run(self.address, space.address))
        state = space.state
        return int(self._function(state.inputs, state.outputs, state.arena, state.pool, state.callback))

    def _note(self, nanoseconds: int) -> None:
        """Learns whether runs are short; those that branch may become long at any time."""
        self.runs += 1
        if nanoseconds < _SHORT_NANOSECONDS and not self._unbounded:
            self.state.releases = 0


class Binding:
    """An executable with the Tensors that its graph reads from outside, which follow those in the arguments (`leaves` of them).

    `captured` may get other Tensors of the same types; `StorageEpoch` must be raised then.
    """

    def __init__(self, executable: Executable, leaves: int, captured: list[Tensor]):
        self.executable, self.leaves, self.captured = executable, leaves, captured
        self._updated = [(position - leaves, keep) for position, keep in executable.updated_inputs]
        self.spaces = Workspaces(executable)

    def __call__(self, leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Runs; returns the outputs that are not written back."""
        if config.runtime_num_threads is not Threads.applied:
            Threads.apply()
        spaces = self.spaces
        space = spaces.pop()
        try:
            if space.state.epoch != StorageEpoch.value and space.state.epoch != ANY:
                self._bind(space)
            inputs = space.inputs
            for k, t in enumerate(leaves):
                inputs[k] = t.address()
            kept = spaces.kept
            if kept is not None:
                if kept.holds:
                    kept.bind(inputs)
                else:
                    spaces.prepare(kept, space, self.captured, self.leaves)
            return spaces.run(space)
        finally:
            spaces.push(space)

    def _bind(self, space: Workspace) -> None:
        """Looks up the addresses of the captured Tensors; those that are updated get buffers that nobody else sees."""
        captured = self.captured
        if not captured:
            space.state.epoch = ANY
            return
        for _ in range(_TRIES):  # a buffer that moves raises the epoch
            epoch = StorageEpoch.value
            addresses = [t.address() for t in captured]
            for k, keep in self._updated:
                addresses[k] = captured[k].own_buffer(keep)
            if StorageEpoch.value == epoch:
                break
        else:
            epoch = -1
        space.set_inputs(self.leaves, addresses)
        space.state.epoch = epoch


# -- native calls ------------------------------------------------------------------------------------------------------
class Table:
    """The records of one compiled function, where native code finds them. Records hold it, and take themselves out when they die."""

    def __init__(self, always: bool) -> None:
        self.state = TableState(always=int(always))
        self.address = ctypes.addressof(self.state)
        self._records: list[weakref.ref[Record]] = []
        self._reference = weakref.ref  # records die after this module when Python ends

    def add(self, record: Record) -> None:
        """Puts a record first."""
        self._set([record, *self._others(record)[: KEPT_RECORDS - 1]])

    @property
    def last(self) -> int:
        """The address of the record that ran last; 0 if Python ran since then."""
        return int(self.state.last)

    def forget_last(self) -> None:
        """Notes that Python ran the function."""
        self.state.last = 0

    def remove(self, record: Record) -> None:
        """Takes a record out."""
        self._set(self._others(record))

    def _others(self, record: Record) -> list[Record]:
        """All living records but one; while the list is there they stay alive, whatever the garbage collector does meanwhile."""
        found = [known() for known in self._records]
        return [r for r in found if r is not None and r is not record and not r.is_dying]

    def _set(self, records: Sequence[Record]) -> None:
        self._records = [self._reference(r) for r in records]
        self.state.count = 0
        self.state.records[: len(records)] = [r.address for r in records]
        self.state.count = len(records)


class Record:
    """One signature of a compiled function with all that a native call compares and needs."""

    def __init__(self, table: Table, state: Any, kept: Sequence[Any]):
        self._table, self._state, self._kept = table, state, kept
        self.address = ctypes.addressof(state)
        self.is_dying = False
        state.owner = id(self)

    def __del__(self) -> None:
        self.is_dying = True
        self._table.remove(self)

    @property
    def hits(self) -> int:
        """How many calls it has served."""
        return int(self._state.hits)

    @classmethod
    def of(
        cls, table: Table, binding: Binding, args: Sequence[Any], kwargs: dict[str, Any], epoch: int,
        cells: Sequence[tuple[Any, Any]], variables: Sequence[tuple[dict[str, Any], str, Any]], check: Callable[[], bool] | None,
        finish: Callable[[Sequence[Tensor]], Any], is_single: bool, is_tuple: bool, parameters: bool = False,
    ) -> Record | None:  # fmt: skip
        """A record for arguments like these.

        Args:
            epoch: the value of `StateEpoch` for which it holds.
            cells, variables, check: what else must be as it is: contents of closure cells, (globals, name, value), and all the rest.
            finish: makes what the call returns of the outputs; not asked where that is the first output, or the tuple of all.
            parameters: Parameters among the arguments are inputs of the graph as other Tensors are; else they are constants.
        """
        pattern = _Pattern(parameters)
        if not all(map(pattern.add, [*args, *kwargs.values()])):
            return None
        names = tuple(map(sys.intern, kwargs))
        nodes = (NodeState * max(1, len(pattern.rows)))(*pattern.rows)
        name_table = _pointers(names)
        cell_table = _pointers([x for pair in cells for x in pair])
        variable_table = _pointers([x for entry in variables for x in entry])
        count = len(binding.executable.output_types)
        state = RecordState(
            positional=len(args), keywords=len(kwargs), names=ctypes.addressof(name_table), nodes=ctypes.addressof(nodes),
            state_epoch=epoch, contents_epoch=-1, cells=len(cells), cell_table=ctypes.addressof(cell_table), globals=len(variables),
            global_table=ctypes.addressof(variable_table), check=0 if check is None else id(check), binding=binding.spaces.address,
            structure=SINGLE if is_single and count == 1 else AS_TUPLE if is_tuple else FINISH, finish=id(finish), hits=0,
        )  # fmt: skip
        kept = (binding, names, nodes, name_table, cell_table, variable_table, cells, variables, check, finish, pattern)
        return cls(table, state, kept)


class _Pattern:
    """The arguments of a call as rows of `NodeState`: each container before what it holds."""

    def __init__(self, parameters: bool) -> None:
        self._parameters = parameters
        self.rows: list[tuple[int, ...]] = []
        self.kept: list[Any] = []
        self._leaves = 0

    def add(self, x: Any) -> bool:
        """Appends `x`; False if it cannot be compared natively."""
        kind = type(x)
        if kind is Tensor or (self._parameters and isinstance(x, Tensor)):
            return self._add_tensor(x)
        if kind is tuple or (isinstance(x, tuple) and hasattr(x, "_fields")):
            return self._add_items(TUPLE, x, x)
        if kind is list:
            return self._add_items(LIST, x, x)
        if kind is dict:
            return self._add_items(DICT, x, list(x.values()), list(x))
        if isinstance(x, (tuple, list, dict, complex, np.ndarray, np.generic)) or kind.__hash__ is None:  # what cannot be hashed may change
            return False
        form = FLOAT if kind is float else EQUAL if kind in (int, str, bytes) else IDENTICAL
        if form != IDENTICAL:
            self.kept.append(x)  # others are kept, or known to live, by the entry of the compiled graph
        self.rows.append((form, id(x)))
        return True

    def _add_tensor(self, x: Tensor) -> bool:
        data = x._data if x._data is not None else x.array()
        shape, dtype = data.shape, data.dtype
        dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        self.kept += [dims, dtype, type(x)]
        self.rows.append((TENSOR, id(dtype), len(shape), ctypes.addressof(dims), self._leaves, dtype.itemsize - 1, id(type(x))))
        self._leaves += 1
        return not dtype.itemsize & (dtype.itemsize - 1)

    def _add_items(self, kind: int, x: Any, items: Sequence[Any], keys: Sequence[Any] = ()) -> bool:
        table = _pointers(keys)
        self.kept += [table, keys, type(x)]
        self.rows.append((kind, id(type(x)), len(items), ctypes.addressof(table)))
        return all(map(self.add, items))


def _pointers(things: Sequence[Any]) -> Any:
    return (ctypes.c_int64 * max(1, len(things)))(*map(id, things))


__all__ = ["Binding", "OutputPool", "Record", "Table", "Threads", "Workspace", "Workspaces", "run_host_call"]
