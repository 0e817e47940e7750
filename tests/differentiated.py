"""Small functions that tests of gradients differentiate."""

from __future__ import annotations

from typing import Any

from graphcell.parameter import Parameter
from graphcell.tensor import Tensor

W = Parameter(Tensor(2.0), name="w")
B = Parameter(Tensor(1.0), name="b")


def product(x: Any, y: Any) -> Any:
    return x * x * y


def square(x: Any) -> Any:
    return x * x


def times(x: Any, y: Any) -> Any:
    return x * y


def affine(x: Any) -> Any:
    return x * W + B
