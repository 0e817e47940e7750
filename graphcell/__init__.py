"""graphcell: a static-graph compiler and runtime for MindSpore's programming model, on the CPU.

``import graphcell as mindspore`` is all that a MindSpore program needs.
"""

from graphcell import version as _version  # noqa: F401  (first of all: it notes the time)

# isort: split
from graphcell import loading as _loading  # noqa: F401  (all the rest but a few names)

# isort: split
from importlib import import_module as _import_module
from sys import modules as _modules
from typing import Any as _Any

from graphcell import amp, common, communication, context, nn, ops, train
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
from graphcell.missing import refuse as _refuse
from graphcell.ops.functional.creation import is_tensor, tensor
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.recompute import recompute
from graphcell.tensor import Tensor
from graphcell.train import *  # noqa: F403  (MindSpore has all of it here too)
from graphcell.train.amp import build_train_network
from graphcell.train.checkpoint_tools import ckpt_to_safetensors, load_checkpoint_async, safetensors_to_ckpt
from graphcell.train.loss_scale_manager import DynamicLossScaleManager, FixedLossScaleManager, LossScaleManager
from graphcell.train.serialization import async_ckpt_thread_status, load_checkpoint, load_param_into_net, save_checkpoint
from graphcell.version import __version__
from graphcell.vmap import vmap

from_numpy = Tensor.from_numpy
bool, int, float = bool_, int32, float32
globals()["dtype"] = _dtype  # in place of the inner module graphcell.dtype, all of whose names it has
for _metric in train.metrics.__all__:
    setattr(nn, _metric, getattr(train, _metric))  # MindSpore has the metrics in `nn` too

__all__ = [  # noqa: RUF022
    "COMPATIBLE", "GRAPH_MODE", "LAX", "PYNATIVE_MODE", "STRICT", "DynamicLossScaleManager", "FixedLossScaleManager", "Generator", "Initializer",
    "JitConfig", "LossScaleManager", "Parameter", "ParameterTuple", "Tensor", "Type", "__version__", "amp", "async_ckpt_thread_status", "bfloat16",
    "bool_", "build_train_network", "byte", "ckpt_to_safetensors", "common", "constexpr", "context", "default_generator", "double", "dtype_to_nptype",
    "dtype_to_pytype", "float16", "float32", "float64", "float_", "from_numpy", "get_context", "get_current_device", "get_grad", "get_rng_state",
    "get_seed", "grad", "half", "initial_seed", "int16", "int32", "int64", "int8", "int_", "intc", "intp", "is_tensor", "jacfwd", "jacrev", "jit",
    "jit_class", "jvp", "list_", "load_checkpoint", "load_checkpoint_async", "load_param_into_net", "long", "manual_seed", "mutable", "nn", "number",
    "ops", "pytype_to_dtype", "recompute", "safetensors_to_ckpt", "save_checkpoint", "saved_tensors_hooks", "seed", "set_context",
    "set_deterministic", "set_device", "set_recursion_limit", "set_rng_state", "set_seed", "short", "single", "string", "tensor", "tensor_type",
    "train", "tuple_", "type_none", "ubyte", "uint", "uint16", "uint32", "uint64", "uint8", "uintc", "uintp", "ushort", "value_and_grad", "vjp",
    "vmap",
]  # fmt: skip
__all__ += ["ParallelMode", "communication", "get_auto_parallel_context", "reset_auto_parallel_context", "set_auto_parallel_context"]
__all__ += ["dataset", "dtype", "mint", *train.__all__]  # noqa: F405  (the first three come by other ways than import)


def __getattr__(name: str) -> _Any:
    """`dataset` and `mint` are imported when they are first used: many programs have no need of them."""
    if name in ("dataset", "mint"):
        # By the name that the program knows this package by (graphcell/alias.py): its classes print so.
        known = "mindspore" if _modules.get("mindspore") is _modules[__name__] else __name__
        return _import_module(f"{known}.{name}")
    _refuse("graphcell", name)
