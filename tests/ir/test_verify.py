"""The verifier accepts good graphs and names what is wrong with each kind of broken one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell.errors import Span, VerificationError
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.op import Op
from graphcell.ir.types import Dim, TensorType
from graphcell.ir.verify import verify
from graphcell.ops.arithmetic import Add, Cast, Neg
from graphcell.ops.control import If, While
from graphcell.ops.creation import Full
from graphcell.ops.movement import Reshape

T2, T3 = TensorType(dt.float32, (2,)), TensorType(dt.float32, (3,))
BOOL = TensorType(dt.bool_, ())
SPAN = Span("net.py", 14, 4, 14, 9)


def identity(type: TensorType, name: str = "inner") -> Graph:
    x = Value(type)
    return Graph(name, [x], [], [x])


def duplicate_input() -> Graph:
    x = Value(T2, "x")
    return Graph("f", [x, x], [], [x])


def use_before_definition() -> Graph:
    x, y, z = Value(T2), Value(T2, "y"), Value(T2)
    return Graph("f", [x], [Node(Neg(), (y,), (z,), SPAN), Node(Neg(), (x,), (y,))], [z])


def undefined_operand() -> Graph:
    x, y = Value(T2), Value(T2, "y")
    return Graph("f", [], [Node(Neg(), (x,), (y,), SPAN)], [y])


def undefined_output() -> Graph:
    return Graph("f", [Value(T2)], [], [Value(T3)])


def defined_twice() -> Graph:
    x, y = Value(T2), Value(T2, "y")
    return Graph("f", [x], [Node(Neg(), (x,), (y,)), Node(Neg(), (x,), (y,), SPAN)], [y])


def input_redefined() -> Graph:
    x = Value(T2, "x")
    return Graph("f", [x], [Node(Neg(), (x,), (x,), SPAN)], [x])


def wrong_shape() -> Graph:
    x, y = Value(T2), Value(T3)
    return Graph("f", [x], [Node(Neg(), (x,), (y,), SPAN)], [y])


def wrong_dtype() -> Graph:
    x, y = Value(T2), Value(T2)
    return Graph("f", [x], [Node(Cast(dt.int8), (x,), (y,), SPAN)], [y])


def refused_operands() -> Graph:
    x, y, z = Value(T2), Value(T3), Value(T2)
    return Graph("f", [x, y], [Node(Add(), (x, y), (z,), SPAN)], [z])


def too_few_operands() -> Graph:
    x, y = Value(T2), Value(T2)
    return Graph("f", [x], [Node(Add(), (x,), (y,), SPAN)], [y])


def too_many_results() -> Graph:
    x, y, z = Value(T2), Value(T2), Value(T2)
    return Graph("f", [x], [Node(Neg(), (x,), (y, z), SPAN)], [y])


def mutable_attribute() -> Graph:
    x, y = Value(T2), Value(TensorType(dt.float32, (1, 2)))
    return Graph("f", [x], [Node(Reshape([1, 2]), (x,), (y,), SPAN)], [y])  # type: ignore[arg-type]


def attribute_of_a_wrong_kind() -> Graph:
    x, y = Value(T2), Value(T2)
    return Graph("f", [x], [Node(Reshape(2), (x,), (y,), SPAN)], [y])  # type: ignore[arg-type]


def unknown_op() -> Graph:
    @dataclass(frozen=True)
    class Private(Op):
        def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
            return x

    x, y = Value(T2), Value(T2)
    return Graph("f", [x], [Node(Private(), (x,), (y,), SPAN)], [y])


def negative_dimension() -> Graph:
    return Graph("f", [Value(TensorType(dt.float32, (2, -1)), "x")], [], [])


def numpy_dimension() -> Graph:
    shape = (np.int64(3),)
    x = Value(TensorType(dt.float32, shape))
    return Graph("f", [], [Node(Full(1.0, shape, dt.float32), (), (x,), SPAN)], [x])


def region_reads_outside() -> Graph:
    p, x, y = Value(BOOL), Value(T2, "x"), Value(T2)
    inner, result = Value(T2), Value(T2)
    leaky = Graph("then", [inner], [Node(Add(), (inner, x), (y,), SPAN)], [y])
    return Graph("f", [p, x], [Node(If(leaky, identity(T2)), (p, x), (result,))], [result])


def region_shares_a_value() -> Graph:
    p, x, result = Value(BOOL), Value(T2, "x"), Value(T2)
    return Graph(
        "f", [p, x], [Node(If(Graph("then", [x], [], [x]), identity(T2)), (p, x), (result,))], [result]
    )


def broken_region() -> Graph:
    p, x, result = Value(BOOL), Value(T2), Value(T2)
    return Graph("f", [p, x], [Node(If(wrong_shape(), identity(T2)), (p, x), (result,))], [result])


def branches_of_different_types() -> Graph:
    p, x, result = Value(BOOL), Value(T2), Value(T2)
    return Graph("f", [p, x], [Node(If(identity(T2), identity(T3)), (p, x), (result,), SPAN)], [result])


def carried_value_changes_type() -> Graph:
    p, x, n = Value(BOOL), Value(T2), Value(T2)
    c, y = Value(BOOL), Value(T2)
    cond = Graph("cond", [c, y], [], [c])
    b, z, small = Value(BOOL), Value(T2), Value(TensorType(dt.int8, (2,)))
    body = Graph("body", [b, z], [Node(Cast(dt.int8), (z,), (small,))], [b, small])
    return Graph("f", [p, x], [Node(While(cond, body, 2), (p, x), (Value(BOOL), n), SPAN)], [n])


BROKEN: list[tuple[Callable[[], Graph], str]] = [
    (duplicate_input, "graph f: input %x appears twice"),
    (use_before_definition, "graph f, node 0 (neg): operand %y is not defined before its use"),
    (undefined_operand, "graph f, node 0 (neg): operand 0 (f32[2]) is not defined before its use"),
    (undefined_output, "graph f: output 0 (f32[3]) is not defined in it"),
    (defined_twice, "graph f, node 1 (neg): result %y is defined twice"),
    (input_redefined, "graph f, node 0 (neg): result %x is defined twice"),
    (wrong_shape, "graph f, node 0 (neg): result types are (f32[3]), inferred (f32[2])"),
    (wrong_dtype, "graph f, node 0 (cast): result types are (f32[2]), inferred (i8[2])"),
    (refused_operands, "graph f, node 0 (add): add: shapes differ, (2,), (3,)"),
    (too_few_operands, "graph f, node 0 (add): takes 2 operands, but has 1"),
    (too_many_results, "graph f, node 0 (neg): result types are (f32[2], f32[2]), inferred (f32[2])"),
    (mutable_attribute, "graph f, node 0 (reshape): attributes must be immutable (unhashable type: 'list')"),
    (
        attribute_of_a_wrong_kind,
        "graph f, node 0 (reshape): does not take operands (f32[2]) ('int' object is not iterable)",
    ),
    (unknown_op, "graph f, node 0 (): Private is not in the table of ops"),
    (negative_dimension, "graph f, input %x: -1 in shape (2, -1) is no dimension"),
    (numpy_dimension, "graph f, node 0 (full): np.int64(3) in shape (np.int64(3),) is no dimension"),
    (region_reads_outside, "graph then, node 0 (add): operand %x is not defined before its use"),
    (region_shares_a_value, "graph then: value %x also belongs to the graph around it"),
    (broken_region, "graph f, node 0 (neg): result types are (f32[3]), inferred (f32[2])"),
    (branches_of_different_types, "graph f, node 0 (if): "),
    (carried_value_changes_type, "graph f, node 0 (while): "),
]


@pytest.mark.parametrize(("make", "message"), BROKEN, ids=[make.__name__ for make, _ in BROKEN])
def test_broken_graphs(make: Callable[[], Graph], message: str) -> None:
    with pytest.raises(VerificationError) as caught:
        verify(make())
    assert caught.value.message.startswith(message)
    assert isinstance(caught.value, RuntimeError)


def test_the_error_is_at_the_users_line() -> None:
    with pytest.raises(VerificationError) as caught:
        verify(refused_operands())
    assert caught.value.span is SPAN
    assert "--> net.py:14:5" in str(caught.value)


def test_good_graphs() -> None:
    x, y = Value(TensorType(dt.float32, (Dim("n"),)), "x"), Value(T2, "y")
    verify(Graph("f", [x, y], [], [y, x, y]))
    p, z, result = Value(BOOL), Value(T2), Value(T2)
    shared = identity(T2)
    verify(Graph("f", [p, z], [Node(If(shared, shared), (p, z), (result,))], [result]))
