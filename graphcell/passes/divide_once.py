"""The sums of a softmax, and roots, are inverted once: exp(x - max(x)) / broadcast(s) is exp(x - max(x)) * broadcast(1 / s), and so in its
gradient; (x - mean) / broadcast(sqrt(var + eps)) is (x - mean) * broadcast(1 / sqrt(var + eps)). The gradient of a softmax is made of its result.

Enters: a differentiated Graph. Leaves: an equal Graph in which floats of 32 and 64 bits are multiplied by the inverse of such a number, instead
of divided by it: a division takes as long as six multiplications or more. What changes is one more rounding. With y = e / s, the gradient
e * (dy / s - sum(dy / s * y)), which is what the rules of division and of exp come to, is y * (dy - sum(dy * y)): whoever keeps y for it need not
keep e and s as well.

Refuses every other divisor. Whoever divides by a number or by the largest element may rely on quotients that are whole numbers, or 1;
and the inverse of a very small number overflows. A sum to which the largest exponential counts as 1 has a normal inverse, and so has every root
but 0, also with something positive added, or kept from falling below it; what is 0, infinite or NaN gives what a division gives.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.arithmetic import Add, Div, Maximum, Mul, Neg, StopGradient, Sub
from graphcell.ops.mathematics import Exp, Sqrt
from graphcell.ops.movement import BroadcastTo, Reshape
from graphcell.ops.reduction import ReduceMax, ReduceSum
from graphcell.passes.rewrite import Rewriter, Rules, rewrite

_ADDED = 1e-30, 1e30
"""To a root, at least and at most, so that the inverse of the sum is a normal number."""
Result = Sequence[Value] | None


def by_inverse(r: Rewriter, node: Node) -> Result:
    """x / broadcast(s) as x * broadcast(1 / s), for a sum of exponentials or a root."""
    x, divisor = node.operands
    made = r.producers.get(divisor)
    if made is None or not isinstance(made.op, BroadcastTo) or divisor.type.dtype.bits < 32:
        return None
    (total,) = made.operands
    if total.type.size == divisor.type.size or not (_counts_largest_as_one(r, total) or _is_root(r, total)):
        return None
    (inverse,) = r.emit(Div(), *r.full(1.0, total), total)
    return r.emit(Mul(), x, *r.emit(made.op, inverse))


def _is_root(r: Rewriter, v: Value) -> bool:
    """Whether v is a square root, or one plus a number, or the larger of the two."""
    made = _origin(r, v)
    if made is not None and isinstance(made.op, (Add, Maximum)):
        numbers = [r.number(x) for x in made.operands]
        known = [n for n in numbers if n is not None]
        if len(known) != 1 or not _ADDED[0] <= known[0] <= _ADDED[1]:
            return False
        made = _origin(r, made.operands[numbers.index(None)])
    return made is not None and isinstance(made.op, Sqrt)


def _counts_largest_as_one(r: Rewriter, v: Value) -> bool:
    """Whether v is the sum of exp(x - broadcast(max(x))) along the very dimensions of the maximum."""
    total = _origin(r, v)
    if total is None or not isinstance(total.op, ReduceSum):
        return False
    exponential = r.producers.get(total.operands[0])
    if exponential is None or not isinstance(exponential.op, Exp):
        return False
    difference = r.producers.get(exponential.operands[0])
    if difference is None or not isinstance(difference.op, Sub):
        return False
    x, peak = difference.operands
    largest = r.producers.get(peak)
    while largest is not None and (isinstance(largest.op, StopGradient) or _keeps_places(largest)):
        largest = r.producers.get(largest.operands[0])
    if largest is None or not isinstance(largest.op, ReduceMax) or not largest.op.keep_dims:
        return False
    return largest.op.axis == total.op.axis and largest.operands == (x,)


def _keeps_places(node: Node) -> bool:
    """Whether it is a broadcast of dimensions that are there, so that each number goes to those that it was found among."""
    return isinstance(node.op, BroadcastTo) and node.operands[0].type.rank == node.results[0].type.rank


def _origin(r: Rewriter, v: Value) -> Node | None:
    """The node that makes the numbers of v, in whatever shape."""
    made = r.producers.get(v)
    while made is not None and isinstance(made.op, (BroadcastTo, Reshape, StopGradient)):
        made = r.producers.get(made.operands[0])
    return made


def by_result(r: Rewriter, node: Node) -> Result:
    """e * (dy / s + broadcast(sum(-(dy / s) * y))), where y is e / s for a sum of exponentials, as y * (dy - broadcast(sum(dy * y)))."""
    for total, e in (node.operands, node.operands[::-1]):
        if not isinstance(r.op_of(total), Add):
            continue
        for quotient, spread in (r.producers[total].operands, r.producers[total].operands[::-1]):
            found = _gradient_by_result(r, quotient, spread, e)
            if found is not None:
                return found
    return None


def _gradient_by_result(r: Rewriter, quotient: Value, spread: Value, e: Value) -> Result:
    """The same of its parts: dy / s, the broadcast sum, and e."""
    if not isinstance(r.op_of(quotient), Div):
        return None
    dy, divisor = r.producers[quotient].operands
    moves: list[Node] = []
    made = r.producers.get(spread)
    while made is not None and isinstance(made.op, (BroadcastTo, Reshape)):
        moves.append(made)
        made = r.producers.get(made.operands[0])
    if made is None or not isinstance(made.op, ReduceSum) or not isinstance(r.op_of(made.operands[0]), Mul) or not _counts_largest_as_one(r, divisor):
        return None
    total = _origin(r, divisor)
    kept = tuple(1 if k in made.op.axis else extent for k, extent in enumerate(e.type.shape))
    if total is None or not isinstance(total.op, ReduceSum) or total.op.axis != made.op.axis or not moves or moves[0].operands[0].type.shape != kept:
        return None  # s is not the same for all that is summed, or the sum goes elsewhere
    factors = r.producers[made.operands[0]].operands
    for minus, y in (factors, factors[::-1]):
        whole, negated = r.producers.get(y), r.producers.get(minus)
        if whole is None or negated is None or not isinstance(whole.op, Div) or not isinstance(negated.op, Neg):
            continue
        if whole.operands == (e, divisor) and negated.operands == (quotient,):
            results = r.emit(made.op, *r.emit(Mul(), dy, y))
            for move in reversed(moves):
                results = r.emit(move.op, *results)
            return r.emit(Mul(), y, *r.emit(Sub(), dy, *results))
    return None


def divide_once(graph: Graph) -> Graph:
    """The graph with the sums of softmaxes inverted, regions included."""
    return rewrite(rewrite(graph, Rules((Mul, by_result))), Rules((Div, by_inverse)))
