"""The functions of `mint.special`."""

from typing import TYPE_CHECKING, Any

from graphcell import ops
from graphcell.mint.nn.activations import log_softmax
from graphcell.missing import getattr_of as _getattr_of
from graphcell.ops import erfc, exp2, expm1, log1p, sinc
from graphcell.tensor import Tensor

__all__ = ["erfc", "exp2", "expm1", "log1p", "log_softmax", "round", "sinc"]


def round(input: Any) -> Tensor:
    """The nearest integer, halves to the even one."""
    return ops.round(input)


if not TYPE_CHECKING:  # type checkers know all names that there are
    __getattr__ = _getattr_of(__name__)
