"""Microseconds of products and convolutions with tile registers (AMX) and without, on one thread, beside PyTorch in the same run.

    python benchmarks/tile_registers.py [--torch path/to/python] [--only text]

The three are timed in turns and the best of all turns counts, so compare the columns of a line. "tiles" says whether the product uses them: small ones do
not. Pin the process to a core (`taskset -c 0`) for steady figures. Where a processor has no such registers, or `GRAPHCELL_TILES=0`, it says so and ends.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from unittest import mock

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "GRAPHCELL_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402
from side_by_side import Torch, shortest  # noqa: E402

import graphcell as ms  # noqa: E402
from graphcell import Tensor, ops  # noqa: E402
from graphcell.codegen.llvm.contraction import multiplies_tiles  # noqa: E402
from graphcell.codegen.llvm.target import host  # noqa: E402

SECONDS, TURNS = 0.1, 3
DTYPES = ("float32", "float16", "bfloat16")
PRODUCTS = [(64, 64, 64), (32, 256, 1024), (256, 256, 256), (512, 64, 512), (133, 517, 77), (512, 512, 512), (1024, 1024, 1024)]
LAYERS = [(1, 64, 56, 56, 128, 3, 2, 1), (8, 256, 14, 14, 256, 3, 1, 1), (1, 3, 224, 224, 64, 7, 2, 3)]
"""Images, channels, height, width, filters, taps, stride, padding; in bfloat16."""

TORCH = """
def program(case):
    dtype, sizes = getattr(torch, case["dtype"]), case["sizes"]
    if len(sizes) == 3:
        m, k, n = sizes
        x, w = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
        return lambda: x @ w.T
    images, c, h, w, filters, taps, stride, padding = sizes
    x, f = torch.randn(images, c, h, w).to(dtype), torch.randn(filters, c, taps, taps).to(dtype)
    return lambda: torch.nn.functional.conv2d(x, f, None, stride, padding)
"""


def compiled(dtype: str, sizes: tuple[int, ...], tiles: bool) -> tuple[Callable[[], object], bool]:
    """A call of the program, and whether it uses tile registers."""
    rng = np.random.default_rng(0)

    def random(*shape: int) -> Tensor:
        return Tensor(rng.standard_normal(shape).astype(np.float32)).astype(getattr(ms, dtype))

    with mock.patch.dict(os.environ, {} if tiles else {"GRAPHCELL_TILES": "0"}):
        if len(sizes) == 3:
            m, k, n = sizes
            operands = random(m, k), random(n, k)
            f = ms.jit(lambda x, w: ops.matmul(x, w.swapaxes(0, 1)))
        else:
            images, c, h, w, filters, taps, stride, padding = sizes
            operands = random(images, c, h, w), random(filters, c, taps, taps)
            f = ms.jit(lambda x, w: ops.conv2d(x, w, None, stride, "pad", padding))
        f(*operands)
        return lambda: f(*operands), "tile registers" in f.kernels()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", help="a Python that has PyTorch")
    parser.add_argument("--only", default="", help="lines that have this text")
    given = parser.parse_args()
    if not multiplies_tiles(host()):
        sys.exit("This processor has no tile registers, the system does not give them, or GRAPHCELL_TILES=0.")
    print(f"{'program':46} {'tiles':>5} {'with µs':>9} {'without µs':>10} {'torch µs':>9} {'gain':>5}")
    with contextlib.ExitStack() as stack:
        torch = stack.enter_context(Torch(given.torch, TORCH)) if given.torch else None
        for dtype, sizes in [(d, s) for s in PRODUCTS for d in DTYPES] + [("bfloat16", s) for s in LAYERS]:
            name = f"{'product' if len(sizes) == 3 else 'convolution'} {dtype} {'x'.join(map(str, sizes))}"
            if given.only not in name:
                continue
            (ours, used), (other, _) = compiled(dtype, sizes, tiles=True), compiled(dtype, sizes, tiles=False)
            times = [float("inf")] * 3
            for _ in range(TURNS):
                peer_time = float("inf") if torch is None else torch.time({"dtype": dtype, "sizes": sizes}, SECONDS)
                times = [min(a, b) for a, b in zip(times, (shortest(ours, SECONDS), shortest(other, SECONDS), peer_time), strict=True)]
            peer = "" if torch is None else f"{times[2] * 1e6:.1f}"
            print(f"{name:46} {'yes' if used else 'no':>5} {times[0] * 1e6:9.1f} {times[1] * 1e6:10.1f} {peer:>9} {times[1] / times[0]:5.2f}", flush=True)


if __name__ == "__main__":
    main()
