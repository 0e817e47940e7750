"""Initializers: shapes, names and errors against MindSpore 2.10, and the distributions they promise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from graphcell import dtype as ms
from graphcell.common import get_seed, set_seed
from graphcell.common import initializer as module
from graphcell.common.initializer import (
    Constant,
    Dirac,
    HeNormal,
    HeUniform,
    Identity,
    Initializer,
    Normal,
    One,
    Orthogonal,
    Sparse,
    TruncatedNormal,
    Uniform,
    VarianceScaling,
    XavierNormal,
    XavierUniform,
    Zero,
    initializer,
)  # fmt: skip
from graphcell.tensor import Tensor

NAMES: dict[str, Any] = {"ms": ms, "np": np, "Tensor": Tensor, "One": One, "initializer": initializer, "module": module}

# expression, dtype, shape, values
RESULTS: tuple[tuple[str, str, tuple[int, ...], Any], ...] = (
    ('initializer("ones", [2])', "Float32", (2,), [1.0, 1.0]),
    ("initializer(3, [2], ms.int32).init_data()", "Int32", (2,), [3, 3]),
    ("initializer(3.5, [2], ms.int32).init_data()", "Int32", (2,), [3, 3]),
    ("initializer(True, [2]).init_data()", "Float32", (2,), [1.0, 1.0]),
    ('initializer("zeros", 2).init_data()', "Float32", (2,), [0.0, 0.0]),
    ('initializer("ones", ()).init_data()', "Float32", (), 1.0),
    ("initializer(Tensor([1., 2.]), [2])", "Float32", (2,), [1.0, 2.0]),
    ('initializer("ONES", [2]).init_data()', "Float32", (2,), [1.0, 1.0]),
    ("initializer(One(), [2]).init_data()", "Float32", (2,), [1.0, 1.0]),
    ('initializer("identity", [2, 3]).init_data()', "Float32", (2, 3), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
    ('initializer("dirac", [2, 2, 3]).init_data()', "Float32", (2, 2, 3), [[[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]),
    ("Tensor(shape=(2, ), dtype=ms.float32, init=One()).init_data()", "Float32", (2,), [1.0, 1.0]),
)  # fmt: skip

ERRORS: tuple[tuple[str, type[Exception]], ...] = (
    ('initializer("ones", [-1])', ValueError),
    ('initializer("ones", [0])', ValueError),
    ('initializer("ones", ["a"])', ValueError),
    ('initializer("ones", [2.5])', ValueError),
    ('initializer("nope", [2])', ValueError),
    ("initializer(None, [2])", TypeError),
    ('initializer("ones", (2, 2), "float32")', TypeError),
    ('initializer("ones", (2, 2), dtype=np.float32)', TypeError),
    ('initializer("ones", (2, 2), float)', TypeError),
    ('initializer("ones", (2, 2), None)', ValueError),
    ("initializer([1], [2])", TypeError),
    ("initializer(Tensor([1., 2.]), [3])", ValueError),
    ("initializer(np.array([1.]), [1])", TypeError),
    ("initializer(One, [2])", TypeError),
    ('initializer("identity", [2]).init_data()', ValueError),
    ('initializer("dirac", [2, 2]).init_data()', ValueError),
    ('initializer("orthogonal", [3]).init_data()', ValueError),
    ('initializer("sparse", [4, 4])', TypeError),
    ('initializer("xavier_uniform", [4]).init_data()', ValueError),
    ('initializer("he_normal", [4]).init_data()', ValueError),
    ('initializer("truncated_normal", [4])', ValueError),
    ('initializer("constant", [4])', ValueError),
    ("Tensor(init=One())", ValueError),
    ("initializer(module.Normal(-1), [2]).init_data()", ValueError),
    ("initializer(module.TruncatedNormal(-1), [2]).init_data()", ValueError),
    ('initializer(module.HeNormal("a"), [2, 2]).init_data()', ValueError),
    ("initializer(module.HeUniform(True), [2, 2]).init_data()", ValueError),
    ("Tensor(shape=(2, ), init=One())", ValueError),
)  # fmt: skip


@pytest.fixture(autouse=True)
def seeded() -> None:
    set_seed(1234)


@pytest.mark.parametrize("expression, dtype, shape, values", RESULTS, ids=[r[0] for r in RESULTS])
def test_result(expression: str, dtype: str, shape: tuple[int, ...], values: Any) -> None:
    result = eval(expression, NAMES)
    assert (str(result.dtype), result.shape, result.asnumpy().tolist()) == (dtype, shape, values)


@pytest.mark.parametrize("expression, error", ERRORS, ids=[e[0] for e in ERRORS])
def test_error(expression: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        eval(expression, NAMES)


def drawn(init: Any, shape: tuple[int, ...] = (256, 128)) -> np.ndarray[Any, Any]:
    return initializer(init, shape, ms.float32).init_data().asnumpy()


def check_normal(x: np.ndarray[Any, Any], sigma: float, mean: float = 0.0) -> None:
    """Mean, deviation and the share beyond one deviation, to five standard errors."""
    n = x.size
    assert abs(x.mean() - mean) < 5 * sigma / math.sqrt(n) and abs(x.std() - sigma) < 5 * sigma / math.sqrt(2 * n)
    beyond = float((np.abs(x - mean) > sigma).mean())
    assert abs(beyond - 0.3173) < 5 * math.sqrt(0.3173 * 0.6827 / n)


def check_uniform(x: np.ndarray[Any, Any], bound: float) -> None:
    n = x.size
    assert -bound <= x.min() < -0.99 * bound and 0.99 * bound < x.max() <= bound
    assert abs(x.mean()) < 5 * bound / math.sqrt(3 * n) and abs(float((np.abs(x) < bound / 2).mean()) - 0.5) < 2.5 / math.sqrt(n)


CONV = (64, 32, 3, 3)


@pytest.mark.parametrize("init, shape, sigma", [
    (Normal(), (256, 128), 0.01), (Normal(0.1, 1.0), (256, 128), 0.1), ("normal", (300, 50), 0.01), (TruncatedNormal(), (256, 128), 0.01),
    (XavierNormal(), (256, 128), math.sqrt(2 / 384)), (XavierNormal(gain=2), CONV, 2 * math.sqrt(2 / (96 * 9))),
    (HeNormal(), (256, 128), math.sqrt(2 / 128)), (HeNormal(mode="fan_out", nonlinearity="relu"), CONV, math.sqrt(2 / (64 * 9))),
    (HeNormal(negative_slope=2), CONV, math.sqrt(2 / (5 * 32 * 9))), (HeNormal(nonlinearity="tanh"), (256, 128), 5 / 3 / math.sqrt(128)),
    (HeNormal(nonlinearity="sigmoid"), (256, 128), 1 / math.sqrt(128)),
    (VarianceScaling(distribution="untruncated_normal"), (256, 128), math.sqrt(1 / 128)),
    (VarianceScaling(2.0, "fan_out", "untruncated_normal"), (256, 128), math.sqrt(2 / 256)),
])  # fmt: skip
def test_normal_distributions(init: Any, shape: tuple[int, ...], sigma: float) -> None:
    check_normal(drawn(init, shape), sigma, getattr(init, "mean", 0.0))


@pytest.mark.parametrize("init, shape, bound", [
    (Uniform(), (256, 128), 0.07), (Uniform(2.0), (256, 128), 2.0), ("uniform", (3000,), 0.07),
    (XavierUniform(), CONV, math.sqrt(6 / (96 * 9))), ("xavier_uniform", (256, 128), math.sqrt(6 / 384)),
    (HeUniform(), CONV, math.sqrt(6 / (32 * 9))), ("HeUniform", (256, 128), math.sqrt(6 / 128)),
    (HeUniform(mode="fan_out"), (256, 128), math.sqrt(6 / 256)), (VarianceScaling(1.0, "fan_avg", "uniform"), (256, 128), math.sqrt(3 / 192)),
])  # fmt: skip
def test_uniform_distributions(init: Any, shape: tuple[int, ...], bound: float) -> None:
    check_uniform(drawn(init, shape), bound)


@pytest.mark.parametrize("low, high", [(-1.0, 1.0), (0.5, 2.0), (-0.1, 8.0), (3.0, 4.0), (6.0, 50.0), (-9.0, -7.0)])
def test_truncated_normal(low: float, high: float) -> None:
    """Mean and deviation against numerical integration of the density."""
    x = drawn(TruncatedNormal(1.0, 0.0, low, high), (200, 100)).astype(np.float64)
    grid = np.linspace(low, min(high, max(low, 0.0) + 12.0), 200001)
    nearest = min(max(low, 0.0), high)
    density = np.exp(0.5 * (nearest**2 - grid**2))
    density /= density.sum()
    mean = float((grid * density).sum())
    sigma = math.sqrt(float(((grid - mean) ** 2 * density).sum()))
    assert low <= x.min() and x.max() <= high
    assert abs(x.mean() - mean) < 6 * sigma / math.sqrt(x.size) and abs(x.std() / sigma - 1) < 0.06


def test_variance_scaling_truncates() -> None:
    x = drawn(VarianceScaling())
    sigma = math.sqrt(1 / 128)
    assert abs(x.std() / sigma - 1) < 0.02 and np.abs(x).max() <= 2 * sigma / 0.87962566 + 1e-6


def test_constants() -> None:
    assert drawn(Zero(), (2,)).tolist() == [0, 0] and drawn(One(), (2,)).tolist() == [1, 1] and drawn(Constant(2.5), (2,)).tolist() == [2.5, 2.5]
    assert drawn(Identity(), (2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]


def test_sparse() -> None:
    x = drawn(Sparse(0.3, sigma=0.5), (50, 40))
    assert ((x == 0).sum(axis=0) == 15).all() and abs(x[x != 0].std() / 0.5 - 1) < 0.1
    assert len({tuple(np.flatnonzero(column == 0)) for column in x.T}) > 30


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (6, 2, 2), (2, 3, 4, 5)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    x = drawn(Orthogonal(gain=2.0), shape).reshape(shape[0], -1).astype(np.float64)
    product = x @ x.T if x.shape[0] <= x.shape[1] else x.T @ x
    np.testing.assert_allclose(product, 4 * np.eye(min(x.shape)), atol=1e-5)


def test_dirac() -> None:
    x = drawn(Dirac(2), (4, 3, 3, 5))
    assert x.sum() == 4 and x[0, 0, 1, 2] == x[1, 1, 1, 2] == x[2, 0, 1, 2] == x[3, 1, 1, 2] == 1
    with pytest.raises(ValueError, match="groups must divide the 4 output channels"):
        drawn(Dirac(3), (4, 2, 3))


def test_bad_arguments() -> None:
    for arguments in ({"mode": "x"}, {"distribution": "x"}, {"scale": 0}):
        with pytest.raises(ValueError, match="VarianceScaling"):
            VarianceScaling(**arguments)
    for init in (HeUniform(mode="x"), HeNormal(nonlinearity="selu"), TruncatedNormal(a=1.0, b=0.0)):
        with pytest.raises(ValueError):
            drawn(init, (2, 2))
    with pytest.raises(ValueError, match="shape is missing"):
        initializer("ones")
    with pytest.raises(NotImplementedError, match="does not define _initialize"):
        Initializer()(np.zeros(2))


def test_fills_arrays_of_any_dtype() -> None:
    class Ramp(Initializer):
        def _initialize(self, arr: np.ndarray[Any, Any]) -> None:
            arr[...] = np.arange(arr.size).reshape(arr.shape)

    array = np.empty((2, 2), np.int32)
    assert Ramp()(array) is None and array.tolist() == [[0, 1], [2, 3]]  # type: ignore[func-returns-value]
    assert initializer(Ramp(), (3,), ms.float16).init_data().tolist() == [0.0, 1.0, 2.0]
    assert initializer(Normal(), (2,), ms.int32).init_data().tolist() == [0, 0]
    for dtype in (ms.float16, ms.bfloat16, ms.float64):
        x = initializer("normal", (4000,), dtype).init_data().asnumpy().astype(np.float64)
        assert abs(x.std() / 0.01 - 1) < 0.06


def test_lazy_and_seeded() -> None:
    set_seed(5)
    first, second = initializer("normal", (3,)), initializer("normal", (3,))
    assert first.has_init and isinstance(first.init, Normal)
    a, b = first.init_data().tolist(), second.init_data().tolist()
    set_seed(5)
    assert initializer("normal", (3,)).init_data().tolist() == a != b
    assert not first.has_init
    with pytest.raises(TypeError, match=r"init_data must be set Tensor\.init, init can't be None"):
        first.init_data()


def test_seed() -> None:
    set_seed(7)
    assert get_seed() == 7
    drawn_by_numpy = np.random.rand(2)
    np.random.seed(7)
    assert np.random.rand(2).tolist() == drawn_by_numpy.tolist()
    for wrong in (1.5, "a", True):
        with pytest.raises(TypeError):
            set_seed(wrong)  # type: ignore[arg-type]
    for outside in (-1, 2**32):
        with pytest.raises(ValueError, match="between 0 and"):
            set_seed(outside)
    assert get_seed() == 7


def test_public_names() -> None:
    assert set(module.__all__) >= {"Initializer", "initializer", "TruncatedNormal", "Normal", "Uniform", "HeUniform", "HeNormal", "XavierUniform"}
    assert all(hasattr(module, name) for name in module.__all__)
