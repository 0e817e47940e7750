"""Runs emitter functions on numpy arrays, for the tests of codegen/llvm."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from graphcell.codegen.llvm.target import Library, Target, compile_object, host, load_object
from graphcell.codegen.llvm.text import I64, PTR, FunctionBuilder, LType, Val

NUMPY_TYPES = {
    "half": np.dtype(np.float16),
    "bfloat": np.dtype(ml_dtypes.bfloat16),
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "i1": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
}
Emit = Callable[..., Val | tuple[Val, ...]]


@dataclass
class Elementwise:
    """A compiled loop `outputs[i] = emit(b, *inputs[i])`; the length must be a multiple of the lanes."""

    library: Library
    outputs: tuple[str, ...]

    def __call__(self, *inputs: NDArray[Any]) -> Any:
        """One array for each result: alone, or as a tuple."""
        arrays = [np.ascontiguousarray(x) for x in inputs]
        results = [np.empty(arrays[0].shape, NUMPY_TYPES[kind]) for kind in self.outputs]
        pointers = [x.ctypes.data for x in (*arrays, *results)]
        function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers), ctypes.c_int64)(
            self.library.address("kernel")
        )
        function(*pointers, arrays[0].size)
        return results[0] if len(results) == 1 else tuple(results)


def text_of(emit: Emit, inputs: Sequence[str], lanes: int, target: Target | None = None) -> tuple[str, tuple[str, ...]]:
    """The module that runs `emit` on `lanes` elements (0: scalars) of the kinds `inputs` at a time, and the
    kinds that come out.
    """
    chosen = replace(target or host(), flushes=False)  # the functions are called as they are, not by a program that flushes
    module = chosen.module()
    results: list[Val] = []
    # The result kinds are known after a first, thrown-away emission.
    probe = FunctionBuilder(
        chosen.module(), "probe", [(f"x{k}", LType(kind, lanes)) for k, kind in enumerate(inputs)]
    )
    produced = emit(probe, *probe.args.values())
    kinds = tuple(v.type.kind for v in (produced if isinstance(produced, tuple) else (produced,)))
    names = [f"x{k}" for k in range(len(inputs))] + [f"y{k}" for k in range(len(kinds))]
    b = FunctionBuilder(
        module,
        "kernel",
        [*((n, PTR) for n in names), ("n", I64)],
        internal=False,
        param_attributes={n: "noalias" for n in names},
    )
    with b.loop(0, b.args["n"], max(lanes, 1)) as loop:
        values = []
        for k, kind in enumerate(inputs):
            t = LType(kind, lanes)
            values.append(b.load(b.gep(b.args[f"x{k}"], loop.index, LType(kind)), t))
        produced = emit(b, *values)
        results = list(produced) if isinstance(produced, tuple) else [produced]
        for k, value in enumerate(results):
            b.store(value, b.gep(b.args[f"y{k}"], loop.index, value.type.with_lanes(0)))
    b.finish()
    return str(module), kinds


def build(emit: Emit, inputs: Sequence[str], lanes: int, target: Target | None = None) -> Elementwise:
    text, kinds = text_of(emit, inputs, lanes, target)
    return Elementwise(load_object(compile_object(text, target or host())), kinds)
