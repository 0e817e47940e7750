"""Contractions with the elementwise kernel that follows them as their epilogue, and as a kernel of its own.

    python benchmarks/epilogues.py [--threads 1]

Each line is one program compiled both ways and run in turns; the best of all turns counts. Pin the process to a core (`taskset -c 0`).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import graphcell as ms
from graphcell import Tensor, nn, ops
from graphcell.codegen import lower

TURNS = 40
RNG = np.random.default_rng(0)


def tensor(*shape: int) -> Tensor:
    return Tensor(RNG.standard_normal(shape).astype(np.float32))


def programs() -> dict[str, Callable[..., Any]]:
    def three_results(a: Tensor, b: Tensor, bias: Tensor, residual: Tensor) -> Any:
        z = ops.matmul(a, b) + bias
        return z * residual, z + residual, ops.relu(z)

    return {
        "bias, relu": lambda a, b, bias, residual: ops.relu(ops.matmul(a, b) + bias),
        "bias, relu, residual": lambda a, b, bias, residual: ops.relu(ops.matmul(a, b) + bias) + residual,
        "bias, gelu": lambda a, b, bias, residual: ops.gelu(ops.matmul(a, b) + bias),
        "three results": three_results,
    }


def compiled(f: Callable[..., Any], arguments: list[Tensor], fused: bool) -> Callable[[], Any]:
    match = lower.match_epilogue
    if not fused:
        lower.match_epilogue = lambda *_: None
    try:
        with tempfile.TemporaryDirectory() as cache:  # one for each: programs are found there by what they compute
            os.environ["GRAPHCELL_CACHE_DIR"] = cache
            g = ms.jit(lambda *x: f(*x))
            g(*arguments)
    finally:
        lower.match_epilogue = match
    return lambda: g(*arguments)


def compare(title: str, f: Callable[..., Any], arguments: list[Tensor]) -> None:
    runs = [compiled(f, arguments, fused) for fused in (False, True)]
    best = [float("inf")] * 2
    for _ in range(TURNS):
        for k, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[k] = min(best[k], time.perf_counter() - start)
    print(f"{title:44} apart {best[0] * 1e3:8.3f} ms   epilogue {best[1] * 1e3:8.3f} ms   {best[0] / best[1]:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    ms.set_context(mode=ms.GRAPH_MODE, runtime_num_threads=parser.parse_args().threads)
    for m, k, n in ((64, 512, 512), (1024, 256, 1024), (2048, 64, 2048), (1024, 1024, 1024)):
        arguments = [tensor(m, k), tensor(k, n), tensor(n), tensor(m, n)]
        for name, f in programs().items():
            compare(f"matmul {m}x{k}x{n} {name}", f, arguments)
    for size, channels in ((56, 64), (14, 256)):
        net = nn.SequentialCell([nn.Conv2d(channels, channels, 3, pad_mode="pad", padding=1), nn.BatchNorm2d(channels), nn.ReLU()])
        net.set_train(False)
        compare(f"conv 3x3 {channels} channels {size}x{size}, batch norm, relu", net, [tensor(1, channels, size, size)])


if __name__ == "__main__":
    main()
