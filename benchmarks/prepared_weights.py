"""Milliseconds with weights that are prepared once and without, on one thread, beside PyTorch in the same run.

    python benchmarks/prepared_weights.py [--torch path/to/python] [--only text]

"each call" does all the work on weights (packing, Winograd's transform, what depends on weights alone) at each call or in each round of
the loop; "once" keeps it, as compiled functions do. The two and PyTorch are timed in turns and the best of all turns counts, so compare the
columns of a line. Pin the process to a core (`taskset -c 0`) for steady figures. GB/s: weights read in a call that keeps them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "GRAPHCELL_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402
from side_by_side import Torch, shortest  # noqa: E402

import graphcell as ms  # noqa: E402
from graphcell import Parameter, Tensor, nn, ops  # noqa: E402

SECONDS = 0.2  # of one turn
TURNS = 3

TORCH = """
F = torch.nn.functional
def matmul(m, n, k, transposed):
    x, w = torch.randn(m, k), torch.randn(*((n, k) if transposed else (k, n)))
    return lambda: x @ (w.T if transposed else w)
def conv(size, c, k, stride):
    x = torch.randn(1, c, size, size).to(memory_format=torch.channels_last)
    w = torch.randn(k, c, 3, 3).to(memory_format=torch.channels_last)
    return lambda: F.conv2d(x, w, None, stride, 1)
def loop(m, k, steps):
    x, w = torch.randn(m, k), torch.randn(k, k) / k**0.5
    def run():
        y = x
        for _ in range(steps):
            y = torch.tanh(y @ w.T)
        return y
    return run
def recurrent(m, k, steps):
    net, x = torch.nn.RNN(k, k), torch.randn(steps, m, k)
    return lambda: net(x)[0]
def program(case):
    return globals()[case["kind"]](*case["sizes"])
"""


@dataclass(frozen=True)
class Case:
    """A kind of program (a function below, and one of that name in the worker) and its sizes."""

    kind: str
    sizes: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.kind} {'x'.join(map(str, self.sizes))}"


CASES = (
    *(Case("matmul", (m, 1024, 1024, t)) for m in (1, 2, 4, 8, 16, 32, 128) for t in (True, False)),
    *(Case("matmul", (m, 4096, 4096, t)) for m in (1, 4, 16) for t in (True, False)),
    *(Case("conv", sizes) for sizes in ((32, 64, 64, 1), (16, 128, 128, 1), (8, 256, 256, 1), (8, 256, 512, 2), (4, 512, 512, 1))),
    *(Case("loop", (m, 256, 32)) for m in (1, 4, 32)),
    *(Case("recurrent", (m, 256, 64)) for m in (1, 4, 32)),
)


def normal(*shape: int) -> Tensor:
    return Tensor((np.random.default_rng(0).standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32))


def matmul(m: int, n: int, k: int, transposed: bool) -> tuple[Callable[[Tensor], Tensor], Tensor, int]:
    w = Parameter(normal(n, k) if transposed else normal(k, n), name="w")
    return lambda x: ops.matmul(x, w.T if transposed else w), normal(m, k), w.nbytes


def conv(size: int, c: int, k: int, stride: int) -> tuple[Callable[[Tensor], Tensor], Tensor, int]:
    net = nn.Conv2d(c, k, 3, stride, pad_mode="pad", padding=1)
    return net, normal(1, c, size, size), net.weight.nbytes


def loop(m: int, k: int, steps: int) -> tuple[Callable[[Tensor], Tensor], Tensor, int]:
    w = Parameter(normal(k, k), name="w")

    def run(x: Tensor) -> Tensor:
        for _ in range(steps):
            x = ops.tanh(ops.matmul(x, w.T))
        return x

    return run, normal(m, k), steps * w.nbytes


def recurrent(m: int, k: int, steps: int) -> tuple[Callable[[Tensor], Tensor], Tensor, int]:
    w, u = Parameter(normal(k, k), name="w"), Parameter(normal(k, k), name="u")

    def run(x: Tensor) -> Tensor:
        h = ops.zeros((m, k), ms.float32)
        for i in range(x.shape[0]):
            h = ops.tanh(ops.matmul(x[i], w.T) + ops.matmul(h, u.T))
        return h

    return run, normal(steps, m, k), 2 * steps * w.nbytes


KINDS: dict[str, Callable[..., tuple[Callable[[Tensor], Tensor], Tensor, int]]] = {"matmul": matmul, "conv": conv, "loop": loop, "recurrent": recurrent}


@contextlib.contextmanager
def nothing_prepared() -> Iterator[None]:
    """Compiles as if every weight might change at any time."""
    with (
        mock.patch("graphcell.codegen.lower._Frame._steady_operands", lambda *_: frozenset()),
        mock.patch("graphcell.codegen.frozen._is_kept", lambda *_: False),
        mock.patch("graphcell.passes.hoist_scanned.MOST_ROWS", 0),
        mock.patch.dict(os.environ, GRAPHCELL_CACHE="0"),
    ):
        yield


def measure(case: Case, torch: Torch | None) -> list[float]:
    """Seconds: each call, once, PyTorch; and the bytes of the weights."""
    function, x, nbytes = KINDS[case.kind](*case.sizes)
    with nothing_prepared():
        each = ms.jit(lambda x: function(x))
        expected = each(x).asnumpy()
    once = ms.jit(lambda x: function(x))
    np.testing.assert_allclose(once(x).asnumpy(), expected, rtol=1e-3, atol=1e-4)
    times = [1e9, 1e9, float("nan") if torch is None else 1e9]
    for _ in range(TURNS):
        times[0] = min(times[0], shortest(lambda: each(x), SECONDS))
        times[1] = min(times[1], shortest(lambda: once(x), SECONDS))
        if torch is not None:
            times[2] = min(times[2], torch.time({"kind": case.kind, "sizes": case.sizes}, SECONDS))
    return [*times, nbytes]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", help="a Python that has PyTorch")
    parser.add_argument("--only", default="", help="cases whose line holds this text")
    arguments = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    with Torch(arguments.torch, TORCH) if arguments.torch else contextlib.nullcontext() as torch:
        print(f"{'':34}{'each call':>11}{'once':>10}{'torch':>10}   gain  torch/once  GB/s")
        for case in CASES:
            if arguments.only in str(case):
                each, once, theirs, nbytes = measure(case, torch)
                line = f"{case!s:34}{each * 1e3:11.4f}{once * 1e3:10.4f}{theirs * 1e3:10.4f}"
                print(f"{line}{each / once:7.2f}{theirs / once:12.2f}{nbytes / once / 1e9:6.0f}", flush=True)


if __name__ == "__main__":
    main()
