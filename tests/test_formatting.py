"""Printed forms of Tensors: those of MindSpore 2.10, recorded from it."""

from __future__ import annotations

import numpy as np
import pytest

from graphcell import dtype as ms
from graphcell.ir.types import TensorType
from graphcell.jit import jit
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
    ("Tensor(np.arange(26.0), ms.bfloat16)",
     "Tensor(shape=[26], dtype=BFloat16, value= [ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, \n"
     " 24, 25])"),
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
    ("Tensor(1.5e10)", "15000000000.0"),
    ("Tensor(123456789.0)", "123456790.0"),
    ("Tensor(1e16)", "1e+16"),
    ("Tensor(1e-4)", "1e-04"),
    ("Tensor(1e-4, ms.float64)", "0.0001"),
    ("Tensor(2.5e-5, ms.float64)", "2.5e-05"),
    ("Tensor(1000.5, ms.float16)", "1000.5"),
    ("Tensor(-0.0)", "-0.0"),
    ("Tensor(-inf)", "-inf"),
    ("Tensor(nan, ms.float16)", "nan"),
    ("Tensor(2.5, ms.bfloat16)", "2.500000"),
    ("Tensor([1.0, -2.5, 1e-3])", "[ 1.0e+00 -2.5e+00  1.0e-03]"),
    ("Tensor([nan, inf, 1.0])", "[nan inf  1.]"),
    ("Tensor([-51178.734, 1045230.94, 785584.56])", "[ -51178.734 1045230.94   785584.56 ]"),
    ("Tensor([60000.0, -2.5], ms.float16)", "[ 6.0e+04 -2.5e+00]"),
    ("Tensor([60000.0, 1200.0], ms.float16)", "[60000.  1200.]"),
    ("Tensor([2e8, 1e8])", "[2.e+08 1.e+08]"),
    ("Tensor([[12345678.0]], ms.float64)", "[[12345678.]]"),
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

GRAPH = (
    ("Tensor([1.0, inf, nan, -inf])", "Tensor(shape=[4], dtype=Float32, value=[ 1.00000000e+00             inf             nan            -inf])"),
    ("Tensor([inf, -inf], ms.float16)", "Tensor(shape=[2], dtype=Float16, value=[        inf        -inf])"),
    ("Tensor([[inf, 1e-30], [nan, -2.5]], ms.float64)",
     "Tensor(shape=[2, 2], dtype=Float64, value=\n"
     "[[            inf  1.00000000e-30]\n"
     " [            nan -2.50000000e+00]])"),
    ("Tensor([[[inf, 2.0]], [[0.5, nan]]])",
     "Tensor(shape=[2, 1, 2], dtype=Float32, value=\n"
     "[[[            inf  2.00000000e+00]]\n"
     " [[ 5.00000000e-01             nan]]])"),
    ("Tensor([1e300, inf], ms.float64)", "Tensor(shape=[2], dtype=Float64, value=[1.00000000e+300             inf])"),
    ("Tensor(inf)", "inf"),
    ("Tensor([True, False])", "Tensor(shape=[2], dtype=Bool, value=[ True False])"),
    ("Tensor([[2147483647, -5], [3, 4]], ms.int32)",
     "Tensor(shape=[2, 2], dtype=Int32, value=\n"
     "[[2147483647         -5]\n"
     " [         3          4]])"),
    ("Tensor([[[1], [2]], [[30], [4]]], ms.int8)",
     "Tensor(shape=[2, 2, 1], dtype=Int8, value=\n"
     "[[[ 1]\n"
     "  [ 2]]\n"
     " [[30]\n"
     "  [ 4]]])"),
    ("Tensor(np.arange(13), ms.float32)",
     "Tensor(shape=[13], dtype=Float32, value=[ 0.00000000e+00  1.00000000e+00  2.00000000e+00  3.00000000e+00  4.00000000e+00  5.00000000e+00  6.00000000e+00  7.00000000e+00  8.00000000e+00  9.00000000e+00  1.00000000e+01  1.10000000e+01 \n"
     "  1.20000000e+01])"),
    ("Tensor(np.arange(24), ms.int32)",
     "Tensor(shape=[24], dtype=Int32, value=[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23\n"
     " ])"),
    ("Tensor(np.arange(25) * 1000)",
     "Tensor(shape=[25], dtype=Int64, value=[    0  1000  2000  3000  4000  5000  6000  7000  8000  9000 10000 11000 12000 13000 14000 15000 16000 17000 18000 19000 20000 21000 22000 23000 \n"
     " 24000])"),
    ("Tensor(np.arange(13) > 5)",
     "Tensor(shape=[13], dtype=Bool, value=[False False False False False False  True  True  True  True  True  True \n"
     "  True])"),
    ("Tensor(np.arange(1001), ms.int32)", "Tensor(shape=[1001], dtype=Int32, value=[   0    1    2 ...  998  999 1000])"),
    ("Tensor(np.arange(14).reshape(2, 7), ms.float16)",
     "Tensor(shape=[2, 7], dtype=Float16, value=\n"
     "[[ 0.0000e+00  1.0000e+00  2.0000e+00 ...  4.0000e+00  5.0000e+00  6.0000e+00]\n"
     " [ 7.0000e+00  8.0000e+00  9.0000e+00 ...  1.1000e+01  1.2000e+01  1.3000e+01]])"),
    ("Tensor(np.arange(7 * 2).reshape(7, 2), ms.int64)",
     "Tensor(shape=[7, 2], dtype=Int64, value=\n"
     "[[ 0  1]\n"
     " [ 2  3]\n"
     " [ 4  5]\n"
     " ...\n"
     " [ 8  9]\n"
     " [10 11]\n"
     " [12 13]])"),
    ("Tensor(np.arange(7 * 7 * 7).reshape(7, 7, 7), ms.int32)",
     "Tensor(shape=[7, 7, 7], dtype=Int32, value=\n"
     "[[[  0   1   2 ...   4   5   6]\n"
     "  [  7   8   9 ...  11  12  13]\n"
     "  [ 14  15  16 ...  18  19  20]\n"
     "  ...\n"
     "  [ 28  29  30 ...  32  33  34]\n"
     "  [ 35  36  37 ...  39  40  41]\n"
     "  [ 42  43  44 ...  46  47  48]]\n"
     " [[ 49  50  51 ...  53  54  55]\n"
     "  [ 56  57  58 ...  60  61  62]\n"
     "  [ 63  64  65 ...  67  68  69]\n"
     "  ...\n"
     "  [ 77  78  79 ...  81  82  83]\n"
     "  [ 84  85  86 ...  88  89  90]\n"
     "  [ 91  92  93 ...  95  96  97]]\n"
     " [[ 98  99 100 ... 102 103 104]\n"
     "  [105 106 107 ... 109 110 111]\n"
     "  [112 113 114 ... 116 117 118]\n"
     "  ...\n"
     "  [126 127 128 ... 130 131 132]\n"
     "  [133 134 135 ... 137 138 139]\n"
     "  [140 141 142 ... 144 145 146]]\n"
     " ...\n"
     " [[196 197 198 ... 200 201 202]\n"
     "  [203 204 205 ... 207 208 209]\n"
     "  [210 211 212 ... 214 215 216]\n"
     "  ...\n"
     "  [224 225 226 ... 228 229 230]\n"
     "  [231 232 233 ... 235 236 237]\n"
     "  [238 239 240 ... 242 243 244]]\n"
     " [[245 246 247 ... 249 250 251]\n"
     "  [252 253 254 ... 256 257 258]\n"
     "  [259 260 261 ... 263 264 265]\n"
     "  ...\n"
     "  [273 274 275 ... 277 278 279]\n"
     "  [280 281 282 ... 284 285 286]\n"
     "  [287 288 289 ... 291 292 293]]\n"
     " [[294 295 296 ... 298 299 300]\n"
     "  [301 302 303 ... 305 306 307]\n"
     "  [308 309 310 ... 312 313 314]\n"
     "  ...\n"
     "  [322 323 324 ... 326 327 328]\n"
     "  [329 330 331 ... 333 334 335]\n"
     "  [336 337 338 ... 340 341 342]]])"),
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


@pytest.mark.parametrize("expression, text", GRAPH, ids=[r[0] for r in GRAPH])
def test_printed_inside_of_a_graph(expression: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    def shows(x: Tensor) -> int:
        print(x)
        return x.ndim

    jit(shows)(eval(expression, NAMES))
    assert capsys.readouterr().out == f"{text}\n"


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
