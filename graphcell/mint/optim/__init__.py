"""Optimizers with PyTorch's names and defaults. Their groups and learning rates are those of `experimental.optim`, whose schedulers serve them."""

from graphcell.mint.optim.adam import Adam
from graphcell.mint.optim.adamw import AdamW
from graphcell.mint.optim.fused_adamw import FusedAdamW
from graphcell.mint.optim.sgd import SGD
from graphcell.missing import getattr_of as _getattr_of

__all__ = ["SGD", "Adam", "AdamW", "FusedAdamW"]

__getattr__ = _getattr_of(__name__)
