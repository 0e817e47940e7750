"""Golden cases of passes: files of `=== name`, a graph, `--->`, the graph that the pass makes of it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import graphcell.ops.control  # noqa: F401  (cases use its ops)
from graphcell.errors import Span
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph, Node
from graphcell.ir.op import Array
from graphcell.ir.text import parse, print_graph
from graphcell.ir.types import TensorType
from graphcell.ir.verify import verify

FOLDER = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class Case:
    file: Path
    name: str
    before: str
    after: str


def cases(stem: str) -> list[Case]:
    """The cases of one file."""
    file = FOLDER / f"{stem}.ir"
    found = []
    for part in file.read_text(encoding="utf-8").split("=== ")[1:]:
        name, _, body = part.partition("\n")
        before, _, after = body.partition("--->\n")
        found.append(Case(file, name.strip(), before.strip() + "\n", after.strip() + "\n"))
    return found


def check(case: Case, run: Callable[[Graph], Graph], update: bool) -> None:
    """Runs a pass on the case's graph: the text must be the expected one, and the results must keep every
    bit.
    """
    before = parse(case.before, case.file.name)
    verify(before)
    after = run(before)
    verify(after)
    assert_equal_results(before, after, seed=zlib.crc32(case.name.encode()))
    got = print_graph(after, spans=False)
    if update:
        _write(case, print_graph(before, spans=False), got)
        return
    assert got == case.after


def _write(case: Case, before: str, after: str) -> None:
    text = "".join(
        f"=== {c.name}\n{before if c.name == case.name else c.before}--->\n{after if c.name == case.name else c.after}\n"
        for c in cases(case.file.stem)
    )
    case.file.write_text(text, encoding="utf-8")


def assert_equal_results(before: Graph, after: Graph, seed: int, exact: bool = False) -> None:
    """Both graphs give the same bits for the same inputs (all NaNs count as equal)."""
    assert before.input_types == after.input_types
    rng = np.random.default_rng(seed)
    for _ in range(3):
        inputs = [random_array(rng, v.type, exact) for v in before.inputs]
        with np.errstate(all="ignore"):
            expected, got = evaluate_graph(before, inputs), evaluate_graph(after, inputs)
        for k, (x, y) in enumerate(zip(expected, got, strict=True)):
            assert same_bits(x, y), f"output {k}:\n{x}\n{y}\nof inputs {inputs}\nin\n{before}\nand\n{after}"


SPECIAL = [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e-40, 3.0, -2.5, 65504.0]


def random_array(rng: np.random.Generator, type: TensorType, exact: bool = False) -> Array:
    """Numbers with special ones among them; with `exact`: small integers, with exact sums and products."""
    dtype = type.dtype
    if dtype.is_bool:
        return np.asarray(rng.integers(0, 2, type.shape)).astype(np.bool_)
    if dtype.is_integer or exact:
        low = 0 if not dtype.signed else -4
        return np.asarray(rng.integers(low, 5, type.shape)).astype(dtype.np_type)
    with np.errstate(all="ignore"):
        numbers = np.asarray(rng.standard_normal(type.shape)).astype(dtype.np_type)
        special = np.asarray(rng.choice(SPECIAL, type.shape)).astype(dtype.np_type)
    return np.where(rng.random(type.shape) < 0.4, special, numbers)


def same_bits(x: Array, y: Array) -> bool:
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    nan = np.isnan(x) & np.isnan(y) if x.dtype.kind not in "biu" else np.zeros(x.shape, np.bool_)
    bits = np.dtype(f"u{x.dtype.itemsize}")
    return bool(
        np.all(nan | (x.reshape(-1).view(bits).reshape(x.shape) == y.reshape(-1).view(bits).reshape(y.shape)))
    )


def as_gradient(graph: Graph) -> Graph:
    """The graph, all of it the gradient of some place."""
    place = Span("f.py", 1, 0, 1, 1, gradient=True)
    return Graph(graph.name, graph.inputs, [Node(n.op, n.operands, n.results, place) for n in graph.nodes], graph.outputs)
