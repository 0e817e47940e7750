"""Cells that hold Cells: in sequence, as a list, by name."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError, IndexRangeError, MissingKeyError
from graphcell.nn.cell import Cell
from graphcell.tensor import StateEpoch


class _Container(Cell):
    """Cells under names. The Parameters of one that comes later are named like those that are there, whoever holds this Cell by then."""

    def _prefix(self) -> str:
        """What precedes the Cells' own names in the names of the Parameters."""
        for path, param in self.parameters_and_names():
            return param.name.removesuffix(path) if param.name.endswith(path) else ""
        return ""

    def _hold_cell(self, name: str, cell: Cell) -> None:
        prefix = self._prefix() if self._auto_prefix else ""
        super()._hold_cell(name, cell)
        if prefix:
            cell.update_parameters_name(f"{prefix}{name}.")


class _Ordered(_Container):
    """Cells under names in an order, with the protocol of a list."""

    def _checked(self, cell: object) -> Cell:
        if not isinstance(cell, Cell):
            raise ArgumentTypeError(
                f"For '{type(self).__name__}', each cell must be subclass of Cell, but got {type(cell).__name__}."
            )
        return cell

    def _position(self, index: int, kinds: str = "int or slice", end: int = 0) -> int:
        owner = f"For '{type(self).__name__}'"
        if not isinstance(index, int) or isinstance(index, bool):
            raise ArgumentTypeError(f"{owner}, the type of 'index' must be {kinds}, but got {type(index).__name__}.")
        count = len(self)
        if not -count <= index < count + end:
            bracket = "]" if end else ")"
            raise IndexRangeError(
                f"{owner}, the value of 'index' must be a number in range [{-count}, {count}{bracket}, but got {index}."
            )
        return index if index >= 0 else index + count

    def _fill(self, cells: Iterable[object]) -> None:
        for number, cell in enumerate(cells):
            self._hold_cell(str(number), self._checked(cell))

    def _renumber(self, cells: Iterable[Cell]) -> None:
        """Gives the Cells new numbers, and their Parameters the new prefix."""
        StateEpoch.value += 1
        prefix = self._prefix() if self._auto_prefix else ""
        self._cells.clear()
        self._fill(cells)
        if prefix:
            self.update_parameters_name(prefix)

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[Cell]:
        return iter(list(self._cells.values()))

    def __setitem__(self, index: int, cell: Cell) -> None:
        name = list(self._cells)[self._position(index, "int")]
        StateEpoch.value += 1
        self._hold_cell(name, self._checked(cell))

    def __delitem__(self, index: Any) -> None:
        cells = list(self._cells.values())
        del cells[index if isinstance(index, slice) else self._position(index)]
        self._renumber(cells)


def _recompute_all(self: _Container, **settings: Any) -> None:
    """`Cell.recompute` of each Cell that is held: the container itself computes nothing."""
    for cell in self.cells():
        cell.recompute(**settings)


class SequentialCell(_Ordered):
    """Cells called one after the other.

    Args:
        args: the Cells, or one list of them, or one OrderedDict name → Cell.

    Inputs: what the first Cell takes. Outputs: what the last one gives; without Cells, the input.

    Raises:
        TypeError: for anything that is no Cell.
    """

    def __init__(self, *args: Any):
        super().__init__()
        if len(args) != 1 or isinstance(args[0], Cell):
            self._fill(args)
            return
        if isinstance(args[0], OrderedDict):
            for name, cell in args[0].items():
                self._hold_cell(name, self._checked(cell))
            return
        if not isinstance(args[0], list):
            raise ArgumentTypeError(
                f"For 'SequentialCell', the 'args[0]' must be Cell, list or orderedDict, but got {type(args[0]).__name__}"
            )
        self._fill(args[0])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._cells.items())[index]))
        return list(self._cells.values())[self._position(index, "int")]

    def __delitem__(self, index: Any) -> None:
        names = list(self._cells)
        numbered = names == [str(k) for k in range(len(names))]
        if numbered:
            super().__delitem__(index)
            return
        StateEpoch.value += 1
        for name in names[index] if isinstance(index, slice) else [names[self._position(index)]]:
            del self._cells[name]

    def append(self, cell: Cell) -> SequentialCell:
        """Adds a Cell at the end; returns this Cell.

        Raises:
            TypeError: it is no Cell.
        """
        StateEpoch.value += 1
        self._hold_cell(str(len(self)), self._checked(cell))
        return self

    def construct(self, input_data: Any) -> Any:
        """`input_data` passed through all Cells."""
        for cell in self._cells.values():
            input_data = cell(input_data)
        return input_data


class CellList(_Ordered):
    """A list of Cells, whose Parameters belong to this Cell. It is not called itself.

    Args:
        args: the Cells, or one list of them.
        auto_prefix: give their Parameters the number as a prefix.

    Raises:
        TypeError: for anything that is no Cell.
    """

    def __init__(self, *args: Any, auto_prefix: bool = True):
        super().__init__(auto_prefix)
        if len(args) == 1 and (isinstance(args[0], _Ordered) or not isinstance(args[0], Cell)):
            self.extend(args[0])
        else:
            self._fill(args)

    def __getitem__(self, index: Any) -> Any:
        cells = list(self._cells.values())
        return type(self)(cells[index]) if isinstance(index, slice) else cells[self._position(index)]

    def __iadd__(self, cells: Iterable[Cell]) -> CellList:
        self.extend(cells)
        return self

    def append(self, cell: Cell) -> None:
        """Adds a Cell at the end.

        Raises:
            TypeError: it is no Cell.
        """
        StateEpoch.value += 1
        self._hold_cell(str(len(self)), self._checked(cell))

    def insert(self, index: int, cell: Cell) -> None:
        """Puts a Cell before place `index`.

        Raises:
            TypeError: the index is no int, or the cell no Cell. IndexError: the index is out of range.
        """
        cells = list(self._cells.values())
        cells.insert(self._position(index, "int", 1), self._checked(cell))
        self._renumber(cells)

    def extend(self, cells: Iterable[Cell]) -> CellList:
        """Adds Cells at the end; returns this Cell.

        Raises:
            TypeError: no list, or of something else than Cells.
        """
        if not isinstance(cells, (list, tuple, _Ordered)):
            raise ArgumentTypeError(
                "For 'CellList', the new cells wanted to append should be instance of list, "
                f"but got {type(cells).__name__}."
            )
        checked = [self._checked(cell) for cell in cells]
        for cell in checked:
            self.append(cell)
        return self

    recompute = _recompute_all

    def construct(self, *inputs: Any) -> Any:
        raise NotImplementedError("CellList holds Cells; it does not compute. Call its elements.")


class CellDict(_Container):
    """A dict of Cells, whose Parameters belong to this Cell. It is not called itself.

    Args:
        args: nothing, or one mapping, CellDict or iterable of (name, Cell).
        auto_prefix: give their Parameters the name as a prefix.
    """

    def __init__(self, *args: Any, auto_prefix: bool = True):
        super().__init__(auto_prefix)
        if len(args) > 1:
            raise ArgumentTypeError(f"For 'CellDict', at most one argument is expected, but got {len(args)}.")
        if args:
            self.update(args[0])

    def __getitem__(self, key: str) -> Cell:
        if key not in self._cells:
            raise MissingKeyError(key)
        cell: Cell = self._cells[key]
        return cell

    def __setitem__(self, key: str, cell: Cell) -> None:
        if not isinstance(key, str):
            raise ArgumentTypeError(f"For 'CellDict', the type of key should be string but got {type(key).__name__}.")
        if not key:
            raise MissingKeyError('For \'CellDict\', key can not be empty string "", but got key ')
        if "." in key:
            raise MissingKeyError(f"For 'CellDict', key can not contain \".\", but got key {key}")
        if hasattr(self, key) and key not in self._cells:
            raise MissingKeyError(
                f"For 'CellDict', the key can not be same with the attributes of Cell, but got key {key}."
            )
        if not isinstance(cell, Cell):
            raise ArgumentTypeError(f"For 'CellDict', the type of cell should be Cell, but got {type(cell).__name__}.")
        StateEpoch.value += 1
        self._hold_cell(key, cell)

    def __delitem__(self, key: str) -> None:
        if key not in self._cells:
            raise MissingKeyError(key)
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
        """Removes and returns the Cell of a name.

        Raises:
            KeyError: there is none.
        """
        cell = self[key]
        del self[key]
        return cell

    def update(self, cells: Any) -> None:
        """Adds the Cells of a mapping, a CellDict, or an iterable of (name, Cell).

        Raises:
            TypeError: something else. ValueError: an element is no pair.
        """
        if not isinstance(cells, (Mapping, Iterable)):
            raise ArgumentTypeError(
                "CellDict.update() should be called with an iterable of key-value pairs, "
                f"but got {type(cells).__name__}"
            )
        for number, pair in enumerate(cells.items() if isinstance(cells, (Mapping, CellDict)) else cells):
            if not isinstance(pair, Iterable):
                raise ArgumentTypeError(
                    f"CellDict update sequence element #{number} should be Iterable; but got {type(pair).__name__}"
                )
            entry = tuple(pair)
            if len(entry) != 2:
                raise ArgumentValueError(
                    f"CellDict update sequence element #{number} has length {len(entry)}; 2 is required"
                )
            self[entry[0]] = entry[1]

    recompute = _recompute_all

    def construct(self, *inputs: Any) -> Any:
        raise NotImplementedError("CellDict holds Cells; it does not compute. Call its values.")
