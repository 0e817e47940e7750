"""While loops that count: the numbers of the loop as Python runs it, as a `For` where it counts and as a `While` where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, ops
from graphcell.errors import DataIndexError

RNG = np.random.default_rng(6)


def rows(x: Any, z: Any) -> Any:
    i = Tensor(0, ms.int32)
    while i < 6:
        x = ops.tanh(x + z[i, 1])
        i = i + 1
    return x, i


def by_twos(x: Any, z: Any) -> Any:
    i = Tensor(9, ms.int64)
    while 1 <= i:  # noqa: SIM300 (the sides exchanged)
        x = x * 0.5 + z[i - 1].sum(0)
        i = i - 2
    return x, i


def until_equal(x: Any, z: Any) -> Any:
    i = Tensor(-3, ms.int8)
    while i != 3:
        i = i + 2
        x = x + z[i].sum(0) * i
    return x, i


def rows_themselves(x: Any, z: Any) -> Any:
    """What is read is carried as it is, twice."""
    i, last, same = Tensor(0, ms.int32), z[0, 0], z[0, 0]
    while i < 7:
        x = x + last * z[i, 0] - same
        last, same = z[i + 1, 0], z[i + 1, 0]
        i = i + 1
    return x + last * same, i


def never(x: Any, z: Any) -> Any:
    i = Tensor(4, ms.int32)
    while i > 4:
        x = x + z[i].sum(0)
        i = i - 1
    return x, i


def to_a_tensor(x: Any, z: Any) -> Any:
    i, n = Tensor(0, ms.int32), Tensor(5, ms.int32)
    while i < n:
        x = x * z[i, 0]
        i = i + 1
    return x, i


def until_small(x: Any, z: Any) -> Any:
    i = Tensor(0, ms.int32)
    while ops.abs(x).sum() > 1.0:
        x = x * 0.5 + z[0, 0] * 0.0
        i = i + 1
    return x, i


def doubled(x: Any, z: Any) -> Any:
    i = Tensor(1, ms.int32)
    while i < 9:
        x = x + z[i, 0]
        i = i + i
    return x, i


def wrapping(x: Any, z: Any) -> Any:
    i = Tensor(100, ms.int8)
    while i > 0:
        x = x + 1.0
        i = i + 20
    return x, i


CASES: dict[str, tuple[Callable[..., Any], bool]] = {
    "rows": (rows, True),
    "by twos": (by_twos, True),
    "until equal": (until_equal, True),
    "rows themselves": (rows_themselves, True),
    "never": (never, True),
    "to a number in a Tensor": (to_a_tensor, True),
    "until something is small": (until_small, False),
    "doubled": (doubled, False),
    "wrapping": (wrapping, False),
}


def inputs() -> tuple[Any, Any]:
    return Tensor(RNG.standard_normal(5).astype(np.float32)), Tensor(RNG.standard_normal((10, 2, 5)).astype(np.float32))


def in_python(f: Callable[..., Any], *args: Any) -> Any:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    try:
        return f(*args)
    finally:
        ms.set_context(mode=ms.GRAPH_MODE)


@pytest.mark.parametrize("name", CASES)
def test_numbers(name: str) -> None:
    f, counts = CASES[name]
    x, z = inputs()
    compiled = ms.jit(f)
    got, want = compiled(x, z), in_python(f, x, z)
    np.testing.assert_allclose(got[0].asnumpy(), want[0].asnumpy(), rtol=1e-5, atol=1e-5)
    assert (got[1].dtype, int(got[1])) == (want[1].dtype, int(want[1]))
    assert ("while[" in compiled.ir()) != counts


@pytest.mark.parametrize("name", [name for name, (_, counts) in CASES.items() if counts])
def test_gradients(name: str) -> None:
    f, _ = CASES[name]
    x, z = inputs()
    got = ms.jit(ms.grad(lambda x, z: f(x, z)[0].sum(), (0, 1)))(x, z)
    want = in_python(ms.grad(lambda x, z: f(x, z)[0].sum(), (0, 1)), x, z)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-4, atol=1e-5)


def test_rows_are_read_where_they_lie() -> None:
    """Nothing of the table is copied, and no index is checked."""
    compiled = ms.jit(rows)
    compiled(*inputs())
    assert "gather" not in compiled.ir() and "check_index" not in compiled.ir() and "scanned=1" in compiled.ir()


def test_an_index_that_leaves_the_table_is_refused() -> None:
    def f(x: Any, z: Any) -> Any:
        i = Tensor(0, ms.int32)
        while i < 12:
            x = x + z[i, 0]
            i = i + 1
        return x

    with pytest.raises(DataIndexError, match="10 elements"):
        ms.jit(f)(*inputs())


def test_long_loops_keep_their_bounded_memory() -> None:
    """A `For` would keep what each step leaves for the gradient."""

    def f(x: Any) -> Any:
        i = Tensor(0, ms.int32)
        while i < 100_000:
            x = x * 0.9999 + 0.0001
            i = i + 1
        return x.sum()

    compiled = ms.jit(f)
    assert float(compiled(Tensor(np.full(3, 2.0, np.float32)))) == pytest.approx(3.0 + 3.0 * 0.9999**100_000, rel=1e-2)
    assert "while[" in compiled.ir()
