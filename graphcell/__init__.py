"""graphcell: a static-graph compiler and runtime for MindSpore's programming model, on the CPU.

``import graphcell as mindspore`` is all that a MindSpore program needs.
"""

from graphcell import version as _version  # noqa: F401  (first of all: it notes the time)

# isort: split
from graphcell import loading as _loading  # noqa: F401  (all the rest but a few names)

# isort: split
from typing import TYPE_CHECKING

from graphcell import common, communication, context, nn, ops, train
from graphcell import tensor as _tensor  # noqa: F401  (a module; `tensor` below is MindSpore's function)
from graphcell.auto_parallel_context import ParallelMode, get_auto_parallel_context, reset_auto_parallel_context, set_auto_parallel_context
from graphcell.common import dtype as _dtype
from graphcell.common.dtype import (
    Type,
    bfloat16,
    bool_,
    byte,
    double,
    dtype_to_nptype,
    dtype_to_pytype,
    float16,
    float32,
    float64,
    float_,
    half,
    int8,
    int16,
    int32,
    int64,
    int_,
    intc,
    intp,
    list_,
    long,
    number,
    pytype_to_dtype,
    short,
    single,
    string,
    tensor_type,
    tuple_,
    type_none,
    ubyte,
    uint,
    uint8,
    uint16,
    uint32,
    uint64,
    uintc,
    uintp,
    ushort,
)  # fmt: skip
from graphcell.common.generator import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)  # fmt: skip
from graphcell.common.initializer import Initializer
from graphcell.common.jit_config import JitConfig
from graphcell.common.marks import constexpr, jit_class, mutable
from graphcell.common.saved_tensors import saved_tensors_hooks
from graphcell.common.seed import get_seed, set_seed
from graphcell.context import (
    COMPATIBLE,
    GRAPH_MODE,
    LAX,
    PYNATIVE_MODE,
    STRICT,
    get_context,
    get_current_device,
    set_context,
    set_deterministic,
    set_device,
    set_recursion_limit,
)  # fmt: skip
from graphcell.grad import get_grad, grad, value_and_grad
from graphcell.jacobian import jacfwd, jacrev, jvp, vjp
from graphcell.jit import jit
from graphcell.late import late as _late
from graphcell.ops.functional.creation import is_tensor, tensor
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.recompute import recompute
from graphcell.tensor import Tensor
from graphcell.version import __version__
from graphcell.vmap import vmap

from_numpy = Tensor.from_numpy
bool, int, float = bool_, int32, float32
globals()["dtype"] = _dtype  # in place of the inner module graphcell.dtype, all of whose names it has

__all__ = [  # noqa: RUF022
    "COMPATIBLE", "GRAPH_MODE", "LAX", "PYNATIVE_MODE", "STRICT", "Generator", "Initializer", "JitConfig", "Parameter", "ParameterTuple", "Tensor",
    "Type", "__version__", "bfloat16", "bool_", "byte", "common", "constexpr", "context", "default_generator", "double", "dtype_to_nptype",
    "dtype_to_pytype", "float16", "float32", "float64", "float_", "from_numpy", "get_context", "get_current_device", "get_grad", "get_rng_state",
    "get_seed", "grad", "half", "initial_seed", "int16", "int32", "int64", "int8", "int_", "intc", "intp", "is_tensor", "jacfwd", "jacrev", "jit",
    "jit_class", "jvp", "list_", "long", "manual_seed", "mutable", "nn", "number", "ops", "pytype_to_dtype", "recompute", "saved_tensors_hooks",
    "seed", "set_context", "set_deterministic", "set_device", "set_recursion_limit", "set_rng_state", "set_seed", "short", "single", "string",
    "tensor", "tensor_type", "train", "tuple_", "type_none", "ubyte", "uint", "uint16", "uint32", "uint64", "uint8", "uintc", "uintp", "ushort",
    "value_and_grad", "vjp", "vmap",
]  # fmt: skip
__all__ += ["ParallelMode", "communication", "get_auto_parallel_context", "reset_auto_parallel_context", "set_auto_parallel_context"]
__all__ += ["amp", "dataset", "dtype", "experimental", "mint", *train.__all__]  # noqa: F405  (these come by other ways than import)

if TYPE_CHECKING:
    from graphcell import amp as amp
    from graphcell import experimental as experimental
    from graphcell.train import *  # noqa: F403
else:
    # MindSpore has all of `train` here too; `amp`, `dataset`, `experimental` and `mint` are modules, which many programs have no need of.
    __getattr__, __dir__ = _late(__name__, {"train": train.__all__})
