"""Which of MindSpore's names are here, and what is different on purpose: writes docs/compatibility.md.

Enters: docs/mindspore_names.txt, a line `module  name  kind  group` for each public name of MindSpore 2.10. Leaves: a page of Markdown on the
standard output. `python -m graphcell.compatibility > docs/compatibility.md` brings the page up to date, and
`python -m graphcell.compatibility --api TABLE > docs/mindspore_names.txt` makes the names of a table with the columns module, name, kind
and tier (T0 to T3). Refuses: tables without these columns.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

from graphcell.errors import ArgumentValueError

NAMES = Path(__file__).parent.parent / "docs" / "mindspore_names.txt"
GROUPS = ("essential", "common", "further", "rare")
"""How often programs need a name: the first are what the owner's documents use, the second what tutorials and model collections use; the
third are the rest of what MindSpore runs on a CPU; the last have no CPU kernel there, are deprecated or doubles."""

DIFFERENCES: tuple[tuple[str, str], ...] = (
    (
        "NaN propagates",
        "through every minimum and maximum: `ops.clamp`, `Tensor.max`, `ops.relu`, max pooling, `ops.argmax`. MindSpore loses it in these.",
    ),
    (
        "Sorting puts NaN last",
        "as the largest number, as numpy does; MindSpore's CPU kernel leaves it where it was, and what stands beside it unsorted.",
    ),
    ("Integers divided by zero", "give 0, and so does the remainder. MindSpore gives the largest or the smallest integer."),
    ("Shifts by the width or more", "give 0 (or -1 for a negative number shifted right). MindSpore shifts by the remainder."),
    ("Floats too large for an integer", "become the nearest integer there is, and NaN becomes 0. MindSpore gives the smallest integer."),
    (
        "Indices out of range",
        "raise IndexError in both modes, in the call that they belong to; as data of an operation they raise an error that also is MindSpore's RuntimeError."
        " MindSpore may raise in a later call. Nothing is ever read or written beside a buffer.",
    ),
    (
        "Captured Tensors are inputs",
        "of a compiled function: a new value in a global, a closure or an attribute is seen by the next call. MindSpore keeps the value that it compiled with.",
    ),
    (
        "Changed attributes are noticed",
        "by a compiled Cell: `net.k = 2`, `set_train()`, `to_float()` and a replaced sub-Cell take effect with the next call. MindSpore keeps its graph.",
    ),
    (
        "`Parameter.set_data` keeps the shape",
        "and raises ValueError for another one, unless `slice_shape=True` says that this is wanted. MindSpore changes the shape without a word.",
    ),
    (
        "More of Python compiles",
        "`try`, `for … else`, sets, `:=`, lambdas where they stand. What does not compile is named with its line (GC101).",
    ),
    ("Uninitialised Tensors", "are initialised when their values are first asked for. MindSpore raises RuntimeError."),
    (
        "Random numbers",
        "are a function of the seed and the number of the call: the same in both modes, for any number of threads and on any machine. They are not"
        " MindSpore's numbers. `set_rng_state` takes all random operations back; MindSpore's older ones do not follow it.",
    ),
    ("Errors appear where they happen", "never in a later call; `pynative_synchronize` changes nothing."),
    ("`jit_level`, `backend`, `exec_order`", "and the keys of `set_context` about devices are checked and kept; every graph is compiled in full."),
    ("`mutable` numbers", "are constants of a compiled function; another number compiles anew. Tensors are variables wherever they are."),
    (
        "Classes",
        "print with the path that they have in MindSpore, under the name of the package that was imported: `<class 'graphcell.nn.layer.basic.Dense'>`, "
        "and `<class 'mindspore.nn.layer.basic.Dense'>` in a program run by `python -m graphcell run`.",
    ),
    ("Only the CPU", "and no complex, sparse or quantised Tensors, no distributed training."),
)


@dataclass(frozen=True)
class Name:
    """A public name of MindSpore: `group` is one of GROUPS; `(m)` after `module` says that it is a class and the name a member of it."""

    module: str
    name: str
    kind: str
    group: str


def read_names(path: Path = NAMES) -> list[Name]:
    """The names of a file such as docs/mindspore_names.txt."""
    lines = path.read_text().splitlines()
    return [Name(*line.split("\t")) for line in lines if line and not line.startswith("#")]


def names_of_table(path: Path) -> str:
    """The text of docs/mindspore_names.txt, from a tab-separated table.

    Raises:
        ValueError: the table has no columns module, name, kind and tier.
    """
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    if not rows or not {"module", "name", "kind", "tier"} <= set(rows[0]):
        raise ArgumentValueError(f"{path}: expected the columns module, name, kind and tier")
    lines = [f"{r['module']}\t{r['name']}\t{r['kind']}\t{GROUPS[int(r['tier'][1:])]}" for r in rows]
    return "# Public names of MindSpore 2.10: module, name, kind, how often programs need it (" + ", ".join(GROUPS) + ")\n" + "\n".join(lines) + "\n"


def holder_of(module: str) -> Any:
    """What has the names of `module` here (a module or a class), or None."""
    if module == "mindspore.ops.primitive":
        module = "mindspore.ops"
    path = ["graphcell", *module.removesuffix("(m)").split(".")[1:]]
    try:
        return importlib.import_module(".".join(path))
    except ModuleNotFoundError:
        pass
    try:
        return getattr(importlib.import_module(".".join(path[:-1])), path[-1])
    except (ModuleNotFoundError, AttributeError):
        return None


def is_present(name: Name) -> bool:
    """True if the name is here, and is of its kind: a class for a class, a function or method that can be called."""
    holder = holder_of(name.module)
    try:
        found = reduce(getattr, name.name.split("."), holder)
    except AttributeError:
        return False
    if name.kind == "class":
        return isinstance(found, type)
    if isinstance(found, ModuleType):
        return name.kind == "module"
    return callable(found) or name.kind not in ("function", "method")


def page(names: Iterable[Name]) -> str:
    """docs/compatibility.md."""
    modules: dict[str, list[tuple[Name, bool]]] = {}
    for name in names:
        modules.setdefault(name.module, []).append((name, is_present(name)))
    parts = [_HEAD, _counts(modules), "## Different on purpose\n", *(f"* **{title}**: {text}" for title, text in DIFFERENCES), "", "## Names\n"]
    parts += [_lists(module, found) for module, found in modules.items()]
    return "\n".join(parts).rstrip() + "\n"


_HEAD = """# Compatibility with MindSpore 2.10

Made by `python -m graphcell.compatibility > docs/compatibility.md` from docs/mindspore_names.txt; do not edit. A name counts as present if it can be
imported and is of its kind; how it behaves is what the tests say. `mindspore.ops.primitive` are the classes of `ops` (`ops.ReLU`), and `(m)`
marks the members of a class. *Essential* and *common* names are those of MindSpore's tutorials and of usual models; *further* ones are the rest of
what MindSpore runs on a CPU; *rare* ones have no CPU kernel there, are deprecated, or are doubles.
"""


def _counts(modules: dict[str, list[tuple[Name, bool]]]) -> str:
    rows = ["## Counts\n", f"| present of all | {' | '.join(GROUPS)} | together |", "| --- |" + " --- |" * (len(GROUPS) + 1)]
    everything = [x for found in modules.values() for x in found]
    for title, found in [*modules.items(), ("**all**", everything)]:
        columns = [[here for name, here in found if name.group == group] for group in GROUPS] + [[here for _, here in found]]
        rows.append(f"| {title} | " + " | ".join(f"{sum(c)} of {len(c)}" if c else "" for c in columns) + " |")
    return "\n".join(rows) + "\n"


def _lists(module: str, found: list[tuple[Name, bool]]) -> str:
    present = sorted(name.name for name, here in found if here)
    lines = [f"### {module}\n"]
    if not present:
        return f"{lines[0]}\nNone of {len(found)} names.\n"
    lines.append(_wrapped(f"Present ({len(present)})", present))
    for group in GROUPS:
        missing = sorted(name.name for name, here in found if not here and name.group == group)
        if missing:
            lines.append(_wrapped(f"Missing, {group} ({len(missing)})", missing))
    return "\n".join(lines)


def _wrapped(title: str, names: list[str]) -> str:
    return textwrap.fill(f"{title}: {', '.join(names)}", 150, break_long_words=False, break_on_hyphens=False) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m graphcell.compatibility", description="Writes docs/compatibility.md to the standard output.")
    parser.add_argument("--api", type=Path, help="write docs/mindspore_names.txt instead, from this table")
    parser.add_argument("--names", type=Path, default=NAMES, help="the names to look for (default: docs/mindspore_names.txt)")
    options = parser.parse_args(arguments)
    sys.stdout.write(names_of_table(options.api) if options.api else page(read_names(options.names)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
