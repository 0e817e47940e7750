"""Functions, layers and losses on dtypes and shapes that are not those of every day: what they give, and the gradients of what is float."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np

from tests.recording import caught, gradients, ramp

FLOATS = ("float16", "float64")
SCALAR, ONE, PAIR, BATCH = (), (1,), (2, 3), (2, 3, 2)

CASES: list[tuple[str, list[tuple[tuple[int, ...], str]]]] = []
"""Functions of x, y, …, and the shape and dtype of each."""


def _add(expression: str, *operands: tuple[tuple[int, ...], str]) -> None:
    CASES.append((expression, list(operands)))


for _name in ("abs(x)", "neg(x)", "sign(x)", "square(x)", "relu(x)", "trunc(x)", "frac(x)", "isnan(x)", "clamp(x, -1, 1)", "exp2(x)"):
    for _dtype in ("float16", "float64", "int8", "int32", "int64"):
        if (_name, _dtype) != ("sign(x)", "int8"):
            _add(f"ops.{_name}", (PAIR, _dtype))
for _name in ("exp", "tanh", "sigmoid", "erf", "log1p", "softplus", "gelu", "silu", "sqrt", "reciprocal"):
    for _dtype in FLOATS:
        _add(f"ops.{_name}(x + 2.5)", (PAIR, _dtype))
    _add(f"ops.{_name}(x + 2.5)", (SCALAR, "float32"))
    _add(f"ops.{_name}(x + 2.5)", ((0, 3), "float32"))
for _name in ("add", "sub", "mul", "div", "maximum", "equal", "less", "atan2", "xdivy", "copysign"):
    for _pair in (("float16", "float32"), ("float32", "int32"), ("float64", "float32")):
        _add(f"ops.{_name}(x, y)", (PAIR, _pair[0]), (PAIR, _pair[1]))
    _add(f"ops.{_name}(x, y)", ((2, 1), "float32"), ((3,), "float32"))
for _name in ("add", "mul", "maximum", "equal", "bitwise_and"):
    for _pair in (("uint8", "int8"), ("int32", "int64"), ("bool_", "bool_"), ("int8", "int8")):
        if "bool_" not in _pair or _name in ("equal", "bitwise_and"):
            _add(f"ops.{_name}(x, y)", (PAIR, _pair[0]), (PAIR, _pair[1]))
for _pair in (("float16", "float64"), ("int32", "float16"), ("int8", "float64")):
    _add("ops.copysign(x, y)", (PAIR, _pair[0]), (PAIR, _pair[1]))
for _name in ("sum", "nansum", "prod", "argmax", "argmin", "count_nonzero", "cumsum"):
    for _dtype in (*FLOATS, "int8", "uint8", "int32", "int64"):
        _add(f"ops.{_name}(x, 1)", (BATCH, _dtype))
for _dtype in ("int16", "uint16", "uint32", "uint64", "bool_"):
    _add("ops.sum(x)", (PAIR, _dtype))
    _add("ops.prod(x, 1)", (PAIR, _dtype))
for _index in ("[0, 1]", "[[0, 1], [1, 0]]", "[[0, 1]]", "[[0], [1]]", "[0, [1, 2]]", "[slice(0, 1), 0]", "[[True, False]]", "[None]", "[...]", "[..., 0]",
               "[ms.Tensor([0, 1]), ms.Tensor([1, 0])]", "(slice(None), [[0, 2], [1, 1]])"):  # fmt: skip
    _add(f"x[{_index}]", (BATCH, "float32"))
_add("ops.clip_by_value([x, x], 0, 1)", (PAIR, "float32"))
_add("ops.nansum(x)", (BATCH, "bool_"))
_add("ops.nansum(x, dtype=ms.float32)", (BATCH, "int8"))
for _name in ("sum(x)", "mean(x)", "prod(x)", "amax(x)", "all(x)", "var(x)", "std(x)", "norm(x)", "argmax(x)", "sum(x, -1, True)", "logsumexp(x, 0)", "flatten(x)"):
    _add(f"ops.{_name}", (ONE, "float32"))
    if _name not in ("var(x)", "norm(x)"):
        _add(f"ops.{_name}", ((1, 1), "float32"))
for _name in ("sum(x)", "mean(x)", "amax(x)", "any(x)", "argmax(x)", "flatten(x)", "sum(x, 0)", "max(x, 0)", "cumsum(x, 0)", "sort(x)"):
    _add(f"ops.{_name}", (SCALAR, "float32"))
for _name in ("sum(x, 1)", "all(x, 1)", "sum(x, 0)", "prod(x, 0)", "sort(x)", "flatten(x)", "softmax(x)", "flip(x, (0,))", "cat([x, x])", "reshape(x, (3, 0))"):
    _add(f"ops.{_name}", ((0, 3), "float32"))
for _name in ("argmax(x, None, True)", "argmin(x, None, True)"):
    _add(f"ops.{_name}", (ONE, "float32"))
    _add(f"ops.{_name}", (PAIR, "float32"))
for _shape in ((1, 3), (3, 1), (1, 1), (3,), (2, 3)):
    _add("ops.cov(x)", (_shape, "float32"))
# -- layers
for _layer in ("Dense(3, 4)", "BatchNorm1d(3)", "PReLU()", "Softmax()", "ReLU6()", "HSwish()", "GLU(0)", "Flatten()", "Dropout(p=0.0)"):
    _add(f"nn.{_layer}", (PAIR, "float16"))
for _layer in ("Flatten(0)", "Flatten(-1, 0)", "ReLU()", "PReLU()"):
    _add(f"nn.{_layer}", (SCALAR, "float32"))
_add("ops.prelu(x, y)", (PAIR, "float16"), ((3,), "float32"))
_add("ops.prelu(x, y)", (PAIR, "float32"), ((3,), "float16"))
_add("nn.LPPool1d(2, 2)", ((1, 2, 4), "int32"))
_add("nn.LPPool2d(2.0, 2)", ((1, 2, 4, 4), "int32"))
for _settings, _shape in (("1d((-1, 2))", (1, 2, 5)), ("1d((2, -3))", (2, 5)), ("2d((1, -1, -1, 2))", (1, 2, 3, 4)), ("2d(-1)", (2, 3, 4)), ("1d(-2)", (1, 2, 4)),
                          ("3d((1, -1, -1, 2, 0, -1))", (1, 2, 3, 4, 3))):  # fmt: skip
    _add(f"nn.ReplicationPad{_settings}", (_shape, "float32"))
_add("ops.pad(x, (-1, 2), mode='replicate')", ((1, 2, 5), "float32"))
_add("ops.pad(x, (-5, 0), mode='replicate')", ((1, 2, 5), "float32"))
_add("nn.ReflectionPad1d((-1, 2))", ((1, 2, 5), "float32"))
for _dtypes in (("float16", "float32"), ("float32", "float16"), ("float16", "float16"), ("float64", "float64")):
    _add("[str(y.dtype) for y in ops.LayerNorm(1, 1)(x, y, y)]", (PAIR, _dtypes[0]), ((3,), _dtypes[1]))
    _add("[str(y.dtype) for y in ops.BatchNorm()(x, y, y, y, y * y)]", (PAIR, _dtypes[0]), ((3,), _dtypes[1]))
# -- losses
for _reduction in ("mean", "sum", "none"):
    for _dtype in ("int32", "int8", "float16"):
        _add(f"nn.MSELoss('{_reduction}')", (PAIR, _dtype), (PAIR, _dtype))
        _add(f"nn.LossBase('{_reduction}').get_loss(x, 0.5)", (PAIR, _dtype))
    _add(f"nn.L1Loss('{_reduction}')", (PAIR, "int32"), (PAIR, "int32"))
    _add(f"ops.mse_loss(x, y, '{_reduction}')", (PAIR, "int8"), (PAIR, "int8"))
    _add(f"nn.MSELoss('{_reduction}')", (PAIR, "float32"), ((3,), "float32"))
    for _labels in ("[1, 2]", "[[1, 2]]", "[[1, 2], [1, 2]]"):
        _lengths = "ms.Tensor([5], ms.int32), ms.Tensor([2], ms.int32)"
        _add(f"nn.CTCLoss(reduction='{_reduction}')(ops.log_softmax(x, -1), ms.Tensor({_labels}, ms.int32), {_lengths})", ((5, 4), "float32"))
_add("ops.gaussian_nll_loss(x, y, ops.abs(z), eps=0.3, reduction='none')", (PAIR, "float32"), (PAIR, "float32"), (PAIR, "float32"))
_add("ops.gaussian_nll_loss(x, y, z - 3.0)", (PAIR, "float32"), (PAIR, "float32"), (PAIR, "float32"))


def _operand(ms: Any, shape: tuple[int, ...], dtype: str, start: float) -> Any:
    values = ramp(shape, start)
    if dtype == "bool_":
        values = values > 0
    elif "int" in dtype:
        values = np.round(np.abs(values) * 2 if dtype[0] == "u" else values * 2)
    return ms.Tensor(np.asarray(values, "bool" if dtype == "bool_" else dtype))


def _run(ms: Any, expression: str, operands: list[tuple[tuple[int, ...], str]]) -> Any:
    scope = {"ms": ms, "ops": ms.ops, "nn": ms.nn}
    names = ", ".join("xyz"[: len(operands)])
    is_layer = expression.startswith("nn.") and not {"get_loss", "CTCLoss"} & set(re.findall(r"\w+", expression))
    f = caught(lambda: eval(expression if is_layer else f"lambda {names}: {expression}", scope))
    if isinstance(f, Exception):
        return f
    inputs = [_operand(ms, shape, dtype, float(k)) for k, (shape, dtype) in enumerate(operands)]
    if is_layer:
        f.set_train()
    found = caught(lambda: f(*inputs))
    if isinstance(found, ms.Tensor) and str(found.dtype).startswith("Float") and any("float" in dtype for _, dtype in operands):
        return gradients(ms, f, inputs)
    return found


def programs() -> dict[str, Any]:
    keys = [f"{expression} of {', '.join(f'{dtype}{list(shape)}' for shape, dtype in operands)}" for expression, operands in CASES]
    return {key: partial(_run, expression=expression, operands=operands) for key, (expression, operands) in zip(keys, CASES)}
