"""Optimizers."""

from typing import TYPE_CHECKING

from graphcell.late import late as _late
from graphcell.nn.optim.thor import thor as thor

_ROOMS = {
    "ada_grad": ("Adagrad",),
    "adadelta": ("Adadelta",),
    "adafactor": ("AdaFactor",),
    "adam": ("Adam", "AdamOffload", "AdamWeightDecay"),
    "adamax": ("AdaMax",),
    "adasum": ("AdaSumByDeltaWeightWrapCell", "AdaSumByGradWrapCell"),
    "asgd": ("ASGD",),
    "ftrl": ("FTRL",),
    "lamb": ("Lamb",),
    "lars": ("LARS",),
    "lazyadam": ("LazyAdam",),
    "momentum": ("Momentum",),
    "optimizer": ("Optimizer",),
    "proximal_ada_grad": ("ProximalAdagrad",),
    "rmsprop": ("RMSProp",),
    "rprop": ("Rprop",),
    "sgd": ("SGD",),
}  # fmt: skip

__all__ = sorted(["thor", *(name for room in _ROOMS.values() for name in room)])

if TYPE_CHECKING:
    from graphcell.nn.optim.ada_grad import *  # noqa: F403
    from graphcell.nn.optim.adadelta import *  # noqa: F403
    from graphcell.nn.optim.adafactor import *  # noqa: F403
    from graphcell.nn.optim.adam import *  # noqa: F403
    from graphcell.nn.optim.adamax import *  # noqa: F403
    from graphcell.nn.optim.adasum import *  # noqa: F403
    from graphcell.nn.optim.asgd import *  # noqa: F403
    from graphcell.nn.optim.ftrl import *  # noqa: F403
    from graphcell.nn.optim.lamb import *  # noqa: F403
    from graphcell.nn.optim.lars import *  # noqa: F403
    from graphcell.nn.optim.lazyadam import *  # noqa: F403
    from graphcell.nn.optim.momentum import *  # noqa: F403
    from graphcell.nn.optim.optimizer import *  # noqa: F403
    from graphcell.nn.optim.proximal_ada_grad import *  # noqa: F403
    from graphcell.nn.optim.rmsprop import *  # noqa: F403
    from graphcell.nn.optim.rprop import *  # noqa: F403
    from graphcell.nn.optim.sgd import *  # noqa: F403
else:
    __getattr__, __dir__ = _late(__name__, _ROOMS)
