"""Public products of vectors, matrices and batches of them. All run through the one contraction primitive, `MatMul`.

Enters: Tensors of one number type. Leaves: their product in that dtype. Refuses: mixed dtypes, and shapes that do not fit.
"""

from __future__ import annotations

import math
from typing import Any

from graphcell.errors import DTypeError, ShapeError
from graphcell.ops.contraction import MatMul
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.axes import tensor_of
from graphcell.ops.functional.common import broadcast, broadcast_shapes
from graphcell.ops.functional.movement import reshaped
from graphcell.tensor import Tensor

__all__ = ["matmul"]


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
    batch = broadcast_shapes("matmul", x.shape[:-2], y.shape[:-2])
    if not batch:
        return apply1(MatMul(transpose_x, transpose_y), x, y)
    if math.prod(y.shape[:-2]) == 1 and not transpose_x and x.shape[:-2] == batch:
        rows, k = math.prod(x.shape[:-1]), x.shape[-1]
        flat = apply1(MatMul(False, transpose_y), reshaped(x, (rows, k)), reshaped(y, y.shape[-2:]))
        return reshaped(flat, (*x.shape[:-1], flat.shape[-1]))
    return apply1(MatMul(transpose_x, transpose_y), broadcast(x, batch + x.shape[-2:]), broadcast(y, batch + y.shape[-2:]))


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
        raise ShapeError(f"matmul: inner sizes differ, input is {x.shape} and other is {y.shape}")
    a = reshaped(x, (1, x.shape[0])) if x.ndim == 1 else x
    b = reshaped(y, (y.shape[0], 1)) if y.ndim == 1 else y
    z = product(a, b)
    shape = z.shape if x.ndim > 1 else z.shape[:-2] + z.shape[-1:]
    return reshaped(z, shape if y.ndim > 1 else shape[:-1])
