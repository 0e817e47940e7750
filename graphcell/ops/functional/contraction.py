"""Public products of vectors, matrices and batches of them. All run through the one contraction primitive, `MatMul`.

Enters: Tensors of one number type. Leaves: their product in that dtype. Refuses: mixed dtypes, and shapes that do not fit.
"""

from __future__ import annotations

import math
from typing import Any

from graphcell.errors import ContractionShapeError, DTypeError, ShapeError
from graphcell.ir.types import Shape
from graphcell.ops.automatic import listed
from graphcell.ops.contraction import MatMul
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.arithmetic import add, mul
from graphcell.ops.functional.axes import int_or_ints, normalize_axis, tensor_of
from graphcell.ops.functional.common import broadcast, broadcast_shapes, cast
from graphcell.ops.functional.movement import permuted, reshaped
from graphcell.ops.functional.reductions import total
from graphcell.ops.kernels import composite, elementary
from graphcell.tensor import Tensor

__all__ = [
    "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "dense", "dot", "ger", "inner", "kron", "matmul", "mm", "mv", "outer",
    "tensor_dot", "vecdot",
]  # fmt: skip


def _operands(x: Any, y: Any, function: str, first: str = "input", second: str = "other") -> tuple[Tensor, Tensor]:
    a, b = tensor_of(x, function, first), tensor_of(y, function, second)
    if a.dtype is not b.dtype:
        raise DTypeError(f"{function}: both operands must have one dtype, but {first} is {a.dtype} and {second} is {b.dtype}", hint="cast one of them")
    if a.dtype.is_bool:
        raise DTypeError(f"{function}: the operands must hold numbers, but are Bool")
    return a, b


def product(x: Tensor, y: Tensor, transpose_x: bool = False, transpose_y: bool = False) -> Tensor:
    """x @ y over the last two dimensions (two at least), either one transposed first; batch dimensions broadcast.

    A matrix on the right, or a batch of one, is applied to all rows of x at once.
    """
    try:
        batch = broadcast_shapes("matmul", x.shape[:-2], y.shape[:-2])
    except ShapeError:
        raise ContractionShapeError(f"matmul: the batch dimensions of {x.shape} and {y.shape} cannot be broadcast together") from None
    if not batch:
        return apply1(MatMul(transpose_x, transpose_y), x, y)
    if math.prod(y.shape[:-2]) == 1 and not transpose_x and x.shape[:-2] == batch:
        rows, k = math.prod(x.shape[:-1]), x.shape[-1]
        flat = apply1(MatMul(False, transpose_y), reshaped(x, (rows, k)), reshaped(y, y.shape[-2:]))
        return reshaped(flat, (*x.shape[:-1], flat.shape[-1]))
    return apply1(MatMul(transpose_x, transpose_y), broadcast(x, batch + x.shape[-2:]), broadcast(y, batch + y.shape[-2:]))


@elementary
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product as numpy has it: batch dimensions broadcast; a vector on the left is a row, on the right a column, and its
    dimension is left out of the result.

    Raises:
        TypeError: no Tensors, different dtypes, or Bool. ValueError: a scalar, inner sizes that differ, batch dimensions that do not broadcast.
    """
    x, y = _operands(input, other, "matmul")
    if x.ndim == 0 or y.ndim == 0:
        raise ShapeError(f"matmul: operands need one dimension at least, but input is {x.shape} and other is {y.shape}")
    inner = y.shape[-2] if y.ndim > 1 else y.shape[0]
    if x.shape[-1] != inner:
        raise ContractionShapeError(f"matmul: inner sizes differ, input is {x.shape} and other is {y.shape}")
    a = reshaped(x, (1, x.shape[0])) if x.ndim == 1 else x
    b = reshaped(y, (y.shape[0], 1)) if y.ndim == 1 else y
    z = product(a, b)
    shape = z.shape if x.ndim > 1 else z.shape[:-2] + z.shape[-1:]
    return reshaped(z, shape if y.ndim > 1 else shape[:-1])


def _of_rank(x: Tensor, rank: int, function: str, what: str) -> Tensor:
    if x.ndim != rank:
        raise ShapeError(f"{function}: {what} must have {rank} dimension{'s' * (rank > 1)}, but its shape is {x.shape}")
    return x


@elementary
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices.

    Raises:
        TypeError: no Tensors, or different dtypes. ValueError: not two dimensions, or inner sizes that differ.
    """
    x, y = _operands(input, mat2, "mm", second="mat2")
    return apply1(MatMul(), _of_rank(x, 2, "mm", "input"), _of_rank(y, 2, "mm", "mat2"))


@elementary
def bmm(input_x: Tensor, mat2: Tensor) -> Tensor:
    """The products of matrices that lie along the last two dimensions of two Tensors with the same leading dimensions.

    Raises:
        TypeError: no Tensors, or different dtypes. ValueError: less than two dimensions, shapes that do not fit.
    """
    x, y = _operands(input_x, mat2, "bmm", "input_x", "mat2")
    return apply1(MatMul(), x, y)


@listed
def mv(mat: Tensor, vec: Tensor) -> Tensor:
    """A matrix times a vector.

    Raises:
        TypeError: no Tensors, or different dtypes. ValueError: no matrix and vector, or sizes that differ.
    """
    x, y = _operands(mat, vec, "mv", "mat", "vec")
    return matmul(_of_rank(x, 2, "mv", "mat"), _of_rank(y, 1, "mv", "vec"))


@composite
def dense(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias.

    Args:
        input: (*, in). weight: (out, in), or (in,) for a result without last dimension. bias: (out,), or a scalar; None for none.

    Raises:
        TypeError: no Tensors, or different dtypes. ValueError: inner sizes that differ, a bias that does not fit.
    """
    x, w = _operands(input, weight, "dense", second="weight")
    if x.ndim == 0 or not 1 <= w.ndim <= 2 or x.shape[-1] != w.shape[-1]:
        raise ShapeError(f"dense: input of shape {x.shape} does not fit weight of shape {w.shape}; (*, in) and (out, in) are needed")
    if w.ndim == 1:
        y = matmul(x, w)
    else:
        rows = math.prod(x.shape[:-1])
        y = reshaped(apply1(MatMul(False, True), reshaped(x, (rows, x.shape[-1])), w), (*x.shape[:-1], w.shape[0]))
    if bias is None:
        return y
    _, b = _operands(y, bias, "dense", "input", "bias")
    if not _fits(b.shape, y.shape):
        raise ShapeError(f"dense: a bias of shape {b.shape} does not fit a result of shape {y.shape}")
    return add(y, b)


def _fits(shape: Shape, result: Shape) -> bool:
    """True if `shape` broadcasts to `result`."""
    return len(shape) <= len(result) and all(d in (1, e) for d, e in zip(reversed(shape), reversed(result), strict=False))


# -- products of vectors --------------------------------------------------------------------------------------------------------
def contract(x: Tensor, y: Tensor, x_axes: tuple[int, ...], y_axes: tuple[int, ...]) -> Tensor:
    """The sum of products over pairs of dimensions; the result has the other dimensions of x, then those of y."""
    x_rest = tuple(k for k in range(x.ndim) if k not in x_axes)
    y_rest = tuple(k for k in range(y.ndim) if k not in y_axes)
    x_shape, y_shape = tuple(x.shape[k] for k in x_rest), tuple(y.shape[k] for k in y_rest)
    inner = math.prod(x.shape[k] for k in x_axes)
    a = reshaped(permuted(x, x_rest + x_axes), (math.prod(x_shape), inner))
    b = reshaped(permuted(y, y_axes + y_rest), (inner, math.prod(y_shape)))
    return reshaped(apply1(MatMul(), a, b), x_shape + y_shape)


def dot(input: Tensor, other: Tensor) -> Tensor:
    """The sum of products over the last dimension of `input` and the one before the last (or the only one) of `other`.

    Raises:
        TypeError: no Tensors, or different dtypes. ValueError: a scalar, or sizes that differ.
    """
    x, y = _operands(input, other, "dot")
    if x.ndim == 0 or y.ndim == 0 or x.shape[-1] != y.shape[max(y.ndim - 2, 0)]:
        raise ShapeError(f"dot: shapes {x.shape} and {y.shape} do not fit")
    return contract(x, y, (x.ndim - 1,), (max(y.ndim - 2, 0),))


@listed
def inner(input: Tensor, other: Tensor) -> Tensor:
    """The sum of products over the last dimensions; with a scalar the product with it.

    Raises:
        TypeError: no Tensors, or different dtypes. ValueError: sizes that differ.
    """
    x, y = _operands(input, other, "inner")
    if x.ndim == 0 or y.ndim == 0:
        return mul(x, y)
    if x.shape[-1] != y.shape[-1]:
        raise ShapeError(f"inner: the last extents differ, input is {x.shape} and other is {y.shape}")
    return contract(x, y, (x.ndim - 1,), (y.ndim - 1,))


def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """All products of the elements of two vectors, (m,) and (n,) give (m, n).

    Raises:
        TypeError: no Tensors. ValueError: not one dimension.
    """
    x, y = tensor_of(input, "outer"), tensor_of(vec2, "outer", "vec2")
    return mul(reshaped(_of_rank(x, 1, "outer", "input"), (x.size, 1)), reshaped(_of_rank(y, 1, "outer", "vec2"), (1, y.size)))


def ger(input: Tensor, vec2: Tensor) -> Tensor:
    """The same as `outer`."""
    return outer(input, vec2)


def vecdot(x: Tensor, y: Tensor, *, axis: int = -1) -> Tensor:
    """The sums of products over `axis` of two Tensors that broadcast.

    Raises:
        TypeError: no Tensors, axis no int. ValueError: shapes that do not broadcast, axis out of range.
    """
    z = mul(tensor_of(x, "vecdot", "x"), tensor_of(y, "vecdot", "y"))
    return total(z, (normalize_axis(axis, z.ndim, "vecdot"),))


@listed
def tensor_dot(x1: Tensor, x2: Tensor, axes: Any) -> Tensor:
    """The sum of products over several pairs of dimensions.

    Args:
        axes: an int n: the last n dimensions of x1 and the first n of x2; or a pair of ints or of tuples of ints: dimensions of x1, and of x2.

    Raises:
        TypeError: no Tensors, or different dtypes. ValueError: axes that are out of range, not as many on both sides, or of different extents.
    """
    x, y = _operands(x1, x2, "tensor_dot", "x1", "x2")
    if isinstance(axes, int):
        if not 0 <= axes <= min(x.ndim, y.ndim):
            raise ShapeError(f"tensor_dot: {axes} axes do not fit shapes {x.shape} and {y.shape}")
        left, right = tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes))
    else:
        if not isinstance(axes, (tuple, list)) or len(axes) != 2:
            raise ShapeError(f"tensor_dot: axes must be an int or a pair, but are {axes!r}")
        left = tuple(normalize_axis(a, x.ndim, "tensor_dot", "axes") for a in int_or_ints(axes[0], "tensor_dot", "axes"))
        right = tuple(normalize_axis(a, y.ndim, "tensor_dot", "axes") for a in int_or_ints(axes[1], "tensor_dot", "axes"))
    if len(set(left)) != len(left) or len(set(right)) != len(right) or [x.shape[a] for a in left] != [y.shape[a] for a in right]:
        raise ShapeError(f"tensor_dot: axes {axes} do not fit shapes {x.shape} and {y.shape}")
    return contract(x, y, left, right)


@composite
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: each element of `input` times the whole of `other`, as blocks.

    Raises:
        TypeError: no Tensors.
    """
    x, y = tensor_of(input, "kron"), tensor_of(other, "kron", "other")
    rank = max(x.ndim, y.ndim)
    a, b = (1,) * (rank - x.ndim) + x.shape, (1,) * (rank - y.ndim) + y.shape
    left = reshaped(x, tuple(d for n in a for d in (n, 1)))
    right = reshaped(y, tuple(d for n in b for d in (1, n)))
    return reshaped(mul(left, right), tuple(m * n for m, n in zip(a, b, strict=True)))


# -- products with an addend ------------------------------------------------------------------------------------------------------
def _scaled(x: Tensor, factor: Any) -> Tensor:
    return x if isinstance(factor, (int, float)) and factor == 1 else cast(mul(x, factor), x.dtype)


def _with_addend(input: Any, z: Tensor, beta: Any, alpha: Any, function: str) -> Tensor:
    """beta * input + alpha * z, which broadcast; with beta 0 the values of the input are not looked at."""
    x = tensor_of(input, function)
    if isinstance(beta, (int, float)) and beta == 0:
        return broadcast(_scaled(z, alpha), broadcast_shapes(function, x.shape, z.shape))
    broadcast_shapes(function, x.shape, z.shape)  # for its error
    return add(_scaled(x, beta), _scaled(z, alpha))


@composite
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2), of matrices.

    Raises:
        TypeError: no Tensors, or different dtypes. ValueError: shapes that do not fit.
    """
    return _with_addend(input, mm(mat1, mat2), beta, alpha, "addmm")


@composite
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat @ vec), of a matrix and a vector. Errors: as `addmm`."""
    return _with_addend(input, mv(mat, vec), beta, alpha, "addmv")


def addr(x: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * x + alpha * outer(vec1, vec2). Errors: as `addmm`."""
    return _with_addend(x, outer(vec1, vec2), beta, alpha, "addr")


@composite
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (batch1 @ batch2), of batches of matrices. Errors: as `addmm`."""
    a, b = _operands(batch1, batch2, "baddbmm", "batch1", "batch2")
    return _with_addend(input, apply1(MatMul(), a, b), beta, alpha, "baddbmm")


@composite
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * the sum of batch1[b] @ batch2[b] over all b (of matrices: over the rows of their product). Errors: as `addmm`."""
    x, y = _operands(batch1, batch2, "addbmm", "batch1", "batch2")
    if x.ndim == y.ndim == 2:
        return _with_addend(input, total(apply1(MatMul(), x, y), (0,)), beta, alpha, "addbmm")
    if x.ndim != 3 or y.ndim != 3 or x.shape[0] != y.shape[0] or x.shape[2] != y.shape[1]:
        raise ShapeError(f"addbmm: batch1 of shape {x.shape} does not fit batch2 of shape {y.shape}")
    return _with_addend(input, contract(x, y, (0, 2), (0, 1)), beta, alpha, "addbmm")
