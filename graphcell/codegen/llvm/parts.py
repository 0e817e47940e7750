"""A module cut in parts that LLVM can translate at the same time.

Enters: a module, or first what of it is complete and then the rest. Leaves: texts of about the same size, each a module of its own; linked together they are
the first. A function that another part names becomes visible to it; constants, and vectors of numbers (`Instructions.numbers_in_memory`), are in
each part that reads them. What a function computes does not depend on the cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set

from graphcell.codegen.llvm.text import Module
from graphcell.codegen.llvm.values import metadata

LEAST_LETTERS = 150_000
"""Text of a part that is worth a thread: LLVM takes a tenth of a second for it."""
_HEAD = re.compile(r"define (?:internal )?(\w+|<[^>]+>) (@[\w.]+)\((.*)\)[^()]*\{$")
_PARAMETER = re.compile(r"(\w+|<[^>]+>) (?:[^%,]+ )?%[\w.]+")
_GLOBAL = re.compile(r"(@[\w.]+) = (internal constant|internal global(?= <)|global) (\w+|\[[^][]+\]|<[^>]+>) ([^@\n]*?)(?:, align \d+)?$")
"""A constant that names another symbol is none of these: it would have to be known where the constant is."""
_SYMBOL = re.compile(r"@[\w.]+")


def cut(module: Module, most: int, earlier: Mapping[str, str] | None = None, followed: bool = False) -> list[str]:
    """The functions of a module that are not `finished`, in `most` parts at most; in one where they are few, or where there are constants that name other
    symbols, which would have to be known where the constant is: then there may be no other modules.

    Args:
        earlier: functions and variables of other modules that these may name, as `heads` gives them.
        followed: others will name what is in this module, so all functions are visible.
    """
    count = min(most, sum(map(len, module.functions.values())) // LEAST_LETTERS, len(module.functions))
    found = [_GLOBAL.match(line) for line in module.globals.values()]
    symbols = {match[1]: match for match in found if match is not None}
    has_symbols_in_constants = len(symbols) < len(found)
    is_whole = count < 2 or has_symbols_in_constants
    if is_whole and not earlier and not followed:
        return [module.unfinished()]
    assert not has_symbols_in_constants, "programs have none"
    parts = [list(module.functions)] if is_whole else _share_out(module.functions, count)
    home = {f"@{name}": k for k, part in enumerate(parts) for name in part}
    mentioned = [set[str]().union(*(_SYMBOL.findall(module.functions[name]) for name in part)) for part in parts]
    visible = {symbol for k, symbols_here in enumerate(mentioned) for symbol in symbols_here if followed or home.get(symbol, k) != k}
    earlier = earlier or {}
    known = {**earlier, **heads(module)}
    texts = []
    for k, part in enumerate(parts):
        own = symbols.keys() - earlier.keys() if not k else set[str]()
        lines = [*_globals(symbols, mentioned[k], own), *module.declarations.values()]
        lines += [_declaration(head) for symbol, head in known.items() if symbol in mentioned[k] and home.get(symbol) != k and symbol not in symbols]
        functions = {name: module.functions[name] for name in part}
        lines += [text.replace("define internal ", "define ", 1) if f"@{name}" in visible else text for name, text in functions.items()]
        texts.append("\n".join([*lines, *metadata(functions.values()), ""]))
    return texts


def heads(module: Module) -> dict[str, str]:
    """The functions and the variables of a module that are not `finished`: symbol -> first line."""
    variables = {f"@{name}": line for name, line in module.globals.items() if " = internal " not in line}
    return {**variables, **{f"@{name}": text.partition("\n")[0] for name, text in module.functions.items()}}


def _share_out(functions: Mapping[str, str], count: int) -> list[list[str]]:
    """Neighbours stay together: a kernel and what it calls are emitted one after another."""
    share = sum(map(len, functions.values())) / count
    parts: list[list[str]] = [[] for _ in range(count)]
    before = 0
    for name, text in functions.items():
        parts[min(count - 1, int((before + len(text) / 2) / share))].append(name)
        before += len(text)
    return [part for part in parts if part]


def _globals(symbols: dict[str, re.Match[str]], mentioned: set[str], own: Set[str]) -> list[str]:
    """Constants where they are read; variables where they are the part's `own`, and made known to others that read them."""
    lines = []
    for symbol, match in symbols.items():
        if match[2].startswith("internal"):
            lines += [match[0]] if symbol in mentioned else []
        elif symbol in own:
            lines.append(match[0])
        elif symbol in mentioned:
            lines.append(f"{symbol} = external global {match[3]}")
    return lines


def _declaration(head: str) -> str:
    match = _HEAD.match(head)
    assert match is not None, head
    return f"declare {match[1]} {match[2]}({', '.join(_PARAMETER.findall(match[3]))})"
