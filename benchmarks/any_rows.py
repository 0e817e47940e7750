"""Cells whose inputs have any number of rows (`Cell.set_inputs`), beside the same Cells compiled for each number.

usage: any_rows.py [--rows 1,7,32,…] [--threads N]

Prints the time of a call compiled for the very number of rows, and how many times as long it takes in blocks of rows; then the first calls.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np

ROWS = "1,2,3,5,8,9,13,17,25,32,33,50,100,256,1000"
_WARM, _ROUNDS, _SECONDS = 4, 7, 0.01


def best(call: Callable[[], object]) -> float:
    """Seconds of the fastest of some rounds of calls."""
    for _ in range(_WARM):
        call()
    start = time.perf_counter()
    call()
    count = max(1, int(_SECONDS / max(time.perf_counter() - start, 1e-7)))
    rounds = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        for _ in range(count):
            call()
        rounds.append((time.perf_counter() - start) / count)
    return min(rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--threads", default="1")
    options = parser.parse_args()
    os.environ.setdefault("GRAPHCELL_NUM_THREADS", options.threads)

    import graphcell as gc
    from graphcell import Tensor, nn

    gc.set_context(mode=gc.GRAPH_MODE)
    flat = nn.Flatten()
    nets: dict[str, tuple[Callable[[], nn.Cell], tuple[int, ...]]] = {
        "64-128-10": (lambda: nn.SequentialCell(nn.Dense(64, 128), nn.ReLU(), nn.Dense(128, 10)), (64,)),
        "784-256-256-10": (
            lambda: nn.SequentialCell(nn.Dense(784, 256), nn.ReLU(), nn.Dense(256, 256), nn.ReLU(), nn.Dense(256, 10)), (784,),
        ),
        "convolutions": (
            lambda: nn.SequentialCell(
                nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2, 2), flat, nn.Dense(1568, 10)
            ),
            (1, 28, 28),
        ),
        "Transformer layer": (lambda: nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True), (32, 128)),
    }  # fmt: skip
    numbers = np.random.default_rng(0)
    for name, (make, shape) in nets.items():
        declared, plain = make().set_train(False), make().set_train(False)
        declared.set_inputs(Tensor(shape=[None, *shape], dtype=gc.float32))
        columns, first = [], []
        for rows in map(int, options.rows.split(",")):
            x = Tensor(numbers.standard_normal((rows, *shape)).astype(np.float32))
            start = time.perf_counter()
            declared(x)
            first.append(f"{rows}: {(time.perf_counter() - start) * 1e3:.0f} ms")
            alone = best(lambda net=plain, x=x: net(x))
            together = best(lambda net=declared, x=x: net(x))
            columns.append(f"{rows}: {alone * 1e6:.0f} us x {together / alone:.2f}")
        print(f"{name}\n  {'  '.join(columns)}\n  first calls {'  '.join(first)}", flush=True)


if __name__ == "__main__":
    main()
