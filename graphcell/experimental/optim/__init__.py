"""Optimizers with groups of settings, `param_groups`, that may be changed between steps, and schedulers that do so."""

from graphcell.experimental.optim import lr_scheduler
from graphcell.experimental.optim.adadelta import Adadelta
from graphcell.experimental.optim.adagrad import Adagrad
from graphcell.experimental.optim.adam import Adam
from graphcell.experimental.optim.adamax import Adamax
from graphcell.experimental.optim.adamw import AdamW
from graphcell.experimental.optim.asgd import ASGD
from graphcell.experimental.optim.nadam import NAdam
from graphcell.experimental.optim.optimizer import Optimizer
from graphcell.experimental.optim.radam import RAdam
from graphcell.experimental.optim.rmsprop import RMSprop
from graphcell.experimental.optim.rprop import Rprop
from graphcell.experimental.optim.sgd import SGD
from graphcell.missing import getattr_of as _getattr_of

__all__ = [
    "ASGD", "SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "lr_scheduler",
]  # fmt: skip

__getattr__ = _getattr_of(__name__)
