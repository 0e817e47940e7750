"""Random shapes of one kind of operation at a time, on one thread, beside PyTorch.

    python benchmarks/random_shapes.py [FAMILY ...] [--seed S] [--cases N] [--seconds T] [--worst K] [--only N,N,...] [--torch PYTHON]

Prints for each family (random_cases.py has them) the number of cases, the geometric mean of PyTorch's time by ours, how many of these ratios are
below 1, where PyTorch is faster, and the worst cases. A case follows from its family, the seed and its number alone, so that `--only` repeats it, and
takes between some 20 microseconds and some 30 ms. "training" is with the gradients of all inputs and weights, for a given gradient of the
result. Each case is timed in turns (ours, PyTorch, ours, ...), the shortest time counts; of PyTorch that of the fastest way to write it.

Both are given the same numbers, and their results are compared by sums of many short ranges. What disagrees, or raises an error, is told at
once and again at the end; the exit code is 1 then. Pin the process to a core (`taskset -c 0`) for steady figures.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from random_cases import FAMILIES, Case, Shape, drawn
from side_by_side import Torch, shortest

ENVIRONMENT = {"GRAPHCELL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GRAPHCELL_CACHE": "0"}
TURNS = 3
PEER = Path(os.environ.get("PEERS", "~/.cache/graphcell-peers")).expanduser() / "torch" / "bin" / "python"
TORCH = f"""
sys.path.insert(0, {str(Path(__file__).parent)!r})
from random_shapes import summary_of_theirs as summary, theirs as program
"""
RANGES = 64  # of each result, which are compared
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 3e-2}

Array = np.ndarray[Any, Any]
Summary = list[tuple[list[int], list[float], list[float]]]
"""Of each result its shape and, of each range, the sum of its numbers with weights that differ and that of their magnitudes."""


@dataclass(frozen=True)
class Measured:
    """Seconds of one case in both."""

    name: str
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        return self.theirs / self.ours

    def __str__(self) -> str:
        return f"  {self.ratio:8.2f} {self.ours * 1e6:12.1f} {self.theirs * 1e6:12.1f}  {self.name}"


def arrays(case: Case, seed: int, parameters: Sequence[Shape]) -> tuple[list[Array], list[Array], Array]:
    """Random numbers for the inputs, for Parameters of these shapes, and those by which the result is multiplied to give its gradient.

    (A gradient that does not vanish where the result does would count each zero of a ReLU that rounding makes a positive number.)
    """
    numbers = np.random.default_rng(seed)
    inputs = [numbers.standard_normal(shape) for shape in case.inputs]
    weights = [numbers.standard_normal(shape) * case.deviation for shape in parameters]
    return inputs, weights, numbers.standard_normal(case.result)


def ours(case: Case, seed: int) -> Callable[[], list[Any]]:
    """The case here, as a function without arguments: it gives the result, then the gradients of the inputs and of the Parameters by their names."""
    import graphcell as gc

    gc.set_context(mode=gc.GRAPH_MODE)
    program = case.ours(gc)
    parameters = sorted(program.trainable_params(), key=lambda p: p.name) if isinstance(program, gc.nn.Cell) else []
    inputs, weights, factors = arrays(case, seed, [p.shape for p in parameters])

    def tensor(array: Array) -> Any:
        return gc.Tensor(array).astype(getattr(gc, case.dtype))

    for parameter, values in zip(parameters, weights, strict=True):
        parameter.set_dtype(getattr(gc, case.dtype))
        parameter.set_data(tensor(values))
    tensors = list(map(tensor, inputs))

    def forward(*inputs: Any) -> Any:
        y = program(*inputs)
        return y[0] if isinstance(y, tuple) else y

    run = gc.jit(forward)
    if case.gradients:
        cotangent = run(*tensors) * tensor(factors)
        run = gc.jit(gc.value_and_grad(forward, tuple(range(len(tensors))), parameters or None, sens_param=True))
        tensors.append(cotangent)
    return lambda: flat(run(*tensors))


def flat(results: Any) -> list[Any]:
    """The Tensors of nested tuples."""
    return [tensor for part in results for tensor in flat(part)] if isinstance(results, (tuple, list)) else [results]


def theirs(request: dict[str, Any]) -> Callable[[], list[Any]]:
    """As `ours`, in PyTorch's process: what to time for a request of the other."""
    return _theirs(request["family"], request["seed"], request["number"], request["way"])


@functools.lru_cache(maxsize=2)  # the ways of one case, which take turns
def _theirs(family: str, seed: int, number: int, way: str) -> Callable[[], list[Any]]:
    import torch  # type: ignore[import-not-found]

    case = drawn(family, seed, number)
    dtype = getattr(torch, case.dtype)
    program = getattr(case, way)(torch)
    parameters = [p for _, p in sorted(program.to(dtype).named_parameters())] if isinstance(program, torch.nn.Module) else []
    inputs, weights, factors = arrays(case, seed, [tuple(p.shape) for p in parameters])
    for parameter, values in zip(parameters, weights, strict=True):
        parameter.data.copy_(torch.from_numpy(values))
    tensors = [torch.from_numpy(x).to(dtype).requires_grad_(case.gradients) for x in inputs]

    def forward() -> Any:
        y = program(*tensors)
        return y[0] if isinstance(y, tuple) else y

    cotangent = forward().detach() * torch.from_numpy(factors).to(dtype) if case.gradients else None

    def run() -> list[Any]:
        y = forward()
        return [y.detach(), *torch.autograd.grad(y, [*tensors, *parameters], cotangent)] if case.gradients else [y]

    return run


def summary(results: Sequence[Array]) -> Summary:
    """What two processes compare of their results."""
    found: Summary = []
    for array in results:
        values = array.astype(np.float64).ravel()
        starts = np.linspace(0, values.size, min(RANGES, values.size), endpoint=False).astype(int)
        weighted = values * np.cos(np.arange(values.size))
        found.append((list(array.shape), np.add.reduceat(weighted, starts).tolist(), np.add.reduceat(abs(values), starts).tolist()))
    return found


def summary_of_theirs(results: list[Any]) -> Summary:
    """Of PyTorch's Tensors."""
    return summary([tensor.double().numpy() for tensor in results])


def disagreement(mine: Summary, other: Summary, tolerance: float) -> str:
    """How the results of a case differ; nothing if they do not."""
    if [shape for shape, _, _ in mine] != [shape for shape, _, _ in other]:
        return f"results of shapes {[shape for shape, _, _ in mine]}, PyTorch's {[shape for shape, _, _ in other]}"
    for place, ((_, *our_sums), (_, *their_sums)) in enumerate(zip(mine, other, strict=True)):
        a, b = np.array(our_sums), np.array(their_sums)
        errors = abs(a - b) / (b[1] + b[1].mean() + 1e-30)
        if not (errors <= tolerance).all():
            return f"{'gradient ' + str(place) if place else 'result'} differs by {errors.max():.2g} of its magnitude (allowed {tolerance:g})"
    return ""


def measure(family: str, seed: int, number: int, torch: Torch, seconds: float) -> Measured:
    """Compares one case, and times it in turns.

    Raises:
        ArithmeticError: if the results disagree. Whatever our program raises.
    """
    case = drawn(family, seed, number)
    request = {"family": family, "seed": seed, "number": number, "gradients": case.gradients}
    run = ours(case, seed)
    mine = summary([tensor.asnumpy() for tensor in run()])
    for way in case.ways:
        if difference := disagreement(mine, torch.summary(request | {"way": way}), TOLERANCE[case.dtype]):
            raise ArithmeticError(f"DISAGREES with PyTorch's {way}: {difference}")
    best = dict.fromkeys(("ours", *case.ways), math.inf)
    for _ in range(TURNS):
        best["ours"] = min(best["ours"], shortest(run, seconds))
        for way in case.ways:
            best[way] = min(best[way], torch.time(request | {"way": way}, seconds))
    return Measured(f"{number}: {case}", best.pop("ours"), min(best.values()))


def report(family: str, measured: Sequence[Measured], worst: int) -> None:
    """Prints the lines of a family."""
    ratios = np.array([m.ratio for m in measured])
    mean = math.exp(np.log(ratios).mean()) if measured else math.nan
    print(f"{family:32} {len(measured):5} {mean:8.2f} {(ratios < 1).sum():7}")
    for case in sorted(measured, key=lambda m: m.ratio)[:worst]:
        print(case)
    sys.stdout.flush()


def known(family: str) -> str:
    """For argparse, whose choices do not go with an argument that may be left out."""
    if family not in FAMILIES:
        raise argparse.ArgumentTypeError(f"there is no family {family}, but " + ", ".join(FAMILIES))
    return family


def case_numbers(text: str) -> list[int]:
    """For argparse, as 3,7."""
    return list(map(int, text.split(",")))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", type=known, metavar="FAMILY", help="all without one; " + ", ".join(FAMILIES))
    parser.add_argument("--seed", type=int, default=0, help="of the shapes and the numbers")
    parser.add_argument("--cases", type=int, default=6, help="of each family")
    parser.add_argument("--seconds", type=float, default=0.1, help="of one turn")
    parser.add_argument("--worst", type=int, default=3, help="how many cases of each family are printed")
    parser.add_argument("--only", type=case_numbers, help="numbers of cases with commas between them, of which all are printed")
    parser.add_argument("--torch", type=Path, default=PEER, help="a Python with PyTorch")
    options = parser.parse_args()
    if not options.torch.expanduser().exists():
        parser.error(f"there is no {options.torch}: benchmarks/peers/setup.sh installs PyTorch, --torch names another Python that has it")
    numbers = options.only or range(options.cases)
    os.environ.update(ENVIRONMENT)
    from graphcell.progress import progress

    families, faults = options.families or list(FAMILIES), []
    print(f"{'family':32} {'cases':>5} {'mean':>8} {'below 1':>7}\n  {'ratio':>8} {'graphcell us':>12} {'PyTorch us':>12}  number: case")
    with Torch(options.torch, TORCH) as torch, progress(len(families) * len(numbers), "case") as step:
        for family in families:
            measured = []
            for number in numbers:
                try:
                    measured.append(measure(family, options.seed, number, torch, options.seconds))
                except Exception as error:
                    faults.append(f"!!! {family} --seed {options.seed} --only {number} ({drawn(family, options.seed, number)}): {error}")
                    print(faults[-1], flush=True)
                step()
            report(family, measured, len(numbers) if options.only else options.worst)
    if faults:
        sys.exit("\n".join([f"{len(faults)} cases failed:", *faults]))


if __name__ == "__main__":
    main()
