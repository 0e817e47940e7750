"""What a call of an executable needs besides its code: bound Tensors, and what native calls look at.

Enters: an executable, the Tensors that its graph reads from outside, the arguments of a call. Leaves: `Binding`, which runs it on the
Tensors in the arguments, and `Record`, by which calling.py's native code does the same without Python. Refuses: arguments that cannot
be compared natively (`Record.of` gives None).

Addresses of bound Tensors are looked up again when `StorageEpoch` moved.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from graphcell.buffer import Writers
from graphcell.context import config
from graphcell.runtime.calling import (
    ANY,
    AS_TUPLE,
    DICT,
    EQUAL,
    FINISH,
    FLOAT,
    IDENTICAL,
    KEPT_RECORDS,
    LIST,
    RECORD_SLOTS,
    SINGLE,
    TENSOR,
    TUPLE,
    NodeState,
    RecordState,
    TableState,
)  # fmt: skip
from graphcell.runtime.workspaces import Runs, Threads, Workspace, Workspaces
from graphcell.tensor import StorageEpoch, Tensor

if TYPE_CHECKING:
    from graphcell.runtime.executable import Executable

TRIES = 3


class Binding:
    """An executable with the Tensors that its graph reads from outside, which follow those in the arguments (`leaves` of them).

    `captured` may hold others of the same types later; `StorageEpoch` must be raised then. `is_part`: others that run before it may read what it updates.
    Of arguments, only those of blocks of rows are updated, whose buffers native code gives.
    """

    def __init__(self, executable: Executable, leaves: int, captured: Sequence[Tensor], is_part: bool = False):
        self.executable, self.leaves, self.captured = executable, leaves, captured
        self._updated = [(position - leaves, keep or is_part) for position, keep in executable.updated_inputs if position >= leaves]
        self.spaces = Workspaces(executable)

    def __call__(self, leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Runs; returns the outputs that are not written back."""
        if not self._updated:
            return self._run(leaves)
        with Writers.alone():
            return self._run(leaves)

    def _run(self, leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
        if config.runtime_num_threads is not Threads.applied:
            Threads.apply()
        spaces = self.spaces
        space = spaces.pop()
        try:
            if space.state.epoch != StorageEpoch.value and space.state.epoch != ANY:
                self.bind(space)
            inputs = space.inputs
            for k, t in enumerate(leaves):
                inputs[k] = t.address()
            if spaces.kept is not None:
                self.prepare(space)
            return spaces.run(space)
        finally:
            spaces.push(space)

    def bind(self, space: Workspace) -> None:
        """Looks up the addresses of the captured Tensors; those that are updated get buffers that nobody else sees."""
        captured = self.captured
        if not captured:
            space.state.epoch = ANY
            return
        for _ in range(TRIES):  # a buffer that moves raises the epoch
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

    def prepare(self, space: Workspace) -> set[int]:
        """Brings up to date what is kept of frozen inputs; the count of contents for which it is, if there is any."""
        kept = self.spaces.kept
        if kept is None:
            return set()
        if kept.holds:
            kept.bind(space.inputs)
        else:
            self.spaces.prepare(space, self.captured, self.leaves)
        return {kept.contents}


class Bound(Protocol):
    """Native code with all that a call of it needs."""

    @property
    def spaces(self) -> Runs:
        """The runs of its function."""


# -- native calls ------------------------------------------------------------------------------------------------------
class Table:
    """The records of one compiled function, where native code finds them. Records hold it, and take themselves out when they die."""

    def __init__(self, always: bool) -> None:
        self.state = TableState(always=int(always), counted=-1)
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


class CountedTable(Table):
    """A table whose records differ in the first extent of argument number `counted`, a Tensor, which says where to look."""

    def __init__(self, counted: int) -> None:
        super().__init__(False)
        self.state.counted = counted

    def add_for(self, rows: int, record: Record) -> None:
        """Puts in the record for so many rows, in the place of another that had it."""
        self.state.records[rows % RECORD_SLOTS] = record.address

    def remove(self, record: Record) -> None:
        """Takes a record out."""
        records = self.state.records
        for slot in range(RECORD_SLOTS):
            if records[slot] == record.address:
                records[slot] = 0


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
        cls, table: Table, binding: Bound, args: Sequence[Any], kwargs: dict[str, Any], epoch: int,
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
        count = len(binding.spaces.pools)
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
