"""Random programs with nested branches, loops, early ends and changing state: traced, they give what Python
gives.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphcell import ops
from graphcell.tensor import Tensor
from tests.frontend.support import check, tensor

TENSORS = ("a", "b", "c")
NUMBERS = ("n", "m")


class Writer:
    """Writes one function. All names are bound at its start; values stay small, and every loop ends."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.counter = 0

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def name(self) -> str:
        return self.random.choice(TENSORS)

    def number(self) -> str:
        return self.pick("n", "m", str(self.random.randint(-2, 3)))

    def value(self) -> str:
        x, y = self.name(), self.name()
        return self.pick(
            f"ops.tanh({x})", f"{x} + {y}", f"{x} * 0.5 - {y}", f"{x} * {self.number()} * 0.1", f"-{x}", f"helper({x}, {self.number()})",
            f"({x} if {self.condition()} else {y})", "box[0]", "record['t']", f"ops.tanh({x})[::-1]",
        )  # fmt: skip

    def condition(self) -> str:
        simple = self.pick(
            f"{self.name()}.sum() > {self.random.uniform(-2, 2):.2f}", f"{self.name()}[0] < {self.random.uniform(-1, 1):.2f}",
            f"{self.number()} % 2 == 0",
            f"{self.number()} < {self.number()}", "flag", f"{self.name()}.sum() > {self.name()}.sum()",
        )  # fmt: skip
        kind = self.random.random()
        if kind < 0.15:
            return f"({simple} and {self.condition()})"
        if kind < 0.3:
            return f"({simple} or {self.condition()})"
        return f"not {simple}" if kind < 0.4 else simple

    def statement(self, depth: int, in_loop: bool) -> None:
        kind = self.random.random()
        pad = "    " * depth
        if depth < 5 and kind < 0.22:
            self.branch(depth, in_loop)
        elif depth < 4 and kind < 0.34:
            self.loop(depth)
        elif in_loop and kind < 0.42:
            self.line(depth, f"if {self.condition()}:")
            self.line(depth + 1, self.pick("break", "continue"))
        elif kind < 0.47:
            self.line(depth, f"if {self.condition()}:")
            self.line(depth + 1, self.result())
        else:
            self.lines.append(pad + self.simple())

    def simple(self) -> str:
        x, n = self.name(), self.random.choice(NUMBERS)
        return self.pick(
            f"{x} = {self.value()}", f"{x} = {self.value()}", f"{x} += {self.value()} * 0.1", f"{n} += 1", f"{n} = {n} - {self.number()}",
            f"{n} = {self.random.randint(0, 4)}", f"a, b = {self.value()}, {self.value()}", f"box[0] = {self.value()}", f"box[1] = {self.number()}",
            f"record['t'] = {self.value()}", f"record['n'] = box[1] + {self.number()}", f"flag = {self.condition()}",
            f"{x} = {x} * 1.0; {x}[{self.random.randint(0, 2)}] = 0.25",
            f"state.v = {self.value()}", f"{x} = state.v", f"shift({x})", f"{n} = record['n']",
        )  # fmt: skip

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def result(self) -> str:
        return f"return {self.name()} * 1.0, {self.number()}, ops.tanh({self.name()}), record['n']"

    def block(self, depth: int, in_loop: bool) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth, in_loop)

    def branch(self, depth: int, in_loop: bool) -> None:
        self.line(depth, f"if {self.condition()}:")
        self.block(depth + 1, in_loop)
        if self.random.random() < 0.3:
            self.line(depth, f"elif {self.condition()}:")
            self.block(depth + 1, in_loop)
        if self.random.random() < 0.6:
            self.line(depth, "else:")
            self.block(depth + 1, in_loop)

    def loop(self, depth: int) -> None:
        self.counter += 1
        k = f"k{self.counter}"
        if self.random.random() < 0.4:
            self.line(depth, f"{k} = 0")
            self.line(depth, f"while {k} < {self.random.randint(1, 4)} and {self.condition()}:")
            self.line(depth + 1, f"{k} += 1")
        else:
            items = self.pick(
                f"range({self.random.randint(1, 3)})",
                "range(9)",
                "range(10, 0, -1)",
                "rows",
                "enumerate(rows)",
            )
            target = f"{k}, row" if items.startswith("enumerate") else ("row" if items == "rows" else k)
            self.line(depth, f"for {target} in {items}:")
            self.line(depth + 1, f"c = ops.tanh(c + {'row' if 'rows' in items else k} * 0.1)")
        self.block(depth + 1, True)
        if self.random.random() < 0.2:
            self.line(depth, "else:")
            self.block(depth + 1, False)

    def program(self) -> str:
        head = [
            "def helper(v, s):",
            "    if v.sum() > s:",
            "        return ops.tanh(v)",
            "    return v * 0.5",
            "",
            "def f(a, b, rows):",
            "    c, n, m, flag = a * 1, 1, 2, True",
            "    box, record, state = [a * 1, 0], {'t': b * 1, 'n': 0}, Box()",
            "    state.v = a + b",
            "    def shift(v):",
            "        nonlocal c",
            "        c = c * 0.5 + v * 0.1",
        ]
        for _ in range(self.random.randint(3, 7)):
            self.statement(1, False)
        return "\n".join([*head, *self.lines, f"    {self.result()}", ""])


class MatchWriter(Writer):
    """Its branches are `match` statements. What a pattern captures is used in its own case, where it has a value for certain."""

    def branch(self, depth: int, in_loop: bool) -> None:
        n, m, x = self.number(), self.number(), self.name()
        subject = self.pick(n, f"{n}, {m}", f"{x}[0] > 0, {n}", f"{{'k': {n}, 'x': {x}}}", f"[{n}, {m}, {x}]", f"Pair({n}, {x})")
        self.line(depth, f"match {subject}:")
        for pattern, captured in self.patterns():
            guard = f" if {self.condition()}" if self.random.random() < 0.3 else ""
            self.line(depth + 1, f"case {pattern}{guard}:")
            if captured:
                self.line(depth + 2, f"{self.name()} = {self.name()} * 0.5 + {captured} * 0.1")
            self.block(depth + 2, in_loop)
        if self.random.random() < 0.5:
            self.line(depth + 1, "case _:")
            self.block(depth + 2, in_loop)

    def patterns(self) -> list[tuple[str, str]]:
        k, j = self.random.randint(-1, 3), self.random.randint(-1, 3)
        every = [
            (f"{k}", ""), (f"{k} | {j}", ""), (f"int() as got{k + 1}", f"got{k + 1}"), (f"[{k}, p]", "p"), (f"(True, {k}) | (False, {j})", ""),
            (f"(p, {k}) | ({j}, p)", ""), (f"{{'k': {k}, **rest}}", "rest['x']"), ("{'k': p, 'x': q}", "(p * q)"), (f"[_, {k}, *others]", "sum(others)"),
            (f"Pair({k}, q)", "q"), (f"Pair(first={k} | {j}, second=q)", "q"), ("Pair(p, _)", "p"),
        ]  # fmt: skip
        return self.random.sample(every, self.random.randint(2, 6))


class Box:
    v: Any = None


@dataclass
class Pair:
    first: Any
    second: Any


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(80))
@pytest.mark.parametrize("writer", [Writer, MatchWriter])
def test_random_program(writer: type[Writer], seed: int, tmp_path: Path) -> None:
    text = writer(seed).program()
    path = tmp_path / "program.py"
    path.write_text(text)
    namespace: dict[str, Any] = {"ops": ops, "Box": Box, "Pair": Pair}
    exec(compile(text, str(path), "exec"), namespace)
    rng = np.random.default_rng(seed)
    for _ in range(2):
        a, b = tensor(*rng.uniform(-1, 1, 3)), tensor(*rng.uniform(-1, 1, 3))
        rows = Tensor(rng.uniform(-1, 1, (9, 3)).astype(np.float32))
        check(namespace["f"], a, b, rows)
