"""Convolutions of unit stride: direct summation, Winograd's algorithm in its forms, and which is chosen.

    python benchmarks/convolutions.py [--op forward|input|weights] [--taps 3|5|1x7|...] [--dilation 1] [--lines] [--only text]
        [--prepared]

A line has for each way the microseconds measured and, in brackets, as the schedule estimates them (for a clock of
`--ghz`); "own" transforms the weights where they are used, not in a stage. Then what the schedule chose, how much
faster that is than direct summation, and how much slower than the best way. With --prepared the stages that
read the weights only are left out, on both sides. With --lines images are
long rows, as those of one-dimensional convolutions. Pin the process to a core (`taskset -c 0`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import contractions
import numpy as np
from contractions import Array, ConvCase, Native, native

from graphcell.codegen.llvm import winograd_gradient_schedule as gradient
from graphcell.codegen.llvm import winograd_schedule as forward
from graphcell.codegen.llvm.correlation import ConvSpec, Correlation, forward_correlation, gradient_correlations
from graphcell.codegen.llvm.target import host
from graphcell.codegen.llvm.winograd import emit_winograd
from graphcell.codegen.llvm.winograd_gradient import emit_winograd_gradient
from graphcell.codegen.llvm.winograd_transforms import FORWARD, GRADIENT

SHAPES = (  # images, height and width, channels, filters
    (1, 224, 3, 64), (1, 224, 16, 16), (1, 56, 64, 64), (1, 56, 128, 128), (1, 28, 128, 128), (1, 28, 256, 256),
    (1, 14, 256, 256), (1, 14, 512, 512), (1, 7, 512, 512), (1, 32, 64, 64), (1, 16, 128, 128), (1, 8, 256, 256),
    (1, 4, 512, 512), (1, 5, 16, 16), (1, 33, 20, 20), (1, 12, 8, 200), (1, 64, 320, 320), (2, 112, 64, 64), (4, 56, 64, 64),
    (4, 6, 3, 16), (8, 5, 32, 32), (16, 32, 3, 64), (16, 32, 16, 16), (16, 32, 32, 64), (16, 32, 64, 64), (16, 16, 128, 128),
    (16, 8, 256, 256), (16, 4, 512, 512), (16, 31, 8, 8), (16, 17, 24, 40), (16, 13, 100, 50), (16, 9, 64, 64), (16, 12, 200, 8),
    (16, 1, 128, 128), (32, 3, 64, 64), (32, 2, 256, 256), (64, 7, 128, 128), (64, 7, 512, 512), (64, 4, 64, 64), (64, 4, 512, 512),
    (64, 28, 1, 8), (64, 14, 8, 16),
)  # fmt: skip
LINES = (  # images, length, channels, filters
    (8, 500, 128, 128), (8, 500, 24, 24), (1, 800, 32, 32), (2, 800, 32, 32), (16, 50, 64, 64), (32, 128, 64, 64), (8, 2000, 8, 8), (4, 100, 3, 16),
    (1, 4000, 64, 64), (8, 31, 256, 256), (64, 8, 20, 20), (8, 500, 64, 6), (1, 60, 512, 512), (2, 16, 64, 64), (8, 125, 100, 40), (8, 2000, 1, 32),
)  # fmt: skip


@dataclass
class Way:
    """One way to do it: how it is called in the table, compiled, and its estimated time in cycles."""

    name: str
    run: Native
    estimate: float


def ways(spec: ConvSpec, op: str, prepared: bool, arrays: dict[str, Array]) -> Iterator[Way]:
    """Direct summation first."""
    target = host()
    os.environ[forward.SWITCH_VARIABLE] = "0"
    direct = ConvCase("", spec, op).native(arrays)
    del os.environ[forward.SWITCH_VARIABLE]
    if op == "weights":
        yield Way("direct", direct, gradient.direct_time(spec, target))
        for algorithm in GRADIENT.get((spec.kh, spec.kw), ()):
            found = gradient.schedule(spec, target, algorithm)
            run = native(lambda m, t, p=found: emit_winograd_gradient(m, "winograd", spec, p, t, None, ()), arrays)  # type: ignore[misc]
            yield Way(str(algorithm), run, gradient.winograd_time(spec, found, target))
        return
    part, names = correlation(spec, op), ("x", "w", "y") if op == "forward" else ("dy", "w", "dx")
    yield Way("direct", direct, forward.direct_time(part, target, prepared))
    for algorithm in FORWARD[spec.kh, spec.kw]:
        for own in (False, True):
            plan = forward.schedule(part, target, algorithm, own)
            run = native(lambda m, t, p=plan: emit_winograd(m, "winograd", part, p, t, None, (), names), arrays)  # type: ignore[misc]
            yield Way(f"{algorithm}{' own' * own}", run, forward.winograd_time(part, plan, target, prepared))


def correlation(spec: ConvSpec, op: str) -> Correlation:
    return forward_correlation(spec) if op == "forward" else gradient_correlations(spec)[0]


def chosen(spec: ConvSpec, op: str, prepared: bool) -> str:
    if op == "weights":
        found = gradient.choose(spec, host())
        return str(found.algorithm) if found else "direct"
    plan = forward.choose(correlation(spec, op), host(), prepared)
    return f"{plan.algorithm}{' own' * bool(plan.chunk)}" if plan else "direct"


def arrays_of(spec: ConvSpec, op: str) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((spec.n, spec.h, spec.w, spec.c), np.float32)
    y = rng.standard_normal((spec.n, spec.oh, spec.ow, spec.k), np.float32)
    w = rng.standard_normal((spec.k, spec.c, spec.kh, spec.kw), np.float32)
    return {"forward": {"x": x, "w": w, "y": y}, "input": {"dy": y, "w": w, "dx": x}, "weights": {"x": x, "dy": y, "dw": w}}[op]


def report(spec: ConvSpec, op: str, prepared: bool, cycles: float) -> str:
    found = list(ways(spec, op, prepared, arrays_of(spec, op)))
    seconds: dict[str, float] = {}
    for _ in range(contractions.TURNS):  # in turns: a shared machine changes its speed
        for way in found:
            seconds[way.name] = min(seconds.get(way.name, 1e9), way.run.best(prepared))
    taken = chosen(spec, op, prepared)
    each = "  ".join(f"{way.name} {seconds[way.name] * 1e6:.0f} ({way.estimate / cycles * 1e6:.0f})" for way in found)
    ratio, loss = seconds["direct"] / seconds[taken], seconds[taken] / min(seconds.values())
    return f"{each}  chosen: {taken}, {ratio:.2f} times direct, best / chosen {1 / loss:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op", default="forward", choices=("forward", "input", "weights"))
    parser.add_argument("--taps", default="3", help="along each side, or down and across as 1x7")
    parser.add_argument("--dilation", type=int, default=1, help="along the axes that have several taps")
    parser.add_argument("--lines", action="store_true", help="images of one row")
    parser.add_argument("--only", default="", help="run the cases whose name contains this text")
    parser.add_argument("--prepared", action="store_true", help="weights are transformed in advance")
    parser.add_argument("--ghz", type=float, default=3.7, help="512-bit multiply-adds a nanosecond of this processor")
    options = parser.parse_args()
    contractions.SECONDS = 0.02
    line: Callable[[ConvSpec], str] = lambda spec: report(spec, options.op, options.prepared, options.ghz * 1e9)  # noqa: E731
    kh, kw = (int(n) for n in (options.taps if "x" in options.taps else f"{options.taps}x{options.taps}").split("x"))
    shapes = [(n, 1, w, c, k) for n, w, c, k in LINES] if options.lines else [(n, size, size, c, k) for n, size, c, k in SHAPES]
    down, across = (options.dilation * (taps // 2) for taps in (kh, kw))
    for n, h, w, c, k in shapes:
        name = f"{n}x{h}x{w}x{c}->{k}"
        if options.only in name:
            spec = ConvSpec(n, h, w, c, k, kh, kw, padding=(down, down, across, across), dilation=(options.dilation,) * 2)
            print(f"{name:20} {line(spec)}", flush=True)


if __name__ == "__main__":
    main()
