"""Functions of elements as compiled programs have them, beside PyTorch, on one thread.

    python benchmarks/functions.py [FUNCTION ...] [--dtype float32 ...] [--seconds T] [--torch PYTHON]

Prints nanoseconds an element of one call on 16384 elements, which stay in the second-level cache, and PyTorch's time by ours, the worst first: below 1,
PyTorch is faster. Results are compared; what disagrees is told, and the exit code is 1 then. vector_math.py has the same functions without a program
around them, on fewer registers. Pin the process to a core (`taskset -c 0`) for steady figures.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import Torch, shortest

ENVIRONMENT = {"GRAPHCELL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GRAPHCELL_CACHE": "0"}
PEER = Path(os.environ.get("PEERS", "~/.cache/graphcell-peers")).expanduser() / "torch" / "bin" / "python"
COUNT = 16384
TURNS = 3
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}
WIDE, POSITIVE, INSIDE, ABOVE = (-4.0, 4.0), (0.1, 4.0), (-0.95, 0.95), (1.1, 9.0)
RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("exp", "expm1", "tanh", "sigmoid", "erf", "erfc", "sin", "cos", "tan", "atan", "sinh", "cosh", "asinh", "floor", "square", "abs"), WIDE),
    **dict.fromkeys(("softplus", "gelu", "silu", "mish", "logsigmoid"), WIDE),
    **dict.fromkeys(("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "lgamma", "digamma", "reciprocal"), POSITIVE),
    **dict.fromkeys(("asin", "acos", "atanh", "erfinv"), INSIDE),
    "acosh": ABOVE,
    **dict.fromkeys(("pow", "atan2", "div", "fmod", "logaddexp", "hypot"), POSITIVE),
}  # fmt: skip
OF_TWO = ("pow", "atan2", "div", "fmod", "logaddexp", "hypot")
TORCH = f"""
import numpy as np
sys.path.insert(0, {str(Path(__file__).parent)!r})
from functions import numbers

def program(case):
    name, dtype = case["name"], getattr(torch, case["dtype"])
    function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    xs = [torch.from_numpy(x).to(dtype) for x in numbers(name)]
    return lambda: function(*xs)

def summary(result):
    return result.double().tolist()
"""

Array = np.ndarray[Any, Any]


def numbers(name: str) -> list[Array]:
    """The operands of a function."""
    rng = np.random.default_rng(0)
    return [rng.uniform(*RANGES[name], COUNT) for _ in range(1 + (name in OF_TWO))]


def measure(name: str, dtype: str, torch: Torch, seconds: float) -> tuple[float, float, bool]:
    """Nanoseconds an element, ours and PyTorch's, and whether the results agree."""
    import graphcell as ms

    compiled = ms.jit(getattr(ms.ops, name))
    xs = [ms.Tensor(x, getattr(ms, dtype)) for x in numbers(name)]
    case = {"name": name, "dtype": dtype}
    mine, theirs = compiled(*xs).astype(ms.float64).asnumpy(), np.array(torch.summary(case))
    times = [(shortest(lambda: compiled(*xs), seconds), torch.time(case, seconds)) for _ in range(TURNS)]
    ours, peers = (min(column) / COUNT * 1e9 for column in zip(*times, strict=True))
    return ours, peers, bool(np.allclose(mine, theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="FUNCTION", help=", ".join(RANGES))
    parser.add_argument("--dtype", nargs="*", choices=list(TOLERANCE), default=["float32", "float64"])
    parser.add_argument("--seconds", type=float, default=0.05, help="of a turn, of three for each function")
    parser.add_argument("--torch", type=Path, default=PEER, help="a Python with PyTorch")
    options = parser.parse_args()
    if unknown := [n for n in options.names if n not in RANGES]:
        parser.error(f"no such function: {', '.join(unknown)}")
    if not options.torch.expanduser().exists():
        parser.error(f"there is no {options.torch}: benchmarks/peers/setup.sh installs PyTorch, --torch names another Python that has it")
    differing = []
    with Torch(options.torch, TORCH) as torch:
        for dtype in options.dtype:
            rows = {name: measure(name, dtype, torch, options.seconds) for name in options.names or RANGES}
            print(f"{dtype}, ns an element  {'graphcell':>9} {'PyTorch':>9} {'ratio':>7}")
            for name, (ours, theirs, _) in sorted(rows.items(), key=lambda row: row[1][1] / row[1][0]):
                print(f"  {name:<20} {ours:9.3f} {theirs:9.3f} {theirs / ours:7.2f}", flush=True)
            ratios = [theirs / ours for ours, theirs, _ in rows.values()]
            print(f"  geometric mean {np.exp(np.mean(np.log(ratios))):.2f}, least {min(ratios):.2f}", flush=True)
            differing += [f"{name} of {dtype}" for name, (_, _, agrees) in rows.items() if not agrees]
    for what in differing:
        print(f"PyTorch's results differ: {what}", file=sys.stderr)
    return int(bool(differing))


if __name__ == "__main__":
    os.environ |= ENVIRONMENT
    sys.exit(main())
