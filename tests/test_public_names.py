"""The ways in which MindSpore programs import what they use, each as a program of its own would."""

from __future__ import annotations

import copy
import functools
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, ops
from graphcell.common import generator

IMPORTS = """
import mindspore
import mindspore as ms
import mindspore.nn as nn
import mindspore.ops as ops
import mindspore.common.dtype as mstype
import mindspore.ops.functional as F
import mindspore.ops.operations as P
import mindspore.context as context
import mindspore.common.initializer as weight_init
from mindspore import nn, ops, Tensor, Parameter, ParameterTuple, context, jit, grad, value_and_grad, dtype as mstype
from mindspore import JitConfig, set_seed, set_context, save_checkpoint, load_checkpoint, load_param_into_net, mutable, jit_class, from_numpy, tensor
from mindspore.common import dtype, Tensor, Parameter, ParameterTuple, set_seed
from mindspore.common import initializer as init
from mindspore.common.initializer import initializer, Uniform, HeNormal, HeUniform, Normal, XavierUniform, One, Zero, TruncatedNormal
from mindspore.common.tensor import Tensor
from mindspore.common.parameter import Parameter, ParameterTuple
from mindspore.common.seed import set_seed
from mindspore.nn import Cell, Dense, SequentialCell
from mindspore.nn.cell import Cell
from mindspore.ops import operations as P, functional as F, composite as C
from mindspore.ops import constexpr, GradOperation, HyperMap, MultitypeFuncGraph
from mindspore.train.serialization import load_checkpoint, load_param_into_net, save_checkpoint
from mindspore import Model, LossMonitor, TimeMonitor, ModelCheckpoint, CheckpointConfig, Callback, FixedLossScaleManager
from mindspore.train import Model, LossMonitor, Accuracy, names, RunContext
from mindspore.train.model import Model
from mindspore.train.callback import LossMonitor, TimeMonitor, ModelCheckpoint, CheckpointConfig, Callback, EarlyStopping, _InternalCallbackParam
from mindspore.train.callback._callback import Callback, CallbackManager
from mindspore.train.metrics import Metric, Accuracy
from mindspore.train.loss_scale_manager import DynamicLossScaleManager
from mindspore.nn import Accuracy, Loss, TrainOneStepCell
import mindspore.train.callback as callbacks
import mindspore.train.metrics as metrics
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)


def test_import_forms() -> None:
    """One statement after another in a fresh process; each must work whatever was imported before."""
    program = f"""
from graphcell.alias import install
install()
for line in {IMPORTS!r}.strip().splitlines():
    exec(line)
import mindspore, graphcell
assert mindspore is graphcell and callable(mindspore.tensor) and callable(mindspore.common.tensor) and callable(mindspore.common.seed)
assert F.relu is ops.relu and F.softmax is ops.softmax and F.einsum is ops.einsum and C.GradOperation is GradOperation
assert mstype.float32 is mindspore.float32 is dtype.float32 and mstype.bool_ is mstype.bool and mstype.int_ is mindspore.int64
"""
    done = run(program)
    assert done.returncode == 0, done.stderr


def test_import_leaves_the_compiler_for_later() -> None:
    """Importing graphcell loads neither LLVM nor networkx: they take longer than all the rest, and eager programs never need them."""
    done = run("import graphcell, sys; print([m for m in ('networkx', 'llvmlite.binding', 'graphcell.codegen.lower', 'graphcell.ir.text', 'numpy.random', 'hashlib') if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_every_public_name_is_there() -> None:
    for module in (ms, ms.common, ms.nn, ms.dtype):
        for name in module.__all__:
            assert getattr(module, name) is not None, f"{module.__name__}.{name}"


def test_dtypes_and_tensors() -> None:
    assert ms.bool is ms.bool_ and ms.int is ms.int32 and ms.float is ms.float32 and ms.half is ms.float16 and ms.double is ms.float64
    assert ms.dtype_to_nptype(ms.int8) is np.int8 and ms.dtype_to_pytype(ms.float16) is float and ms.pytype_to_dtype(int) is ms.int64
    assert ms.is_tensor(ms.tensor([1])) and not ms.is_tensor([1]) and ms.tensor([1, 2], ms.float16).dtype is ms.float16
    array = np.arange(3.0)
    shared = ms.from_numpy(array)
    array[0] = 7
    assert shared.asnumpy()[0] == 7
    with pytest.raises(AttributeError, match="no_such"):
        getattr(ms.dtype, "no_such")  # noqa: B009
    with pytest.raises(AttributeError, match="no_such"):
        getattr(ops, "no_such")  # noqa: B009


def test_type_is_a_method() -> None:
    x = Tensor([1.5, -2.5])
    assert x.type() == "Float32"
    assert x.type(ms.int32).dtype is ms.int32 and x.type(dtype="float16").dtype is ms.float16 and x.type(int).dtype is ms.int64
    np.testing.assert_array_equal(x.type(ms.int32).asnumpy(), [1, -2])
    np.testing.assert_array_equal(ms.jit(lambda x: x.type(ms.int32) + len(x.type()))(x).asnumpy(), [8, 5])
    with pytest.raises(TypeError):
        x.type("no dtype")


# -- marks ---------------------------------------------------------------------------------------------------------------
def test_mutable() -> None:
    data = (Tensor([1.0]), [2, {"k": 3.5}])
    assert ms.mutable(data) is data and ms.mutable([1, 2], dynamic_len=True) == [1, 2]
    for wrong in ("text", (1, "text"), None):
        with pytest.raises(TypeError, match="mutable"):
            ms.mutable(wrong)
    with pytest.raises(TypeError, match="list or tuple"):
        ms.mutable(3, True)
    pair = ms.mutable((Tensor([1.0, 2.0]), Tensor([3.0, 4.0])))
    gradients = ms.grad(ms.jit(lambda p: (p[0] * p[1]).sum()))(pair)
    np.testing.assert_array_equal(gradients[0].asnumpy(), [3.0, 4.0])


def test_jit_class_and_constexpr() -> None:
    @ms.jit_class
    class Scale:
        def __init__(self, k: int):
            self.k = k

        def __call__(self, x: Tensor) -> Tensor:
            return x * self.k

    @ops.constexpr
    def double(n: int) -> int:
        return 2 * n

    @ops.constexpr(get_instance=True)
    def triple(n: int) -> int:
        return 3 * n

    scale = Scale(3)
    np.testing.assert_array_equal(ms.jit(lambda x: scale(x) + double(5) + triple(1))(Tensor([1.0])).asnumpy(), [16.0])
    with pytest.raises(TypeError):
        ms.jit_class(3)  # type: ignore[type-var]
    with pytest.raises(TypeError):
        ms.constexpr(3)  # type: ignore[call-overload]


def test_recursion_limit() -> None:
    before = ms.get_context("max_call_depth")
    try:
        ms.set_recursion_limit(77)
        assert ms.get_context("max_call_depth") == 77
        with pytest.raises(ValueError):
            ms.set_recursion_limit(-1)
        with pytest.raises(TypeError):
            ms.set_recursion_limit("a")  # type: ignore[arg-type]
    finally:
        ms.set_recursion_limit(before)


# -- generators ----------------------------------------------------------------------------------------------------------
def test_generator() -> None:
    g = ms.Generator()
    assert g.initial_seed() == 0
    assert g.manual_seed(5) is g and g.initial_seed() == 5
    state = g.get_state()
    np.testing.assert_array_equal(state.asnumpy(), [5] + [0] * 15)
    assert g.seed() == g.initial_seed()
    g.set_state(state)
    assert g.initial_seed() == 5
    for wrong, error in (([1, 2], TypeError), (Tensor([1, 2]), ValueError), (Tensor(np.zeros(4, np.uint8)), ValueError)):
        with pytest.raises(error, match="set_state"):
            g.set_state(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="seed"):
        g.manual_seed("five")  # type: ignore[arg-type]


def test_default_generator() -> None:
    assert ms.manual_seed(13) is ms.default_generator and ms.initial_seed() == 13 and generator.default_generator is ms.default_generator
    first = ops.randn(4).asnumpy()
    ms.manual_seed(13)
    np.testing.assert_array_equal(ops.randn(4).asnumpy(), first)
    state = ms.get_rng_state()
    second = ops.randn(4).asnumpy()
    assert ms.seed() == ms.initial_seed()
    ms.set_rng_state(state)
    np.testing.assert_array_equal(ops.randn(4).asnumpy(), second)
    assert (first != second).all()


# -- functions over nested sequences -------------------------------------------------------------------------------------
overloaded = ops.MultitypeFuncGraph("overloaded")


@overloaded.register("Tensor", "Tensor")
def _add(x: Tensor, y: Tensor) -> Tensor:
    if (x.sum() > y.sum()).all():
        return x + y
    return x - y


@overloaded.register("Number", "Tensor")
def _scale(k: float, x: Tensor) -> Tensor:
    return x * k


@overloaded.register("Bool", "Tensor")
def _pick(flag: bool, x: Tensor) -> Tensor:
    return x if flag else -x


A, B = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])


def values(x: Any) -> Any:
    return tuple(map(values, x)) if isinstance(x, (tuple, list)) else x.asnumpy().tolist()


@pytest.mark.parametrize("compiled", [False, True])
def test_hyper_map(compiled: bool) -> None:
    def run(fn: Any, *args: Any) -> Any:
        return values((ms.jit(fn) if compiled else fn)(*args))

    hyper_map, flat = ops.HyperMap(), ops.Map(ops.partial(ops.add, 1))
    assert run(lambda x, y: hyper_map(overloaded, (x, [y, x]), (y, [x, y])), A, B) == ([-2, -2], ([4, 6], [-2, -2]))
    assert run(lambda x, y: hyper_map(ops.partial(overloaded, 2), (x, y)), A, B) == ([2, 4], [6, 8])
    assert run(lambda x, y: hyper_map(ops.Partial()(overloaded, False), [x, y]), A, B) == ([-1, -2], [-3, -4])
    assert run(lambda x, y: flat((x, y)), A, B) == ([2, 3], [4, 5])
    assert run(lambda x, y: ops.HyperMap(overloaded)((x,), (y, y)), A, B) == ([-2, -2],)
    assert run(lambda x: hyper_map(lambda t: t * 2, x), A) == [2, 4]


kinds = ops.MultitypeFuncGraph("kinds")
for _kind, _factor in ((ms.number, 2), (ms.tuple_, 3), (ms.list_, 4), (ms.string, 5), (ms.type_none, 6), (ms.tensor_type, 7)):
    kinds.register(_kind, ms.tensor_type)(lambda x, y, factor=_factor: y * factor)


@pytest.mark.parametrize("compiled", [False, True])
def test_overloads_for_kinds(compiled: bool) -> None:
    def all_kinds(x: Tensor) -> tuple[Tensor, ...]:
        return kinds(1, x), kinds((1,), x), kinds([1], x), kinds("one", x), kinds(None, x), kinds(x, x)

    assert values((ms.jit(all_kinds) if compiled else all_kinds)(Tensor([1.0]))) == ([2], [3], [4], [5], [6], [7])


def test_kinds() -> None:
    """As MindSpore 2.10 prints and converts them."""
    every = (ms.number, ms.tensor_type, ms.string, ms.list_, ms.tuple_, ms.type_none)
    assert list(map(repr, every)) == [f"mindspore.{n}" for n in ("number", "tensor", "string_", "list_", "tuple_", "type_none")]
    assert list(map(str, every)) == ["Number", "Tensor", "String", "List", "Tuple", "None"]
    assert all(isinstance(k, ms.Type) for k in (*every, ms.float32)) and ms.number is ms.dtype.number and ms.number != ms.float32
    assert [ms.dtype_to_pytype(k) for k in every[2:]] == [str, list, tuple, type(None)]
    assert [ms.pytype_to_dtype(t) for t in (str, list, tuple, type(None))] == list(every[2:])
    for kind in every:
        assert pickle.loads(pickle.dumps(kind)) is kind and copy.deepcopy(kind) is kind
        for refused in (lambda kind=kind: Tensor([1], kind), lambda kind=kind: Tensor([1]).astype(kind), lambda kind=kind: ms.dtype_to_nptype(kind)):
            with pytest.raises(TypeError, match=repr(kind)):
                refused()
    for several in every[:2]:
        with pytest.raises(TypeError, match="expected a dtype"):
            ms.dtype_to_pytype(several)


def test_map_is_one_level_deep() -> None:
    assert ops.Map()(lambda x, y: (len(x), y), ((1, 2), (3,)), (4, 5)) == ((2, 4), (1, 5))


def test_overload_errors() -> None:
    with pytest.raises(ValueError, match=r"cannot find fn match given args.*str, Tensor"):
        overloaded("x", A)
    with pytest.raises(ValueError, match="no kind of argument"):
        overloaded.register("Elephant")
    with pytest.raises(TypeError):
        ops.MultitypeFuncGraph(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        ops.HyperMap(3)
    with pytest.raises(TypeError):
        ops.HyperMap()(overloaded)
    with pytest.raises(TypeError, match="same structure"):
        ops.HyperMap()(overloaded, (A, B), A)
    with pytest.raises(TypeError):
        ops.partial(3)  # type: ignore[arg-type]
    assert isinstance(ops.partial(overloaded, 2), functools.partial)
