"""Recurrent and Transformer layers, a training step and inference on one thread, beside PyTorch.

    python benchmarks/recurrent.py [--torch path/to/python] [--only text]

Each case is timed in turns (ours, torch, ours, ...), the best of all turns counts, since a shared machine can slow all of them: compare the
columns of a line. Sizes are steps x batch x features; a step of training is forward, the mean of the squared outputs, backward and SGD.
Pin the process to a core (`taskset -c 0`) for steady figures.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import Torch, shortest

import graphcell as gc
from graphcell import Tensor, nn, ops

ENVIRONMENT = {"GRAPHCELL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
SECONDS = 0.6  # of one turn
TURNS = 3
PEER = Path(os.environ.get("PEERS", "~/.cache/graphcell-peers")).expanduser() / "torch" / "bin" / "python"

TORCH = """
nets = {}
def program(case):
    key, features = str(case), case["features"]
    if key not in nets:
        if case["kind"] == "Transformer":
            net = torch.nn.TransformerEncoderLayer(features, 8, 4 * features, 0.0)
        else:
            net = getattr(torch.nn, case["kind"])(features, case["hidden"], case["layers"], bidirectional=case["both"])
        nets[key] = net, torch.optim.SGD(net.parameters(), 0.01), torch.randn(case["steps"], case["batch"], features)
    net, optimizer, x = nets[key]
    def forward():
        y = net(x)
        return y[0] if isinstance(y, tuple) else y
    def run():
        if not case["training"]:
            return forward()
        optimizer.zero_grad()
        loss = (forward() ** 2).mean()
        loss.backward()
        optimizer.step()
    net.train(case["training"])
    return run
"""


@dataclass(frozen=True)
class Case:
    """One layer with its sizes."""

    kind: str
    steps: int
    batch: int
    features: int
    hidden: int = 0
    layers: int = 1
    both: bool = False
    training: bool = True

    @property
    def name(self) -> str:
        form = f" {self.layers} layers, {'both directions' if self.both else 'one direction'}" if self.hidden else ""
        return f"{self.kind} {self.steps}x{self.batch}x{self.features} -> {self.hidden or self.features}{form}, {'training' if self.training else 'inference'}"


SHAPES: tuple[dict[str, Any], ...] = (
    {"kind": "RNN", "steps": 32, "batch": 32, "features": 128, "hidden": 256},
    {"kind": "GRU", "steps": 32, "batch": 32, "features": 128, "hidden": 256},
    {"kind": "LSTM", "steps": 32, "batch": 32, "features": 128, "hidden": 256},
    {"kind": "LSTM", "steps": 100, "batch": 1, "features": 64, "hidden": 128},
    {"kind": "LSTM", "steps": 50, "batch": 16, "features": 64, "hidden": 128, "layers": 2, "both": True},
    {"kind": "Transformer", "steps": 128, "batch": 4, "features": 256},
)
CASES = tuple(Case(**shape, training=training) for shape in SHAPES for training in (True, False))


def ours(case: Case) -> Callable[[], object]:
    """A function that runs the case here."""
    gc.set_context(mode=gc.GRAPH_MODE)
    if case.kind == "Transformer":
        net: nn.Cell = nn.TransformerEncoderLayer(case.features, 8, 4 * case.features, 0.0)
    else:
        net = getattr(nn, case.kind)(case.features, case.hidden, case.layers, bidirectional=case.both)
    net.set_train(case.training)
    x = Tensor(np.random.default_rng(0).standard_normal((case.steps, case.batch, case.features)).astype(np.float32))

    def forward(x: Any) -> Any:
        y = net(x)
        return y[0] if isinstance(y, tuple) else y

    if not case.training:
        run = gc.jit(forward)
        return lambda: run(x)
    optimizer = nn.SGD(net.trainable_params(), 0.01)
    gradient = gc.value_and_grad(lambda x: (forward(x) ** 2).mean(), None, optimizer.parameters)

    def step(x: Any) -> Any:
        loss, gradients = gradient(x)
        return ops.depend(loss, optimizer(gradients))

    compiled = gc.jit(step)
    return lambda: compiled(x)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", type=Path, default=PEER, help="a Python with PyTorch; nothing beside ours if it is not there")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    with Torch(options.torch, TORCH) if options.torch.exists() else contextlib.nullcontext() as torch:
        print(f"{'milliseconds':70} {'graphcell':>10} {'PyTorch':>10} {'ratio':>7}")
        for case in CASES:
            if options.only in case.name:
                print(line_of(case, torch), flush=True)


def line_of(case: Case, torch: Torch | None) -> str:
    """The case, timed in turns."""
    run = ours(case)
    mine = theirs = float("inf")
    for _ in range(TURNS):
        mine = min(mine, shortest(run, SECONDS))
        if torch is not None:
            theirs = min(theirs, torch.time(asdict(case) | {"gradients": case.training}, SECONDS))
    beside = f" {theirs * 1e3:10.2f} {theirs / mine:7.2f}" if torch is not None else ""
    return f"{case.name:70} {mine * 1e3:10.2f}{beside}"


if __name__ == "__main__":
    main()
