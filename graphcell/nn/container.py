"""Cells that hold Cells: in sequence, as a list, by name."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from graphcell.errors import ArgumentTypeError, IndexRangeError, MissingKeyError
from graphcell.nn.cell import Cell
from graphcell.tensor import StateEpoch


def _check_cell(owner: str, cell: object) -> Cell:
    if not isinstance(cell, Cell):
        raise ArgumentTypeError(f"For '{owner}', each element must be a Cell, but got {type(cell)}.")
    return cell


class _Ordered(Cell):
    """Cells numbered '0', '1', …, with the protocol of a list."""

    def _position(self, index: int) -> int:
        if not isinstance(index, int) or isinstance(index, bool):
            raise ArgumentTypeError(f"For '{type(self).__name__}', the index must be an int or a slice, but got {type(index).__name__}.")
        count = len(self)
        if not -count <= index < count:
            raise IndexRangeError(f"For '{type(self).__name__}', the index {index} is out of range for {count} Cells.")
        return index % count

    def _fill(self, cells: Iterable[object]) -> None:
        for number, cell in enumerate(cells):
            self._hold_cell(str(number), _check_cell(type(self).__name__, cell))

    def _renumber(self, cells: Iterable[Cell]) -> None:
        """Gives the Cells new numbers, and their Parameters the new prefix."""
        StateEpoch.value += 1
        self._cells.clear()
        self._fill(cells)

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[Cell]:
        return iter(list(self._cells.values()))

    def __getitem__(self, index: Any) -> Any:
        cells = list(self._cells.values())
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._cells.items())[index])) if isinstance(self, SequentialCell) else type(self)(cells[index])
        return cells[self._position(index)]

    def __setitem__(self, index: int, cell: Cell) -> None:
        name = list(self._cells)[self._position(index)]
        StateEpoch.value += 1
        self._hold_cell(name, _check_cell(type(self).__name__, cell))

    def __delitem__(self, index: Any) -> None:
        cells = list(self._cells.values())
        del cells[index if isinstance(index, slice) else self._position(index)]
        self._renumber(cells)

    def append(self, cell: Cell) -> Any:
        """Adds a Cell at the end; returns this Cell."""
        StateEpoch.value += 1
        self._hold_cell(str(len(self)), _check_cell(type(self).__name__, cell))
        return self

    def insert(self, index: int, cell: Cell) -> None:
        """Puts a Cell before place `index`."""
        count = len(self)
        if not -count <= index <= count:
            raise IndexRangeError(f"For '{type(self).__name__}', the index {index} is out of range for {count} Cells.")
        cells = list(self._cells.values())
        cells.insert(index, _check_cell(type(self).__name__, cell))
        self._renumber(cells)

    def extend(self, cells: Iterable[Cell]) -> Any:
        """Adds Cells at the end; returns this Cell."""
        if isinstance(cells, Cell) and not isinstance(cells, _Ordered):
            raise ArgumentTypeError(f"For '{type(self).__name__}', the new cells must be a list, but got {type(cells)}.")
        for cell in list(cells):
            self.append(cell)
        return self


class SequentialCell(_Ordered):
    """Cells called one after the other.

    Args:
        args: the Cells, or one list of them, or one OrderedDict name → Cell.

    Raises:
        TypeError: for anything that is no Cell.
    """

    def __init__(self, *args: Any):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, cell in args[0].items():
                self._hold_cell(name, _check_cell("SequentialCell", cell))
        elif len(args) == 1 and not isinstance(args[0], Cell):
            if not isinstance(args[0], (list, tuple)):
                raise ArgumentTypeError(f"For 'SequentialCell', the argument must be Cells, a list or an OrderedDict, but got {type(args[0])}.")
            self._fill(args[0])
        else:
            self._fill(args)

    def construct(self, input_data: Any) -> Any:
        """`input_data` passed through all Cells."""
        for cell in self._cells.values():
            input_data = cell(input_data)
        return input_data


class CellList(_Ordered):
    """A list of Cells, whose Parameters belong to this Cell. It is not called itself.

    Args:
        args: the Cells, or one list of them.
    """

    def __init__(self, *args: Any, auto_prefix: bool = True):
        super().__init__(auto_prefix)
        self._fill(args[0] if len(args) == 1 and not (isinstance(args[0], Cell) and not isinstance(args[0], _Ordered)) else args)

    def construct(self, *inputs: Any) -> Any:
        raise NotImplementedError("CellList holds Cells; it does not compute. Call its elements.")


class CellDict(Cell):
    """A dict of Cells, whose Parameters belong to this Cell."""

    def __init__(self, *args: Any):
        super().__init__()
        if len(args) > 1:
            raise ArgumentTypeError(f"For 'CellDict', at most one argument is expected, but got {len(args)}.")
        if args:
            self.update(args[0])

    def __getitem__(self, key: str) -> Cell:
        if key not in self._cells:
            raise MissingKeyError(f"For 'CellDict', there is no Cell of the name {key!r}.")
        cell: Cell = self._cells[key]
        return cell

    def __setitem__(self, key: str, cell: Cell) -> None:
        if not isinstance(key, str):
            raise ArgumentTypeError(f"For 'CellDict', the name must be str, but got {type(key).__name__}.")
        if not key or "." in key:
            raise MissingKeyError(f"For 'CellDict', the name must not be empty or contain '.', but is {key!r}.")
        StateEpoch.value += 1
        self._hold_cell(key, _check_cell("CellDict", cell))

    def __delitem__(self, key: str) -> None:
        StateEpoch.value += 1
        del self._cells[key]

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._cells))

    def __contains__(self, key: object) -> bool:
        return key in self._cells

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._cells.keys()

    def values(self) -> Iterable[Cell]:
        """The Cells."""
        return self._cells.values()

    def items(self) -> Iterable[tuple[str, Cell]]:
        """(name, Cell) pairs."""
        return self._cells.items()

    def clear(self) -> None:
        """Removes all Cells."""
        StateEpoch.value += 1
        self._cells.clear()

    def pop(self, key: str) -> Cell:
        """Removes and returns the Cell of a name."""
        cell = self[key]
        del self[key]
        return cell

    def update(self, cells: Any) -> None:
        """Adds the Cells of a mapping, a CellDict, or an iterable of (name, Cell)."""
        pairs = cells.items() if isinstance(cells, (Mapping, CellDict)) else cells
        for key, cell in pairs:
            self[key] = cell

    def construct(self, *inputs: Any) -> Any:
        raise NotImplementedError("CellDict holds Cells; it does not compute. Call its values.")
