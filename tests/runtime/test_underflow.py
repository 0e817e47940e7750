"""Numbers too small for all their digits: programs for x86 take them for zero, and leave the thread as they found it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphcell import jit, ops, value_and_grad
from graphcell.ops.dispatch import apply1
from graphcell.runtime.loader import host
from graphcell.runtime.threads import Pool
from graphcell.tensor import Tensor
from tests.runtime.support import CallsPython

pytestmark = [
    pytest.mark.skipif(not host().triple.startswith("x86_64"), reason="other processors keep denormal numbers"),
    pytest.mark.usefixtures("calls_python_is_known"),
]
SMALL, DENORMAL = np.float32(1e-30), np.float32(1e-40)


def product_in_numpy() -> Any:
    return (np.full(3, SMALL) * np.float32(1e-10)).tolist()


KEPT = product_in_numpy()


def of(*numbers: Any) -> Tensor:
    return Tensor(np.array(numbers, np.float32))


def test_results_and_operands_are_flushed() -> None:
    f = jit(lambda x: (x * 1e-10, x * 1.5, x > 0, ops.exp(x * 0 - 100)))
    scaled, longer, positive, power = f(of(1e-20, SMALL, -SMALL, DENORMAL, -DENORMAL))
    assert scaled.asnumpy().tolist() == [np.float32(1e-30), 0, 0, 0, 0]
    assert np.signbit(scaled.asnumpy()).tolist() == [False, False, True, False, True]
    assert (longer.asnumpy() != 0).tolist() == [True, True, True, False, False]
    assert positive.asnumpy().tolist() == [True, True, False, False, False]
    assert not power.asnumpy().any()


def test_what_only_moves_is_kept() -> None:
    x = of(DENORMAL, -DENORMAL, 1)
    moved, chosen, half = jit(lambda x, c: (x[::-1], ops.where(c, x, -x), (x * 6e-8).astype("float16")))(x, Tensor(np.array([True, False, True])))
    assert moved.asnumpy().tolist() == x.asnumpy().tolist()[::-1]
    assert chosen.asnumpy().tolist() == [DENORMAL, DENORMAL, 1]
    assert half.asnumpy()[2] == np.float16(6e-8) != 0


@pytest.mark.parametrize("kept", ["1", "0"])
def test_they_can_be_kept(monkeypatch: pytest.MonkeyPatch, kept: str) -> None:
    monkeypatch.setenv("GRAPHCELL_DENORMALS", kept)
    got = jit(lambda x: x * 1e-10 + 0)(of(SMALL, SMALL, SMALL)).asnumpy().tolist()
    assert got == (KEPT if kept == "1" else [0, 0, 0])


def test_the_eager_mode_keeps_them() -> None:
    """However often an op is called: its native kernel gives what numpy gave."""
    x, scale = Tensor(np.full(4096, SMALL)), Tensor(np.full(4096, np.float32(1e-10)))
    for _ in range(200):
        assert (x * scale).asnumpy()[0] == KEPT[0]


def test_the_thread_is_left_as_it_was() -> None:
    f = jit(lambda x, i: (x * 1e-10)[i])
    for _ in range(5):
        assert f(of(SMALL, SMALL, 1), Tensor(np.array([1], np.int32))).asnumpy().tolist() == [0]
        assert product_in_numpy() == KEPT
        with pytest.raises(IndexError):
            f(of(SMALL, SMALL, 1), Tensor(np.array([9], np.int32)))
        assert product_in_numpy() == KEPT


@pytest.mark.parametrize("raises", [False, True])
def test_python_in_the_middle_of_a_program(raises: bool) -> None:
    """It finds what its caller has; what follows is flushed again."""
    seen = []

    def inside(x: Any) -> Any:
        seen.append(product_in_numpy())
        if raises:
            raise ValueError("from the middle")
        return x

    f = jit(lambda x: (apply1(CallsPython(inside), x * 1e-10) + 1) * SMALL * 1e-10)
    for _ in range(3):
        if raises:
            with pytest.raises(ValueError, match="from the middle"):
                f(of(SMALL))
        else:
            assert f(of(SMALL)).asnumpy().tolist() == [0]
        assert product_in_numpy() == KEPT
    assert len(seen) == 3 and all(numbers == KEPT for numbers in seen)


def test_all_threads_flush(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that kept such numbers in the region before, and the other way round."""
    x = np.random.default_rng(0).uniform(1e-39, 1e-36, (1024, 1024)).astype(np.float32)
    results = []
    for size, kept in ((1, "0"), (1, "1"), (4, "0"), (4, "1"), (4, "0")):
        pool.resize(size)
        monkeypatch.setenv("GRAPHCELL_DENORMALS", kept)
        f = jit(lambda x: ops.tanh(x * 0.1) * 0.5)
        results.append(f(Tensor(x)).asnumpy())
    flushed, all_kept = results[:2]
    assert flushed[flushed != 0].min() >= np.finfo(np.float32).tiny and (flushed == 0).any() and (all_kept != 0).all()
    assert (flushed == results[2]).all() and (all_kept == results[3]).all() and (flushed == results[4]).all()


def test_gradients_that_vanish() -> None:
    """A mean squared error near its end: the state of an optimizer goes to zero and does not stay at its smallest number."""
    f = jit(value_and_grad(lambda w: (w * w).sum() * 1e-20, 0))
    _, slope = f(of(1e-20, 1))
    assert slope.asnumpy().tolist() == [0, np.float32(2e-20)]
    step = jit(lambda m: m * 0.9)
    m = of(1)
    for _ in range(900):
        m = step(m)
    assert m.asnumpy().tolist() == [0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_comparisons_agree_with_each_other(dtype: Any) -> None:
    """LLVM knows it, too: it would fold what is asked together as if such numbers were none."""
    y = Tensor(np.array([np.finfo(dtype).tiny / 4, 1, 0], dtype))
    f = jit(lambda y: (y <= 0, (y <= 0) | ops.isinf(y), y > 0, (y > 0) & ops.isfinite(y), y == 0, (y == 0) | ops.isnan(y)))
    results = [r.asnumpy().tolist() for r in f(y)]
    assert results == [[True, False, True]] * 2 + [[False, True, False]] * 2 + [[True, False, True]] * 2
    entropy = jit(lambda p, q: -ops.xlogy(p, q).sum())(Tensor(np.array([0, 1, 0], dtype)), y)
    assert entropy.asnumpy() == 0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("function", ["cos", "erf", "erfc", "exp", "expm1", "gelu", "log", "log1p", "rsqrt", "sigmoid", "sin", "sinh", "softplus", "sqrt", "tanh"])
def test_functions_of_normal_numbers(monkeypatch: pytest.MonkeyPatch, function: str, dtype: Any) -> None:
    """Where argument and result are normal numbers it makes no difference but in the last place: nothing vanishes on the way."""
    of_tensor = getattr(ops, function)
    info, rng = np.finfo(dtype), np.random.default_rng(0)
    exponents = np.arange(info.minexp, info.maxexp)
    binades = np.ldexp(rng.uniform(1, 2, (2, exponents.size)), exponents).astype(dtype).ravel()
    x = np.concatenate([binades, -binades, rng.uniform(-800, 100, 2000).astype(dtype), rng.uniform(-1, 1, 1000).astype(dtype)])
    results = []
    for kept in ("1", "0"):
        monkeypatch.setenv("GRAPHCELL_DENORMALS", kept)
        results.append(jit(lambda x: of_tensor(x))(Tensor(x)).asnumpy())
    all_kept, flushed = results
    normal = np.abs(all_kept) >= info.tiny
    np.testing.assert_allclose(flushed[normal], all_kept[normal], rtol=info.eps, atol=0)
    assert (np.isnan(flushed) == np.isnan(all_kept)).all() and np.abs(flushed[~normal & ~np.isnan(all_kept)]).max(initial=0) <= info.tiny
