"""Operations: primitives, each whole in its class, and the public functions composed of them."""

import functools
import importlib
from typing import Any

from graphcell.missing import refuse as _refuse
from graphcell.ops import functional as functional
from graphcell.ops.functional.activation import *  # noqa: F403
from graphcell.ops.functional.arithmetic import *  # noqa: F403
from graphcell.ops.functional.clipping import *  # noqa: F403
from graphcell.ops.functional.comparison import *  # noqa: F403
from graphcell.ops.functional.contraction import *  # noqa: F403
from graphcell.ops.functional.convolution import *  # noqa: F403
from graphcell.ops.functional.creation import *  # noqa: F403
from graphcell.ops.functional.diagonals import *  # noqa: F403
from graphcell.ops.functional.distributions import *  # noqa: F403
from graphcell.ops.functional.einsum import *  # noqa: F403
from graphcell.ops.functional.factorizations import *  # noqa: F403
from graphcell.ops.functional.filling import *  # noqa: F403
from graphcell.ops.functional.fractional_pooling import *  # noqa: F403
from graphcell.ops.functional.frequencies import *  # noqa: F403
from graphcell.ops.functional.gathering import *  # noqa: F403
from graphcell.ops.functional.interpolation import *  # noqa: F403
from graphcell.ops.functional.linear_algebra import *  # noqa: F403
from graphcell.ops.functional.loss import *  # noqa: F403
from graphcell.ops.functional.masking import *  # noqa: F403
from graphcell.ops.functional.mathematics import *  # noqa: F403
from graphcell.ops.functional.movement import *  # noqa: F403
from graphcell.ops.functional.normalization import *  # noqa: F403
from graphcell.ops.functional.pooling import *  # noqa: F403
from graphcell.ops.functional.printing import *  # noqa: F403
from graphcell.ops.functional.random import *  # noqa: F403
from graphcell.ops.functional.rearranging import *  # noqa: F403
from graphcell.ops.functional.reductions import *  # noqa: F403
from graphcell.ops.functional.sampling import *  # noqa: F403
from graphcell.ops.functional.scanning import *  # noqa: F403
from graphcell.ops.functional.sequence_loss import *  # noqa: F403
from graphcell.ops.functional.softmax import *  # noqa: F403
from graphcell.ops.functional.sorting import *  # noqa: F403
from graphcell.ops.functional.special import *  # noqa: F403
from graphcell.ops.functional.vectors import *  # noqa: F403

from graphcell.ops import methods as methods  # isort: skip
from graphcell.ops import methods_movement as methods_movement  # isort: skip
from graphcell.ops import methods_named as methods_named  # isort: skip
from graphcell.ops import gradient_hooks as gradient_hooks  # isort: skip
from graphcell.ops import methods_random as methods_random  # isort: skip
from graphcell.ops.primitive import *  # noqa: F403  # isort: skip

# Modules of the same name as a function: `from mindspore.ops import functional as F; F.softmax` is the function.
functional.softmax = softmax  # type: ignore[assignment]  # noqa: F405
functional.einsum = einsum  # type: ignore[assignment]  # noqa: F405

_ABOVE = {
    "GradOperation": "graphcell.grad", "get_grad": "graphcell.grad", "grad": "graphcell.grad", "value_and_grad": "graphcell.grad",
    "jacfwd": "graphcell.jacobian", "jacrev": "graphcell.jacobian", "jvp": "graphcell.jacobian", "vjp": "graphcell.jacobian", "vmap": "graphcell.vmap",
    "HyperMap": "graphcell.composite", "Map": "graphcell.composite", "MultitypeFuncGraph": "graphcell.composite",
    "ForiLoop": "graphcell.loops", "Scan": "graphcell.loops", "WhileLoop": "graphcell.loops",
    "HookBackward": "graphcell.gradient_primitives", "InsertGradientOf": "graphcell.gradient_primitives",
    "Partial": "graphcell.composite", "partial": "graphcell.composite", "constexpr": "graphcell.common.marks",
    "composite": "graphcell.ops.composite", "operations": "graphcell.ops.operations",
}  # fmt: skip
"""Names of MindSpore's `ops` that are made of more than ops, with the modules that hold them; those stand above this one."""


def __getattr__(name: str) -> Any:
    """The names of `_ABOVE`; and the primitive classes, all of which are imported when the first is asked for."""
    if name in _ABOVE:
        home = _ABOVE[name]
        module = importlib.import_module(home)
        return module if home == f"{__name__}.{name}" else getattr(module, name)
    if name == "__all__" or not name.startswith("_"):
        _import_primitives()
        if name in globals():
            return globals()[name]
    _refuse("graphcell.ops", name)


@functools.cache
def _import_primitives() -> None:
    """What a program has put in place of one stays."""
    primitives = importlib.import_module(f"{__name__}.primitives")
    for name in primitives.__all__:
        globals().setdefault(name, getattr(primitives, name))


def __dir__() -> list[str]:
    _import_primitives()
    return sorted(globals())
