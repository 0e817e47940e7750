"""Functions of a module that do the same become one, so that LLVM compiles them once.

Enters: a module. Leaves: the same with fewer functions. Those that are the same but for their names become one: kernels of one size are emitted for several
contractions, and in packing, tiles and trampolines much is alike. Those that differ in whole numbers, too (extents, distances in memory), become one that
takes these numbers as arguments; a number that is always a multiple of another is computed from it. Functions that are seen from outside stay, and so do the
numbers in the functions that `Module.exact` names, innermost loops, which should read them as constants. Whose address is taken has the arguments that
its callers know.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable

from graphcell.codegen.llvm.text import Module

MOST_NUMBERS = 16
"""Arguments that a function may get: what does not fit into registers is read from the stack."""
MOST_COLD_NUMBERS = 32
"""The same for functions that hardly ever run (attribute `cold`)."""
_FEWEST_LINES = 20
"""Shorter functions stay as they are: the arguments would be a good part of them."""

_SYMBOL = re.compile(r"@[\w.]+")
_CALL = re.compile(r"call (\S+) (@[\w.]+)\(([^()\n]*)\)")
_LINE = re.compile(
    r"""^\ \ (?:%[\w.]+\ =\ )?(?:
    getelementptr\ (?:inbounds\ )?\w+,\ ptr | (?:add|sub|mul)\ (?:nsw\ |nuw\ )*i64 | [us](?:div|rem)\ i64 | icmp\ \w+\ i64 | phi\ i64
    | call\ \w+\ @(?!llvm\.) | call\ i64\ @llvm\.[su](?:min|max)\.i64 )[^<\n]*\n""",
    re.MULTILINE | re.VERBOSE,
)
"""Instructions on scalars in which a number may as well be a value; others want constants (shapes, lanes, sizes of the stack) or are slow without (shifts)."""
_NUMBER = re.compile(r"(?<=i64 )-?\d+(?=[,)\n])|(?<=, )-?\d+(?=\n)|(?<=\[)-?\d+(?=, %)")

Aliases = dict[str, tuple[str, str]]
"""Symbol of a function -> symbol of the one that stands for it, what its calls say after their arguments."""


def merge_functions(module: Module) -> None:
    """Merges until no two functions are alike: callers may become so when what they call was merged."""
    known: dict[str, _Function] = {}
    for turn in itertools.count():
        functions = [known.setdefault(text, _Function(name, text)) for name, text in module.functions.items()]
        kept = dict(module.functions)
        aliases = _equal(functions) or _alike_but_for_numbers(module, functions, kept, f"%number{turn}")
        if not aliases:
            return
        module.functions = {name: _redirect(text, aliases) for name, text in kept.items() if aliases.get(f"@{name}", (f"@{name}",))[0] == f"@{name}"}
        module.globals = {name: _redirect(text, aliases) for name, text in module.globals.items()}


class _Function:
    """What is asked of a function's text, each found once."""

    def __init__(self, name: str, text: str):
        self.symbol, self.text = f"@{name}", text
        head, _, self.body = text.partition("\n")
        self.head = head.replace(f"{self.symbol}(", "@(", 1)
        self.lines = self.body.count("\n")

    @functools.cached_property
    def outline(self) -> tuple[str, list[int]]:
        """The body without the numbers that could be arguments, and these."""
        numbers: list[int] = []

        def strip(line: re.Match[str]) -> str:
            pieces = _NUMBER.split(line[0])
            if len(pieces) > 1:
                numbers.extend(map(int, _NUMBER.findall(line[0])))
            return "#".join(pieces)

        return _LINE.sub(strip, self.body), numbers

    @functools.cached_property
    def addressed(self) -> set[str]:
        """The symbols that stand in the body other than as what is called."""
        mentioned = Counter(_SYMBOL.findall(self.body))
        mentioned.subtract(call[1] for call in _CALL.findall(self.body))
        return {symbol for symbol, count in mentioned.items() if count}


# -- the same but for names ------------------------------------------------------------------------------------------
def _equal(functions: Iterable[_Function]) -> Aliases:
    first: dict[tuple[str, str], str] = {}
    aliases: Aliases = {}
    for f in functions:
        if f.head.startswith("define internal"):
            other = first.setdefault((f.head, f.body), f.symbol)
            if other != f.symbol:
                aliases[f.symbol] = (other, "")
    return aliases


# -- the same but for numbers ----------------------------------------------------------------------------------------
def _alike_but_for_numbers(module: Module, functions: list[_Function], kept: dict[str, str], stem: str) -> Aliases:
    """Writes the functions that take numbers into `kept`. `stem`: how the arguments are called."""
    fixed = set().union(*(f.addressed for f in functions), *(_SYMBOL.findall(text) for text in module.globals.values()), (f"@{name}" for name in module.exact))
    candidates = [f for f in functions if f.lines >= _FEWEST_LINES and f.head.startswith("define internal") and f.symbol not in fixed]
    aliases: Aliases = {}
    for group in _groups(candidates, lambda f: (f.head, f.lines)):
        for alike in _groups(group, lambda f: f.outline[0]):
            places, arguments = _arguments([f.outline[1] for f in alike])
            if len(arguments) <= (MOST_COLD_NUMBERS if " cold" in alike[0].head else MOST_NUMBERS):
                first = alike[0]
                kept[first.symbol[1:]] = _with_arguments(first.text, places, [f"{stem}.{k}" for k in range(len(arguments))])
                for k, f in enumerate(alike):
                    aliases[f.symbol] = (first.symbol, "".join(f", i64 {values[k]}" for values in arguments))
    return aliases


def _groups(functions: Iterable[_Function], key: Callable[[_Function], object]) -> list[list[_Function]]:
    """The functions that share a key, where there are several."""
    groups: dict[object, list[_Function]] = {}
    for f in functions:
        groups.setdefault(key(f), []).append(f)
    return [group for group in groups.values() if len(group) > 1]


def _arguments(numbers: list[list[int]]) -> tuple[list[tuple[int, int] | None], list[tuple[int, ...]]]:
    """How few arguments serve all places: for each place the argument and how many times it is taken, None where the functions agree; for
    each argument what each function passes.
    """
    arguments: dict[tuple[int, ...], int] = {}
    places: list[tuple[int, int] | None] = []
    for values in zip(*numbers):
        if len(set(values)) == 1:
            places.append(None)
        else:
            factor = math.gcd(*values)
            places.append((arguments.setdefault(tuple(x // factor for x in values), len(arguments)), factor))
    return places, list(arguments)


def _with_arguments(text: str, places: list[tuple[int, int] | None], names: list[str]) -> str:
    """The function with arguments instead of numbers. A multiple of one is computed where it is needed; for a `phi`, at the function's start."""
    head, _, body = text.partition("\n")
    left = iter(places)
    fresh = itertools.count()
    at_start: list[str] = []

    def replace(line: re.Match[str]) -> str:
        before = at_start if " = phi " in line[0] else []

        def value(number: re.Match[str]) -> str:
            place = next(left)
            if place is None:
                return number[0]
            argument, factor = names[place[0]], place[1]
            if factor == 1:
                return argument
            multiple = f"{argument}.{next(fresh)}"
            before.append(f"  {multiple} = mul i64 {argument}, {factor}\n")
            return multiple

        changed = _NUMBER.sub(value, line[0])
        return changed if before is at_start else "".join(before) + changed

    entry, _, rest = _LINE.sub(replace, body).partition("\n")
    end = _closing_parenthesis(head)
    separator = "" if head[end - 1] == "(" else ", "
    head = f"{head[:end]}{separator}{', '.join(f'i64 {name}' for name in names)}{head[end:]}"
    return f"{head}\n{entry}\n{''.join(at_start)}{rest}"


def _closing_parenthesis(head: str) -> int:
    """Where the parameters of a function end."""
    depth = 0
    for k, letter in enumerate(head):
        depth += (letter == "(") - (letter == ")")
        if letter == ")" and not depth:
            return k
    raise ValueError(f"no parameters in {head!r}")


# -- callers -----------------------------------------------------------------------------------------------------------
def _redirect(text: str, aliases: Aliases) -> str:
    """The text with calls and addresses of what stands for the functions it names."""
    if aliases.keys().isdisjoint(_SYMBOL.findall(text)):
        return text

    def call(match: re.Match[str]) -> str:
        symbol, more = aliases.get(match[2], (match[2], ""))
        arguments = match[3] + more if match[3] else more.removeprefix(", ")
        return f"call {match[1]} {symbol}({arguments})"

    return _SYMBOL.sub(lambda match: aliases.get(match[0], (match[0], ""))[0], _CALL.sub(call, text))
