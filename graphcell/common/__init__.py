"""What MindSpore keeps in `mindspore.common`: Tensors, Parameters, dtypes, initializers, the seed."""

from typing import TYPE_CHECKING

from graphcell.common import dtype, initializer
from graphcell.common import parameter as parameter
from graphcell.common import tensor as _tensor  # noqa: F401  (imported once, so that it does not take the name of the function below later)
from graphcell.missing import getattr_of as _getattr_of

from graphcell.common.seed import get_seed, set_seed  # isort: skip  (before the function `seed`, for the same reason)
from graphcell.common.generator import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)  # fmt: skip
from graphcell.common.jit_config import JitConfig
from graphcell.common.marks import jit_class, mutable
from graphcell.ops.functional.creation import is_tensor, tensor
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.tensor import Tensor

__all__ = [
    "Generator", "JitConfig", "Parameter", "ParameterTuple", "Tensor", "default_generator", "dtype", "get_rng_state", "get_seed", "initial_seed",
    "initializer", "is_tensor", "jit_class", "manual_seed", "mutable", "seed", "set_rng_state", "set_seed", "tensor",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know all names that there are
    __getattr__ = _getattr_of(__name__)
