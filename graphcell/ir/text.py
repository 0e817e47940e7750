"""The IR as text: `print_graph` writes it, `parse` reads it back.

    graph @step(%x: f32[4, 5], %w: f32[5, 6]) -> (f32[6]) {
      %0 = matmul[transpose_x=False, transpose_y=False] %x, %w : f32[4, 6]  // net.py:14  y = x @ w
      %1 = reduce_sum[axis=(0,), keep_dims=False] %0 : f32[6]               // net.py:15  return y.sum(0)
      return %1
    }

A node is `results = op[attributes] operands : types`, then, for an op with regions, a block with one entry
for each. Values are numbered through the whole text where they have no name; names with other characters than
letters, digits, `_`, `.` and `$` stand in double quotes. What is read back has the same `structural_key`.
Refuses: text that is not IR, with line, column and caret.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re

import numpy as np

from graphcell.dtype import DType, from_numpy
from graphcell.errors import Span
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.lexer import PLAIN_NAME
from graphcell.ir.op import Array, Op, format_attribute
from graphcell.ir.parser import parse
from graphcell.ir.types import TensorType

__all__ = ["format_array", "parse", "print_graph"]

_NUMBERS_SHOWN = 16
_LINE_LENGTH = 110
_COMMENT_COLUMN = 76


def print_graph(graph: Graph, *, spans: bool = True, elide_over: int | None = None) -> str:
    """`graph` as text.

    Args:
        spans: write each node's source line behind it. elide_over: constants of more elements are written as
        a digest. Such text is for reading only; `parse` refuses it.
    """
    printer = _Printer(spans, elide_over)
    printer.graph(graph, "", "graph ", "")
    return printer.text()


class _Printer:
    """Collects lines and their comments."""

    def __init__(self, spans: bool, elide_over: int | None):
        self.spans = spans
        self.elide_over = elide_over
        self.lines: list[tuple[str, str]] = []
        self.numbered = 0
        self.paths: dict[str, str] = {}

    def text(self) -> str:
        commented = [len(line) for line, comment in self.lines if comment]
        column = min(max(commented, default=0), _COMMENT_COLUMN)
        return "".join(
            f"{line:<{column}}  // {comment}\n" if comment else f"{line}\n" for line, comment in self.lines
        )

    def graph(self, graph: Graph, indent: str, prefix: str, suffix: str) -> None:
        names = _Names(self)
        inputs = [f"{names.define(v)}: {v.type}" for v in graph.inputs]
        types = ", ".join(str(v.type) for v in graph.outputs)
        head = f"{indent}{prefix}@{quoted(graph.name)}("
        line = f"{head}{', '.join(inputs)}) -> ({types}) {{"
        if len(line) <= _LINE_LENGTH:
            self.lines.append((line, ""))
        else:
            self.lines.append((head, ""))
            self.lines += [(f"{indent}    {item},", "") for item in inputs]
            self.lines.append((f"{indent}) -> ({types}) {{", ""))
        for node in graph.nodes:
            self.node(node, names, indent + "  ")
        outputs = ", ".join(names.of(v) for v in graph.outputs)
        self.lines.append((f"{indent}  return {outputs}".rstrip(), ""))
        self.lines.append((f"{indent}}}{suffix}", ""))

    def node(self, node: Node, names: _Names, indent: str) -> None:
        operands = ", ".join([names.of(v) for v in node.operands])
        results = ", ".join([names.define(v) for v in node.results])
        types = ", ".join([str(v.type) for v in node.results])
        parts = [f"{results} =" if results else "", self.op(node.op), operands, f": {types or '()'}"]
        line = indent + " ".join(filter(None, parts))
        comment = self.comment(node.span) if self.spans and node.span is not None else ""
        fields = _region_fields(node.op)
        if not fields:
            self.lines.append((line, comment))
            return
        self.lines.append((line + " {", comment))
        for name in fields:
            self.regions(name, getattr(node.op, name), indent + "  ")
        self.lines.append((f"{indent}}}", ""))

    def regions(self, name: str, held: Graph | tuple[Graph, ...] | None, indent: str) -> None:
        if held is None:
            self.lines.append((f"{indent}{name} = None", ""))
        elif isinstance(held, Graph):
            self.graph(held, indent, f"{name} = ", "")
        else:
            self.lines.append((f"{indent}{name} = (", ""))
            for graph in held:
                self.graph(graph, indent + "  ", "", ",")
            self.lines.append((f"{indent})", ""))

    def op(self, op: Op) -> str:
        parts = [f"{k}={self.attribute(v)}" for k, v in op.attributes().items()]
        return f"{op.name}[{', '.join(parts)}]" if parts else op.name

    def attribute(self, value: object) -> str:
        if isinstance(value, tuple):
            inside = ", ".join(map(self.attribute, value))
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, int, float, str, DType)):
            return format_attribute(value)
        if isinstance(value, TensorType):
            return str(value)
        array = getattr(value, "array", None)
        if isinstance(array, np.ndarray):
            return format_array(array, self.elide_over)
        return f"opaque({json.dumps(getattr(value, '__qualname__', type(value).__qualname__))})"

    def comment(self, span: Span) -> str:
        path = self.paths.get(span.file)
        if path is None:
            path = self.paths[span.file] = _short_path(span.file)
        of = "gradient of " if span.gradient else ""
        return f"{of}{path}:{span.line}  {span.source.strip()}".rstrip()


class _Names:
    """The names of one graph's values: their own where given, else the next number of the whole text."""

    def __init__(self, printer: _Printer):
        self.printer = printer
        self.table: dict[Value, str] = {}
        self.used: set[str] = set()

    def of(self, value: Value) -> str:
        return self.table.get(value) or "%?"  # only a graph that the verifier refuses has such values

    def define(self, value: Value) -> str:
        if not value.name:
            name = str(self.printer.numbered)
            self.printer.numbered += 1
        else:
            name = unique = quoted(value.name)
            count = 1
            while unique in self.used:
                unique = quoted(f"{value.name}_{count}")
                count += 1
            name = unique
            self.used.add(name)
        self.table[value] = f"%{name}"
        return self.table[value]


def quoted(name: str) -> str:
    """`name`, in quotes unless it is plain."""
    return name if PLAIN_NAME.match(name) else json.dumps(name, ensure_ascii=False)


def format_array(array: Array, elide_over: int | None = None) -> str:
    """A constant's text: a few numbers where they give the same bits when read, else little-endian bytes,
    else a digest.
    """
    type_text = str(TensorType(from_numpy(array.dtype), array.shape))
    if elide_over is not None and array.size > elide_over:
        return f"literal({type_text}, ~{hashlib.sha256(array.tobytes()).hexdigest()[:16]})"
    if array.size <= _NUMBERS_SHOWN:
        numbers = _exact_numbers(array)
        if numbers is not None:
            return f"literal({type_text}, [{', '.join(numbers)}])"
    return f"literal({type_text}, 0x{array.tobytes().hex()})"


def _exact_numbers(array: Array) -> list[str] | None:
    """The shortest decimals that read back as the same bits; None if there are none (NaN with a payload)."""
    flat = array.reshape(-1)
    if array.dtype.kind in "biu":
        return [repr(x) for x in flat.tolist()]
    for numbers in ([_decimal(str(x)) for x in flat], [repr(float(x)) for x in flat]):
        with np.errstate(over="ignore"):
            back = np.array([float(x) for x in numbers]).astype(array.dtype)
        if back.tobytes() == array.tobytes():
            return numbers
    return None


def _decimal(text: str) -> str:
    """numpy's `str` of a float as a token: `3` becomes `3.0`."""
    return f"{text}.0" if re.fullmatch(r"-?\d+", text) else text


def _region_fields(op: Op) -> list[str]:
    if not op.regions:
        return []
    return [f.name for f in dataclasses.fields(op) if f.metadata.get("region")]  # type: ignore[arg-type]


def _short_path(file: str) -> str:
    """Relative to the working directory where the file lies below it."""
    here = os.getcwd()
    return os.path.relpath(file, here) if file.startswith(here + os.sep) else file
