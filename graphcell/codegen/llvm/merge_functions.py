"""Functions of a module that are the same but for their names become one, so that LLVM compiles them once.

Enters: a module. Leaves: the same with fewer functions; what named one that went names the one that stays. Kernels of one size are emitted
for several contractions, and in packing, tiles and trampolines much is alike. Functions that are seen from outside stay.
"""

from __future__ import annotations

import re

from graphcell.codegen.llvm.text import Module

_SYMBOL = re.compile(r"@[\w.]+")


def merge_functions(module: Module) -> None:
    """Merges until no two functions are alike: callers may become so when what they call was merged."""
    while True:
        merged = _equal_functions(module.functions)
        if not merged:
            return
        module.functions = {name: _rename(text, merged) for name, text in module.functions.items() if f"@{name}" not in merged}
        module.globals = {name: _rename(text, merged) for name, text in module.globals.items()}


def _equal_functions(functions: dict[str, str]) -> dict[str, str]:
    """The symbols of internal functions that repeat an earlier one, with the symbol of that."""
    first: dict[str, str] = {}
    merged: dict[str, str] = {}
    for name, text in functions.items():
        if text.startswith("define internal"):
            symbol = f"@{name}"
            other = first.setdefault(text.replace(f"{symbol}(", "@(", 1), symbol)
            if other != symbol:
                merged[symbol] = other
    return merged


def _rename(text: str, symbols: dict[str, str]) -> str:
    return _SYMBOL.sub(lambda match: symbols.get(match[0], match[0]), text)
