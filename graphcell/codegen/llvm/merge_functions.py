"""Functions of a module that do the same become one, so that LLVM compiles them once.

Enters: a module. Leaves: the same with fewer functions. Those that are the same but for their names become one: kernels of one size are emitted for several
contractions, and in packing, tiles and trampolines much is alike. Those that differ in whole numbers, too (extents, distances in memory), become one that
takes these numbers as arguments; a number that is always a multiple of another is computed from it. Functions that are seen from outside stay, and so do the
numbers in the functions that `Module.exact` names, innermost loops, which should read them as constants. Whose address is taken has the arguments that
its callers know.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from graphcell.codegen.llvm.text import Module
from graphcell.locks import cached_property

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
_ALONE = re.compile(r"([ \[(\0]-?\d+)(?![\w.])")
"""A number that is part of no name, type or other number, after a letter: what `_LINE` and `_NUMBER` find does not depend on which it is."""
_OPEN = "\0"
"""Stands before a number that may become an argument."""

Aliases = dict[str, tuple[str, str]]
"""Symbol of a function -> symbol of the one that stands for it, what its calls say after their arguments."""


def merge_functions(module: Module) -> Aliases:
    """Merges until no two functions are alike: callers may become so when what they call was merged.

    What is returned goes into `module.stand_ins` if these functions are `finished`: those that are emitted later may call what was merged, but not
    take its address.
    """
    if module.stand_ins:
        changed = {symbol for symbol, (_, more) in module.stand_ins.items() if more}
        assert all(changed.isdisjoint(_Function(name, text).addressed) for name, text in module.functions.items()), "their arguments are others now"
        module.functions = {name: _redirect(text, None, module.stand_ins) for name, text in module.functions.items()}
    stand_ins: Aliases = {}
    known: dict[str, _Function] = {}
    turn = -1
    while True:
        turn += 1
        known |= {text: _Function(name, text) for name, text in module.functions.items() if text not in known}
        functions = [known[text] for text in module.functions.values()]
        kept = dict(module.functions)
        aliases = _equal(functions) or _alike_but_for_numbers(module, functions, kept, f"%number{turn}")
        if not aliases:
            return stand_ins
        gone = {symbol[1:] for symbol, (other, _) in aliases.items() if other != symbol}
        symbols = {f.text: f.symbols for f in functions}
        module.functions = {name: _redirect(text, symbols.get(text), aliases) for name, text in kept.items() if name not in gone}
        module.globals = {name: _redirect(text, None, aliases) for name, text in module.globals.items()}
        _note(stand_ins, aliases)


class _Function:
    """What is asked of a function's text, each found once."""

    def __init__(self, name: str, text: str):
        self.symbol, self.text = f"@{name}", text
        head, _, self.body = text.partition("\n")
        self.head = head.replace(f"{self.symbol}(", "@(", 1)
        self.lines = self.body.count("\n")

    @cached_property
    def symbols(self) -> Counter[str]:
        """How often the function names each symbol, itself included."""
        return Counter(_SYMBOL.findall(self.text))

    @cached_property
    def outline(self) -> tuple[str, list[str]]:
        """The body without the numbers that stand alone, and these."""
        pieces = _ALONE.split(self.body)
        return "#".join(pieces[::2]), pieces[1::2]

    def open_numbers(self) -> list[bool]:
        """Which of these numbers may become arguments: the same for all functions of one outline."""
        marked = _LINE.sub(lambda line: _NUMBER.sub(lambda number: _OPEN + number[0], line[0]), self.body)
        return [number[0] == _OPEN for number in _ALONE.split(marked)[1::2]]

    @cached_property
    def addressed(self) -> set[str]:
        """The symbols that stand in the body other than as what is called."""
        mentioned = self.symbols - Counter(call[1] for call in _CALL.findall(self.body))
        return {symbol for symbol in mentioned if symbol != self.symbol or mentioned[symbol] > 1}


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
        for outlined in _groups(group, lambda f: f.outline[0]):
            for alike, numbers in _same_but_for_open_numbers(outlined):
                places, arguments = _arguments(numbers)
                if len(arguments) <= (MOST_COLD_NUMBERS if " cold" in alike[0].head else MOST_NUMBERS):
                    first = alike[0]
                    kept[first.symbol[1:]] = _with_arguments(first.text, places, [f"{stem}.{k}" for k in range(len(arguments))])
                    for k, f in enumerate(alike):
                        aliases[f.symbol] = (first.symbol, "".join(f", i64 {values[k]}" for values in arguments))
    return aliases


def _same_but_for_open_numbers(functions: list[_Function]) -> Iterator[tuple[list[_Function], list[list[int]]]]:
    """Of functions with one outline those that differ in what may become arguments only, and these numbers of each."""
    is_open = functions[0].open_numbers()
    is_fixed = [not x for x in is_open]
    for alike in _groups(functions, lambda f: tuple(itertools.compress(f.outline[1], is_fixed))):
        yield alike, [[int(number[1:]) for number in itertools.compress(f.outline[1], is_open)] for f in alike]


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


def _note(stand_ins: Aliases, aliases: Aliases) -> None:
    """Adds aliases to those that were found before, which may lead to them."""
    for symbol, (other, more) in stand_ins.items():
        if other in aliases:
            stand_ins[symbol] = (aliases[other][0], more + aliases[other][1])
    for symbol, found in aliases.items():
        stand_ins.setdefault(symbol, found)


# -- callers -----------------------------------------------------------------------------------------------------------
def _redirect(text: str, symbols: Iterable[str] | None, aliases: Aliases) -> str:
    """The text with calls and addresses of what stands for the functions it names. `symbols`: all that it names, if that is known."""
    if aliases.keys().isdisjoint(_SYMBOL.findall(text) if symbols is None else symbols):
        return text

    def call(match: re.Match[str]) -> str:
        symbol, more = aliases.get(match[2], (match[2], ""))
        arguments = match[3] + more if match[3] else more.removeprefix(", ")
        return f"call {match[1]} {symbol}({arguments})"

    return _SYMBOL.sub(lambda match: aliases.get(match[0], (match[0], ""))[0], _CALL.sub(call, text))
