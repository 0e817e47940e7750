"""Loops of short steps on one and on two threads: what a team of threads gains by going through them side by side. And small convolutions, one after another,
whose weights each thread transforms for itself.

    python benchmarks/teams.py [--only text] [--rounds 3]

One and two threads take turns, each in a process of its own; the least time of all rounds counts, as a shared machine slows some of them: compare the
columns of a line. A machine that takes the two processors away from each other now and then shows in rounds that differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import graphcell
from graphcell import Tensor, jit, nn, ops

SECONDS = 0.5


def _draw(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32) * 0.3)


def cell(steps: int, batch: int, size: int) -> Callable[[], Any]:
    """A gated recurrent cell, whose gates of the input are given."""

    @jit
    def run(h: Any, z: Any, w: Any) -> Any:
        found = []
        for k in range(steps):
            a = ops.matmul(h, w)
            u, r = ops.sigmoid(a[:, :size] + z[k][:, :size]), ops.sigmoid(a[:, size : 2 * size] + z[k][:, size : 2 * size])
            h = (1 - u) * ops.tanh(z[k][:, 2 * size :] + r * a[:, 2 * size :]) + u * h
            found.append(h)
        return ops.stack(found)

    given = _draw(batch, size), _draw(steps, batch, 3 * size), _draw(size, 3 * size)
    return lambda: run(*given)


def layer(kind: str, steps: int, batch: int, size: int, both: bool) -> Callable[[], Any]:
    """The gradients of a recurrent layer."""
    net = getattr(nn, kind)(size, size, bidirectional=both)
    step = jit(graphcell.value_and_grad(lambda x: (net(x)[0] ** 2).mean(), None, net.trainable_params()))
    x = _draw(steps, batch, size)
    return lambda: step(x)


def heat(steps: int, size: int) -> Callable[[], Any]:
    """A stencil on a square."""

    @jit
    def run(x: Any) -> Any:
        for _ in range(steps):
            x = x + 0.1 * (ops.roll(x, 1, 0) + ops.roll(x, -1, 0) + ops.roll(x, 1, 1) + ops.roll(x, -1, 1) - 4 * x)
        return x

    given = _draw(size, size)
    return lambda: run(given)


def convolutions(images: int, channels: int, others: int, height: int, width: int) -> Callable[[], Any]:
    """Four convolutions, from some channels to others and back."""

    @jit
    def run(x: Any, there: Any, back: Any) -> Any:
        for _ in range(2):
            x = ops.relu(ops.conv2d(x, there, None, 1, "pad", 1))
            x = ops.relu(ops.conv2d(x, back, None, 1, "pad", 1))
        return x

    given = _draw(images, channels, height, width), _draw(others, channels, 3, 3) / 9, _draw(channels, others, 3, 3) / 9
    return lambda: run(*given)


CASES: dict[str, Callable[[], Callable[[], Any]]] = {
    "gated cell, 40 steps of 8 x 48": lambda: cell(40, 8, 48),
    "gated cell, 40 steps of 32 x 96": lambda: cell(40, 32, 96),
    "gated cell, 40 steps of 16 x 128": lambda: cell(40, 16, 128),
    "GRU with gradients, 30 steps of 32 x 64": lambda: layer("GRU", 30, 32, 64, False),
    "LSTM with gradients, 30 steps of 16 x 96": lambda: layer("LSTM", 30, 16, 96, False),
    "GRU both ways with gradients, 40 steps of 8 x 48": lambda: layer("GRU", 40, 8, 48, True),
    "LSTM both ways with gradients, 30 steps of 16 x 64": lambda: layer("LSTM", 30, 16, 64, True),
    "heat, 200 steps of 96 x 96": lambda: heat(200, 96),
    "convolutions, 2 images of 11 x 15, 48 channels": lambda: convolutions(2, 48, 48, 11, 15),
    "convolutions, 2 images of 22 x 30, 48 and 24 channels": lambda: convolutions(2, 48, 24, 22, 30),
    "convolutions, 2 images of 44 x 60, 12 channels": lambda: convolutions(2, 12, 12, 44, 60),
    "convolutions, 8 images of 16 x 16, 16 channels": lambda: convolutions(8, 16, 16, 16, 16),
    "convolutions, 4 images of 14 x 14, 64 channels": lambda: convolutions(4, 64, 64, 14, 14),
}


def measure(run: Callable[[], Any]) -> float:
    """The least milliseconds of a call, of some at a time."""
    run()
    best, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(10):
            run()
        best = min(best, (time.perf_counter() - start) / 10)
    return best * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose names hold this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(CASES[options.case]())))
        return
    print(f"{'case':56} {'one, ms':>9} {'two, ms':>9} {'gain':>6}")
    for name in [name for name in CASES if options.only in name]:
        best = {1: float("inf"), 2: float("inf")}
        for _ in range(options.rounds):
            for threads in best:
                environment = {**os.environ, "GRAPHCELL_NUM_THREADS": str(threads)}
                run = subprocess.run([sys.executable, __file__, "--case", name], env=environment, capture_output=True, text=True, check=True)
                best[threads] = min(best[threads], json.loads(run.stdout.splitlines()[-1]))
        print(f"{name:56} {best[1]:9.4f} {best[2]:9.4f} {best[1] / best[2]:6.2f}", flush=True)


if __name__ == "__main__":
    main()
