"""`print_`: prints when the program, or the graph, runs."""

from __future__ import annotations

from typing import Any

from graphcell.errors import ArgumentTypeError
from graphcell.formatting import constant_in_graph
from graphcell.ops.dispatch import apply
from graphcell.ops.host import Print, template
from graphcell.tensor import Tensor, state

__all__ = ["print_"]


def print_(*input_x: Any) -> None:
    """Prints each argument in a line of its own, Tensors as `repr` gives them. In a graph: Tensors, numbers, strings, None, or tuples and
    lists of them, of which each item has its line, when the graph runs; Tensors then look as in MindSpore's graphs.

    Raises:
        TypeError: an argument is something else (in a graph).
    """
    if state.trace is None:
        for x in input_x:
            print(repr(x) if isinstance(x, Tensor) else x, flush=True)
        return
    pieces: list[str | tuple[Tensor, str]] = []
    for x in input_x:
        _line(x, pieces)
    text, operands = template(pieces)
    apply(Print(text), *operands)


def _line(x: Any, pieces: list[str | tuple[Tensor, str]]) -> None:
    if isinstance(x, (tuple, list)):
        for item in x:
            _line(item, pieces)
        return
    if isinstance(x, Tensor):
        pieces += [(x, "g"), "\n"]
    elif isinstance(x, (bool, int, float)):
        pieces.append(f"{constant_in_graph(x)}\n")
    elif x is None or isinstance(x, str):
        pieces.append(f"{x}\n")
    else:
        raise ArgumentTypeError(f"print_: expected Tensors, numbers and strings, but got {type(x).__name__}")
