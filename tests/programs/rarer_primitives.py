"""Rarer primitive classes that MindSpore runs on a CPU: special functions, factorizations, scatters, segments, colors, older names."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.recording import caught, gradients, module_first, scope

A = "T((2, 3))"
POSITIVE = "Tensor(np.abs(ramp((2, 3))) + 0.5)"
WIDE = "Tensor(np.abs(ramp((3, 4))) * 8.0 + 0.05)"
UNIT = "Tensor(ramp((2, 3)) * 0.2 + 0.5)"
COLORS = "Tensor(np.abs(np.sin(np.arange(36) * 1.3)).astype(np.float32).reshape(1, 3, 4, 3))"
SQUARE = "Tensor(ramp((3, 3)) + 3 * np.eye(3, dtype=np.float32))"
PIVOTS = "INT([2, 3, 3])"
PLACES = "INT([[0], [2]])"
NONZERO = "Tensor(np.abs(ramp((2, 2))) + 0.5)"
SEGMENTS = "INT([0, 0, 2, 2, 3])"
UPDATED = ["P((3, 2))", "INT([0, 2])", NONZERO]
BESSEL = ("I0", "I0e", "I1", "I1e", "J0", "J1", "K0", "K0e", "K1", "K1e", "Y0", "Y1")

CALLS: list[tuple[str, list[str]]] = [
    *[(f"ops.Bessel{n}()", [WIDE]) for n in BESSEL],
    *[(f"ops.bessel_{n.lower()}", [WIDE]) for n in BESSEL if not n.startswith("K")],
    *[(f"ops.{n}", [POSITIVE, "Tensor(np.abs(ramp((2, 3), 1.0)) + 0.2)"]) for n in ("Igamma()", "Igammac()", "igamma", "igammac")],
    ("ops.zeta", ["Tensor(np.abs(ramp((2, 3))) + 1.5)", POSITIVE]),
    ("ops.Zeta()", ["Tensor(np.abs(ramp((2, 3))) + 1.5)", POSITIVE]),
    ("ops.Betainc()", [POSITIVE, POSITIVE, UNIT]),
    # -- factorizations
    ("ops.LuSolve()", ["T((3, 2))", SQUARE, PIVOTS]),
    ("ops.lu_solve", ["T((3, 1))", SQUARE, "INT([1, 3, 3])"]),
    ("ops.LuUnpack()", [SQUARE, PIVOTS]),
    ("ops.LuUnpack()", ["T((3, 2))", "INT([2, 3])"]),
    ("ops.LuUnpack()", ["T((2, 3))", "INT([2, 2])"]),
    ("lambda a, b: ops.lu_unpack(a, b)[1:]", [SQUARE, PIVOTS]),
    ("ops.Geqrf()", ["T((3, 2), 1.0)"]),
    ("ops.geqrf", ["T((2, 3), 1.0)"]),
    ("ops.geqrf", ["T((3, 3), 4.0)"]),
    ("ops.Orgqr()", ["T((3, 2))", "T((2,))"]),
    ("ops.orgqr", ["T((4, 3))", "T((2,), 1.0)"]),
    *[(f"lambda x: ops.MatrixBandPart()(x, {low}, {up})", ["T((3, 4))"]) for low, up in ((1, 0), (0, 1), (-1, 0), (1, -1), (2, 3))],
    ("lambda a, b: ops.MatrixSolveLs()(a, b, Tensor(0.1, ms.float64))", ["T((3, 2))", "T((3, 1), 1.0)"]),
    ("ops.NuclearNorm()", [A]),
    ("ops.NuclearNorm(keepdim=True)", [A]),
    ("ops.NuclearNorm(dim=(0, 2))", ["T((2, 3, 4))"]),
    ("ops.TridiagonalMatMul()", ["T((1, 3))", "T((1, 3), 1.0)", "T((1, 3), 2.0)", "T((3, 2))"]),
    # -- scatters and segments
    *[(f"ops.TensorScatter{n}()", ["T((3, 2))", PLACES, NONZERO]) for n in ("Sub", "Mul", "Div", "Max", "Min")],
    *[(f"ops.Scatter{n}()", UPDATED) for n in ("Sub", "Mul", "Div", "Max", "Min")],
    *[(f"ops.ScatterNd{n}()", ["P((3, 2))", PLACES, NONZERO]) for n in ("Sub", "Mul", "Div", "Max", "Min")],
    *[(f"ops.Segment{n}()", ["T((5, 2))", SEGMENTS]) for n in ("Sum", "Mean", "Max", "Min", "Prod")],
    ("ops.LowerBound()", ["Tensor([[0.0, 1.0, 1.0, 2.0]])", "Tensor([[0.5, 1.0, 2.0, 3.0]])"]),
    ("ops.UpperBound()", ["Tensor([[0.0, 1.0, 1.0, 2.0]])", "Tensor([[0.5, 1.0, 2.0, 3.0]])"]),
    ("ops.UpperBound(ms.int64)", ["Tensor([[0.0, 1.0], [2.0, 3.0]])", "Tensor([[0.5], [2.5]])"]),
    ("ops.InTopK(2)", ["T((3, 4))", "INT([0, 1, 3])"]),
    ("ops.InTopK(1)", ["Tensor([[1.0, 1.0, 0.0], [2.0, 3.0, 3.0]])", "INT([1, 2])"]),
    ("lambda x: ops.NthElement()(x, 1)", [A]),
    ("lambda x: ops.NthElement(True)(x, 0)", [A]),
    ("lambda x: ops.UniqueWithPad()(x, 0)", ["INT([4, 1, 1, 2, 4])"]),
    ("lambda x, v: ops.InplaceUpdate((0, 2))(x, v)", ["T((3, 2))", "T((2, 2), 1.0)"]),
    ("lambda x, v: ops.InplaceUpdate(1)(x, v)", ["T((3, 2))", "T((1, 2), 1.0)"]),
    # -- colors
    ("ops.HSVToRGB()", [COLORS]),
    ("ops.RGBToHSV()", [COLORS]),
    ("ops.RGBToHSV()", ["Tensor([[0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])"]),
    *[(f"lambda x: ops.AdjustHue()(x, Tensor({d}))", [COLORS]) for d in (0.2, -0.7)],
    *[(f"lambda x: ops.AdjustSaturation()(x, Tensor({d}))", [COLORS]) for d in (0.5, 3.0)],
    # -- smaller ones
    ("ops.CheckValid()", ["Tensor([[0.0, 0.0, 3.0, 4.0], [-1.0, 0.0, 3.0, 4.0], [0.0, 0.0, 9.0, 4.0], [1.0, 1.0, 5.0, 3.0]])", "Tensor([5.0, 6.0, 1.0])"]),
    ("ops.ApproximateEqual(0.5)", [A, "T((2, 3), 0.2)"]),
    ("ops.Eps()", [A]),
    ("ops.Eps()", ["T((2,)).astype(ms.float16)"]),
    ("ops.Padding(4)", ["T((2, 1))"]),
    ("ops.DataFormatDimMap()", ["INT([0, 1, 2, 3, -1])"]),
    ("ops.DataFormatVecPermute('NHWC', 'NCHW')", ["INT([1, 2, 3, 4])"]),
    ("ops.DataFormatVecPermute('NCHW', 'NHWC')", ["INT([[1, 2], [3, 4], [5, 6], [7, 8]])"]),
    *[(f"ops.BatchToSpaceND([2, 2], {crops})", ["T((4, 2, 2, 3))"]) for crops in ("[[0, 0], [0, 0]]", "[[1, 0], [0, 2]]")],
    ("ops.BatchToSpaceND([1, 2], [[0, 0], [1, 0]])", ["T((4, 1, 2, 3))"]),
    ("ops.FractionalMaxPoolWithFixedKsize(2, (3, 2))", ["T((2, 1, 5, 4))", "Tensor([[[0.3, 0.6]], [[0.8, 0.1]]])"]),
    ("ops.FractionalMaxPool3DWithFixedKsize(2, (2, 2, 3))", ["T((1, 1, 4, 4, 5))", "Tensor([[[0.3, 0.6, 0.2]]])"]),
    ("ops.Real()", [A]), ("ops.Imag()", [A]), ("ops.Conj()", [A]),
    ("ops.TensorAdd()", [A, A]),
    ("ops.Gelu()", [A]),
    ("ops.FastGelu()", [A]),
    ("lambda x: ops.Pack(1)((x, x))", [A]),
    ("ops.Unpack(1)", [A]),
    ("lambda x: ops.ParallelConcat()((x, x))", ["T((1, 3))"]),
]

G = "T((2, 3), 4.0)"
SLOT = "P((2, 3), 1.0, True)"
CALLS += [
    ("ops.ApplyAdagradV2(1e-6)", ["P((2, 3))", SLOT, "0.1", G]),
    ("ops.ApplyAdagradV2(1e-3, update_slots=False)", ["P((2, 3))", SLOT, "0.1", G]),
    ("ops.ApplyAddSign()", ["P((2, 3))", "P((2, 3), 1.0)", "0.1", "0.2", "0.3", "0.4", G]),
    ("ops.ApplyPowerSign()", ["P((2, 3))", "P((2, 3), 1.0)", "0.1", "2.0", "0.3", "0.4", G]),
    ("ops.ApplyProximalGradientDescent()", ["P((2, 3))", "0.1", "0.2", "0.3", G]),
    ("ops.ApplyProximalGradientDescent()", ["P((2, 3))", "0.1", "9.0", "0.0", G]),
    ("ops.ApplyProximalAdagrad()", ["P((2, 3))", SLOT, "0.1", "0.2", "0.3", G]),
    ("ops.ApplyAdagradDA()", ["P((2, 3))", "P((2, 3), 1.0)", "P((2, 3), 2.0, True)", G, "0.1", "0.0", "0.0", "INT(2)"]),
    ("ops.ApplyAdagradDA()", ["P((2, 3))", "P((2, 3), 1.0)", "P((2, 3), 2.0, True)", G, "0.1", "0.0", "0.3", "INT(3)"]),
    ("ops.ApplyFtrl()", ["P((2, 3))", SLOT, "P((2, 3), 2.0)", G, "0.1", "0.0", "0.3", "-0.5"]),
    ("ops.ApplyFtrl()", ["P((2, 3))", SLOT, "P((2, 3), 2.0)", G, "0.1", "0.0", "0.0", "-0.3"]),
]

NOT_DIFFERENTIATED = (
    "Zeta", "zeta", "LuSolve", "lu_solve", "LuUnpack", "lu_unpack", "eqrf", "rgqr", "MatrixSolveLs", "NuclearNorm", "Scatter", "Segment", "NthElement",
    "InplaceUpdate", "HSV", "Adjust", "Eps", "Padding", "ParallelConcat", "TridiagonalMatMul", "BatchToSpaceND",
    "Fractional", "Real", "Imag", "Conj",
)  # fmt: skip
"""Calls of which MindSpore differentiates nothing, or only a part."""

ERRORS = [
    "ops.BesselI0()(INT([1]))",
    "ops.Igamma()(T((2,)), T((3,)))",
    "ops.LuUnpack(3)",
    "ops.LuSolve()(T((3,)), T((3, 3)), INT([1, 2, 3]))",
    "ops.NuclearNorm(dim=(0,))",
    "ops.NuclearNorm(keepdim=3)",
    "ops.InTopK('x')",
    "ops.HSVToRGB()(T((2, 3)))",
    "ops.RGBToHSV()(T((2, 2)))",
    "ops.MatrixBandPart()(T((3,)), 0, 0)",
    "ops.Padding(0)",
    "ops.DataFormatDimMap('x')",
    "ops.LowerBound(ms.float32)",
    "ops.NthElement(3)",
    "ops.ApproximateEqual('x')",
]


def names_of(ms: Any) -> dict[str, Any]:
    return {**scope(ms), "INT": partial(ms.Tensor, dtype=ms.int32)}


def call(ms: Any, function: str, inputs: list[str]) -> dict[str, Any]:
    """The result, the values of Parameters afterwards, and the gradients with respect to floats."""
    names = names_of(ms)
    target, values = eval(function, names), [eval(x, names) for x in inputs]
    result = target(*values)
    if any(isinstance(x, ms.Parameter) for x in values):
        after = [x.value() for x in values if isinstance(x, ms.Parameter)]
        return {"parameters": after} if "Apply" in function else {"result": result, "parameters": after}
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    if any(name in function for name in NOT_DIFFERENTIATED) or "Float" not in str(outputs[0].dtype) or "Float" not in str(values[0].dtype):
        return {"result": result}
    return {"result": result, "gradients": caught(lambda: gradients(ms, target, values)["inputs"])}


def error(ms: Any, expression: str) -> Any:
    return eval(expression, names_of(ms))


def programs() -> dict[str, Any]:
    found: dict[str, Any] = {f"{f} of {', '.join(x)}": partial(module_first, call, f, x) for f, x in CALLS}
    return found | {f"error {e}": partial(module_first, error, e) for e in ERRORS}
