"""Attention as one primitive: softmax(scale * q @ k^T, masked) @ v, and its gradient, without the matrix of scores in memory.

No public function makes these ops: the pass `fuse_attention` puts them in the place of the products and the softmax that a program is
written in. `eval` is their meaning in numpy; the native kernels are in codegen/llvm/attention.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArityError, DTypeError, ShapeError
from graphcell.ir.op import Array, Op, frozen
from graphcell.ir.types import Shape, TensorType
from graphcell.ops.dispatch import apply, apply1

Grads = tuple[Any, ...]
T = TypeVar("T")
NATURAL = (False, False, False, False)


def swap_sequence(shape: Shape) -> Shape:
    """(..., heads, sequence, features) as (..., sequence, heads, features), and back."""
    return (*shape[:-3], shape[-2], shape[-3], shape[-1])


def accumulated(dtype: dt.DType) -> dt.DType:
    """The dtype that scores are computed in."""
    return dt.float64 if dtype is dt.float64 else dt.float32


@frozen
class _Scores(Op):
    """What attention and its gradient share.

    q: (*batch, m, d), k: (*batch, n, d), v: (*batch, n, e), all of one float dtype. The mask, if there is one, has the rank of q and
    dimensions that are 1 or those of (*batch, m, n); it is Bool (scores where it is False are `fill`) or of q's dtype (added to the
    scores, after `scale`). `sequence_first` says of q, k, v and the result whether their dimensions (heads, sequence) lie in memory
    the other way round: the result, and the gradients of the others, are then of that shape. With `dropout` the last operand is a Bool
    Tensor, shaped like a mask, that says which weights are kept; they are multiplied by `dropout`, the others are 0. `powers` says whether
    attention has exp(score - peak) of all scores, (*batch, m, n), as a further result, which its gradient then takes: for short sequences
    that is quicker than to compute them again.
    """

    scale: float
    fill: float = 0.0
    sequence_first: tuple[bool, bool, bool, bool] = NATURAL
    dropout: float = 0.0
    powers: bool = False

    def masks(self, rest: Sequence[T]) -> tuple[T | None, T | None]:
        """The mask and the kept weights, of the operands after those that are always there."""
        if len(rest) > 1 + (self.dropout != 0) or (self.dropout != 0 and not rest):
            raise ArityError(f"{self.name}: takes {'one or two masks' if self.dropout else 'at most one mask'}, but got {len(rest)}")
        keep = rest[-1] if self.dropout else None
        return (rest[0] if len(rest) > (self.dropout != 0) else None), keep

    def check(self, q: TensorType, k: TensorType, v: TensorType, rest: Sequence[TensorType]) -> None:
        """Raises for operands that do not fit together."""
        if not q.dtype.is_float or k.dtype is not q.dtype or v.dtype is not q.dtype:
            raise DTypeError(f"{self.name}: q, k and v must hold floats of one dtype, but are {q.dtype}, {k.dtype} and {v.dtype}")
        fits = q.rank >= 2 and q.rank == k.rank == v.rank and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
        if not fits or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
            raise ShapeError(f"{self.name}: q is {q.shape}, k is {k.shape} and v is {v.shape}")
        if any(self.sequence_first) and q.rank < 3:
            raise ShapeError(f"{self.name}: sequence_first needs heads, but q is {q.shape}")
        whole = (*q.shape[:-1], k.shape[-2])
        for mask in self.masks(rest):
            if mask is not None and (mask.rank != q.rank or any(d not in (1, e) for d, e in zip(mask.shape, whole, strict=True))):
                raise ShapeError(f"{self.name}: a mask of shape {mask.shape} does not fit scores of shape {whole}")
        mask, keep = self.masks(rest)
        if mask is not None and not mask.dtype.is_bool and mask.dtype is not q.dtype:
            raise DTypeError(f"{self.name}: the mask must be Bool or {q.dtype}, but is {mask.dtype}")
        if keep is not None and not keep.dtype.is_bool:
            raise DTypeError(f"{self.name}: what is kept must be Bool, but is {keep.dtype}")

    def placed(self, part: int, type: TensorType) -> TensorType:
        """The type in which operand or result number `part` is written."""
        return type.with_shape(swap_sequence(type.shape)) if self.sequence_first[part] else type

    def turned(self, part: int, x: Array) -> Array:
        """x between its natural shape and the one it is written in."""
        return x.swapaxes(-2, -3) if self.sequence_first[part] else x

    def dropped(self, x: Array, keep: Array | None) -> Array:
        """Weights, or their gradients, after dropout."""
        return x if keep is None else np.asarray(np.where(keep, x * x.dtype.type(self.dropout), x.dtype.type(0)))

    def scores(self, q: Array, k: Array, mask: Array | None) -> Array:
        """In numpy: scaled and masked, in at least float32."""
        s = np.matmul(q, k.swapaxes(-1, -2)) * q.dtype.type(self.scale)
        if mask is None:
            return np.asarray(s)
        return np.asarray(np.where(mask, s, s.dtype.type(self.fill)) if mask.dtype == np.bool_ else s + mask.astype(s.dtype))


@frozen
class Attention(_Scores):
    """Operands (q, k, v), then the mask, if there is one, then what dropout keeps, if there is dropout: see above.

    Results: the output, (*batch, m, e); and of each row of scores the largest one, `peak`, and the sum of exp(score - peak), `total`:
    (*batch, m) in float32 (float64 for float64), which the gradient needs; and in the same dtype, if asked for, all `powers`. No gradient
    flows through these.
    """

    name = "attention"

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        if len(operands) < 3:
            raise ArityError(f"attention: takes q, k, v and perhaps masks, but got {len(operands)} operands")
        q, k, v, *rest = operands
        self.check(q, k, v, rest)
        rows = TensorType(accumulated(q.dtype), q.shape[:-1])
        powers = (TensorType(rows.dtype, (*q.shape[:-1], k.shape[-2])),) if self.powers else ()
        return self.placed(3, q.with_shape((*q.shape[:-1], v.shape[-1]))), rows, rows, *powers

    def eval(self, q: Array, k: Array, v: Array, *rest: Array) -> tuple[Array, ...]:  # type: ignore[override]
        mask, keep = self.masks(rest)
        wide = accumulated(dt.from_numpy(q.dtype)).np_type
        with np.errstate(all="ignore"):
            s = self.scores(q.astype(wide), k.astype(wide), mask)
            peak = s.max(-1, keepdims=True, initial=-np.inf)
            powers = np.exp(s - np.where(peak == -np.inf, peak.dtype.type(0), peak))  # a row without any score: all 0, and NaN by the division
            total = powers.sum(-1, keepdims=True)
            out = np.matmul(self.dropped(powers, keep), v.astype(wide)) / total
        return np.ascontiguousarray(self.turned(3, out.astype(q.dtype))), peak[..., 0], total[..., 0], *((powers,) if self.powers else ())

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        q, k, v, *rest = inputs
        out, peak, total, *powers = outputs
        gradient = AttentionGrad(self.scale, self.fill, self.sequence_first, self.dropout, self.powers)
        parts = apply(gradient, q, k, v, out, peak, total, cotangents[0], *powers, *rest)
        first = [turn(x) if flag else x for x, flag in zip(parts, self.sequence_first[:3], strict=True)]
        mask, _ = self.masks(rest)
        if mask is None or mask.dtype.is_bool:
            return (*first, *(None for _ in rest))
        g = turn(cotangents[0]) if self.sequence_first[3] else cotangents[0]
        return (*first, sum_like(_Rules(self, q, k, v, rest, g).of_scores, mask), *(None for _ in rest[1:]))


@frozen
class AttentionGrad(_Scores):
    """Operands (q, k, v, out, peak, total, g), perhaps the powers, and the masks that `Attention` had, where `out`, `peak`, `total` and the
    powers are what `Attention` gave and g, of the type of `out`, is the cotangent of `out`. Results: the gradients of q, k and v.
    """

    name = "attention_grad"

    def given_powers(self, rest: Sequence[T]) -> tuple[T | None, list[T]]:
        """The powers, and the masks, of the operands after g."""
        return (rest[0], list(rest[1:])) if self.powers else (None, list(rest))

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        if len(operands) < 7 + self.powers:
            raise ArityError(f"attention_grad: takes q, k, v, out, peak, total, g and perhaps powers and masks, but got {len(operands)} operands")
        q, k, v, out, peak, total, g, *rest = operands
        powers, rest = self.given_powers(rest)
        self.check(q, k, v, rest)
        rows = TensorType(accumulated(q.dtype), q.shape[:-1])
        wanted = self.placed(3, q.with_shape((*q.shape[:-1], v.shape[-1])))
        if powers not in (None, TensorType(rows.dtype, (*q.shape[:-1], k.shape[-2]))):
            raise ShapeError(f"attention_grad: powers of type {powers} are not those of {q} and {k}")
        if out != wanted or g != wanted or peak != rows or total != rows:
            raise ShapeError(f"attention_grad: the results of attention are {wanted} and {rows}, but out is {out}, g {g}, peak {peak} and total {total}")
        return self.placed(0, q), self.placed(1, k), self.placed(2, v)

    def eval(  # type: ignore[override]
        self, q: Array, k: Array, v: Array, out: Array, peak: Array, total: Array, g: Array, *more: Array
    ) -> tuple[Array, ...]:
        powers, rest = self.given_powers(more)
        mask, keep = self.masks(rest)
        wide, dtype = peak.dtype, q.dtype
        q, k, v, out, g = (x.astype(wide) for x in (q, k, v, self.turned(3, out), self.turned(3, g)))
        with np.errstate(all="ignore"):
            p = (np.exp(self.scores(q, k, mask) - peak[..., None]) if powers is None else powers) / total[..., None]
            dp = self.dropped(np.matmul(g, v.swapaxes(-1, -2)), keep)
            ds = p * (dp - (g * out).sum(-1, keepdims=True)) * peak.dtype.type(self.scale)
            if mask is not None and mask.dtype == np.bool_:
                ds = np.where(mask, ds, peak.dtype.type(0))
            parts = np.matmul(ds, k), np.matmul(ds.swapaxes(-1, -2), q), np.matmul(self.dropped(p, keep).swapaxes(-1, -2), g)
        return tuple(np.ascontiguousarray(self.turned(part, x.astype(dtype))) for part, x in enumerate(parts))

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        q, k, v, _, _, _, g, *rest = inputs
        powers, rest = self.given_powers(rest)
        g = turn(g) if self.sequence_first[3] else g
        seeds = [turn(c) if flag else c for c, flag in zip(cotangents, self.sequence_first[:3], strict=True)]
        dq, dk, dv, dg, dmask = _Rules(self, q, k, v, rest, g).second_order(*seeds)
        dg = turn(dg) if self.sequence_first[3] else dg
        mask, keep = self.masks(rest)
        unused = () if powers is None else (None,)
        return (dq, dk, dv, None, None, None, dg, *unused, *(() if mask is None else (dmask,)), *(() if keep is None else (None,)))


def turn(x: Any) -> Any:
    """A Tensor with its dimensions -2 and -3 exchanged."""
    rank = x.ndim
    return x.transpose((*range(rank - 3), rank - 2, rank - 3, rank - 1))


def sum_like(x: Any, mask: Any) -> Any:
    """The gradient of an added mask, whose dimensions of 1 were repeated."""
    from graphcell.ops.reduction import sum_to_shape

    return sum_to_shape(x, mask.shape)


class _Rules:
    """The gradients in primitives, with the matrix of scores: for masks that are learned, and for gradients of gradients.

    With probabilities p, drop(x) what dropout makes of x, dP = drop(g v^T) and dS = p (dP - rowsum(p dP)): dq = scale dS k,
    dk = scale dS^T q, dv = drop(p)^T g.
    """

    def __init__(self, op: _Scores, q: Any, k: Any, v: Any, rest: list[Any], g: Any):
        from graphcell.ops.functional.common import broadcast, cast, full_like, select
        from graphcell.ops.functional.softmax import softmax

        self.op, self.q, self.k, self.v, self.g = op, q, k, v, g
        s = self.product(q, k, False, True) * op.scale
        mask, kept = op.masks(rest)
        self.drops = None if kept is None else broadcast(kept, s.shape)
        self.keep = broadcast(mask, s.shape) if mask is not None and mask.dtype.is_bool else None
        self.mask = mask if self.keep is None else None
        if self.keep is not None:
            s = select(self.keep, s, full_like(s, op.fill))
        elif self.mask is not None:
            s = s + broadcast(cast(self.mask, s.dtype), s.shape)
        self.p = softmax(s, -1)
        self.dp = self.dropped(self.product(g, v, False, True))
        self.of_scores = self.through_softmax(self.dp)
        """The gradient of the scores after scale and mask."""

    def product(self, x: Any, y: Any, transpose_x: bool = False, transpose_y: bool = False) -> Any:
        from graphcell.ops.contraction import MatMul

        return apply1(MatMul(transpose_x, transpose_y), x, y)

    def dropped(self, x: Any) -> Any:
        from graphcell.ops.functional.common import select, zeros_like

        return x if self.drops is None else select(self.drops, x * self.op.dropout, zeros_like(x))

    def row_sum(self, x: Any) -> Any:
        from graphcell.ops.functional.common import broadcast
        from graphcell.ops.reduction import ReduceSum

        return broadcast(apply1(ReduceSum((x.ndim - 1,), True), x), x.shape)

    def through_softmax(self, g: Any) -> Any:
        """p (g - rowsum(p g))."""
        return self.p * (g - self.row_sum(self.p * g))

    def kept(self, x: Any) -> Any:
        """What of a gradient of the masked scores reaches the scores."""
        from graphcell.ops.functional.common import select, zeros_like

        return x if self.keep is None else select(self.keep, x, zeros_like(x))

    def second_order(self, a: Any, b: Any, c: Any) -> tuple[Any, ...]:
        """Gradients of q, k, v, g and an added mask, where a, b, c are the cotangents of dq, dk, dv."""
        scale, q, k, v, g, p = self.op.scale, self.q, self.k, self.v, self.g, self.p
        ds = self.kept(self.of_scores)
        u = self.kept((self.product(a, k, False, True) + self.product(q, b, False, True)) * scale)
        centre = self.dp - self.row_sum(p * self.dp)
        of_p = u * centre - self.row_sum(u * p) * self.dp + self.dropped(self.product(g, c, False, True))
        w = self.dropped(self.through_softmax(u))
        y = self.through_softmax(of_p)
        through = self.kept(y)
        dq = (self.product(ds, b) + self.product(through, k)) * scale
        dk = (self.product(ds, a, True) + self.product(through, q, True)) * scale
        dv = self.product(w, g, True)
        dg = self.product(w, v) + self.product(self.dropped(p), c)
        return dq, dk, dv, dg, None if self.mask is None else sum_like(y, self.mask)
