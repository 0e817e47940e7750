"""Python values as trees: which parts may vary while a graph runs (Tensors and numbers), and how they lie in
tuples, lists and dicts.

Used where branches join, where loops carry values, and for what a compiled function takes and returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.frontend.numbers import WeakNumber
from graphcell.ir.types import SHORT_DTYPE, TensorType
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.records import dataclass
from graphcell.tensor import Tensor

NUMBERS = (bool, int, float)


@dataclass(frozen=True, slots=True)
class Tree:
    """The shape of a value. `kind`: a container's type, `None` for a varying leaf, or `Constant`."""

    kind: Any
    children: tuple[Tree, ...] = ()
    keys: tuple[Any, ...] = ()
    constant: Any = None


class Constant:
    """Marks a leaf that does not vary."""


LEAF = Tree(None)


def is_leaf(value: Any) -> bool:
    """True for what a graph can compute: a Tensor or a number."""
    return isinstance(value, (Tensor, WeakNumber)) or type(value) in NUMBERS


def flatten(value: Any) -> tuple[list[Any], Tree]:
    """The varying leaves of `value`, and where they belong."""
    leaves: list[Any] = []
    return leaves, _flatten(value, leaves)


def _flatten(value: Any, leaves: list[Any]) -> Tree:
    if is_leaf(value):
        leaves.append(value)
        return LEAF
    if isinstance(value, (list, tuple)):
        return Tree(type(value), tuple([_flatten(x, leaves) for x in value]))
    if isinstance(value, dict):
        return Tree(type(value), tuple([_flatten(x, leaves) for x in value.values()]), tuple(value))
    return Tree(Constant, constant=value)


def unflatten(tree: Tree, leaves: Iterator[Any]) -> Any:
    """The value of shape `tree` around `leaves`."""
    if tree.kind is None:
        return next(leaves)
    if tree.kind is Constant:
        return tree.constant
    children = [unflatten(c, leaves) for c in tree.children]
    if issubclass(tree.kind, dict):
        return _rebuild_dict(tree, children)
    if tree.kind is list:
        return children
    if hasattr(tree.kind, "_fields"):  # a namedtuple
        return tree.kind(*children)
    if issubclass(tree.kind, ParameterTuple) and not all(isinstance(c, Parameter) for c in children):
        return tuple(children)  # their values, which is what a compiled function returns
    return tree.kind(children)


def _rebuild_dict(tree: Tree, children: Sequence[Any]) -> Any:
    items = zip(tree.keys, children, strict=True)
    try:
        return tree.kind(items)
    except TypeError:  # defaultdict and others with another constructor
        return dict(items)


def same_constant(a: Any, b: Any) -> bool:
    """True if two compile-time values are interchangeable."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, np.ndarray):
        return bool(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes())
    if isinstance(a, (bool, int, str, bytes, complex, slice, range, frozenset, set, np.generic, np.dtype)):
        return bool(a == b)
    return False


def fits(a: Tree, b: Tree) -> bool:
    """True if the values of two trees differ in their varying leaves only."""
    if a.kind is not b.kind or len(a.children) != len(b.children):
        return False
    if a.kind is Constant:
        return same_constant(a.constant, b.constant)
    if len(a.keys) != len(b.keys) or any(
        not same_constant(x, y) for x, y in zip(a.keys, b.keys, strict=True)
    ):
        return False
    return all(map(fits, a.children, b.children))


def unchanged(a: Any, b: Any) -> bool:
    """True if `b` is what `a` was: the same objects, or equal constants, in equal containers."""
    if a is b:
        return True
    first, tree = flatten(a)
    second, other = flatten(b)
    return fits(tree, other) and all(map(same_constant, first, second))


def type_of(leaf: Any) -> TensorType:
    """The type that a leaf has as a Tensor."""
    if isinstance(leaf, Tensor):
        return leaf.ir_type
    if isinstance(leaf, WeakNumber):
        return TensorType(leaf.default_dtype, ())
    return TensorType(dt.scalar_dtype(leaf), ())


def join_numbers(a: DType, b: DType) -> DType:
    """The dtype for a number that is of dtype `a` here and `b` there."""
    return a if a.category >= b.category else b


def describe(value: Any) -> str:
    """A value's type as a user knows it: `Tensor f32[3]`, `the number 3`, `a tuple of 2`."""
    if isinstance(value, Tensor):
        return f"Tensor {SHORT_DTYPE[value.dtype]}{list(value.shape)}"
    if isinstance(value, WeakNumber):
        return "a number"
    if type(value) in NUMBERS:
        return f"the number {value!r}"
    if value is None:
        return "None"
    if isinstance(value, (list, tuple, dict)):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, str):
        return f"the string {value!r}"
    if isinstance(value, type) or callable(value):
        return f"{getattr(value, '__name__', type(value).__name__)!r}"
    return f"an object of {type(value).__name__}"
