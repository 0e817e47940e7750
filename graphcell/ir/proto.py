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

from collections.abc import Iterable

import numpy as np

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.op import format_attribute
from graphcell.ir.types import TensorType
from graphcell.wire import bytes_field, float_field, number_field, repeated

_DTYPES = {
    dt.bool_: 1, dt.int8: 2, dt.int16: 3, dt.int32: 4, dt.int64: 5, dt.uint8: 6, dt.uint16: 7, dt.uint32: 8, dt.uint64: 9,
    dt.float16: 10, dt.float32: 11, dt.float64: 12, dt.bfloat16: 46,
}  # fmt: skip
_BOOL, _INT64, _FLOAT64, _STRING, _TENSOR, _GRAPH, _TUPLE, _NONE, _TYPE = 1, 5, 12, 13, 14, 15, 31, 34, 39


def graph_proto(graph: Graph) -> bytes:
    """`graph` as a ModelProto."""
    return number_field(1, 1) + bytes_field(4, _graph(graph))


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
            repeated(1, (bytes_field(1, x) for x in operands)) + bytes_field(2, name) + bytes_field(3, kind) + bytes_field(4, "Default")
            + repeated(5, attributes) + bytes_field(6, type) + bytes_field(8, f"Default/{kind}-op{name}{f' {where}' if where else ''}")
        )  # fmt: skip
        return name

    def message(self) -> bytes:
        parameters = [bytes_field(1, self.names[v]) + bytes_field(2, _tensor_type(v.type)) for v in self.graph.inputs]
        outputs = [bytes_field(1, self.names[v]) + bytes_field(2, _tensor_type(v.type)) for v in self.graph.outputs]
        nodes = repeated(1, self.nodes) + bytes_field(2, self.graph.name)
        return nodes + repeated(3, parameters) + repeated(4, outputs) + repeated(5, self.constants)


# -- types and values ------------------------------------------------------------------------------------------------------
def _tensor_type(type: TensorType) -> bytes:
    shape = repeated(1, (number_field(1, d) for d in type.shape))
    return number_field(1, _TENSOR) + bytes_field(2, number_field(1, _DTYPES[type.dtype]) + bytes_field(2, shape))


def _tuple_type(types: Iterable[TensorType]) -> bytes:
    return number_field(1, _TUPLE) + bytes_field(3, repeated(1, map(_tensor_type, types)))


def _named(name: str, value: bytes) -> bytes:
    return bytes_field(1, name) + bytes_field(2, value)


def _region(graph: Graph) -> bytes:
    return number_field(1, _GRAPH) + bytes_field(9, _graph(graph))


def _value(value: object) -> bytes:
    """A static parameter as a ValueProto; what has no type of its own there, as IR text."""
    value = getattr(value, "array", value)  # of a constant's literal
    if value is None:
        return number_field(1, _NONE)
    if isinstance(value, (bool, np.bool_)):
        return number_field(1, _BOOL) + number_field(2, int(value))
    if isinstance(value, (int, np.integer)):
        return number_field(1, _INT64) + number_field(3, int(value))
    if isinstance(value, (float, np.floating)):
        return number_field(1, _FLOAT64) + float_field(6, float(value))
    if isinstance(value, DType):
        return number_field(1, _TYPE) + bytes_field(20, number_field(1, _DTYPES[value]))
    if isinstance(value, (tuple, list)):
        return number_field(1, _TUPLE) + repeated(18, map(_value, value))
    if isinstance(value, np.ndarray):
        dims = b"".join(number_field(1, d) for d in value.shape)
        return number_field(1, _TENSOR) + bytes_field(8, dims + number_field(2, _DTYPES[dt.from_numpy(value.dtype)]) + bytes_field(8, value.tobytes()))
    return number_field(1, _STRING) + bytes_field(7, value if isinstance(value, str) else format_attribute(value))
