"""Arguments given by name, and of other types than functions take, as MindSpore 2.10 takes them (tests/programs/argument_names.py), and those that it has no kernels for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, ops
from tests.recording import check, load


@pytest.mark.parametrize("key", list(load("argument_names")))
def test_as_mindspore(key: str) -> None:
    check("argument_names", key, ms.PYNATIVE_MODE)


def test_names_in_a_graph() -> None:
    @ms.jit
    def f(x: Tensor, i: Tensor) -> Any:
        y = x.reshape(shape=(3, 2)).permute(dims=(1, 0)).index_select(dim=1, index=i)
        return y.true_divide(other=2.0), y.transpose(dim0=0, dim1=1), y.argsort(dim=-1, descending=True), y.new_ones(size=(2,))

    half, turned, order, ones = f(Tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]), Tensor([2, 0]))
    assert half.tolist() == [[2.0, 0.0], [2.5, 0.5]] and turned.tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert order.tolist() == [[0, 1], [0, 1]] and ones.tolist() == [1.0, 1.0]


def test_types_in_a_graph() -> None:
    @ms.jit
    def f(x: Tensor, mask: Tensor) -> Any:
        return x.masked_fill(mask, 1.5), x.std(), x.var(0)

    filled, deviation, variance = f(Tensor([1, 2, 4], ms.int32), Tensor([True, False, True]))
    assert filled.dtype is ms.int32 and filled.tolist() == [1, 2, 1]
    assert deviation.item() == pytest.approx((14 / 9) ** 0.5) and variance.item() == pytest.approx(14 / 9)


@pytest.mark.parametrize("run", [lambda f: f, ms.jit], ids=["eager", "graph"])
def test_names_of_single_functions(run: Any) -> None:
    x = Tensor([0.5, 0.25])
    angles, same, halves, cast = run(lambda x: (ops.arcsin(x=x), ops.asin(input=x), ops.tensor_div(x=x, y=2), x.to(other=Tensor(1, ms.float16))))(x)
    assert angles.tolist() == same.tolist() and halves.tolist() == [0.25, 0.125] and cast.dtype is ms.float16


def test_what_mindspore_runs_on_other_devices() -> None:
    x = Tensor([1.0, 2.0])
    assert x.repeat(repeats=(2,)).tolist() == x.repeat(2).tolist() == [1.0, 2.0, 1.0, 2.0]
    assert x.index_add(dim=0, index=Tensor([0]), source=Tensor([3.0]), alpha=2).tolist() == x.tolist() == [7.0, 2.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.multiply(2.0, other=3.0),
        lambda x: x.reshape(2, shape=(2,)),
        lambda x: x.index_select(axis=0, dim=0, index=Tensor([0])),
        lambda x: x.argsort(0, dim=0),
    ],
)
def test_arguments_given_twice(call: Any) -> None:
    with pytest.raises(TypeError, match="give one argument only"):
        call(Tensor([1.0, 2.0]))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.squeeze(0, axis=0), lambda x: x.repeat(2, 2, repeats=(2, 2)), lambda x: x.tile(2, dims=(2,)), lambda x: x.tile(dims=(2,), reps=(2,)),
        lambda x: x.sub(x, y=x), lambda x: x.sub(), lambda x: x.reshape(2, shape=(2,)), lambda x: x.argsort(axis=0, dim=0),
    ],
)  # fmt: skip
def test_nothing_is_taken_twice_or_left_out_silently(call: Any) -> None:
    with pytest.raises(TypeError, match=r"mean the same; give one|missing required argument"):
        call(Tensor(np.ones((1, 2), np.float32)))
