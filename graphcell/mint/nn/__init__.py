"""Layers under PyTorch's names; those with the arguments of `nn`'s are `nn`'s."""

from typing import TYPE_CHECKING

from graphcell.mint.nn import functional
from graphcell.mint.nn.layer.activation import GLU, Sigmoid
from graphcell.missing import getattr_of as _getattr_of
from graphcell.nn import AdaptiveMaxPool2d, Identity, Linear, ReLU
from graphcell.nn import HShrink as Hardshrink
from graphcell.nn import HSigmoid as Hardsigmoid
from graphcell.nn import HSwish as Hardswish
from graphcell.nn import SoftShrink as Softshrink

__all__ = ["GLU", "AdaptiveMaxPool2d", "Hardshrink", "Hardsigmoid", "Hardswish", "Identity", "Linear", "ReLU", "Sigmoid", "Softshrink", "functional"]

if not TYPE_CHECKING:  # type checkers know all names that there are
    __getattr__ = _getattr_of(__name__)
