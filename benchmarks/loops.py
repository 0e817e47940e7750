"""Nanoseconds an element and GB/s of compiled loop nests, beside numpy (and PyTorch) in the same run, on one thread.

    python benchmarks/loops.py [--torch path/to/python] [--only text]

GB/s counts what must be moved at least: every operand once, every result once (a copy of the same number of bytes by numpy stands in
the first line, for the speed of memory). Arrays of about a million elements lie between the second-level cache and memory. Each case is timed in
turns, the shortest time counts; pin the process to a core (`taskset -c 0`) for steady figures.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from side_by_side import Torch, shortest

Array = np.ndarray[Any, Any]
SECONDS = 0.04
TURNS = 3
THREAD_VARIABLES = ("GRAPHCELL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Case:
    """One kernel: its operands (shape and numpy's name of the dtype), and the same function for each library.

    `ours` takes Tensors and the modules `ops`, `theirs` arrays and numpy, `torchs` (text) torch Tensors a, b, c and torch as `t`.
    """

    name: str
    operands: tuple[tuple[tuple[int, ...], str], ...]
    ours: Callable[..., Any]
    theirs: Callable[..., Any] | None
    torchs: str = ""


def cases() -> Iterator[Case]:
    """The table: kinds of loops that networks are made of, and shapes that vectors do not divide."""
    from graphcell import ops

    n = 1 << 20
    f = "float32"
    yield Case("copy (transposed twice)", (((1024, 1024), f),), lambda x: x + 0.0, lambda x: x + 0.0, "a + 0.0")
    for rows, columns in ((104857, 10), (61680, 17), (1048, 1000), (349525, 3), (174762, 6)):
        shape = ((rows, columns), f)
        yield Case(f"x * 2 + y, rows of {columns}", (shape, shape), lambda x, y: x * 2 + y, lambda x, y: x * 2 + y, "a * 2 + b")
        yield Case(f"x + row, rows of {columns}", (shape, ((columns,), f)), lambda x, r: x + r, lambda x, r: x + r, "a + b")
        yield Case(f"x * column, rows of {columns}", (shape, ((rows, 1), f)), lambda x, c: x * c, lambda x, c: x * c, "a * b")
        yield Case(f"sum of rows of {columns}", (shape,), lambda x: x.sum(1), lambda x: x.sum(1), "a.sum(1)")
        yield Case(f"sum of columns, rows of {columns}", (shape,), lambda x: x.sum(0), lambda x: x.sum(0), "a.sum(0)")
        yield Case(f"softmax, rows of {columns}", (shape,), lambda x: ops.softmax(x, -1), _softmax, "t.softmax(a, -1)")
    for rows, columns in ((1024, 1024), (16384, 64), (256, 4096), (1009, 1031)):
        shape = ((rows, columns), f)
        yield Case(f"sum of columns {rows}x{columns}", (shape,), lambda x: x.sum(0), lambda x: x.sum(0), "a.sum(0)")
        yield Case(f"x.T + y {rows}x{columns}", (shape, ((columns, rows), f)), lambda x, y: x.T + y, lambda x, y: x.T + y, "a.T + b")
    yield Case("transpose 1024x1024", (((1024, 1024), f),), _transposed, lambda x: np.ascontiguousarray(x.T), "a.T.contiguous()")
    yield Case("transpose 1023x1025", (((1023, 1025), f),), _transposed, lambda x: np.ascontiguousarray(x.T), "a.T.contiguous()")
    yield Case("transpose int8 1024x1024", (((1024, 1024), "int8"),), _transposed, lambda x: np.ascontiguousarray(x.T), "a.T.contiguous()")
    yield Case("transpose float64 1024x512", (((1024, 512), "float64"),), _transposed, lambda x: np.ascontiguousarray(x.T), "a.T.contiguous()")
    image, heads = ((16, 64, 32, 32), f), ((8, 128, 8, 128), f)
    yield Case("NCHW to NHWC", (image,), lambda x: x.transpose(0, 2, 3, 1).copy(), lambda x: np.ascontiguousarray(x.transpose(0, 2, 3, 1)),
               "a.permute(0, 2, 3, 1).contiguous()")
    yield Case("swap heads", (heads,), lambda x: x.transpose(0, 2, 1, 3).copy(), lambda x: np.ascontiguousarray(x.transpose(0, 2, 1, 3)),
               "a.permute(0, 2, 1, 3).contiguous()")
    part = ((512, 512), f)
    yield Case("concat of 4, axis 0", (part,) * 4, lambda *x: ops.cat(x, 0), lambda *x: np.concatenate(x, 0), "t.cat([a, b, c, d], 0)")
    yield Case("concat of 4, axis 1", (part,) * 4, lambda *x: ops.cat(x, 1), lambda *x: np.concatenate(x, 1), "t.cat([a, b, c, d], 1)")
    yield Case("stack of 4, last axis", (part,) * 4, lambda *x: ops.stack(x, -1), lambda *x: np.stack(x, -1), "t.stack([a, b, c, d], -1)")
    yield Case("pad by 1, 64 images", (((64, 16, 32, 32), f),), lambda x: ops.pad(x, (1, 1, 1, 1)), lambda x: np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))),
               "t.nn.functional.pad(a, (1, 1, 1, 1))")
    yield Case("every second column", (((1024, 1024), f),), lambda x: x[:, ::2] + 1.0, lambda x: x[:, ::2] + 1.0, "a[:, ::2] + 1.0")
    yield Case("reversed", (((1024, 1024), f),), lambda x: ops.flip(x, (1,)), lambda x: np.ascontiguousarray(x[:, ::-1]), "a.flip(1)")
    for dtype in ("float16", "float64", "int8", "int32", "int64"):
        yield Case(f"x * y + x {dtype}", (((n,), dtype),) * 2, lambda x, y: x * y + x, lambda x, y: x * y + x, "a * b + a")
        yield Case(f"sum {dtype} of rows", (((1024, 1024), dtype),), lambda x: x.sum(1), lambda x: x.sum(1, dtype=x.dtype), "a.sum(1)")
    yield Case("x > 0 & y > 0", (((n,), f),) * 2, lambda x, y: ops.logical_and(x > 0, y > 0), lambda x, y: (x > 0) & (y > 0), "(a > 0) & (b > 0)")
    yield Case("where(mask, x, 0)", (((n,), "bool"), ((n,), f)), lambda m, x: ops.select(m, x, 0.0), lambda m, x: np.where(m, x, np.float32(0)),
               "t.where(a, b, 0.0)")
    yield Case("sum of the middle axis 64x256x64", (((64, 256, 64), f),), lambda x: x.sum(1), lambda x: x.sum(1), "a.sum(1)")
    yield Case("max of the middle axis 64x64x256", (((64, 64, 256), f),), lambda x: ops.amax(x, 1), lambda x: x.max(1), "a.amax(1)")
    yield Case("mean and variance of channels", (((16384, 64), f),), lambda x: ops.var_mean(x, 0), lambda x: (x.var(0), x.mean(0)), "t.var_mean(a, 0)")
    yield Case("layer norm 4096x256", (((4096, 256), f), ((256,), f), ((256,), f)), lambda x, w, b: _layer_norm(x, w, b), _numpy_layer_norm,
               "t.nn.functional.layer_norm(a, (256,), b, c)")
    yield Case("argmax of rows of 1000", (((1048, 1000), f),), lambda x: x.argmax(1), lambda x: x.argmax(1), "a.argmax(1)")
    yield Case("argmax of columns", (((1024, 1024), f),), lambda x: x.argmax(0), lambda x: x.argmax(0), "a.argmax(0)")
    yield Case("cumsum of rows", (((1024, 1024), f),), lambda x: ops.cumsum(x, 1), lambda x: x.cumsum(1), "a.cumsum(1)")
    yield Case("cumsum of columns", (((1024, 1024), f),), lambda x: ops.cumsum(x, 0), lambda x: x.cumsum(0), "a.cumsum(0)")
    yield Case("one hot of 1000", (((1024,), "index1000"),), _one_hot, lambda i: np.eye(1000, dtype=np.float32)[i],
               "t.nn.functional.one_hot(a.long(), 1000).float()")
    yield Case("embedding of 256", (((4096, 256), f), ((4096,), "index4096")), lambda w, i: ops.gather(w, i, 0), lambda w, i: w[i], "a[b.long()]")
    yield Case("embedding of 10", (((4096, 10), f), ((65536,), "index4096")), lambda w, i: ops.gather(w, i, 0), lambda w, i: w[i], "a[b.long()]")
    yield Case("scatter add of rows of 256", (((4096, 256), f), ((4096,), "index4096"), ((4096, 256), f)), lambda x, i, u: ops.index_add(x, i, u, 0),
               _numpy_index_add, "t.index_add(a, 0, b, c)")
    yield Case("top 5 of 1000", (((1048, 1000), f),), lambda x: ops.topk(x, 5), lambda x: np.sort(np.partition(x, 995, 1)[:, 995:], 1), "t.topk(a, 5)")
    for columns in (8, 61, 300):
        yield Case(f"sort rows of {columns}", (((2048, columns), f),), lambda x: ops.sort(x, 1), lambda x: np.sort(x, 1), "t.sort(a, 1)")
    yield Case("top 2 of 8", (((16384, 8), f),), lambda x: ops.topk(x, 2), lambda x: np.sort(np.partition(x, 6, 1)[:, 6:], 1), "t.topk(a, 2)")
    pool = ((16, 64, 32, 32), f)
    yield Case("max pool 2x2", (pool,), lambda x: ops.max_pool2d(x, 2, 2), None, "t.nn.functional.max_pool2d(a, 2, 2)")
    yield Case("max pool 3x3 stride 2", (pool,), lambda x: ops.max_pool2d(x, 3, 2, 1), None, "t.nn.functional.max_pool2d(a, 3, 2, 1)")
    yield Case("average pool 2x2", (pool,), lambda x: ops.avg_pool2d(x, 2, 2), None, "t.nn.functional.avg_pool2d(a, 2, 2)")
    yield Case("max pool 2x2, 6 channels", (((64, 6, 28, 28), f),), lambda x: ops.max_pool2d(x, 2, 2), None, "t.nn.functional.max_pool2d(a, 2, 2)")


def _transposed(x: Any) -> Any:
    return x.T.copy()


def _one_hot(i: Any) -> Any:
    from graphcell import Tensor, ops

    return ops.one_hot(i, 1000, Tensor(1.0), Tensor(0.0))


def _layer_norm(x: Any, w: Any, b: Any) -> Any:
    from graphcell import ops

    return ops.layer_norm(x, (256,), w, b)


def _numpy_layer_norm(x: Array, w: Array, b: Array) -> Array:
    c = x - x.mean(1, keepdims=True)
    return c / np.sqrt((c * c).mean(1, keepdims=True) + 1e-5) * w + b  # type: ignore[no-any-return]


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)  # type: ignore[no-any-return]


def _numpy_index_add(x: Array, i: Array, u: Array) -> Array:
    y = x.copy()
    np.add.at(y, i, u)
    return y


def arrays_of(case: Case) -> list[Array]:
    """Random operands; `index1000` stands for int32 indices into 1000 elements."""
    rng = np.random.default_rng(0)
    made: list[Array] = []
    for shape, kind in case.operands:
        if kind.startswith("index"):
            made.append(rng.integers(0, int(kind[5:]), shape).astype(np.int32))
        elif kind == "bool":
            made.append(rng.random(shape) < 0.5)
        elif kind.startswith("int"):
            made.append(rng.integers(-5, 5, shape).astype(kind))
        else:
            made.append(rng.standard_normal(shape).astype(kind))
    return made


TORCH = """
t = torch
def program(case):
    made = []
    for shape, kind in case["operands"]:
        if kind.startswith("index"): made.append(t.randint(0, int(kind[5:]), shape, dtype=t.int32))
        elif kind == "bool": made.append(t.rand(shape) < 0.5)
        elif kind.startswith("int"): made.append(t.randint(-5, 5, shape, dtype=getattr(t, kind)))
        else: made.append(t.randn(shape).to(getattr(t, kind)))
    return eval("lambda: " + case["code"], dict(zip("abcd", made), t=t))
"""


def measure(case: Case, torch: Torch | None) -> None:
    """Times one case and prints its line."""
    from graphcell import Tensor, jit

    arrays = arrays_of(case)
    tensors = [Tensor(a) for a in arrays]
    compiled = jit(case.ours)
    result = compiled(*tensors)
    results = [r.asnumpy() for r in (result if isinstance(result, tuple) else (result,))]
    moved = sum(a.nbytes for a in arrays) + sum(r.nbytes for r in results)
    elements = max(a.size for a in (*arrays, *results))
    ours = theirs = torchs = float("inf")
    for _ in range(TURNS):
        ours = min(ours, shortest(lambda: compiled(*tensors), SECONDS))
        if case.theirs is not None:
            theirs = min(theirs, shortest(lambda: case.theirs(*arrays), SECONDS))  # type: ignore[misc]
        if torch is not None and case.torchs:
            torchs = min(torchs, torch.time({"operands": case.operands, "code": case.torchs}, SECONDS))
    line = f"{case.name:<36} {ours * 1e9 / elements:8.3f} {moved / ours / 1e9:7.1f}"
    line += f" {theirs / ours:7.1f}x" if theirs < float("inf") else f" {'':8}"
    print(line + (f" {torchs / ours:7.1f}x" if torchs < float("inf") else ""), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", help="a Python interpreter that has PyTorch")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    options = parser.parse_args()
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, "1")
    import graphcell

    graphcell.set_context(mode=graphcell.GRAPH_MODE)
    with Torch(options.torch, TORCH) if options.torch else contextlib.nullcontext() as torch:
        print(f"{'':<36} {'ns/elem':>8} {'GB/s':>7} {'numpy':>8} {'torch':>8}")
        for case in cases():
            if options.only in case.name:
                measure(case, torch)


if __name__ == "__main__":
    main()
