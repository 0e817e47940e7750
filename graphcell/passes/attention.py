"""Attention is recognised: a softmax between two matrix products becomes one op that never stores the scores.

Enters: a Graph, before differentiation (so that the gradient is that of the op) or for inference. Leaves: an equal Graph in which
softmax(q @ k^T * scale, masked) @ v is `attention`; what it replaces stays behind without users, for `eliminate_dead`.

Matched: a scale before or after the mask, as product or quotient; one mask, added, subtracted or selected, of any shape that broadcasts;
softmax in primitives, in float32 inside of half precision; reshapes of batch dimensions on the way. Left alone: scores or probabilities
that something else reads, masks that have a gradient (they need that of the scores, which would be stored after all), and sizes for
which the kernel does not pay.

What may change are roundings, as with any contraction: half precision is rounded once at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import field

from graphcell import dtype as dt
from graphcell.errors import Span
from graphcell.ir.graph import Graph, Node, Value, copy_node
from graphcell.ir.op import Op, infer_types
from graphcell.ir.types import Shape
from graphcell.ops.arithmetic import Add, Cast, Div, Mul, Neg, Select, StopGradient, Sub
from graphcell.ops.attention import Attention, swap_sequence
from graphcell.ops.comparison import BitwiseNot
from graphcell.ops.contraction import MatMul
from graphcell.ops.creation import Full, number_of
from graphcell.ops.mathematics import Exp
from graphcell.ops.movement import BroadcastTo, Reshape, Transpose
from graphcell.ops.reduction import ReduceMax, ReduceSum
from graphcell.records import dataclass

LARGEST_HEAD = 256
"""Features of a head up to which panels of keys and values fit the nearer caches."""
LONGEST_KEPT = 512
"""Keys up to which a program that is differentiated keeps the exponentials of all scores, instead of computing them again backward."""
FEWEST = 4
"""Queries, and keys, from which the kernel pays: it packs the keys for a block of queries."""


def fuse_attention(graph: Graph, active: Collection[Value] = ()) -> Graph:
    """The graph with attention in place of its parts, regions included; the same object if there is none.

    A mask among the values `active`, which are going to be differentiated, is not matched.
    """
    if not any(isinstance(node.op, Exp) for node in graph.walk()):
        return graph
    return _Fusion(graph, active).run()


@dataclass
class _Match:
    """What was found so far. `inside` are the nodes that the op replaces."""

    inside: list[Node] = field(default_factory=list)
    factor: float = 1.0
    """What the value looked at is multiplied with until it is a score."""
    fill: float = 0.0
    mask: Value | None = None
    mask_factor: float = 1.0
    keeps: bool = True
    """Whether a Bool mask is on where scores are kept."""
    kept: Value | None = None
    kept_shape: Shape | None = None
    """The shape of the weights where dropout meets them."""
    """Which weights dropout keeps."""
    dropout: float = 0.0


class _Fusion:
    def __init__(self, graph: Graph, active: Collection[Value]):
        self.graph = graph
        self.active = active
        self.made_by = graph.producers()
        self.users: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for v in dict.fromkeys(node.operands):
                self.users.setdefault(v, []).append(node)
        self.outputs = set(graph.outputs)
        self.nodes: list[Node] = []
        self.table: dict[Value, Value] = {v: v for v in graph.inputs}
        self.span: Span | None = None
        self.changed = False

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self.span = node.span
            replacement = self.attention(node, node.op) if isinstance(node.op, MatMul) else None
            if replacement is not None:
                self.table[node.results[0]] = replacement
                self.changed = True
                continue
            regions = tuple(fuse_attention(g) for g in node.op.regions)
            same = all(a is b for a, b in zip(regions, node.op.regions, strict=True))
            self.changed = self.changed or not same
            self.nodes.append(copy_node(node, self.table, None if same else node.op.with_regions(regions)))
        if not self.changed:
            return self.graph
        return Graph(self.graph.name, self.graph.inputs, self.nodes, [self.table[v] for v in self.graph.outputs])

    def emit(self, op: Op, *operands: Value) -> tuple[Value, ...]:
        types = infer_types(op, tuple(v.type for v in operands))
        node = Node(op, operands, tuple(map(Value, types)), self.span)
        self.nodes.append(node)
        return node.results

    # -- questions -----------------------------------------------------------------------------------------------
    def op_of(self, v: Value) -> Op | None:
        node = self.made_by.get(v)
        return None if node is None else node.op

    def operand(self, v: Value, k: int = 0) -> Value:
        return self.made_by[v].operands[k]

    def number(self, v: Value) -> float | None:
        """The number that every element of v is, if that is known."""
        op = self.op_of(v)
        while isinstance(op, (BroadcastTo, Reshape)):
            v = self.operand(v)
            op = self.op_of(v)
        return float(op.value) if isinstance(op, Full) else None

    def enter(self, match: _Match, v: Value, *kinds: type[Op]) -> Node | None:
        """The node that makes v, if it is one of `kinds`; it is counted to the match."""
        node = self.made_by.get(v)
        if node is None or not isinstance(node.op, kinds):
            return None
        match.inside.append(node)
        return node

    def through(self, match: _Match, v: Value, skip: Callable[[Node], bool]) -> Value:
        """What v comes from when the nodes that `skip` says yes to are skipped."""
        node = self.made_by.get(v)
        while node is not None and skip(node):
            match.inside.append(node)
            v = node.operands[0]
            node = self.made_by.get(v)
        return v

    # -- the pattern, from its end to its beginning ----------------------------------------------------------------
    def attention(self, node: Node, op: MatMul) -> Value | None:
        """The value that replaces the result of `node`, if that is an attention."""
        weights, v = node.operands
        if op.transpose_x or not v.type.dtype.is_float:
            return None
        match = _Match()
        scores = self.softmax(match, self.before_dropout(match, self.through(match, weights, _is_neutral)))
        product = None if scores is None else self.products(match, scores)
        if scores is None or product is None or not self.is_closed(match, node):
            return None
        if match.kept_shape not in (None, scores.type.shape):  # the mask's batch dimensions would be read as others
            return None
        assert isinstance(product.op, MatMul)
        parts = _Parts(
            self.oriented(product.operands[0], product.op.transpose_x),
            self.oriented(product.operands[1], not product.op.transpose_y),
            self.oriented(v, op.transpose_y),
        )
        return self.replace(match, parts, scores.type.shape, node)

    def before_dropout(self, match: _Match, v: Value) -> Value:
        """The weights of which dropout makes v: select(kept, weights * factor, 0), or weights * (a cast of Bool) * factor."""
        node = self.made_by.get(v)
        if node is None or v.type.dtype.itemsize == 2 or not isinstance(node.op, (Select, Mul)):
            return v
        if isinstance(node.op, Select):
            kept, x, other = node.operands
            if self.number(other) != 0:
                return v
        else:
            x, y = node.operands
            cast = next((m for m in map(self.made_by.get, (y, x)) if m is not None and isinstance(m.op, Cast) and m.operands[0].type.dtype.is_bool), None)
            if cast is None:
                return v
            kept, x = cast.operands[0], x if cast.results[0] is y else y
        match.inside.append(node)
        match.kept, match.kept_shape, match.dropout = kept, v.type.shape, 1.0
        scaled = self.made_by.get(x)
        while scaled is not None and isinstance(scaled.op, (Mul, Div)) and self.number(scaled.operands[1]) not in (None, 0.0):
            factor = self.number(scaled.operands[1])
            assert factor
            match.dropout *= factor if isinstance(scaled.op, Mul) else 1 / factor
            match.inside.append(scaled)
            x = scaled.operands[0]
            scaled = self.made_by.get(x)
        return self.through(match, x, _is_neutral) if math.isfinite(match.dropout) and match.dropout != 0 else v

    def softmax(self, match: _Match, v: Value) -> Value | None:
        """The scores, if v is their softmax along the last dimension."""
        quotient = self.enter(match, v, Div)
        if quotient is None:
            return None
        powers, total = quotient.operands
        total = self.through(match, total, _is_spread)
        summed, power = self.enter(match, total, ReduceSum), self.enter(match, powers, Exp)
        if summed is None or power is None or summed.operands[0] is not powers or not _along_last(summed):
            return None
        difference = self.enter(match, power.operands[0], Sub)
        if difference is None:
            return None
        scores, peak = difference.operands
        largest = self.enter(match, self.through(match, peak, _is_spread_or_stopped), ReduceMax)
        return scores if largest is not None and largest.operands[0] is scores and _along_last(largest) else None

    def products(self, match: _Match, scores: Value) -> Node | None:
        """The product of q and k that `scores` are made of; scale and mask go into the match."""
        v = scores
        while True:
            v = self.through(match, v, _is_neutral)
            node = self.made_by.get(v)
            if node is None:
                return None
            match.inside.append(node)
            if isinstance(node.op, MatMul):
                return node if math.isfinite(match.factor) else None
            step = self.step(match, node, scores.type.shape)
            if step is None:
                return None
            v = step

    def step(self, match: _Match, node: Node, shape: Shape) -> Value | None:
        """One op between product and softmax: what it works on, or None if it is none of those known."""
        op = node.op
        if isinstance(op, (Mul, Div)):
            x, y = node.operands
            if isinstance(op, Mul) and self.number(y) is None:
                x, y = y, x
            factor = self.number(y)
            if factor is None or (isinstance(op, Div) and factor == 0):
                return None
            match.factor *= 1 / factor if isinstance(op, Div) else factor
            return x
        if match.mask is not None or node.results[0].type.shape != shape:
            return None
        if isinstance(op, (Add, Sub)):
            x, y = node.operands
            if isinstance(op, Add) and not self.leads_to_product(x):
                x, y = y, x
            match.mask, match.mask_factor = y, -match.factor if isinstance(op, Sub) else match.factor
            return x if y.type.dtype.is_float and y not in self.active else None
        if isinstance(op, Select):
            condition, x, y = node.operands
            match.mask, match.keeps = condition, self.number(y) is not None
            fill = self.number(y if match.keeps else x)
            if fill is None:
                return None
            match.fill = fill * match.factor
            return x if match.keeps else y
        return None

    def leads_to_product(self, v: Value) -> bool:
        """Whether v is a matrix product, scaled or reshaped."""
        node = self.made_by.get(v)
        while node is not None and not isinstance(node.op, MatMul):
            if isinstance(node.op, (Mul, Div)):
                k = int(isinstance(node.op, Mul) and self.number(node.operands[0]) is not None)
                node = self.made_by.get(node.operands[k]) if self.number(node.operands[1 - k]) is not None else None
            else:
                node = self.made_by.get(node.operands[0]) if _is_neutral(node) else None
        return node is not None

    def is_closed(self, match: _Match, last: Node) -> bool:
        """Whether nothing else reads what lies between the products."""
        inside = {*match.inside, last}
        return all(v not in self.outputs and all(u in inside for u in self.users.get(v, ())) for node in match.inside for v in node.results)

    # -- the operands ----------------------------------------------------------------------------------------------
    def oriented(self, v: Value, transposed: bool) -> _Operand:
        """v, or v with its last dimensions exchanged, as a transpose of what lies beneath."""
        rank = v.type.rank
        perm = (*range(rank - 2), rank - 1, rank - 2) if transposed else tuple(range(rank))
        node = self.made_by.get(v)
        while node is not None and isinstance(node.op, Transpose):
            inner = node.op.perm
            perm = tuple(inner[p] for p in perm)
            v = node.operands[0]
            node = self.made_by.get(v)
        operand = _Operand(v, perm)
        if perm == tuple(range(rank)) and node is not None and isinstance(node.op, Reshape) and rank >= 3:
            inside = node.operands[0]
            if inside.type.rank > rank and inside.type.shape[-2:] == v.type.shape[-2:]:
                operand.apart = self.oriented(inside, False)
        return operand

    def replace(self, match: _Match, parts: _Parts, scores: Shape, node: Node) -> Value | None:
        batch, mask, kept = scores[:-2], self.mask_source(match.mask, len(scores)), self.mask_source(match.kept, len(scores))
        apart = parts.apart()
        if apart is not None and all(m is None or _fits(m.type.shape, scores, apart.q.shape[:-2]) is not None for m in (mask, kept)):
            parts = apart
            batch = parts.q.shape[:-2]
        q, k, v = parts.q, parts.k, parts.v
        dtype = q.root.type.dtype
        if (match.mask is not None and mask is None) or (match.kept is not None and kept is None) or any(p.root.type.dtype is not dtype for p in (k, v)):
            return None
        if mask is not None and not mask.type.dtype.is_bool and mask.type.dtype is not dtype:
            return None
        if not _pays(q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1]) or not self.casts_are_of(match, dtype):
            return None
        shape = (*batch, q.shape[-2], v.shape[-1])
        first = tuple(len(batch) > 0 and p.is_sequence_first and p.shape[:-2] == batch for p in (q, k, v))
        out_first = len(batch) > 0 and self.is_turned(node.results[0], shape)
        operands = [self.build(p, batch) for p in (q, k, v)]
        if mask is not None:
            operands.append(self.fit(self.build_mask(match, mask), scores, batch))
        if kept is not None:
            operands.append(self.fit(self.table[kept], scores, batch))
        powers = any(p.root in self.active for p in (q, k, v)) and _keeps_powers(q.shape[-2], k.shape[-2], q.shape[-1] + v.shape[-1])
        op = Attention(match.factor, match.fill, (first[0], first[1], first[2], out_first), match.dropout, powers)
        out = self.emit(op, *operands)[0]
        if out_first:
            (out,) = self.emit(Transpose(_swap(len(shape))), out)
        want = node.results[0].type.shape
        return out if out.type.shape == want else self.emit(Reshape(want), out)[0]

    def casts_are_of(self, match: _Match, dtype: dt.DType) -> bool:
        """Whether casts on the way are those of a softmax in float32 inside of half precision."""
        return all({n.operands[0].type.dtype, n.results[0].type.dtype} <= {dtype, dt.float32} for n in match.inside if isinstance(n.op, Cast)) and (
            dtype.itemsize == 2 or not any(isinstance(n.op, Cast) for n in match.inside)
        )

    def mask_source(self, v: Value | None, rank: int) -> Value | None:
        """A mask before it was broadcast, if its rank is at most that of the scores."""
        while v is not None and isinstance(self.op_of(v), BroadcastTo):
            v = self.operand(v)
        return v if v is not None and v.type.rank <= rank else None

    def build_mask(self, match: _Match, mask: Value) -> Value:
        """The mask as the op wants it."""
        shape = mask.type.shape
        value = self.table[mask]
        if mask.type.dtype.is_bool:
            return value if match.keeps else self.emit(BitwiseNot(), value)[0]
        if match.mask_factor == -1:
            return self.emit(Neg(), value)[0]
        if match.mask_factor != 1:
            (factor,) = self.emit(Full(number_of(match.mask_factor, mask.type.dtype), shape, mask.type.dtype))
            (value,) = self.emit(Mul(), value, factor)
        return value

    def fit(self, mask: Value, scores: Shape, batch: Shape) -> Value:
        """A mask with one dimension for each of (*batch, m, n)."""
        wanted = _fits(mask.type.shape, scores, batch)
        assert wanted is not None
        return mask if mask.type.shape == wanted else self.emit(Reshape(wanted), mask)[0]

    def build(self, operand: _Operand, batch: Shape) -> Value:
        value = self.table[operand.root]
        if operand.perm != tuple(range(len(operand.perm))):
            (value,) = self.emit(Transpose(operand.perm), value)
        wanted = (*batch, *value.type.shape[-2:])
        return value if value.type.shape == wanted else self.emit(Reshape(wanted), value)[0]

    def is_turned(self, v: Value, shape: Shape) -> bool:
        """Whether all that read v exchange heads and sequence first."""
        users = self.users.get(v, [])
        if not users or v in self.outputs:
            return False
        for user in users:
            if isinstance(user.op, Reshape) and v.type.shape != shape and user.op.shape == shape:
                if not self.is_turned(user.results[0], shape):
                    return False
            elif not isinstance(user.op, Transpose) or v.type.shape != shape or user.op.perm != _swap(len(shape)):
                return False
        return True


@dataclass
class _Operand:
    """`root` transposed by `perm`. `apart` is the same with batch dimensions that a reshape has merged."""

    root: Value
    perm: tuple[int, ...]
    apart: _Operand | None = None

    @property
    def shape(self) -> Shape:
        return tuple(self.root.type.shape[p] for p in self.perm)

    @property
    def is_sequence_first(self) -> bool:
        return len(self.perm) >= 3 and self.perm == _swap(len(self.perm))


@dataclass
class _Parts:
    q: _Operand
    k: _Operand
    v: _Operand

    def apart(self) -> _Parts | None:
        """All three with their batch dimensions apart, if these are the same."""
        q, k, v = self.q.apart, self.k.apart, self.v.apart
        if q is None or k is None or v is None or not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
            return None
        return _Parts(q, k, v)


def _swap(rank: int) -> tuple[int, ...]:
    return swap_sequence(tuple(range(rank)))


def _is_neutral(node: Node) -> bool:
    """Casts, and reshapes of batch dimensions."""
    if isinstance(node.op, Cast):
        return node.operands[0].type.dtype.is_float
    return isinstance(node.op, Reshape) and node.operands[0].type.shape[-2:] == node.results[0].type.shape[-2:] and node.results[0].type.rank >= 2


def _is_spread(node: Node) -> bool:
    """On the way from a reduction along the last dimension back to the shape before it."""
    if not isinstance(node.op, (BroadcastTo, Reshape)):
        return False
    before, after = node.operands[0].type.shape, node.results[0].type.shape
    return (isinstance(node.op, BroadcastTo) and before == (*after[:-1], 1)) or (isinstance(node.op, Reshape) and after == (*before, 1))


def _is_spread_or_stopped(node: Node) -> bool:
    """The same for the largest score, through which no gradient passes whether it is stopped or not: softmax does not depend on it."""
    return isinstance(node.op, StopGradient) or _is_spread(node)


def _along_last(node: Node) -> bool:
    op, x = node.op, node.operands[0]
    return isinstance(op, (ReduceMax, ReduceSum)) and op.axis == (x.type.rank - 1,) and x.type.shape[-1] > 1


def _fits(mask: Shape, scores: Shape, batch: Shape) -> Shape | None:
    """The shape of a mask for scores of shape (*batch, m, n), which are `scores` with the batch dimensions apart; None if it has none."""
    full = (*(1,) * (len(scores) - len(mask)), *mask)
    if all(d == 1 for d in full[:-2]):
        return (*(1,) * len(batch), *full[-2:])
    return (*batch, *full[-2:]) if full[:-2] == scores[:-2] else full if batch == scores[:-2] else None


def _pays(m: int, n: int, d: int, e: int) -> bool:
    return 0 < max(d, e) <= LARGEST_HEAD and min(d, e) > 0 and min(m, n) >= FEWEST


def _keeps_powers(m: int, n: int, features: int) -> bool:
    """Whether the exponentials of all scores may be kept: they take at most twice the memory of q, k, v and the output."""
    return n <= LONGEST_KEPT and m * n <= 2 * (m + n) * features
