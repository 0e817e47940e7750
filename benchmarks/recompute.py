"""What `Cell.recompute` saves and costs: training steps with and without it, in both modes.

    python benchmarks/recompute.py [--depth 24] [--mode graph|pynative]

For each network: the most bytes that a step holds beside its Parameters and inputs (planned by the compiler in graphs, measured eagerly), and
the time of a step, the best of a few. The gradients of both must agree.
"""

from __future__ import annotations

import argparse
import re
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

import graphcell as ms
from graphcell import Tensor, nn, ops

TURNS = 5
RNG = np.random.default_rng(0)


class Transformer(nn.Cell):
    """A layer of a Transformer: self-attention and a feed-forward network, normalised before."""

    def __init__(self, width: int = 128, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm((width,)), nn.LayerNorm((width,))
        self.qkv, self.out = nn.Dense(width, 3 * width), nn.Dense(width, width)
        self.up, self.down = nn.Dense(width, 4 * width), nn.Dense(4 * width, width)
        self.dropout = nn.Dropout(p=0.1)

    def construct(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, width // self.heads).transpose(2, 0, 3, 1, 4)
        scores = ops.softmax(ops.matmul(parts[0], parts[1].swapaxes(-1, -2)) * (width // self.heads) ** -0.5, -1)
        attended = ops.matmul(scores, parts[2]).transpose(0, 2, 1, 3).reshape(batch, length, width)
        x = x + self.dropout(self.out(attended))
        return x + self.dropout(self.down(ops.gelu(self.up(self.norm2(x)))))


def mlp() -> nn.Cell:
    return nn.SequentialCell(nn.Dense(128, 512), nn.Tanh(), nn.Dense(512, 128), nn.Tanh())


NETWORKS: dict[str, tuple[Callable[[], nn.Cell], tuple[int, ...]]] = {"mlp": (mlp, (1024, 128)), "transformer": (Transformer, (4, 64, 128))}


def gradient_of(make: Callable[[], nn.Cell], depth: int, recomputed: bool) -> Callable[..., Any]:
    ms.set_seed(1)
    layers = [make() for _ in range(depth)]
    for layer in layers if recomputed else ():
        layer.recompute()
    net = nn.SequentialCell(*layers)
    net.set_train()
    step = ms.value_and_grad(lambda x: (net(x) ** 2).mean(), None, net.trainable_params())
    return ms.jit(step) if ms.get_context("mode") == ms.GRAPH_MODE else step


def bytes_of(step: Any, x: Tensor) -> int:
    if ms.get_context("mode") == ms.GRAPH_MODE:
        found = re.search(r"temporaries take ([\d,]+) bytes", step.explain())
        return int(found[1].replace(",", "")) if found else 0
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    step(x)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return peak


def seconds_of(step: Callable[..., Any], x: Tensor) -> float:
    best = float("inf")
    for _ in range(TURNS):
        start = time.perf_counter()
        step(x)
        best = min(best, time.perf_counter() - start)
    return best


def compare(name: str, depth: int) -> None:
    make, shape = NETWORKS[name]
    x = Tensor(RNG.standard_normal(shape).astype(np.float32))
    rows, losses = [], []
    for recomputed in (False, True):
        step = gradient_of(make, depth, recomputed)
        ms.set_seed(2)
        losses.append(step(x)[0].asnumpy())
        step(x)
        rows.append((bytes_of(step, x), seconds_of(step, x)))
    np.testing.assert_allclose(*losses, rtol=1e-5)
    (kept, fast), (less, slow) = rows
    print(f"{name:<12}{kept / 2**20:10.1f} MB kept{less / 2**20:10.1f} MB recomputed{less / kept:8.2f} of the bytes{slow / fast:8.2f} of the time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=24, help="layers of each network")
    parser.add_argument("--mode", choices=("graph", "pynative"), default=None, help="default: both")
    options = parser.parse_args()
    for mode in (options.mode,) if options.mode else ("graph", "pynative"):
        ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
        print(f"{mode}, {options.depth} layers")
        for name in NETWORKS:
            compare(name, options.depth)


if __name__ == "__main__":
    main()
