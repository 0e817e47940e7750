"""Items 144 to 203 of `nn.Cell` that MindSpore cannot show as well: compiling, declared inputs, settings for several devices, threads, copies."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops
from graphcell.context import GRAPH_MODE
from tests.protobuf import decode
from tests.recording import fill, ramp


def zeros(*shape: int) -> Tensor:
    return Tensor(np.zeros(shape, np.float32))


def like(*shape: int | None, dtype: Any = ms.float32) -> Tensor:
    """A Tensor that describes an input."""
    return Tensor(shape=list(shape), dtype=dtype)


# -- items 144, 145, 146, 153: compiling -----------------------------------------------------------------------------------
def test_item_144_145_146_compile(mode: int) -> None:
    net = nn.Dense(3, 2)
    fill(ms, net)
    x = Tensor(ramp((4, 3)))
    assert not net.compiled
    net.compile(x)
    assert net.compiled
    np.testing.assert_allclose(net.compile_and_run(x).asnumpy(), x.asnumpy() @ net.weight.asnumpy().T + net.bias.asnumpy(), rtol=1e-6)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        net.compile()
    with pytest.raises(TypeError, match="takes 2 positional arguments but 3 were given"):
        net.compile(x, x)
    with pytest.raises(TypeError, match="missing 1 required"):
        net.compile_and_run()


def test_item_153_get_func_graph_proto(mode: int) -> None:
    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(3, 2)

        def construct(self, x: Any) -> Any:
            y = self.dense(x)
            if y.sum() > 0:
                y = y * 2
            return ops.topk(y, 1)

    net = Net()
    assert net.get_func_graph_proto() is None
    net.compile(Tensor(ramp((4, 3))))
    model = dict(decode(net.get_func_graph_proto()))
    assert model[1] == 1  # ir_version
    fields = list(decode(model[4]))
    nodes = [list(decode(value)) for number, value in fields if number == 1]
    kinds = [dict(n)[3].decode() for n in nodes]
    assert "matmul" in kinds and "if" in kinds and kinds.count("TupleGetItem") >= 2
    names = {dict(n)[2] for n in nodes}
    parameters = [dict(decode(value))[1].decode() for number, value in fields if number == 3]
    assert parameters[1:] == ["dense.weight", "dense.bias"]
    constants = {dict(decode(value))[1] for number, value in fields if number == 5}
    for n in nodes:  # every operand is a parameter, a constant, or a node
        for number, value in n:
            if number == 1:
                name = dict(decode(value))[1]
                assert name in names or name in constants or name.decode() in parameters
    regions = [dict(decode(value)) for n in nodes if dict(n)[3] == b"if" for number, value in n if number == 5]
    assert [r[1] for r in regions] == [b"region0", b"region1"]
    outputs = [dict(decode(value))[1] for number, value in fields if number == 4]
    assert len(outputs) == 2 and set(outputs) <= names


def test_item_185_run_construct(mode: int) -> None:
    class Scale(nn.Cell):
        def construct(self, x: Any, k: float = 1.0) -> Any:
            return x * k

    assert Scale().run_construct((Tensor([1.0]),), {"k": 3.0}).asnumpy().tolist() == [3.0]


# -- items 154, 192: declared inputs ---------------------------------------------------------------------------------------
class Add(nn.Cell):
    def construct(self, x: Any, k: Any = 1) -> Any:
        return x + k


def test_item_154_192_get_inputs(mode: int) -> None:
    net, x = Add(), like(None, 2)
    assert net.get_inputs() is None
    net.set_inputs(x)
    assert net.get_inputs() == (x,) and net.get_inputs()[0] is x
    net.set_inputs(k=x)
    assert net.get_inputs() == {"arg_specified_infos": [[1, x]], "total_arg_length": 2}
    assert x.shape == (-1, 2) and repr(x) == "Tensor(shape=[-1, 2], dtype=Float32, value=\n)"
    assert Tensor(shape=None, dtype=ms.float32).shape == (-2,)


def test_item_192_wrong_declarations() -> None:
    class Many(nn.Cell):
        def construct(self, *xs: Any) -> Any:
            return xs[0]

    with pytest.raises(ValueError, match=r"set_inputs should only set inputs or kwargs\(inputs: .*, kwargs: .*\)!"):
        Add().set_inputs(zeros(2), k=3)
    with pytest.raises(ValueError, match=r"For dict mode, valid key is \['x', 'k'\], but got zz!"):
        Add().set_inputs(zz=3)
    with pytest.raises(TypeError, match="Dynamic arguments is not accepted for VAR_POSITIONAL or VAR_KEYWORD parameters!"):
        Many().set_inputs(xs=zeros(2))
    ms.set_context(mode=GRAPH_MODE)
    with pytest.raises(TypeError, match="requires 1 positional argument and 1 default argument, total 2, but got 4"):
        Add().set_inputs(1, 2, 3, 4)
    with pytest.raises(TypeError, match="total 2, but got 0"):
        Add().set_inputs()


CALLS: list[tuple[Any, Any, Any, str]] = [
    ((like(2, 3),), (zeros(2, 4),), ValueError, "the shape of 1th input must be the same as expected, but got expected: 3, and input: 4!"),
    ((like(None, 3, None),), (zeros(2, 3),), ValueError, "the dims of 1th input must be the same as expected, but got expected: 3, and input: 2!"),
    ((like(None),), (Tensor([1, 2]),), TypeError, r"the 1th type should be Tensor\[Float32\], but got Tensor\[Int64\]!"),
    ((like(None), like(None)), (zeros(2),), ValueError, "the length of input must be equal to expected one, but got expected: 2 and input: 1!"),
    ((like(None),), (zeros(2), 3.0), ValueError, "expected: 1 and input: 2!"),
    ((like(None),), (3.0,), TypeError, "the 1th should be mutable one, but got static!"),
    ((3.0,), (zeros(2),), TypeError, "the 1th should be static one, but got mutable!"),
    ((like(None), 2.0), (zeros(2), 3.0), ValueError, "the 2th should be 2.0, but got 3.0!"),
    (((like(None),),), ((zeros(2), zeros(2)),), ValueError, "the 1th should be"),
]


@pytest.mark.parametrize(("declared", "given", "error", "text"), CALLS)
def test_item_192_calls_keep_to_what_was_declared(declared: Any, given: Any, error: Any, text: str) -> None:
    ms.set_context(mode=GRAPH_MODE)
    net = Add()
    net.set_inputs(*declared)
    for run in (net, net.compile, net.compile_and_run):
        with pytest.raises(error, match=text):
            run(*given)


def test_item_192_dynamic_shapes_run_any_size(mode: int) -> None:
    net = nn.Dense(3, 2, weight_init="ones", bias_init="zeros")
    net.set_inputs(like(None, 3))
    for rows in (1, 4, 7):
        assert net(Tensor(np.ones((rows, 3), np.float32))).asnumpy().tolist() == [[3.0, 3.0]] * rows
    any_rank = Add()
    any_rank.set_inputs(x=Tensor(shape=None, dtype=ms.float32))
    assert any_rank(zeros(2, 3), 2).shape == (2, 3) and any_rank(x=zeros(4)).shape == (4,)


def test_item_144_192_compiling_for_what_is_described(mode: int) -> None:
    net = nn.Dense(3, 2, weight_init="ones", bias_init="zeros")
    net.set_inputs(like(None, 3))
    net.compile(*net.get_inputs())
    assert net(Tensor(np.ones((2, 3), np.float32))).asnumpy().tolist() == [[3.0, 3.0]] * 2
    with pytest.raises(RuntimeError, match="has a shape and a dtype but no data"):
        net(like(None, 3))


# -- item 193: JitConfig ---------------------------------------------------------------------------------------------------
def test_item_193_strict_syntax_refuses_what_a_graph_cannot_do() -> None:
    class Asks(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x + float(x.asnumpy().sum())

    ms.set_context(mode=GRAPH_MODE)
    assert Asks()(Tensor([1.0])).asnumpy().tolist() == [2.0]
    strict = Asks()
    strict.set_jit_config(ms.JitConfig(jit_syntax_level="STRICT"))
    with pytest.raises(Exception, match="asnumpy"):
        strict(Tensor([1.0]))


# -- items 159, 166, 168, 172, 173, 184, 187, 189, 191, 195: settings that are kept -------------------------------------------
def test_item_159_init_parameters_data(mode: int) -> None:
    net = nn.Dense(2, 2, weight_init="ones")
    table = net.init_parameters_data()
    assert all(new.name == old.name for old, new in table.items())
    assert net.weight.asnumpy().tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_item_166_offload(mode: int) -> None:
    net = nn.Dense(1, 1)
    for value in ("Auto", 0, 20):
        net.offload(value)
    with pytest.raises(ValueError, match=r"For 'Dense', the 'backward_prefetch' must be str and must be in '\['Auto'\]', but got 'x'"):
        net.offload("x")
    with pytest.raises(ValueError, match="must be int and must >= 0, but got '-1'"):
        net.offload(-1)
    for bad in (1.5, True):
        with pytest.raises(TypeError, match="The input value must be int"):
            net.offload(bad)


def test_item_168_parameter_layout_dict() -> None:
    net = nn.ReLU()
    assert net.parameter_layout_dict == {}
    net.parameter_layout_dict = {"w": [1, 2]}
    assert net.parameter_layout_dict == {"w": [1, 2]}
    with pytest.raises(TypeError, match="'parameter_layout_dict' must be dict type, but got type <class 'int'>"):
        net.parameter_layout_dict = 3


@pytest.mark.parametrize("name", ["pipeline_stage", "pipeline_segment"])
def test_item_172_173_pipelines(name: str) -> None:
    net = nn.SequentialCell(nn.Dense(1, 1))
    with pytest.raises(AttributeError, match=f"The 'SequentialCell' object has no attribute '{name}'."):
        getattr(net, name)
    setattr(net, name, 2)
    assert getattr(net, name) == 2
    with pytest.raises(ValueError, match="can not be less than 0, but got -1"):
        setattr(net, name, -1)
    for bad in ("1", True):
        with pytest.raises(TypeError, match=f"'{name}' must be int type"):
            setattr(net, name, bad)


def test_item_184_187_189_191_195_kept_on_one_device(mode: int) -> None:
    net = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")
    assert net.remove_redundant_parameters() is None
    assert net.set_broadcast_flag() is net and net.set_broadcast_flag(False) is net
    assert net.set_data_parallel() is None
    assert net.shard(((1, 1),)) is None and net.shard(((1, 1),), ((1, 1),), {"weight": (1, 1)}) is None
    assert net.set_grad() is net and net.requires_grad
    assert net.set_grad(False).requires_grad is False
    assert net(Tensor([[1.0, 2.0]])).asnumpy().tolist() == [[3.0]]


def test_item_203_names_that_the_page_mentions() -> None:
    for path in ("nn.TrainOneStepCell", "amp.build_train_network", "train.Model", "Parameter.comm_fusion", "JitConfig", "float16", "float32", "bfloat16"):
        found: Any = ms
        for name in path.split("."):
            found = getattr(found, name)
    assert ms.float16 is ms.dtype.float16


# -- several threads ---------------------------------------------------------------------------------------------------------
def together(*functions: Callable[[], None]) -> None:
    """Runs functions in threads of their own, from one moment on; raises the first error."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(functions))

    def run(function: Callable[[], None]) -> None:
        try:
            start.wait(600)
            function()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(f,), daemon=True) for f in functions]
    for t in threads:
        t.start()
    for t in threads:
        t.join(600)
    assert not any(t.is_alive() for t in threads), "a thread hangs"
    if errors:
        raise errors[0]


def test_threads_that_call_one_cell_at_once(mode: int) -> None:
    net = nn.SequentialCell(nn.Dense(8, 8), nn.ReLU(), nn.Dense(8, 4))
    fill(ms, net)
    w0, b0, w1, b1 = (p.asnumpy().astype(np.float64) for p in net.get_parameters())
    inputs = [ramp((rows, 8), rows) for rows in (3, 3, 5)]
    wanted = [np.maximum(x @ w0.T + b0, 0) @ w1.T + b1 for x in inputs]

    def call(k: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(30):
                np.testing.assert_allclose(net(Tensor(inputs[k])).asnumpy(), wanted[k], rtol=1e-4, atol=1e-5)

        return run

    together(call(0), call(1), call(2))  # the first calls compile, at once


def test_one_thread_trains_while_others_infer_change_an_attribute_and_a_hook(mode: int) -> None:
    class Scaled(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(8, 4)
            self.factor = 1.0

        def construct(self, x: Any) -> Any:
            return self.dense(x) * self.factor

    net = Scaled()
    fill(ms, net)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.01)).set_train()
    x, y = Tensor(ramp((3, 8))), zeros(3, 4)
    done = threading.Event()
    losses: list[float] = []

    def train() -> None:
        try:
            losses.extend(float(step(x, y)) for _ in range(30))
        finally:
            done.set()

    def infer() -> None:
        while not done.is_set():
            assert np.isfinite(net(x).asnumpy()).all()

    def change() -> None:
        while not done.wait(0.002):
            net.factor = 3.0 - net.factor
            net.dense.register_forward_hook(lambda cell, args, output: output * 1.0).remove()

    together(train, infer, change)
    assert len(losses) == 30 and np.isfinite(losses).all()
    net.factor = 1.0
    want = x.asnumpy().astype(np.float64) @ net.dense.weight.asnumpy().T + net.dense.bias.asnumpy()
    np.testing.assert_allclose(net(x).asnumpy(), want, rtol=1e-4, atol=1e-5)


# -- copies ------------------------------------------------------------------------------------------------------------------
def double(cell: Any, args: Any, output: Any) -> Any:
    return output * 2


@pytest.mark.parametrize("again", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_keep_state_settings_and_hooks(mode: int, again: Callable[[Any], Any]) -> None:
    net = nn.SequentialCell(nn.Dense(2, 1, weight_init="ones", bias_init="zeros"), nn.ReLU())
    net.register_buffer("count", Tensor([1.0]))
    net.add_flags(level=3)
    net.set_inputs(like(None, 2))
    net.register_forward_hook(double)
    net.set_train()
    x = Tensor([[1.0, 2.0]])
    net(x)
    other = again(net)
    assert other(x).asnumpy().tolist() == [[6.0]] and other.training and other[0].training and other.level == 3
    assert [p.name for p in other.get_parameters()] == ["0.weight", "0.bias"] and other[0].weight is not net[0].weight
    other[0].weight.set_data(Tensor([[0.0, 0.0]]))
    other.count[0] = 9.0
    assert net(x).asnumpy().tolist() == [[6.0]] and net.count.asnumpy().tolist() == [1.0]
    assert str(other) == str(net)


def test_a_shallow_copy_shares_what_is_inside() -> None:
    net = nn.SequentialCell(nn.Dense(2, 1))
    other = copy.copy(net)
    assert other[0] is net[0]
    other.note = 3
    assert not hasattr(net, "note")


# -- Parameters and compiled functions ---------------------------------------------------------------------------------------
def test_requires_grad_is_noticed_by_compiled_functions(mode: int) -> None:
    class Two(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w = Parameter(Tensor([2.0]), name="w")
            self.v = Parameter(Tensor([3.0]), name="v")

        def construct(self, x: Any) -> Any:
            return x * self.w * self.v if self.w.requires_grad else x * self.v

    net, x = Two(), Tensor([1.0])
    gradient = ms.value_and_grad(net, None, net.trainable_params())
    step = ms.jit(lambda x: ms.grad(net, None, net.trainable_params())(x))

    def found() -> tuple[Any, ...]:
        value, both = gradient(x)
        return values(value), *map(values, both), *map(values, step(x))

    def values(t: Any) -> Any:
        return t.asnumpy().tolist()[0]

    for _ in range(2):
        assert found() == (6.0, 3.0, 2.0, 3.0, 2.0)
        net.w.requires_grad = False
        assert found() == (3.0, 0.0, 1.0, 1.0)
        net.w.requires_grad = True
