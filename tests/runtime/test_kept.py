"""What is kept of weights is never stale: each way to change a Parameter or a captured Tensor is seen by the next call.

The reference is numpy in double precision on the values as they are at the time of the call.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops
from graphcell.ops.linear_algebra import Inverse
from graphcell.runtime.kept import KeptMemory

RNG = np.random.default_rng(3)
Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def graph_mode() -> Iterator[None]:
    before = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    ms.set_context(mode=before)


@pytest.fixture(params=["native calls", "calls through Python"])
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of calling an executable."""
    if request.param != "native calls":
        monkeypatch.setattr("graphcell.runtime.workspaces.native", lambda *_: None)


@pytest.fixture
def prepares(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The flags of each run of `prepare` from now on."""
    seen: list[list[int]] = []
    before = KeptMemory.__init__

    def init(self: KeptMemory, kept: Any, prepare: Callable[..., int], name: str) -> None:
        def noted(inputs: int, flags: int, *rest: Any) -> int:
            seen.append(list((ctypes.c_uint8 * (len(kept.sources) + 1)).from_address(flags)))
            return prepare(inputs, flags, *rest)

        before(self, kept, noted, name)

    monkeypatch.setattr(KeptMemory, "__init__", init)
    return seen


def normal(*shape: int) -> Array:
    return (0.2 * RNG.standard_normal(shape)).astype(np.float32)


class Net(nn.Cell):
    """tanh(x W^T * scale / sqrt(var)) V, with a captured Tensor that is no Parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.w = Parameter(Tensor(normal(96, 80)), name="w")
        self.v = Parameter(Tensor(normal(96, 64)), name="v")
        self.var = Parameter(Tensor(np.abs(normal(96)) + 1), name="var")
        self.scale = Tensor(normal(96))

    def construct(self, x: Tensor) -> Tensor:
        return ops.matmul(ops.tanh(ops.matmul(x, self.w.T) * (self.scale * ops.rsqrt(self.var))), self.v)

    def expected(self, x: Tensor) -> Array:
        """Reads the values without going through what is tested: copies of what the buffers hold."""
        w, v, var, scale, x64 = (np.array(t._data, np.float64) for t in (self.w, self.v, self.var, self.scale, x))
        result: Array = np.tanh(x64 @ w.T * (scale / np.sqrt(var))) @ v
        return result


class Case:
    """A net, its compiled function, and a check that it is up to date."""

    def __init__(self) -> None:
        self.net, self.x = Net(), Tensor(normal(14, 80))
        self.net.set_train(False)
        self.run = ms.jit(lambda x: self.net(x))
        for _ in range(4):
            self.check()

    def check(self) -> None:
        got = self.run(self.x)
        np.testing.assert_allclose(got.asnumpy(), self.net.expected(self.x), rtol=1e-4, atol=1e-5)


@pytest.fixture
def case(calls: None, prepares: list[list[int]]) -> Case:
    made = Case()
    assert prepares == [[1, 1, 1, 1, 1]]  # w, scale, var, v, and all is new
    prepares.clear()
    return made


def test_nothing_changes_nothing_is_prepared(case: Case, prepares: list[list[int]]) -> None:
    for _ in range(5):
        case.check()
    assert not prepares


def test_what_is_kept_is_shown(case: Case) -> None:
    program = case.run._last.executable.compilation.listing.program
    assert program.kept is not None and program.kept.nbytes >= 96 * 80 * 4 + 96 * 64 * 4
    assert "prepare matmul" in case.run.kernels()
    assert f"keeps {program.kept.nbytes:,} bytes" in case.run.explain()


# -- public ways to change a Tensor --------------------------------------------------------------------------------------
def set_data(net: Net) -> None:
    net.w.set_data(Tensor(normal(96, 80)))


def set_data_of_another_dtype(net: Net) -> None:
    net.w.set_data(Tensor(normal(96, 80).astype(np.float64)))


def set_data_property(net: Net) -> None:
    net.v.data = Tensor(normal(96, 64))


def assign(net: Net) -> None:
    ops.assign(net.w, Tensor(normal(96, 80)))


def assign_value(net: Net) -> None:
    net.w.assign_value(Tensor(normal(96, 80)))


def assign_add(net: Net) -> None:
    ops.assign_add(net.w, Tensor(normal(96, 80)))


def assign_in_a_graph(net: Net) -> None:
    @ms.jit
    def change(value: Tensor) -> Tensor:
        ops.assign(net.w, value * 2.0)
        return value

    change(Tensor(normal(96, 80)))


def set_item(net: Net) -> None:
    net.w[3] = Tensor(normal(80))


def set_item_of_a_tensor(net: Net) -> None:
    net.scale[5] = 7.0 + RNG.standard_normal()


def in_place_op(net: Net) -> None:
    net.scale.fill_(float(RNG.standard_normal()))


def copy_into(net: Net) -> None:
    net.scale.copy_(Tensor(normal(96)))


def written_array(net: Net) -> None:
    net.w.asnumpy()[2] += 0.5


def written_array_of_a_tensor(net: Net) -> None:
    net.scale.asnumpy()[2] += 0.5


def numpy_function(net: Net) -> None:
    np.copyto(np.asarray(net.v), normal(96, 64))


def dlpack(net: Net) -> None:
    np.from_dlpack(net.var)  # a reader only; numpy's view of it is read-only, what others do with it is theirs
    net.var.numpy()[...] += 1


def view_of_a_view(net: Net) -> None:
    part = net.w.asnumpy()[::2].T[3:]
    part[...] *= 3


def load_param(net: Net) -> None:
    ms.load_param_into_net(net, {"w": Parameter(Tensor(normal(96, 80)), name="w")})


def load_param_of_a_dict_that_stays(net: Net) -> None:
    kept = {"w": Parameter(Tensor(normal(96, 80)), name="w")}
    net.__dict__["kept"] = kept
    ms.load_param_into_net(net, kept)


def load_checkpoint(net: Net) -> None:
    other = Net()
    path = Path(os.environ["PYTEST_TMP_CKPT"])
    ms.save_checkpoint(other, str(path))
    ms.load_checkpoint(str(path), net)


def replace_parameter(net: Net) -> None:
    net.w = Parameter(Tensor(normal(96, 80)), name="w")


def replace_tensor(net: Net) -> None:
    net.scale = Tensor(normal(96))


def another_initialisation(net: Net) -> None:
    net.w.set_data(ms.common.initializer.initializer("normal", (96, 80), ms.float32))


def train_step(net: Net) -> None:
    optimizer = nn.Momentum(net.trainable_params(), 0.5, 0.9)
    grads = ms.grad(lambda x: (net(x) ** 2).sum(), None, optimizer.parameters)
    step = ms.jit(lambda x: optimizer(grads(x)))
    for _ in range(2):
        step(Tensor(normal(14, 80)))


def eager_train_step(net: Net) -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    optimizer = nn.Adam(net.trainable_params(), 0.1)
    optimizer(ms.grad(lambda x: (net(x) ** 2).sum(), None, optimizer.parameters)(Tensor(normal(14, 80))))
    ms.set_context(mode=ms.GRAPH_MODE)


CHANGES = [
    set_data, set_data_of_another_dtype, set_data_property, assign, assign_value, assign_add, assign_in_a_graph, set_item, set_item_of_a_tensor,
    in_place_op, copy_into, written_array, written_array_of_a_tensor, numpy_function, dlpack, view_of_a_view, load_param,
    load_param_of_a_dict_that_stays, load_checkpoint,
    replace_parameter, replace_tensor, another_initialisation, train_step, eager_train_step,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_every_public_way_to_change_is_seen(case: Case, prepares: list[list[int]], change: Callable[[Net], None], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PYTEST_TMP_CKPT", str(tmp_path / "net.ckpt"))
    for _ in range(3):
        before = case.net.expected(case.x)
        change(case.net)
        assert not np.allclose(before, case.net.expected(case.x))
        case.check()
        case.check()
    gc.collect()
    case.check()
    prepares.clear()
    for _ in range(3):
        case.check()
    assert not prepares, "nothing changes any more"


def test_only_what_changed_is_prepared_again(case: Case, prepares: list[list[int]]) -> None:
    case.net.v.set_data(Tensor(normal(96, 64)))
    case.check()
    assert len(prepares) == 1 and sum(prepares[0]) == 1


# -- arrays that share memory --------------------------------------------------------------------------------------------
def test_a_view_that_is_held_may_be_written_at_any_time(case: Case, prepares: list[list[int]]) -> None:
    view = case.net.w.asnumpy()
    for k in range(4):
        view[k] = k + 0.5
        case.check()
    assert len(prepares) == 4 and all(sum(p) == 1 for p in prepares)
    view[7] = 0.25
    del view
    case.check()
    prepares.clear()
    case.check()
    assert not prepares


def test_a_slice_of_a_view_counts(case: Case) -> None:
    part = case.net.w.asnumpy()[1:5, ::3]
    for k in range(3):
        part[...] = k
        case.check()


def test_a_view_in_another_library_counts(case: Case) -> None:
    held: Any = memoryview(case.net.w.asnumpy())  # type: ignore[arg-type]
    for k in range(3):
        held[k, 0] = 1.0 + k
        case.check()


def test_an_address_that_was_given_away_counts(case: Case) -> None:
    address = case.net.w.data_ptr()
    floats = (ctypes.c_float * 80).from_address(address)
    for k in range(3):
        floats[0] = 2.0 + k
        case.check()


def test_a_tensor_around_the_users_array(calls: None) -> None:
    array = normal(80, 64)
    shared, x = Tensor.from_numpy(array), Tensor(normal(2, 80))
    f = ms.jit(lambda x: ops.matmul(x, shared))
    for k in range(4):
        array[k] = k
        np.testing.assert_allclose(f(x).asnumpy(), x.asnumpy().astype(np.float64) @ array, rtol=1e-4, atol=1e-5)


def test_a_tensor_around_foreign_memory(calls: None) -> None:
    memory = bytearray(normal(80, 64).tobytes())
    array = np.frombuffer(memory, np.float32).reshape(80, 64)
    shared, x = Tensor.from_numpy(array), Tensor(normal(2, 80))
    writer = np.frombuffer(memory, np.float32)
    f = ms.jit(lambda x: ops.matmul(x, shared))
    for k in range(4):
        writer[k * 64 : k * 64 + 9] = k
        np.testing.assert_allclose(f(x).asnumpy(), x.asnumpy().astype(np.float64) @ writer.reshape(80, 64), rtol=1e-4, atol=1e-5)


def test_two_parameters_with_one_buffer(case: Case) -> None:
    other = Parameter(Tensor(normal(96, 80)), name="other")
    case.net.w.set_data(other)
    case.check()
    other.asnumpy()[3] = 5.0
    case.check()
    other.set_data(Tensor(normal(96, 80)))
    case.check()


# -- several graphs ------------------------------------------------------------------------------------------------------
def test_training_and_inference_in_turn(case: Case, prepares: list[list[int]]) -> None:
    net = case.net
    optimizer = nn.Adam(net.trainable_params(), 0.05)
    grads = ms.value_and_grad(lambda x: (net(x) ** 2).mean(), None, optimizer.parameters)

    @ms.jit
    def step(x: Tensor) -> Any:
        loss, g = grads(x)
        return ops.depend(loss, optimizer(g))

    x = Tensor(normal(14, 80))
    for k in range(6):
        step(x)
        before = net.expected(case.x)
        case.check()
        for _ in range(k):
            step(x)
        if k:
            assert not np.allclose(before, net.expected(case.x))
        case.check()
        case.check()


def test_two_graphs_share_a_parameter(calls: None) -> None:
    w, x = Parameter(Tensor(normal(80, 64)), name="w"), Tensor(normal(2, 80))
    f, g = ms.jit(lambda x: ops.matmul(x, w)), ms.jit(lambda x: ops.matmul(ops.relu(x), w))
    change = ms.jit(lambda s: ops.assign(w, w * s))
    for k in range(5):
        want = np.array(w._data, np.float64)
        np.testing.assert_allclose(f(x).asnumpy(), np.array(x._data) @ want, rtol=1e-4, atol=1e-5)
        if k % 2:
            w.set_data(Tensor(normal(80, 64)))
        else:
            change(Tensor(1.5))
        want = np.array(w._data, np.float64)
        np.testing.assert_allclose(g(x).asnumpy(), np.maximum(np.array(x._data), 0) @ want, rtol=1e-4, atol=1e-5)


def test_training_another_net_prepares_nothing(case: Case, prepares: list[list[int]]) -> None:
    student = Net()
    optimizer = nn.SGD(student.trainable_params(), 0.1)
    grads = ms.grad(lambda x, y: ((student(x) - y) ** 2).mean(), None, optimizer.parameters)
    step = ms.jit(lambda x, y: optimizer(grads(x, y)))
    for _ in range(4):
        step(case.x, case.run(case.x))
        student.w.asnumpy()[0] += 1
    assert not prepares


def test_weights_that_a_graph_reads_but_does_not_train(calls: None, prepares: list[list[int]]) -> None:
    frozen, head = Parameter(Tensor(normal(80, 64)), name="f", requires_grad=False), Parameter(Tensor(normal(64, 5)), name="h")
    optimizer = nn.SGD([head], 0.1)
    grads = ms.value_and_grad(lambda x: (ops.matmul(ops.tanh(ops.matmul(x, frozen)), head) ** 2).sum(), None, optimizer.parameters)

    @ms.jit
    def step(x: Tensor) -> Any:
        loss, g = grads(x)
        return ops.depend(loss, optimizer(g))

    x = Tensor(normal(14, 80))
    for _ in range(4):
        h, f = np.array(head._data, np.float64), np.array(frozen._data, np.float64)
        np.testing.assert_allclose(step(x).asnumpy(), ((np.tanh(np.array(x._data) @ f) @ h) ** 2).sum(), rtol=1e-4)
    assert len(prepares) == 1
    frozen.set_data(frozen * 2)
    h, f = np.array(head._data, np.float64), np.array(frozen._data, np.float64)
    np.testing.assert_allclose(step(x).asnumpy(), ((np.tanh(np.array(x._data) @ f) @ h) ** 2).sum(), rtol=1e-4)
    assert len(prepares) == 2


def test_the_trained_weights_themselves_are_not_kept(calls: None, prepares: list[list[int]]) -> None:
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    grads = ms.grad(lambda x: (net(x) ** 2).sum(), None, optimizer.parameters)
    step = ms.jit(lambda x: optimizer(grads(x)))
    for _ in range(3):
        step(Tensor(normal(14, 80)))
    assert not prepares


def test_copies_are_independent(case: Case) -> None:
    other = copy.deepcopy(case.net)
    run = ms.jit(lambda x: other(x))
    other.w.set_data(other.w * 2)
    np.testing.assert_allclose(run(case.x).asnumpy(), other.expected(case.x), rtol=1e-4, atol=1e-5)
    case.check()
    again = pickle.loads(pickle.dumps(case.net.w))
    case.net.w.set_data(again * 3)
    case.check()


def test_the_old_buffer_comes_back_changed(case: Case) -> None:
    """The very same array again, with other values that nobody announced."""
    old = case.net.w.asnumpy()
    case.net.w.set_data(Tensor(normal(96, 80)))
    case.check()
    old[...] = 0.125
    case.net.w.set_data(Tensor.from_numpy(old))
    del old
    case.check()


def test_many_threads(case: Case) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(30):
                case.check()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for _ in range(20):
        case.net.w.asnumpy()  # only looks, but nobody can know
    for t in threads:
        t.join()
    assert not errors


def test_ops_without_native_code_are_run_once(calls: None, prepares: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """If one raises, the next call starts afresh."""
    w, x = Parameter(Tensor(normal(80, 80) + 20 * np.eye(80, dtype=np.float32)), name="w"), Tensor(normal(2, 80))
    f = ms.jit(lambda x: ops.matmul(x, ops.inverse(w)))
    evaluate, runs = Inverse.eval, []

    def failing(self: Inverse, *args: Array) -> Array:
        runs.append(1)
        if len(runs) == 1:
            raise FloatingPointError("as a test")
        return evaluate(self, *args)

    monkeypatch.setattr(Inverse, "eval", failing)
    with pytest.raises(FloatingPointError, match="as a test"):
        f(x)
    wanted = np.array(x._data) @ np.linalg.inv(np.array(w._data, np.float64))
    for _ in range(4):
        np.testing.assert_allclose(f(x).asnumpy(), wanted, rtol=1e-4, atol=1e-5)
    assert len(runs) == 2 and prepares == [[1, 1]] * 2
