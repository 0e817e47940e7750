"""GFLOP/s of the native matmul and convolutions on one thread, beside numpy and PyTorch in the same run.

    python benchmarks/contractions.py [--torch path/to/python] [--only text]

Each case is timed in turns (ours, numpy, torch, ours, ...), the best of all turns counts: a shared machine
can halve every figure at once, so compare the columns of a line. "hot" leaves out the stage that packs the
weights, which a caller with constant weights runs once. Pin the process to a core (`taskset -c 0`) for steady
figures.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from side_by_side import Torch, shortest

from graphcell.codegen.llvm.contraction import Plan
from graphcell.codegen.llvm.convolution import emit_convolution, emit_input_gradient
from graphcell.codegen.llvm.convolution_weights import emit_weights_gradient
from graphcell.codegen.llvm.correlation import ConvSpec
from graphcell.codegen.llvm.matmul import MatmulSpec, dense_matmul, emit_matmul
from graphcell.codegen.llvm.target import Target, compile_object, host, load_object
from graphcell.codegen.llvm.text import I64, PTR, VOID, FunctionBuilder, Module, i64

Array = NDArray[np.float32]
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
SECONDS = 0.15  # of one turn
TURNS = 3

TORCH = """
grad_input, grad_weight = torch.nn.grad.conv2d_input, torch.nn.grad.conv2d_weight
def program(case):
    if case["op"] == "matmul":
        lead = case["batch"]
        a = torch.randn(*lead, *([case["k"], case["m"]] if case["ta"] else [case["m"], case["k"]]))
        right = [case["n"], case["k"]] if case["tb"] else [case["k"], case["n"]]
        b = torch.randn(*(lead if case["batched_b"] else []), *right)
        a, b = a.mT if case["ta"] else a, b.mT if case["tb"] else b
        return lambda: torch.matmul(a, b)
    last = torch.channels_last
    x = torch.randn(case["n"], case["c"], case["h"], case["w"]).to(memory_format=last)
    w = torch.randn(case["k"], case["c"] // case["groups"], case["kh"], case["kw"]).to(memory_format=last)
    args = (case["stride"], case["padding"], case["dilation"], case["groups"])
    y = torch.nn.functional.conv2d(x, w, None, *args)
    if case["op"] == "forward":
        return lambda: torch.nn.functional.conv2d(x, w, None, *args)
    if case["op"] == "input":
        return lambda: grad_input(x.shape, w, y, *args)
    return lambda: grad_weight(x, w.shape, y, *args)
"""


@dataclass
class Native:
    """A compiled plan with buffers; `run` repeats all stages, `hot` those that are not weight packing."""

    plan: Plan
    compile_seconds: float
    _function: Any
    _pointers: list[int]
    _keep: list[Any]

    def best(self, hot: bool) -> float:
        """Seconds of one execution: the best of many, a few repetitions each."""
        repeat = 1
        while (elapsed := self._time(repeat, hot)) < 2e-5:
            repeat *= 4
        best, stop = elapsed / repeat, time.perf_counter() + SECONDS
        while time.perf_counter() < stop:
            best = min(best, self._time(repeat, hot) / repeat)
        return best

    def _time(self, repeat: int, hot: bool) -> float:
        start = time.perf_counter()
        self._function(*self._pointers, repeat, int(hot))
        return time.perf_counter() - start


def native(emit: Callable[[Module, Target], Plan], arrays: dict[str, Array]) -> Native:
    """Compiles a plan and a function that repeats it."""
    start = time.perf_counter()
    target, module = host(), Module()
    plan = emit(module, target)
    names = [*arrays, *(name for name, _ in plan.shared), *(["scratch"] if plan.scratch_bytes else [])]
    b = FunctionBuilder(
        module, "repeat", [*((f"p.{n}", PTR) for n in names), ("count", I64), ("hot", I64)], internal=False
    )
    with b.loop(0, b.args["count"]):
        for stage in plan.stages:
            args = [b.args[f"p.{n}"] for n in stage.buffers]
            if stage.buffers[-1] == "packed":
                with b.if_then(b.icmp("eq", b.args["hot"], i64(0))):
                    b.call(stage.function, VOID, *args, i64(0), i64(stage.blocks))
            else:
                b.call(stage.function, VOID, *args, i64(0), i64(stage.blocks))
    b.finish()
    library = load_object(compile_object(str(module), target))
    address = library.address("repeat")
    seconds = time.perf_counter() - start
    buffers = {name: aligned(array.nbytes) for name, array in arrays.items()}
    for name, array in arrays.items():
        buffers[name].view(np.float32)[: array.size] = array.ravel()
    buffers |= {name: aligned(size) for name, size in plan.shared}
    if plan.scratch_bytes:
        buffers["scratch"] = aligned(plan.scratch_bytes)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(names), ctypes.c_int64, ctypes.c_int64)(
        address
    )
    run = Native(plan, seconds, function, [buffers[n].ctypes.data for n in names], [buffers, library])
    run._time(1, False)
    return run


def aligned(size: int) -> NDArray[np.uint8]:
    raw = np.zeros(size + 4096, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


@dataclass(frozen=True)
class MatmulCase:
    label: str
    spec: MatmulSpec
    transpose_a: bool = False
    transpose_b: bool = False

    @property
    def flops(self) -> int:
        return self.spec.flops

    def arrays(self) -> dict[str, Array]:
        rng, s = np.random.default_rng(0), self.spec
        sizes = {"a": (s.m, s.k), "b": (s.k, s.n), "c": (s.m, s.n)}
        return {n: rng.standard_normal((*s.batch, *shape), np.float32) for n, shape in sizes.items()}

    def native(self, arrays: dict[str, Array]) -> Native:
        return native(lambda module, target: emit_matmul(module, "matmul", self.spec, target), arrays)

    def numpy(self, arrays: dict[str, Array]) -> Callable[[], Any]:
        s = self.spec
        a = arrays["a"].reshape(*s.batch, s.k, s.m).swapaxes(-1, -2) if self.transpose_a else arrays["a"]
        b = arrays["b"].reshape(*s.batch, s.n, s.k).swapaxes(-1, -2) if self.transpose_b else arrays["b"]
        out = np.empty((*s.batch, s.m, s.n), np.float32)
        return lambda: np.matmul(a, b, out=out)

    def torch(self) -> dict[str, Any]:
        s = self.spec
        return {
            "op": "matmul",
            "m": s.m,
            "n": s.n,
            "k": s.k,
            "batch": s.batch,
            "batched_b": any(s.b.batch),
            "ta": self.transpose_a,
            "tb": self.transpose_b,
        }


@dataclass(frozen=True)
class ConvCase:
    label: str
    spec: ConvSpec
    op: str = "forward"

    @property
    def flops(self) -> int:
        return self.spec.flops

    def arrays(self) -> dict[str, Array]:
        rng, s = np.random.default_rng(0), self.spec
        x = rng.standard_normal((s.n, s.h, s.w, s.c), np.float32)
        y = rng.standard_normal((s.n, s.oh, s.ow, s.k), np.float32)
        w = rng.standard_normal((s.k, s.c // s.groups, s.kh, s.kw), np.float32)
        return {
            "forward": {"x": x, "w": w, "y": y},
            "input": {"dy": y, "w": w, "dx": x},
            "weights": {"x": x, "dy": y, "dw": w},
        }[self.op]

    def native(self, arrays: dict[str, Array]) -> Native:
        emit = {"forward": emit_convolution, "input": emit_input_gradient, "weights": emit_weights_gradient}[
            self.op
        ]
        return native(lambda module, target: emit(module, "conv", self.spec, target), arrays)

    def numpy(self, arrays: dict[str, Array]) -> None:
        return None

    def torch(self) -> dict[str, Any]:
        s = self.spec
        return {
            "op": self.op,
            "n": s.n,
            "h": s.h,
            "w": s.w,
            "c": s.c,
            "k": s.k,
            "kh": s.kh,
            "kw": s.kw,
            "stride": s.stride,
            "padding": (s.padding[0], s.padding[2]),
            "dilation": s.dilation,
            "groups": s.groups,
        }


def matmul(
    label: str, m: int, n: int, k: int, batch: tuple[int, ...] = (), ta: bool = False, tb: bool = False
) -> MatmulCase:
    flags = ("T" if ta else "N") + ("T" if tb else "N")
    spec = dense_matmul(m, n, k, batch=batch, transpose_a=ta, transpose_b=tb)
    name = f"{label} {'x'.join(map(str, batch)) + ' x ' if batch else ''}{m}x{n}x{k} {flags}"
    return MatmulCase(name, spec, ta, tb)


def convolutions(
    label: str,
    n: int,
    size: int,
    c: int,
    k: int,
    taps: int,
    stride: int = 1,
    pad: int | None = None,
    groups: int = 1,
    ops: tuple[str, ...] = ("forward", "input", "weights"),
) -> Iterator[ConvCase]:
    pad = taps // 2 if pad is None else pad
    spec = ConvSpec(n, size, size, c, k, taps, taps, (stride, stride), (pad,) * 4, groups=groups)
    name = f"{label} {n}x{size}x{size}x{c}->{k} {taps}x{taps}" + (f" s{stride}" if stride > 1 else "")
    yield from (ConvCase(f"{name} {op}", spec, op) for op in ops)


def cases() -> Iterator[MatmulCase | ConvCase]:
    for size in (512, 768, 1024, 1536):
        yield matmul("square", size, size, size)
    yield matmul("square", 1024, 1024, 1024, tb=True)
    yield matmul("square", 1024, 1024, 1024, ta=True)
    for ta, tb, m, n, k in (
        (False, True, 256, 1024, 784),
        (False, False, 256, 784, 1024),
        (True, False, 1024, 784, 256),
    ):
        yield matmul("mlp", m, n, k, ta=ta, tb=tb)
    yield matmul("mlp", 256, 10, 1024, tb=True)
    for ta, tb, m, n, k in (
        (False, False, 1024, 768, 256),
        (False, True, 1024, 768, 256),
        (True, False, 256, 768, 1024),
        (False, False, 1024, 256, 1024),
    ):
        yield matmul("transformer", m, n, k, ta=ta, tb=tb)
    for ta, tb, m, n, k in (
        (False, False, 128, 128, 32),
        (False, True, 128, 128, 32),
        (False, False, 128, 32, 128),
        (True, False, 128, 32, 128),
    ):
        yield matmul("attention", m, n, k, (64,), ta, tb)
    yield matmul("lenet", 64, 120, 400, tb=True)
    for tb, n, k in (
        (True, 16, 16),
        (False, 16, 16),
        (True, 1024, 784),
        (False, 1024, 784),
        (True, 10, 1024),
    ):
        yield matmul("one row", 1, n, k, tb=tb)
    for m in (8, 16, 32, 64):
        for n, k in ((1024, 256), (1024, 1024), (2048, 2048)):
            yield matmul("few rows", m, n, k)
        yield matmul("few rows", m, 300, 784, tb=True)
    yield matmul("column", 1024, 1, 1024)
    yield matmul("tall", 100_000, 16, 16)
    yield matmul("strip", 256, 32, 8192, ta=True)
    yield matmul("strip", 32, 512, 4096)
    yield matmul("narrow", 350, 4, 350)
    yield matmul("narrow", 1000, 7, 1000)
    yield matmul("narrow", 512, 3, 151, tb=True)
    yield matmul("narrow", 512, 10, 512, tb=True)
    for m, n, k, ta in ((40, 40, 257, True), (40, 72, 512, True), (64, 56, 1000, True), (100, 40, 1000, True), (512, 56, 2000, False)):
        yield matmul("half a vector", m, n, k, ta=ta)
    for size, c in ((32, 64), (16, 128), (8, 256), (4, 512)):
        yield from convolutions("resnet18", 16, size, c, c, 3)
    yield from convolutions("resnet18", 16, 32, 3, 64, 3, ops=("forward", "weights"))
    yield from convolutions("resnet18", 16, 32, 64, 128, 3, 2)
    yield from convolutions("resnet18", 16, 32, 64, 128, 1, 2)
    for size, c in ((32, 64), (16, 128), (8, 256), (4, 512)):
        yield from convolutions("resnet18", 1, size, c, c, 3, ops=("forward",))
    yield from convolutions("lenet", 64, 28, 1, 6, 5, ops=("forward", "weights"))
    yield from convolutions("lenet", 64, 14, 6, 16, 5, pad=0)
    yield from convolutions("imagenet", 1, 224, 3, 64, 7, 2, pad=3, ops=("forward", "weights"))
    yield from convolutions("pointwise", 4, 28, 256, 64, 1)
    yield from convolutions("depthwise", 4, 28, 256, 256, 3, groups=256)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--torch", help="a Python interpreter that has PyTorch")
    parser.add_argument("--only", default="", help="run the cases whose name contains this text")
    options = parser.parse_args()
    if any(os.environ.get(name) != "1" for name in THREAD_VARIABLES):  # numpy reads them when it is imported
        os.execve(
            sys.executable, [sys.executable, *sys.argv], os.environ | dict.fromkeys(THREAD_VARIABLES, "1")
        )
    with Torch(options.torch, TORCH) if options.torch else contextlib.nullcontext() as torch:
        print(f"{'GFLOP/s':52} {'ours':>7} {'hot':>7} {'numpy':>7} {'torch':>7} {'us':>9} {'compile ms':>10}")
        for case in cases():
            if options.only in case.label:
                print(report(case, torch), flush=True)


def report(case: MatmulCase | ConvCase, torch: Torch | None) -> str:
    arrays = case.arrays()
    ours = case.native(arrays)
    reference = case.numpy(arrays)
    seconds: dict[str, list[float]] = {"ours": [], "hot": [], "numpy": [], "torch": []}
    for _ in range(TURNS):
        seconds["ours"].append(ours.best(False))
        seconds["hot"].append(ours.best(True))
        if reference is not None:
            seconds["numpy"].append(shortest(reference, SECONDS))
        if torch is not None:
            seconds["torch"].append(torch.time(case.torch(), SECONDS))
    rates = " ".join(f"{case.flops / min(s) / 1e9:7.1f}" if s else f"{'':7}" for s in seconds.values())
    return f"{case.label:52} {rates} {min(seconds['ours']) * 1e6:9.2f} {ours.compile_seconds * 1e3:10.0f}"


if __name__ == "__main__":
    main()
