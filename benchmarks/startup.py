"""What a program waits for before its first step: the import, the first compilation, and what a call costs afterwards.

    python benchmarks/startup.py [--rounds 5] [--peers FOLDER] [--models NAME ...]

Each figure is the median of fresh processes whose calls run on one thread; LLVM uses all processors. `import` is beside that of numpy alone,
measured in the same run; `compile` is the first call of a small training step (Dense, cross entropy, Momentum), with an empty and with a filled
cache of machine code; `call` is a call of a compiled Dense(16, 16). `--models` (all of them, if it stands without a name)
are the first calls of whole programs of peers/workloads_ms.py, and of deeper ones, with empty and filled cache, and what the second call takes,
which is part of the first. FOLDER holds environments `mindspore`, `torch` and `jax` whose imports are measured too; what is not installed is left out.
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


MODEL = """
import os, sys, time
os.environ["MOD"] = "graphcell"
sys.path.insert(0, {peers!r})
import workloads_ms as w
w.ms.set_context(mode=w.ms.GRAPH_MODE)

class Bottleneck(w.nn.Cell):
    def __init__(self, cin, width, stride):
        super().__init__()
        def conv(a, b, k, s=1):
            return [w.nn.Conv2d(a, b, k, stride=s, pad_mode="pad", padding=k // 2), w.nn.BatchNorm2d(b)]
        relu = w.nn.ReLU()
        self.body = w.nn.SequentialCell([*conv(cin, width, 1), relu, *conv(width, width, 3, stride), relu, *conv(width, 4 * width, 1)])
        self.relu = relu
        self.down = w.nn.SequentialCell(conv(cin, 4 * width, 1, stride)) if stride != 1 or cin != 4 * width else None

    def construct(self, x):
        return self.relu(self.body(x) + (x if self.down is None else self.down(x)))

class ResNet50(w.nn.Cell):
    def __init__(self):
        super().__init__()
        layers, cin = [w.nn.Conv2d(3, 64, 3, pad_mode="pad", padding=1), w.nn.BatchNorm2d(64), w.nn.ReLU()], 64
        for stage, (width, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
            for k in range(count):
                layers.append(Bottleneck(cin, width, 2 if stage and not k else 1))
                cin = 4 * width
        self.body, self.fc = w.nn.SequentialCell(layers), w.nn.Dense(2048, 10)

    def construct(self, x):
        return self.fc(self.body(x).mean((2, 3)))

def transformer12_train():
    tokens = w.Tensor(w.rng.integers(0, 1000, (2, 128)).astype("int32"))
    return w.train(w.Transformer(n=12), tokens, w.labels(256, 1000), opt="adam")

def resnet50_train():
    return w.train(ResNet50(), w.t(2, 3, 32, 32), w.labels(2, 10))

run = globals().get({name!r}) or getattr(w, {name!r})
run = run()
begin = time.perf_counter()
w.first(run())
middle = time.perf_counter()
w.first(run())
print(time.perf_counter() - middle, middle - begin)
"""
MODELS = (
    "tiny_latency", "fused_elementwise", "layernorm_gelu", "softmax_xent", "mlp_train", "lenet_train", "lstm_train", "transformer_train", "transformer12_train",
    "resnet18_infer", "resnet18_train", "resnet50_train",
)  # fmt: skip


def seconds(program: str, python: str | Path = sys.executable, **environment: str) -> float | None:
    """The last number that a program prints, or None if it fails."""
    numbers = printed(program, python, **environment)
    return numbers[-1] if numbers else None


def printed(program: str, python: str | Path = sys.executable, **environment: str) -> list[float]:
    """The numbers that a program prints; none if it fails."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:  # a file: functions without source cannot be compiled
        file.write(program)
        file.flush()
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "GRAPHCELL_NUM_THREADS": "1", **environment}
        done = subprocess.run([str(python), file.name], capture_output=True, text=True, env=variables, timeout=300)
    return [float(x) for x in done.stdout.split()] if done.returncode == 0 else []


def show(title: str, runs: list[float | None], unit: float, name: str) -> None:
    """One line: the median and the least."""
    good = [r for r in runs if r is not None]
    if not good:
        print(f"{title:34} failed")
        return
    print(f"{title:34} {statistics.median(good) * unit:8.1f} {name} (least {min(good) * unit:.1f})")


def show_models(names: list[str], rounds: int, kept: dict[str, str]) -> None:
    """A line for each program: first call with an empty and a filled cache, second call."""
    print(f"{'first call, ms':22}{'empty':>9}{'filled':>9}{'2nd call':>10}")
    for name in names:
        program = MODEL.format(peers=str(ROOT / "benchmarks" / "peers"), name=name)
        cold, warm = [], []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as cache:
                cold.append(printed(program, GRAPHCELL_CACHE_DIR=cache, **kept))
                warm.append(printed(program, GRAPHCELL_CACHE_DIR=cache, **kept))
        if not all(cold + warm):
            print(f"{name:22} failed")
            continue
        empty, filled, again = (statistics.median(row[k] for row in rows) * 1e3 for rows, k in ((cold, 1), (warm, 1), (warm, 0)))
        print(f"{name:22}{empty:9.0f}{filled:9.0f}{again:10.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--models", nargs="*", choices=MODELS)
    options = parser.parse_args()
    imports: list[tuple[str, str | Path]] = [("numpy", sys.executable), ("graphcell", sys.executable)]
    if options.peers:
        places = [(name, options.peers / name / "bin" / "python") for name in ("mindspore", "torch", "jax")]
        imports += [(name, place) for name, place in places if place.exists()]
    with tempfile.TemporaryDirectory() as bytecode:  # compiled once, as an installed package is
        kept = {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
        if options.models is not None:
            seconds(CALL, **kept)  # so that bytecode is there
            show_models(options.models or list(MODELS), options.rounds, kept)
            return
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
