"""Attention, forward and with gradients, on one thread, beside PyTorch: the eager composition and F.scaled_dot_product_attention.

    python benchmarks/attention.py [--torch path/to/python] [--only text]

Each case is timed in turns (ours, torch, ours, ...), the best of all turns counts, since a shared machine can slow all of them: compare
the columns of a line. "unfused" is the same graph without the pass `fuse_attention`. Sizes are batch x heads x sequence x features of a
head. Pin the process to a core (`taskset -c 0`) for steady figures.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from side_by_side import Torch, shortest

import graphcell as gc
from graphcell import Tensor, ops
from graphcell.passes import autodiff, pipeline

ENVIRONMENT = {"GRAPHCELL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GRAPHCELL_CACHE": "0"}
SECONDS = 0.6  # of one turn
TURNS = 3

TORCH = """
import torch.nn.functional as F
def program(case):
    q, k, v, w = (torch.randn(*case["shape"], requires_grad=case["gradients"]) for _ in range(4))
    scale, length = case["shape"][-1] ** -0.5, case["shape"][2]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    mask = {"": None, "causal": causal, "padded": causal[length * 3 // 4 - 1 :][:1]}[case["mask"]]
    def attention():
        if case["how"] == "sdpa":
            causes = case["mask"] == "causal"
            return F.scaled_dot_product_attention(q, k, v, None if causes else mask, is_causal=causes)
        scores = q @ k.mT * scale
        return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -1e9), -1) @ v
    def run():
        if not case["gradients"]:
            return attention()
        loss = (attention() * w).sum()
        return loss.detach(), torch.autograd.grad(loss, (q, k, v))
    return run
"""


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    shape: tuple[int, int, int, int]
    gradients: bool
    mask: str = ""
    """`causal`, or `padded`: the last quarter of the keys is hidden."""

    @property
    def name(self) -> str:
        return "x".join(map(str, self.shape)) + (" forward+backward" if self.gradients else " forward") + (f" {self.mask}" if self.mask else "")

    @property
    def flops(self) -> int:
        """Of the products that the mathematics needs without a mask: two forward, four backward."""
        b, h, s, d = self.shape
        return 2 * b * h * s * s * d * (6 if self.gradients else 2)


SHAPES = ((8, 8, 128, 32), (8, 8, 128, 64), (2, 8, 512, 64), (1, 8, 1024, 64), (1, 8, 2048, 64))
CASES = tuple(Case(shape, gradients, mask) for mask in ("", "causal", "padded") for shape in SHAPES for gradients in (False, True))


def ours(case: Case, fused: bool) -> Callable[[], object]:
    """A compiled function of four Tensors, bound to some; without the pass if not `fused`."""
    rng = np.random.default_rng(0)
    q, k, v, w = (Tensor(rng.standard_normal(case.shape).astype(np.float32)) for _ in range(4))
    length, scale = case.shape[2], case.shape[-1] ** -0.5
    later = np.triu(np.ones((length, length), bool), 1)
    hidden = {"": None, "causal": Tensor(later), "padded": Tensor(later[length * 3 // 4 - 1])}[case.mask]

    def attention(q: Any, k: Any, v: Any) -> Any:
        scores = ops.matmul(q, k.swapaxes(-1, -2)) * scale
        return ops.matmul(ops.softmax(scores if hidden is None else ops.masked_fill(scores, hidden, -1e9), -1), v)

    def loss(q: Any, k: Any, v: Any) -> Any:
        return (attention(q, k, v) * w).sum()

    function = gc.jit(gc.value_and_grad(loss, (0, 1, 2)) if case.gradients else attention)
    if fused:
        function(q, k, v)
    else:
        without = ("", tuple(p for p in pipeline.PIPELINE if p[0] != "fuse_attention"))
        with mock.patch.object(autodiff, "fuse_attention", lambda graph, active=(): graph), mock.patch.object(pipeline.run_pipeline, "__defaults__", without):
            function(q, k, v)
    return lambda: function(q, k, v)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", help="a Python with PyTorch")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    with Torch(arguments.torch, TORCH) if arguments.torch else contextlib.nullcontext() as torch:
        names = ["fused", "unfused", *(["torch eager", "torch sdpa"] if torch else [])]
        print(f"{'case':42}" + "".join(f"{n + ' ms':>16}" for n in names) + f"{'GFLOP/s':>10}")
        for case in (c for c in CASES if arguments.only in c.name):
            report(case, names, torch)


def report(case: Case, names: list[str], torch: Torch | None) -> None:
    """Times one case, in turns, and prints its line."""
    runs = {"fused": ours(case, True), "unfused": ours(case, False)}
    times = dict.fromkeys(names, float("inf"))
    for _ in range(TURNS):
        for name in names:
            if name in runs:
                found = shortest(runs[name], SECONDS)
            else:
                assert torch is not None
                found = torch.time({"shape": case.shape, "gradients": case.gradients, "mask": case.mask, "how": name.split()[1]}, SECONDS)
            times[name] = min(times[name], found)
    line = "".join(f"{times[n] * 1e3:16.3f}" for n in names)
    print(f"{case.name:42}{line}{case.flops / times['fused'] / 1e9:10.1f}", flush=True)


if __name__ == "__main__":
    main()
