"""What eager functions make of their operands before an op runs: numbers beside Tensors, broadcasting, indices; all kept from call to call."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, ops
from graphcell.errors import GraphcellError
from graphcell.ops.arithmetic import Add, Mul
from graphcell.ops.functional.common import pair
from graphcell.ops.movement import repeat

ARRAYS = [
    (np.array(3.0, np.float32), (2, 3)), (np.ones((1, 4)), (3, 4)), (np.ones(4, ml_dtypes.bfloat16), (2, 4)), (np.ones(1), (0,)),
    (np.ones((3, 0)), (2, 3, 0)), (np.ones(()), ()), (np.arange(6.0).reshape(2, 3).T, (4, 3, 2)), (np.array([True, False]), (3, 2)),
    (np.arange(3)[::-1], (2, 3)), (np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1), (5, 4, 2, 3)),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(ARRAYS)))
def test_repeat_is_numpys_broadcast(k: int) -> None:
    x, shape = ARRAYS[k]
    got, want = repeat(x, shape), np.broadcast_to(x, shape)
    assert got.shape == want.shape and got.dtype == want.dtype and got.strides == want.strides and not got.flags.writeable
    np.testing.assert_array_equal(got, want)
    assert got.size == 0 or np.shares_memory(got, x)


@pytest.mark.parametrize("shape", [(), (3,), (70, 70)])
def test_equal_numbers_of_other_kinds_are_told_apart(shape: tuple[int, ...]) -> None:
    x = Tensor(np.ones(shape, np.float32))
    for zero, sign in ((0.0, 1), (-0.0, -1), (0.0, 1), (0, 1), (False, 1), (np.float64(-0.0), -1), (np.float32(0.0), 1)):
        assert np.all(np.signbit((x * zero).asnumpy()) == (sign < 0)), zero
    whole = Tensor(np.ones(shape, np.int32))
    for number, dtype in ((1, ms.int32), (1.0, ms.float32), (True, ms.int32), (1, ms.int32)):
        assert (whole + number).dtype == dtype
    for _ in range(2):
        assert np.all(np.isnan((x + float("nan")).asnumpy())) and np.all(np.isinf((x * float("inf")).asnumpy()))
    flags = Tensor(np.ones(shape, np.bool_))
    assert (flags + True).dtype == ms.bool_ and (flags + 1).dtype == ms.int64 and (flags * 0.5).dtype == ms.float32


def test_numbers_out_of_range_are_what_they_were() -> None:
    x = Tensor(np.ones(3, np.float16))
    assert np.all(np.isinf((x * 1e30).asnumpy())) and np.all(np.isinf((x + 1e30).asnumpy()))
    with pytest.raises((GraphcellError, OverflowError)):
        Tensor(np.ones(3, np.int32)) + 10**400


@pytest.mark.parametrize("shape", [(3,), (80, 90)])
def test_a_kept_number_cannot_be_written_to(shape: tuple[int, ...]) -> None:
    """Whatever is done with a Tensor that shares its memory, later operands have the number."""
    x = Tensor(np.ones(shape, np.float32))
    _, two = pair(x, 2.0, "mul")
    with pytest.raises(ValueError, match="read-only"):
        two.asnumpy()[...] = 5.0
    w = Parameter(Tensor(np.zeros(shape, np.float32)), name="w")
    ops.assign(w, two)

    @ms.jit
    def step() -> Any:
        ops.assign(w, w + 1.0)
        return w.sum()

    step()
    step()
    two[0] = 9.0
    np.testing.assert_array_equal(w.asnumpy(), 4.0)
    np.testing.assert_array_equal((x * 2.0).asnumpy(), 2.0)


class Other(Add):
    """A class of its own, made without `frozen`."""


def test_ops_without_parameters_are_one_object() -> None:
    assert type(Other()) is Other and Other() is not Add()
    assert Mul() is Mul() and Mul() is not Add() and Mul() != Add()
    assert copy.deepcopy(Mul()) is Mul() and pickle.loads(pickle.dumps(Mul())) is Mul()


INDICES: list[Any] = [
    3, -1, 0, slice(1, 5), slice(None), slice(None, None, -1), slice(5, 1), slice(-3, None, 2), None, ..., (1, 2), (slice(1, 3), -2), (..., 0), (None, 1, ...),
    (slice(None), None, slice(None, None, 2)), (2, ..., None), (), (True, 1), True, slice(np.int64(1), np.int64(4)), np.int64(2), ([0, 2], slice(1, 3)),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(INDICES)))
def test_indices_take_what_numpy_takes_in_any_shape_and_twice(k: int) -> None:
    for shape in ((6, 5), (7, 3, 4), (6, 5)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(Tensor(x)[INDICES[k]].asnumpy(), x[INDICES[k]])
        given, want = Tensor(x), x.copy()
        given[INDICES[k]] = 7.0
        want[INDICES[k]] = 7.0
        np.testing.assert_array_equal(given.asnumpy(), want)


def test_bools_are_no_ints_in_an_index() -> None:
    x = np.arange(12.0).reshape(3, 4)
    for index in (1, True, 0, False, 1, (True, 1), (1, 1), (False, 0), (0, 0)):
        np.testing.assert_array_equal(Tensor(x)[index].asnumpy(), x[index])


def test_a_dtype_that_is_asked_for() -> None:
    x = Tensor(np.ones(3, np.int32))
    assert all(t.dtype == ms.float32 for t in pair(x, x, "div", ms.float32)) and (x / x).dtype == ms.float32


@pytest.mark.parametrize("bad", [9, -7, (0, 5), (0, 0, 0), (..., ...), (0, "a"), slice("a", None), slice(None, None, 0)])
def test_bad_indices_are_refused_every_time(bad: Any) -> None:
    x, kinds = Tensor(np.ones((6, 5), np.float32)), set()
    for _ in range(3):
        with pytest.raises((IndexError, TypeError, ValueError)) as info:
            x[bad]
        kinds.add((type(info.value), str(info.value)))
    assert len(kinds) == 1
