"""Rows whose number nothing divides beside a round number of them: nanoseconds an element of the same program, and the ratio.

    python benchmarks/odd_sizes.py [--seconds 0.3] [--only NAME ...]

A ratio near 1 says that a program is as fast whatever its number of rows: sums of columns, for instance, are cut in blocks of rows, of which there are
none of equal length where that number is prime (codegen/row_parts.py, codegen/reduction_parts.py). One thread; pin the process to a core
(`taskset -c 0`) for steady figures.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("GRAPHCELL_NUM_THREADS", "1")

import numpy as np
from side_by_side import shortest

import graphcell as ms
from graphcell import Tensor, nn, ops

PAIRS = (((1200, 900), (1201, 907)), ((4096, 1024), (4099, 1024)), ((120, 9000), (127, 8999)))


def layer_norm(columns: int) -> Callable[..., Any]:
    """With GELU and the gradients of input, scale and shift."""
    norm = nn.LayerNorm((columns,))
    gradient = ms.value_and_grad(lambda x: ops.gelu(norm(x)).sum(), 0, norm.trainable_params())
    return lambda x: gradient(x)


PROGRAMS: dict[str, Callable[[int], Callable[..., Any]]] = {
    "layer norm": layer_norm,
    "tanh and its column sums": lambda columns: lambda x: (y := ops.tanh(x), y.sum(0)),
    "column sums": lambda columns: lambda x: x.sum(0),
    "mean and variance of columns": lambda columns: lambda x: (x.mean(0), x.var(0)),
    "normalised columns": lambda columns: lambda x: (x - x.mean(0)) * ops.rsqrt(x.var(0) + 1e-5),
    "largest of columns": lambda columns: lambda x: x.max(0),
    "softmax of columns": lambda columns: lambda x: ops.softmax(x, 0),
    "softmax of rows": lambda columns: lambda x: ops.softmax(x, 1),
    "transpose": lambda columns: lambda x: x.T + 1.0,
}


def nanoseconds(name: str, shape: tuple[int, int], seconds: float) -> float:
    """Of an element."""
    program = ms.jit(PROGRAMS[name](shape[1]))
    x = Tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    program(x)
    return shortest(lambda: program(x), seconds) * 1e9 / x.size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each figure")
    parser.add_argument("--only", nargs="*", choices=PROGRAMS, metavar="NAME", help=", ".join(PROGRAMS))
    options = parser.parse_args()
    print(f"{'ns an element':32}" + "".join(f"{f'{a[0]}x{a[1]}':>14}{f'{b[0]}x{b[1]}':>14}{'ratio':>7}" for a, b in PAIRS))
    for name in options.only or PROGRAMS:
        line = f"{name:32}"
        for pair in PAIRS:
            even, odd = (nanoseconds(name, shape, options.seconds) for shape in pair)
            line += f"{even:14.2f}{odd:14.2f}{odd / even:7.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
