"""What a compiled function read from outside while it was traced, and whether that still is so.

Enters: globals, closure variables, attributes and Cells, as the interpreter meets them. Leaves:
`Guards.holds`, a quick check that may say no too often, and `Guards.failure`, the name of the first thing
that changed. Constants are compared by value, objects by identity, lists, dicts and arrays by what they hold.
A Tensor that was replaced by another of the same type is no failure: the compiled graph takes it as an input.
Attributes of Cells are looked at only when `StateEpoch` says that some Cell changed.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import is_
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from graphcell.dtype import DType
from graphcell.frontend.libraries import is_library_file, is_library_name
from graphcell.frontend.numbers import number
from graphcell.frontend.places import held
from graphcell.frontend.trees import same_constant
from graphcell.ir.types import TensorType
from graphcell.ops.dispatch import no_trace
from graphcell.records import dataclass
from graphcell.tensor import StateEpoch, StorageEpoch, Tensor

MISSING = object()
"""The value of what is not there."""
_NAMESPACES = (("types", "SimpleNamespace"), ("argparse", "Namespace"))
_NEVER = (
    super,
    Tensor,
    DType,
    str,
    bytes,
    bool,
    int,
    float,
    complex,
    tuple,
    list,
    dict,
    set,
    frozenset,
    range,
    slice,
    type(None),
    FunctionType,
    MethodType,
)
_CONTAINERS = (list, dict, set, np.ndarray)
_CHECK = """
def check():
    try:
        return {}
    except (AttributeError, ValueError):  # something is not there any more
        return False
"""


def is_cell(x: Any) -> bool:
    """True for Cells (this file stands below the class)."""
    return hasattr(type(x), "construct")


@dataclass(slots=True)
class _Read:
    """One attribute, closure variable or rebindable Tensor: where it is read, what it was."""

    owner: Any
    name: str
    value: Any

    def now(self) -> Any:
        if isinstance(self.owner, CellType):
            try:
                return self.owner.cell_contents
            except ValueError:
                return MISSING
        if type(self.owner) is dict:
            return self.owner.get(self.name, MISSING)
        return held(getattr(self.owner, self.name, MISSING))

    def what(self) -> str:
        if isinstance(self.owner, CellType):
            return f"the closure variable '{self.name}'"
        if type(self.owner) is dict:
            return f"the global variable '{self.name}'"
        return f"{getattr(self.owner, '__name__', type(self.owner).__name__)}.{self.name}"


@dataclass(frozen=True, slots=True)
class Comparisons:
    """What a function read from outside, for native code: (closure cell, content), (globals, name, value), and a check of all the rest.

    `epoch`: the `StateEpoch` for which it holds; `changes`: that of the Guards when this was made.
    """

    epoch: int
    changes: int
    cells: tuple[tuple[CellType, Any], ...]
    variables: tuple[tuple[dict[str, Any], str, Any], ...]
    check: Callable[[], bool] | None


class Guards:
    """Collects reads while tracing; afterwards `seal` makes them quick to check.

    `varying`: (id of the owner, name) of numbers that are known to change from call to call. They are read as
    Tensors that stand for numbers, inputs of the graph. `changed`: what `failure` found changed, if it was a
    number.
    """

    def __init__(self, varying: frozenset[tuple[int, str]] = frozenset()) -> None:
        self.varying = varying
        self.changed: tuple[int, str] | None = None
        self._numbers: dict[tuple[int, str], tuple[_Read, Tensor]] = {}
        self._reads: dict[tuple[int, str], _Read] = {}
        self._contents: dict[int, tuple[Any, Any, str]] = {}
        self._cells: dict[int, tuple[Any, list[tuple[str, Any, Any]]]] = {}
        self._blind = False
        self._epoch = StateEpoch.value  # from the beginning: what changes while tracing is looked at by the next call
        self.changes = 0  # how often `comparisons` may have become another
        self._always: list[_Read] = []
        self._with_cells: list[_Read] = []
        self._tensors: list[tuple[_Read, TensorType, int]] = []
        self._types: list[TensorType] = []
        """Of the captured Tensors."""
        self.holds: Callable[[], bool] = lambda: False

    # -- collecting ----------------------------------------------------------------------------------------
    def global_read(self, table: dict[str, Any], name: str, value: Any) -> Any:
        """Notes the value of a global variable; what the traced function is to see of it."""
        if isinstance(value, ModuleType):
            return value
        return self._seen(table, name, value)

    def closure_read(self, cell: CellType, name: str, value: Any) -> Any:
        """Notes the value of a closure variable; what the traced function is to see of it."""
        return self._seen(cell, name, value)

    def attribute_read(self, owner: Any, name: str, value: Any) -> Any:
        """Notes the value of an attribute (MISSING if it has none); what the traced function is to see of it."""
        self._attribute_read(owner, name, held(value))
        return self._as_number(owner, name, value) if (id(owner), name) in self.varying else value

    def _seen(self, owner: Any, name: str, value: Any) -> Any:
        self._read(owner, name, value)
        return self._as_number(owner, name, value) if (id(owner), name) in self.varying else value

    def _as_number(self, owner: Any, name: str, value: Any) -> Any:
        """A varying number as a Tensor, which gets the present value before each call."""
        if type(value) not in (int, float):
            return value
        key = (id(owner), name)
        if key not in self._numbers:
            read = self._reads.pop(key)
            with no_trace():
                self._numbers[key] = (read, number(Tensor(value)))
        return self._numbers[key][1]

    def _attribute_read(self, owner: Any, name: str, value: Any) -> None:
        if isinstance(owner, ModuleType):
            if not is_library_name(owner.__name__):
                self.global_read(owner.__dict__, name, value)
            return
        if isinstance(owner, _NEVER) or (
            isinstance(value, (FunctionType, MethodType, types.BuiltinMethodType))
            and name not in _variables(owner)
        ):
            return
        kind = owner if isinstance(owner, type) else type(owner)
        if is_library_name(kind.__module__) and not is_cell(owner) and (kind.__module__, kind.__name__) not in _NAMESPACES:
            return
        now = held(getattr(owner, name, MISSING))
        if now is not value and not same_constant(now, value):
            return  # made anew at every read
        self._read(owner, name, value)

    def _read(self, owner: Any, name: str, value: Any) -> None:
        key = (id(owner), name)
        if key in self._numbers:
            return
        if key in self._reads:
            self.met(value, name)
            return
        if isinstance(value, FunctionType) and is_library_file(value.__code__.co_filename):
            return
        self._reads[key] = _Read(owner, name, value)
        self.met(value, name)

    def met(self, value: Any, name: str) -> None:
        """Notes the contents of a container, or the state of a Cell, that the traced function can see."""
        if is_cell(value) and not isinstance(value, type):
            if id(value) not in self._cells:
                self._cells[id(value)] = (value, _cell_state(value))
        elif isinstance(value, _CONTAINERS) and id(value) not in self._contents and not self._blind:
            self._contents[id(value)] = (value, _copy(value), name)
            if not isinstance(value, np.ndarray):
                for item in value.values() if isinstance(value, dict) else value:
                    self.met(item, name)

    def data_read(self, tensor: Tensor) -> None:
        """Notes that the data of a Tensor became constants."""
        self._contents[id(tensor)] = (tensor, tensor.array().copy(), "a Tensor whose data were asked for")

    @contextmanager
    def without_contents(self) -> Iterator[None]:
        """What containers hold is not noted inside."""
        before, self._blind = self._blind, True
        try:
            yield
        finally:
            self._blind = before

    # -- checking ------------------------------------------------------------------------------------------
    def seal(self, captured: Sequence[Tensor], noted: Iterable[tuple[Tensor, str, Any]] = ()) -> None:
        """Ends collecting. `captured`: the Tensors that became inputs of the graph; `noted`: (Tensor, attribute, value) of what was asked
        of Tensors beside their values (see `Trace.note`).
        """
        self._with_cells += [_Read(*entry) for entry in noted]
        places = {id(t): k for k, t in enumerate(captured)}
        self._types = [t.ir_type for t in captured]
        for read in self._reads.values():
            if type(read.value) is Tensor:
                self._tensors.append((read, read.value.ir_type, places.get(id(read.value), -1)))
            elif is_cell(read.owner) and not _is_of_the_class(read):
                self._with_cells.append(read)
            else:
                self._always.append(read)
        self._reads.clear()
        self.holds = self._quick_check()

    def _quick_check(self) -> Callable[[], bool]:
        """One expression that compares everything by identity; where it is false, `failure` takes a closer
        look.
        """
        reads = [*self._outside(), *(read for read, _ in self._numbers.values() if not is_cell(read.owner))]
        return self._expression(reads, ["guards._epoch == epoch.value"])

    def _outside(self) -> list[_Read]:
        """What was read outside of Cells, but for numbers that vary."""
        return [*self._always, *(read for read, _, _ in self._tensors if not is_cell(read.owner))]

    def _expression(self, reads: Sequence[_Read], terms: list[str]) -> Callable[[], bool]:
        """A function that says if `terms` and what `reads` and containers held still hold."""
        names: dict[str, Any] = {"guards": self, "epoch": StateEpoch, "holds": _holds, "missing": MISSING}
        for k, read in enumerate(reads):
            names[f"o{k}"], names[f"r{k}"] = read.owner, read
            if isinstance(read.owner, CellType):
                now = f"o{k}.cell_contents"
            elif type(read.owner) is dict:
                now = f"o{k}.get({read.name!r}, missing)"
            elif read.value is MISSING:
                now = f"getattr(o{k}, {read.name!r}, missing)"
            else:
                now = f"o{k}.{read.name}" if read.name.isidentifier() else f"getattr(o{k}, {read.name!r})"
            terms.append(f"{now} is r{k}.value")
        for k, (container, contents, _) in enumerate(self._contents.values()):
            names[f"c{k}"], names[f"h{k}"] = container, contents
            terms.append(f"holds(c{k}, h{k})")
        exec(_CHECK.format(" and ".join(terms)), names)
        check: Callable[[], bool] = names["check"]
        return check

    def comparisons(self) -> Comparisons | None:
        """What native code compares to know that all is as it was; None where numbers vary, whose values are inputs of the graph."""
        if self._numbers:
            return None
        reads = self._outside()
        cells = tuple((r.owner, r.value) for r in reads if isinstance(r.owner, CellType))
        variables = tuple((r.owner, r.name, r.value) for r in reads if type(r.owner) is dict and r.value is not MISSING)
        others = [r for r in reads if r.value is MISSING or not isinstance(r.owner, (CellType, dict))]
        check = self._expression(others, []) if others or self._contents else None
        return Comparisons(self._epoch, self.changes, cells, variables, check)

    @staticmethod
    def compare_together(several: Sequence[Guards]) -> Comparisons | None:
        """What native code compares to know that all is as it was for several, which hold now; None as for `comparisons`."""
        together, reads = Guards(), dict[tuple[int, str], _Read]()
        for guards in several:
            if guards._numbers or guards._epoch != several[0]._epoch:
                return None
            reads |= {(id(read.owner), read.name): read for read in guards._outside()}
            together._contents |= guards._contents
        together._always, together._epoch = list(reads.values()), several[0]._epoch
        return together.comparisons()

    def failure(self, captured: list[Tensor]) -> str:
        """What changed since the trace, or "". Puts Tensors that were replaced into `captured`."""
        self.changed = None
        if self.holds():
            return ""
        self.changes += 1
        for read in self._always:
            if not self._is_same(read):
                return read.what()
        for read, box in self._numbers.values():
            now = read.now()
            if type(now) is not type(read.value):
                return read.what()
            if now is not read.value:
                box.rebind(np.asarray(now, box.array().dtype))
                read.value = now
        for container, contents, name in self._contents.values():
            if not _holds(container, contents):
                return name if isinstance(container, Tensor) else f"the contents of '{name}'"
        reason = self._check_tensors(captured)
        return reason or self._check_cells()

    def _check_cells(self) -> str:
        epoch = StateEpoch.value
        if epoch == self._epoch:
            return ""
        for read in self._with_cells:
            if not self._is_same(read):
                return read.what()
        for cell, before in self._cells.values():
            now = cell.__dict__
            for name, value, contents in before:
                if now.get(name) is not value or (contents is not None and not _holds(value, contents)):
                    return f"{type(cell).__name__}.{name}"
        self._epoch = epoch
        return ""

    def _is_same(self, read: _Read) -> bool:
        now = read.now()
        if _same(now, read.value):
            read.value = now
            return True
        self.changed = (
            (id(read.owner), read.name)
            if type(read.value) in (int, float) and type(now) is type(read.value)
            else None
        )
        return False

    def _check_tensors(self, captured: list[Tensor]) -> str:
        changed: dict[int, Tensor] = {}
        for read, type_before, place in self._tensors:
            now = read.now()
            if type(now) is not Tensor or (now is not read.value and now.ir_type != type_before):
                return read.what()
            if place >= 0 and changed.setdefault(place, now) is not now:
                return read.what()
            read.value = now
        for place, tensor in changed.items():
            if captured[place] is not tensor:
                captured[place] = tensor
                StorageEpoch.value += 1
        for tensor, before in zip(captured, self._types, strict=True):
            if tensor.ir_type != before:
                name = getattr(tensor, "name", "")
                return f"the type of {f'Parameter {name!r}' if name else 'a Tensor'} that it reads: {before} became {tensor.ir_type}"
        return ""


def _is_of_the_class(read: _Read) -> bool:
    """True for what a Cell's class has and the Cell has not, whose change `StateEpoch` does not count."""
    return hasattr(type(read.owner), read.name) and read.name not in _variables(read.owner)


def _variables(owner: Any) -> dict[str, Any]:
    found = getattr(owner, "__dict__", None)
    return found if isinstance(found, dict) else {}


def _same(now: Any, before: Any) -> bool:
    return now is before or same_constant(now, before) or (isinstance(before, (tuple, dict)) and _holds(now, before))


def _copy(container: Any) -> Any:
    if isinstance(container, dict):
        return dict(container)
    if isinstance(container, np.ndarray):
        return container.copy()
    return list(container) if isinstance(container, (list, tuple)) else set(container)


def _holds(container: Any, contents: Any) -> bool:
    """True if `container` holds the very things (or equal constants) that it held when `contents` was copied."""
    if isinstance(contents, dict):
        if not isinstance(container, dict) or len(container) != len(contents):
            return False
        if all(map(is_, container, contents)) and all(map(is_, container.values(), contents.values())):
            return True
        return all(map(same_constant, container, contents)) and all(
            map(_same, container.values(), contents.values())
        )
    if isinstance(contents, (list, tuple)):
        if not isinstance(container, (list, tuple)) or len(container) != len(contents):
            return False
        return all(map(is_, container, contents)) or all(map(_same, container, contents))
    if isinstance(contents, np.ndarray):
        return same_constant(container._data if isinstance(container, Tensor) else container, contents)
    return isinstance(container, set) and bool(container == contents)


def _cell_state(cell: Any) -> list[tuple[str, Any, Any]]:
    """What `Cell.__call__` reads itself: hooks, flags, the dtype of `to_float`, the Cells inside. (name,
    value, copy of what it holds)
    """
    state = []
    for name, value in _variables(cell).items():
        if name in ("_cells", "_flags", "_to_float", "_auto_to", "_recompute", "_parameters") or "hook" in name:
            state.append((name, value, _copy(value) if isinstance(value, _CONTAINERS) else None))
    return state
