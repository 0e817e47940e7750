"""Tensors, where MindSpore programs import them from."""

from graphcell.ops.functional.creation import tensor as tensor
from graphcell.tensor import Tensor as Tensor
