"""Optimizers."""

from graphcell.nn.optim.ada_grad import Adagrad as Adagrad
from graphcell.nn.optim.adadelta import Adadelta as Adadelta
from graphcell.nn.optim.adafactor import AdaFactor as AdaFactor
from graphcell.nn.optim.adam import Adam as Adam
from graphcell.nn.optim.adam import AdamOffload as AdamOffload
from graphcell.nn.optim.adam import AdamWeightDecay as AdamWeightDecay
from graphcell.nn.optim.adamax import AdaMax as AdaMax
from graphcell.nn.optim.adasum import AdaSumByDeltaWeightWrapCell as AdaSumByDeltaWeightWrapCell
from graphcell.nn.optim.adasum import AdaSumByGradWrapCell as AdaSumByGradWrapCell
from graphcell.nn.optim.asgd import ASGD as ASGD
from graphcell.nn.optim.ftrl import FTRL as FTRL
from graphcell.nn.optim.lamb import Lamb as Lamb
from graphcell.nn.optim.lars import LARS as LARS
from graphcell.nn.optim.lazyadam import LazyAdam as LazyAdam
from graphcell.nn.optim.momentum import Momentum as Momentum
from graphcell.nn.optim.optimizer import Optimizer as Optimizer
from graphcell.nn.optim.proximal_ada_grad import ProximalAdagrad as ProximalAdagrad
from graphcell.nn.optim.rmsprop import RMSProp as RMSProp
from graphcell.nn.optim.rprop import Rprop as Rprop
from graphcell.nn.optim.sgd import SGD as SGD
from graphcell.nn.optim.thor import thor as thor
