"""What is computed of a concatenation element by element is computed part by part.

Enters: a Graph. Leaves: a Graph in which elementwise ops, and sums, of a few large parts that loops make are done for each part, before these are put
together; so each part goes on in the loops that made it, and slices of the results (in gradients of the concatenation, as a rule) or sums never need the
whole. A last concatenation has its parts written in place. What lies together along the last dimension stays so, but for sums of long lines: vectors would
be cut. A reduction of a stack along its dimension becomes a chain of additions, extrema or products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.arithmetic import Add, Maximum, Minimum, Mul
from graphcell.ops.base import Elementwise, Reduction
from graphcell.ops.creation import Constant, Full
from graphcell.ops.movement import BroadcastTo, Concat, Reshape, Slice
from graphcell.ops.reduction import ReduceMax, ReduceMin, ReduceProd, ReduceSum
from graphcell.passes.rewrite import Rewriter, Rules, rewrite

MOST_PARTS, SMALLEST_PART = 4, 1 << 12
SHORTEST_LINE = 64
"""Elements that lie together in memory and are read as one: those behind the dimension of the parts, or of a whole part."""
_MOST_OPS = 256
"""Elementwise ops of concatenations that are taken apart, in one graph."""
_MOST_BEFORE, _MOST_AGAIN = 16, 4
"""Ops in a row that make the other operand of such an op, and are taken apart with it: for that alone, and for others as well."""
_MOST_STACKED = 32
"""Slices, one element long in a dimension, up to which a reduction along their stack becomes a chain."""
JOINED_BY: dict[type[Reduction], type[Elementwise]] = {ReduceSum: Add, ReduceMax: Maximum, ReduceMin: Minimum}
"""What combines the results of a reduction of parts."""
_CHAINED_BY = {**JOINED_BY, ReduceProd: Mul}
"""What a reduction of a stack is a chain of."""


def part_by_part(graph: Graph) -> Graph:
    """The graph with what is done to concatenations done to their parts, regions included."""
    if not any(isinstance(node.op, Concat) for node in graph.walk()):
        return graph
    return rewrite(graph, Rules((Elementwise, _Parts().elementwise), (ReduceSum, _sum), (Reduction, _of_stack)))


class _Parts:
    def __init__(self) -> None:
        self.repeated = 0

    def elementwise(self, r: Rewriter, node: Node) -> Sequence[Value] | None:
        """op(concat(a, b), c) is concat(op(a, c[:k]), op(b, c[k:]))."""
        whole = next((v for v in node.operands if _is_in_parts(r, v)), None)
        if whole is None or node.op.has_effect or self.repeated >= _MOST_OPS:
            return None
        joined = r.producers[whole]
        assert isinstance(joined.op, Concat)
        axis, operands = joined.op.axis, []
        for v in node.operands:
            made = r.producers.get(v)
            if made is not None and made.op == joined.op and [p.type.shape for p in made.operands] == [p.type.shape for p in joined.operands]:
                operands.append(list(made.operands))
            elif _is_cut_well(r, v, axis, node):
                operands.append(_cut(r, v, axis, [p.type.shape[axis] for p in joined.operands]))
            else:
                return None
        self.repeated += 1
        return r.emit(joined.op, *(r.emit(node.op, *parts)[0] for parts in zip(*operands, strict=True)))


def _sum(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """A sum of a concatenation in parts that loops make."""
    op, joined = node.op, r.producers.get(node.operands[0])
    assert isinstance(op, ReduceSum)
    if joined is None or not isinstance(joined.op, Concat):
        return None
    return _sum_along(r, op, joined) if joined.op.axis in op.axis else _sum_beside(r, op, joined, joined.op.axis)


def _sum_along(r: Rewriter, op: ReduceSum, joined: Node) -> Sequence[Value] | None:
    """Along the dimension of the parts, it is the sum of their sums; not of half precision, of which each would be rounded."""
    (whole,) = joined.results
    if not _is_in_parts(r, whole) or not whole.type.dtype.is_float or whole.type.dtype.bits < 32:
        return None
    first, *others = (r.emit(op, part)[0] for part in joined.operands)
    for other in others:
        (first,) = r.emit(Add(), first, other)
    return (first,)


def _sum_beside(r: Rewriter, op: ReduceSum, joined: Node, axis: int) -> Sequence[Value] | None:
    """Along other dimensions, their sums are put together."""
    if not _is_in_parts(r, joined.results[0], min(part.type.shape[axis] for part in joined.operands)):
        return None
    behind = axis - (0 if op.keep_dims else sum(a < axis for a in op.axis))
    return r.emit(Concat(behind), *(r.emit(op, part)[0] for part in joined.operands))


def _of_stack(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """What combines a stack along its dimension, as a moving average does, combines what is stacked: a chain in one loop, and no stack. Not sums and products
    of half precision, whose every step would be rounded."""
    op, (x,) = node.op, node.operands
    assert isinstance(op, Reduction)
    joined, by = r.producers.get(x), _CHAINED_BY.get(type(op))
    if by is None or joined is None or not isinstance(joined.op, Concat) or op.axis != (joined.op.axis,):
        return None
    if len(joined.operands) > _MOST_STACKED or any(part.type.shape[joined.op.axis] != 1 or part.type.size < SMALLEST_PART for part in joined.operands):
        return None
    if by in (Add, Mul) and x.type.dtype.is_float and x.type.dtype.bits < 32:
        return None
    first, *others = joined.operands
    if by is Add:
        zero = Full(0.0 if x.type.dtype.is_float else 0, first.type.shape, x.type.dtype)
        (first,) = r.emit(Add(), first, *r.emit(zero))  # a sum of -0 alone is 0
    for other in others:
        (first,) = r.emit(by(), first, other)
    shape = node.results[0].type.shape
    return (first,) if first.type.shape == shape else r.emit(Reshape(shape), first)


def _is_in_parts(r: Rewriter, v: Value, lines: int = 1) -> bool:
    """Whether v consists of a few large parts, each made by a loop, or of such concatenations; `lines`: of those behind the dimension of the parts,
    how many are read as one."""
    made = r.producers.get(v)
    if made is None or not isinstance(made.op, Concat) or len(made.operands) > MOST_PARTS:
        return False
    if lines * math.prod(v.type.shape[made.op.axis + 1 :]) < SHORTEST_LINE or any(p.type.size < SMALLEST_PART for p in made.operands):
        return False
    return all(_is_made_by_loop(r, p) for p in made.operands)


def _is_made_by_loop(r: Rewriter, v: Value) -> bool:
    made = r.producers.get(v)
    while made is not None and isinstance(made.op, Reshape):
        v, made = made.operands[0], r.producers.get(made.operands[0])
    return made is not None and (isinstance(made.op, Elementwise) or _is_in_parts(r, v))


def _is_cut_well(r: Rewriter, v: Value, axis: int, reader: Node, ops: int = _MOST_BEFORE) -> bool:
    """Whether parts of v can be read as well as the whole: it is given, or the same all along `axis`, or loops make it of such values, for `reader` alone or
    in a few fast ops."""
    made = r.producers.get(v)
    if made is not None and isinstance(made.op, Elementwise):
        if r.uses(v) > reader.operands.count(v):
            ops = min(ops, _MOST_AGAIN) if made.op.fast else 0
        return ops > 0 and not made.op.has_effect and all(_is_cut_well(r, x, axis, made, ops - 1) for x in dict.fromkeys(made.operands))
    known = True
    while made is not None and isinstance(made.op, (BroadcastTo, Slice, Reshape)):
        source = made.operands[0]
        before = axis - v.type.rank + source.type.rank
        known = known and not isinstance(made.op, Reshape)
        if isinstance(made.op, BroadcastTo) and known and is_same_along(axis, made):
            return True
        axis, v, made = before, source, r.producers.get(source)
    return made is None or isinstance(made.op, (Constant, Full))


def is_same_along(axis: int, broadcast: Node) -> bool:
    """Whether all elements of what is broadcast are equal along a dimension of the result."""
    (source,) = broadcast.operands
    before = axis - broadcast.results[0].type.rank + source.type.rank
    return before < 0 or source.type.shape[before] == 1


def _cut(r: Rewriter, v: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    """v in parts of these sizes; what loops make is made in parts."""
    made = r.producers.get(v)
    if made is not None and isinstance(made.op, Elementwise):
        cut = {x: _cut(r, x, axis, sizes) for x in dict.fromkeys(made.operands)}
        return [r.emit(made.op, *(cut[x][k] for x in made.operands))[0] for k in range(len(sizes))]
    return slices_of_parts(r, v, axis, sizes)


def slices_of_parts(r: Rewriter, v: Value, axis: int, sizes: Sequence[int]) -> list[Value]:
    """v cut along a dimension in parts of these sizes."""
    parts: list[Value] = []
    begin, shape = 0, v.type.shape
    for size in sizes:
        start = tuple(begin if d == axis else 0 for d in range(len(shape)))
        parts += r.emit(Slice(start, (*shape[:axis], size, *shape[axis + 1 :]), (1,) * len(shape)), v)
        begin += size
    return parts
