"""Nanoseconds an element of the emitted vector mathematics and of numpy, measured side by side in one run, on
one core.

    python benchmarks/vector_math.py             # exp tanh erf log sigmoid
    python benchmarks/vector_math.py sin pow     # or others of codegen/llvm/math.py that numpy has too

The arrays (16384 elements) stay in the second-level cache, so that the figure is that of the instructions.
numpy has no erf: it is computed there by Python's, as a program without SciPy would.
"""

from __future__ import annotations

import argparse
import ctypes
import inspect
import math as standard_math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from graphcell.codegen.llvm import math
from graphcell.codegen.llvm.target import Library, compile_object, host, load_object
from graphcell.codegen.llvm.text import I64, PTR, FunctionBuilder, LType, Module

Array = np.ndarray[Any, Any]
COUNT = 16384
ROUNDS = 200
IN_A_ROW = 10
DEFAULT = ("exp", "tanh", "erf", "log", "sigmoid")
NUMPY: dict[str, Callable[..., Any]] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atan2": np.arctan2, "atanh": np.arctanh, "erf": np.vectorize(standard_math.erf), "floor_mod": np.mod,
    "erfc": np.vectorize(standard_math.erfc), "lgamma": np.vectorize(standard_math.lgamma), "pow": np.power, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "softplus": lambda x: np.logaddexp(0, x),
    "log_sigmoid": lambda x: -np.logaddexp(0, -x),
}  # fmt: skip


def compiled(name: str, kind: str, operands: int, tables: bool = True) -> Library:
    """A loop over `COUNT` elements, two vectors at a time; without the look-ups of AVX-512 if not `tables`."""
    lanes = host().lanes(kind)
    module = host().module() if tables else Module()
    pointers = [*(f"x{k}" for k in range(operands)), "y"]
    b = FunctionBuilder(
        module,
        "kernel",
        [*((p, PTR) for p in pointers), ("n", I64)],
        internal=False,
        param_attributes={p: "noalias" for p in pointers},
    )
    with b.loop(0, b.args["n"], 2 * lanes, at_least_once=True) as loop:
        for half in range(2):
            at = b.add(loop.index, b.const(half * lanes, I64))
            values = [b.load(b.gep(b.args[p], at, LType(kind)), LType(kind, lanes)) for p in pointers[:-1]]
            b.store(getattr(math, name)(b, *values), b.gep(b.args["y"], at, LType(kind)))
    b.finish()
    return load_object(compile_object(str(module), host()))


def best(run: Callable[[], Any], rounds: int) -> float:
    """The shortest time in nanoseconds an element, of some runs in a row: the clock takes its time, too."""
    run()
    times = []
    for _ in range(rounds // IN_A_ROW):
        start = time.perf_counter_ns()
        for _ in range(IN_A_ROW):
            run()
        times.append(time.perf_counter_ns() - start)
    return min(times) / (COUNT * IN_A_ROW)


def measure(name: str, kind: str) -> tuple[float, float, float, float]:
    """Emitted time, that without tables, numpy's, and the largest relative difference of the first's and the last's results."""
    rng = np.random.default_rng(0)
    parameters = inspect.signature(getattr(math, name)).parameters.values()
    operands = sum(p.default is inspect.Parameter.empty for p in parameters) - 1
    dtype = np.float32 if kind == "float" else np.float64
    positive = name in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "pow", "acosh", "cbrt", "lgamma")
    low, high = (1.0, 9.0) if positive else (-4.0, 4.0)
    low, high = (-0.99, 0.99) if name in ("asin", "acos", "atanh") else (low, high)
    xs = [rng.uniform(low, high, COUNT).astype(dtype) for _ in range(operands)]
    y: Array = np.empty(COUNT, dtype)
    want: Array = np.empty(COUNT, dtype)
    types = [ctypes.c_void_p] * (operands + 1)
    libraries = [compiled(name, kind, operands, tables) for tables in (False, True)]
    plain, function = (ctypes.CFUNCTYPE(None, *types, ctypes.c_int64)(library.address("kernel")) for library in libraries)
    addresses = [x.ctypes.data for x in (*xs, y)]
    reference = NUMPY.get(name) or getattr(np, name)
    without = best(lambda: plain(*addresses, COUNT), ROUNDS)
    ours = best(lambda: function(*addresses, COUNT), ROUNDS)
    if isinstance(reference, np.ufunc):
        theirs = best(lambda: reference(*xs, out=want), ROUNDS)
    else:
        theirs = best(lambda: reference(*xs), 10 if isinstance(reference, np.vectorize) else ROUNDS)
        want[:] = reference(*xs)
    return ours, without, theirs, float(np.max(np.abs(y - want) / np.maximum(np.abs(want), 1e-30)))


def main(names: list[str]) -> None:
    """Prints one line for each function and kind."""
    print(f"{host().cpu}, {host().vector_bytes}-byte vectors; ns an element")
    print(f"{'function':<12} {'kind':<7} {'emitted':>8} {'no table':>9} {'numpy':>9} {'ratio':>7}   largest difference")
    for name in names or DEFAULT:
        for kind in ("float", "double"):
            ours, without, theirs, difference = measure(name, kind)
            print(f"{name:<12} {kind:<7} {ours:8.3f} {without:9.3f} {theirs:9.3f} {theirs / ours:6.1f}x   {difference:.1e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="functions; the usual ones by default")
    main(parser.parse_args().names)
