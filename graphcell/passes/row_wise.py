"""Whether a graph treats the rows of its inputs one by one, so that it may run on some of them at a time.

Enters: the graphs of one function for two numbers of rows. Leaves: for each output the dimension that counts rows, or None where it does
not depend on them. Refuses (`NotRowWise`, with the reason): graphs that mix rows, that read how many there are, or hold an op
of which nothing is known here.

Each dimension of a value either counts rows (or rows × something, the row varying slowest), or all elements along it are equal, or neither.
A dimension that differs between the two graphs must be one of the first two kinds, and nothing may be summed or cut along it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.op import Op
from graphcell.ir.types import Shape
from graphcell.ops.base import Elementwise, Reduction
from graphcell.ops.contraction import MatMul
from graphcell.ops.control import For
from graphcell.ops.convolution import Conv, ConvInputGrad
from graphcell.ops.creation import Constant, Full, Iota
from graphcell.ops.fallback import ElementwiseFallback
from graphcell.ops.host import CheckIndex
from graphcell.ops.indexing import Gather, GatherElements
from graphcell.ops.moments import Moments
from graphcell.ops.movement import BroadcastTo, Concat, Fence, Pad, Reshape, Slice, Transpose
from graphcell.ops.pooling import Fold, Windows
from graphcell.ops.random import RandomNormal, RandomUniform
from graphcell.ops.reduction import ArgMax, ArgMin
from graphcell.ops.scan import Cumulative
from graphcell.ops.sorting import Sort, TopK
from graphcell.passes.inline import inline

_ATTEMPTS = 4


class NotRowWise(Exception):
    """The graph has to be compiled for each number of rows; the message says why."""


@dataclass(frozen=True)
class _Rows:
    """Of a value: the dimension that counts rows, and those along which all elements are equal."""

    axis: int | None
    uniform: frozenset[int] = frozenset()


def row_axes(small: Graph, large: Graph, inputs: Sequence[int | None]) -> list[int | None]:
    """The dimension of each output that counts rows.

    Args:
        small, large: the function's graphs for two numbers of rows.
        inputs: the dimension of each input that counts rows.

    Raises:
        NotRowWise: rows may not be treated apart.
    """
    small, large = inline(small), inline(large)
    analysis = _Analysis([_Rows(a) for a in inputs], small, large)
    return [analysis.axis_of_output(v) for v in small.outputs]


class _Analysis:
    """Walks both graphs in step."""

    def __init__(self, inputs: Sequence[_Rows], small: Graph, large: Graph):
        if len(small.nodes) != len(large.nodes) or len(small.inputs) != len(large.inputs):
            raise NotRowWise("what is computed depends on the number of rows")
        self.rows: dict[Value, _Rows] = {}
        self.twin: dict[Value, Value] = {}
        for v, w, rows in zip(small.inputs, large.inputs, inputs, strict=True):
            self._set(v, w, rows, "an input")
        for node, other in zip(small.nodes, large.nodes, strict=True):
            self._visit(node, other)
        if [self.twin[v] for v in small.outputs] != list(large.outputs):
            raise NotRowWise("what is returned depends on the number of rows")

    def axis_of_output(self, v: Value) -> int | None:
        """The dimension that counts rows; one of equal elements whose extent is the number of rows counts too."""
        scaled = self.scaled(v)
        if self.rows[v].axis is None and scaled:
            if len(scaled) > 1:
                raise NotRowWise("an output has several dimensions that depend on the number of rows")
            return scaled[0]
        return self.rows[v].axis

    def scaled(self, v: Value) -> list[int]:
        """The dimensions whose extents depend on the number of rows."""
        return [k for k, (a, b) in enumerate(zip(v.type.shape, self.twin[v].type.shape, strict=True)) if a != b]

    def _set(self, v: Value, w: Value, rows: _Rows, what: str) -> None:
        if v.type.rank != w.type.rank or v.type.dtype is not w.type.dtype:
            raise NotRowWise(f"{what} is of another type for another number of rows")
        self.twin[v], self.rows[v] = w, rows
        for k in self.scaled(v):
            if k != rows.axis and k not in rows.uniform:
                raise NotRowWise(f"{what} depends on the number of rows")
        if rows.axis is not None and rows.axis not in self.scaled(v):
            raise NotRowWise(f"{what} loses its rows")

    def _visit(self, node: Node, other: Node) -> None:
        if type(node.op) is not type(other.op) or [self.twin[v] for v in node.operands] != list(other.operands):
            raise NotRowWise("what is computed depends on the number of rows")
        _compare_fields(node.op, other.op)
        operands = [self.rows[v] for v in node.operands]
        results = self._results(node, other, operands)
        for v, w, rows in zip(node.results, other.results, results, strict=True):
            self._set(v, w, rows, f"the result of {node.op.name}")

    def _results(self, node: Node, other: Node, operands: list[_Rows]) -> list[_Rows]:
        op = node.op
        if isinstance(op, For):
            return self._for(node, other, operands)
        rule = next((rule for kind, rule in _RULES.items() if isinstance(op, kind)), None)
        if rule is None or isinstance(op, (RandomNormal, RandomUniform)):
            raise NotRowWise(f"{op.name} may not be done for some rows at a time")
        shapes = [v.type.shape for v in node.operands]
        found = rule(_Site(op, operands, shapes, [self.scaled(v) for v in node.operands], [v.type.shape for v in node.results]))
        return [found] * len(node.results)

    def _for(self, node: Node, other: Node, operands: list[_Rows]) -> list[_Rows]:
        """Rows of what is carried stay the same from step to step, or the loop mixes them."""
        op, twin = node.op, other.op
        assert isinstance(op, For) and isinstance(twin, For)
        first, last = op.carried, op.carried + op.scanned
        scanned = [_slice_of(rows, "a loop steps over rows") for rows in operands[first:last]]
        carried = list(operands[:first])
        for _ in range(_ATTEMPTS):
            body = _Analysis([_Rows(None), *carried, *scanned, *operands[last:]], op.body, twin.body)
            ends = [body.rows[v] for v in op.body.outputs]
            met = [_met(a, b) for a, b in zip(carried, ends[:first], strict=True)]
            if met == carried:
                return [*carried, *(_Rows(None if r.axis is None else r.axis + 1, frozenset(k + 1 for k in r.uniform)) for r in ends[first:])]
            carried = met
        raise NotRowWise("a loop mixes rows")


def _slice_of(rows: _Rows, reason: str) -> _Rows:
    if rows.axis == 0:
        raise NotRowWise(reason)
    return _Rows(None if rows.axis is None else rows.axis - 1, frozenset(k - 1 for k in rows.uniform if k))


def _met(a: _Rows, b: _Rows) -> _Rows:
    """What holds of a value that is one of two. One of equal elements along a dimension may become one that counts rows there."""
    if a.axis == b.axis:
        return _Rows(a.axis, a.uniform & b.uniform)
    if a.axis is None and b.axis in a.uniform:
        return _Rows(b.axis, a.uniform & b.uniform)
    if b.axis is None and a.axis in b.uniform:
        return _Rows(a.axis, a.uniform & b.uniform)
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
    """An op and what is known of its operands."""

    op: Any
    operands: list[_Rows]
    shapes: list[Shape]
    scaled: list[list[int]]
    results: list[Shape]

    def keep(self, axes: Sequence[int], k: int = 0) -> None:
        """Demands that no dimension in `axes` of operand k depends on the number of rows."""
        if any(a in self.scaled[k] for a in axes):
            raise NotRowWise(f"{self.op.name} works across rows")


def _merged(operands: Sequence[_Rows], name: str) -> _Rows:
    """Of elements computed from elements at the same place."""
    axes = {rows.axis for rows in operands} - {None}
    if len(axes) > 1:
        raise NotRowWise(f"{name} brings different rows together")
    axis = axes.pop() if axes else None
    if axis is not None and any(rows.axis is None and axis not in rows.uniform for rows in operands):
        raise NotRowWise(f"{name} treats rows differently by their number")
    uniform = frozenset.intersection(*(rows.uniform | ({axis} if rows.axis is None and axis is not None else set()) for rows in operands))
    return _Rows(axis, uniform - {axis})


def _elementwise(site: _Site) -> _Rows:
    return _merged(site.operands, site.op.name)


def _created(site: _Site) -> _Rows:
    if isinstance(site.op, Constant):
        return _Rows(None)
    varying = {site.op.axis} if isinstance(site.op, Iota) else set()
    return _Rows(None, frozenset(range(len(site.results[0]))) - varying)


def _mapped(rows: _Rows, places: dict[int, int]) -> _Rows:
    """With each dimension at its new place; those without one are gone."""
    return _Rows(None if rows.axis is None else places[rows.axis], frozenset(places[k] for k in rows.uniform if k in places))


def _reshape(site: _Site) -> _Rows:
    rows, before, after = site.operands[0], site.shapes[0], site.results[0]
    places = {}
    for k in range(len(before)):
        outside = math.prod(before[:k])
        for j in range(len(after)):
            whole = math.prod(after[:j]) == outside and after[j] != 1
            if whole and (after[j] == before[k] or (k == rows.axis and after[j] % before[k] == 0) or _splits(rows, k, site, after[j])):
                places[k] = j
    if rows.axis is not None and rows.axis not in places:
        raise NotRowWise("reshape takes rows apart")
    if rows.axis is None and rows.uniform == frozenset(range(len(before))):
        return _Rows(None, frozenset(range(len(after))))
    uniform = frozenset(places[k] for k in rows.uniform if k in places and after[places[k]] == before[k])
    return _Rows(None if rows.axis is None else places[rows.axis], uniform)


def _splits(rows: _Rows, k: int, site: _Site, extent: int) -> bool:
    """Whether rows × something are taken apart into rows and something; the caller sees that what is left still counts rows."""
    return k == rows.axis and extent > 1 and site.shapes[0][k] % extent == 0


def _transpose(site: _Site) -> _Rows:
    return _mapped(site.operands[0], {p: k for k, p in enumerate(site.op.perm)})


def _broadcast(site: _Site) -> _Rows:
    before, after = site.shapes[0], site.results[0]
    added = len(after) - len(before)
    repeated = {k for k, d in enumerate(after) if k < added or (before[k - added] == 1 and d != 1)}
    rows = _mapped(site.operands[0], {k: k + added for k in range(len(before))})
    return _Rows(rows.axis, rows.uniform | repeated)


def _slice(site: _Site) -> _Rows:
    op, shape = site.op, site.shapes[0]
    site.keep([k for k, d in enumerate(shape) if (op.start[k], op.size[k], op.step[k]) != (0, d, 1)])
    return site.operands[0]


def _pad(site: _Site) -> _Rows:
    op = site.op
    padded = [k for k in range(len(op.low)) if op.low[k] or op.high[k] or op.interior[k]]
    site.keep(padded)
    return _Rows(site.operands[0].axis, site.operands[0].uniform - set(padded))


def _concat(site: _Site) -> _Rows:
    for k in range(len(site.operands)):
        site.keep([site.op.axis], k)
    rows = _merged(site.operands, "concat")
    return _Rows(rows.axis, rows.uniform - {site.op.axis})


def _windows(site: _Site) -> _Rows:
    site.keep(site.op.axes)
    rows = site.operands[0]
    return _Rows(rows.axis, rows.uniform - set(site.op.axes))


def _reduce(site: _Site) -> _Rows:
    op, rank = site.op, len(site.shapes[0])
    axes = op.axis if isinstance(op.axis, tuple) else (op.axis,)
    site.keep(axes)
    if len(site.results[0]) == rank:
        return site.operands[0]
    left = [k for k in range(rank) if k not in axes]
    return _mapped(site.operands[0], {k: j for j, k in enumerate(left)})


def _along(site: _Site) -> _Rows:
    """Ops along one dimension that keep all others."""
    site.keep([site.op.axis])
    return _Rows(site.operands[0].axis, site.operands[0].uniform - {site.op.axis})


def _matmul(site: _Site) -> _Rows:
    op, rank = site.op, len(site.shapes[0])
    x, y = site.operands
    m, k = (rank - 1, rank - 2) if op.transpose_x else (rank - 2, rank - 1)
    k2, n = (rank - 1, rank - 2) if op.transpose_y else (rank - 2, rank - 1)
    site.keep([k], 0)
    site.keep([k2], 1)
    left = _only(x, {**{d: d for d in range(rank - 2)}, m: rank - 2})
    right = _only(y, {**{d: d for d in range(rank - 2)}, n: rank - 1})
    left = _Rows(left.axis, left.uniform | {rank - 1})  # x does not vary along n, nor y along m
    right = _Rows(right.axis, right.uniform | {rank - 2})
    return _merged([left, right], "matmul")


def _only(rows: _Rows, places: dict[int, int]) -> _Rows:
    if rows.axis is not None and rows.axis not in places:
        raise NotRowWise("matmul sums over rows")
    return _mapped(rows, places)


def _conv(site: _Site) -> _Rows:
    images = 0 if isinstance(site.op, Conv) else 1
    rows, weights = site.operands[images], site.operands[1 - images]
    if weights.axis is not None or rows.axis not in (0, None):
        raise NotRowWise(f"{site.op.name} works across rows")
    for k in (0, 1):
        site.keep([a for a in range(len(site.shapes[k])) if (k, a) != (images, 0)], k)
    return _Rows(rows.axis, rows.uniform & {0})


def _gather(site: _Site) -> _Rows:
    axes, table = site.op.axes, site.operands[0]
    site.keep(axes)
    rank = len(site.shapes[1])
    before = {k: k for k in range(axes[0])}
    rest = [k for k in range(len(site.shapes[0])) if k > axes[0] and k not in axes]
    places = {**before, **{k: axes[0] + rank + j for j, k in enumerate(rest)}}
    taken = frozenset(range(axes[0], axes[0] + rank))
    others = frozenset(range(len(site.results[0]))) - taken
    source = _mapped(table, places)
    parts = [_Rows(source.axis, source.uniform | taken)]
    parts += [_Rows(r.axis if r.axis is None else r.axis + axes[0], frozenset(k + axes[0] for k in r.uniform) | others) for r in site.operands[1:]]
    return _merged(parts, "gather")


def _gather_elements(site: _Site) -> _Rows:
    for k in (0, 1):
        site.keep([site.op.axis], k)
    rows = _merged(site.operands, "gather_elements")
    if rows.axis is not None and site.shapes[0][rows.axis] != site.shapes[1][rows.axis]:
        raise NotRowWise("gather_elements takes some rows only")
    return _Rows(rows.axis, rows.uniform - {site.op.axis})


def _nothing(site: _Site) -> _Rows:
    return _Rows(None)


_RULES: dict[type[Op], Callable[[_Site], _Rows]] = {
    Elementwise: _elementwise, ElementwiseFallback: _elementwise, Fence: _elementwise, Full: _created, Constant: _created, Iota: _created, Reshape: _reshape,
    Transpose: _transpose, BroadcastTo: _broadcast, Slice: _slice, Pad: _pad, Concat: _concat, Windows: _windows, Fold: _windows, Reduction: _reduce,
    ArgMax: _reduce, ArgMin: _reduce, Moments: _reduce, Cumulative: _along, Sort: _along, TopK: _along, MatMul: _matmul, Conv: _conv, ConvInputGrad: _conv,
    Gather: _gather, GatherElements: _gather_elements, CheckIndex: _nothing,
}  # fmt: skip
