"""Running graphs by the ops' `eval`."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArityError, ExecutionError, Span
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Builder, Graph, Value
from graphcell.ir.op import Array, Op
from graphcell.ir.text import parse
from graphcell.ir.types import TensorType
from graphcell.ops.arithmetic import Add, Mul, Neg

T = TensorType(dt.float32, (3,))


def test_results() -> None:
    graph = parse(
        "graph @f(%x: f32[3], %y: f32[3]) { %a = mul %x, %y %b = add %a, %x %c = reduce_sum[axis=(0,), keep_dims=False] %b return %c, %x, %b }"
    )
    x, y = np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)
    total, same, b = evaluate_graph(graph, [x, y])
    assert total == 38 and total.shape == () and same is x
    np.testing.assert_array_equal(b, [5, 12, 21])


def test_a_graph_without_nodes() -> None:
    x = Value(T)
    array = np.zeros(3, np.float32)
    assert evaluate_graph(Graph("f", [x], [], [x, x]), [array]) == (array, array)


def test_loops_and_branches() -> None:
    graph = parse(
        """graph @f(%n: i32[], %x: f32[]) {
          %a, %b = while[carried=2] %n, %x {
            cond_graph = @c(%n: i32[], %x: f32[]) { %z = full[value=0, shape=(), dtype=i32] %r = greater %n,
            %z return %r } body_graph = @b(%n: i32[], %x: f32[]) {
              %one = full[value=1, shape=(), dtype=i32] %two = full[value=2.0, shape=(), dtype=f32]
              %m = sub %n, %one %y = mul %x, %two return %m, %y }
          }
          %c, %d = for[trip_count=4, carried=1, scanned=0, reverse=True] %b {
            body = @l(%i: i64[], %x: f32[]) { %k = cast[dtype=f32] %i %s = add %x, %k return %s, %k }
          }
          return %b, %c, %d
        }"""
    )
    b, c, d = evaluate_graph(graph, [np.asarray(5, np.int32), np.asarray(3.0, np.float32)])
    assert (b, c) == (96.0, 102.0)
    np.testing.assert_array_equal(d, [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("arrays", "error"),
    [
        ([np.zeros(3, np.float32)], ArityError),
        ([np.zeros(3, np.float32)] * 3, ArityError),
        ([np.zeros(3, np.float32), np.zeros(3)], ArgumentTypeError),
        ([np.zeros(3, np.float32), np.zeros((3, 1), np.float32)], ArgumentTypeError),
    ],
)
def test_wrong_inputs(arrays: list[Array], error: type[Exception]) -> None:
    graph = parse("graph @f(%x: f32[3], %y: f32[3]) { %a = mul %x, %y return %a }")
    with pytest.raises(error):
        evaluate_graph(graph, arrays)


@dataclass(frozen=True)
class Watch(Op):
    """The identity on a new array; notes how many of the arrays that it made before are alive."""

    name = "test_watch"
    made: ClassVar[list[weakref.ref[Array]]] = []
    alive: ClassVar[list[int]] = []

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        return x

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        self.alive.append(sum(ref() is not None for ref in self.made))
        result = x.copy()
        self.made.append(weakref.ref(result))
        return result


def test_arrays_are_freed_after_their_last_use() -> None:
    b = Builder("chain")
    x = b.input(T)
    b.append(Watch(), (x,))  # never used
    v = x
    for _ in range(5):
        (v,) = b.append(Watch(), (v,))
    Watch.made.clear()
    Watch.alive.clear()
    evaluate_graph(b.finish([v]), [np.zeros(3, np.float32)])
    assert Watch.alive == [0, 0, 1, 1, 1, 1]


@dataclass(frozen=True)
class Fail(Op):
    name = "test_fail"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        return x

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        raise ExecutionError("it failed")


def test_errors_are_placed() -> None:
    span = Span("net.py", 3, 4, 3, 9)
    b = Builder("f")
    x = b.input(T)
    (y,) = b.append(Neg(), (x,))
    (z,) = b.append(Fail(), (y,), span)
    with pytest.raises(ExecutionError, match="it failed") as caught:
        evaluate_graph(b.finish([z]), [np.zeros(3, np.float32)])
    assert caught.value.span is span


def test_a_long_chain_needs_no_recursion() -> None:
    b = Builder("chain")
    v = b.input(T)
    one = b.input(T)
    for k in range(5000):
        (v,) = b.append(Add() if k % 2 else Mul(), (v, one))
    (result,) = evaluate_graph(b.finish([v]), [np.zeros(3, np.float32), np.ones(3, np.float32)])
    np.testing.assert_array_equal(result, [2500, 2500, 2500])
