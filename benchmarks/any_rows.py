"""Cells whose inputs have any number of rows (`Cell.set_inputs`), beside the same Cells compiled for each number.

usage: any_rows.py [--rows 1,7,32,…] [--threads N] [--train]

Prints the time of a call compiled for the very number of rows, and how many times as long it takes in blocks of rows; then the first calls.
With --train a call is a whole training step by Adam; the loss is a mean over the rows.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ROWS = "1,2,3,5,8,9,13,17,25,32,33,50,100,256,1000"
_WARM, _ROUNDS, _SECONDS = 4, 20, 0.01


def best(*calls: Callable[[], object]) -> list[float]:
    """Seconds of the fastest of some rounds of each of these, which take turns."""
    counts = []
    for call in calls:
        for _ in range(_WARM):
            call()
        start = time.perf_counter()
        call()
        counts.append(max(1, int(_SECONDS / max(time.perf_counter() - start, 1e-7))))
    rounds: list[list[float]] = [[] for _ in calls]
    for _ in range(_ROUNDS):
        for call, count, seconds in zip(calls, counts, rounds, strict=True):
            start = time.perf_counter()
            for _ in range(count):
                call()
            seconds.append((time.perf_counter() - start) / count)
    return [min(seconds) for seconds in rounds]


def training_step(net: Any) -> Any:
    """A Cell that trains `net`, whose result per row is flattened, to tell ten classes."""
    from graphcell import nn

    class Loss(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.loss = net, nn.CrossEntropyLoss()

        def construct(self, x: Any, labels: Any) -> Any:
            return self.loss(self.net(x).reshape(x.shape[0], -1)[:, :10], labels)

    return nn.TrainOneStepCell(Loss(), nn.Adam(net.trainable_params(), 1e-3)).set_train()


def inputs(numbers: np.random.Generator, rows: int, shape: tuple[int, ...], train: bool) -> list[Any]:
    """The arguments of a call with so many rows."""
    from graphcell import Tensor

    x = Tensor(numbers.standard_normal((rows, *shape)).astype(np.float32))
    return [x, Tensor(numbers.integers(0, 10, rows).astype(np.int32))] if train else [x]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--threads", default="1")
    parser.add_argument("--train", action="store_true")
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
        "512-2048-512-10": (
            lambda: nn.SequentialCell(
                nn.Dense(512, 2048), nn.GELU(), nn.Dropout(p=0.1), nn.Dense(2048, 512), nn.LayerNorm((512,)), nn.Dense(512, 10)
            ),
            (512,),
        ),
        "convolutions": (
            lambda: nn.SequentialCell(
                nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2, 2), flat, nn.Dense(1568, 10)
            ),
            (1, 28, 28),
        ),
        "batch norm": (
            lambda: nn.SequentialCell(
                nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(), flat, nn.Dense(8192, 10)
            ),
            (3, 32, 32),
        ),
        "Transformer layer": (lambda: nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True), (32, 128)),
    }  # fmt: skip
    numbers = np.random.default_rng(0)
    for name, (make, shape) in nets.items():
        declared, plain = (training_step(make()) if options.train else make().set_train(False) for _ in range(2))
        declared.set_inputs(*(Tensor(shape=[None, *x.shape[1:]], dtype=x.dtype) for x in inputs(numbers, 1, shape, options.train)))
        columns, first = [], []
        for rows in map(int, options.rows.split(",")):
            xs = inputs(numbers, rows, shape, options.train)
            start = time.perf_counter()
            declared(*xs)
            first.append(f"{rows}: {(time.perf_counter() - start) * 1e3:.0f} ms")
            alone, together = best(lambda net=plain, xs=xs: net(*xs), lambda net=declared, xs=xs: net(*xs))
            columns.append(f"{rows}: {alone * 1e6:.0f} us x {together / alone:.2f}")
        print(f"{name}\n  {'  '.join(columns)}\n  first calls {'  '.join(first)}", flush=True)


if __name__ == "__main__":
    main()
