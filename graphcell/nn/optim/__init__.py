"""Optimizers."""

from graphcell.nn.optim.adam import Adam as Adam
from graphcell.nn.optim.adam import AdaMax as AdaMax
from graphcell.nn.optim.adam import AdamWeightDecay as AdamWeightDecay
from graphcell.nn.optim.adam import Lamb as Lamb
from graphcell.nn.optim.adaptive import ASGD as ASGD
from graphcell.nn.optim.adaptive import Adadelta as Adadelta
from graphcell.nn.optim.adaptive import Adagrad as Adagrad
from graphcell.nn.optim.adaptive import RMSProp as RMSProp
from graphcell.nn.optim.adaptive import Rprop as Rprop
from graphcell.nn.optim.optimizer import Optimizer as Optimizer
from graphcell.nn.optim.sgd import SGD as SGD
from graphcell.nn.optim.sgd import Momentum as Momentum
