"""The eager mode with native kernels, compiled at the first call: against numpy in float64, and against itself without kernels."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops
from graphcell.ir.graph import Graph
from graphcell.ops import kernels
from graphcell.ops.arithmetic import Mul
from graphcell.ops.creation import Full
from graphcell.ops.dispatch import Signature, apply, apply1
from graphcell.ops.kernels import Native, Work, composite
from graphcell.runtime import eager as kernels_of_runtime
from graphcell.runtime import executable
from graphcell.tensor import state

RNG = np.random.default_rng(7)


def t(*shape: int) -> Tensor:
    return Tensor(RNG.standard_normal(shape).astype(np.float32))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is compiled at its first call."""
    monkeypatch.setattr(kernels, "LEAST_CALLS", 1)
    monkeypatch.setattr(kernels, "WORTH_NANOSECONDS", 0)
    monkeypatch.setattr(Native, "enabled", True)


def without_kernels(function: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as m:
        m.setattr(Native, "enabled", False)
        m.setattr("graphcell.ops.dispatch._signatures", {})
        return function()


def arrays(x: Any) -> list[np.ndarray[Any, Any]]:
    if isinstance(x, Tensor):
        return [x.asnumpy().astype(np.float64)]
    return [a for part in x for a in arrays(part)] if isinstance(x, (tuple, list)) else []


X, W, B, IMAGE, KERNEL, LABELS = t(6, 16), t(8, 16), t(8), t(2, 3, 9, 9), t(4, 3, 3, 3), Tensor(np.array([0, 3, 5, 1, 15, 2], np.int32))
GAMMA, BETA = t(16), t(16)
SEQUENCE, RECURRENT = t(5, 2, 3), nn.GRU(3, 4, bidirectional=True)
COMPOSITIONS: dict[str, Callable[[], Any]] = {
    "softmax": lambda: ops.softmax(X, axis=0),
    "log_softmax": lambda: ops.log_softmax(X),
    "layer_norm": lambda: ops.layer_norm(X, (16,), GAMMA, BETA),
    "group_norm": lambda: ops.group_norm(t_image(), 1, None, None),
    "gelu": lambda: (ops.gelu(X), ops.gelu(X, approximate="tanh")),
    "activations": lambda: (ops.silu(X), ops.mish(X), ops.elu(X, 0.5), ops.softplus(X), ops.hardswish(X), ops.leaky_relu(X, 0.3), ops.glu(X)),
    "cross_entropy": lambda: ops.cross_entropy(X, LABELS, label_smoothing=0.1),
    "losses": lambda: (ops.mse_loss(X, X * 0.5), ops.huber_loss(X, X + 3.0), ops.binary_cross_entropy_with_logits(X, ops.sigmoid(X))),
    "dense": lambda: ops.dense(X, W, B),
    "conv2d": lambda: ops.conv2d(IMAGE, KERNEL, pad_mode="pad", padding=1, stride=2),
    "max_pool2d": lambda: ops.max_pool2d(IMAGE, 3, 2),
    "avg_pool2d": lambda: ops.avg_pool2d(IMAGE, 3, 2),
    "arithmetic": lambda: (X * 2 + 1, 1 / (X * X + 1), -X, X - X.sum(0), abs(X) ** 0.5, ops.maximum(X, 0.1), X > 0, ops.tanh(X) / 3, X // 0.7, X % 0.7),
    "reductions": lambda: (X.sum(), X.mean(1), X.std(), ops.logsumexp(X, 0), X.var(0)),
    "matmul": lambda: (ops.matmul(X, W.T), ops.matmul(X.T, X)),
    "clip_by_global_norm": lambda: (*ops.clip_by_global_norm((X, W, B), 0.7), *ops.clip_by_global_norm([X * 0.01, B * 0.01], 3.0), ops.clip_by_global_norm(X, 1.0)),
    "stack": lambda: (ops.stack([X, X * 2.0, X.T.T], 1), ops.stack((B, B), -1), ops.stack([LABELS]), ops.stack((X[0], X[5]))),
    "cross": lambda: (ops.cross(X[:, :3], X[:1, 3:6]), ops.cross(X[:3], X[3:], 0)),
    "norm": lambda: (ops.norm(X), ops.norm(X, dim=1, keepdim=True), ops.norm(X, ord=1, dim=0), ops.norm(X, ord=float("inf"), dim=(0, 1))),
    "masked_fill": lambda: (ops.masked_fill(X, X > 0.5, -1e4), ops.masked_fill(X, X[:, :1] > 0, Tensor(2.0)), ops.masked_fill(LABELS, LABELS > 3, 0)),
    "one_hot": lambda: (ops.one_hot(LABELS, 7), ops.one_hot(LABELS, 16, 2.5, -1.0, axis=0)),
    "recurrent": lambda: RECURRENT(SEQUENCE, None, Tensor(np.array([5, 3], np.int32))),
    "running extrema": lambda: (*ops.cummax(X, 1), *ops.cummin(X, 0), *ops.cummin(LABELS, 0)),
}


def t_image() -> Tensor:
    return IMAGE


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_results_are_those_of_eval(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function = COMPOSITIONS[name]
    expected = arrays(without_kernels(function, monkeypatch))
    for _ in range(5):  # in numpy, compiled, by native calls
        found = arrays(function())
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=3e-6, atol=3e-6)


GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "layer_norm": (lambda x, g, b: (ops.layer_norm(x, (16,), g, b) * X).sum(), (t(6, 16), GAMMA, BETA)),
    "softmax": (lambda x: (ops.softmax(x) * X).sum(), (t(6, 16),)),
    "gelu": (lambda x: (ops.gelu(x) * X).sum(), (t(6, 16),)),
    "cross_entropy": (lambda x: ops.cross_entropy(x, LABELS), (t(6, 16),)),
    "dense": (lambda x, w, b: ops.tanh(ops.dense(x, w, b)).sum(), (X, W, B)),
    "conv2d": (lambda x, w: ops.sin(ops.conv2d(x, w, pad_mode="valid")).sum(), (IMAGE, KERNEL)),
    "max_pool2d": (lambda x: (ops.max_pool2d(x, 3, 2) * 3.0).sum(), (IMAGE,)),
    "arithmetic": (lambda x: ((x * 2 + 1) / (x * x + 1) - ops.exp(-x) * x).mean(), (t(6, 16),)),
    "clip_by_global_norm": (lambda x, w: sum(g.sum() for g in ops.clip_by_global_norm((x, w * 3.0), 0.7)), (t(6, 16), W)),
    "stack": (lambda x: (ops.stack([x, x * x, x], 1) * 2.0).sum(), (t(6, 16),)),
    "cross": (lambda x: (ops.cross(x[:, :3], x[:, 3:6]) ** 2).sum(), (t(6, 16),)),
    "norm": (lambda x: (ops.norm(x, dim=1) * 3.0).sum() + ops.norm(x), (t(6, 16),)),
    "masked_fill": (lambda x: (ops.masked_fill(x, x > 0.5, 2.0) * x).sum(), (t(6, 16),)),
    "recurrent": (lambda x: RECURRENT(x, None, Tensor(np.array([5, 3], np.int32)))[0], (SEQUENCE,)),
    "running extrema": (lambda x: (ops.cummax(x, 1)[0] * X).sum() - ops.cummin(x, 0)[0].sum(), (t(6, 16),)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_eval(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, inputs = GRADIENTS[name]
    gradient = ms.grad(function, tuple(range(len(inputs))))
    expected = arrays(without_kernels(lambda: gradient(*inputs), monkeypatch))
    for _ in range(4):
        for a, b in zip(arrays(gradient(*inputs)), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def test_gradients_of_gradients_through_compositions(monkeypatch: pytest.MonkeyPatch) -> None:
    x = t(3, 5)

    def second(x: Tensor) -> Tensor:
        return ms.grad(lambda y: (ms.grad(lambda z: (ops.softmax(z) * ops.gelu(z)).sum())(y) ** 2).sum())(x)  # type: ignore[no-any-return]

    expected = without_kernels(lambda: second(x), monkeypatch).asnumpy()
    for _ in range(3):
        np.testing.assert_allclose(second(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)


def test_running_statistics_are_written() -> None:
    mean, var = Parameter(Tensor(np.zeros(3, np.float32)), name="m"), Parameter(Tensor(np.ones(3, np.float32)), name="v")
    x = IMAGE.asnumpy().astype(np.float64)
    batch, unbiased = x.mean((0, 2, 3)), x.var((0, 2, 3), ddof=1)
    expected_mean, expected_var = np.zeros(3), np.ones(3)
    for _ in range(5):
        y = ops.batch_norm(IMAGE, mean, var, None, None, training=True, momentum=0.2)
        expected_mean, expected_var = 0.8 * expected_mean + 0.2 * batch, 0.8 * expected_var + 0.2 * unbiased
        np.testing.assert_allclose(mean.asnumpy(), expected_mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(var.asnumpy(), expected_var, rtol=1e-5)
    wanted = (x - batch[:, None, None]) / np.sqrt(x.var((0, 2, 3))[:, None, None] + 1e-5)
    np.testing.assert_allclose(y.asnumpy(), wanted, rtol=1e-4, atol=1e-5)


def test_a_network_trains_to_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    start = {"w": RNG.standard_normal((8, 16)).astype(np.float32), "v": RNG.standard_normal((4, 8)).astype(np.float32)}

    def train() -> list[Tensor]:
        net = nn.SequentialCell([nn.Dense(16, 8, weight_init=Tensor(start["w"])), nn.LayerNorm((8,)), nn.GELU(), nn.Dense(8, 4, weight_init=Tensor(start["v"]))])
        optimizer = nn.Adam(net.trainable_params(), learning_rate=0.01)
        step = ms.value_and_grad(lambda x, y: ops.cross_entropy(net(x), y), None, optimizer.parameters)
        labels = Tensor(np.array([0, 1, 2, 3, 0, 1], np.int32))
        for _ in range(6):
            _, grads = step(X, labels)
            optimizer(grads)
        return list(net.get_parameters())

    ms.set_seed(1)
    expected = arrays(without_kernels(train, monkeypatch))
    ms.set_seed(1)
    for a, b in zip(arrays(train()), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


# -- what is told apart --------------------------------------------------------------------------------------------------
def test_signs_of_zeros_and_numbers_of_other_types_are_told_apart() -> None:
    for _ in range(4):
        for zero in (0.0, -0.0):
            filled = apply1(Full(zero, (3,), ms.float32)).asnumpy()
            assert np.array_equal(np.signbit(filled), [np.signbit(zero)] * 3)
            assert np.array_equal(np.signbit((Tensor([1.0, 2.0]) * zero).asnumpy()), [np.signbit(zero)] * 2)
        x = Tensor(np.array([3, 4], np.int32))
        assert (x * 2).dtype == ms.int32 and (x * 2.0).dtype == ms.float32 and (x * True).dtype == ms.int32
        assert (x * 2.5).asnumpy().tolist() == [7.5, 10.0]
        assert ops.pow(x, 2).asnumpy().tolist() == [9, 16]


def test_operands_that_are_not_contiguous_stay_as_they_are() -> None:
    base = RNG.standard_normal((5, 7)).astype(np.float32)
    for view in (base.T, base[::2], base[:, 1:3], np.broadcast_to(base[:1], (4, 7))):
        x = Tensor.of_array(view)
        for _ in range(4):
            np.testing.assert_array_equal((x * x).asnumpy(), view * view)
            np.testing.assert_allclose(ops.softmax(x).asnumpy().sum(-1), 1, rtol=1e-5)
    y = Tensor(base)
    transposed = y.T
    (transposed * transposed).asnumpy()
    assert np.shares_memory(transposed.asnumpy(), y.asnumpy()) or transposed.asnumpy().tolist() == base.T.tolist()


def test_parameters_and_tensors_are_operands_alike() -> None:
    p = Parameter(Tensor(np.array([1, 2], np.float32)), name="p")
    x = Tensor(np.array([10, 20], np.float32))
    for k in range(5):
        assert (p * x).asnumpy().tolist() == [10.0 * (k + 1), 40.0]
        p.set_data(Tensor(np.array([k + 2, 2], np.float32)))


def test_results_are_kept_while_somebody_sees_them() -> None:
    x = t(4)
    kept = [x * float(k) for k in range(10)]
    for k, y in enumerate(kept):
        np.testing.assert_array_equal(y.asnumpy(), x.asnumpy() * np.float32(k))


def test_errors_are_the_same_before_and_after() -> None:
    def texts() -> list[str]:
        found = []
        calls: list[Callable[[], Any]] = [
            lambda: X * t(5), lambda: ops.softmax(LABELS), lambda: ops.dense(X, t(3, 3)), lambda: ops.layer_norm(X, (3,)),
        ]  # fmt: skip
        for wrong in calls:
            with pytest.raises((TypeError, ValueError)) as error:
                wrong()
            found.append(str(error.value))
        return found

    before = texts()
    for _ in range(3):
        assert ops.softmax(X).shape == (6, 16) and ops.dense(X, W).shape == (6, 8)
    assert texts() == before


def test_a_tape_records_what_is_needed() -> None:
    x = t(3)
    for _ in range(4):
        assert ms.grad(lambda y: (y * 3).sum())(x).asnumpy().tolist() == [3, 3, 3]
        assert ms.grad(lambda y: (ops.stop_gradient(ops.gelu(y)) * 2 + y).sum())(x).asnumpy().tolist() == [1, 1, 1]


# -- when ------------------------------------------------------------------------------------------------------------------
def test_work_is_due_once_it_took_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "LEAST_CALLS", 3)
    monkeypatch.setattr(kernels, "WORTH_NANOSECONDS", 1000)
    work = Work()
    assert [work.is_due(400.0) for _ in range(5)] == [False, False, True, False, False]
    assert not any(Work().is_due(400.0) for _ in range(4))


@pytest.mark.slow
def test_how_long_something_took_does_not_matter() -> None:
    """Else the same program would give other bits on a busy machine."""
    script = """
import hashlib, sys, time
import numpy as np
import graphcell as ms
from graphcell import nn, ops
from graphcell.ops import dispatch
if sys.argv[1] == "slow":
    evaluate = dispatch.evaluate
    def slowly(*args):
        time.sleep(0.004)
        return evaluate(*args)
    dispatch.evaluate = slowly
ms.set_seed(1)
net = nn.SequentialCell(nn.Dense(64, 64), nn.LayerNorm((64,)), nn.GELU(), nn.Dense(64, 5))
optimizer = nn.Adam(net.trainable_params())
x, y = ms.Tensor(np.random.default_rng(0).standard_normal((256, 64)).astype(np.float32)), ms.Tensor(np.arange(256) % 5, ms.int32)
step = ms.value_and_grad(lambda x, y: ops.cross_entropy(net(x), y), None, optimizer.parameters)
for _ in range(25):
    loss, gradients = step(x, y)
    optimizer(gradients)
kernels = sum(s.kernel is not None for s in dispatch._signatures.values())
print(kernels, hashlib.md5(b"".join(p.asnumpy().tobytes() for p in net.get_parameters())).hexdigest())
"""
    outputs = [subprocess.run([sys.executable, "-c", script, speed], capture_output=True, text=True, check=True).stdout for speed in ("slow", "fast")]
    assert outputs[0] == outputs[1] and outputs[0]


def test_nothing_is_compiled_when_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Native, "enabled", False)
    monkeypatch.setattr("graphcell.ops.dispatch._signatures", {})
    x = t(11, 3)
    for _ in range(3):
        apply1(Mul(), x, x)
        ops.softmax(x)
    assert Signature.of(Mul(), (x, x)).kernel is None


def test_ops_are_compiled_once_and_views_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcell.ops.dispatch._signatures", {})
    made: list[str] = []
    compile_kernel = Native.compile

    def counted(graph: Graph) -> Any:
        made.append(graph.name)
        return compile_kernel(graph)

    monkeypatch.setattr(Native, "compile", staticmethod(counted))
    x = t(13, 3)
    for _ in range(4):
        apply1(Mul(), x, x)
        x.reshape((39,)).reshape((3, 13))
    assert made == ["mul"]


def test_loops_that_are_traced_again_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    compile_graph = executable.compile_graph

    def counted(graph: Graph, **options: Any) -> Any:
        made.append(graph.name)
        return compile_graph(graph, **options)

    monkeypatch.setattr(executable, "compile_graph", counted)
    layer, x = nn.LSTM(3, 4), t(7, 2, 3)
    gradient = ms.grad(lambda x: (layer(x)[0] ** 2).sum(), weights=layer.trainable_params())
    layer(x), gradient(x)
    assert any("for" in name or "reversed" in name for name in made)
    made.clear()
    for _ in range(2):
        layer(x), gradient(x)
    assert made == []


def test_a_composite_that_reads_other_tensors_stays_in_numpy() -> None:
    other = t(4)

    @composite
    def f(x: Tensor) -> Tensor:
        return x + other

    x = t(4)
    for _ in range(3):
        np.testing.assert_array_equal(f(x).asnumpy(), x.asnumpy() + other.asnumpy())
        other[0] = float(other.asnumpy()[0]) + 1


def test_a_composite_that_returns_its_argument_does_so() -> None:
    @composite
    def f(x: Tensor) -> Tensor:
        return x

    x = t(4)
    assert all(f(x) is x for _ in range(4))


def test_threads_share_kernels() -> None:
    x, failures = t(64, 64), []
    expected = np.tanh(x.asnumpy().astype(np.float64) * 1.5)

    def work() -> None:
        for _ in range(50):
            if not np.allclose(ops.tanh(x * 1.5).asnumpy(), expected, atol=1e-5):
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and state.trace is None


@pytest.mark.parametrize(("dtype", "copied"), [(ms.float16, True), (ms.float32, False)])
def test_operands_that_lie_apart_are_copied_where_numpy_is_slower(dtype: Any, copied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half precision is slow in numpy; floats are read as they lie."""
    calls: list[int] = []
    original = kernels_of_runtime.Kernel.copying
    monkeypatch.setattr(kernels_of_runtime.Kernel, "copying", lambda self, operands: calls.append(1) or original(self, operands))
    monkeypatch.setattr("graphcell.ops.dispatch._signatures", {})
    x = np.random.default_rng(0).standard_normal((300, 200)).astype(np.float32)
    for _ in range(3):
        turned = Tensor.of_array(Tensor(x).astype(dtype).asnumpy().T)
        (got,) = apply(Mul(), turned, turned)
        np.testing.assert_allclose(got.astype(ms.float32).asnumpy(), (x * x).T, rtol=4e-3, atol=1e-3)
    assert bool(calls) is copied
