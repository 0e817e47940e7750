"""The IR as bytes: `graph_proto` writes a graph as the protocol-buffers message that MindSpore's `get_func_graph_proto` gives.

    ModelProto     { int64 ir_version = 1 (always 1); GraphProto graph = 4 }
    GraphProto     { NodeProto node = 1 …; string name = 2; ParameterProto parameters = 3 …; OutputProto outputs = 4 …; NamedValueProto const_vals = 5 … }
    NodeProto      { InputProto input = 1 …; string name = 2; string op_type = 3; string scope = 4; AttributeProto attribute = 5 …;
                     TypeProto output_type = 6; string full_name = 8 }
    InputProto     { string name = 1 }                      the name of a parameter, node or constant
    ParameterProto { string name = 1; TypeProto type = 2 }  OutputProto the same
    AttributeProto { string name = 1; ValueProto value = 2 }  NamedValueProto the same
    TypeProto      { DataType data_type = 1; { DataType elem_type = 1; { { int64 size = 1 } dim = 1 … } shape = 2 } tensor_type = 2;
                     { TypeProto elem_types = 1 … } sequence_type = 3 }
    ValueProto     { DataType dtype = 1; bool_val = 2; int_val = 3; double_val = 6; str_val = 7; TensorProto tensor_val = 8; GraphProto graph = 9;
                     ValueProto values = 18 …; TypeProto type_val = 20 }
    TensorProto    { int64 dims = 1 …; DataType data_type = 2; bytes raw_data = 8 }

Nodes are numbered from 1. A node of several results has a tuple for its type, and a node `TupleGetItem` with a constant index for each of
them. Regions are attributes of type graph. The file name and line of a node stand in its `full_name`. Refuses nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.op import format_attribute
from graphcell.ir.types import TensorType

_DTYPES = {
    dt.bool_: 1, dt.int8: 2, dt.int16: 3, dt.int32: 4, dt.int64: 5, dt.uint8: 6, dt.uint16: 7, dt.uint32: 8, dt.uint64: 9,
    dt.float16: 10, dt.float32: 11, dt.float64: 12, dt.bfloat16: 46,
}  # fmt: skip
_BOOL, _INT64, _FLOAT64, _STRING, _TENSOR, _GRAPH, _TUPLE, _NONE, _TYPE = 1, 5, 12, 13, 14, 15, 31, 34, 39
_VARINT, _FIXED64, _BYTES = 0, 1, 2


def graph_proto(graph: Graph) -> bytes:
    """`graph` as a ModelProto."""
    return _number(1, 1) + _field(4, _graph(graph))


# -- the wire format -------------------------------------------------------------------------------------------------------
def _varint(number: int) -> bytes:
    number &= 2**64 - 1  # negative numbers as 64 bits
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _field(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | _BYTES) + _varint(len(data)) + data


def _fields(field: int, values: Iterable[bytes]) -> bytes:
    return b"".join(_field(field, value) for value in values)


# -- graphs ----------------------------------------------------------------------------------------------------------------
def _graph(graph: Graph) -> bytes:
    return _Writer(graph).message()


class _Writer:
    """The names of a graph's values, and its nodes and constants as messages."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.names: dict[Value, str] = {}
        self.nodes: list[bytes] = []
        self.constants: list[bytes] = []
        taken: set[str] = set()
        for k, value in enumerate(graph.inputs):
            name = value.name if value.name and value.name not in taken and not value.name.isdigit() else f"arg{k}_"
            taken.add(name)
            self.names[value] = name
        for node in graph.nodes:
            self._add(node)

    def _add(self, node: Node) -> None:
        types = [v.type for v in node.results]
        attributes = [_named(k, _value(v)) for k, v in node.op.attributes().items()]
        attributes += [_named(f"region{k}", _region(region)) for k, region in enumerate(node.op.regions)]
        where = f"{node.span.file}:{node.span.line}" if node.span is not None else ""
        operands = [self.names[v] for v in node.operands]
        name = self._node(node.op.name, operands, attributes, _tensor_type(types[0]) if len(types) == 1 else _tuple_type(types), where)
        if len(types) == 1:
            self.names[node.results[0]] = name
            return
        for k, result in enumerate(node.results):
            index = f"cst{len(self.constants) + 1}"
            self.constants.append(_named(index, _value(k)))
            self.names[result] = self._node("TupleGetItem", [name, index], [], _tensor_type(result.type), where)

    def _node(self, kind: str, operands: Iterable[str], attributes: Iterable[bytes], type: bytes, where: str) -> str:
        name = str(len(self.nodes) + 1)
        self.nodes.append(
            _fields(1, (_field(1, x) for x in operands)) + _field(2, name) + _field(3, kind) + _field(4, "Default")
            + _fields(5, attributes) + _field(6, type) + _field(8, f"Default/{kind}-op{name}{f' {where}' if where else ''}")
        )  # fmt: skip
        return name

    def message(self) -> bytes:
        parameters = [_field(1, self.names[v]) + _field(2, _tensor_type(v.type)) for v in self.graph.inputs]
        outputs = [_field(1, self.names[v]) + _field(2, _tensor_type(v.type)) for v in self.graph.outputs]
        return (
            _fields(1, self.nodes) + _field(2, self.graph.name) + _fields(3, parameters) + _fields(4, outputs) + _fields(5, self.constants)
        )


# -- types and values ------------------------------------------------------------------------------------------------------
def _tensor_type(type: TensorType) -> bytes:
    shape = _fields(1, (_number(1, d) for d in type.shape))
    return _number(1, _TENSOR) + _field(2, _number(1, _DTYPES[type.dtype]) + _field(2, shape))


def _tuple_type(types: Iterable[TensorType]) -> bytes:
    return _number(1, _TUPLE) + _field(3, _fields(1, map(_tensor_type, types)))


def _named(name: str, value: bytes) -> bytes:
    return _field(1, name) + _field(2, value)


def _region(graph: Graph) -> bytes:
    return _number(1, _GRAPH) + _field(9, _graph(graph))


def _value(value: object) -> bytes:
    """A static parameter as a ValueProto; what has no type of its own there, as IR text."""
    value = getattr(value, "array", value)  # of a constant's literal
    if value is None:
        return _number(1, _NONE)
    if isinstance(value, (bool, np.bool_)):
        return _number(1, _BOOL) + _number(2, int(value))
    if isinstance(value, (int, np.integer)):
        return _number(1, _INT64) + _number(3, int(value))
    if isinstance(value, (float, np.floating)):
        return _number(1, _FLOAT64) + _varint(6 << 3 | _FIXED64) + struct.pack("<d", float(value))
    if isinstance(value, DType):
        return _number(1, _TYPE) + _field(20, _number(1, _DTYPES[value]))
    if isinstance(value, (tuple, list)):
        return _number(1, _TUPLE) + _fields(18, map(_value, value))
    if isinstance(value, np.ndarray):
        dims = b"".join(_number(1, d) for d in value.shape)
        return _number(1, _TENSOR) + _field(8, dims + _number(2, _DTYPES[dt.from_numpy(value.dtype)]) + _field(8, value.tobytes()))
    return _number(1, _STRING) + _field(7, value if isinstance(value, str) else format_attribute(value))
