"""Products of matrices and what solves them, with mint's keyword arguments.

Enters: Tensors of floats. Leaves: what `ops` computes. Both modes, with gradients.
"""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.errors import ShapeError
from graphcell.ops.functional.common import broadcast_shapes
from graphcell.ops.functional.linear_algebra import triangular_solve as solve
from graphcell.tensor import Tensor


def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * batch1 @ batch2: (b, n, m) and (b, m, p) with an input that broadcasts to (b, n, p)."""
    return ops.baddbmm(input, batch1, batch2, beta, alpha)


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """The product of a matrix (n, m) and a vector (m,)."""
    return ops.mv(input, vec)


def triangular_solve(b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> tuple[Tensor, Tensor]:
    """The x with A x = b for a triangle A (*, n, n) and b (*, n, k): x, and a copy of A.

    Args:
        upper: A is the upper triangle, else the lower one; what lies in the other is not read.
        transpose: solve with the transposed A.
        unitriangular: the diagonal is taken to hold ones.

    Raises:
        ValueError: shapes that do not fit.
    """
    if A.ndim < 2 or A.shape[-1] != A.shape[-2] or b.ndim < 2 or b.shape[-2] != A.shape[-1]:
        raise ShapeError(f"triangular_solve: b must be (*, n, k) and A (*, n, n), but they have shapes {b.shape} and {A.shape}")
    lead = broadcast_shapes("triangular_solve", A.shape[:-2], b.shape[:-2])
    matrix = ops.broadcast_to(A, lead + A.shape[-2:])
    if unitriangular:
        eye = ops.eye(A.shape[-1], A.shape[-1], A.dtype)
        matrix = matrix * (1 - eye) + eye
    return solve(matrix, ops.broadcast_to(b, lead + b.shape[-2:]), not upper, transpose), ops.deepcopy(A)
