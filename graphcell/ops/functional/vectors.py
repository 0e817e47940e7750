"""Public functions of vectors: distances, cross product, covariance, powers, the trapezoidal rule.

Enters: Tensors whose vectors lie along one dimension. Leaves: new Tensors. Refuses: integers where a root or a quotient is taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ops.automatic import listed
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.arithmetic import add, div, maximum, mul, pow, sub
from graphcell.ops.functional.axes import int_of, normalize_axis, tensor_of
from graphcell.ops.functional.common import broadcast, broadcast_shapes, cast, constant, full_like, select
from graphcell.ops.functional.comparison import greater
from graphcell.ops.functional.contraction import matmul
from graphcell.ops.functional.movement import cut, joined, permuted, reshaped, stack
from graphcell.ops.functional.reductions import mean_of, total
from graphcell.ops.functional.softmax import vector_norm
from graphcell.ops.indexing import Gather
from graphcell.ops.kernels import composite
from graphcell.tensor import Tensor

__all__ = ["cdist", "cosine_similarity", "cov", "cross", "dist", "pdist", "renorm", "trapz", "vander"]


def _floats(x: Any, function: str, what: str) -> Tensor:
    t = tensor_of(x, function, what)
    if not t.dtype.is_float:
        raise DTypeError(f"{function}: {what} must hold floats, but is {t.dtype}", hint="cast it to float32 first")
    return t


def _order(p: Any, function: str) -> float:
    if not isinstance(p, (int, float)) or isinstance(p, bool):
        raise ArgumentTypeError(f"{function}: p must be a number, but is {type(p).__name__}")
    if p < 0:
        raise ArgumentValueError(f"{function}: p must not be negative, but is {p}")
    return float(p)


@listed
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0) -> Tensor:
    """The distances of order `p` between the vectors of two sets: (*, m, d) and (*, n, d) give (*, m, n).

    Raises:
        TypeError: no Tensors of floats, p no number. ValueError: shapes that do not fit, p negative.
    """
    x, y = _floats(x1, "cdist", "x1"), _floats(x2, "cdist", "x2")
    if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-1]:
        raise ShapeError(f"cdist: x1 of shape {x.shape} and x2 of shape {y.shape} must be (*, m, d) and (*, n, d)")
    left, right = reshaped(x, (*x.shape[:-1], 1, x.shape[-1])), reshaped(y, (*y.shape[:-2], 1, *y.shape[-2:]))
    return vector_norm(sub(left, right), _order(p, "cdist"), -1)


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The norm of order `p` of all elements of input - other, which broadcast.

    Raises:
        TypeError: no Tensors, p no number. ValueError: shapes that do not broadcast.
    """
    return vector_norm(sub(tensor_of(input, "dist"), tensor_of(other, "dist", "other")), p)


@listed
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The distances of order `p` of each vector from those after it: (*, n, d) gives (*, n·(n-1)/2).

    Raises:
        TypeError: no Tensor of floats, p no number. ValueError: less than two dimensions, p negative.
    """
    x, order = _floats(input, "pdist", "input"), _order(p, "pdist")
    if x.ndim < 2:
        raise ShapeError(f"pdist: the input must have two dimensions at least, but its shape is {x.shape}")
    first, second = (constant(k) for k in np.triu_indices(x.shape[-2], 1))
    pairs = [apply1(Gather((x.ndim - 2,)), x, k) for k in (first, second)]
    return vector_norm(sub(*pairs), order, -1)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-08) -> Tensor:
    """The cosine of the angle between vectors along `dim`; the operands broadcast. Norms below `eps` count as `eps`.

    Raises:
        TypeError: no Tensors of floats, dim no int. ValueError: shapes that do not broadcast, dim out of range.
    """
    x, y = _floats(x1, "cosine_similarity", "x1"), _floats(x2, "cosine_similarity", "x2")
    shape = broadcast_shapes("cosine_similarity", x.shape, y.shape)
    k = normalize_axis(dim, len(shape), "cosine_similarity", "dim")
    x, y = broadcast(x, shape), broadcast(y, shape)
    norms = [maximum(vector_norm(t, 2, k, True), eps) for t in (x, y)]
    return total(mul(div(x, norms[0]), div(y, norms[1])), (k,))


@listed
def renorm(input: Tensor, p: float, axis: int, maxnorm: float) -> Tensor:
    """The slices along `axis` whose norm of order `p` is larger than `maxnorm` scaled down to it.

    Raises:
        TypeError: no Tensor of floats, no numbers. ValueError: p not positive, axis out of range.
    """
    x, order = _floats(input, "renorm", "input"), _order(p, "renorm")
    k = normalize_axis(axis, x.ndim, "renorm")
    if order == 0:
        raise ArgumentValueError("renorm: p must be positive, but is 0")
    rows = reshaped(x, (*x.shape, 1))  # so that there is always a dimension to reduce
    norms = reshaped(vector_norm(rows, order, tuple(a for a in range(rows.ndim) if a != k), True), tuple(d if a == k else 1 for a, d in enumerate(x.shape)))
    scale = div(full_like(norms, float(maxnorm)), add(norms, 1e-7))
    factor = select(greater(norms, full_like(norms, float(maxnorm))), scale, full_like(norms, 1))
    return mul(x, broadcast(factor, x.shape))


@composite
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross products of vectors of three elements along `dim` (default: the first dimension of extent 3); the operands broadcast.

    Raises:
        TypeError: no Tensors. ValueError: shapes that do not broadcast, no dimension of extent 3.
    """
    x, y = tensor_of(input, "cross"), tensor_of(other, "cross", "other")
    shape = broadcast_shapes("cross", x.shape, y.shape)
    k = (shape.index(3) if 3 in shape else -1) if dim is None else normalize_axis(dim, len(shape), "cross", "dim")
    if k < 0 or shape[k] != 3:
        raise ShapeError(f"cross: dim must name a dimension of extent 3, but is {dim} for shape {shape}")
    x, y = broadcast(x, shape), broadcast(y, shape)
    a, b = [cut(x, k, n, 1) for n in range(3)], [cut(y, k, n, 1) for n in range(3)]
    return joined(tuple(sub(mul(a[m], b[n]), mul(a[n], b[m])) for m, n in ((1, 2), (2, 0), (0, 1))), k)


def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """The covariance of variables (rows) over observations (columns); of one row a scalar.

    Args:
        correction: taken off the number of observations in the divisor.
        fweights: how often each observation counts, integers. aweights: how much each observation weighs, floats.

    Raises:
        TypeError: no Tensors, or of other dtypes. ValueError: more than two dimensions, weights of another length.
    """
    x = tensor_of(input, "cov")
    if x.ndim > 2:
        raise ShapeError(f"cov: the input must have two dimensions at most, but its shape is {x.shape}")
    rows = reshaped(x, (1,) * (2 - x.ndim) + x.shape)
    rows = rows if rows.dtype.is_float else cast(rows, dt.float32)
    weights = _weights(rows, fweights, aweights)
    less = int_of(correction, "cov", "correction")
    if weights is None:
        centred = sub(rows, broadcast(mean_of(rows, (1,), True), rows.shape))
        result = div(matmul(centred, permuted(centred, (1, 0))), max(rows.shape[1] - less, 0))
    else:
        result = _weighted(rows, weights, less, aweights)
    return reshaped(result, ()) if result.size == 1 else result


def _weights(rows: Tensor, fweights: Any, aweights: Any) -> Tensor | None:
    weights: Tensor | None = None
    for given, what in ((fweights, "fweights"), (aweights, "aweights")):
        if given is None:
            continue
        w = tensor_of(given, "cov", what)
        if w.shape != rows.shape[1:]:
            raise ShapeError(f"cov: {what} must have the shape {rows.shape[1:]}, but has {w.shape}")
        if (what == "fweights") != w.dtype.is_integer:
            raise DTypeError(f"cov: {what} must hold {'integers' if what == 'fweights' else 'floats'}, but is {w.dtype}")
        weights = cast(w, rows.dtype) if weights is None else mul(weights, cast(w, rows.dtype))
    return weights


def _weighted(rows: Tensor, weights: Tensor, correction: int, aweights: Tensor | None) -> Tensor:
    w = reshaped(weights, (1, rows.shape[1]))
    mass = total(w, (0, 1))
    centred = sub(rows, div(total(mul(rows, w), (1,), True), mass))
    unbiased = mul(div(total(mul(w, reshaped(cast(aweights, rows.dtype), w.shape)), (0, 1)), mass), correction) if aweights is not None else correction
    return div(matmul(centred, permuted(mul(centred, w), (1, 0))), maximum(sub(mass, unbiased), 0))


def trapz(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """The integral along `dim` by the trapezoidal rule, over the places `x` or at the distance `dx`.

    Raises:
        TypeError: no Tensors. ValueError: dim out of range, x of another shape.
    """
    t = tensor_of(y, "trapz", "y")
    k = normalize_axis(dim, t.ndim, "trapz", "dim")
    t = t if t.dtype.is_float else cast(t, dt.float32)
    count = max(t.shape[k] - 1, 0)
    heights = add(cut(t, k, 0, count), cut(t, k, min(1, t.shape[k]), count))
    if x is None:
        return total(mul(heights, dx / 2), (k,))
    places = tensor_of(x, "trapz", "x")
    if places.ndim == 1:
        places = reshaped(places, tuple(places.size if a == k else 1 for a in range(t.ndim)))
    if places.ndim != t.ndim or places.shape[k] != t.shape[k]:
        raise ShapeError(f"trapz: x of shape {places.shape} does not fit y of shape {t.shape} along dimension {k}")
    steps = sub(cut(places, k, min(1, places.shape[k]), count), cut(places, k, 0, count))
    return total(mul(mul(heights, cast(steps, t.dtype)), 0.5), (k,))


def vander(x: Tensor, N: int | None = None) -> Tensor:
    """The powers N-1, …, 1, 0 of a 1-D Tensor's elements, as columns; N is the number of elements by default.

    Raises:
        TypeError: x is no Tensor, N no int. ValueError: not one dimension, N not positive.
    """
    t = tensor_of(x, "vander", "x")
    count = t.size if N is None else int_of(N, "vander", "N")
    if t.ndim != 1 or count <= 0:
        raise ArgumentValueError(f"vander: x must have one dimension and N be positive, but they are {t.shape} and {count}")
    return stack([full_like(t, 1) if n == 0 else pow(t, n) for n in reversed(range(count))], 1)
