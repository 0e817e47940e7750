"""Calls of one compiled function for any number of rows, without compiling it for each number.

Enters: a compiled function, and which of its arguments have any number of rows (their first dimension). Leaves: the same results. If the function
treats rows apart (passes/row_wise.py), it is compiled for blocks of a few sizes, each when it is first of use, and a call runs blocks that
cover its rows. Otherwise it is compiled for each shape, as any function is; `DynamicRows.reason` says why.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcell import buffer
from graphcell.frontend import trace_function
from graphcell.frontend.row_counts import ROWS, RowCounting
from graphcell.frontend.signature import key_of
from graphcell.frontend.tracing import Traced
from graphcell.jit import JitFunction
from graphcell.passes.row_wise import NotRowWise, row_axes
from graphcell.tensor import Tensor, state

SIZES = frozenset({1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256})
"""Rows of a block. A larger one would be no faster."""
_START = 3
"""What starting a block costs, in rows: its weights are read once more."""
_GOOD_ENOUGH = 1.15
"""Blocks that are compiled already are taken if they cost no more than so many times the best ones."""


Array = np.ndarray[Any, Any]
Blocks = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _Along:
    """A Tensor in a result: the dimension that counts rows; None if it does not depend on them."""

    axis: int | None


@dataclass(frozen=True)
class _Known:
    """What was found out about the function: `structure`, its result with an `_Along` for each Tensor, or the `reason` why there is none."""

    key: Any
    traced: Traced | None
    structure: Any = None
    reason: str = ""

    def holds(self, key: Any) -> bool:
        return self.key == key and (self.traced is None or not self.traced.guards.failure(self.traced.captured))


class DynamicRows:
    """A compiled function whose arguments number `arguments`, Tensors, have any number of rows, all the same.

    Attributes:
        reason: why the last call was compiled for its very shape; "" if it was not.
    """

    def __init__(self, function: JitFunction, arguments: frozenset[int]):
        self.function, self.arguments = function, arguments
        self._known: _Known | None = None
        self._compiled: frozenset[int] = frozenset()
        self.reason = ""

    def __call__(self, *args: Any) -> Any:
        rows = self._rows(args)
        if not rows or state.trace is not None or state.tapes:
            return self.function(*args)
        known = self._find_out(args)
        self.reason = known.reason
        if known.reason:
            self.function.remark = f"compiled for each number of rows: {known.reason}"
            return self.function(*args)
        self.function.remark = "compiled for blocks of rows"
        blocks = plan(rows, self._compiled)
        self._compiled |= {size for _, size in blocks}
        if blocks == ((0, rows),):
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

    def _find_out(self, args: Sequence[Any]) -> _Known:
        """Whether the function treats rows apart; looked at anew when something that it reads has changed."""
        key = [(x.dtype, x.shape[1:]) if k in self.arguments else key_of(x, [], []) for k, x in enumerate(args)]
        if self._known is None or not self._known.holds(key):
            self._compiled = frozenset()
            self._known = self._analysed(key, args)
        return self._known

    def _with_rows(self, args: Sequence[Any], rows: int) -> list[Any]:
        """The arguments with so many rows, of no particular values and in no memory."""
        return [
            Tensor.of_array(np.broadcast_to(np.zeros((), x.dtype.np_type), (rows, *x.shape[1:]))) if k in self.arguments else x
            for k, x in enumerate(args)
        ]

    def _analysed(self, key: Any, args: Sequence[Any]) -> _Known:
        function = self.function.__traced__
        try:
            small, large = (trace_function(function, self._with_rows(args, n), make=functools.partial(RowCounting, n)) for n in ROWS)
            axes = [0 if k in self.arguments else None for k, x in enumerate(args) if type(x) is Tensor]
            if small.leaves != len(axes):
                raise NotRowWise("Tensors are inside of other arguments")
            if small.updates or small.effects or any(getattr(leaf, "is_number", False) for leaf in small.result.leaves):
                raise NotRowWise("the function returns numbers, or changes something outside")
            found = row_axes(small.graph, large.graph, [*axes, *[None] * len(small.captured)])
        except NotRowWise as e:
            return _Known(key, None, reason=str(e))
        except Exception as e:  # whatever the function does with unusual extents; if the error is its own, it comes again
            return _Known(key, None, reason=f"{type(e).__name__} for {ROWS[0]} rows: {e}")
        return _Known(key, small, structure=small.result.build([_Along(a) for a in found]))  # type: ignore[misc]


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
def plan(rows: int, compiled: frozenset[int] = frozenset()) -> Blocks:
    """(first row, rows) of blocks that cover so many rows. The last may overlap the one before; a single one may be longer than the rows.

    Args:
        compiled: the sizes that are there already.
    """
    cost, sizes = _cheapest(rows, SIZES)
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
