"""Factors that are the same all along a sum stand before it: sum(x * a) is a * sum(x), and so do choices between what is summed and 0. A B + A C is A (B + C),
A B + A^T B is (A + A^T) B.

Enters: a differentiated Graph. Leaves: an equal Graph in which what does not vary along the dimensions of a sum is multiplied once, with
the sum, instead of with every element; sums that differed only in such factors, as the gradients of a normalisation do, become one. The gradient of
products of rows with each other, z z^T, is a sum of two products that differ in one transposition; what meets one matrix twice, in a value and in its own
gradient, has a sum of two products with that: they become one, too. (Elements above half of the largest number could overflow then; so could the products,
but for zeros.)

Who multiplies before a sum may do so to keep it finite, so not every factor may move. Moved are numbers above 1; inverse square
roots, by which normalisations divide what is no larger than the root of the largest number; and any other factor where the sum without
it is there anyway, or where that is a sum of differences x - m with one number m and the sum of all x is there, a mean taken away. Half
precision stays as it is. What changes then is rounding, which native sums do not promise anyway.

In gradients alone, a sum of two is two sums where one of the two had its mean taken away, but for factors: neither sum waits for these.

What a square adds to a gradient, twice, is added once and doubled, and powers of two join other numbers. (What is below the smallest normal number may be
rounded otherwise then, and a product above half of the largest number could overflow that is added twice to what it nearly cancels.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from graphcell.dtype import DType, finfo
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.types import Shape, TensorType
from graphcell.ops.arithmetic import Add, Div, Mul, Neg, Select, Sub
from graphcell.ops.base import Elementwise
from graphcell.ops.contraction import MatMul
from graphcell.ops.creation import Full
from graphcell.ops.mathematics import Rsqrt
from graphcell.ops.movement import BroadcastTo, Reshape, Transpose
from graphcell.ops.reduction import ReduceSum
from graphcell.passes.rewrite import Rewriter, Rules, rewrite
from graphcell.passes.simplify_elementwise import is_made_alike

Result = Sequence[Value] | None
_FEWEST = 8
"""Rows and columns of a product from which it takes longer than to add two matrices."""
_FEWEST_BESIDE_WEIGHTS = 128
"""Rows that meet two matrices, or columns, from which it takes longer than to read these matrices and write their sum."""
_MOST_TERMS = 8
"""Terms of a sum among which products with one matrix are looked for."""
_MOST_FACTORS = 16
"""Of a product, that are told apart."""


def safe_factor_before_sum(r: Rewriter, node: Node) -> Result:
    """The factors that may move in any case."""
    return _factor_before_sum(r, node, None)


class _SharedSums:
    """The rules for factors without which the sum is in the graph anyway."""

    def __init__(self) -> None:
        self.known: dict[Graph, set[_Sum]] = {}

    def rule(self, r: Rewriter, node: Node) -> Result:
        """Factors may move if what is left is a sum of the graph, or of what had its mean taken away."""
        return self._of_centred(r, node, node.operands[0]) or _factor_before_sum(r, node, self._sums(r))

    def sum_of_two(self, r: Rewriter, node: Node) -> Result:
        """In a gradient, sum(x + y) is sum(x) + sum(y) if one of these is of what had its mean taken away, but for factors: the gradient of c = x - mean(x)
        has such a part, c times what is the same along the sum, where a variance is the mean of c * c. This waits for the variance, and its sum does not."""
        op, total = node.op, r.producers.get(node.operands[0])
        if total is None or not isinstance(total.op, (Add, Sub)) or not is_in_gradient(total):
            return None
        parts = [self._of_centred(r, node, v) for v in total.operands]
        if not any(parts):
            return None
        return r.emit(total.op, *(v for part, x in zip(parts, total.operands, strict=True) for v in part or r.emit(op, x)))

    def _of_centred(self, r: Rewriter, node: Node, v: Value) -> Result:
        """The sum of `v`, all factors taken out, if that leaves what had its mean taken away."""
        op, result = node.op, node.results[0]
        assert isinstance(op, ReduceSum)
        if not v.type.dtype.is_float or v.type.dtype.bits < 32:
            return None
        same, rest = _divided(r, op, v)
        if not same or not _is_centred(r, op, rest, self._sums(r)):
            return None
        total = r.emit(op, *rest)
        for factor in same:
            along = _same_along(r, factor, op, result)
            assert along is not None
            total = r.emit(Mul(), *total, along)
        return total

    def _sums(self, r: Rewriter) -> set[_Sum]:
        if r.graph not in self.known:
            made_by = r.graph.producers()
            self.known[r.graph] = {_sum_of(made_by, n.op, n.operands) for n in r.graph.nodes if isinstance(n.op, ReduceSum)}
        return self.known[r.graph]


_Sum = tuple[tuple[int, ...], frozenset[tuple[Value, int]]]
"""The dimensions of a sum, and what is multiplied in it, how often."""


def _sum_of(made_by: Mapping[Value, Node], op: ReduceSum, product: Sequence[Value]) -> _Sum:
    return op.axis, frozenset(Counter(factors(made_by, product)).items())


def factors(made_by: Mapping[Value, Node], product: Sequence[Value]) -> list[Value]:
    """What is multiplied in a product, through products in it, from left to right; of long ones some products are left."""
    found: list[Value] = []
    stack = list(reversed(product))
    while stack:
        v = stack.pop()
        if v in made_by and isinstance(made_by[v].op, Mul) and len(found) + len(stack) < _MOST_FACTORS:
            stack += reversed(made_by[v].operands)
        else:
            found.append(v)
    return found


def _divided(r: Rewriter, op: ReduceSum, v: Value) -> tuple[list[Value], list[Value]]:
    """The factors of v that are the same along a sum, and the others."""
    same: list[Value] = []
    rest: list[Value] = []
    for factor in factors(r.producers, [v]):
        is_same = r.number(factor) is not None or _along_what_is_left(r, factor, op) is not None
        (same if is_same else rest).append(factor)
    return same, rest


def is_in_gradient(node: Node) -> bool:
    """Whether autodiff made a sum of floats, which may be added in another order. A cache of programs knows that of each node (ir/fingerprint.py)."""
    return node.span is not None and node.span.gradient and node.results[0].type.dtype.is_float and node.results[0].type.dtype.bits >= 32


def _factor_before_sum(r: Rewriter, node: Node, sums: set[_Sum] | None) -> Result:
    """sum(x * a) is sum(x) * a, sum(x * (y * a)) is sum(x * y) * a, if a is the same along the summed dimensions and may move: where the
    sum without it is one of `sums`, or if there are none because it is safe."""
    op, product = node.op, node.operands[0]
    assert isinstance(op, ReduceSum)
    if not isinstance(r.op_of(product), Mul) or product.type.dtype.bits < 32 or not product.type.dtype.is_float:
        return None

    def moved(a: Value, rest: Sequence[Value]) -> Value | None:
        may_move = _is_safe(r, a, op) if sums is None else _sum_of(r.producers, op, rest) in sums or _is_centred(r, op, rest, sums)
        return _same_along(r, a, op, node.results[0]) if may_move else None

    for x, other in _both_orders(r, product):
        factor = moved(other, [x])
        if factor is not None:
            return r.emit(Mul(), *r.emit(op, x), factor)
        if isinstance(r.op_of(other), Mul):
            for y, inner in _both_orders(r, other):
                factor = moved(inner, [x, y])
                if factor is not None:
                    return r.emit(Mul(), *r.emit(op, *r.emit(Mul(), x, y)), factor)
    return None


def _is_safe(r: Rewriter, v: Value, op: ReduceSum) -> bool:
    """Whether a factor may move out of any sum: see above. Numbers stay in sums of columns, which are added up beside rows if nothing needs them then."""
    made = r.producers.get(v)
    while made is not None and isinstance(made.op, (BroadcastTo, Reshape)):
        made = r.producers.get(made.operands[0])
    return made is not None and (isinstance(made.op, Rsqrt) or (isinstance(made.op, Full) and abs(made.op.value) > 1 and v.type.rank - 1 in op.axis))


def _is_centred(r: Rewriter, op: ReduceSum, summed: Sequence[Value], sums: set[_Sum]) -> bool:
    """Whether what is summed is x - m, where m is the sum of x, which is one of `sums`, times or by a number: neither is larger than the other by much."""
    made = r.producers.get(summed[0]) if len(summed) == 1 else None
    if made is None or not isinstance(made.op, Sub):
        return False
    x, mean = made.operands
    wanted = _sum_of(r.producers, op, [x])
    node = r.producers.get(mean) if wanted in sums and _along_what_is_left(r, mean, op) is not None else None
    while node is not None and isinstance(node.op, (BroadcastTo, Reshape, Mul, Div)):
        rest = [v for v in node.operands if r.number(v) is None]
        node = r.producers.get(rest[0]) if len(rest) == 1 else None
    return node is not None and isinstance(node.op, ReduceSum) and _sum_of(r.producers, node.op, node.operands) == wanted


def minus_before_sum(r: Rewriter, node: Node) -> Result:
    """sum(-x) is -sum(x)."""
    x = node.operands[0]
    if not isinstance(r.op_of(x), Neg) or not x.type.dtype.is_float:
        return None
    return r.emit(Neg(), *r.emit(node.op, *r.producers[x].operands))


def choice_before_sum(r: Rewriter, node: Node) -> Result:
    """sum(select(c, x, 0)) is select(c, sum(x), 0) if c is the same along the summed dimensions and nothing else needs what is chosen."""
    op, result, chosen = node.op, node.results[0], r.producers.get(node.operands[0])
    assert isinstance(op, ReduceSum)
    if chosen is None or not isinstance(chosen.op, Select) or not r.used_once(node.operands[0]):
        return None
    condition, *choices = chosen.operands
    zeros = [k for k, v in enumerate(choices) if r.number(v) == 0]
    along = _same_along(r, condition, op, result) if len(zeros) == 1 else None
    if along is None or choices[0].type != choices[1].type:
        return None
    sums = [r.full(0, result)[0] if k in zeros else r.emit(op, v)[0] for k, v in enumerate(choices)]
    return r.emit(Select(), along, *sums)


def sum_of_mirrored_products(r: Rewriter, node: Node) -> Result:
    """A B + A^T B is (A + A^T) B, and B A + B A^T is B (A + A^T), if nothing else needs the two products."""
    one, other = (r.producers.get(v) for v in node.operands)
    if one is None or other is None or not isinstance(one.op, MatMul) or not isinstance(other.op, MatMul):
        return None
    dtype = node.results[0].type.dtype
    if not dtype.is_float or dtype.bits < 32 or not all(map(r.used_once, node.operands)):
        return None
    flags = [(n.op.transpose_x, n.op.transpose_y) for n in (one, other) if isinstance(n.op, MatMul)]
    differing = [k for k in (0, 1) if flags[0][k] != flags[1][k]]
    if one.operands != other.operands or len(differing) != 1 or min(node.results[0].type.shape[-2:]) < _FEWEST:
        return None
    (place,) = differing
    matrix, rank = one.operands[place], one.operands[place].type.rank
    (mirrored,) = r.emit(Transpose((*range(rank - 2), rank - 1, rank - 2)), matrix)
    operands, kept = list(one.operands), list(flags[0])
    (operands[place],), kept[place] = r.emit(Add(), matrix, mirrored), False
    return r.emit(MatMul(*kept), *operands)


def sum_of_products_with_one_matrix(r: Rewriter, node: Node) -> Result:
    """A B + ... + A C is A (B + C) + ..., and B A + ... + C A is (B + C) A + ..., if nothing else needs the two products and the sums between."""
    dtype = node.results[0].type.dtype
    if not dtype.is_float or dtype.bits < 32 or min(node.results[0].type.shape[-2:], default=0) < _FEWEST or node.results[0].type.rank < 2:
        return None
    terms = _terms(r, node)
    known: dict[tuple[int, Value, MatMul, TensorType], int] = {}
    for at, term in enumerate(terms):
        made = r.producers.get(term)
        if made is None or not isinstance(made.op, MatMul) or not r.used_once(term):
            continue
        for place in (0, 1):
            key = (place, made.operands[place], made.op, made.operands[1 - place].type)
            if key in known:
                operands, addends = list(made.operands), [n.operands[1 - place] for n in (r.producers[terms[known[key]]], made)]
                if made.results[0].type.shape[-2 + place] < _FEWEST_BESIDE_WEIGHTS and not all(_is_computed_for_it(r, v) for v in addends):
                    continue
                (operands[1 - place],) = r.emit(Add(), *addends)
                rest = [t for k, t in enumerate(terms) if k not in (known[key], at)]
                total = r.emit(made.op, *operands)
                for t in rest:
                    total = r.emit(Add(), *total, t)
                return total
            known[key] = at
    return None


def _is_computed_for_it(r: Rewriter, v: Value) -> bool:
    """Whether a loop makes v for a product alone, so that it can make a sum instead."""
    made = r.producers.get(v)
    return made is not None and isinstance(made.op, Elementwise) and r.used_once(v)


def _terms(r: Rewriter, node: Node) -> list[Value]:
    """What a sum is the sum of: through sums that nothing else needs."""
    terms, found = list(node.operands), 0
    while found < len(terms) < _MOST_TERMS:
        made = r.producers.get(terms[found])
        if made is not None and isinstance(made.op, Add) and r.used_once(terms[found]) and made.results[0].type == node.results[0].type:
            terms[found : found + 1] = made.operands
        else:
            found += 1
    return terms


def _both_orders(r: Rewriter, product: Value) -> Iterator[tuple[Value, Value]]:
    x, y = r.producers[product].operands
    yield x, y
    yield y, x


def _same_along(r: Rewriter, v: Value, op: ReduceSum, result: Value) -> Value | None:
    """What v is along the dimensions that are left, if it does not vary along the summed ones."""
    made = r.producers.get(v)
    if made is not None and isinstance(made.op, Full):
        return r.emit(Full(made.op.value, result.type.shape, made.op.dtype))[0]
    shape = _along_what_is_left(r, v, op)
    if made is None or shape is None:
        return None
    (small,) = made.operands
    if shape != small.type.shape:
        (small,) = r.emit(Reshape(shape), small)
    return small if shape == result.type.shape else r.emit(BroadcastTo(result.type.shape), small)[0]


def _along_what_is_left(r: Rewriter, v: Value, op: ReduceSum) -> Shape | None:
    """The shape of what is broadcast to v along the dimensions that are left, if v does not vary along the summed ones."""
    made = r.producers.get(v)
    if made is None or not isinstance(made.op, BroadcastTo):
        return None
    (small,) = made.operands
    lead = v.type.rank - small.type.rank
    if any(a >= lead and small.type.shape[a - lead] != 1 for a in op.axis):
        return None
    shape = (1,) * lead + small.type.shape
    return shape if op.keep_dims else tuple(d for k, d in enumerate(shape) if k not in op.axis)


def powers_of_two_together(r: Rewriter, node: Node) -> Result:
    """(x * a) * b is x * (a * b) for numbers of which one is a power of two, unless x * a is needed as it is, too."""
    for product, number in (node.operands, node.operands[::-1]):
        b, dtype = r.number(number), product.type.dtype
        if b is None or not isinstance(r.op_of(product), Mul) or not dtype.is_float or dtype.bits < 32 or not r.used_once(product):
            continue
        for x, other in _both_orders(r, product):
            a = r.number(other)
            if a is not None and 0.5 in (abs(math.frexp(a)[0]), abs(math.frexp(b)[0])) and _is_normal(a * b, dtype):
                return r.emit(Mul(), x, *r.full(a * b, number))
    return None


def add_twice(r: Rewriter, node: Node) -> Result:
    """(x + y) + y is x + 2 y where y is a product, which may be there twice, unless x + y is needed as it is, too: what a square adds to a gradient."""
    if not node.results[0].type.dtype.is_float or node.results[0].type.dtype.bits < 32:
        return None
    for total, y in (node.operands, node.operands[::-1]):
        if isinstance(r.op_of(total), Add) and isinstance(r.op_of(y), Mul) and r.used_once(total):
            for x, other in _both_orders(r, total):
                if is_made_alike(r, y, other):
                    return r.emit(Add(), x, *r.emit(Mul(), y, *r.full(2, y)))
    return None


def _is_normal(number: float, dtype: DType) -> bool:
    limits = finfo(dtype)
    return float(limits.smallest_normal) <= abs(number) <= float(limits.max)


def factor_sums(graph: Graph) -> Graph:
    """The graph with the sums named above rewritten, regions included."""
    safe, shared = (ReduceSum, safe_factor_before_sum), _SharedSums()
    before = safe, (ReduceSum, minus_before_sum), (ReduceSum, choice_before_sum)
    graph = rewrite(graph, Rules(*before, (Add, sum_of_mirrored_products), (Add, sum_of_products_with_one_matrix)))
    sums = safe, (ReduceSum, shared.rule), (ReduceSum, shared.sum_of_two)
    return rewrite(graph, Rules(*sums, (Mul, powers_of_two_together), (Add, add_twice)))
