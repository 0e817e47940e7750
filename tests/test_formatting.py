"""Printed forms of Tensors: those of MindSpore 2.10, recorded from it."""

from __future__ import annotations

import numpy as np
import pytest

from graphcell import dtype as ms
from graphcell.ir.types import TensorType
from graphcell.ops.dispatch import Trace
from graphcell.tensor import Tensor

NAMES = {"Tensor": Tensor, "ms": ms, "np": np, "nan": float("nan"), "inf": float("inf")}

REPR = (
    ("Tensor(3.5)", "Tensor(shape=[], dtype=Float32, value= 3.5)"),
    ("Tensor(-2.25, ms.float16)", "Tensor(shape=[], dtype=Float16, value= -2.25)"),
    ("Tensor(1e20)", "Tensor(shape=[], dtype=Float32, value= 1e+20)"),
    ("Tensor(1 / 3, ms.float64)", "Tensor(shape=[], dtype=Float64, value= 0.333333)"),
    ("Tensor(-0.0)", "Tensor(shape=[], dtype=Float32, value= -0)"),
    ("Tensor(7)", "Tensor(shape=[], dtype=Int64, value= 7)"),
    ("Tensor(True)", "Tensor(shape=[], dtype=Bool, value= True)"),
    ("Tensor(nan)", "Tensor(shape=[], dtype=Float32, value= nan)"),
    ("Tensor(2.5, ms.bfloat16)", "Tensor(shape=[], dtype=BFloat16, value= 2.5)"),
    ("Tensor.from_numpy(np.array([1.0, 2.5]))", "Tensor(shape=[2], dtype=Float64, value= [1. , 2.5])"),
    ("Tensor.from_numpy(np.array([[1], [20]]))", "Tensor(shape=[2, 1], dtype=Int64, value=\n[[ 1],\n [20]])"),
    ("Tensor.from_numpy(np.array(0.0))", "Tensor(shape=[], dtype=Float64, value= 0.)"),
    ("Tensor.from_numpy(np.array([0.1, 0.2], np.float16))", "Tensor(shape=[2], dtype=Float16, value= [0.1, 0.2])"),
    ("Tensor.from_numpy(np.zeros(0))", "Tensor(shape=[0], dtype=Float64, value= [])"),
    ("Tensor([1.0, -2.5, 1e-3])",
     "Tensor(shape=[3], dtype=Float32, value= [ 1.00000000e+00, -2.50000000e+00,  1.00000005e-03])"),
    ("Tensor([1.0, 2.0], ms.float64)", "Tensor(shape=[2], dtype=Float64, value= [ 1.00000000e+00,  2.00000000e+00])"),
    ("Tensor([1.0, -2.0], ms.float16)", "Tensor(shape=[2], dtype=Float16, value= [ 1.0000e+00, -2.0000e+00])"),
    ("Tensor([1.0, 0.1, -300.0], ms.bfloat16)",
     "Tensor(shape=[3], dtype=BFloat16, value= [       1, 0.100098,     -300])"),
    ("Tensor([1, -20, 300])", "Tensor(shape=[3], dtype=Int64, value= [  1, -20, 300])"),
    ("Tensor([1, 200], ms.uint8)", "Tensor(shape=[2], dtype=UInt8, value= [  1, 200])"),
    ("Tensor([True, False])", "Tensor(shape=[2], dtype=Bool, value= [ True, False])"),
    ("Tensor([False])", "Tensor(shape=[1], dtype=Bool, value= [False])"),
    ("Tensor([nan, inf, -inf, 1.0])",
     "Tensor(shape=[4], dtype=Float32, value= [            nan,             inf,            -inf,  "
     "1.00000000e+00])"),
    ("Tensor([nan, inf, -inf, 1.0], ms.float16)",
     "Tensor(shape=[4], dtype=Float16, value= [        nan,         inf,        -inf,  1.0000e+00])"),
    ("Tensor([nan, -inf, 1.0], ms.bfloat16)", "Tensor(shape=[3], dtype=BFloat16, value= [ nan, -inf,    1])"),
    ("Tensor([1e300, -1e-300], ms.float64)",
     "Tensor(shape=[2], dtype=Float64, value= [1.00000000e+300, -1.00000000e-300])"),
    ("Tensor([[1.0, 2.0], [3.0, 4.0]])",
     "Tensor(shape=[2, 2], dtype=Float32, value=\n"
     "[[ 1.00000000e+00,  2.00000000e+00],\n"
     " [ 3.00000000e+00,  4.00000000e+00]])"),
    ("Tensor([[1, 2], [3, -400]])",
     "Tensor(shape=[2, 2], dtype=Int64, value=\n"
     "[[   1,    2],\n"
     " [   3, -400]])"),
    ("Tensor([[True], [False]])",
     "Tensor(shape=[2, 1], dtype=Bool, value=\n"
     "[[ True],\n"
     " [False]])"),
    ("Tensor([[1.5, 2.0], [3.0, nan]], ms.bfloat16)",
     "Tensor(shape=[2, 2], dtype=BFloat16, value=\n"
     "[[1.5,   2],\n"
     " [  3, nan]])"),
    ("Tensor(np.arange(12).reshape(2, 2, 3))",
     "Tensor(shape=[2, 2, 3], dtype=Int64, value=\n"
     "[[[ 0,  1,  2],\n"
     "  [ 3,  4,  5]],\n"
     " [[ 6,  7,  8],\n"
     "  [ 9, 10, 11]]])"),
    ("Tensor(np.arange(8, dtype=np.float32).reshape(2, 2, 2))",
     "Tensor(shape=[2, 2, 2], dtype=Float32, value=\n"
     "[[[ 0.00000000e+00,  1.00000000e+00],\n"
     "  [ 2.00000000e+00,  3.00000000e+00]],\n"
     " [[ 4.00000000e+00,  5.00000000e+00],\n"
     "  [ 6.00000000e+00,  7.00000000e+00]]])"),
    ("Tensor(np.arange(14).reshape(7, 2))",
     "Tensor(shape=[7, 2], dtype=Int64, value=\n"
     "[[ 0,  1],\n"
     " [ 2,  3],\n"
     " [ 4,  5],\n"
     " ...\n"
     " [ 8,  9],\n"
     " [10, 11],\n"
     " [12, 13]])"),
    ("Tensor(np.arange(16).reshape(2, 8))",
     "Tensor(shape=[2, 8], dtype=Int64, value=\n"
     "[[ 0,  1,  2 ...  5,  6,  7],\n"
     " [ 8,  9, 10 ... 13, 14, 15]])"),
    ("Tensor(np.arange(16, dtype=np.float32).reshape(2, 8))",
     "Tensor(shape=[2, 8], dtype=Float32, value=\n"
     "[[ 0.00000000e+00,  1.00000000e+00,  2.00000000e+00 ...  5.00000000e+00,  6.00000000e+00,  "
     "7.00000000e+00],\n"
     " [ 8.00000000e+00,  9.00000000e+00,  1.00000000e+01 ...  1.30000000e+01,  1.40000000e+01,  "
     "1.50000000e+01]])"),
    ("Tensor(np.arange(2 * 7 * 7).reshape(2, 7, 7))",
     "Tensor(shape=[2, 7, 7], dtype=Int64, value=\n"
     "[[[ 0,  1,  2 ...  4,  5,  6],\n"
     "  [ 7,  8,  9 ... 11, 12, 13],\n"
     "  [14, 15, 16 ... 18, 19, 20],\n"
     "  ...\n"
     "  [28, 29, 30 ... 32, 33, 34],\n"
     "  [35, 36, 37 ... 39, 40, 41],\n"
     "  [42, 43, 44 ... 46, 47, 48]],\n"
     " [[49, 50, 51 ... 53, 54, 55],\n"
     "  [56, 57, 58 ... 60, 61, 62],\n"
     "  [63, 64, 65 ... 67, 68, 69],\n"
     "  ...\n"
     "  [77, 78, 79 ... 81, 82, 83],\n"
     "  [84, 85, 86 ... 88, 89, 90],\n"
     "  [91, 92, 93 ... 95, 96, 97]]])"),
    ("Tensor(np.arange(25))",
     "Tensor(shape=[25], dtype=Int64, value= [ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, "
     "15, 16, 17, 18, 19, 20, 21, 22, 23, \n"
     " 24])"),
    ("Tensor(np.arange(24))",
     "Tensor(shape=[24], dtype=Int64, value= [ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, "
     "15, 16, 17, 18, 19, 20, 21, 22, 23\n"
     " ])"),
    ("Tensor(np.arange(13, dtype=np.float32))",
     "Tensor(shape=[13], dtype=Float32, value= [ 0.00000000e+00,  1.00000000e+00,  2.00000000e+00,  "
     "3.00000000e+00,  4.00000000e+00,  5.00000000e+00,  6.00000000e+00,  7.00000000e+00,  "
     "8.00000000e+00,  9.00000000e+00,  1.00000000e+01,  1.10000000e+01, \n"
     "  1.20000000e+01])"),
    ("Tensor(np.arange(12, dtype=np.float32))",
     "Tensor(shape=[12], dtype=Float32, value= [ 0.00000000e+00,  1.00000000e+00,  2.00000000e+00,  "
     "3.00000000e+00,  4.00000000e+00,  5.00000000e+00,  6.00000000e+00,  7.00000000e+00,  "
     "8.00000000e+00,  9.00000000e+00,  1.00000000e+01,  1.10000000e+01\n"
     " ])"),
    ("Tensor(np.arange(13) > 5)",
     "Tensor(shape=[13], dtype=Bool, value= [False, False, False, False, False, False,  True,  True,  "
     "True,  True,  True,  True, \n"
     "  True])"),
    ("Tensor(np.arange(1001))", "Tensor(shape=[1001], dtype=Int64, value= [   0,    1,    2 ...  998,  999, 1000])"),
    ("Tensor(np.arange(1001) * 0.5)",
     "Tensor(shape=[1001], dtype=Float64, value= [ 0.00000000e+00,  5.00000000e-01,  1.00000000e+00 ...  "
     "4.99000000e+02,  4.99500000e+02,  5.00000000e+02])"),
    ("Tensor(np.zeros((0,), np.float32))", "Tensor(shape=[0], dtype=Float32, value= )"),
    ("Tensor(np.zeros((2, 0), np.int32))",
     "Tensor(shape=[2, 0], dtype=Int32, value=\n"
     ")"),
)  # fmt: skip

STR = (
    ("Tensor(3.5)", "3.5"),
    ("Tensor(1e20)", "1e+20"),
    ("Tensor(2.5, ms.bfloat16)", "2.500000"),
    ("Tensor([1.0, -2.5, 1e-3])", "[ 1.0e+00 -2.5e+00  1.0e-03]"),
    ("Tensor([nan, inf, 1.0])", "[nan inf  1.]"),
    ("Tensor([1.0, 0.1, nan], ms.bfloat16)", "[1.000000 0.100098 nan]"),
    ("Tensor([1, -20, 300])", "[  1 -20 300]"),
    ("Tensor([True, False])", "[ True False]"),
    ("Tensor([[1.0, 2.0], [3.0, 4.5]])",
     "[[1.  2. ]\n"
     " [3.  4.5]]"),
    ("Tensor([[1.5], [-2.0]], ms.bfloat16)",
     "[[1.500000]\n"
     " [-2.000000]]"),
    ("Tensor(np.zeros((2, 0), np.int32))", "[]"),
    ("Tensor(np.arange(1001))", "[   0    1    2 ...  998  999 1000]"),
)  # fmt: skip


@pytest.mark.parametrize("expression, text", REPR, ids=[r[0] for r in REPR])
def test_repr(expression: str, text: str) -> None:
    tensor = eval(expression, NAMES)
    assert repr(tensor) == text
    assert repr([tensor]) == f"[{text}]"


@pytest.mark.parametrize("expression, text", STR, ids=[r[0] for r in STR])
def test_str(expression: str, text: str) -> None:
    tensor = eval(expression, NAMES)
    assert str(tensor) == text and f"{tensor}" == text


def test_symbolic() -> None:
    trace = Trace("f")
    x = Tensor.of_value(trace.input(TensorType(ms.float32, (2, 3))))
    assert repr(x) == str(x) == "Tensor(shape=[2, 3], dtype=Float32, value=<symbolic>)"


def test_not_initialised() -> None:
    x = Tensor(shape=(2,), dtype=ms.float16, init=lambda array: array.fill(1))
    assert repr(x) == "Tensor(shape=[2], dtype=Float16, value=<uninitialized>)"
    assert str(x.init_data()) == "[1. 1.]"


def test_views_print_as_copies() -> None:
    x = np.arange(40.0).reshape(5, 8)[::2, ::-1]
    assert repr(Tensor.of_array(x)) == repr(Tensor(x.copy()))
