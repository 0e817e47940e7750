"""Calls of one compiled function for any number of rows, without compiling it for each number.

Enters: a compiled function, and which of its arguments have any number of rows (their first dimension). Leaves: the same results. The function
is interpreted for the rows at hand and for blocks of a few sizes; where all graphs are the same but for extents, and treat rows apart
(passes/row_wise.py), it is compiled for the blocks alone, each when it is first of use, and a call runs blocks that cover its rows. Otherwise
it is compiled for each shape, as any function is; `DynamicRows.reason` says why.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcell import buffer
from graphcell.frontend import trace_function
from graphcell.frontend.guards import Guards
from graphcell.frontend.signature import key_of
from graphcell.frontend.tracing import Output, Structure, Traced
from graphcell.frontend.trees import Tree
from graphcell.jit import JitFunction
from graphcell.passes.row_wise import NotRowWise, row_axes
from graphcell.tensor import Tensor, state

SIZES = frozenset({1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96, 128, 192, 256})
"""Rows of a block. A larger one would be no faster."""
REFERENCE = 4099
"""The number of rows of the graph with which all others are compared. A prime, so that what can be divided by it depends on it."""
_START = 3
"""What starting a block costs, in rows: its weights are read once more."""
_GOOD_ENOUGH = 1.15
"""Blocks that are compiled already are taken if they cost no more than so many times the best ones."""

_PATIENCE = 8
"""So often in a row it is looked at anew, for nothing, whether rows can be treated apart since something changed: a counter may at each call."""

Array = np.ndarray[Any, Any]
Blocks = tuple[tuple[int, int], ...]
Trace = Callable[[int], Traced]


@dataclass(frozen=True)
class _Along:
    """A Tensor in a result: the dimension that counts rows; None if it does not depend on them."""

    axis: int | None


@dataclass(frozen=True)
class _Held:
    """What a trace read from outside."""

    guards: Guards
    captured: list[Tensor]

    def holds(self) -> bool:
        return not self.guards.failure(self.captured)


@dataclass(frozen=True)
class _Plan:
    """How to do so many rows: in `blocks`, or, for the `reason` given, all at once. True as long as what was `read` stays the same."""

    blocks: Blocks
    reason: str
    read: tuple[_Held, ...]


class DynamicRows:
    """A compiled function whose arguments number `arguments`, Tensors, have any number of rows, all the same.

    Attributes:
        reason: why the last call was compiled for its very shape; "" if it was not.
    """

    def __init__(self, function: JitFunction, arguments: frozenset[int]):
        self.function, self.arguments = function, arguments
        self._known: _Known | None = None
        self._in_vain = 0
        self.reason = ""

    def __call__(self, *args: Any) -> Any:
        rows = self._rows(args)
        if not rows or state.trace is not None or state.tapes:
            return self.function(*args)
        known, found = self._find_out(args, rows)
        self.reason, blocks = found.reason, found.blocks
        self.function.remark = f"compiled for each number of rows: {found.reason}" if found.reason else "compiled for blocks of rows"
        if found.reason or blocks == ((0, rows),):
            return self.function(*args)
        arrays = {k: np.ascontiguousarray(args[k].array()) for k in self.arguments}
        parts = [
            self.function(*(_block(arrays[k], start, size) if k in arrays else x for k, x in enumerate(args))) for start, size in blocks
        ]
        return _together(known.structure, parts, blocks, rows)

    def _rows(self, args: Sequence[Any]) -> int | None:
        """The number of rows, if the arguments agree on it."""
        if max(self.arguments) >= len(args):
            return None
        tensors = [args[k] for k in self.arguments]
        extents = {t.shape[0] if isinstance(t, Tensor) and t.ndim else None for t in tensors}
        return extents.pop() if len(extents) == 1 else None

    def _find_out(self, args: Sequence[Any], rows: int) -> tuple[_Known, _Plan]:
        """Whether the function treats rows apart; looked at anew when something that it reads has changed."""
        objects: list[Any] = []
        key = [(x.dtype, x.shape[1:]) if k in self.arguments else key_of(x, [], objects) for k, x in enumerate(args)]
        known, is_again = self._known, False
        if known is not None and known.key == key:
            found, is_again = known.plans.get(rows), rows in known.plans
            if found is not None and ((found.reason and self._in_vain > _PATIENCE) or all(held.holds() for held in found.read)):
                return known, found
        if known is None or known.key != key or not known.holds() or is_again:
            inputs = [0 if k in self.arguments else None for k, x in enumerate(args) if type(x) is Tensor]
            known = self._known = _Known(key, objects, inputs)
        drawn = random.getstate(), np.random.get_state()
        found = known.planned(rows, lambda n: trace_function(self.function.__traced__, self._with_rows(args, n)))
        random.setstate(drawn[0])  # numbers that Python's libraries gave while code was only looked at are not used up
        np.random.set_state(drawn[1])
        self._in_vain = self._in_vain + is_again if found.reason else 0
        return known, found

    def _with_rows(self, args: Sequence[Any], rows: int) -> list[Any]:
        """The arguments with so many rows, of no particular values and in no memory."""
        return [
            Tensor.of_array(np.broadcast_to(np.zeros((), x.dtype.np_type), (rows, *x.shape[1:]))) if k in self.arguments else x
            for k, x in enumerate(args)
        ]


class _Known:
    """What was found out about a function for arguments of one kind.

    Attributes:
        key: of the arguments; `objects` are those whose identity is in it.
        plans: for each number of rows that there was.
        structure: the function's result with an `_Along` for each Tensor.
    """

    def __init__(self, key: Any, objects: list[Any], inputs: list[int | None]):
        self.key, self.objects, self.inputs = key, objects, inputs
        self.plans: dict[int, _Plan] = {}
        self.structure: Any = None
        self._reference: Traced | None = None
        self._read: dict[int, _Held] = {}
        self._usable, self._compiled = SIZES, frozenset[int]()

    def holds(self) -> bool:
        """Whether all that was read is still the same."""
        return all(held.holds() for held in self._read.values())

    def planned(self, rows: int, trace: Trace) -> _Plan:
        """How to do so many rows. `trace(n)` is the function's trace for n rows."""
        try:
            self._compare(rows, trace)
            blocks = self._blocks(rows, trace)
            self._compiled |= {size for _, size in blocks}
            reason = ""
        except NotRowWise as e:
            blocks, reason = (), str(e)
        except Exception as e:  # whatever the function does with unusual extents; if the error is its own, it comes again
            blocks, reason = (), f"{type(e).__name__}: {e}"
        sizes = {REFERENCE, rows, *(size for _, size in blocks)}
        found = self.plans[rows] = _Plan(blocks, reason, tuple(self._read[n] for n in sizes if n in self._read))
        return found

    def _blocks(self, rows: int, trace: Trace) -> Blocks:
        """Blocks of sizes for which the function does the same as for all rows."""
        while self._usable:
            blocks = plan(rows, self._compiled, self._usable)
            unusable = {size for _, size in blocks if not self._is_usable(size, trace)}
            if not unusable:
                return blocks
            self._usable -= unusable
        raise NotRowWise("what is computed depends on the number of rows")

    def _is_usable(self, size: int, trace: Trace) -> bool:
        try:
            self._compare(size, trace)
        except Exception:  # its own error or NotRowWise: a block of another size may do
            return False
        return True

    def _compare(self, rows: int, trace: Trace) -> None:
        """Looks whether the function does the same for so many rows as for REFERENCE rows, row by row.

        Raises:
            NotRowWise: it does not.
        """
        if self._reference is None:
            self._reference = trace(REFERENCE)
            self._read[REFERENCE] = _Held(self._reference.guards, self._reference.captured)
        if rows in self._read:
            return
        reference, traced = self._reference, trace(rows)
        _check_alone(traced, len(self.inputs))
        if list(map(id, traced.captured)) != list(map(id, reference.captured)) or _fixed(traced.result) != _fixed(reference.result):
            raise NotRowWise("what is read or returned depends on the number of rows")
        axes = row_axes(reference.graph, traced.graph, [*self.inputs, *[None] * len(reference.captured)], (REFERENCE, rows))
        if self.structure is None:
            self.structure = reference.result.build([_Along(a) for a in axes])  # type: ignore[misc]
        self._read[rows] = _Held(traced.guards, traced.captured)


def _check_alone(traced: Traced, inputs: int) -> None:
    """Refuses what results of blocks cannot be put together for.

    Raises:
        NotRowWise: always with the reason.
    """
    if traced.leaves != inputs:
        raise NotRowWise("Tensors are inside of other arguments")
    if traced.updates or traced.effects or any(getattr(leaf, "is_number", False) for leaf in traced.result.leaves):
        raise NotRowWise("the function returns numbers, or changes something outside")


def _fixed(result: Structure) -> list[Hashable]:
    """All of a result but the Tensors: equal for results that differ in these alone."""
    return [*_parts(result.tree), *(leaf if isinstance(leaf, Output) else key_of(leaf, [], []) for leaf in result.leaves)]


def _parts(tree: Tree) -> Iterator[Hashable]:
    yield tree.kind, len(tree.children), key_of(tree.keys, [], []), key_of(tree.constant, [], [])
    for child in tree.children:
        yield from _parts(child)


def _block(array: Array, start: int, size: int) -> Tensor:
    """So many rows; the last row is repeated where there are no more, since it is as good as any."""
    rows = array[start : start + size]
    return Tensor.of_array(rows if len(rows) == size else np.concatenate([rows, np.repeat(rows[-1:], size - len(rows), 0)]))


def _together(structure: Any, parts: Sequence[Any], blocks: Blocks, rows: int) -> Any:
    """The result for all rows, of those for the blocks."""
    if isinstance(structure, _Along):
        return parts[0] if structure.axis is None else _joined(parts, structure.axis, blocks, rows)
    if isinstance(structure, dict):
        return type(structure)((k, _together(s, [p[k] for p in parts], blocks, rows)) for k, s in structure.items())
    if isinstance(structure, (tuple, list)):
        items = [_together(s, [p[k] for p in parts], blocks, rows) for k, s in enumerate(structure)]
        return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)
    return parts[0]


def _joined(parts: Sequence[Tensor], axis: int, blocks: Blocks, rows: int) -> Tensor:
    """Results of blocks put one after another along `axis`."""
    shape = parts[0].shape
    each = shape[axis] // blocks[0][1]  # elements along `axis` for one row
    whole = buffer.empty((*shape[:axis], rows * each, *shape[axis + 1 :]), parts[0].dtype.np_type)
    outer = (slice(None),) * axis
    for (start, size), part in zip(blocks, parts, strict=True):
        kept = min(size, rows - start) * each
        whole[(*outer, slice(start * each, start * each + kept))] = part.array()[(*outer, slice(kept))]
    return Tensor.of_array(whole)


# -- blocks ------------------------------------------------------------------------------------------------------------------------------
@functools.lru_cache(maxsize=4096)
def plan(rows: int, compiled: frozenset[int] = frozenset(), usable: frozenset[int] = SIZES) -> Blocks:
    """(first row, rows) of blocks that cover so many rows. The last may overlap the one before; a single one may be longer than the rows.

    Args:
        compiled: the sizes that are there already.
        usable: the sizes that may be taken.
    """
    cost, sizes = _cheapest(rows, usable)
    if compiled:
        known_cost, known = _cheapest(rows, compiled)
        sizes = known if known_cost <= _GOOD_ENOUGH * cost else sizes
    blocks, start = [], 0
    for size in sizes:
        start = max(0, min(start, rows - size))
        blocks.append((start, size))
        start += size
    return tuple(blocks)


def _cheapest(rows: int, sizes: frozenset[int]) -> tuple[float, tuple[int, ...]]:
    """The cost, in rows, and the sizes of the blocks that cover so many rows at the least cost."""
    longer: list[tuple[float, tuple[int, ...]]] = [(size + _START, (size,)) for size in sizes if size >= rows]
    shorter = sorted((size for size in sizes if size < rows), reverse=True)
    if not shorter:
        return min(longer)
    whole, rest = divmod(rows, shorter[0])
    table: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for left in range(1, rest + 1):  # what is left may also be covered by one block that overlaps the one before
        rests = ((size, table[max(0, left - size)]) for size in shorter)
        table.append(min((size + _START + after, (size, *blocks)) for size, (after, blocks) in rests))
    cost, blocks = table[rest]
    return min([*longer, (cost + whole * (shorter[0] + _START), (shorter[0],) * whole + blocks)])
