"""Programs that run under graphcell and under the real MindSpore alike, and what MindSpore printed and computed for them.

A program module in tests/programs/ holds `programs() -> dict[name, function]`; each function takes the module `mindspore` (or graphcell)
and returns strings, numbers, Tensors, and nested lists, tuples and dicts of them. `python tests/recording.py layers` under an
interpreter with MindSpore 2.10 writes programs/layers.json; the tests run the same programs here and compare.
"""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

PROGRAMS = Path(__file__).parent / "programs"
Program = Callable[[Any], Any]


# -- what programs are made of ---------------------------------------------------------------------------------------------
def ramp(shape: tuple[int, ...], start: float = 0.0) -> Any:
    """Float32 numbers between -2 and 2, all different, the same everywhere."""
    count = int(np.prod(shape))
    return (np.round(np.sin(np.arange(count) * 1.7 + start) * 2.0, 3) + np.arange(count) % 7 * 1e-4).astype(np.float32).reshape(shape)


def scope(ms: Any) -> dict[str, Any]:
    """The names that programs use which are written as expressions: `T(shape)` is a Tensor of a ramp, `P(shape)` a Parameter of one."""

    def tensor(shape: Any, start: float = 0.0) -> Any:
        return ms.Tensor(ramp(shape, start))

    def parameter(shape: Any, start: float = 0.0, positive: bool = False) -> Any:
        values = ramp(shape, start)
        return ms.Parameter(ms.Tensor(np.abs(values) + 0.5 if positive else values), name=f"p{start}")

    return {"ms": ms, "ops": ms.ops, "nn": ms.nn, "Tensor": ms.Tensor, "np": np, "ramp": ramp, "T": tensor, "P": parameter}


def module_first(function: Callable[..., Any], *args: Any) -> Any:
    """`function` of the module, which is the last argument, and then the others: what `functools.partial` makes programs of."""
    *given, ms = args
    return function(ms, *given)


def fill(ms: Any, net: Any) -> None:
    """Gives every float Parameter values that depend on its name and shape only; variances stay positive."""
    for p in net.get_parameters():
        if not str(p.dtype).startswith(("Float", "BFloat")):
            continue
        values = ramp(p.shape, sum(map(ord, p.name)) % 11) * 0.5
        p.set_data(ms.Tensor(np.abs(values) + 0.5 if "variance" in p.name else values, p.dtype))


def caught(action: Callable[[], Any]) -> Any:
    """What `action` returns, or the exception it raises."""
    try:
        return action()
    except Exception as e:
        return e


def said(action: Callable[[], Any]) -> str:
    """What `action` returns, as text, or the builtin class and the first line of what it raises; without the name of the package."""
    result = caught(action)
    if isinstance(result, BaseException):
        builtin = next(c.__name__ for c in type(result).__mro__ if c.__module__ == "builtins")
        text = str(result.args[0]) if isinstance(result, KeyError) and result.args else str(result)
        result = f"{builtin}: {text.split(chr(10), 1)[0]}"
    return str(result).replace("graphcell", "mindspore")


def parameters(net: Any) -> list[str]:
    """The printed Parameters of a Cell."""
    return [str(p) for p in net.get_parameters()]


def gradients(ms: Any, net: Any, inputs: list[Any]) -> dict[str, Any]:
    """The outputs of a Cell or function, and the gradients of a weighted sum of them with respect to its float inputs and Parameters."""
    weights = tuple(net.trainable_params()) if isinstance(net, ms.nn.Cell) else ()

    def weighted(*args: Any) -> Any:
        outputs = net(*args)
        total = 0.0
        for k, y in enumerate(outputs if isinstance(outputs, (tuple, list)) else (outputs,)):
            if isinstance(y, ms.Tensor) and str(y.dtype).startswith(("Float", "BFloat")):
                total = total + (y.astype(ms.float32) * ms.Tensor(ramp(y.shape, 5.0 + k))).sum()
        return total, outputs

    float_inputs = tuple(k for k, x in enumerate(inputs) if isinstance(x, ms.Tensor) and str(x.dtype).startswith(("Float", "BFloat")))
    if not float_inputs and not weights:
        return {"outputs": net(*inputs)}
    step = ms.value_and_grad(weighted, float_inputs or None, weights or None, has_aux=True)
    (_, outputs), found = step(*inputs)
    if float_inputs and weights:
        return {"outputs": outputs, "inputs": found[0], "weights": dict(zip([w.name for w in weights], found[1]))}
    if weights:
        return {"outputs": outputs, "weights": dict(zip([w.name for w in weights], found))}
    return {"outputs": outputs, "inputs": found}


def after_steps(ms: Any, optimizer: Any, count: int, shown: tuple[int, ...]) -> list[list[Any]]:
    """What `count` steps of an optimizer with given gradients make of its Parameters: their values after each step of `shown`."""
    after = []
    for k in range(count):
        optimizer(tuple(ms.Tensor(ramp(p.shape, 3.0 + k)) for p in optimizer.parameters))
        if k in shown:
            after.append([p.value() for p in optimizer.parameters])
    return after


# -- results as JSON -------------------------------------------------------------------------------------------------------
def encode(x: Any) -> Any:
    """A result as JSON values. Tensors become {"tensor": dtype, "shape": …, "values": …}, exceptions {"raises": …, "message": …}."""
    if isinstance(x, BaseException):
        builtin = next(c.__name__ for c in type(x).__mro__ if c.__module__ == "builtins")
        return {"raises": builtin, "message": str(x).split("\n", 1)[0]}
    if isinstance(x, dict):
        return {str(k): encode(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [encode(v) for v in x]
    if x is None or isinstance(x, (str, bool, int)):
        return x
    if isinstance(x, float):
        return {"tensor": "float", "shape": [], "values": [_number(x)]}
    if hasattr(x, "asnumpy"):
        array = x.asnumpy() if "BFloat16" not in str(x.dtype) else x.astype("float32").asnumpy()
        return {"tensor": str(x.dtype), "shape": list(array.shape), "values": [_number(v) for v in array.reshape(-1).tolist()]}
    if isinstance(x, np.ndarray):
        return {"tensor": "numpy", "shape": list(x.shape), "values": [_number(v) for v in x.reshape(-1).tolist()]}
    return str(x)


def _number(v: Any) -> Any:
    if not isinstance(v, float):
        return v
    if not math.isfinite(v):
        return str(v)
    return float(f"{v:.8g}")


def differences(want: Any, got: Any, rtol: float = 2e-5, atol: float = 2e-6, path: str = "") -> list[str]:
    """Where two encoded results differ. Of exceptions the builtin class must agree."""
    if isinstance(want, dict) and isinstance(got, dict):
        if "raises" in want:
            same = "raises" in got and want["raises"] == got["raises"]
            return [] if same else [f"{path}: want {want['raises']}({want['message']!r}), got {_short(got)}"]
        if "tensor" in want and "tensor" in got:
            return _array_differences(want, got, rtol, atol, path)
        if list(want) != list(got):
            return [f"{path}: want keys {list(want)}, got {_short(got) if 'raises' in got else list(got)}"]
        return [d for k in want for d in differences(want[k], got[k], rtol, atol, f"{path}.{k}")]
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        return [d for k, (a, b) in enumerate(zip(want, got)) for d in differences(a, b, rtol, atol, f"{path}[{k}]")]
    return [] if type(want) is type(got) and want == got else [f"{path}: want {_short(want)}, got {_short(got)}"]


def _array_differences(want: dict[str, Any], got: dict[str, Any], rtol: float, atol: float, path: str) -> list[str]:
    if (want["tensor"], want["shape"]) != (got["tensor"], got["shape"]):
        return [f"{path}: want {want['tensor']}{want['shape']}, got {got['tensor']}{got['shape']}"]
    if want["tensor"] in ("Float16", "BFloat16"):
        rtol, atol = max(rtol, 1e-2), max(atol, 1e-3)
    a, b = (np.array([float(v) for v in x["values"]]) for x in (want, got))
    scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    if np.allclose(b, a, rtol=rtol, atol=atol + rtol * scale, equal_nan=True):
        return []
    worst = int(np.nanargmax(np.abs(a - b))) if np.isfinite(a - b).any() else 0
    return [f"{path}: values differ, at {worst} want {a[worst]!r}, got {b[worst]!r}; want {a[:8]} got {b[:8]}"]


def _short(x: Any) -> str:
    text = repr(x)
    return text if len(text) < 600 else text[:600] + "…"


# -- running ---------------------------------------------------------------------------------------------------------------
@lru_cache
def load(name: str) -> dict[str, Program]:
    """The programs of tests/programs/`name`.py."""
    spec = importlib.util.spec_from_file_location(f"programs_{name}", PROGRAMS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    programs: dict[str, Program] = module.programs()
    return programs


@lru_cache
def recorded(name: str) -> dict[str, Any]:
    """What MindSpore gave for them."""
    table: dict[str, Any] = json.loads((PROGRAMS / f"{name}.json").read_text())
    return table


def run(program: Program, ms: Any) -> Any:
    """The encoded result of a program, which may be an exception."""
    return encode(caught(lambda: program(ms)))


def check(name: str, key: str, mode: int, tolerance: float = 2e-5) -> None:
    """Asserts that the program `key` of tests/programs/`name`.py gives here what it gave under MindSpore."""
    import graphcell

    graphcell.set_seed(1)
    graphcell.set_context(mode=mode)
    found = differences(recorded(name)[key], run(load(name)[key], graphcell), tolerance)
    assert not found, "\n".join(found)


def _raises(x: Any) -> bool:
    """Whether an encoded result is an exception, or holds one."""
    if isinstance(x, dict):
        return "raises" in x or any(map(_raises, x.values()))
    return isinstance(x, list) and any(map(_raises, x))


def _record(name: str) -> None:
    """Of a module that has `MISTAKEN` only those programs that run as a whole, and none whose name begins so."""
    import mindspore as ms  # type: ignore[import-not-found]

    sys.modules.setdefault("tests.recording", sys.modules["__main__"])
    ms.set_context(pynative_synchronize=True)
    results = {}
    for key, program in load(name).items():
        ms.set_seed(1)
        results[key] = run(program, ms)
        if isinstance(results[key], dict) and "raises" in results[key]:
            print(f"{key}: {results[key]['raises']}: {results[key]['message']}")
    if (mistaken := getattr(sys.modules[f"programs_{name}"], "MISTAKEN", None)) is not None:
        results = {k: v for k, v in results.items() if not _raises(v) and not k.startswith(mistaken)}
    lines = [f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in results.items()]
    (PROGRAMS / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        _record(argument)
