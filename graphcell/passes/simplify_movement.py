"""Simplification rules for views, pads, concatenations, reductions and matrix products. All are exact."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphcell.ir.graph import Node, Value
from graphcell.ir.types import Shape
from graphcell.ops.arithmetic import Add, Cast, Mul
from graphcell.ops.base import Elementwise, Reduction, View, reduced_shape
from graphcell.ops.contraction import MatMul
from graphcell.ops.convolution import Conv, ConvInputGrad
from graphcell.ops.creation import Full, number_of
from graphcell.ops.movement import BroadcastTo, Concat, Pad, Reshape, Slice, Transpose
from graphcell.passes.costs import pads_in_loops
from graphcell.passes.rewrite import Rewriter
from graphcell.passes.simplify_elementwise import MANTISSA

Result = Sequence[Value] | None
_MOST_PIECES = 64
"""That are put together at once where concatenations lie in each other."""
_LONGEST_EPILOGUE = 16
"""Ops through which a product is looked for."""


def source_of(r: Rewriter, value: Value) -> Value:
    """The first operand of the node that makes `value`."""
    return r.producers[value].operands[0]


def without_ones(shape: Shape) -> Shape:
    return tuple(d for d in shape if d != 1)


# -- views of one operand ------------------------------------------------------------------------------------
def same_shape(r: Rewriter, node: Node) -> Result:
    """A reshape or broadcast to the shape that x has already is x."""
    x = node.operands[0]
    return (x,) if x.type.shape == node.results[0].type.shape else None


def reshape_of_reshape(r: Rewriter, node: Node) -> Result:
    """Two reshapes are one."""
    x = node.operands[0]
    return r.emit(node.op, source_of(r, x)) if isinstance(r.op_of(x), Reshape) else None


def transpose_of_nothing(r: Rewriter, node: Node) -> Result:
    """A transpose that leaves the dimensions other than 1 in order is a reshape (or nothing)."""
    assert isinstance(node.op, Transpose)
    x = node.operands[0]
    order = [p for p in node.op.perm if x.type.shape[p] != 1]
    return r.emit(Reshape(node.results[0].type.shape), x) if order == sorted(order) else None


def transpose_of_transpose(r: Rewriter, node: Node) -> Result:
    """Two transposes are one."""
    assert isinstance(node.op, Transpose)
    inner = r.op_of(node.operands[0])
    if not isinstance(inner, Transpose):
        return None
    return r.emit(Transpose(tuple(inner.perm[p] for p in node.op.perm)), source_of(r, node.operands[0]))


def broadcast_of_broadcast(r: Rewriter, node: Node) -> Result:
    """Two broadcasts are one."""
    x = node.operands[0]
    return r.emit(node.op, source_of(r, x)) if isinstance(r.op_of(x), BroadcastTo) else None


def broadcast_to_ones(r: Rewriter, node: Node) -> Result:
    """A broadcast that only adds dimensions of extent 1 is a reshape."""
    x, result = node.operands[0], node.results[0]
    return r.emit(Reshape(result.type.shape), x) if x.type.size == result.type.size else None


def broadcast_of_lead(r: Rewriter, node: Node) -> Result:
    """A broadcast needs no reshape before it that only adds leading dimensions of extent 1."""
    x = node.operands[0]
    if not isinstance(r.op_of(x), Reshape):
        return None
    inner, shape = source_of(r, x), x.type.shape
    lead = len(shape) - inner.type.rank
    if lead <= 0 or shape[lead:] != inner.type.shape or any(d != 1 for d in shape[:lead]):
        return None
    return r.emit(node.op, inner)


def slice_of_everything(r: Rewriter, node: Node) -> Result:
    """A slice that takes every element in order is x."""
    assert isinstance(node.op, Slice)
    x = node.operands[0]
    in_order = all(s == 1 or n <= 1 for s, n in zip(node.op.step, node.op.size, strict=True))
    return (x,) if node.op.size == x.type.shape and in_order else None


def slice_of_slice(r: Rewriter, node: Node) -> Result:
    """Two slices are one."""
    outer, inner = node.op, r.op_of(node.operands[0])
    if not isinstance(outer, Slice) or not isinstance(inner, Slice) or 0 in outer.size:
        return None
    start = tuple(a + s * b for a, s, b in zip(inner.start, inner.step, outer.start, strict=True))
    step = tuple(s * t for s, t in zip(inner.step, outer.step, strict=True))
    return r.emit(Slice(start, outer.size, step), source_of(r, node.operands[0]))


def slice_of_broadcast(r: Rewriter, node: Node) -> Result:
    """A slice of a broadcast is a broadcast of a slice, of the dimensions that were not repeated."""
    cut, x = node.op, node.operands[0]
    if not isinstance(cut, Slice) or not isinstance(r.op_of(x), BroadcastTo) or 0 in cut.size:
        return None
    inner = source_of(r, x)
    lead = x.type.rank - inner.type.rank
    start, size, step = [], [], []
    for k, d in enumerate(inner.type.shape):
        repeated = d == 1
        start.append(0 if repeated else cut.start[k + lead])
        size.append(1 if repeated else cut.size[k + lead])
        step.append(1 if repeated else cut.step[k + lead])
    part = r.emit(Slice(tuple(start), tuple(size), tuple(step)), inner)
    return r.emit(BroadcastTo(cut.size), *part)


def slice_of_concat(r: Rewriter, node: Node) -> Result:
    """A slice that lies in one part of a concatenation is a slice of that part; one that lies in a few of many, if nothing else needs these, a concatenation of
    theirs."""
    cut, joined = node.op, r.op_of(node.operands[0])
    if not isinstance(cut, Slice) or not isinstance(joined, Concat) or 0 in cut.size:
        return None
    axis = joined.axis
    last = cut.start[axis] + cut.step[axis] * (cut.size[axis] - 1)
    low, high = min(cut.start[axis], last), max(cut.start[axis], last)
    begin = 0
    for part in r.producers[node.operands[0]].operands:
        end = begin + part.type.shape[axis]
        if begin <= low and high < end:
            if cut.size != part.type.shape and not r.used_once(node.operands[0]) and takes_long(r, part):
                return None  # each slice of the concatenation would compute that again
            return r.emit(Slice(_moved(cut.start, axis, -begin), cut.size, cut.step), part)
        begin = end
    return _slice_of_several(r, cut, axis, node.operands[0]) if cut.step[axis] == 1 and r.used_once(node.operands[0]) else None


def _slice_of_several(r: Rewriter, cut: Slice, axis: int, joined: Value) -> Result:
    """The concatenation of what a slice takes of each part; None if it takes something of all."""
    operands, parts = r.producers[joined].operands, []
    begin, low, high = 0, cut.start[axis], cut.start[axis] + cut.size[axis]
    for part in operands:
        end = begin + part.type.shape[axis]
        first, last = max(low, begin), min(high, end)
        if first < last:
            start, size = ((*of[:axis], at, *of[axis + 1 :]) for of, at in ((cut.start, first - begin), (cut.size, last - first)))
            parts.append((Slice(start, size, cut.step), part))
        begin = end
    return r.emit(Concat(axis), *(r.emit(*of_part)[0] for of_part in parts)) if len(parts) < len(operands) else None


def takes_long(r: Rewriter, value: Value) -> bool:
    """Whether `value` is computed by functions that are slow, or by elementwise ops from what is."""
    stack, seen = [value], set[Node]()
    while stack:
        made = r.producers.get(stack.pop())
        if made is None or made in seen or not isinstance(made.op, Elementwise):
            continue
        if not made.op.fast:
            return True
        if len(seen) < _LONGEST_EPILOGUE:
            seen.add(made)
            stack += made.operands
    return False


def slice_of_pad(r: Rewriter, node: Node) -> Result:
    """A slice of what was padded is a slice of the operand; a slice of the padding alone is a fill."""
    cut, padded = node.op, r.op_of(node.operands[0])
    if not isinstance(cut, Slice) or not isinstance(padded, Pad) or 0 in cut.size or any(padded.interior):
        return None
    x = source_of(r, node.operands[0])
    inside = True
    for a, n, s, before, d in zip(cut.start, cut.size, cut.step, padded.low, x.type.shape, strict=True):
        low, high = sorted((a - before, a - before + s * (n - 1)))
        if high < 0 or low >= d:
            return r.full(padded.value, node.results[0])
        inside = inside and low >= 0 and high < d
    if not inside:
        return None
    start = tuple(a - before for a, before in zip(cut.start, padded.low, strict=True))
    return r.emit(Slice(start, cut.size, cut.step), x)


def slice_of_elementwise(r: Rewriter, node: Node) -> Result:
    """A slice of what is computed element by element is computed from slices, if nothing else needs the rest, or other slices do, or it is what is read
    in fewer bytes."""
    x = node.operands[0]
    made = r.producers.get(x)
    if made is None or not isinstance(made.op, Elementwise) or made.op.has_effect:
        return None
    is_widened = isinstance(made.op, Cast) and made.operands[0].type.dtype.bits < x.type.dtype.bits
    if not r.used_once(x) and ((r.used_by_slices(x) > x.type.size and not is_widened) or ends_a_product(r, x)):
        return None
    return r.emit(made.op, *(v for operand in made.operands for v in r.emit(node.op, operand)))


def ends_a_product(r: Rewriter, value: Value) -> bool:
    """Whether `value` is a matrix product or convolution, or may be computed elementwise where one has its results in registers."""
    stack, seen = [value], set[Node]()
    while stack:
        made = r.producers.get(stack.pop())
        if made is None or made in seen:
            continue
        if isinstance(made.op, (MatMul, Conv, ConvInputGrad)):
            return True
        if isinstance(made.op, (Elementwise, View)) and len(seen) < _LONGEST_EPILOGUE:
            seen.add(made)
            stack += made.operands
    return False


def _moved(start: Shape, axis: int, by: int) -> Shape:
    return (*start[:axis], start[axis] + by, *start[axis + 1 :])


# -- pad, concat ---------------------------------------------------------------------------------------------
def pad_by_nothing(r: Rewriter, node: Node) -> Result:
    """A pad that adds nothing is x."""
    x = node.operands[0]
    return (x,) if x.type.shape == node.results[0].type.shape else None


def pad_of_pad(r: Rewriter, node: Node) -> Result:
    """Two pads with one value are one, if the outer one leaves the inside alone."""
    outer, inner = node.op, r.op_of(node.operands[0])
    if not isinstance(outer, Pad) or not isinstance(inner, Pad) or any(outer.interior):
        return None
    if repr(outer.value) != repr(inner.value):
        return None
    low = tuple(a + b for a, b in zip(outer.low, inner.low, strict=True))
    high = tuple(a + b for a, b in zip(outer.high, inner.high, strict=True))
    return r.emit(Pad(low, high, inner.interior, inner.value), source_of(r, node.operands[0]))


def pad_of_fill(r: Rewriter, node: Node) -> Result:
    """A fill padded with its own number is a larger fill; so is a pad of nothing."""
    assert isinstance(node.op, Pad)
    x, result = node.operands[0], node.results[0]
    number = number_of(node.op.value, x.type.dtype)
    same = repr(r.number(x)) == repr(number) or x.type.size == 0
    return r.full(number, result) if same else None


def concat_of_one(r: Rewriter, node: Node) -> Result:
    """Parts without elements are left out; one part alone is the result."""
    parts = [v for v in node.operands if v.type.size]
    if len(parts) == 1:
        return parts
    return r.emit(node.op, *parts) if len(parts) < len(node.operands) else None


def concat_of_concat(r: Rewriter, node: Node) -> Result:
    """A concatenation in a concatenation along the same axis is part of it, if nothing else needs it."""
    parts: list[Value] = []
    for v in node.operands:
        parts += r.producers[v].operands if r.op_of(v) == node.op and r.used_once(v) else [v]
    return r.emit(node.op, *parts) if len(parts) > len(node.operands) else None


def concat_of_pieces(r: Rewriter, node: Node) -> Result:
    """Parts that lie one after the other in memory, some of which are such concatenations along other dimensions, are put together at once."""
    if not _lie_in_order(node):
        return None
    parts: list[Value] = []
    line = math.inf
    for v in node.operands:
        made, once = r.producers.get(v), r.used_once(v)
        while made is not None and once and isinstance(made.op, Reshape):
            once, made = r.used_once(made.operands[0]), r.producers.get(made.operands[0])
        if made is not None and once and isinstance(made.op, Concat) and _lie_in_order(made):
            parts += made.operands
            line = min(line, math.prod(made.results[0].type.shape[made.op.axis + 1 :]))
        else:
            parts.append(v)
    if line == math.inf or line == 0 or len(parts) > _MOST_PIECES or any(p.type.size % line for p in parts):
        return None
    lines = [r.emit(Reshape((p.type.size // int(line), int(line))), p)[0] for p in parts]
    return r.emit(Reshape(node.results[0].type.shape), *r.emit(Concat(0), *lines))


def _lie_in_order(node: Node) -> bool:
    """Whether the parts of a concatenation lie one after the other in memory."""
    assert isinstance(node.op, Concat)
    return all(n == 1 for n in node.results[0].type.shape[: node.op.axis])


def concat_of_fills(r: Rewriter, node: Node) -> Result:
    """Fills of one number make a fill."""
    first = r.op_of(node.operands[0])
    if not isinstance(first, Full):
        return None
    ops = [r.op_of(v) for v in node.operands]
    same = all(isinstance(op, Full) and repr(op.value) == repr(first.value) for op in ops)
    return r.full(first.value, node.results[0]) if same else None


def concat_with_fill(r: Rewriter, node: Node) -> Result:
    """A fill before or after the other parts is padding, where loops may read that without a copy."""
    assert isinstance(node.op, Concat)
    axis, (result,) = node.op.axis, node.results
    for at, rest in ((0, node.operands[1:]), (-1, node.operands[:-1])):
        fill, value = node.operands[at], r.number(node.operands[at])
        if value is None or not rest:
            continue
        width = fill.type.shape[axis]
        ends = [tuple(width if k == axis and at == end else 0 for k in range(result.type.rank)) for end in (0, -1)]
        op = Pad(ends[0], ends[1], (0,) * result.type.rank, number_of(value, result.type.dtype))
        inner = result.type.shape[axis] - width
        if pads_in_loops(op, result.type.with_shape((*result.type.shape[:axis], inner, *result.type.shape[axis + 1 :]))):
            return r.emit(op, *(rest if len(rest) == 1 else r.emit(node.op, *rest)))
    return None


def concat_of_slices(r: Rewriter, node: Node) -> Result:
    """Neighbouring slices of one value, put together again, are one slice."""
    assert isinstance(node.op, Concat)
    parts = [node.operands[0]]
    for v in node.operands[1:]:
        joined = _join_slices(r, parts[-1], v, node.op.axis)
        parts[-1:] = [parts[-1], v] if joined is None else [joined]
    if len(parts) == len(node.operands):
        return None
    return parts if len(parts) == 1 else r.emit(node.op, *parts)


def _join_slices(r: Rewriter, x: Value, y: Value, axis: int) -> Value | None:
    a, b = r.op_of(x), r.op_of(y)
    if not isinstance(a, Slice) or not isinstance(b, Slice) or source_of(r, x) is not source_of(r, y):
        return None
    follows = b.start == _moved(a.start, axis, a.step[axis] * a.size[axis])
    if not follows or a.step != b.step or _moved(a.size, axis, b.size[axis] - a.size[axis]) != b.size:
        return None
    return r.emit(Slice(a.start, _moved(a.size, axis, b.size[axis]), a.step), source_of(r, x))[0]


# -- reductions ----------------------------------------------------------------------------------------------
def reduce_over_ones(r: Rewriter, node: Node) -> Result:
    """Dimensions of extent 1 need no reduction, only a reshape. (A float sum starts from 0.0, which is kept:
    0.0 + -0.0 is 0.0.)
    """
    op, x, result = node.op, node.operands[0], node.results[0]
    assert isinstance(op, Reduction)
    axis = tuple(a for a in op.axis if x.type.shape[a] != 1)
    if len(axis) == len(op.axis) and axis:
        return None
    if axis:
        return r.emit(Reshape(result.type.shape), *r.emit(with_axis(op, axis), x))
    y = (x,) if op.kind != "add" or not x.type.dtype.is_float else r.emit(Add(), x, *r.full(0.0, x))
    return r.emit(Reshape(result.type.shape), *y)


def with_axis(op: Reduction, axis: tuple[int, ...]) -> Reduction:
    """The same reduction along other axes, without keeping them."""
    return type(op)(axis, False)  # type: ignore[call-arg]


def reduce_of_reduce(r: Rewriter, node: Node) -> Result:
    """Two reductions of one kind are one, where the order of combining does not matter (not for float sums
    and products).
    """
    op, inner = node.op, r.op_of(node.operands[0])
    if type(inner) is not type(op) or not isinstance(op, Reduction) or not isinstance(inner, Reduction):
        return None
    x, result = source_of(r, node.operands[0]), node.results[0]
    if (x.type.dtype.is_float and op.kind in ("add", "mul")) or not r.used_once(node.operands[0]):
        return None
    kept = [k for k in range(x.type.rank) if inner.keep_dims or k not in inner.axis]
    axis = tuple(sorted({*inner.axis, *(kept[a] for a in op.axis)}))
    return r.emit(Reshape(result.type.shape), *r.emit(with_axis(op, axis), x))


def reduce_of_repeated(r: Rewriter, node: Node) -> Result:
    """Extrema (and all, any) over dimensions along which x was repeated are those of x; an integer sum is a
    multiple of x.
    """
    op, x, result = node.op, node.operands[0], node.results[0]
    if not isinstance(op, Reduction) or not isinstance(r.op_of(x), BroadcastTo) or x.type.size == 0:
        return None
    multiple = op.kind == "add" and x.type.dtype.is_integer
    if op.kind not in ("min", "max", "and", "or") and not multiple:
        return None
    inner = source_of(r, x)
    lead = x.type.rank - inner.type.rank
    repeated = {a for a in op.axis if a < lead or (inner.type.shape[a - lead] == 1 and x.type.shape[a] != 1)}
    if not repeated:
        return None
    shape = reduced_shape(
        x.type.shape, tuple(repeated), True
    )  # of the operand once it is no longer repeated there
    y = r.emit(BroadcastTo(shape), inner)
    if multiple:
        y = r.emit(Mul(), *y, *r.full(math.prod(x.type.shape[a] for a in repeated), y[0]))
    rest = tuple(a for a in op.axis if a not in repeated)
    y = r.emit(with_axis(op, rest), *y) if rest else y
    return r.emit(Reshape(result.type.shape), *y)


def reduce_of_fill(r: Rewriter, node: Node) -> Result:
    """An extremum of a fill is its number; a sum is a multiple, where every partial sum is exact in the
    dtype.
    """
    op, x, result = node.op, node.operands[0], node.results[0]
    number = r.number(x)
    if number is None or not isinstance(op, Reduction) or x.type.size == 0:
        return None
    if op.kind in ("min", "max", "and", "or") or x.type.dtype.is_bool:
        return r.full(number, result)
    count = math.prod(x.type.shape[a] for a in op.axis)
    if op.kind == "mul":
        return r.full(1, result) if number == 1 else None
    if x.type.dtype.is_integer:
        total, bits = int(number) * count, x.type.dtype.bits
        wrapped = total % (1 << bits)
        return r.full(
            wrapped - (1 << bits) if x.type.dtype.signed and wrapped >> (bits - 1) else wrapped, result
        )
    if not math.isfinite(number) or not _sums_exactly(float(number), count, MANTISSA[x.type.dtype.name]):
        return None
    return r.full(number * count + 0.0, result)


def _sums_exactly(number: float, count: int, mantissa: int) -> bool:
    """True if all multiples of `number` up to `count` have at most `mantissa` bits (and are far from
    overflow).
    """
    numerator, denominator = abs(number).as_integer_ratio()
    odd = numerator // (numerator & -numerator) if numerator else 0
    return odd * count <= 1 << mantissa and abs(number) * count < 2.0**15 and denominator <= 1 << 14


# -- matrix products -----------------------------------------------------------------------------------------
def matmul_of_transposed(r: Rewriter, node: Node) -> Result:
    """A transpose of the last two dimensions before a matrix product is one of its flags."""
    op = node.op
    assert isinstance(op, MatMul)
    x, y = node.operands
    flip_x, flip_y = _swaps_last_two(r, x), _swaps_last_two(r, y)
    if not flip_x and not flip_y:
        return None
    x = source_of(r, x) if flip_x else x
    y = source_of(r, y) if flip_y else y
    return r.emit(MatMul(op.transpose_x != flip_x, op.transpose_y != flip_y), x, y)


def transpose_of_matmul(r: Rewriter, node: Node) -> Result:
    """A transposed matrix product is the product of the transposed factors in the other order, if only that
    is needed.
    """
    product = r.op_of(node.operands[0])
    if (
        not isinstance(product, MatMul)
        or not isinstance(node.op, Transpose)
        or not r.used_once(node.operands[0])
    ):
        return None
    if not swaps_last_two(node.op.perm):
        return None
    x, y = r.producers[node.operands[0]].operands
    return r.emit(MatMul(not product.transpose_y, not product.transpose_x), y, x)


def matmul_of_repeated(r: Rewriter, node: Node) -> Result:
    """A batch of matrices times one matrix repeated for each is one product of their rows."""
    op = node.op
    assert isinstance(op, MatMul)
    x, y = node.operands
    if op.transpose_x or x.type.rank < 3 or not isinstance(r.op_of(y), BroadcastTo):
        return None
    matrix = source_of(r, y)
    if without_ones(matrix.type.shape[:-2]) or matrix.type.shape[-2:] != y.type.shape[-2:] or x.type.size == 0:
        return None
    k = x.type.shape[-1]
    rows = r.emit(Reshape((x.type.size // k, k)), x)
    flat = r.emit(Reshape(y.type.shape[-2:]), matrix)
    product = r.emit(MatMul(False, op.transpose_y), *rows, *flat)
    return r.emit(Reshape(node.results[0].type.shape), *product)


def column_of_transposed(r: Rewriter, node: Node) -> Result:
    """A transposed matrix times a column is the row times the matrix, which is read as it lies."""
    op, (x, y), result = node.op, node.operands, node.results[0].type
    assert isinstance(op, MatMul)
    if not op.transpose_x or result.shape[-1] != 1 or result.shape[-2] == 1:
        return None
    row = r.emit(MatMul(not op.transpose_y, False), y, x)
    return r.emit(Reshape(result.shape), *row)


def matmul_over_nothing(r: Rewriter, node: Node) -> Result:
    """A product over an inner size of 0 is zeros."""
    assert isinstance(node.op, MatMul)
    inner = node.operands[0].type.shape[-2 if node.op.transpose_x else -1]
    return r.full(0, node.results[0]) if inner == 0 else None


def _swaps_last_two(r: Rewriter, value: Value) -> bool:
    op = r.op_of(value)
    return isinstance(op, Transpose) and swaps_last_two(op.perm)


def swaps_last_two(perm: tuple[int, ...]) -> bool:
    rank = len(perm)
    return rank >= 2 and perm == (*range(rank - 2), rank - 1, rank - 2)


MOVEMENT_RULES = (
    (Reshape, same_shape),
    (Reshape, reshape_of_reshape),
    (Transpose, transpose_of_transpose),
    (Transpose, transpose_of_nothing),
    (Transpose, transpose_of_matmul),
    (BroadcastTo, same_shape),
    (BroadcastTo, broadcast_of_broadcast),
    (BroadcastTo, broadcast_to_ones),
    (BroadcastTo, broadcast_of_lead),
    (Slice, slice_of_everything),
    (Slice, slice_of_slice),
    (Slice, slice_of_broadcast),
    (Slice, slice_of_concat),
    (Slice, slice_of_pad),
    (Slice, slice_of_elementwise),
    (Pad, pad_by_nothing),
    (Pad, pad_of_pad),
    (Pad, pad_of_fill),
    (Concat, concat_of_one),
    (Concat, concat_of_concat),
    (Concat, concat_of_pieces),
    (Concat, concat_of_fills),
    (Concat, concat_with_fill),
    (Concat, concat_of_slices),
    (Reduction, reduce_over_ones),
    (Reduction, reduce_of_fill),
    (Reduction, reduce_of_reduce),
    (Reduction, reduce_of_repeated),
    (MatMul, matmul_over_nothing),
    (MatMul, matmul_of_transposed),
    (MatMul, matmul_of_repeated),
    (MatMul, column_of_transposed),
)
