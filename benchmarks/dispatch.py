"""Microseconds of a call: of compiled functions beside JAX, and of eager ops beside PyTorch, each library in a process of its own.

    python benchmarks/dispatch.py                                       # graphcell alone
    python benchmarks/dispatch.py --jax PYTHON --torch PYTHON           # beside them, given the interpreters that have them
    python benchmarks/dispatch.py --only graphcell                      # the figures of one library as JSON

The work itself is tiny (16 elements), so that the figure is the cost of checking arguments, of calling, and of the results. One thread.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Cases = dict[str, Callable[[], Any]]
PARAMETERS = 100
ROUNDS = 7
TITLES = {
    "no argument": "compiled, no argument", "one input": "compiled, one input", "one input, asnumpy": "compiled, one input, result read",
    "keyword": "compiled, keyword argument", "nested": "compiled, nested tuples, lists and a dict", "two shapes": "compiled, two shapes in turn",
    "parameters": f"compiled, reads {PARAMETERS} Parameters", "training step": f"training step, updates {PARAMETERS} Parameters",
    "set_train": "that with net.set_train() before it", "eager add": "eager x + y", "eager scalar": "eager x * 1.5", "eager tanh": "eager tanh(x)",
    "eager softmax": "eager softmax(x)", "eager layer_norm": "eager layer_norm(x, w, b)", "eager gradient": "eager gradient of (x * x + x).sum()",
}  # fmt: skip


def best(run: Callable[[], Any]) -> float:
    """Microseconds of one call: the least of several rounds, after a while to warm up."""
    end = time.perf_counter() + 0.4
    count = 0
    while time.perf_counter() < end:
        run()
        count += 1
    loops, times = max(1, count // 10), []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(loops):
            run()
        times.append((time.perf_counter() - start) / loops)
    return min(times) * 1e6


def array(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def graphcell_cases() -> Cases:
    import graphcell as ms
    from graphcell import Parameter, Tensor, jit, nn, ops

    x, y, w, b = (Tensor(array(16)) for _ in range(4))
    longer = Tensor(array(17))
    weights = [Parameter(Tensor(array(16)), name=f"w{k}") for k in range(PARAMETERS)]

    class Layer(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w = Parameter(Tensor(array(16)), name="w")

        def construct(self, x: Any) -> Any:
            return x * self.w

    net = nn.SequentialCell([Layer() for _ in range(PARAMETERS)])
    net.set_train()
    optimizer = nn.Momentum(net.trainable_params(), learning_rate=1e-6, momentum=0.9)
    gradient = ms.value_and_grad(lambda x: net(x).sum(), None, optimizer.parameters)

    @jit
    def step(x: Any) -> Any:
        loss, grads = gradient(x)
        return ops.depend(loss, optimizer(grads))

    @jit
    def reading(x: Any) -> Any:
        for p in weights:
            x = x + p
        return x

    @jit
    def nested(batch: Any) -> Any:
        (a, [b, _]), rest = batch
        return a + b, {"c": rest["c"] * 2}

    nothing, one, key = jit(lambda: x + y), jit(lambda x: x + 1), jit(lambda x, scale=1.0: x * scale)
    batch = ((x, [y, None]), {"c": w})
    both = ms.grad(lambda x: (x * x + x).sum())
    return {
        "no argument": nothing, "one input": lambda: one(x), "one input, asnumpy": lambda: one(x).asnumpy(),
        "keyword": lambda: key(x, scale=2.0), "nested": lambda: nested(batch), "two shapes": lambda: (one(x), one(longer)),
        "parameters": lambda: reading(x), "training step": lambda: step(x), "set_train": lambda: (net.set_train(), step(x)),
        "eager add": lambda: x + y, "eager scalar": lambda: x * 1.5, "eager tanh": lambda: ops.tanh(x), "eager softmax": lambda: ops.softmax(x),
        "eager layer_norm": lambda: ops.layer_norm(x, (16,), w, b), "eager gradient": lambda: both(x),
    }  # fmt: skip


def jax_cases() -> Cases:
    jax = importlib.import_module("jax")
    jnp = jax.numpy
    x, y, w = (jnp.asarray(array(16)) for _ in range(3))
    longer = jnp.asarray(array(17))
    weights = [jnp.asarray(array(16)) for _ in range(PARAMETERS)]
    momenta = [jnp.zeros(16) for _ in range(PARAMETERS)]

    def loss(weights: Any, x: Any) -> Any:
        for p in weights:
            x = x * p
        return x.sum()

    def update(weights: Any, momenta: Any, x: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(weights, x)
        momenta = [0.9 * m + g for m, g in zip(momenta, grads)]
        return value, [p - 1e-6 * m for p, m in zip(weights, momenta)], momenta

    held = [weights, momenta]
    compiled = jax.jit(update, donate_argnums=(0, 1))

    def step() -> Any:
        value, *held[:] = compiled(*held, x)
        return value

    one, key = jax.jit(lambda x: x + 1), jax.jit(lambda x, scale: x * scale)
    reading_of = jax.jit(lambda ps, x: sum(ps, x))
    own = [jnp.asarray(array(16)) for _ in range(PARAMETERS)]
    nested = jax.jit(lambda batch: (batch[0][0] + batch[0][1][0], {"c": batch[1]["c"] * 2}))
    nothing, batch = jax.jit(lambda: x + y), ((x, [y, None]), {"c": w})
    return {
        "no argument": nothing, "one input": lambda: one(x).block_until_ready(), "one input, asnumpy": lambda: np.asarray(one(x)),
        "keyword": lambda: key(x, scale=2.0), "nested": lambda: nested(batch), "two shapes": lambda: (one(x), one(longer)),
        "parameters": lambda: reading_of(own, x), "training step": step,
    }  # fmt: skip


def torch_cases() -> Cases:
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    x, y, w, b = (torch.from_numpy(array(16)) for _ in range(4))
    z = torch.from_numpy(array(16)).requires_grad_()
    functional = torch.nn.functional
    return {
        "eager add": lambda: x + y, "eager scalar": lambda: x * 1.5, "eager tanh": lambda: torch.tanh(x),
        "eager softmax": lambda: torch.softmax(x, -1), "eager layer_norm": lambda: functional.layer_norm(x, (16,), w, b),
        "eager gradient": lambda: torch.autograd.grad((z * z + z).sum(), z),
    }  # fmt: skip


CASES: dict[str, Callable[[], Cases]] = {"graphcell": graphcell_cases, "jax": jax_cases, "torch": torch_cases}


def measured(library: str, python: str) -> dict[str, float]:
    """The figures of one library, from a process of its own."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GRAPHCELL_NUM_THREADS": "1"}
    run = subprocess.run([python, __file__, "--only", library], env=env, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(run.stdout.strip().splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jax", default="", help="a Python that has JAX")
    parser.add_argument("--torch", default="", help="a Python that has PyTorch")
    parser.add_argument("--only", choices=sorted(CASES), help="measure this library here and print JSON")
    given = parser.parse_args()
    if given.only:
        print(json.dumps({name: best(run) for name, run in CASES[given.only]().items()}))
        return
    pythons = {"graphcell": sys.executable, "jax": given.jax, "torch": given.torch}
    columns = {library: measured(library, python) for library, python in pythons.items() if python}
    print(f"{'microseconds a call':<46}" + "".join(f"{library:>12}" for library in columns))
    for name, title in TITLES.items():
        cells = [f"{figures[name]:12.2f}" if name in figures else f"{'':>12}" for figures in columns.values()]
        print(f"{title:<46}" + "".join(cells))


if __name__ == "__main__":
    main()
