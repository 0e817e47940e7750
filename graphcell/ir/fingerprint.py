"""A digest of a graph: what a cache of compiled programs knows it by, in this process and in others.

Enters: a Graph. Leaves: 32 bytes, equal for graphs that are the same but for the names of values and graphs and for spans: ops with all their
static parameters (floats to the bit, arrays by what they hold), regions, operands, input types, outputs; and of spans which nodes belong to a gradient, whose
sums may be added up in another order (passes/factor_sums.py). Refuses, by None, graphs
with ops that are not graphcell's own (their code may change without a version telling) or with static parameters of other kinds than these have.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections import OrderedDict

import numpy as np

from graphcell.dtype import DType
from graphcell.ir.graph import Graph, Value
from graphcell.ir.op import Op
from graphcell.ir.types import Dim, TensorType
from graphcell.locks import whole

_PLAIN = frozenset({int, bool, type(None)})
_DIGEST_BYTES = 32
_PACKAGE = __name__.split(".", maxsplit=1)[0] + "."


class _Unknown(Exception):
    """A part of the graph that no text stands for."""


def fingerprint(graph: Graph) -> bytes | None:
    """The digest of `graph`; None for a graph that cannot be known by its contents."""
    parts: list[str] = []
    try:
        _add_graph(graph, parts)
    except _Unknown:
        return None
    return _digest("\n".join(parts).encode("utf-8", "surrogatepass"))


_KEPT_GRAPHS = 256
_known: OrderedDict[bytes, Graph] = OrderedDict()


def known(graph: Graph) -> Graph:
    """The first graph that was asked for with this fingerprint, so that what was found out about it is found again; old ones are forgotten."""
    key = fingerprint(graph)
    if key is None:
        return graph
    found = _known[key] = _known.pop(key, graph)  # and no two steps between which another thread could forget it
    while len(_known) > _KEPT_GRAPHS:
        _known.popitem(last=False)
    return found


def _digest(data: bytes) -> bytes:
    with whole:
        import hashlib  # which loads OpenSSL

    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _add_graph(graph: Graph, parts: list[str]) -> None:
    """One line for the inputs, one for each node (then its regions), one for the outputs."""
    number: dict[Value, int] = {v: k for k, v in enumerate(graph.inputs)}
    parts.append(f"graph {_list(graph.input_types)}")
    for node in graph.nodes:
        op = node.op
        names = _parameters(type(op))  # type: ignore[arg-type]
        operands = [number[v] for v in node.operands]
        if node.span is not None and node.span.gradient:
            parts.append("gradient")
        parts.append(f"{op.name}{[_describe(getattr(op, name)) for name in names]}{operands}{len(node.results)}" if names else f"{op.name}{operands}")
        regions = op.regions
        if regions:
            parts.append(f"regions {len(regions)}")
            for region in regions:
                _add_graph(region, parts)
        for v in node.results:
            number[v] = len(number)
    parts.append(f"return {[number[v] for v in graph.outputs]}")


@functools.cache
def _parameters(cls: type[Op]) -> tuple[str, ...]:
    """The names of an op's static parameters, without regions."""
    if not cls.__module__.startswith(_PACKAGE) or Op.table.get(cls.name) is not cls:
        raise _Unknown
    return tuple(f.name for f in dataclasses.fields(cls) if not f.metadata.get("region"))  # type: ignore[arg-type]


def _describe(value: object) -> str:
    """A static parameter as text, another text for every other value."""
    kind = type(value)
    if kind in _PLAIN:
        return repr(value)
    if kind is tuple:
        return _list(value)  # type: ignore[arg-type]
    if kind is float:
        return value.hex() if value == value else f"nan {struct.pack('<d', value).hex()}"  # type: ignore[attr-defined]
    if kind is str:
        return repr(value)
    if kind is DType:
        return value.name  # type: ignore[attr-defined, no-any-return]
    if kind is TensorType:
        return f"{value.dtype.name}{_describe(value.shape)}"  # type: ignore[attr-defined]
    if kind is Dim:
        return f"dim {value.name!r}"  # type: ignore[attr-defined]
    if isinstance(value, np.generic):
        return f"numpy {value.dtype} {value.tobytes().hex()}"
    array = getattr(value, "array", None)
    if isinstance(array, np.ndarray) and not array.dtype.hasobject:
        return f"array {array.dtype} {array.shape} {_digest(array.tobytes()).hex()}"
    raise _Unknown


def _list(values: tuple[object, ...]) -> str:
    for v in values:
        if type(v) is not int:
            return f"({','.join([_describe(x) for x in values])})"
    return repr(values)
