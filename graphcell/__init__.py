"""graphcell: a static-graph compiler and runtime for MindSpore's programming model, on the CPU.

``import graphcell as mindspore`` is all that a MindSpore program needs.
"""

from graphcell import version as _version  # noqa: F401  (first of all: it notes the time)

# isort: split
from graphcell import common, context, nn, ops, train
from graphcell import tensor as _tensor  # noqa: F401  (a module; `tensor` below is MindSpore's function)
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
    long,
    pytype_to_dtype,
    short,
    single,
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
from graphcell.ops.functional.creation import is_tensor, tensor
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.tensor import Tensor
from graphcell.train.serialization import load_checkpoint, load_param_into_net, save_checkpoint
from graphcell.version import __version__

from_numpy = Tensor.from_numpy
bool, int, float = bool_, int32, float32
globals()["dtype"] = _dtype  # in place of the inner module graphcell.dtype, all of whose names it has

__all__ = [
    "COMPATIBLE", "GRAPH_MODE", "LAX", "PYNATIVE_MODE", "STRICT", "Generator", "Initializer", "JitConfig", "Parameter", "ParameterTuple", "Tensor",
    "Type", "__version__", "bfloat16", "bool_", "byte", "common", "constexpr", "context", "default_generator", "double", "dtype", "dtype_to_nptype",
    "dtype_to_pytype", "float16", "float32", "float64", "float_", "from_numpy", "get_context", "get_current_device", "get_grad", "get_rng_state",
    "get_seed", "grad", "half", "initial_seed", "int8", "int16", "int32", "int64", "int_", "intc", "intp", "is_tensor", "jacfwd", "jacrev", "jit",
    "jit_class", "jvp", "load_checkpoint", "load_param_into_net", "long", "manual_seed", "mutable", "nn", "ops", "pytype_to_dtype", "save_checkpoint",
    "seed", "set_context", "set_deterministic", "set_device", "set_recursion_limit", "set_rng_state", "set_seed", "short", "single", "tensor", "train",
    "ubyte", "uint", "uint8", "uint16", "uint32", "uint64", "uintc", "uintp", "ushort", "value_and_grad", "vjp",
]  # fmt: skip
