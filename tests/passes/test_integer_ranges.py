"""Bounds of integer values: no element exceeds them, whatever the inputs; and indices that they keep inside are not checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import ops
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.text import parse
from graphcell.passes.integer_ranges import integer_range
from graphcell.tensor import Tensor

CASES = {
    "input": ("%y = reshape[shape=(4,)] %x", "u8", (0, 255)),
    "widened": ("%y = cast[dtype=i32] %x", "u8", (0, 255)),
    "widened_view": ("%a = cast[dtype=i64] %x\n%y = slice[start=(1,), size=(2,), step=(1,)] %a", "i8", (-128, 127)),
    "narrowed": ("%y = cast[dtype=i8] %x", "i32", (-128, 127)),
    "narrowed_inside": ("%a = cast[dtype=i32] %x\n%y = cast[dtype=i16] %a", "u8", (0, 255)),
    "sign_lost": ("%y = cast[dtype=u16] %x", "i8", (0, 65535)),
    "bool": ("%y = cast[dtype=i32] %x", "i1", (0, 1)),
    "from_float": ("%y = cast[dtype=i16] %x", "f32", (-32768, 32767)),
    "clamped": ("%l = full[value=-3, shape=(4,), dtype=i32]\n%h = full[value=9, shape=(4,), dtype=i32]\n%a = maximum %x, %l\n%y = minimum %h, %a",
                "i32", (-3, 9)),
    "clamped_below": ("%l = full[value=7, shape=(4,), dtype=i32]\n%y = maximum %x, %l", "i32", (7, 2**31 - 1)),
    "ramp": ("%y = iota[shape=(3, 5), axis=1, dtype=i32]", "i32", (0, 4)),
    "ramp_that_wraps": ("%y = iota[shape=(300,), axis=0, dtype=u8]", "i32", (0, 255)),
    "sum": ("%y = add %x, %x", "i8", (-128, 127)),
}


@pytest.mark.parametrize("name", CASES)
def test_bounds(name: str) -> None:
    body, dtype, want = CASES[name]
    graph = parse(f"graph @f(%x: {dtype}[4]) {{\n{body}\nreturn %y\n}}")
    made_by = {v: node for node in graph.nodes for v in node.results}
    low, high = integer_range(graph.outputs[0], made_by)
    assert (low, high) == want
    kind: Any = graph.inputs[0].type.dtype.np_type
    ends = [0, 1] if kind in (np.bool_, np.float32) else [np.iinfo(kind).min, np.iinfo(kind).max]
    for x in (ends[0], ends[1], 0, 1, 100):
        (y,) = evaluate_graph(graph, [np.full(4, x).astype(kind)])
        assert low <= int(y.min()) <= int(y.max()) <= high


def test_indices_that_are_known_to_be_inside_are_not_checked() -> None:
    table = Tensor(np.arange(256, dtype=np.float32))
    pixels = Tensor(np.array([0, 3, 255], np.uint8))
    wild = Tensor(np.array([-999, 0, 999], np.int32))

    by_bytes = ms.jit(lambda t, i: ops.gather(t, i.astype(ms.int32), 0))
    assert by_bytes(table, pixels).tolist() == [0, 3, 255] and "out of range" not in by_bytes.kernels()
    clamped = ms.jit(lambda t, i: ops.gather(t, ops.clamp(i, -256, 255), 0))
    assert clamped(table, wild).tolist() == [0, 0, 255] and "out of range" not in clamped.kernels()
    shorter = ms.jit(lambda t, i: ops.gather(t[:200], i.astype(ms.int32), 0))
    with pytest.raises(IndexError, match="out of range for a dimension of 200"):
        shorter(table, pixels)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_gradients_pass_clamped_integers(mode: int) -> None:
    ms.set_context(mode=mode)
    i, x = Tensor([0, 1, 9], ms.int32), Tensor([1.0, 2.0, 3.0, 4.0], ms.float32)
    taken = ms.grad(lambda i, x: (x[ops.clamp(i, 0, 3)] ** 2).sum(), (0, 1))
    assert taken(i, x)[1].tolist() == [2.0, 4.0, 0.0, 8.0]
    assert ms.grad(lambda i: (ops.clamp(i, 1, 3).astype(ms.float32) * 2.5).sum())(i).tolist() == [0, 2, 0]
    assert ms.grad(lambda i: (ops.maximum(i, 1).astype(ms.float32) * 2.0).sum())(i).tolist() == [0, 2, 2]
