"""Whether a graph treats the rows of its inputs one by one, so that it may run on some of them at a time.

Enters: the graphs of one function for two numbers of rows. Leaves: for each output the dimension that counts rows, or None where it does
not depend on them. Refuses (`NotRowWise`, with the reason): graphs that mix rows, that read how many there are, or hold an op
of which nothing is known here.

Each dimension of a value either counts rows (or something × rows × something), or all elements along it are equal, or neither. One that
differs between the two graphs must be of the first two kinds and as many times longer as there are more rows, and nothing may be summed or cut along it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.op import Op
from graphcell.ir.types import Shape
from graphcell.ops.attention import Attention, AttentionGrad
from graphcell.ops.base import Elementwise, Reduction
from graphcell.ops.contraction import MatMul
from graphcell.ops.control import For
from graphcell.ops.convolution import Conv, ConvInputGrad
from graphcell.ops.creation import Constant, Full, Iota
from graphcell.ops.fallback import ElementwiseFallback
from graphcell.ops.host import CheckIndex
from graphcell.ops.indexing import Gather, GatherElements, Scatter, ScatterElements
from graphcell.ops.linear_algebra import Cholesky, Determinant, Inverse, Qr, SignLogDeterminant, Solve, SolveTriangular, Svd
from graphcell.ops.moments import Moments
from graphcell.ops.movement import BroadcastTo, Concat, Fence, Pad, Reshape, Slice, Transpose, UpdateSlice
from graphcell.ops.pooling import Fold, Windows
from graphcell.ops.random import RandomNormal, RandomUniform
from graphcell.ops.reduction import ArgMax, ArgMin
from graphcell.ops.scan import Cumulative
from graphcell.ops.sorting import Sort, TopK
from graphcell.passes.inline import inline
from graphcell.records import dataclass

_ATTEMPTS = 4


class NotRowWise(Exception):
    """The graph has to be compiled for each number of rows; the message says why."""


@dataclass(frozen=True)
class RowAxes:
    """Of a value: the dimension that counts rows, those along which all elements are equal, and how often all rows pass along `axis`."""

    axis: int | None
    uniform: frozenset[int] = frozenset()
    times: int = 1

    def moved(self, step: int) -> RowAxes:
        """With all dimensions so many places on."""
        return RowAxes(None if self.axis is None else self.axis + step, frozenset(k + step for k in self.uniform), self.times)

    def varying(self, axes: Iterable[int]) -> RowAxes:
        """Elements differ along `axes` too."""
        return replace(self, uniform=self.uniform - set(axes))

    def repeated(self, axes: Iterable[int]) -> RowAxes:
        """Elements are equal along `axes` too."""
        return replace(self, uniform=self.uniform | set(axes))


def row_axes(graph: Graph, other: Graph, inputs: Sequence[int | None], counts: tuple[int, int]) -> list[int | None]:
    """The dimension of each output that counts rows.

    Args:
        graph, other: the function's graphs for two numbers of rows. The first number is a prime that no other extent is a multiple of.
        inputs: the dimension of each input that counts rows.
        counts: the two numbers.

    Raises:
        NotRowWise: rows may not be treated apart.
    """
    graph, other = inline(graph), inline(other)
    analysis = Analysis([RowAxes(a) for a in inputs], graph, other, counts)
    return [analysis.axis_of_output(v) for v in graph.outputs]


def work_of(graph: Graph, rows: int) -> tuple[float, float]:
    """What a graph for so many rows, a prime that no other extent is a multiple of, has to do.

    Returns:
        How many numbers are computed, or multiplied in products, for each row, and how many weights products read for all rows.
    """
    done, weights = 0.0, 0.0
    for node in inline(graph).nodes:
        for region in node.op.regions:
            steps = node.op.trip_count if isinstance(node.op, For) else 1
            inner = work_of(region, rows)
            done, weights = done + steps * inner[0], weights + steps * inner[1]
        done += sum(math.prod(v.type.shape) for v in node.results if math.prod(v.type.shape) % rows == 0) / rows
        if isinstance(node.op, (MatMul, Conv, ConvInputGrad)):
            x, y = (v.type.shape for v in node.operands[:2])
            each = node.results[0].type.shape
            if isinstance(node.op, MatMul):
                products = math.prod(each) * x[-2 if node.op.transpose_x else -1]
            else:
                products = math.prod(each) * math.prod(y[1:]) if isinstance(node.op, Conv) else math.prod(y) * math.prod(x[1:])
            done += products / rows
            weights += sum(math.prod(shape) for shape in (x, y) if math.prod(shape) % rows)
    return done, weights


class Analysis:
    """Walks both graphs in step.

    Attributes:
        rows: what is known of each value of the first graph; `twin`: the same value in the other.
        refused: ops that may not be done for some rows at a time although there is a rule for their kind.
    """

    refused: ClassVar[tuple[type[Op], ...]] = (RandomNormal, RandomUniform)

    def __init__(self, inputs: Sequence[RowAxes], graph: Graph, other: Graph, counts: tuple[int, int]):
        if len(graph.nodes) != len(other.nodes) or len(graph.inputs) != len(other.inputs):
            raise NotRowWise("what is computed depends on the number of rows")
        self.counts = counts
        self.rows: dict[Value, RowAxes] = {}
        self.twin: dict[Value, Value] = {}
        self._scaled: dict[Value, list[int]] = {}
        for v, w, rows in zip(graph.inputs, other.inputs, inputs, strict=True):
            self._set(v, w, rows, "an input")
        for node, twin in zip(graph.nodes, other.nodes, strict=True):
            self._visit(node, twin)
        if [self.twin[v] for v in graph.outputs] != list(other.outputs):
            raise NotRowWise("what is returned depends on the number of rows")

    def axis_of_output(self, v: Value) -> int | None:
        """The dimension that counts rows; one of equal elements whose extent is the number of rows counts too."""
        scaled = self.scaled(v)
        if len(scaled) > 1:
            raise NotRowWise("an output has several dimensions that depend on the number of rows")
        if self.rows[v].times > 1:
            raise NotRowWise("the rows of an output do not lie together")
        return scaled[0] if scaled else None

    def scaled(self, v: Value) -> list[int]:
        """The dimensions whose extents depend on the number of rows."""
        return self._scaled[v]

    def _set(self, v: Value, w: Value, rows: RowAxes, what: str) -> None:
        if v.type.rank != w.type.rank or v.type.dtype is not w.type.dtype:
            raise NotRowWise(f"{what} is of another type for another number of rows")
        self.twin[v], self.rows[v] = w, rows
        self._scaled[v] = [k for k, (a, b) in enumerate(zip(v.type.shape, w.type.shape, strict=True)) if a != b]
        for k in self.scaled(v):
            is_multiple = v.type.shape[k] * self.counts[1] == w.type.shape[k] * self.counts[0]
            if not is_multiple or (k != rows.axis and k not in rows.uniform):
                raise NotRowWise(f"{what} depends on the number of rows")
        if rows.axis is not None and rows.axis not in self.scaled(v):
            raise NotRowWise(f"{what} loses its rows")

    def _visit(self, node: Node, other: Node) -> None:
        if type(node.op) is not type(other.op) or [self.twin[v] for v in node.operands] != list(other.operands):
            raise NotRowWise("what is computed depends on the number of rows")
        results = self._results(node, other, [self.rows[v] for v in node.operands])
        for v, w, rows in zip(node.results, other.results, results, strict=True):
            self._set(v, w, rows, f"the result of {node.op.name}")

    def _results(self, node: Node, other: Node, operands: list[RowAxes]) -> list[RowAxes]:
        op = node.op
        _compare_fields(op, other.op)
        if isinstance(op, For):
            return self._for(node, other, operands)
        rule = next((rule for kind, rule in _RULES.items() if isinstance(op, kind)), None)
        if rule is None or isinstance(op, self.refused):
            raise NotRowWise(f"{op.name} may not be done for some rows at a time")
        shapes = [v.type.shape for v in node.operands]
        found = rule(_Site(op, self.counts[0], operands, shapes, [self.scaled(v) for v in node.operands], [v.type.shape for v in node.results]))
        return [found] * len(node.results)

    def _for(self, node: Node, other: Node, operands: list[RowAxes]) -> list[RowAxes]:
        """Rows of what is carried stay the same from step to step, or the loop mixes them."""
        op, twin = node.op, other.op
        assert isinstance(op, For) and isinstance(twin, For)
        first, last = op.carried, op.carried + op.scanned
        scanned = [_slice_of(rows, "a loop steps over rows") for rows in operands[first:last]]
        carried = list(operands[:first])
        for _ in range(_ATTEMPTS):
            body = Analysis([RowAxes(None), *carried, *scanned, *operands[last:]], op.body, twin.body, self.counts)
            ends = [body.rows[v] for v in op.body.outputs]
            met = [_met(a, b) for a, b in zip(carried, ends[:first], strict=True)]
            if met == carried:
                return [*carried, *(rows.moved(1) for rows in ends[first:])]
            carried = met
        raise NotRowWise("a loop mixes rows")


def _slice_of(rows: RowAxes, reason: str) -> RowAxes:
    if rows.axis == 0:
        raise NotRowWise(reason)
    return rows.varying({0}).moved(-1)


def _met(a: RowAxes, b: RowAxes) -> RowAxes:
    """What holds of a value that is one of two. One of equal elements along a dimension may become one that counts rows there."""
    uniform = a.uniform & b.uniform
    if (a.axis, a.times) == (b.axis, b.times) or (b.axis is None and a.axis in b.uniform):
        return replace(a, uniform=uniform)
    if a.axis is None and b.axis in a.uniform:
        return replace(b, uniform=uniform)
    raise NotRowWise("a loop mixes rows")


def _compare_fields(a: Op, b: Op) -> None:
    """The settings of an op may differ in extents alone."""
    for entry in dataclasses.fields(a):  # type: ignore[arg-type]
        x, y = getattr(a, entry.name), getattr(b, entry.name)
        if isinstance(x, Graph) or x == y:
            continue
        if not (entry.name in ("shape", "size") and isinstance(x, tuple) and len(x) == len(y)):
            raise NotRowWise(f"{a.name} depends on the number of rows")


# -- rules -------------------------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Site:
    """An op and what is known of its operands. `count`: of rows."""

    op: Any
    count: int
    operands: list[RowAxes]
    shapes: list[Shape]
    scaled: list[list[int]]
    results: list[Shape]

    def keep(self, axes: Sequence[int], k: int = 0) -> None:
        """Demands that no dimension in `axes` of operand k depends on the number of rows."""
        if any(a in self.scaled[k] for a in axes):
            raise NotRowWise(f"{self.op.name} works across rows")


def _merged(operands: Sequence[RowAxes], name: str) -> RowAxes:
    """Of elements computed from elements at the same place."""
    places = {(rows.axis, rows.times) for rows in operands if rows.axis is not None}
    if len(places) > 1:
        raise NotRowWise(f"{name} brings different rows together")
    axis, times = places.pop() if places else (None, 1)
    if axis is not None and any(rows.axis is None and axis not in rows.uniform for rows in operands):
        raise NotRowWise(f"{name} treats rows differently by their number")
    uniform = frozenset.intersection(*(rows.uniform | ({axis} if rows.axis is None and axis is not None else set()) for rows in operands))
    return RowAxes(axis, uniform - {axis}, times)


def _elementwise(site: _Site) -> RowAxes:
    return _merged(site.operands, site.op.name)


def _created(site: _Site) -> RowAxes:
    if isinstance(site.op, Constant):
        return RowAxes(None)
    varying = {site.op.axis} if isinstance(site.op, Iota) else set()
    return RowAxes(None, frozenset(range(len(site.results[0]))) - varying)


def _mapped(rows: RowAxes, places: dict[int, int]) -> RowAxes:
    """With each dimension at its new place; those without one are gone."""
    return RowAxes(None if rows.axis is None else places[rows.axis], frozenset(places[k] for k in rows.uniform if k in places), rows.times)


def _reshape(site: _Site) -> RowAxes:
    rows, before, after = site.operands[0], site.shapes[0], site.results[0]
    if rows.axis is None and rows.uniform == frozenset(range(len(before))):
        return RowAxes(None, frozenset(range(len(after))))
    starts = [math.prod(after[:j]) for j in range(len(after))]
    kept = {(math.prod(before[:k]), before[k]) for k in rows.uniform if before[k] != 1}
    uniform = frozenset(j for j, place in enumerate(zip(starts, after, strict=True)) if place in kept)
    if rows.axis is None:
        return RowAxes(None, uniform)
    passed = math.prod(before[: rows.axis]) * rows.times  # how often all rows pass in the whole value
    for j, start in enumerate(starts):
        if passed % site.count and passed % start == 0 and after[j] % (passed // start * site.count) == 0:
            return RowAxes(j, uniform, passed // start)
    raise NotRowWise("reshape takes rows apart")


def _transpose(site: _Site) -> RowAxes:
    return _mapped(site.operands[0], {p: k for k, p in enumerate(site.op.perm)})


def _broadcast(site: _Site) -> RowAxes:
    before, after = site.shapes[0], site.results[0]
    added = len(after) - len(before)
    repeated = {k for k, d in enumerate(after) if k < added or (before[k - added] == 1 and d != 1)}
    return site.operands[0].moved(added).repeated(repeated)


def _slice(site: _Site) -> RowAxes:
    op, shape = site.op, site.shapes[0]
    site.keep([k for k, d in enumerate(shape) if (op.start[k], op.size[k], op.step[k]) != (0, d, 1)])
    return site.operands[0]


def _pad(site: _Site) -> RowAxes:
    op = site.op
    padded = [k for k in range(len(op.low)) if op.low[k] or op.high[k] or op.interior[k]]
    site.keep(padded)
    return site.operands[0].varying(padded)


def _update_slice(site: _Site) -> RowAxes:
    """Where a slice is replaced, elements differ along what it cuts."""
    op, (whole, part) = site.op, site.shapes
    cut = [k for k in range(len(whole)) if (op.start[k], part[k], op.step[k]) != (0, whole[k], 1)]
    site.keep(cut)
    site.keep(cut, 1)
    return _merged(site.operands, "update_slice").varying(cut)


def _concat(site: _Site) -> RowAxes:
    for k in range(len(site.operands)):
        site.keep([site.op.axis], k)
    return _merged(site.operands, "concat").varying({site.op.axis})


def _windows(site: _Site) -> RowAxes:
    """Windows, and their sums, where the dimensions within a window, the last ones, are gone."""
    site.keep(site.op.axes)
    rows, rank = site.operands[0].varying(site.op.axes), len(site.results[0])
    if rows.axis is not None and rows.axis >= rank:
        raise NotRowWise(f"{site.op.name} works across rows")
    return replace(rows, uniform=rows.uniform & set(range(rank)))


def _reduce(site: _Site) -> RowAxes:
    op, rank = site.op, len(site.shapes[0])
    axes = op.axis if isinstance(op.axis, tuple) else (op.axis,)
    site.keep(axes)
    if len(site.results[0]) == rank:
        return site.operands[0]
    left = [k for k in range(rank) if k not in axes]
    return _mapped(site.operands[0], {k: j for j, k in enumerate(left)})


def _along(site: _Site) -> RowAxes:
    """Ops along one dimension that keep all others."""
    site.keep([site.op.axis])
    return site.operands[0].varying({site.op.axis})


def _matmul(site: _Site) -> RowAxes:
    op, rank = site.op, len(site.shapes[0])
    x, y = site.operands
    m, k = (rank - 1, rank - 2) if op.transpose_x else (rank - 2, rank - 1)
    k2, n = (rank - 1, rank - 2) if op.transpose_y else (rank - 2, rank - 1)
    site.keep([k], 0)
    site.keep([k2], 1)
    left = _only(x, {**{d: d for d in range(rank - 2)}, m: rank - 2})
    right = _only(y, {**{d: d for d in range(rank - 2)}, n: rank - 1})
    return _merged([left.repeated({rank - 1}), right.repeated({rank - 2})], "matmul")  # x does not vary along n, nor y along m


def _of_matrices(site: _Site) -> RowAxes:
    """Ops on stacks of matrices, each on its own."""
    rank = len(site.shapes[0])
    for k in range(len(site.operands)):
        site.keep([rank - 2, rank - 1], k)
    return _merged(site.operands, str(site.op.name)).varying([rank - 2, rank - 1])


def _only(rows: RowAxes, places: dict[int, int]) -> RowAxes:
    if rows.axis is not None and rows.axis not in places:
        raise NotRowWise("matmul sums over rows")
    return _mapped(rows, places)


def _attention(site: _Site) -> RowAxes:
    """Each pair of a sequence of queries and one of keys on its own; what has no rows, a mask, is the same for all pairs."""
    whole = len(site.shapes[0]) - (3 if any(site.op.sequence_first) else 2)
    rows = [rows for k, rows in enumerate(site.operands) if site.scaled[k]]
    found = _merged([replace(r, uniform=r.uniform & set(range(whole))) for r in rows], site.op.name) if rows else RowAxes(None)
    if any(a >= whole for axes in site.scaled for a in axes):
        raise NotRowWise(f"{site.op.name} works across rows")
    return replace(found, uniform=frozenset())


def _conv(site: _Site) -> RowAxes:
    images = 0 if isinstance(site.op, Conv) else 1
    rows, weights = site.operands[images], site.operands[1 - images]
    if weights.axis is not None or rows.axis not in (0, None):
        raise NotRowWise(f"{site.op.name} works across rows")
    for k in (0, 1):
        site.keep([a for a in range(len(site.shapes[k])) if (k, a) != (images, 0)], k)
    return replace(rows, uniform=rows.uniform & {0})


def _gather(site: _Site) -> RowAxes:
    first, rank = site.op.axes[0], len(site.shapes[1])
    site.keep(site.op.axes)
    taken = frozenset(range(first, first + rank))
    others = frozenset(range(len(site.results[0]))) - taken
    source = _mapped(site.operands[0], _kept_places(site))
    return _merged([source.repeated(taken), *(rows.moved(first).repeated(others) for rows in site.operands[1:])], "gather")


def _kept_places(site: _Site) -> dict[int, int]:
    """Where dimensions that are not indexed are after a gather."""
    axes, rank = site.op.axes, len(site.shapes[1])
    rest = [k for k in range(len(site.shapes[0])) if k > axes[0] and k not in axes]
    return {**{k: k for k in range(axes[0])}, **{k: axes[0] + rank + j for j, k in enumerate(rest)}}


def _scatter(site: _Site) -> RowAxes:
    """Into the same places of each row."""
    site.keep(site.op.axes)
    places = {after: before for before, after in _kept_places(site).items()}
    updates = site.operands[-1]
    if any(site.scaled[1:-1]) or (updates.axis is not None and updates.axis not in places):
        raise NotRowWise("scatter works across rows")
    return _merged([site.operands[0], _mapped(updates, places)], "scatter").varying(site.op.axes)


def _elements(site: _Site) -> RowAxes:
    """Elements along one dimension, taken or written; all rows of them."""
    for k in range(len(site.operands)):
        site.keep([site.op.axis], k)
    rows = _merged(site.operands, site.op.name)
    if rows.axis is not None and site.shapes[0][rows.axis] != site.shapes[1][rows.axis]:
        raise NotRowWise(f"{site.op.name} takes some rows only")
    return rows.varying({site.op.axis})


def _nothing(site: _Site) -> RowAxes:
    return RowAxes(None)


_RULES: dict[type[Op], Callable[[_Site], RowAxes]] = {
    Elementwise: _elementwise, ElementwiseFallback: _elementwise, Fence: _elementwise, Full: _created, Constant: _created, Iota: _created, Reshape: _reshape,
    Transpose: _transpose, BroadcastTo: _broadcast, Slice: _slice, Pad: _pad, Concat: _concat, Windows: _windows, Fold: _windows, Reduction: _reduce,
    ArgMax: _reduce, ArgMin: _reduce, Moments: _reduce, Cumulative: _along, Sort: _along, TopK: _along, MatMul: _matmul, Conv: _conv, ConvInputGrad: _conv,
    UpdateSlice: _update_slice, Inverse: _of_matrices, Cholesky: _of_matrices, Determinant: _of_matrices, SignLogDeterminant: _of_matrices,
    Attention: _attention, AttentionGrad: _attention, Solve: _of_matrices, SolveTriangular: _of_matrices, Qr: _of_matrices, Svd: _of_matrices, Gather: _gather,
    GatherElements: _elements, Scatter: _scatter, ScatterElements: _elements, CheckIndex: _nothing,
}  # fmt: skip
