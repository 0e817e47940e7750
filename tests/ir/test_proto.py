"""Graphs as protocol-buffers messages, read back field by field."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.ir.graph import Graph
from graphcell.ir.parser import parse
from graphcell.ir.proto import graph_proto
from tests.protobuf import decode

TEXT = """
graph @step(%x: f32[4, 5], %w: f32[6, 5]) -> (f32[6]) {
  %0 = matmul[transpose_x=False, transpose_y=True] %x, %w : f32[4, 6]
  %1 = reduce_sum[axis=(0,), keep_dims=False] %0 : f32[6]
  return %1
}
"""


def graph_of(graph: Graph) -> list[tuple[int, Any]]:
    model = dict(decode(graph_proto(graph)))
    assert model[1] == 1
    return list(decode(model[4]))


def tensor_type(data: bytes) -> tuple[int, list[int]]:
    """(element type, shape)"""
    fields = dict(decode(data))
    assert fields[1] == 14
    inner = dict(decode(fields[2]))
    return inner[1], [dict(decode(dim))[1] for _, dim in decode(inner[2])]


def test_nodes_types_and_attributes() -> None:
    fields = graph_of(parse(TEXT))
    assert [value for number, value in fields if number == 2] == [b"step"]
    parameters = [dict(decode(value)) for number, value in fields if number == 3]
    assert [p[1] for p in parameters] == [b"x", b"w"]
    assert [tensor_type(p[2]) for p in parameters] == [(11, [4, 5]), (11, [6, 5])]
    first, second = (list(decode(value)) for number, value in fields if number == 1)
    assert dict(first)[3] == b"matmul" and dict(second)[3] == b"reduce_sum"
    assert [dict(decode(value))[1] for number, value in first if number == 1] == [b"x", b"w"]
    assert [dict(decode(value))[1] for number, value in second if number == 1] == [dict(first)[2]]
    assert tensor_type(dict(first)[6]) == (11, [4, 6])
    attributes = {dict(decode(value))[1]: dict(decode(dict(decode(value))[2])) for number, value in (*first, *second) if number == 5}
    assert attributes[b"transpose_x"] == {1: 1, 2: 0} and attributes[b"transpose_y"] == {1: 1, 2: 1}
    assert attributes[b"axis"][1] == 31 and dict(decode(attributes[b"axis"][18])) == {1: 5, 3: 0}
    (output,) = [dict(decode(value)) for number, value in fields if number == 4]
    assert output[1] == dict(second)[2] and tensor_type(output[2]) == (11, [6])


def test_values_of_all_kinds() -> None:
    from graphcell.ir.proto import _value

    def read(value: Any) -> dict[int, Any]:
        return dict(decode(_value(value)))

    assert read(None) == {1: 34}
    assert read(True) == {1: 1, 2: 1}
    assert read(-3) == {1: 5, 3: 2**64 - 3}  # as 64 bits
    assert struct.unpack("<d", read(0.1)[6]) == (0.1,)
    assert read("name") == {1: 13, 7: b"name"}
    assert dict(decode(read(dt.bfloat16)[20])) == {1: 46}
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    tensor = list(decode(read(array)[8]))
    assert [value for number, value in tensor if number == 1] == [2, 3]
    assert dict(tensor)[2] == 3 and dict(tensor)[8] == array.tobytes()
