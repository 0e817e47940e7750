"""Interleaved values are computed part by part: f(stack((a, b), -1)) is stack((f(a), f(b)), -1).

Enters: a Graph. Leaves: an equal Graph in which elementwise ops and reductions take the parts of what two to four values, or the gradients of its
slices, make by turns along the last dimension, instead of the whole. So what makes the parts and what reads them is one loop nest, and they are
put together where the whole is wanted: by something else, or as a result. Other operands are read by slices. Sums and extrema of two to four columns
of what is read column by column elsewhere combine columns.

Refuses what ends a matrix product (it is computed where the product has its results in registers), and small Tensors. Sums over interleaved
elements are sums of the parts' sum, so their rounding changes; native sums do not promise an order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.types import Shape
from graphcell.ops.arithmetic import Add, Maximum, Minimum
from graphcell.ops.base import Elementwise, Reduction
from graphcell.ops.creation import Full, number_of
from graphcell.ops.movement import BroadcastTo, Concat, Pad, Reshape, Slice
from graphcell.passes.rewrite import Rewriter, Rules, rewrite
from graphcell.passes.simplify_movement import ends_a_product
from graphcell.records import dataclass

Result = Sequence[Value] | None
_MOST_PARTS = 4
"""Elements so far apart in memory, or less, are read and written by vectors."""
_LEAST_ELEMENTS = 256
_LONGEST_SUM = 8
_COMBINED = {"add": Add, "max": Maximum, "min": Minimum}
"""What combines the parts before a reduction along the last dimension."""


@dataclass(frozen=True, slots=True)
class _Interleaved:
    """Element i * len(parts) + k of the last dimension is element i of `parts[k]`. `joined`: a concatenation made it; else gradients of slices, or
    repetition."""

    parts: tuple[Value, ...]
    joined: bool


def interleaved(r: Rewriter, v: Value) -> _Interleaved | None:
    """The parts of an interleaved value; None for others."""
    made = r.producers.get(v)
    if made is None or not v.type.rank:
        return None
    op, last = made.op, v.type.shape[-1]
    if isinstance(op, Concat):
        return _joined(op, made)
    if isinstance(op, Pad):
        return _padded(r, op, made)
    if isinstance(op, Reshape):
        (x,) = made.operands
        return _repeated(r, x, v.type.shape) or _reshaped(r, interleaved(r, x), v.type.shape)
    if isinstance(op, BroadcastTo):
        (x,) = made.operands
        inner = interleaved(r, x) if x.type.rank and x.type.shape[-1] == last else None
        return inner and _Interleaved(_each(r, BroadcastTo(_part_shape(v.type.shape, len(inner.parts))), inner.parts), inner.joined)
    return None


def _joined(op: Concat, node: Node) -> _Interleaved | None:
    along = op.axis == node.results[0].type.rank - 1 and all(x.type.shape[-1] == 1 for x in node.operands)
    return _Interleaved(node.operands, True) if along and len(node.operands) <= _MOST_PARTS else None


def _padded(r: Rewriter, op: Pad, node: Node) -> _Interleaved | None:
    """What stands between fills, or has fills around it: the gradient of a slice, a stack with a number."""
    (x,), whole = node.operands, node.results[0].type.shape
    if any((*op.low[:-1], *op.high[:-1], *op.interior[:-1])) or not x.type.size:
        return None
    around = op.low[-1] + op.high[-1]
    if x.type.shape[-1] == 1 or (around == op.interior[-1] and around):
        inner = _Interleaved((x,), False)
    else:
        within = interleaved(r, x)
        if within is None or op.interior[-1] or within.parts[0].type.shape[-1] != 1:
            return None
        inner = within
    if around + len(inner.parts) > _MOST_PARTS:
        return None
    fill = r.full(op.value, inner.parts[0])
    assert _part_shape(whole, around + len(inner.parts)) == inner.parts[0].type.shape
    return _Interleaved((*fill * op.low[-1], *inner.parts, *fill * op.high[-1]), inner.joined)


def _repeated(r: Rewriter, x: Value, shape: Shape) -> _Interleaved | None:
    """Each element several times in turn, as a reshape of a broadcast of one dimension at the end."""
    made = r.producers.get(x)
    if made is None or not isinstance(made.op, BroadcastTo) or x.type.rank < 2 or shape != (*x.type.shape[:-2], math.prod(x.type.shape[-2:])):
        return None
    (one,), count = made.operands, x.type.shape[-1]
    if one.type.rank != x.type.rank or one.type.shape[-1] != 1 or not 1 < count <= _MOST_PARTS:
        return None
    whole = r.emit(BroadcastTo((*x.type.shape[:-1], 1)), one)
    return _Interleaved(r.emit(Reshape(x.type.shape[:-1]), *whole) * count, False)


def _reshaped(r: Rewriter, inner: _Interleaved | None, shape: Shape) -> _Interleaved | None:
    if inner is None or not shape or shape[-1] % len(inner.parts):
        return None
    return _Interleaved(_each(r, Reshape(_part_shape(shape, len(inner.parts))), inner.parts), inner.joined)


def _each(r: Rewriter, op: Reshape | BroadcastTo, parts: Sequence[Value]) -> tuple[Value, ...]:
    return tuple(v for part in parts for v in ((part,) if part.type.shape == op.shape else r.emit(op, part)))


def _part_shape(shape: Shape, count: int) -> Shape:
    return (*shape[:-1], shape[-1] // count)


def interleave_parts(r: Rewriter, parts: Sequence[Value], shape: Shape) -> tuple[Value, ...]:
    """The whole of `shape` from its parts."""
    if parts[0].type.shape[-1] == 1:
        return r.emit(Concat(len(shape) - 1), *parts)
    columns = _each(r, Reshape((*parts[0].type.shape, 1)), parts)
    return r.emit(Reshape(shape), *r.emit(Concat(len(shape)), *columns))


def apply_to_parts(r: Rewriter, node: Node) -> Result:
    """An elementwise op on an interleaved value, or on gradients of slices that are added up, on parts."""
    op, result = node.op, node.results[0].type
    if op.has_effect or result.size < _LEAST_ELEMENTS or not result.rank:
        return None
    found = [interleaved(r, v) for v in node.operands]
    dense = [v for v, w in zip(node.operands, found, strict=True) if w is None and r.number(v) is None]
    known = [w for w in found if w is not None]
    counts = {len(w.parts) for w in known if w.joined} or {len(w.parts) for w in known}
    pays = any(w.joined for w in known) or (len(known) > 1 and not dense)
    if len(counts) != 1 or not pays or any(ends_a_product(r, v) for v in dense):
        return None
    (count,) = counts
    operands = [_parts_of(r, v, w, count) for v, w in zip(node.operands, found, strict=True)]
    return interleave_parts(r, [r.emit(op, *xs)[0] for xs in zip(*operands, strict=True)], result.shape)


def add_gradients_of_slices(r: Rewriter, node: Node) -> Result:
    """(x + a) + b as x + (a + b), where a and b are gradients of slices that share no element: all the same but for the sign of 0."""
    rest, last = node.operands
    found = interleaved(r, last)
    if found is None or found.joined:
        return None
    others: list[Value] = []
    while len(others) < _LONGEST_SUM:
        made = r.producers.get(rest)
        if made is None or not isinstance(made.op, Add) or not r.used_once(rest):
            return None
        rest, x = made.operands
        if _disjoint(r, found, interleaved(r, x)):
            (total,) = r.emit(Add(), x, last)
            for other in (rest, *reversed(others)):
                (total,) = r.emit(Add(), other, total)
            return (total,)
        others.append(x)
    return None


def _disjoint(r: Rewriter, a: _Interleaved, b: _Interleaved | None) -> bool:
    """Whether both are gradients of slices, and each element is 0 in one of them."""
    if b is None or b.joined or len(a.parts) != len(b.parts):
        return False
    return all(0 in (r.number(x), r.number(y)) for x, y in zip(a.parts, b.parts, strict=True))


def _parts_of(r: Rewriter, v: Value, found: _Interleaved | None, count: int) -> Sequence[Value]:
    """The parts of any value: those that it was made of, or slices."""
    if found is not None and len(found.parts) == count:
        return found.parts
    return tuple(_part(r, v, k, count, _LONGEST_SUM) for k in range(count))


def _part(r: Rewriter, v: Value, k: int, count: int, ops: int) -> Value:
    """The part of v whose turn is the k-th of `count`."""
    number = r.number(v)
    if number is not None:
        return r.emit(Full(number_of(number, v.type.dtype), _part_shape(v.type.shape, count), v.type.dtype))[0]
    found = interleaved(r, v)
    return found.parts[k] if found is not None and len(found.parts) == count else _turn(r, v, k, count, ops)


def _turn(r: Rewriter, v: Value, k: int, count: int, ops: int = _LONGEST_SUM) -> Value:
    """Every element of the last dimension whose turn is the k-th of `count`; of what quick ops compute for this alone, from slices."""
    made = r.producers.get(v)
    if ops and made is not None and _is_for_one(r, v, made) and not ends_a_product(r, v):
        return r.emit(made.op, *(_part(r, x, k, count, ops - 1) for x in made.operands))[0]
    rest = v.type.rank - 1
    return r.emit(Slice((*[0] * rest, k), _part_shape(v.type.shape, count), (*[1] * rest, count)), v)[0]


def reduce_parts(r: Rewriter, node: Node) -> Result:
    """A reduction of an interleaved value from those of its parts."""
    op, (x,), result = node.op, node.operands, node.results[0].type
    assert isinstance(op, Reduction)
    if x.type.size < _LEAST_ELEMENTS:
        return None
    found = interleaved(r, x)
    if found is None or not found.joined:
        return None
    if x.type.rank - 1 not in op.axis:
        return interleave_parts(r, [r.emit(op, part)[0] for part in found.parts], result.shape)
    if op.kind not in _COMBINED or (x.type.dtype.is_float and x.type.dtype.bits < 32):
        return None
    total = found.parts[0]
    for part in found.parts[1:]:
        (total,) = r.emit(_COMBINED[op.kind](), total, part)
    return r.emit(op, total)


def reduce_of_turns(r: Rewriter, node: Node) -> Result:
    """A reduction of the few columns of what is read column by column elsewhere, too, combines columns: one loop nest then does both."""
    op, (x,) = node.op, node.operands
    assert isinstance(op, Reduction)
    count = x.type.shape[-1] if op.axis == (x.type.rank - 1,) else 0
    if not 1 < count <= _MOST_PARTS or op.kind not in _COMBINED or x.type.size < _LEAST_ELEMENTS or (x.type.dtype.is_float and x.type.dtype.bits < 32):
        return None
    if not _is_of_columns(r, x):
        return None
    total = _turn(r, x, 0, count)
    for k in range(1, count):
        (total,) = r.emit(_COMBINED[op.kind](), total, _turn(r, x, k, count))
    return r.emit(Reshape(node.results[0].type.shape), total)


def _is_of_columns(r: Rewriter, x: Value) -> bool:
    """Whether x is computed by a few quick ops, for nothing else, from what is read column by column."""
    stack, found, ops = [x], False, 0
    while stack:
        v = stack.pop()
        made = r.producers.get(v)
        if r.read_by_columns(v):
            found = True
        elif made is not None and _is_for_one(r, v, made):
            ops += 1
            stack += dict.fromkeys(made.operands)
        elif made is None or not isinstance(made.op, (Full, BroadcastTo)):
            return False
        if ops > _LONGEST_SUM:
            return False
    return found


def _is_for_one(r: Rewriter, v: Value, made: Node) -> bool:
    """Whether v is computed by a quick op, for one reader."""
    return isinstance(made.op, Elementwise) and made.op.fast and not made.op.has_effect and r.used_once(v)


def slice_of_interleaved(r: Rewriter, node: Node) -> Result:
    """A slice of an interleaved value that takes one part is that part."""
    cut, (x,) = node.op, node.operands
    assert isinstance(cut, Slice)
    found = interleaved(r, x) if x.type.rank and 0 not in cut.size and (cut.size[-1] == 1 or cut.step[-1] > 1) else None
    if found is None or not found.joined or (cut.size[-1] > 1 and cut.step[-1] % len(found.parts)):
        return None
    count = len(found.parts)
    start, step = (*cut.start[:-1], cut.start[-1] // count), (*cut.step[:-1], max(cut.step[-1] // count, 1))
    return r.emit(Slice(start, cut.size, step), found.parts[cut.start[-1] % count])


def slice_of_split(r: Rewriter, node: Node) -> Result:
    """One place of the last dimension, which a reshape split off, is a slice by steps."""
    cut, (x,) = node.op, node.operands
    assert isinstance(cut, Slice)
    made, shape = r.producers.get(x), x.type.shape
    if made is None or not isinstance(made.op, Reshape) or len(shape) < 2 or cut.size[-1] != 1 or not 1 < shape[-1] <= _MOST_PARTS or 0 in cut.size:
        return None
    (whole,) = made.operands
    if cut.size[:-1] == shape[:-1] and all(step > 0 for step in cut.step) and whole.type.rank and whole.type.shape[-1] % shape[-1] == 0:
        return r.emit(Reshape(cut.size), _turn(r, whole, cut.start[-1], shape[-1]))
    if whole.type.shape != (*shape[:-2], shape[-2] * shape[-1]):
        return None
    start = (*cut.start[:-2], cut.start[-2] * shape[-1] + cut.start[-1])
    part = r.emit(Slice(start, cut.size[:-1], (*cut.step[:-2], cut.step[-2] * shape[-1])), whole)
    return r.emit(Reshape(cut.size), *part)


RULES = Rules(
    (Add, add_gradients_of_slices),
    (Elementwise, apply_to_parts),
    (Reduction, reduce_parts),
    (Reduction, reduce_of_turns),
    (Slice, slice_of_interleaved),
    (Slice, slice_of_split),
)


def interleave(graph: Graph) -> Graph:
    """The graph with interleaved values computed part by part, regions included."""
    return rewrite(graph, RULES)
