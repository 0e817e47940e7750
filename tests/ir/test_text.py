"""IR text: what it looks like, that it reads back as the same graph, and what is said about text that is no
IR.
"""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import graphcell.ops.control  # noqa: F401  (puts its ops into the table)
from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.errors import ParseError, Span
from graphcell.ir.graph import Builder, Graph, Value, structural_key
from graphcell.ir.op import Array, Op
from graphcell.ir.text import format_array, parse, print_graph
from graphcell.ir.types import Dim, TensorType
from graphcell.ops.arithmetic import Add, Mul, Neg
from graphcell.ops.contraction import MatMul
from graphcell.ops.control import For, If
from graphcell.ops.creation import Constant, Full, Literal
from graphcell.ops.movement import Pad, Transpose
from graphcell.ops.reduction import ReduceSum

F32 = dt.float32


def tensor(*shape: int, dtype: DType = F32) -> TensorType:
    return TensorType(dtype, shape)


def single(b: Builder, op: Op, *operands: Value, span: Span | None = None) -> Value:
    (result,) = b.append(op, operands, span)
    return result


def assert_round_trip(graph: Graph) -> None:
    text = print_graph(graph)
    again = parse(text)
    assert structural_key(again) == structural_key(graph)
    assert print_graph(again) == text
    assert structural_key(parse(print_graph(graph, spans=False))) == structural_key(graph)


# -- what it looks like --------------------------------------------------------------------------------------
def test_printed_form() -> None:
    b = Builder("Net.construct")
    x, w = b.input(tensor(4, 5), "x"), b.input(tensor(6, 5), "fc.weight")
    t = single(b, Transpose((1, 0)), w)
    y = single(b, MatMul(), x, t)
    s = single(b, ReduceSum((0,), True), y)
    graph = b.finish([s, y])
    assert print_graph(graph) == (
        "graph @Net.construct(%x: f32[4, 5], %fc.weight: f32[6, 5]) -> (f32[1, 6], f32[4, 6]) {\n"
        "  %0 = transpose[perm=(1, 0)] %fc.weight : f32[5, 6]\n"
        "  %1 = matmul[transpose_x=False, transpose_y=False] %x, %0 : f32[4, 6]\n"
        "  %2 = reduce_sum[axis=(0,), keep_dims=True] %1 : f32[1, 6]\n"
        "  return %2, %1\n"
        "}\n"
    )
    assert str(graph) == print_graph(graph)
    assert_round_trip(graph)


def test_source_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text("def f(x):\n    y = x * x\n    return y + x  # 和\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    linecache.clearcache()
    file = str(tmp_path / "net.py")
    b = Builder("f")
    x = b.input(tensor(3), "x")
    y = single(b, Mul(), x, x, span=Span(file, 2, 8, 2, 13, "f"))
    z = single(b, Add(), y, x, span=Span(file, 3, 11, 3, 16, "f"))
    g = single(b, Neg(), z, span=Span(file, 2, 8, 2, 13, "f").as_gradient())
    e = single(b, Neg(), g, span=Span("elsewhere.py", 7, 0, 7, 3))
    graph = b.finish([e])
    text = print_graph(graph)
    assert text == (
        "graph @f(%x: f32[3]) -> (f32[3]) {\n"
        "  %0 = mul %x, %x : f32[3]  // net.py:2  y = x * x\n"
        "  %1 = add %0, %x : f32[3]  // net.py:3  return y + x  # 和\n"
        "  %2 = neg %1 : f32[3]      // gradient of net.py:2  y = x * x\n"
        "  %3 = neg %2 : f32[3]      // elsewhere.py:7\n"
        "  return %3\n"
        "}\n"
    )
    again = parse(text)
    assert print_graph(again) == text
    first = again.nodes[0].span
    assert first is not None and (first.file, first.line, first.column, first.end_column) == (
        "net.py",
        2,
        4,
        13,
    )
    assert [n.span.gradient for n in again.nodes if n.span is not None] == [False, False, True, False]


def test_regions_are_nested_blocks() -> None:
    text = (
        "graph @f(%p: i1[], %x: f32[2]) -> (f32[2]) {\n"
        "  %0 = if %p, %x : f32[2] {\n"
        "    then_graph = @then(%x: f32[2]) -> (f32[2]) {\n"
        "      %1, %2 = for[trip_count=3, carried=1, scanned=0, reverse=False] %x : f32[2], f32[3, 2] {\n"
        "        body = @body(%i: i64[], %x: f32[2]) -> (f32[2], f32[2]) {\n"
        "          %3 = neg %x : f32[2]\n"
        "          return %3, %x\n"
        "        }\n"
        "      }\n"
        "      return %1\n"
        "    }\n"
        "    else_graph = @else(%x: f32[2]) -> (f32[2]) {\n"
        "      return %x\n"
        "    }\n"
        "  }\n"
        "  return %0\n"
        "}\n"
    )
    graph = parse(text)
    assert isinstance(graph.nodes[0].op, If)
    assert isinstance(graph.nodes[0].op.then_graph.nodes[0].op, For)
    assert print_graph(graph) == text


def test_long_heads_have_one_input_a_line() -> None:
    b = Builder("f")
    values = [b.input(tensor(128, 256), f"layer{k}.weight") for k in range(5)]
    graph = b.finish(values[:1])
    lines = print_graph(graph).splitlines()
    assert lines[0] == "graph @f("
    assert lines[1] == "    %layer0.weight: f32[128, 256],"
    assert lines[6] == ") -> (f32[128, 256]) {"
    assert_round_trip(graph)


@pytest.mark.parametrize(
    "names",
    [("x", "x", "x"), ("3", "", "x_1"), ("a b", "宽", 'q"\\'), ("conv1.0.weight", "%x", "//"), ("", "", "")],
)
def test_any_names(names: Sequence[str]) -> None:
    b = Builder("<lambda>")
    values = [b.input(tensor(2)) for _ in names]
    for v, name in zip(values, names, strict=True):
        v.name = name
    graph = b.finish([single(b, Add(), values[0], values[1]), values[2]])
    assert_round_trip(graph)
    again = parse(print_graph(graph))
    assert again.name == "<lambda>"
    if len(set(names)) == len(names):
        assert tuple(v.name for v in again.inputs) == tuple(names)


def test_types_may_be_left_out() -> None:
    graph = parse(
        "graph @f(%x: f32[2, 3]) { %a = neg %x %b, %c = call %a { graph = @g(%x: f32[2, 3]) { return %x, %x } } return %c }"
    )
    assert graph.outputs[0].type == tensor(2, 3)


def test_symbolic_dimensions() -> None:
    graph = parse("graph @f(%x: f32[batch, 3]) { return %x }")
    assert graph.inputs[0].type.shape == (Dim("batch"), 3)
    assert parse(print_graph(graph)).inputs[0].type == graph.inputs[0].type


# -- constants -----------------------------------------------------------------------------------------------
def constant_graph(array: Array) -> Graph:
    b = Builder("c")
    return b.finish([single(b, Constant(Literal(array), dt.from_numpy(array.dtype)))])


def literal_of(graph: Graph) -> Array:
    op = graph.nodes[0].op
    assert isinstance(op, Constant)
    return op.literal.array


@pytest.mark.parametrize("dtype", dt.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("size", [0, 1, 5, 40])
def test_constants_keep_their_bits(dtype: DType, size: int) -> None:
    rng = np.random.default_rng(size)
    raw = rng.integers(0, 256, size * dtype.itemsize, dtype=np.uint8)
    array = (raw[::1] % 2).view(np.bool_) if dtype.is_bool else raw.view(dtype.np_type)
    again = literal_of(parse(print_graph(constant_graph(array))))
    assert again.dtype == array.dtype and again.shape == array.shape and again.tobytes() == array.tobytes()


@given(hnp.arrays(np.uint32, st.integers(0, 6)))
def test_any_float32_keeps_its_bits(bits: Array) -> None:
    array = bits.view(np.float32)
    assert literal_of(parse(print_graph(constant_graph(array)))).tobytes() == array.tobytes()


@given(hnp.arrays(np.uint16, st.integers(0, 6)), st.sampled_from([np.float16, ml_dtypes.bfloat16]))
def test_any_half_keeps_its_bits(bits: Array, half: type) -> None:
    array = bits.view(half)
    assert literal_of(parse(print_graph(constant_graph(array)))).tobytes() == array.tobytes()


def test_constants_are_readable() -> None:
    array = np.array([[0.1, -0.0], [np.inf, np.nan]], np.float32)
    assert format_array(array) == "literal(f32[2, 2], [0.1, -0.0, inf, nan])"
    assert format_array(np.array(3, np.int64)) == "literal(i64[], [3])"
    assert format_array(np.array([True, False])) == "literal(i1[2], [True, False])"
    assert format_array(np.array([0x7FC00001], np.uint32).view(np.float32)) == "literal(f32[1], 0x0100c07f)"


def test_large_constants_can_be_left_out() -> None:
    graph = constant_graph(np.arange(100, dtype=np.int32))
    text = print_graph(graph, elide_over=99)
    assert "literal(i32[100], ~" in text and len(text) < 200
    assert print_graph(graph, elide_over=100) == print_graph(graph)
    with pytest.raises(ParseError, match="left out of the text"):
        parse(text)
    other = constant_graph(np.arange(1, 101, dtype=np.int32))
    assert print_graph(other, elide_over=99) != text


@given(st.floats())
def test_any_number_as_an_attribute(number: float) -> None:
    b = Builder("f")
    x = b.input(tensor(2))
    graph = b.finish([single(b, Full(number, (2,), dt.float64)), single(b, Pad((1,), (0,), (0,), number), x)])
    assert_round_trip(graph)


# -- text that is no IR --------------------------------------------------------------------------------------
ERRORS = [
    (
        "graph @f(%x: f32[2]) {\n  %a = nge %x\n  return %a\n}",
        "there is no op named nge [GC402]\n  --> f.ir:2:8\n   2 |   %a = nge %x\n     |        ^^^\n  hint: did you mean neg?",
    ),
    (
        "graph @f(%x: f32[2]) {\n  %a = neg %y\n  return %a\n}",
        "%y is not defined before its use in this graph [GC402]\n  --> f.ir:2:12\n   2 |   %a = neg %y\n     |            ^^\n"
        "  hint: a region sees only its own inputs and nodes",
    ),
    (
        "graph @f(%x: f32[2]) {\n  %a = neg %x : f32[3]\n  return %a\n}",
        "neg gives f32[2], but f32[3] is written [GC402]\n  --> f.ir:2:8\n   2 |   %a = neg %x : f32[3]\n     |        ^^^",
    ),
    (
        "graph @f(%x: f32[2], %y: f32[3]) {\n  %宽 = add %x, %y\n  return %宽\n}",
        "add: shapes differ, (2,), (3,) [GC402]\n  --> f.ir:2:8\n   2 |   %宽 = add %x, %y\n     |        ^^^",
    ),
    ("graph @f(%x: f32[2]) {\n  %a = add %x\n  return %a\n}", "add takes 2 operands, but 1 are written"),
    (
        "graph @f(%x: f32[2]) {\n  %a, %b = neg %x\n  return %a\n}",
        "neg has 1 results, but 2 names stand before it",
    ),
    ("graph @f(%x: f32[2]) {\n  %x = neg %x\n  return %x\n}", "%x is defined twice"),
    ("graph @f(%x: f32[2], %x: f32[2]) { return %x }", "%x is defined twice"),
    ("graph @f(%x: f32[2]) {\n  %a = reshape %x\n  return %a\n}", "reshape needs the attribute shape"),
    ("graph @f(%x: f32[2]) {\n  %a = reshape[shap=(2,)] %x\n  return %a\n}", "reshape has no attribute shap"),
    (
        "graph @f(%x: f32[2]) {\n  %a = reshape[shape=(2,), shape=(2,)] %x\n  return %a\n}",
        "shape is given twice",
    ),
    (
        "graph @f(%x: f32[2]) {\n  %a = reshape[shape=(2, 1.5)] %x\n  return %a\n}",
        "shape must be tuple[int, ...]",
    ),
    (
        "graph @f(%x: f32[2]) {\n  %a = reshape[shape=(3,)] %x\n  return %a\n}",
        "reshape: a Tensor of shape (2,) has 2 elements",
    ),
    ("graph @f(%x: f32[2]) {\n  %a = cast[dtype=3] %x\n  return %a\n}", "dtype must be DType"),
    (
        "graph @f(%x: f32[2]) {\n  %a = cast[dtype=f31] %x\n  return %a\n}",
        "expected an attribute's value, but found 'f31'",
    ),
    ("graph @f(%x: f33[2]) { return %x }", "f33 is no element type"),
    ("graph @f(%x: f32[-2]) { return %x }", "expected a dimension, but found '-2'"),
    ("graph @f(%x: f32[2]) -> (f32[3]) { return %x }", "graph f returns f32[2], but its head says f32[3]"),
    ("graph @f(%x: f32[2]) { return %x", "expected '}', but found the end of the text"),
    (
        "graph @f(%x: f32[2]) { return %x } graph",
        "expected the end of the text after the graph, but found 'graph'",
    ),
    ("graph f(%x: f32[2]) { return %x }", "expected a graph name such as @main, but found 'f'"),
    ("", "expected 'graph', but found the end of the text"),
    ("graph @f(%x: f32[2]) { return %x; }", "unexpected character ';'"),
    (
        'graph @f() { %a = constant[literal=opaque("f"), dtype=f32] return %a }',
        "a Python object, which text cannot hold",
    ),
    (
        "graph @f() { %a = constant[literal=literal(f32[2], 0x00), dtype=f32] return %a }",
        "f32[2] has 8 bytes, but 1 are written",
    ),
    (
        "graph @f() { %a = constant[literal=literal(f32[2], [1.0]), dtype=f32] return %a }",
        "f32[2] has 2 numbers, but 1 are written",
    ),
    ("graph @f() { %a = constant[literal=3, dtype=f32] return %a }", "literal must be Literal"),
    (
        "graph @f() { %a = constant[literal=literal(i8[1], [300]), dtype=i8] return %a }",
        "a number does not fit Int8",
    ),
    ('graph @"\\q"() { return }', "is no name in quotes"),
    ("graph @f() { %a = constant[literal='\\x', dtype=f32] return %a }", "is no number or string"),
    (
        "graph @f() { %a = full[value=" + "(" * 3000 + ", shape=(), dtype=f32] return %a }",
        "nested too deeply",
    ),
    (
        "graph @f(%p: i1[]) { %a = if %p { then_graph = @t() { return } } return }",
        "if needs the attribute else_graph",
    ),
    ("graph @f(%p: i1[]) { if %p { graph = @t() { return } } return }", "if has no region graph"),
    (
        "graph @f(%p: i1[], %x: f32[2]) { %a = if %p { then_graph = @t() { return %x } else_graph = @e() { return %x } } return %a }",
        "%x is not defined before its use in this graph",
    ),
]


@pytest.mark.parametrize(("text", "message"), ERRORS, ids=[m.splitlines()[0][:40] for _, m in ERRORS])
def test_errors(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text, "f.ir")
    got = str(caught.value)
    if "\n" in message:
        assert got == message
    else:
        assert got.startswith(message) or message in got.splitlines()[0]
        assert "--> f.ir:" in got and ("^" in got) == bool(text)
    assert isinstance(caught.value, ValueError)


@given(st.text(alphabet="graph @f(%x:32[],){}=negadd->\"'0x.1\n/", max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        parse(text)
    except ParseError as e:
        assert e.span is not None and e.span.line >= 1


@given(st.data())
def test_damaged_text_is_parsed_or_refused(data: st.DataObject) -> None:
    text = (
        "graph @f(%x: f32[2, 3]) -> (f32[3]) {\n  %0 = mul %x, %x : f32[2, 3]  // a.py:1  y\n"
        "  %1 = reduce_sum[axis=(0,), keep_dims=False] %0 : f32[3]\n  return %1\n}\n"
    )
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = (
        text[:at] + data.draw(st.sampled_from(["", "(", "%", "9", "]", "x", '"', "\n"])) + text[at + 1 :]
    )
    try:
        parse(damaged)
    except ParseError as e:
        assert str(e)
