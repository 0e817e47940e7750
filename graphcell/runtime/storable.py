"""Plain data as JSON and bytes, and back: how what a program needs to run is kept on disk.

Enters: None, booleans, integers, floats, strings, lists, tuples, dicts, numpy arrays, DTypes, TensorTypes, ops of graphcell without regions, and
instances of dataclasses from a given table. Leaves: a tree that is JSON, and one block of bytes that holds the arrays. Refuses, with
`NotStorable`, everything else. Reading makes only objects of these classes, by their constructors: nothing in a file is code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphcell.dtype import DType, as_dtype, from_numpy
from graphcell.ir.op import Array, Op
from graphcell.ir.types import TensorType

Classes = Mapping[str, type]
"""Dataclasses by name."""
_ALIGNMENT = 64
_PACKAGE = __name__.split(".", maxsplit=1)[0] + "."


class NotStorable(Exception):
    """A value of a kind that is not kept; the message names the kind."""


def classes_of(module: object) -> dict[str, type]:
    """The dataclasses that a module holds, and TensorType."""
    found = {name: x for name, x in vars(module).items() if isinstance(x, type) and dataclasses.is_dataclass(x)}
    return {**found, TensorType.__name__: TensorType}


def dump(value: object, classes: Classes) -> tuple[Any, bytes]:
    """`value` as a tree and a block.

    Raises:
        NotStorable: it holds something of another kind.
    """
    writer = _Writer(classes)
    return writer.tree(value), b"".join(writer.pieces)


def load(tree: Any, block: bytes, classes: Classes) -> Any:
    """The value that `dump` made this of.

    Raises:
        LookupError, TypeError, ValueError: the tree was made by another version.
    """
    return _Reader(block, classes).value(tree)


class _Writer:
    def __init__(self, classes: Classes):
        self.classes = classes
        self.pieces: list[bytes] = []
        self.length = 0

    def tree(self, value: object) -> Any:
        kind: type = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return ["float", value.hex()]  # type: ignore[attr-defined]
        if kind in (list, tuple):
            return [kind.__name__, [self.tree(x) for x in value]]  # type: ignore[attr-defined]
        if kind is dict:
            return ["dict", [[self.tree(k), self.tree(v)] for k, v in value.items()]]  # type: ignore[attr-defined]
        if isinstance(value, DType):
            return ["dtype", value.name]
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, Op):
            return self._op(value)
        if self.classes.get(kind.__name__) is kind:
            return ["object", kind.__name__, self._fields(value)]
        raise NotStorable(kind.__qualname__)

    def _fields(self, value: Any) -> dict[str, Any]:
        return {f.name: self.tree(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}

    def _op(self, op: Op) -> Any:
        if op.regions or Op.table.get(op.name) is not type(op) or not type(op).__module__.startswith(_PACKAGE):
            raise NotStorable(f"op {op.name}")
        return ["op", op.name, self._fields(op)]

    def _array(self, array: Array) -> Any:
        name, data = from_numpy(array.dtype).name, array.tobytes()
        begin = self.length
        padded = data + bytes(-len(data) % _ALIGNMENT)
        self.pieces.append(padded)
        self.length += len(padded)
        return ["array", name, list(array.shape), begin]


class _Reader:
    def __init__(self, block: bytes, classes: Classes):
        self.block, self.classes = block, classes

    def value(self, tree: Any) -> Any:
        if not isinstance(tree, list):
            return tree
        kind, *rest = tree
        if kind == "float":
            return float.fromhex(rest[0])
        if kind in ("list", "tuple"):
            items = [self.value(x) for x in rest[0]]
            return items if kind == "list" else tuple(items)
        if kind == "dict":
            return {self.value(k): self.value(v) for k, v in rest[0]}
        if kind == "dtype":
            return as_dtype(rest[0])
        if kind == "array":
            return self._array(*rest)
        if kind in ("op", "object"):
            name, fields = rest
            made = (Op.table if kind == "op" else self.classes)[name]
            return made(**{k: self.value(v) for k, v in fields.items()})
        raise ValueError(f"no kind {kind!r}")

    def _array(self, name: str, shape: list[int], begin: int) -> Array:
        dtype = as_dtype(name).np_type
        count = int(np.prod(shape, dtype=np.int64))
        array: Array = np.frombuffer(self.block, dtype, count, begin).reshape(shape)
        return array
