"""Mathematical functions as Cells."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentTypeError
from graphcell.nn.cell import Cell


class ReduceLogSumExp(Cell):
    """log(sum(exp(x))) along `axis`, an int or several."""

    def __init__(self, axis: Any, keep_dims: bool = False):
        super().__init__()
        self.axis, self.keep_dims = axis, keep_dims

    def construct(self, x: Any) -> Any:
        return ops.logsumexp(x, self.axis, self.keep_dims)


class LGamma(Cell):
    """The logarithm of |gamma(x)|."""

    def construct(self, x: Any) -> Any:
        return ops.lgamma(x)


class DiGamma(Cell):
    """The derivative of the logarithm of gamma(x)."""

    def construct(self, x: Any) -> Any:
        return ops.digamma(x)


class LBeta(Cell):
    """The logarithm of gamma(x) gamma(y) / gamma(x + y)."""

    def __init__(self) -> None:
        super().__init__()
        self.lgamma = LGamma()

    def construct(self, x: Any, y: Any) -> Any:
        return self.lgamma(x) + self.lgamma(y) - self.lgamma(x + y)


class MatMul(Cell):
    """The matrix product as numpy has it, either factor transposed first in its last two dimensions.

    Raises:
        TypeError: a flag is no bool.
    """

    def __init__(self, transpose_x1: bool = False, transpose_x2: bool = False):
        super().__init__()
        for name, value in (("transpose_x1", transpose_x1), ("transpose_x2", transpose_x2)):
            if not isinstance(value, bool):
                raise ArgumentTypeError(f"For 'MatMul', the type of '{name}' should be 'bool', but got type '{type(value).__name__}'.")
        self.transpose_x1, self.transpose_x2 = transpose_x1, transpose_x2

    def construct(self, x1: Any, x2: Any) -> Any:
        x1 = x1.swapaxes(-1, -2) if self.transpose_x1 and x1.ndim > 1 else x1
        x2 = x2.swapaxes(-1, -2) if self.transpose_x2 and x2.ndim > 1 else x2
        return ops.matmul(x1, x2)


class MatDet(Cell):
    """The determinants of square matrices (*, n, n)."""

    def construct(self, a: Any) -> Any:
        return ops.det(a)


class MatInverse(Cell):
    """The inverses of square matrices (*, n, n)."""

    def __init__(self) -> None:
        super().__init__()
        self.matmul = MatMul()

    def construct(self, a: Any) -> Any:
        return ops.inverse(a)
