"""A module cut in parts that LLVM can translate at the same time.

Enters: the text of a module. Leaves: texts of about the same size, each a module of its own; linked together they are the first. A function that another part
names becomes visible to it; constants, and vectors of numbers (`Instructions.numbers_in_memory`), are in each part that reads them. What a function computes
does not depend on the cut.
"""

from __future__ import annotations

import re

_LEAST_LETTERS = 150_000
"""Text of a part that is worth a thread: LLVM takes a tenth of a second for it."""
_FUNCTION = re.compile(r"^define .*?^}\n", re.MULTILINE | re.DOTALL)
_HEAD = re.compile(r"define (?:internal )?(\w+|<[^>]+>) (@[\w.]+)\((.*)\)[^()]*\{$")
_PARAMETER = re.compile(r"(\w+|<[^>]+>) (?:[^%,]+ )?%[\w.]+")
_GLOBAL = re.compile(r"^(@[\w.]+) = (internal constant|internal global(?= <)|global) (\w+|\[[^][]+\]|<[^>]+>) ([^@\n]*?)(?:, align \d+)?$", re.MULTILINE)
"""A constant that names another symbol is none of these: it would have to be known where the constant is."""
_SYMBOL = re.compile(r"@[\w.]+")


def cut(text: str, most: int) -> list[str]:
    """Parts of a module, `most` of them at most; the module itself where it is too small, or has globals that are neither constants of
    numbers nor visible, for which no two parts could both know the place.
    """
    count = min(most, len(text) // _LEAST_LETTERS)
    functions = _FUNCTION.findall(text)
    top = _FUNCTION.sub("", text)
    symbols = {match[1]: match for match in _GLOBAL.finditer(top)}
    if count < 2 or len(functions) < count or len(symbols) != sum(line.startswith("@") for line in top.splitlines()):
        return [text]
    parts = _share_out(functions, count)
    home = {_symbol(function): k for k, part in enumerate(parts) for function in part}
    mentioned = [set(_SYMBOL.findall("".join(part))) for part in parts]
    visible = {symbol for k, symbols_here in enumerate(mentioned) for symbol in symbols_here if home.get(symbol, k) != k}
    heads = {_symbol(function): function.partition("\n")[0] for part in parts for function in part}
    declarations = [line for line in top.splitlines() if line.startswith("declare ")]
    texts = []
    for k, part in enumerate(parts):
        lines = [_global(symbols[symbol], k) for symbol in symbols if symbol in mentioned[k] or not k]
        lines += declarations + [_declaration(heads[symbol]) for symbol in heads if symbol in mentioned[k] and home[symbol] != k]
        lines += [function.replace("define internal ", "define ", 1) if _symbol(function) in visible else function for function in part]
        texts.append("\n".join(lines))
    return texts


def _share_out(functions: list[str], count: int) -> list[list[str]]:
    """Neighbours stay together: a kernel and what it calls are emitted one after another."""
    share = sum(map(len, functions)) / count
    parts: list[list[str]] = [[] for _ in range(count)]
    before = 0
    for function in functions:
        parts[min(count - 1, int((before + len(function) / 2) / share))].append(function)
        before += len(function)
    return [part for part in parts if part]


def _symbol(function: str) -> str:
    match = _SYMBOL.search(function)
    assert match is not None
    return match[0]


def _global(match: re.Match[str], part: int) -> str:
    """A constant as it is, a variable only in the first part."""
    return match[0] if match[2].startswith("internal") or not part else f"{match[1]} = external global {match[3]}"


def _declaration(head: str) -> str:
    match = _HEAD.match(head)
    assert match is not None, head
    return f"declare {match[1]} {match[2]}({', '.join(_PARAMETER.findall(match[3]))})"
