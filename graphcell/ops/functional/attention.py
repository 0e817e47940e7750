"""Attention of several heads, in the form that the compiler makes one op of: see passes/attention.py.

Enters: queries, keys and values after their projections, (batch, steps, heads * features), and a mask for the scores, which have the shape (batch,
heads, queries, keys). A mask is Bool, True where a score must not count, or a float Tensor that is added. Leaves: the weights of the values, or
their weighted sums. A query of which every key is masked gives NaN.
"""

from __future__ import annotations

import math
from typing import Any

from graphcell.errors import ShapeError
from graphcell.ops.functional.common import broadcast, broadcast_shapes, cast, full_like, select
from graphcell.ops.functional.comparison import logical_or
from graphcell.ops.functional.contraction import product
from graphcell.ops.functional.movement import permuted, reshaped
from graphcell.ops.functional.softmax import softmax
from graphcell.ops.kernels import composite
from graphcell.tensor import Tensor


@composite
def attend(q: Tensor, k: Tensor, v: Tensor, heads: int, mask: Tensor | None) -> Tensor:
    """softmax(q @ k^T / sqrt(features), masked) @ v for each head: (batch, queries, heads * features of v)."""
    return weighted_sum(attention_weights(q, k, heads, mask), v)


@composite
def attention_weights(q: Tensor, k: Tensor, heads: int, mask: Tensor | None) -> Tensor:
    """softmax(q @ k^T / sqrt(features), masked) for each head: (batch, heads, queries, keys)."""
    if q.shape[0] != k.shape[0]:
        raise ShapeError(f"attention: queries of batch size {q.shape[0]} and keys of batch size {k.shape[0]}")
    split = _split(q, heads)
    scores: Any = product(split, _split(k, heads), transpose_y=True) * (1 / math.sqrt(split.shape[-1]))
    if mask is None:
        return softmax(scores)
    if not mask.dtype.is_bool:
        return softmax(scores + cast(mask, scores.dtype))
    return softmax(select(mask, full_like(scores, -math.inf), scores))


@composite
def weighted_sum(weights: Tensor, v: Tensor) -> Tensor:
    """The values, weighted for each query: (batch, queries, heads * features)."""
    batch, heads, queries, _ = weights.shape
    return reshaped(permuted(product(weights, _split(v, heads)), (0, 2, 1, 3)), (batch, queries, v.shape[2]))


def _split(x: Tensor, heads: int) -> Tensor:
    """(batch, steps, heads * features) as (batch, heads, steps, features)."""
    batch, steps, features = x.shape
    return permuted(reshaped(x, (batch, steps, heads, features // heads)), (0, 2, 1, 3))


@composite
def both_masks(a: Tensor, b: Tensor) -> Tensor:
    """One mask for two, each Bool or float; they broadcast."""
    if not a.dtype.is_bool and not b.dtype.is_bool:
        return a + b  # type: ignore[operator, no-any-return]
    if a.dtype.is_bool and b.dtype.is_bool:
        return logical_or(a, b)
    refused, added = (a, b) if a.dtype.is_bool else (b, a)
    shape = broadcast_shapes("attention", a.shape, b.shape)
    added = broadcast(added, shape)
    return select(broadcast(refused, shape), full_like(added, -math.inf), added)
