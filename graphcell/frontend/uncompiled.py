"""Calls that run as Python because their graph would have to know values of Tensors: what is kept of the failed trace.

Enters: a function and the `ConcretizationError` that ended its trace. Leaves: an `Uncompiled`, which says how long that holds, and a
warning that names the user's line.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from graphcell.context import config
from graphcell.errors import ConcretizationError, Span
from graphcell.frontend.guards import Guards, is_cell
from graphcell.frontend.tracing import name_of
from graphcell.records import dataclass


@dataclass(slots=True, eq=False)
class Uncompiled:
    """Stands for the compiled graph of calls with `key`, which runs as Python; `reason` says what it asks for."""

    key: Any
    guards: Guards
    reason: str
    writes_arguments: bool = False
    kept: tuple[Any, ...] = ()

    def changed(self) -> str:
        """What is not as it was: the level of syntax, or something that the function read from outside; "" if all is."""
        return "jit_syntax_level" if config.is_strict() else self.guards.failure([])


def give_up(function: Callable[..., Any], key: Any, error: ConcretizationError) -> Uncompiled:
    """Calls of `function` like this one are not compiled. Warns, once for each line that is the reason."""
    span = error.span
    here = span.function if span is not None and span.function else name_of(function)
    text = (
        f"{error.message}. So {here}, and what calls it, runs as Python instead of as one compiled graph; "
        "@jit(fullgraph=True) or set_context(jit_syntax_level=STRICT) makes this an error"
    )
    warnings.warn_explicit(text, RuntimeWarning, *_place_of(function, span), registry=globals().setdefault("__warningregistry__", {}))
    return Uncompiled(key, error.guards, error.message)


def _place_of(function: Callable[..., Any], span: Span | None) -> tuple[str, int]:
    """The file and line of `span`, or those where the function, or the Cell's `construct`, begins."""
    if span is not None:
        return span.file, span.line
    owner = getattr(function, "__self__", None)
    code = getattr(owner.construct if is_cell(owner) else function, "__code__", None)  # type: ignore[union-attr]
    return ("<unknown>", 0) if code is None else (code.co_filename, code.co_firstlineno)
