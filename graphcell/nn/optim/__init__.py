"""Optimizers."""

from graphcell.nn.optim.adam import Adam as Adam
from graphcell.nn.optim.adam import AdamWeightDecay as AdamWeightDecay
from graphcell.nn.optim.optimizer import Optimizer as Optimizer
from graphcell.nn.optim.sgd import SGD as SGD
from graphcell.nn.optim.sgd import Momentum as Momentum
