"""Cells whose inputs have any number of rows: results against those of the same Cell compiled for each shape, and how often it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphcell as gc
from graphcell import Parameter, Tensor, nn, ops
from graphcell.frontend import trace_function
from graphcell.runtime.block_sizes import HEAVY_WITH_WEIGHTS, LIGHT

SIZES_OF_CALLS = (5, 1, 3, 37, 100, 300)
rng = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def graph_mode() -> Iterator[None]:
    gc.set_context(mode=gc.GRAPH_MODE)
    yield
    gc.set_context(mode=gc.PYNATIVE_MODE)


class Classifier(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.SequentialCell(nn.Dense(12, 16), nn.ReLU(), nn.LayerNorm((16,)), nn.Dense(16, 5))
        self.norm = nn.BatchNorm1d(5)

    def construct(self, x: Tensor) -> Any:
        y = ops.softmax(self.norm(self.layers(x)), -1)
        return y, {"best": y.argmax(1), "sum": y.sum(-1), "classes": 5}


class Recurrent(nn.Cell):
    """The number of rows makes the first state; steps are a loop of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.u = nn.Dense(8, 6), nn.Dense(6, 6)

    def construct(self, x: Tensor) -> Any:
        h = ops.zeros((x.shape[0], 6), gc.float32)
        states = []
        for t in range(x.shape[1]):
            h = ops.tanh(self.w(x[:, t]) + self.u(h))
            states.append(h)
        return ops.stack(states), h


class Attention(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.qkv, self.out = nn.Embedding(50, 16), nn.Dense(16, 48), nn.Dense(16, 16)

    def construct(self, ids: Tensor) -> Any:
        x = self.table(ids) + ops.arange(ids.shape[1]).astype(gc.float32).expand_dims(1)
        n, t, d = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, 2, d // 2).transpose(2, 0, 3, 1, 4)
        weights = ops.softmax(ops.matmul(q, k.swapaxes(-1, -2)) / 3.0, -1)
        return self.out(ops.matmul(weights, v).swapaxes(1, 2).reshape(n, t, d))


class Pictures(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.up = nn.Conv2d(3, 4, 3, 2, "pad", 1), nn.BatchNorm2d(4), nn.Conv2dTranspose(4, 3, 2, 2, "valid")

    def construct(self, x: Tensor) -> Any:
        y = ops.relu(self.norm(self.conv(x)))
        return ops.cat((x, self.up(y)), 1), ops.max_pool2d(y, 2).mean((2, 3)).flatten(start_dim=0)


class Layers(nn.Cell):
    """Time-major layers: rows lie between steps and features, and both are one dimension in between."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(8, 6, 2, bidirectional=True, batch_first=True), nn.GRU(12, 4)
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

    def construct(self, x: Tensor) -> Any:
        y, _ = self.gru(self.lstm(x)[0].swapaxes(0, 1))
        return self.encoder(y.swapaxes(0, 1)), y


class Written(nn.Cell):
    """Columns are written into; each row is a matrix."""

    def construct(self, x: Tensor) -> Any:
        y = x * 1
        y[:, 1:] = x[:, :2]
        y[..., 0] = ops.ones((x.shape[0], 3))
        a = ops.matmul(x, x.swapaxes(1, 2)) + 2 * ops.eye(3, 3, gc.float32)
        return y, ops.cholesky(a), ops.det(a), ops.slogdet(a)[1], ops.matrix_solve(a, x[:, :, :1])


class Folded(nn.Cell):
    def construct(self, x: Tensor) -> Any:
        if x.shape == x.astype(gc.int32).shape:
            x = (x.reshape(-1, 4) @ ops.ones((4, 3), gc.float32)).reshape(x.shape[0], -1)
        return x.cumsum(1), ops.sort(x, 1)[0], ops.ones((2, x.shape[0]), gc.float32), ops.ones((2,), gc.float32)


ROW_WISE: dict[str, tuple[type[nn.Cell], tuple[int, ...], Any]] = {
    "classifier": (Classifier, (12,), np.float32), "recurrent": (Recurrent, (4, 8), np.float32), "long recurrent": (Recurrent, (40, 8), np.float32),
    "written": (Written, (3, 3), np.float32), "layers": (Layers, (5, 8), np.float32), "attention": (Attention, (7,), np.int32), "pictures": (Pictures, (3, 8, 8), np.float32), "folded": (Folded, (8,), np.float32),
}  # fmt: skip


def make(rows: int, shape: tuple[int, ...], dtype: Any) -> Tensor:
    values = rng.integers(0, 50, (rows, *shape)) if dtype is np.int32 else rng.standard_normal((rows, *shape))
    return Tensor(values.astype(dtype))


def assert_close(got: Any, wanted: Any) -> None:
    assert type(got) is type(wanted)
    if isinstance(wanted, dict):
        assert list(got) == list(wanted)
        assert_close(tuple(got.values()), tuple(wanted.values()))
    elif isinstance(wanted, tuple):
        for a, b in zip(got, wanted, strict=True):
            assert_close(a, b)
    elif isinstance(wanted, Tensor):
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        np.testing.assert_allclose(got.asnumpy(), wanted.asnumpy(), rtol=2e-5, atol=2e-5)
    else:
        assert got == wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", ROW_WISE)
def test_any_number_of_rows(name: str) -> None:
    kind, shape, dtype = ROW_WISE[name]
    net = kind().set_train(False)
    reference = gc.jit(net._run)
    net.set_inputs(Tensor(shape=[None, *shape], dtype=gc.float32 if dtype is np.float32 else gc.int32))
    for rows in SIZES_OF_CALLS:
        x = make(rows, shape, dtype)
        assert_close(net(x), reference(x))
    assert "blocks of rows" in net._compiled.explain()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_many_numbers_of_rows_need_few_graphs() -> None:
    net = Classifier().set_train(False)
    net.set_inputs(Tensor(shape=[None, 12], dtype=gc.float32))
    for rows in range(1, 400):
        assert net(make(rows, (12,), np.float32))[0].shape == (rows, 5)
    assert len(list(net._compiled._all_entries())) <= len(LIGHT.rows)  # type: ignore[attr-defined]


class Computed(nn.Cell):
    """What `function` makes of x."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def construct(self, x: Tensor) -> Any:
        return self.function(x)


class Held:
    """Python that is not interpreted sees the rows."""

    def __init__(self, x: Tensor) -> None:
        self.rows = x.shape[0]

    def __len__(self) -> int:
        return self.rows


def looked_up(x: Tensor) -> Any:
    try:
        factor = {5: 3.0}[x.shape[0]]
    except Exception:
        factor = 1.0
    return x * factor


def added(x: Tensor) -> Any:
    try:
        return x + ops.ones((5, 3), gc.float32)
    except ValueError:
        return x


def iterated(x: Tensor) -> Any:
    total = x[0] * 0
    for row in x:
        total = total + row
    return total


def halved(x: Tensor) -> Any:
    n, steps = x.shape[0], 0
    while n:
        n //= 2
        steps += 1
    return x * steps


def first_written(x: Tensor) -> Any:
    y = x * 1
    y[:2] = 5.0
    return y


TABLE = list(range(60))
IN_STAGES: dict[str, Callable[[Tensor], Any]] = {
    "centred": lambda x: x - x.mean(0), "divided": lambda x: x / x.shape[0], "numbered": lambda x: x + ops.arange(x.shape[0]).astype(gc.float32).expand_dims(1),
    "counted": lambda x: ops.ones((x.shape[0],), gc.float32).sum() + x, "halved": halved, "bits": lambda x: x * x.shape[0].bit_length(),
    "thousands": lambda x: x + x.shape[0] // 10, "cut table": lambda x: x * len(TABLE[: x.shape[0]]),
}  # fmt: skip
"""Functions whose rows meet in sums, or ask how many there are."""
MIXING: dict[str, Callable[[Tensor], Any]] = {
    "reversed": lambda x: x[::-1], "related": lambda x: ops.matmul(x, x.T), "iterated": iterated, "square": lambda x: x[:, :1] * ops.ones((1, x.shape[0])),
    "one more": lambda x: (x, ops.ones((x.shape[0] + 1,))), "outer": lambda x: ops.meshgrid(x[:, 0], x[:, 1]), "number": lambda x: (x, x.shape[0]), "shape": lambda x: {"shape": x.shape, "x": x},
    "text": lambda x: (x, f"{len(x)} rows"),
    "first rows": first_written, "inside": lambda x: x.expand_dims(0).broadcast_to((2, *x.shape)).reshape(-1, 3), "across": lambda x: x.reshape(3, -1), "transposed": lambda x: x.T.reshape(-1), "beyond": lambda x: x * 2 if x[1:].shape[0] > 50 else x[:1],
}  # fmt: skip
"""Functions of whose rows not even some can be treated apart."""
SPECIAL: dict[str, Callable[[Tensor], Any]] = {
    "more than": lambda x: x * 2 if x.shape[0] > 10 else x, "half": lambda x: x * 2 if x.shape[0] / 2 > 4 else x, "negative": lambda x: x * 2 if -x.shape[0] < -8 else x,
    "clipped": lambda x: x * min(x.shape[0], 7), "get": lambda x: x * {5: 1.0}.get(x.shape[0], 2.0), "text": lambda x: x * 2 if f"{x.shape[0]}" == "5" else x,
    "list": lambda x: x * 2 if len([0] * x.shape[0]) > 8 else x, "set": lambda x: x * len({x.shape[0], 5}),
    "caught": looked_up, "error": added, "object": lambda x: x * Held(x).rows if len(Held(x)) < 4 else x, "columns": lambda x: x[:, : x.shape[0]],
    "count": lambda x: x * (x.shape.count(5) + 1), "squeeze": ops.squeeze, "squeezed column": lambda x: ops.squeeze(x[:, :1]), "cross": lambda x: ops.cross(x, x + 1),
    "parity": lambda x: x * (x.shape[0] % 2), "padded": lambda x: ops.pad(x, (0, x.shape[0] % 2)), "positive": lambda x: x if x.shape[0] > 0 else x * 2, "item": lambda x: x.shape[0] is not None and x[:, ::2],
}  # fmt: skip
"""Functions that do something else for some numbers of rows; the others may be done in blocks."""


@pytest.mark.parametrize("name", MIXING)
def test_what_mixes_rows_is_compiled_for_each_shape(name: str) -> None:
    check_sizes(Computed(MIXING[name]), "compiled for each number of rows: ")


@pytest.mark.parametrize("name", IN_STAGES)
def test_rows_that_meet_in_sums(name: str) -> None:
    check_sizes(Computed(IN_STAGES[name]), "compiled for blocks of rows, in ")


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECIAL)
def test_special_numbers_of_rows(name: str) -> None:
    check_sizes(Computed(SPECIAL[name]), "compiled for blocks of rows")


def check_sizes(net: nn.Cell, remark: str) -> None:
    """Results are those of the eager mode; `remark` is there after the last call."""
    net.set_inputs(Tensor(shape=[None, 3], dtype=gc.float32))
    for rows in (5, 3, 9, 1, 41):
        x = make(rows, (3,), np.float32)
        gc.set_context(mode=gc.PYNATIVE_MODE)
        wanted = net(x)
        gc.set_context(mode=gc.GRAPH_MODE)
        assert_close(net(x), wanted)
    assert remark in net._compiled.explain()  # type: ignore[attr-defined]


def test_numbers_drawn_while_tracing_are_not_used_up() -> None:
    net = Computed(lambda x: x * float(np.random.rand()))
    net.set_inputs(Tensor(shape=[None, 3], dtype=gc.float32))
    x = make(9, (3,), np.float32)
    np.random.seed(3)
    wanted = x.asnumpy() * np.random.RandomState(3).rand()
    np.testing.assert_allclose(net(x).asnumpy(), wanted, rtol=1e-6)


def test_what_is_read_for_some_numbers_of_rows_only() -> None:
    class Chosen(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.few, self.many = 2.0, 2.0

        def construct(self, x: Tensor) -> Any:
            return x * (self.few if x.shape[0] < 10 else self.many)

    net = Chosen()
    net.set_inputs(Tensor(shape=[None, 3], dtype=gc.float32))
    for few in (2.0, 3.0, 2.0):
        net.few = few
        for rows in (9, 20, 37):
            x = make(rows, (3,), np.float32)
            np.testing.assert_allclose(net(x).asnumpy(), x.asnumpy() * (few if rows < 10 else 2.0), rtol=1e-6)


def test_changes_of_the_cell_are_noticed() -> None:
    class Switched(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.mixes, self.w = False, Parameter(Tensor(np.ones(3, np.float32)), name="w")

        def construct(self, x: Tensor) -> Any:
            return (x - x.mean(0) if self.mixes else x) * self.w

    net = Switched()
    net.set_inputs(Tensor(shape=[None, 3], dtype=gc.float32))
    x = make(21, (3,), np.float32)
    np.testing.assert_allclose(net(x).asnumpy(), x.asnumpy(), rtol=1e-6)
    net.w.set_data(Tensor(np.full(3, 2, np.float32)))
    np.testing.assert_allclose(net(x).asnumpy(), 2 * x.asnumpy(), rtol=1e-6)
    net.mixes = True
    np.testing.assert_allclose(net(x).asnumpy(), 2 * (x.asnumpy() - x.asnumpy().mean(0)), atol=1e-5)
    net.mixes = False
    np.testing.assert_allclose(net(x).asnumpy(), 2 * x.asnumpy(), rtol=1e-6)


def test_a_counter_is_not_looked_at_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def construct(self, x: Tensor) -> Any:
            self.calls += 1
            return x * self.calls

    traces = []

    def traced(*args: Any) -> Any:
        traces.append(args)
        return trace_function(*args)

    monkeypatch.setattr("graphcell.dynamic.trace_function", traced)
    net = Counting()
    net.set_inputs(Tensor(shape=[None, 3], dtype=gc.float32))
    x = make(9, (3,), np.float32)
    for k in range(1, 40):
        np.testing.assert_allclose(net(x).asnumpy(), x.asnumpy() * k, rtol=1e-6)
    assert len(traces) < 30


def test_a_network_that_is_trained_first() -> None:
    net = nn.SequentialCell(nn.Dense(3, 4), nn.BatchNorm1d(4))
    net.set_inputs(Tensor(shape=[None, 3], dtype=gc.float32))
    for training in (True, False):
        net.set_train(training)
        for rows in range(3, 15):
            net(make(rows, (3,), np.float32))
        assert "compiled for blocks of rows" in net._compiled.explain()  # type: ignore[attr-defined]


def test_training_and_evaluation_in_turns(compilations: list[Any]) -> None:
    net = nn.SequentialCell(nn.Dense(3, 4), nn.BatchNorm1d(4))
    net.set_inputs(Tensor(shape=[None, 3], dtype=gc.float32))
    for turn in range(3):
        for training in (True, False):
            net.set_train(training)
            for rows in (4, 9, 11):
                x = make(rows, (3,), np.float32)
                y = net(x).asnumpy()
                if not training:
                    norm, dense = net[1], net[0]
                    z = x.asnumpy() @ dense.weight.asnumpy().T + dense.bias.asnumpy() - norm.moving_mean.asnumpy()
                    np.testing.assert_allclose(y, z / np.sqrt(norm.moving_variance.asnumpy() + norm.eps), rtol=1e-3, atol=1e-4)
        if turn == 0:
            compilations.clear()
    assert not compilations


def test_two_arguments() -> None:
    class Both(nn.Cell):
        def construct(self, x: Tensor, y: Tensor, scale: float) -> Any:
            return (x * scale + y,)

    net = Both()
    net.set_inputs(Tensor(shape=[None, 3], dtype=gc.float32), Tensor(shape=[None, 3], dtype=gc.float32), 2.0)
    for rows in (21, 1, 300):
        x, y = make(rows, (3,), np.float32), make(rows, (3,), np.float32)
        np.testing.assert_allclose(net(x, y, 2.0)[0].asnumpy(), 2 * x.asnumpy() + y.asnumpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"shape|broadcast"):
        net(make(4, (3,), np.float32), make(3, (3,), np.float32), 2.0)


def test_a_batch_without_rows() -> None:
    net = Classifier().set_train(False)
    net.set_inputs(Tensor(shape=[None, 12], dtype=gc.float32))
    assert net(Tensor(np.zeros((0, 12), np.float32)))[0].shape == (0, 5)


def test_gradients_through_a_call() -> None:
    net = Classifier().set_train(False)
    net.set_inputs(Tensor(shape=[None, 12], dtype=gc.float32))
    x = make(9, (12,), np.float32)
    got = gc.grad(lambda t: net(t)[1]["sum"].sum() + net(t)[0][:, 0].sum())(x)
    other = Classifier().set_train(False)
    gc.load_param_into_net(other, {p.name: p for p in net.get_parameters()})
    np.testing.assert_allclose(got.asnumpy(), gc.grad(lambda t: other(t)[1]["sum"].sum() + other(t)[0][:, 0].sum())(x).asnumpy(), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("described", [True, False])
def test_compiled_once_for_any_number_of_rows(described: bool, compilations: list[Any]) -> None:
    net = Classifier().set_train(False)
    net.set_inputs(Tensor(shape=[None, 12], dtype=gc.float32))
    net.compile(Tensor(shape=[None, 12], dtype=gc.float32) if described else make(7, (12,), np.float32))
    assert net.compiled and 1 <= len(compilations) <= len(LIGHT.rows)
    compilations.clear()
    for rows in (1, 2, 5, 9, 13, 31, 64, 65, 127, 300, 1000):
        assert net(make(rows, (12,), np.float32))[0].shape == (rows, 5)
    assert not compilations


def test_the_first_call_compiles_for_others(compilations: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcell.dynamic._AHEAD_SECONDS", 1e9)  # however slow the machine is
    net = nn.SequentialCell(nn.Dense(320, 330), nn.ReLU())
    net.set_inputs(Tensor(shape=[None, 320], dtype=gc.float32))
    net(make(32, (320,), np.float32))
    first = len(compilations)
    for rows in (1, 3, 7, 33, 100):
        net(make(rows, (320,), np.float32))
    assert first > 1 and len(compilations) <= len(HEAVY_WITH_WEIGHTS.rows)


@pytest.mark.slow
def test_results_do_not_depend_on_what_was_called_before() -> None:
    x = make(77, (12,), np.float32)
    weights = Classifier()
    results = []
    for order in ((77,), (5, 300, 77), (1, 2, 3, 50, 77)):
        net = Classifier().set_train(False)
        gc.load_param_into_net(net, {p.name: p for p in weights.get_parameters()})
        net.set_inputs(Tensor(shape=[None, 12], dtype=gc.float32))
        for rows in order:
            y = net(x if rows == 77 else make(rows, (12,), np.float32))
        results.append(y[0].asnumpy().tobytes())
    assert len(set(results)) == 1
