"""Functions and layers of mint: results and gradients."""

from __future__ import annotations

from typing import Any

from tests.expressions import Calls, programs_of
from tests.recording import gradients, ramp

A, B, C = "T((2, 3))", "T((2, 3), 1.0)", "T((3,), 2.0)"
CUBE = "T((2, 3, 4))"
POSITIVE = "Tensor(np.abs(ramp((2, 3))) + 0.5)"
UNIT = "Tensor(ramp((2, 3)) * 0.4)"
I = "Tensor(np.array([[1, -2, 3], [4, 5, -6]], np.int32))"
J = "Tensor(np.array([[2, 2, -2], [3, -3, 4]], np.int32))"
L = "Tensor(np.array([[1, -2, 3], [4, 5, -6]], np.int64))"
H = "Tensor(ramp((2, 3)).astype(np.float16))"
D = "Tensor(ramp((2, 3)).astype(np.float64))"
BOOLS = "Tensor(np.array([[True, False, True], [False, False, True]]))"
BOOL = "Tensor(np.array([True, True, False]))"
ODD = "Tensor(np.array([1.0, np.nan, np.inf, -np.inf, 0.0], np.float32))"
PLACES = "Tensor(np.array([[0, 1, 1], [1, 0, 0]], np.int64))"
IMAGE = "T((2, 4, 5, 4))"
SPREAD = "Tensor(np.array([1.0, 3.0, 5.0, 7.0], np.float32))"
RUNS = "Tensor(np.array([1, 1, 2, 2, 2, 3, 1, 1], np.int32))"

FLOATS = ["ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "sigmoid", "sin", "sinh", "tan", "tanh", "special.erfc", "special.expm1"]
NUMBERS = ["abs", "neg", "negative", "round", "sign", "sinc", "square", "trunc", "special.round", "special.sinc"]
COMPARISONS = ["eq", "ne", "gt", "ge", "lt", "le", "greater", "greater_equal", "less", "less_equal", "not_equal"]

CALLS: Calls = [
    *[(f"M.{n}(x)", [a]) for n in FLOATS for a in (A, H)],
    *[(f"M.{n}(x)", [a]) for n in NUMBERS for a in (A, I, H)],
    *[(f"M.{n}(x)", [POSITIVE]) for n in ("log", "log1p", "sqrt", "rsqrt", "reciprocal", "special.log1p")],
    *[(f"M.{n}(x)", ["Tensor(np.array([1, 4, 9], np.int32))"]) for n in ("sqrt", "reciprocal")],
    *[(f"M.{n}(x)", [UNIT]) for n in ("atanh", "arctanh", "erfinv")],
    *[(f"M.{n}(x)", [ODD]) for n in ("isfinite", "isinf")],
    ("M.isfinite(x)", [I]),
    ("M.nan_to_num(x)", [ODD]),
    ("M.nan_to_num(x, 1.0, 2.0, 3.0)", [ODD]),
    ("M.nan_to_num(x, nan=1.0, neginf=-2.0)", [ODD]),
    *[(f"M.{n}(x, y)", [a, b]) for n in ("add", "sub") for a, b in ((A, B), (A, C), (I, J), (I, A), (A, "2"), ("2.5", I), (BOOLS, I), (H, A))],
    *[(f"M.{n}(x, y, alpha={k})", [a, b]) for n in ("add", "sub") for k, a, b in ((2, A, B), (0.5, A, C), (3, I, J), (2, I, A), (2, A, "1.5"), (2, I, "3"), (2, "1.5", A))],
    ("M.add(x, y, alpha=0.5)", [I, J]),
    ("M.add(x, alpha=2, other=y)", [A, B]),
    *[(f"M.divide(x, y{m})", [a, b]) for m in ("", ", rounding_mode='floor'", ", rounding_mode='trunc'") for a, b in ((A, B), (I, J), (A, "2.0"))],
    ("M.divide(x, y)", [I, "2"]),
    ("M.divide(x, y, rounding_mode='trunc')", [I, "2"]),
    *[(f"M.{n}(x, y)", [a, b]) for n in ("maximum", "minimum") for a, b in ((A, B), (A, C), (I, J), (A, "0.5"), (I, A))],
    *[(f"M.{n}(x, y)", [a, b]) for n in COMPARISONS for a, b in ((A, B), (I, J), (A, "0.5"), (I, "2"))],
    *[(f"M.{n}(x, y)", [a, b]) for n in ("logical_and", "logical_or", "logical_xor") for a, b in ((BOOLS, BOOL), (I, BOOLS), (A, I))],
    ("M.logical_not(x)", [BOOLS]),
    ("M.logical_not(x)", [I]),
    *[("M.floor_divide(x, y)", [a, b]) for a, b in ((A, B), (I, J), ("7", J))],
    *[("M.float_power(x, y)", [a, b]) for a, b in ((POSITIVE, B), (I, "2"), (A, "2.0"), ("2.0", A), ("2", I))],
    ("M.gcd(x, y)", [I, J]),
    ("M.gcd(x, y)", [L, "Tensor(np.array([2, 4, 6], np.int64))"]),
    *[("M.xlogy(x, y)", [a, b]) for a, b in ((B, POSITIVE), (A, "2.0"), (I, POSITIVE))],
    *[("M.lerp(x, y, z)", [A, B, w]) for w in ("0.3", "T((2, 3), 3.0)", "T((3,), 3.0)", "Tensor(0.25)")],
    *[(f"M.isclose(x, y{m})", [ODD, ODD]) for m in ("", ", equal_nan=True")],
    ("M.isclose(x, y, 0.1, 0.05)", [A, B]),
    ("M.isclose(x, y)", [I, J]),
    ("M.allclose(x, y)", [A, B]),
    ("M.allclose(x, y)", [A, A]),
    ("M.allclose(x, y, equal_nan=True)", [ODD, ODD]),
    # reductions
    *[(f"M.{n}({m})", [CUBE]) for n in ("sum", "mean") for m in ("x", "x, 1", "x, dim=-1", "x, dim=(0, 2)", "x, dim=(0, 2), keepdim=True", "x, 1, True", "x, 0, dtype=ms.float64", "input=x, dim=0")],
    ("M.sum(x, dtype=ms.int32)", [CUBE]),
    ("M.mean(x, 1, dtype=ms.float16)", [I]),
    *[(f"M.{n}({m})", [a]) for n in ("sum", "prod") for m in ("x", "x, 1") for a in (I, BOOLS, H)],
    ("M.mean(x)", [H]),
    ("M.mean(x, dtype=ms.float32)", [I]),
    ("M.mean(x)", [I]),
    *[(f"M.prod({m})", [CUBE]) for m in ("x", "x, 1", "x, dim=-1", "x, dim=2, keepdim=True", "x, 1, True", "x, dtype=ms.float64", "x, 0, dtype=ms.float64")],
    *[(f"M.{n}({m})", [a]) for n in ("all", "any") for m in ("x", "x, 0", "x, dim=1", "x, dim=-1, keepdim=True", "x, 1, True", "x, dim=(0, 1)") for a in (BOOLS, I)],
    *[(f"M.{n}({m})", [CUBE]) for n in ("amax", "amin") for m in ("x", "x, 1", "x, dim=-1", "x, dim=(0, 2)", "x, dim=(0, 2), keepdim=True", "x, 1, True")],
    *[(f"M.{n}({m})", [CUBE]) for n in ("max", "min") for m in ("x", "x, 1", "x, dim=-1", "x, dim=2, keepdim=True", "x, 1, True", "input=x, dim=0")],
    *[(f"M.{n}(x, y)", [A, B]) for n in ("max", "min")],
    *[(f"M.{n}(x)", [I]) for n in ("max", "min", "amax", "amin")],
    ("M.max(x, 1)", [I]),
    ("M.max(x, dim=0)[0]", [CUBE]),
    ("M.cumprod(x, 1)", [B]),
    ("M.cumprod(x, dim=0, dtype=ms.float64)", [B]),
    ("M.cumprod(x, -1)", [I]),
    # products
    *[("M.matmul(x, y)", [a, b]) for a, b in ((A, "T((3, 4))"), (C, C), (CUBE, "T((4, 2))"), (CUBE, "T((2, 4, 2))"), (CUBE, "T((4,))"), (C, "T((2, 3, 4))"))],
    ("M.bmm(x, y)", ["T((2, 2, 3))", "T((2, 3, 4), 1.0)"]),
    ("M.bmm(input=x, mat2=y)", ["T((2, 2, 3))", "T((2, 3, 4), 1.0)"]),
    *[(f"M.cdist(x, y{m})", ["T((4, 3))", "T((2, 3), 1.0)"]) for m in ("", ", p=1.0", ", 3.0")],
    ("M.cross(x, y)", [A, B]),
    ("M.cross(x, y, dim=1)", [A, B]),
    ("M.cross(x, y, 0)", ["T((3, 2))", "T((3, 2), 1.0)"]),
    # shapes
    *[(f"M.{n}((x, y){m})", [A, B]) for n in ("cat", "concat") for m in ("", ", 1", ", dim=-1")],
    ("M.cat(tensors=[x, y])", [I, J]),
    ("M.dstack((x, y))", [A, B]),
    ("M.hstack((x, y))", [A, B]),
    ("M.hstack([x, y])", [C, C]),
    ("M.flip(x, (0,))", [CUBE]),
    ("M.flip(x, dims=(0, -1))", [CUBE]),
    ("M.flip(x, [1])", [CUBE]),
    *[(f"M.meshgrid(x, y{m})", [C, "T((2,))"]) for m in ("", ", indexing='ij'", ", indexing='xy'")],
    ("M.permute(x, (2, 0, 1))", [CUBE]),
    ("M.permute(x, dims=(-1, 0, 1))", [CUBE]),
    ("M.ravel(x)", [CUBE]),
    ("M.tile(x, (2,))", [A]),
    ("M.tile(x, dims=(2, 1, 3))", [A]),
    ("M.tile(x, (2, 2))", [C]),
    ("M.triu(x)", [A]),
    ("M.triu(x, 1)", [A]),
    ("M.triu(x, diagonal=-1)", [CUBE]),
    # choosing
    ("M.gather(x, 0, y)", [A, PLACES]),
    ("M.gather(x, 1, y)", [A, PLACES]),
    ("M.gather(input=x, dim=-1, index=y)", [A, "Tensor(np.array([[2], [0]], np.int32))"]),
    ("M.scatter(x, 0, y, z)", [A, PLACES, B]),
    ("M.scatter(x, 1, y, z)", [A, "Tensor(np.array([[0, 2], [1, 0]], np.int64))", "T((2, 2), 3.0)"]),
    ("M.scatter(x, 1, y, 2.0)", [A, "Tensor(np.array([[0, 2], [1, 0]], np.int64))"]),
    ("M.scatter(input=x, dim=1, index=y, src=z)", [I, "Tensor(np.array([[0, 2], [1, 0]], np.int64))", "Tensor(np.array([[7, 8], [9, 10]], np.int32))"]),
    ("M.masked_select(x, y)", [A, BOOLS]),
    ("M.masked_select(x, y)", [A, BOOL]),
    ("M.nonzero(x)", [I]),
    ("M.nonzero(x)", [BOOLS]),
    *[("M.where(x, y, z)", [BOOLS, a, b]) for a, b in ((A, B), (A, "0.5"), ("2.0", A), (I, J), (I, A), (A, C))],
    *[(f"M.searchsorted(x, y{m})", [SPREAD, "Tensor(np.array([3.0, 6.0, 0.0, 9.0], np.float32))"]) for m in ("", ", right=True", ", side='right'")],
    *[(f"M.unique_consecutive(x{m})", [RUNS]) for m in ("", ", True", ", return_counts=True", ", True, True")],
    ("M.unique_consecutive(x, return_inverse=True, return_counts=True, dim=0)", ["Tensor(np.array([[1, 2], [1, 2], [3, 4]], np.int32))"]),
    # creation
    *[(f"M.{n}({m})", []) for n in ("zeros", "ones") for m in ("3", "(2, 3)", "size=(2,), dtype=ms.int32", "[2, 1], dtype=ms.float16")],
    *[(f"M.eye({m})", []) for m in ("3", "2, 3", "3, 2, dtype=ms.int32", "n=2, m=4, dtype=ms.float16")],
    *[(f"M.{m}.shape", []) for m in ("empty((2, 3))", "empty(2, 3)", "empty((2,), dtype=ms.int32)")],
    *[(f"M.{m}.dtype", []) for m in ("empty((2, 3))", "empty(2, dtype=ms.int32)")],
    *[(f"M.empty_like(x{m}).{n}", [I]) for m in ("", ", dtype=ms.float16") for n in ("shape", "dtype")],
    # layers
    *[(f"N.{n}()(x)", [A]) for n in ("Hardshrink", "Hardsigmoid", "Hardswish", "Identity", "ReLU", "Sigmoid", "Softshrink")],
    ("N.GLU()(x)", ["T((2, 4))"]),
    ("N.GLU(0)(x)", ["T((2, 4))"]),
    ("N.Hardshrink(1.0)(x)", [A]),
    ("N.Softshrink(lambd=0.2)(x)", [A]),
    ("N.AdaptiveMaxPool2d((3, 2))(x)", [IMAGE]),
    ("N.AdaptiveMaxPool2d(2, True)(x)", [IMAGE]),
    ("N.AdaptiveMaxPool2d(output_size=(None, 2))(x)", [IMAGE]),
    # functional
    ("F.adaptive_max_pool2d(x, (3, 2))", [IMAGE]),
    ("F.adaptive_max_pool2d(x, 2, return_indices=True)", [IMAGE]),
    *[(f"F.binary_cross_entropy(x, y{m})", ["Tensor(np.abs(ramp((2, 3))) * 0.3 + 0.1)", "Tensor((ramp((2, 3), 2.0) > 0).astype(np.float32))"]) for m in ("", ", reduction='sum'", ", reduction='none'")],
    (f"F.binary_cross_entropy(x, y, {POSITIVE})", ["Tensor(np.abs(ramp((2, 3))) * 0.3 + 0.1)", "Tensor((ramp((2, 3), 2.0) > 0).astype(np.float32))"]),
    ("F.flatten(x)", [CUBE]),
    ("F.flatten(x, 1)", [CUBE]),
    ("F.flatten(x, start_dim=0, end_dim=1)", [CUBE]),
    ("F.glu(x)", ["T((2, 4))"]),
    ("F.glu(x, dim=0)", ["T((2, 4))"]),
    *[(f"F.grid_sample(x, y{m})", ["T((1, 2, 4, 4))", "Tensor(ramp((1, 3, 2, 2)) * 0.5)"]) for m in ("", ", align_corners=True", ", mode='nearest'", ", padding_mode='border'")],
    ("F.group_norm(x, 2)", [IMAGE]),
    ("F.group_norm(x, 2, y, z, 0.001)", [IMAGE, "T((4,), 1.0)", "T((4,), 2.0)"]),
    *[(f"F.{n}(x)", [a]) for n in ("hardshrink", "hardsigmoid", "hardswish", "relu", "sigmoid", "silu", "softshrink", "tanh") for a in (A, H)],
    ("F.relu(x)", [I]),
    ("F.hardshrink(x, 0.7)", [A]),
    ("F.softshrink(x, lambd=0.7)", [A]),
    ("F.linear(x, y)", [A, "T((4, 3))"]),
    ("F.linear(x, y, z)", [A, "T((4, 3))", "T((4,))"]),
    ("F.linear(x, y, bias=z)", [CUBE, "T((5, 4))", "T((5,))"]),
    ("F.linear(x, y)", [C, "T((4, 3))"]),
    ("F.prelu(x, y)", ["T((2, 3, 2))", C]),
    ("F.prelu(x, y)", [A, "Tensor(np.array([0.3], np.float32))"]),
    *[(f"F.softmax({m})", [CUBE]) for m in ("x, 1", "x, dim=-1", "x", "x, 0, dtype=ms.float64")],
    ("F.softmax(x)", [A]),
    ("F.softmax(x)", [C]),
    ("F.softmax(x, dim=1)", [H]),
]


def linear_layer(ms: Any) -> Any:
    mint = ms.mint
    net = mint.nn.Linear(3, 4, weight_init="ones", bias_init="zeros")
    plain = mint.nn.Linear(3, 2, bias=False, weight_init=ms.Tensor(ramp((2, 3))))
    x = ms.Tensor(ramp((2, 3)))
    return [str(net), str(plain), [str(p) for p in net.get_parameters()], gradients(ms, net, [x]), gradients(ms, plain, [x])]


def printed_layers(ms: Any) -> Any:
    n = ms.mint.nn
    return [str(c) for c in (n.ReLU(), n.Sigmoid(), n.GLU(1), n.Hardshrink(0.3), n.Hardsigmoid(), n.Hardswish(), n.Softshrink(), n.Identity(), n.AdaptiveMaxPool2d(2))]


def programs() -> dict[str, Any]:
    return programs_of(CALLS) | {f.__name__: f for f in (linear_layer, printed_layers)}
