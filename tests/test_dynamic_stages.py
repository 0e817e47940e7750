"""Functions whose rows meet in sums, for any number of rows: results against those of the same Cell compiled for each shape, eager results and numpy."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphcell as gc
from graphcell import Parameter, Tensor, nn, ops
from graphcell.dynamic_stages import KnownInStages
from graphcell.runtime.block_sizes import Sizes, exact_plan, sizes_in_stages

rng = np.random.default_rng(11)
ROWS = (33, 5, 9, 77, 130, 2, 1, 33)


@pytest.fixture(autouse=True)
def graph_mode() -> Iterator[None]:
    gc.set_context(mode=gc.GRAPH_MODE)
    yield
    gc.set_context(mode=gc.PYNATIVE_MODE)


BLOCKS = ("exact", "longer")
FEW = Sizes(frozenset({4, 10, 48, 64}), 9, may_exceed=True)


@pytest.fixture(params=BLOCKS)
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that have so many rows together, and such that have more than are left."""
    if request.param == "longer":
        monkeypatch.setattr("graphcell.dynamic_stages.sizes_in_stages", lambda *given: FEW if given[-1] else sizes_in_stages(*given))


def images(rows: int) -> Tensor:
    return Tensor(rng.standard_normal((rows, 1, 8, 8)).astype(np.float32))


def vectors(rows: int) -> Tensor:
    return Tensor(rng.standard_normal((rows, 12)).astype(np.float32))


def sequences(rows: int) -> Tensor:
    return Tensor(rng.standard_normal((rows, 5, 12)).astype(np.float32))


def words(rows: int) -> Tensor:
    return Tensor(rng.integers(0, 30, (rows, 5)).astype(np.int32))


def labels(rows: int) -> Tensor:
    return Tensor(rng.integers(0, 4, rows).astype(np.int32))


class LastStep(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(12, 8, batch_first=True), nn.Dense(8, 4)

    def construct(self, x: Tensor) -> Any:
        return self.out(self.lstm(x)[0][:, -1])


class Words(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer, self.out = nn.Embedding(30, 16), nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True), nn.Dense(16, 4)

    def construct(self, x: Tensor) -> Any:
        return self.out(self.layer(self.table(x)).mean(1))


def convolutions() -> nn.Cell:
    return nn.SequentialCell(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Conv2d(4, 6, 3, 2, has_bias=False), nn.BatchNorm2d(6), nn.Flatten(), nn.Dense(24, 4)
    )


def pools() -> nn.Cell:
    return nn.SequentialCell(nn.Conv2d(1, 3, 3), nn.MaxPool2d(2, 2), nn.AvgPool2d(2, 1), nn.Flatten(), nn.Dense(27, 4))


NETS: dict[str, tuple[Callable[[], nn.Cell], Callable[[int], Tensor]]] = {
    "layers": (lambda: nn.SequentialCell(nn.Dense(12, 16), nn.ReLU(), nn.LayerNorm((16,)), nn.Dense(16, 4)), vectors),
    "dropout": (lambda: nn.SequentialCell(nn.Dense(12, 16), nn.Dropout(p=0.3), nn.Dense(16, 4)), vectors),
    "batch norm": (lambda: nn.SequentialCell(nn.Dense(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dense(16, 4)), vectors),
    "convolutions": (convolutions, images),
    "pools": (pools, images),
    "lstm": (LastStep, sequences),
    "words": (Words, words),
}


def trained(name: str, cell: Callable[[nn.Cell], nn.Cell]) -> tuple[nn.Cell, nn.Cell]:
    """A training step and its network, with weights that depend on nothing but the name."""
    weights = np.random.default_rng(5)
    gc.set_seed(5)
    net = NETS[name][0]()
    for p in net.get_parameters():
        if p.ndim > 1:
            p.set_data(Tensor((weights.standard_normal(p.shape) / np.sqrt(p.size / p.shape[0])).astype(np.float32)))
    return net, cell(net).set_train()


def by_adam(net: nn.Cell) -> nn.Cell:
    optimizer = nn.Adam(net.trainable_params(), 1e-3, eps=1e-4)  # beside which a gradient that is rounding alone, as before a normalisation, makes no step
    return nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)


def by_scaled_momentum(net: nn.Cell) -> nn.Cell:
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9, weight_decay=1e-3)
    return nn.TrainOneStepWithLossScaleCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer, Tensor(np.float32(8.0)))


def declared(step: nn.Cell, inputs: tuple[Tensor, ...]) -> nn.Cell:
    """Declares that all inputs have any number of rows."""
    step.set_inputs(*(Tensor(shape=[None, *x.shape[1:]], dtype=x.dtype) for x in inputs))
    return step


def assert_close(x: Any, y: Any, tolerance: float = 2e-5) -> None:
    if isinstance(x, (tuple, list)):
        assert len(x) == len(y)
        for a, b in zip(x, y):
            assert_close(a, b, tolerance)
        return
    assert x.shape == y.shape and x.dtype == y.dtype
    np.testing.assert_allclose(x.asnumpy().astype(np.float64), y.asnumpy().astype(np.float64), rtol=tolerance, atol=tolerance)


def remark(cell: nn.Cell) -> str:
    return str(cell._compiled.explain()).splitlines()[-1]  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "blocks"), [(name, kind) for name in NETS for kind in BLOCKS if kind == "exact" or name not in ("batch norm", "convolutions")], indirect=["blocks"]
)  # variances need as many rows as there are
def test_training_steps(name: str, blocks: None) -> None:
    (alone, plain), (together, step), make = trained(name, by_adam), trained(name, by_adam), NETS[name][1]
    declared(step, (make(2), labels(2)))
    for rows in ROWS:
        x, y = make(rows), labels(rows)
        gc.set_seed(rows)  # the same dropout for both
        wanted = plain(x, y)
        gc.set_seed(rows)
        assert_close(step(x, y), wanted, 1e-4)
        if rows == 77:
            assert remark(step).startswith("compiled for blocks of rows, in ")
        for p, q in zip(alone.get_parameters(), together.get_parameters(), strict=True):
            np.testing.assert_allclose(q.asnumpy(), p.asnumpy(), rtol=1e-3, atol=3e-4)  # Adam turns the sign of a tiny gradient into a step
            q.set_data(Tensor(p.asnumpy()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["layers", "convolutions"])
def test_training_steps_with_a_scaled_loss(name: str, blocks: None) -> None:
    (alone, plain), (together, step) = trained(name, by_scaled_momentum), trained(name, by_scaled_momentum)
    make = NETS[name][1]
    declared(step, (make(2), labels(2)))
    for rows in (33, 77, 9):
        x, y = make(rows), labels(rows)
        assert_close(step(x, y), plain(x, y))
        for p, q in zip(alone.get_parameters(), together.get_parameters(), strict=True):
            np.testing.assert_allclose(q.asnumpy(), p.asnumpy(), rtol=1e-4, atol=1e-5)
    assert remark(step).startswith("compiled for blocks of rows, in ")


@pytest.mark.slow
def test_nothing_is_compiled_twice(compilations: list[Any]) -> None:
    _, step = trained("batch norm", by_adam)
    declared(step, (vectors(2), labels(2)))
    for rows in (77, 130, 33):
        step(vectors(rows), labels(rows))
    compilations.clear()
    sizes = {size for rows in (77, 130, 33) for _, size in exact_plan(rows, plan_sizes(step))}
    others = [rows for rows in range(34, 260) if {size for _, size in exact_plan(rows, plan_sizes(step))} <= sizes]
    assert len(others) > 3
    for rows in others:
        step(vectors(rows), labels(rows))
    assert not compilations


def plan_sizes(step: nn.Cell) -> Sizes:
    known = step._dynamic._known[0]._staged  # type: ignore[attr-defined]
    assert isinstance(known, KnownInStages)
    return known._usable


class Computed(nn.Cell):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def construct(self, *xs: Tensor) -> Any:
        return self.function(*xs)


SUMS: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda x: x.sum(0), "mean of all": lambda x: x.mean(), "extrema": lambda x: (x.amax(0), x.min(), x - x.amax(0)), "product": lambda x: (x * 0.1 + 1).prod(0),
    "any and all": lambda x: ((x > 0).any(0), (x > -9).all()), "spread": lambda x: (ops.std(x, 0), ops.var(x)), "softmax over rows": lambda x: ops.softmax(x, 0),
    "covariance": lambda x: ops.matmul((x - x.mean(0)).T, x) / x.shape[0], "outer": lambda x: ops.matmul(x.T, ops.ones_like(x)),
    "twice": lambda x: ((x - x.mean(0)) / ops.sqrt(((x - x.mean(0)) ** 2).mean(0))).sum(1), "norm": lambda x: ops.norm(x) * x,
    "integers": lambda x: (x * 10).astype(gc.int32).sum(0), "half": lambda x: x.astype(gc.float16).sum(0), "brain": lambda x: (x.astype(gc.bfloat16) * 2).mean(0),
    "counted": lambda x: x + ops.ones((x.shape[0],), gc.float32).sum(), "ranks": lambda x: x * ops.arange(x.shape[0]).astype(gc.float32).expand_dims(1),
    "scattered": lambda x: ops.unsorted_segment_sum(x, (x[:, 0] > 0).astype(gc.int32), 4), "both": lambda x: (x * 2, x.sum(), x.sum(0) + 1),
    "numbers": lambda x: (ops.full((4,), x.shape[0], dtype=gc.float32), x.sum(0), Tensor([x.shape[0], 7])), "input": lambda x: (x, x.sum(0)),
    "folded": lambda x: x.reshape(-1, 3).sum(0), "inside": lambda x: x.T.expand_dims(0).sum((0, 2)), "of sums": lambda x: ops.exp(-x.sum(0) ** 2) + x.sum(0).max(),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_every_kind(name: str, blocks: None) -> None:
    net = Computed(SUMS[name])
    declared(net, (vectors(2),))
    for rows in (33, 9, 2, 77, 200, 33):
        x = vectors(rows)
        gc.set_context(mode=gc.PYNATIVE_MODE)
        wanted = net(x)
        gc.set_context(mode=gc.GRAPH_MODE)
        assert_close(net(x), wanted, {"half": 4e-3, "brain": 1e-2}.get(name, 2e-5))
        if rows in (77, 200):
            assert remark(net).startswith("compiled for blocks of rows, in "), remark(net)


FACTORS = Tensor(rng.standard_normal((12, 12)).astype(np.float32))


@pytest.mark.parametrize("function", [lambda h: ((h - h.mean(0)) ** 2).mean(0), lambda h: ops.softmax(FACTORS, 0)[(h.sum(0) > 0).astype(gc.int32)]])
def test_sums_of_what_waits(blocks: None, function: Callable[[Tensor], Any]) -> None:
    """The products wait for a part that comes after another sum; so must all that needs their sum, checks of indices too."""
    net = Computed(lambda x: (ops.softmax(x, 0), function(ops.matmul(x, FACTORS))))
    declared(net, (vectors(2),))
    for rows in (77, 33, 200):
        x = vectors(rows)
        gc.set_context(mode=gc.PYNATIVE_MODE)
        wanted = net(x)
        gc.set_context(mode=gc.GRAPH_MODE)
        assert_close(net(x), wanted)
        assert rows == 33 or remark(net) == "compiled for blocks of rows, in 6 parts: rows meet in sums"


OTHERS: dict[str, Callable[[Tensor], Any]] = {
    "best row": lambda x: x.argmax(0), "sorted rows": lambda x: ops.sort(x, 0)[0], "running sum": lambda x: ops.cumsum(x, 0), "neighbours": lambda x: x[1:] - x[:-1],
    "products of rows": lambda x: ops.matmul(x, x.T).sum(), "last written": lambda x: ops.zeros((4, 12), gc.float32).scatter(0, x.astype(gc.int32) * 0, x),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_sum_is_compiled_for_each_shape(name: str) -> None:
    net = Computed(OTHERS[name])
    declared(net, (vectors(2),))
    for rows in (33, 9):
        x = vectors(rows)
        gc.set_context(mode=gc.PYNATIVE_MODE)
        wanted = net(x)
        gc.set_context(mode=gc.GRAPH_MODE)
        assert_close(net(x), wanted)
    assert remark(net).startswith("compiled for each number of rows: ")


def test_sums_of_infinities_and_nan(blocks: None) -> None:
    """Also in the last row, of which blocks with more rows than are left hold copies."""
    net = Computed(lambda x: (x.sum(0), x.amax(0), x.mean(0), ops.matmul(x.T, x)))
    declared(net, (vectors(2),))
    x = vectors(77).asnumpy()
    x[3, 0], x[60, 1], x[70, 2], x[5, 2] = np.inf, np.nan, np.inf, -np.inf
    x[76, 3], x[76, 4] = np.inf, -np.inf
    total, largest, mean, products = (y.asnumpy() for y in net(Tensor(x)))
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(total, x.sum(0), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(mean, x.mean(0), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(products, x.T.astype(np.float64) @ x.astype(np.float64), rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(largest, x.max(0))


def test_means_of_large_numbers_keep_their_digits() -> None:
    """The variance is that of centred values, block by block."""
    net = nn.BatchNorm1d(3).set_train()
    declared(net, (Tensor(np.zeros((2, 3), np.float32)),))
    x = (1e4 + rng.standard_normal((301, 3))).astype(np.float32)
    y = net(Tensor(x)).asnumpy()
    wide = x.astype(np.float64)
    np.testing.assert_allclose(y, (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-5), atol=2e-3)
    np.testing.assert_allclose(net.moving_mean.asnumpy(), 0.1 * wide.mean(0), rtol=1e-5)


def test_variances_of_numbers_whose_squares_are_too_large() -> None:
    net = nn.BatchNorm1d(3).set_train()
    declared(net, (Tensor(np.zeros((2, 3), np.float32)),))
    x = (3e19 * (1 + 1e-4 * rng.standard_normal((77, 3)))).astype(np.float32)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(net(Tensor(x)).asnumpy(), (wide - wide.mean(0)) / wide.std(0), atol=2e-2)


def test_inputs_with_rows_along_another_dimension() -> None:
    x = [Tensor(rng.standard_normal((5, rows, 12)).astype(np.float32)) for rows in (33, 7, 2, 100)]
    lstm = nn.LSTM(12, 8).set_train(False)
    wanted = [lstm(t) for t in x]
    lstm.set_inputs(Tensor(shape=[5, None, 12], dtype=gc.float32))
    for t, (y, (h, c)) in zip(x, wanted):
        found, (found_h, found_c) = lstm(t)
        assert_close((found, found_h, found_c), (y, h, c))
    net = Computed(lambda x: x - x.mean(1, keep_dims=True))
    net.set_inputs(Tensor(shape=[5, None, 12], dtype=gc.float32))
    for t in x:
        np.testing.assert_allclose(net(t).asnumpy(), t.asnumpy() - t.asnumpy().mean(1, keepdims=True), atol=1e-5)


@pytest.mark.slow
def test_a_wrong_label_changes_nothing() -> None:
    _, step = trained("batch norm", by_adam)
    declared(step, (vectors(2), labels(2)))
    x, y = vectors(77), labels(77)
    step(x, y)
    before = {p.name: p.asnumpy().copy() for p in step.get_parameters()}
    wrong = y.asnumpy().copy()
    wrong[70] = 9
    with pytest.raises(IndexError):
        step(x, Tensor(wrong))
    for p in step.get_parameters():
        np.testing.assert_array_equal(p.asnumpy(), before[p.name])
    assert np.isfinite(float(step(x, y)))


def test_changes_are_noticed() -> None:
    class Scaled(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.factor, self.w = 2.0, Parameter(Tensor(np.ones(12, np.float32)), name="w")

        def construct(self, x: Tensor) -> Any:
            return (x * self.w).sum(0) * self.factor

    net = Scaled()
    declared(net, (vectors(2),))
    x = vectors(77)
    np.testing.assert_allclose(net(x).asnumpy(), 2 * x.asnumpy().sum(0), rtol=1e-4, atol=1e-4)
    net.factor = 3.0
    np.testing.assert_allclose(net(x).asnumpy(), 3 * x.asnumpy().sum(0), rtol=1e-4, atol=1e-4)
    net.w.set_data(Tensor(np.full(12, 2, np.float32)))
    np.testing.assert_allclose(net(x).asnumpy(), 6 * x.asnumpy().sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_same_bits_for_any_number_of_threads_and_whatever_came_before() -> None:
    x, y = vectors(200), labels(200)
    found = []
    try:
        for threads, before in ((1, ()), (2, (77,)), (3, (33, 130))):
            gc.set_context(runtime_num_threads=threads)
            net, step = trained("batch norm", by_adam)
            declared(step, (vectors(2), labels(2)))
            for rows in before:
                step(vectors(rows), labels(rows))
            again, _ = trained("batch norm", by_adam)
            for p, q in zip(net.get_parameters(), again.get_parameters(), strict=True):
                p.set_data(Tensor(q.asnumpy()))
            found.append(float(step(x, y)))
    finally:
        gc.set_context(runtime_num_threads=0)
    assert len(set(found)) == 1


def test_two_threads_use_one_cell() -> None:
    net = Computed(lambda x: (x - x.mean(0), x.sum(0)))
    declared(net, (vectors(2),))
    inputs = [vectors(rows) for rows in (33, 77, 130, 41) * 3]
    failures: list[str] = []

    def work() -> None:
        for x in inputs:
            centred, total = net(x)
            wide = x.asnumpy().astype(np.float64)
            if np.abs(centred.asnumpy() - (wide - wide.mean(0))).max() > 1e-4 or np.abs(total.asnumpy() - wide.sum(0)).max() > 1e-3:
                failures.append(f"{x.shape}")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_compiling_ahead(compilations: list[Any], blocks: None) -> None:
    net = Computed(lambda x: x.sum(0))
    declared(net, (vectors(2),))
    net.compile(vectors(33))
    compilations.clear()
    for rows in (34, 77, 200, 255):
        x = vectors(rows)
        np.testing.assert_allclose(net(x).asnumpy(), x.asnumpy().sum(0), rtol=1e-4, atol=1e-4)
    assert not compilations


@pytest.mark.slow
def test_compiling_ahead_for_one_row(compilations: list[Any]) -> None:
    """Which blocks cannot do where a variance is taken."""
    _, step = trained("batch norm", by_adam)
    declared(step, (vectors(2), labels(2)))
    step.compile(vectors(33), labels(33))
    compilations.clear()
    for rows in (1, 2, 33, 70):
        step(vectors(rows), labels(rows))
    assert not compilations


FACTOR = Tensor(np.ones(12, np.float32))


class WithTensors(nn.Cell):
    """Reads Tensors that are no Parameters, and returns one."""

    def __init__(self) -> None:
        super().__init__()
        self.t = Tensor(np.ones(12, np.float32))

    def construct(self, x: Tensor) -> Any:
        return (x - x.mean(0)) * self.t, self.t, x.sum(0) * FACTOR, (x * self.t).amax(0) * x


def test_tensors_that_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """By others of the same type, for which nothing is compiled anew; before and after native code does calls."""
    net = WithTensors()
    declared(net, (vectors(2),))
    for value, rows in enumerate((77, 77, 33, 130, 77)):
        monkeypatch.setitem(globals(), "FACTOR", Tensor(np.full(12, value + 3, np.float32)))
        net.t = Tensor(np.full(12, value + 2, np.float32))
        for _ in range(5):
            x = vectors(rows)
            wide = x.asnumpy().astype(np.float64)
            centred, same, total, scaled = (t.asnumpy() for t in net(x))
            np.testing.assert_allclose(centred, (wide - wide.mean(0)) * (value + 2), rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(same, np.full(12, value + 2))
            np.testing.assert_allclose(total, wide.sum(0) * (value + 3), rtol=1e-4, atol=1e-3)
            np.testing.assert_allclose(scaled, (wide * (value + 2)).max(0) * wide, rtol=1e-4, atol=1e-4)
    assert len(net._dynamic._known) == 1  # type: ignore[attr-defined]


class Counting(nn.Cell):
    """Returns what it was given and read, before it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.n, self.w = Parameter(Tensor(np.int32(0)), name="n"), Parameter(Tensor(np.ones(12, np.float32)), name="w")

    def construct(self, x: Tensor) -> Any:
        before = self.n.astype(gc.int32)
        self.n = self.n + 1
        return before, self.w, x, x.mean(0)


def test_inputs_that_are_returned_are_copies_of_what_they_were() -> None:
    net = Counting()
    declared(net, (vectors(2),))
    for turn, rows in enumerate((33, 77, 33, 33)):
        x = vectors(rows)
        wanted = x.asnumpy().copy()
        before, w, same, mean = net(x)
        net.w.set_data(Tensor(np.full(12, turn + 2, np.float32)))
        x[0] = 99.0
        assert before.asnumpy() == turn and net.n.asnumpy() == turn + 1
        assert type(w) is Tensor and (w.asnumpy() == turn + 1).all()
        np.testing.assert_array_equal(same.asnumpy(), wanted)
        np.testing.assert_allclose(mean.asnumpy(), wanted.mean(0), atol=1e-5)


class Other(Tensor):
    """Tensors of another type."""


@pytest.mark.parametrize("kind", [Parameter, Other])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("function", [lambda x, y: (x - y.mean(0), (x * y).sum(0)), lambda x, y: (x * y, x + 1)])
def test_rows_in_parameters(kind: type[Tensor], first: bool, function: Callable[..., Any]) -> None:
    """Parameters and Tensors of other types, which blocks are not made for, among calls with Tensors that they are made for."""
    net, p = Computed(function), kind(vectors(77))
    declared(net, (vectors(2), vectors(2)))

    def check(x: Tensor, y: Tensor) -> None:
        for result, wanted in zip(net(x, y), function(x.asnumpy(), y.asnumpy()), strict=True):
            np.testing.assert_allclose(result.asnumpy(), wanted, rtol=1e-4, atol=1e-4)

    for turn in range(8):
        if first or turn > 3:
            check(p, vectors(77))
            check(vectors(77), p)
            check(p, p)
        x = vectors(77)
        check(x, vectors(77))
        check(x, x)
        p.asnumpy()[turn] = 5.0
    assert [bool(known.plans[77].reason) for known in net._dynamic._known].count(False) == 1  # type: ignore[attr-defined]


def test_parts_that_cannot_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a function is compiled for each number of rows, and says why."""

    def broken(*args: Any) -> Any:
        raise RuntimeError("no such part")

    monkeypatch.setattr("graphcell.dynamic_stages.rows_graph", broken)
    net = Computed(lambda x: x - x.mean(0))
    declared(net, (vectors(2),))
    for rows in (33, 77):
        x = vectors(rows)
        np.testing.assert_allclose(net(x).asnumpy(), x.asnumpy() - x.asnumpy().mean(0), atol=1e-5)
    assert remark(net) == "compiled for each number of rows: RuntimeError: no such part"


class Gradients(nn.Cell):
    """Of a loss that brings two parts to give the same value, the number of elements."""

    def construct(self, x: Tensor, y: Tensor) -> Any:
        def loss(x: Tensor, y: Tensor) -> Any:
            spread, z = ((y - y.mean(0)) ** 2).mean(), ops.sigmoid(x) + y
            return spread * spread + (z * z).mean()

        return ops.value_and_grad(loss, (0, 1))(x, y)


@pytest.mark.parametrize("rows", [41, 300])
def test_a_value_that_two_parts_give(rows: int) -> None:
    net = Gradients()
    declared(net, (vectors(2), vectors(2)))
    for _ in range(4):
        x, y = vectors(rows), vectors(rows)
        wide_x, wide_y = x.asnumpy().astype(np.float64), y.asnumpy().astype(np.float64)
        s, centred = 1 / (1 + np.exp(-wide_x)), wide_y - wide_y.mean(0)
        dz = 2 * (s + wide_y) / y.size
        _, (dx, dy) = net(x, y)
        np.testing.assert_allclose(dx.asnumpy(), dz * s * (1 - s), rtol=1e-4, atol=1e-7)
        np.testing.assert_allclose(dy.asnumpy(), dz + 4 * (centred**2).mean() * centred / y.size, rtol=1e-4, atol=1e-7)
