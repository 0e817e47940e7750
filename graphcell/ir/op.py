"""`Op`: the base of every primitive, and the table of all ops.

A primitive is one frozen dataclass (`frozen`) that carries all that is known of it. Its fields are static parameters (hashable: numbers, strings,
tuples, dtypes, Graphs). The table fills itself when a class is defined; nothing else is registered anywhere.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from graphcell.dtype import DType
from graphcell.errors import NoGradientError
from graphcell.ir.types import SHORT_DTYPE, TensorType
from graphcell.records import make

if TYPE_CHECKING:
    from graphcell.ir.graph import Graph

Array = np.ndarray[Any, Any]
T = TypeVar("T")


_CALL_NANOSECONDS = 3000.0
_NANOSECONDS_OF_A_BYTE = 0.15
_NARROW_NANOSECONDS = 5.0
"""Of an element in half precision, which numpy converts."""


class Op:
    """A primitive operation.

    Subclasses are frozen dataclasses (`frozen`) with a class attribute `name` (snake case, unique) and define

    * ``infer(*types)``: result type, or a tuple of them; raises the error that a user reads;
    * ``eval(*arrays)``: the meaning, in numpy; returns an array or a tuple of them;
    * ``grad(inputs, outputs, cotangents)`` (optional): one cotangent, or None, for each input, written in public ops so that it works
      eagerly, in graphs, and again for second order;
    * a codegen protocol (optional): see the abstract classes in graphcell/ops/base.py. Without one the op runs through `eval`.
    """

    name: ClassVar[str] = ""
    table: ClassVar[dict[str, type[Op]]] = {}
    has_effect: ClassVar[bool] = False
    """True where running the op is visible beyond its results (print, assert): kept, never merged, order preserved."""
    eval_element_nanoseconds: ClassVar[float] = 0.0
    """What `eval` takes for an element, in numpy, beside moving its bytes; given where it is slow."""

    def __init_subclass__(cls) -> None:
        if not cls.__dict__.get("name"):
            return  # an abstract family of ops
        known = Op.table.get(cls.name)
        if known is not None and known.__qualname__ != cls.__qualname__:
            raise ValueError(f"two ops are named {cls.name}: {known} and {cls}")
        Op.table[cls.name] = cls

    def infer(self, *operands: TensorType) -> TensorType | tuple[TensorType, ...]:
        raise NotImplementedError(f"{self.name}.infer")

    def eval(self, *arrays: Array) -> Array | tuple[Array, ...]:
        raise NotImplementedError(f"{self.name}.eval")

    def eval_nanoseconds(self, operands: Sequence[TensorType], results: Sequence[TensorType]) -> float:
        """About how long `eval` takes: a call, the bytes that are moved, and what the op computes. Products and the like add to that."""
        types = (*operands, *results)
        is_narrow = any(t.dtype.is_float and t.dtype.itemsize == 2 for t in types)
        each = self.eval_element_nanoseconds + (_NARROW_NANOSECONDS if is_narrow else 0.0)
        elements = max((t.size for t in types), default=0)
        return _CALL_NANOSECONDS + _NANOSECONDS_OF_A_BYTE * sum(t.nbytes for t in types) + each * elements

    def grad(self, inputs: tuple[Any, ...], outputs: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        raise NoGradientError(f"{self.name} has no gradient", hint="cut it off with ops.stop_gradient if none is meant to flow")

    @property
    def regions(self) -> tuple[Graph, ...]:
        """The graphs that the op holds (branches, loop bodies)."""
        return ()

    def with_regions(self, regions: tuple[Graph, ...]) -> Op:
        """The same op around other regions."""
        return self

    def attributes(self) -> dict[str, Any]:
        """The static parameters by name, without regions."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if not f.metadata.get("region")}  # type: ignore[arg-type]

    def __str__(self) -> str:
        parts = ", ".join(f"{k}={format_attribute(v)}" for k, v in self.attributes().items())
        return f"{self.name}[{parts}]" if parts else self.name


@dataclass_transform(frozen_default=True)
def frozen(cls: type[T]) -> type[T]:
    """`dataclass(frozen=True)` for a class of ops. Of one without parameters there is a single op."""
    made = make(cls, frozen=True)
    if not dataclasses.fields(made) and not hasattr(made, "__post_init__"):  # type: ignore[arg-type]
        only: Any = object.__new__(made)
        made.__new__ = lambda kind, *given, **named: only if kind is made else object.__new__(kind)  # type: ignore[method-assign, assignment]
    return made


def region() -> Any:
    """A dataclass field that holds a Graph (or a tuple of them)."""
    return dataclasses.field(metadata={"region": True})


def format_attribute(value: object) -> str:
    """A static parameter as IR text; `graphcell.ir.text` reads it back."""
    if isinstance(value, DType):
        return SHORT_DTYPE[value]
    if isinstance(value, tuple):
        inside = ", ".join(map(format_attribute, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return repr(value)


def exact_key(op: Op) -> Hashable:
    """Equal for ops that compute the same to the bit, apart from their regions: 0.0 and -0.0 differ, NaN equals itself, 1 is not True."""
    cls = type(op)
    floats, others = _field_names(cls)  # type: ignore[arg-type]
    if not floats:
        return (cls, op) if not op.regions else (cls, tuple([getattr(op, name) for name in others]))
    return (cls, tuple([getattr(op, name) for name in others]), tuple([repr(getattr(op, name)) for name in floats]))


@functools.cache
def _field_names(cls: type[Op]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The static parameters that may be or hold floats, and the others."""
    fields = [f for f in dataclasses.fields(cls) if not f.metadata.get("region")]  # type: ignore[arg-type]
    floats = {f.name for f in fields if any(kind in str(f.type) for kind in ("float", "Number", "Any", "object"))}
    return tuple(f.name for f in fields if f.name in floats), tuple(f.name for f in fields if f.name not in floats)


def infer_types(op: Op, types: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
    """`op.infer`, always as a tuple."""
    result = op.infer(*types)
    return result if isinstance(result, tuple) else (result,)


def evaluate(op: Op, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """`op.eval`, always as a tuple of arrays (numpy scalars become 0-d arrays)."""
    result = op.eval(*arrays)
    if type(result) is np.ndarray:
        return (result,)
    results = result if isinstance(result, tuple) else (result,)
    return tuple(r if isinstance(r, np.ndarray) else np.asarray(r) for r in results)
