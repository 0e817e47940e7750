"""What a program waits for before its first step: the import, the first compilation, and what a call costs afterwards.

    python benchmarks/startup.py [--rounds 5] [--peers FOLDER]

Each figure is the median of fresh processes. `import` is beside that of numpy alone, measured in the same run; `compile` is the first call of a
small training step (Dense, cross entropy, Momentum), with an empty and with a filled cache of machine code; `call` is a call of a compiled
Dense(16, 16). FOLDER holds environments `mindspore`, `torch` and `jax` whose imports are measured too; what is not installed is left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent

IMPORT = "import time; begin = time.perf_counter(); import {module}; print(time.perf_counter() - begin)"

STEP = """
import time
import numpy as np
import graphcell as ms
from graphcell import nn, ops

net, loss_fn = nn.SequentialCell(nn.Dense(64, 32), nn.ReLU(), nn.Dense(32, 10)), nn.CrossEntropyLoss()
optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
gradient = ms.value_and_grad(lambda x, y: loss_fn(net(x), y), None, optimizer.parameters)

@ms.jit
def step(x, y):
    loss, gradients = gradient(x, y)
    return ops.depend(loss, optimizer(gradients))

x, y = ms.Tensor(np.ones((8, 64), np.float32)), ms.Tensor(np.zeros(8, np.int32))
begin = time.perf_counter()
step(x, y).asnumpy()
print(time.perf_counter() - begin)
"""

CALL = """
import time
import numpy as np
import graphcell as ms

net, x = ms.jit(ms.nn.Dense(16, 16)), ms.Tensor(np.ones((1, 16), np.float32))
for _ in range(1000):
    net(x)
best = 1.0
for _ in range(20):
    begin = time.perf_counter()
    for _ in range(500):
        net(x)
    best = min(best, (time.perf_counter() - begin) / 500)
print(best)
"""


def seconds(program: str, python: str | Path = sys.executable, **environment: str) -> float | None:
    """What a program prints, or None if it fails."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:  # a file: functions without source cannot be compiled
        file.write(program)
        file.flush()
        variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        done = subprocess.run([str(python), file.name], capture_output=True, text=True, env=variables, timeout=300)
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


def show(title: str, runs: list[float | None], unit: float, name: str) -> None:
    """One line: the median and the least."""
    good = [r for r in runs if r is not None]
    if not good:
        print(f"{title:34} failed")
        return
    print(f"{title:34} {statistics.median(good) * unit:8.1f} {name} (least {min(good) * unit:.1f})")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", type=Path)
    options = parser.parse_args()
    imports: list[tuple[str, str | Path]] = [("numpy", sys.executable), ("graphcell", sys.executable)]
    if options.peers:
        places = [(name, options.peers / name / "bin" / "python") for name in ("mindspore", "torch", "jax")]
        imports += [(name, place) for name, place in places if place.exists()]
    with tempfile.TemporaryDirectory() as bytecode:  # compiled once, as an installed package is
        kept = {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
        for module, python in imports:
            seconds(IMPORT.format(module=module), python, **kept)
        rounds = [[seconds(IMPORT.format(module=module), python, **kept) for module, python in imports] for _ in range(options.rounds)]
        for (module, _), runs in zip(imports, zip(*rounds)):
            show(f"import {module}", list(runs), 1e3, "ms")
        cold, warm = [], []
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as cache:
                cold.append(seconds(STEP, GRAPHCELL_CACHE_DIR=cache, **kept))
                warm.append(seconds(STEP, GRAPHCELL_CACHE_DIR=cache, **kept))
        show("first training step, empty cache", cold, 1e3, "ms")
        show("first training step, filled cache", warm, 1e3, "ms")
        show("call of a compiled Dense(16, 16)", [seconds(CALL, **kept) for _ in range(options.rounds)], 1e6, "µs")


if __name__ == "__main__":
    main()
