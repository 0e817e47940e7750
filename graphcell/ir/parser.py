"""Reads IR text (see graphcell/ir/text.py for the form) by recursive descent.

Enters: a text. Leaves: a Graph whose every op was rebuilt from `Op.table`, whose every type was inferred, and
compared with the type written where one is written. Source lines in comments become the nodes' spans.
Refuses, with line, column and caret: text of another form, unknown ops and attributes, values used before
they are defined, types that do not fit.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
import linecache
import re
import types
import typing
from typing import Any, NoReturn

import numpy as np

from graphcell.dtype import DType
from graphcell.errors import GraphcellError, Span
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.lexer import Source, Token, tokenize
from graphcell.ir.op import Array, Op, infer_types
from graphcell.ir.types import DTYPE_OF_SHORT, Dim, TensorType
from graphcell.ir.verify import operand_count
from graphcell.records import dataclass

_PLACE = re.compile(r"(?P<gradient>gradient of )?(?P<file>\S.*?):(?P<line>\d+)(?:  |$)")
_KEYWORDS = {"True": True, "False": False, "None": None}


def parse(text: str, file: str = "<ir>") -> Graph:
    """The Graph that `text` stands for. `file` names the text in errors.

    Raises:
        ParseError: the text is no IR, or breaks one of its rules.
    """
    parser = _Parser(Source(text, file))
    parser.expect("graph")
    try:
        graph = parser.graph()
    except RecursionError as e:
        parser.fail("the text is nested too deeply", cause=e)
    if parser.token.kind != "end":
        parser.fail(f"expected the end of the text after the graph, but found {parser.token.text!r}")
    return graph


@dataclass(frozen=True, slots=True)
class _RawArray:
    """A constant, before the class that the op keeps it in is known."""

    array: Array


class _Parser:
    def __init__(self, source: Source):
        self.source = source
        self.tokens = tokenize(source)
        self.position = 0
        self.token = self.tokens[0]

    # -- tokens ----------------------------------------------------------------------------------------------
    def fail(
        self, message: str, token: Token | None = None, hint: str = "", cause: Exception | None = None
    ) -> NoReturn:
        self.source.fail(token or self.token, message, hint, cause)

    def advance(self) -> Token:
        token = self.token
        if token.kind != "end":
            self.position += 1
            self.token = self.tokens[self.position]
        return token

    def accept(self, text: str) -> bool:
        """Steps over `text` if it is next."""
        if self.token.text != text or self.token.kind == "string":
            return False
        self.advance()
        return True

    def expect(self, text: str) -> Token:
        if self.token.text != text:
            self.fail(f"expected {text!r}, but found {self.found()}")
        return self.advance()

    def expect_kind(self, kind: str, what: str) -> Token:
        if self.token.kind != kind:
            self.fail(f"expected {what}, but found {self.found()}")
        return self.advance()

    def found(self) -> str:
        return repr(self.token.text) if self.token.kind != "end" else "the end of the text"

    def unquoted(self, token: Token) -> str:
        """The name of a value or graph token, without its sign and quotes."""
        if token.text[1:2] != '"':
            return token.text[1:]
        try:
            return str(json.loads(token.text[1:]))
        except ValueError as e:
            self.fail(f"{token.text} is no name in quotes", token, cause=e)

    # -- graphs ----------------------------------------------------------------------------------------------
    def graph(self) -> Graph:
        name = self.unquoted(self.expect_kind("graph", "a graph name such as @main"))
        scope: dict[str, Value] = {}
        inputs = self.inputs(scope)
        written = self.output_types()
        self.expect("{")
        nodes = []
        while self.token.text != "return":
            nodes.append(self.node(scope))
        at = self.advance()
        outputs = self.values(scope) if self.token.kind == "value" else []
        self.expect("}")
        got = tuple(v.type for v in outputs)
        if written is not None and written != got:
            self.fail(
                f"graph {name} returns {_types_text(got)}, but its head says {_types_text(written)}", at
            )
        return Graph(name, inputs, nodes, outputs)

    def inputs(self, scope: dict[str, Value]) -> list[Value]:
        inputs: list[Value] = []
        self.expect("(")
        while not self.accept(")"):
            token = self.expect_kind("value", "an input such as %x")
            self.expect(":")
            inputs.append(self.define(token, self.tensor_type(), scope))
            if not self.accept(",") and self.token.text != ")":
                self.fail(f"expected ',' or ')', but found {self.found()}")
        return inputs

    def output_types(self) -> tuple[TensorType, ...] | None:
        if not self.accept("->"):
            return None
        self.expect("(")
        result = () if self.token.text == ")" else self.types()
        self.expect(")")
        return result

    def define(self, token: Token, type: TensorType, scope: dict[str, Value]) -> Value:
        if token.text in scope:
            self.fail(f"{token.text} is defined twice", token)
        name = self.unquoted(token)
        value = scope[token.text] = Value(type, "" if name.isdecimal() and '"' not in token.text else name)
        return value

    def values(self, scope: dict[str, Value]) -> list[Value]:
        values = [self.value(scope)]
        while self.accept(","):
            values.append(self.value(scope))
        return values

    def value(self, scope: dict[str, Value]) -> Value:
        token = self.expect_kind("value", "a value such as %x")
        found = scope.get(token.text)
        if found is None:
            hint = "a region sees only its own inputs and nodes"
            self.fail(f"{token.text} is not defined before its use in this graph", token, hint)
        return found

    # -- nodes -----------------------------------------------------------------------------------------------
    def node(self, scope: dict[str, Value]) -> Node:
        begin = self.token
        results: list[Token] = []
        if begin.kind == "value":
            results.append(self.advance())
            while self.accept(","):
                results.append(self.expect_kind("value", "a result such as %x"))
            self.expect("=")
        name = self.expect_kind("name", "an op, or 'return'")
        cls = self.op_class(name)
        fields = self.attributes(cls) if self.accept("[") else {}
        operands = self.values(scope) if self.token.kind == "value" and not self.at_results() else []
        written = self.written_types()
        if self.accept("{"):
            self.region_fields(cls, fields)
        op = self.build(cls, fields, name)
        inferred = self.infer(op, operands, name)
        if written is not None and written != inferred:
            self.fail(f"{op.name} gives {_types_text(inferred)}, but {_types_text(written)} is written", name)
        if len(results) != len(inferred):
            self.fail(
                f"{op.name} has {len(inferred)} results, but {len(results)} names stand before it", begin
            )
        made = [self.define(token, type, scope) for token, type in zip(results, inferred, strict=True)]
        return Node(op, tuple(operands), tuple(made), self.span(begin))

    def at_results(self) -> bool:
        """True if the value that comes next begins another node (`%3 = …`, `%3, %4 = …`)."""
        k = self.position
        while self.tokens[k].kind == "value" and self.tokens[k + 1].text == ",":
            k += 2
        return self.tokens[k].kind == "value" and self.tokens[k + 1].text == "="

    def op_class(self, name: Token) -> type[Op]:
        cls = Op.table.get(name.text)
        if cls is None:
            import difflib

            near = difflib.get_close_matches(name.text, Op.table, 1)
            self.fail(f"there is no op named {name.text}", name, f"did you mean {near[0]}?" if near else "")
        return cls

    def written_types(self) -> tuple[TensorType, ...] | None:
        if not self.accept(":"):
            return None
        if self.accept("("):
            self.expect(")")
            return ()
        return self.types()

    def build(self, cls: type[Op], fields: dict[str, Any], name: Token) -> Op:
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            optional = (
                field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
            )
            if field.name not in fields and not optional:
                self.fail(f"{name.text} needs the attribute {field.name}", name)
        try:
            return cls(**fields)
        except GraphcellError as e:
            self.fail(f"{name.text}: {e.message}", name, e.hint, e)

    def infer(self, op: Op, operands: list[Value], name: Token) -> tuple[TensorType, ...]:
        count = operand_count(type(op))  # type: ignore[arg-type]
        if count not in (None, len(operands)):
            self.fail(f"{op.name} takes {count} operands, but {len(operands)} are written", name)
        try:
            return infer_types(op, tuple(v.type for v in operands))
        except GraphcellError as e:
            self.fail(e.message, name, e.hint, e)
        except (TypeError, ValueError, LookupError) as e:  # the op was given what it cannot take at all
            self.fail(
                f"{op.name} does not take operands {_types_text([v.type for v in operands])}", name, "", e
            )

    def span(self, token: Token) -> Span | None:
        """The user's source line, from the comment on the node's first line."""
        match = _PLACE.match(self.source.comments.get(self.source.line_begin(token.offset), ""))
        if match is None:
            return None
        file, line = match["file"], int(match["line"])
        source = linecache.getline(file, line).rstrip()
        column = len(source) - len(source.lstrip())
        return Span(file, line, column, line, len(source), gradient=bool(match["gradient"]))

    # -- attributes ------------------------------------------------------------------------------------------
    def attributes(self, cls: type[Op]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        hints = _field_hints(cls)  # type: ignore[arg-type]
        while not self.accept("]"):
            name = self.expect_kind("name", "an attribute name")
            self.check_field(cls, name, fields, region=False)
            self.expect("=")
            at = self.token
            fields[name.text] = self.convert(self.attribute(), hints[name.text], name, at)
            if not self.accept(",") and self.token.text != "]":
                self.fail(f"expected ',' or ']', but found {self.found()}")
        return fields

    def check_field(self, cls: type[Op], name: Token, fields: dict[str, Any], region: bool) -> None:
        known = [f.name for f in dataclasses.fields(cls) if bool(f.metadata.get("region")) is region]  # type: ignore[arg-type]
        if name.text not in known:
            what = "region" if region else "attribute"
            self.fail(
                f"{cls.name} has no {what} {name.text}",
                name,
                f"it has {', '.join(known)}" if known else "it has none",
            )
        if name.text in fields:
            self.fail(f"{name.text} is given twice", name)

    def attribute(self) -> Any:
        token = self.advance()
        if token.kind in ("number", "string"):
            return self.python_literal(token)
        if token.text == "(":
            return tuple(self.items(")"))
        if token.kind == "name":
            return self.named_attribute(token)
        self.fail(f"expected an attribute's value, but found {token.text or 'the end of the text'!r}", token)

    def python_literal(self, token: Token) -> int | float | str:
        try:
            if token.kind == "string":
                return str(ast.literal_eval(token.text))
            return float(token.text) if re.search(r"[.einfa]", token.text) else int(token.text)
        except (ValueError, SyntaxError) as e:
            self.fail(f"{token.text[:40]} is no number or string", token, cause=e)

    def named_attribute(self, token: Token) -> Any:
        if token.text in _KEYWORDS:
            return _KEYWORDS[token.text]
        if token.text == "literal":
            return self.literal()
        if token.text == "opaque":
            self.fail("this attribute is a Python object, which text cannot hold", token)
        if token.text not in DTYPE_OF_SHORT:
            self.fail(f"expected an attribute's value, but found {token.text!r}", token)
        dtype = DTYPE_OF_SHORT[token.text]
        return TensorType(dtype, self.shape()) if self.token.text == "[" else dtype

    def items(self, close: str) -> list[Any]:
        items = []
        while not self.accept(close):
            items.append(self.attribute())
            if not self.accept(",") and self.token.text != close:
                self.fail(f"expected ',' or {close!r}, but found {self.found()}")
        return items

    def literal(self) -> _RawArray:
        self.expect("(")
        type = self.tensor_type()
        self.expect(",")
        at = self.advance()
        np_type = type.dtype.np_type
        if at.kind == "bytes":
            text = at.text[2:]
            if len(text) != 2 * type.nbytes:
                self.fail(f"{type} has {type.nbytes} bytes, but {len(text) // 2} are written", at)
            array = np.frombuffer(bytes.fromhex(text), np_type)
        elif at.text == "[":
            numbers = self.items("]")
            if len(numbers) != type.size or not all(isinstance(x, (bool, int, float)) for x in numbers):
                self.fail(f"{type} has {type.size} numbers, but {len(numbers)} are written", at)
            try:
                with np.errstate(over="ignore"):
                    array = np.array(numbers, None if type.dtype.is_float else np_type).astype(np_type)
            except OverflowError as e:
                self.fail(f"a number does not fit {type.dtype}", at, cause=e)
        elif at.kind == "digest":
            self.fail("this constant was left out of the text", at, "print the graph without elide_over")
        else:
            self.fail("expected the constant's numbers in brackets, or its bytes", at)
        self.expect(")")
        return _RawArray(array.reshape(type.shape))

    def convert(self, raw: Any, hint: Any, name: Token, at: Token) -> Any:
        """`raw` as a value of the field's type."""
        value = _converted(raw, hint)
        if value is _MISFIT:
            wanted = hint.__name__ if isinstance(hint, type) else str(hint).replace("graphcell.", "")
            self.fail(f"{name.text} must be {wanted}", at)
        return value

    # -- types -----------------------------------------------------------------------------------------------
    def types(self) -> tuple[TensorType, ...]:
        types = [self.tensor_type()]
        while self.accept(","):
            types.append(self.tensor_type())
        return tuple(types)

    def tensor_type(self) -> TensorType:
        token = self.expect_kind("name", "a type such as f32[2, 3]")
        if token.text not in DTYPE_OF_SHORT:
            self.fail(f"{token.text} is no element type", token, f"they are {', '.join(DTYPE_OF_SHORT)}")
        return TensorType(DTYPE_OF_SHORT[token.text], self.shape())

    def shape(self) -> tuple[int, ...]:
        dims: list[Any] = []
        self.expect("[")
        while not self.accept("]"):
            token = self.advance()
            if token.kind == "name":
                dims.append(Dim(token.text))
            elif token.kind == "number" and token.text.isdecimal():
                dims.append(int(token.text))
            else:
                self.fail(f"expected a dimension, but found {token.text!r}", token)
            if not self.accept(",") and self.token.text != "]":
                self.fail(f"expected ',' or ']', but found {self.found()}")
        return tuple(dims)

    # -- regions ---------------------------------------------------------------------------------------------
    def region_fields(self, cls: type[Op], fields: dict[str, Any]) -> None:
        while not self.accept("}"):
            name = self.expect_kind("name", "a region's name, or '}'")
            self.check_field(cls, name, fields, region=True)
            self.expect("=")
            if self.accept("None"):
                fields[name.text] = None
            elif self.accept("("):
                graphs = []
                while not self.accept(")"):
                    graphs.append(self.graph())
                    if self.token.text != ")":
                        self.expect(",")
                fields[name.text] = tuple(graphs)
            else:
                fields[name.text] = self.graph()


_MISFIT = object()


@functools.cache
def _field_hints(cls: type[Op]) -> dict[str, Any]:
    return typing.get_type_hints(cls, localns={"Graph": Graph})


def _converted(raw: Any, hint: Any) -> Any:
    """`raw` as an instance of the annotation `hint`, or `_MISFIT`."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        options = (_converted(raw, h) for h in typing.get_args(hint))
        return next((v for v in options if v is not _MISFIT), _MISFIT)
    if hint is Any:
        return raw
    if origin is tuple or hint is tuple:
        return _converted_tuple(raw, typing.get_args(hint))
    if origin is typing.Literal:
        return raw if raw in typing.get_args(hint) else _MISFIT
    if hint is None or hint is type(None):
        return None if raw is None else _MISFIT
    if isinstance(raw, _RawArray):
        return (
            hint(raw.array)
            if isinstance(hint, type) and hint not in (bool, int, float, str, DType)
            else _MISFIT
        )
    if hint is float and type(raw) is int:
        return float(raw)
    if hint in (bool, int, float, str):
        return raw if type(raw) is hint else _MISFIT
    return raw if isinstance(hint, type) and isinstance(raw, hint) else _MISFIT


def _converted_tuple(raw: Any, hints: tuple[Any, ...]) -> Any:
    if not isinstance(raw, tuple):
        return _MISFIT
    if not hints:
        return raw
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = (hints[0],) * len(raw)
    if len(hints) != len(raw):
        return _MISFIT
    items = tuple(_converted(x, h) for x, h in zip(raw, hints, strict=True))
    return _MISFIT if any(x is _MISFIT for x in items) else items


def _types_text(types: typing.Sequence[TensorType]) -> str:
    return ", ".join(map(str, types)) if len(types) == 1 else f"({', '.join(map(str, types))})"
