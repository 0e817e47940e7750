"""`mint` against what MindSpore 2.10 gave (tests/programs/mint.json), eagerly and compiled; and what MindSpore has no CPU kernel for,
against numpy.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, mint, missing, nn, ops
from graphcell.context import PYNATIVE_MODE
from graphcell.mint.nn import functional as F
from tests.expressions import call
from tests.recording import caught, check, differences, encode, load, ramp, recorded

PROGRAMS = list(load("mint"))
COMPILED = [key for key in PROGRAMS if key.startswith(("M.", "F."))]


@pytest.mark.parametrize("key", PROGRAMS)
def test_eager(key: str) -> None:
    check("mint", key, PYNATIVE_MODE)


@pytest.mark.slow
@pytest.mark.parametrize("key", COMPILED)
def test_compiled(key: str) -> None:
    program: Any = load("mint")[key]
    found = caught(lambda: call(ms, *program.args, compiled=True))
    wrong = differences(recorded("mint")[key], encode(found))
    assert not wrong, "\n".join(wrong)


# -- functions without a CPU kernel in MindSpore: dtypes are those that it infers ---------------------------------------------
A = ramp((2, 3))
UNIT = (ramp((2, 3)) * 0.4).astype(np.float32)
I = np.array([[1, -2, 3], [4, 5, -6]], np.int32)
ODD = np.array([1.0, np.nan, np.inf, -np.inf, 0.0], np.float32)
LONG = ramp((2, 3, 7))


def windows(x: np.ndarray, size: int, step: int, edge: int, count_edge: bool = True) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (edge, edge)))
    ones = np.pad(np.ones_like(x), ((0, 0), (0, 0), (edge, edge)))
    starts = range(0, padded.shape[2] - size + 1, step)
    return np.stack([padded[..., k : k + size].sum(2) / (size if count_edge else ones[..., k : k + size].sum(2)) for k in starts], 2)


WITHOUT_KERNEL: list[tuple[Callable[..., Any], list[np.ndarray], Any, str]] = [
    (mint.exp2, [A], np.exp2(A), "Float32"),
    (mint.exp2, [I], np.exp2(I), "Float32"),
    (mint.special.exp2, [A], np.exp2(A), "Float32"),
    *[(f, [UNIT], np.arccos(UNIT), "Float32") for f in (mint.acos, mint.arccos)],
    *[(f, [UNIT], np.arcsin(UNIT), "Float32") for f in (mint.asin, mint.arcsin)],
    *[(f, [A], np.arctan(A), "Float32") for f in (mint.atan, mint.arctan)],
    *[(f, [I], np.arctan(I), "Float32") for f in (mint.atan, mint.arctan)],
    *[(f, [A], np.arcsinh(A), "Float32") for f in (mint.asinh, mint.arcsinh)],
    *[(f, [np.abs(A) + 1.5], np.arccosh(np.abs(A) + 1.5), "Float32") for f in (mint.acosh, mint.arccosh)],
    (mint.isneginf, [ODD], np.isneginf(ODD), "Bool"),
    (mint.isneginf, [I], np.zeros((2, 3)), "Bool"),
    (lambda x: mint.round(x, decimals=1), [A], np.round(A, 1), "Float32"),
    (lambda x: mint.floor_divide(x, 2.0), [A], np.floor(A / 2), "Float32"),
    (lambda x: mint.floor_divide(x, 2), [I], I // 2, "Int32"),
    (lambda x: mint.divide(x, 2, rounding_mode="floor"), [I], I // 2, "Int32"),
    (lambda x: mint.xlogy(2.0, x), [np.abs(A) + 1], 2 * np.log(np.abs(A) + 1), "Float32"),
    (mint.zeros_like, [I], np.zeros((2, 3)), "Int32"),
    (mint.ones_like, [A], np.ones((2, 3)), "Float32"),
    (lambda x: mint.ones_like(x, dtype=ms.float16), [I], np.ones((2, 3)), "Float16"),
    (lambda: mint.zeros(()), [], 0, "Float32"),
    (lambda: mint.full((2, 3), 1.5), [], np.full((2, 3), 1.5), "Float32"),
    (lambda: mint.full([2], 3), [], [3, 3], "Int64"),
    (lambda: mint.full(size=(2,), fill_value=True), [], [1, 1], "Bool"),
    (lambda: mint.full((2, 1), 2, dtype=ms.float16), [], [[2], [2]], "Float16"),
    (lambda x: mint.full((2,), x), [np.float32([7])], [7, 7], "Float32"),
    (lambda x: mint.full((2,), x, dtype=ms.int32), [np.float32(7)], [7, 7], "Int32"),
    (lambda x: mint.searchsorted(x, x, out_int32=True), [np.float32([1, 3, 5])], [0, 1, 2], "Int32"),
    (lambda x: F.one_hot(x, 4), [np.array([0, 2, 1], np.int32)], np.eye(4)[[0, 2, 1]], "Int32"),
    (lambda x: F.one_hot(x, num_classes=3), [np.array([[0, 2, 1]])], np.eye(3)[[[0, 2, 1]]], "Int64"),
    (F.one_hot, [np.array([0, 2, 1])], np.eye(3)[[0, 2, 1]], "Int64"),
    (lambda x: F.avg_pool1d(x, 2), [LONG], windows(LONG, 2, 2, 0), "Float32"),
    (lambda x: F.avg_pool1d(x, (3,), (1,)), [LONG], windows(LONG, 3, 1, 0), "Float32"),
    (lambda x: F.avg_pool1d(x, kernel_size=3, stride=2, padding=1), [LONG], windows(LONG, 3, 2, 1), "Float32"),
    (lambda x: F.avg_pool1d(x, 3, 2, 1, count_include_pad=False), [LONG], windows(LONG, 3, 2, 1, False), "Float32"),
]  # fmt: skip


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("case", range(len(WITHOUT_KERNEL)))
def test_without_kernel(case: int, compiled: bool) -> None:
    function, arrays, expected, dtype = WITHOUT_KERNEL[case]
    found = (ms.jit(function) if compiled and not _is_builtin(function) else function)(*map(Tensor, arrays))
    assert str(found.dtype) == dtype
    np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-5, atol=1e-6)


def _is_builtin(function: Any) -> bool:
    return function is F.one_hot  # which asks for the largest index


def test_positions() -> None:
    x = Tensor([[True, False], [True, True]])
    for found in (mint.where(x), mint.nonzero(x, as_tuple=True)):
        assert [y.asnumpy().tolist() for y in found] == [[0, 1, 1], [0, 0, 1]]


def test_without_classes_a_compiled_one_hot_runs_as_python() -> None:
    @ms.jit
    def f(x: Tensor) -> Tensor:
        return F.one_hot(x) * 2

    with pytest.warns(RuntimeWarning, match="runs as Python"):
        assert f(Tensor([1, 0])).asnumpy().tolist() == [[0, 2], [2, 0]]


def test_empty_on_no_device() -> None:
    for x, shape, dtype in (
        (mint.empty(2, 3, dtype=ms.int32, device="meta"), (2, 3), ms.int32), (mint.empty((), device="meta"), (), ms.float32),
        (mint.empty_like(Tensor([1, 2]), device="meta"), (2,), ms.int64), (mint.empty_like(Tensor([1, 2]), dtype=ms.float16, device="meta"), (2,), ms.float16),
    ):  # fmt: skip
        assert (x.device, x.shape, x.dtype) == ("meta", shape, dtype) and "<meta>" in repr(x)
        with pytest.raises(RuntimeError, match="src:meta"):
            x.asnumpy()
    assert mint.empty(2, device="cpu").device == mint.empty_like(Tensor([1]), device="CPU").device == "CPU"


def test_refused() -> None:
    x = Tensor([[1.0, 2.0]])
    for wrong, error in (
        (lambda: mint.add(x, x, alpha="2"), TypeError),
        (lambda: mint.sub(x, x, alpha=True), TypeError),
        (lambda: mint.max(x, keepdim=True), TypeError),
        (lambda: mint.max(x, 0, other=x), TypeError),
        (lambda: mint.max(x, (0, 1)), TypeError),
        (lambda: mint.min(x, True), TypeError),
        (lambda: mint.prod(x, (0, 1)), TypeError),
        (lambda: mint.cdist(x, x, compute_mode="fast"), ValueError),
        (lambda: mint.full(3, 1), TypeError),
        (lambda: mint.full((2,), x), ValueError),
        (lambda: mint.zeros(2, ms.int32), TypeError),
        (lambda: mint.empty(2, device="Ascend"), ValueError),
        (lambda: mint.sum(x, axis=0), TypeError),
        (lambda: F.one_hot(Tensor([1]), -2), ValueError),
        (lambda: F.one_hot(x, 3), TypeError),
        (lambda: mint.nn.GLU(axis=1), TypeError),
    ):
        with pytest.raises(error):
            wrong()


# -- the names -------------------------------------------------------------------------------------------------------------
def test_names_are_mindspores_and_tested() -> None:
    programs = [*PROGRAMS, *load("mint_functions"), *load("mint_network")]
    tested = set(re.findall(r"\b(?:M|N|F)\.([\w.]+)\(", " ".join(programs)))
    by_hand = {name for f, *_ in WITHOUT_KERNEL for name in (getattr(f, "__name__", ""), *re.findall(r"\w+", inspect.getsource(sys.modules[__name__])))}
    names = [n for n in mint.__all__ if n not in ("linalg", "nn", "optim", "special")]  # optim: tests/experimental
    names += [f"special.{n}" for n in mint.special.__all__] + [f"linalg.{n}" for n in mint.linalg.__all__]
    names += [f"nn.{n}" for n in mint.nn.__all__ if n != "functional"] + [f"nn.functional.{n}" for n in F.__all__]
    for name in names:
        short = name.removeprefix("nn.").removeprefix("functional.")
        assert short in tested or f"mindspore.mint.{name}" in missing.mindspore_paths(), name
        assert short in tested or short.rpartition(".")[2] in by_hand, name
        assert callable(reduce(getattr, name.split("."), mint))


def test_what_is_the_same_is_the_same() -> None:
    assert mint.exp is ops.exp and mint.nn.Linear is nn.Linear and mint.nn.Hardswish is nn.HSwish and F.relu is ops.relu
    assert str(mint.nn.GLU) == "<class 'graphcell.mint.nn.layer.activation.GLU'>"


def test_absent_names_say_so() -> None:
    with pytest.raises(AttributeError, match=r"MindSpore 2.10 has mindspore.mint.polar, graphcell does not have it yet"):
        mint.polar  # noqa: B018
    with pytest.raises(AttributeError, match=r"near names: Conv3d, Conv2d, Conv1d"):
        mint.nn.Conv4d  # noqa: B018
    with pytest.raises(ImportError, match=r"near names: dropout"):
        exec("from graphcell.mint.nn.functional import droput")


def test_a_network_of_mint_trains() -> None:
    """The same layers and functions in a compiled training step as in an eager one."""

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = mint.nn.Linear(4, 8, weight_init="ones"), mint.nn.Linear(4, 1, weight_init="ones")
            self.gate = mint.nn.GLU(dim=1)

        def construct(self, x: Tensor) -> Tensor:
            y = self.last(self.gate(self.first(x)))
            return mint.mean(mint.square(mint.sub(y, mint.sum(x, dim=1, keepdim=True), alpha=0.5)))

    x = Tensor(ramp((6, 4)))
    losses = []
    for compiled in (False, True):
        net = Net()
        for p in net.get_parameters():
            p.set_data(Tensor(ramp(p.shape)))
        optimizer = nn.SGD(net.trainable_params(), 0.05)
        forward = ms.value_and_grad(net, None, optimizer.parameters)

        def step(x: Tensor) -> Tensor:
            loss, gradients = forward(x)
            return ops.depend(loss, optimizer(gradients))

        run = ms.jit(step) if compiled else step
        losses.append([float(run(x)) for _ in range(5)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert losses[0][-1] < losses[0][0]
