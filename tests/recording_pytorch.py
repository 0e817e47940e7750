"""What PyTorch gives for programs of mint for which MindSpore has no kernel on the CPU: mint has PyTorch's functions under MindSpore's names.

`python tests/recording_pytorch.py mint_functions mint_network` under an interpreter with PyTorch 2 writes programs/<name>_pytorch.json: of the
programs of tests/programs/<name>.py those that <name>.json does not have. What PyTorch does not know either is left out, and printed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.recording import PROGRAMS, encode, load, ramp

_DTYPES = {
    "torch.float16": "Float16", "torch.float32": "Float32", "torch.float64": "Float64", "torch.int32": "Int32", "torch.int64": "Int64", "torch.bool": "Bool",
    "torch.complex64": "Complex64",
}  # fmt: skip


class _Plain:
    """An array as `encode` reads it."""

    def __init__(self, x: Any):
        self.dtype, self._array = _DTYPES[str(x.dtype)], x.detach().numpy()

    def asnumpy(self) -> Any:
        return self._array


def _scope() -> dict[str, Any]:
    import torch  # type: ignore[import-not-found]

    def tensor(x: Any) -> Any:
        return torch.tensor(np.asarray(x) if not isinstance(x, float) else np.float32(x))

    return {
        "ms": torch, "M": torch, "N": torch.nn, "F": torch.nn.functional, "Tensor": tensor, "np": np, "ramp": ramp, "T": lambda shape, start=0.0: torch.tensor(ramp(shape, start)),
    }  # fmt: skip


def _plain(x: Any) -> Any:
    import torch

    if isinstance(x, torch.Tensor):
        return _Plain(x)
    if isinstance(x, torch.dtype):
        return _DTYPES[str(x)]
    if isinstance(x, torch.Size):
        return str(tuple(x))
    return [_plain(v) for v in x] if isinstance(x, (list, tuple)) else x


def _gradients(outputs: Any, wanted: list[Any]) -> list[Any]:
    """Those of the same weighted sum as in `recording.gradients`."""
    import torch

    total: Any = 0.0
    for k, y in enumerate(outputs if isinstance(outputs, (list, tuple)) else [outputs]):
        if isinstance(y, torch.Tensor) and y.is_floating_point() and y.requires_grad:
            total = total + (y.float() * torch.tensor(ramp(tuple(y.shape), 5.0 + k))).sum()
    found = torch.autograd.grad(total, wanted, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)]


def _inputs(inputs: list[str]) -> tuple[list[Any], list[Any]]:
    import torch

    values = [eval(x, _scope()) for x in inputs]
    floats = [x.requires_grad_() for x in values if isinstance(x, torch.Tensor) and x.is_floating_point()]
    return values, floats


def _call(expression: str, inputs: list[str]) -> Any:
    import torch

    values, floats = _inputs(inputs)
    result = eval(expression, {**_scope(), **dict(zip("xyzuv", values, strict=False))})
    outputs = result if isinstance(result, (list, tuple)) and not isinstance(result, torch.Size) else [result]
    if not any(isinstance(y, torch.Tensor) for y in outputs):
        return {"result": str(_plain(result))}
    if not any(isinstance(y, torch.Tensor) and y.is_floating_point() for y in outputs) or not floats:
        return {"result": _plain(result)}
    if not any(isinstance(y, torch.Tensor) and y.requires_grad for y in outputs):
        return {"result": _plain(result), "gradients": _several([torch.zeros_like(x) for x in floats])}
    return {"result": _plain(result), "gradients": _several(_gradients(outputs, floats))}


def _several(found: list[Any]) -> Any:
    return _plain(found[0] if len(found) == 1 else found)


def _layer(expression: str, inputs: list[str]) -> Any:
    import torch

    values, floats = _inputs(inputs)
    net = eval(expression, _scope())
    given = {n for n, _ in net.named_buffers() if not n.startswith("running")}
    for name, p in net.state_dict().items():
        if p.is_floating_point() and name not in given:
            numbers = ramp(tuple(p.shape), sum(map(ord, name)) % 11) * 0.5
            p.copy_(torch.tensor(np.abs(numbers) + 0.5 if "var" in name else numbers))
    trained = net.train()(*values)
    found = _gradients(trained, floats + list(net.parameters()))
    weights = dict(zip([n for n, _ in net.named_parameters()], map(_plain, found[len(floats) :]), strict=True))
    state = {n: _Plain(b.clone()) for n, b in net.named_buffers() if n not in {"weight", "pos_weight"}}
    trained_part: dict[str, Any] = {"outputs": _plain(trained)}
    if floats and weights:
        trained_part |= {"inputs": _several(found[: len(floats)]), "weights": weights}
    elif weights:
        trained_part |= {"weights": weights}
    else:
        trained_part |= {"inputs": _several(found[: len(floats)])}
    return {"trained": trained_part, "state": state, "evaluated": _plain(net.eval()(*values))}


def _record(name: str) -> None:
    has = json.loads((PROGRAMS / f"{name}.json").read_text())
    lines = []
    for key, program in load(name).items():
        if key in has:
            continue
        run = _layer if program.func.__name__ == "layer_program" else _call  # type: ignore[attr-defined]
        try:
            found = encode(run(*program.args))  # type: ignore[attr-defined]
        except Exception as e:
            print(f"{key}: {type(e).__name__}: {str(e)[:150]}")
            continue
        lines.append(f"{json.dumps(key)}: {json.dumps(found, separators=(',', ':'))}")
    (PROGRAMS / f"{name}_pytorch.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        _record(argument)
