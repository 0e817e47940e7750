"""Numbers that are known only while a graph runs but behave as Python numbers: loop indices.

A loop over a range becomes one op whose body sees its index as a `WeakNumber`. Unlike a Tensor it does not
decide dtypes (`x * i` keeps the dtype of x, as with a Python int). What Python or a library needs the plain
number for ends the attempt to build the loop as one op (`Speculation`), and the loop is unrolled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.frontend.places import Speculation
from graphcell.ops.functional.common import cast
from graphcell.tensor import Tensor

_DEFAULT = (dt.bool_, dt.int64, dt.float32)
_COMPUTED = (dt.bool_, dt.int64, dt.float64)


class WeakNumber:
    """A number inside a loop. `affine`: (loop, scale, offset) where it is scale * index of that loop +
    offset.
    """

    __slots__ = ("affine", "tensor")

    def __init__(self, tensor: Tensor, affine: tuple[Any, int, int] | None = None):
        self.tensor = tensor
        self.affine = affine

    @property
    def default_dtype(self) -> DType:
        """The dtype it gets as a Tensor on its own."""
        return _DEFAULT[self.tensor.dtype.category]

    def bounds(self) -> tuple[int, int] | None:
        """The least and the greatest value, where that is known."""
        if self.affine is None:
            return None
        loop, scale, offset = self.affine
        last = offset + scale * (loop.trip_count - 1)
        return min(offset, last), max(offset, last)

    def as_tensor(self, dtype: DType | None = None) -> Tensor:
        """It as a scalar Tensor."""
        return cast(self.tensor, dtype or self.default_dtype)

    def beside(self, other: Tensor) -> Tensor:
        """It as a Tensor that leaves the dtype of `other` as a Python number would."""
        target = other.dtype if other.dtype.category >= self.tensor.dtype.category else self.default_dtype
        return cast(self.tensor, target)

    def _refuse(self, *_: Any) -> NoReturn:
        raise Speculation("the index of the loop is needed as a plain number")

    __bool__ = __int__ = __index__ = __float__ = __str__ = __format__ = __hash__ = _refuse  # type: ignore[assignment]
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __abs__ = __neg__ = __round__ = _refuse  # type: ignore[assignment]
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = _refuse
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = _refuse
    __iter__ = __len__ = __getitem__ = __call__ = __and__ = __or__ = __xor__ = _refuse

    def __repr__(self) -> str:
        return f"<number in a loop: {self.tensor.ir_type}>"


def binary(symbol: str, function: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    """`x symbol y`, where one of them is a WeakNumber."""
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        a = x if isinstance(x, Tensor) else _beside(x, y)
        b = y if isinstance(y, Tensor) else _beside(y, x)
        result = function(a, b)
        return number(result) if is_number(x) and is_number(y) and isinstance(result, Tensor) else result
    if not (_is_number(x) and _is_number(y)):
        raise Speculation("the index of the loop meets something that is no number")
    affine = _affine(symbol, x, y)
    if affine is not None and affine[1] == 0:
        return affine[2]
    _check_operator(symbol, x, y)
    kind = max(_category(x), _category(y), 2 if symbol == "/" else 1)
    return WeakNumber(function(_wide(x, kind), _wide(y, kind)), affine)


def _check_operator(symbol: str, x: Any, y: Any) -> None:
    """Refuses what a graph would not compute as Python does: division by zero, negative powers, bit
    operations.
    """
    if symbol not in ("+", "-", "*", "/", "//", "%", "**"):
        raise Speculation(f"the index of the loop is an operand of {symbol}")
    if symbol in ("/", "//", "%") and (isinstance(y, WeakNumber) or y == 0):
        raise Speculation("the index of the loop stands in a divisor")
    if symbol == "**" and (isinstance(y, WeakNumber) or y < 0 or type(y) is float):
        raise Speculation("the index of the loop stands in a power")


def compare(function: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    """The comparison of a WeakNumber with a number or Tensor: a Bool Tensor."""
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        a = x if isinstance(x, Tensor) else _beside(x, y)
        b = y if isinstance(y, Tensor) else _beside(y, x)
        return function(a, b)
    if not (_is_number(x) and _is_number(y)):
        raise Speculation("the index of the loop is compared with something that is no number")
    kind = max(_category(x), _category(y), 1)
    return function(_wide(x, kind), _wide(y, kind))


def negate(x: WeakNumber) -> Any:
    """-x."""
    return binary("*", lambda a, b: a * b, x, -1)


def _beside(number: Any, tensor: Tensor) -> Any:
    return number.beside(tensor) if isinstance(number, WeakNumber) else number


def _is_number(x: Any) -> bool:
    return isinstance(x, WeakNumber) or type(x) in (bool, int, float)


def _category(x: Any) -> int:
    return x.tensor.dtype.category if isinstance(x, WeakNumber) else dt.scalar_dtype(x).category


def _wide(x: Any, kind: int) -> Tensor:
    return cast(x.tensor if isinstance(x, WeakNumber) else x, _COMPUTED[kind])


def _affine(symbol: str, x: Any, y: Any) -> tuple[Any, int, int] | None:
    """scale and offset of `x symbol y` where it is affine in one loop's index."""
    a, b = _affine_parts(x), _affine_parts(y)
    if a is None or b is None:
        return None
    loop = a[0] or b[0]
    if a[0] is not None and b[0] is not None and a[0] is not b[0]:
        return None
    if symbol in ("+", "-"):
        sign = 1 if symbol == "+" else -1
        return loop, a[1] + sign * b[1], a[2] + sign * b[2]
    if symbol == "*" and (a[1] == 0 or b[1] == 0):
        return loop, a[1] * b[2] + b[1] * a[2], a[2] * b[2]
    return None


def _affine_parts(x: Any) -> tuple[Any, int, int] | None:
    if isinstance(x, WeakNumber):
        return x.affine
    return (None, 0, int(x)) if type(x) in (bool, int) else None


def affine_of(index: WeakNumber, scale: int, offset: int) -> Any:
    """scale * index + offset."""
    scaled = index if scale == 1 else binary("*", lambda a, b: a * b, index, scale)
    if not offset:
        return scaled
    return (
        binary("+", lambda a, b: a + b, scaled, offset) if isinstance(scaled, WeakNumber) else scaled + offset
    )


# -- Tensors that stand for numbers ------------------------------------------------------------------------
_MARK = "python_number"


def number(tensor: Tensor) -> Tensor:
    """Marks a scalar Tensor that stands for a Python number (which a branch or loop made known only while the
    graph runs).

    It leaves the dtypes of other Tensors alone, as the number would, and a compiled function returns it as a
    number.
    """
    tensor.__dict__[_MARK] = True
    return tensor


def is_number(leaf: Any) -> bool:
    """True for Python numbers, and for Tensors that stand for one."""
    return (
        type(leaf) in (bool, int, float)
        or isinstance(leaf, WeakNumber)
        or (isinstance(leaf, Tensor) and _MARK in leaf.__dict__)
    )


def apply_numbers(function: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    """`function(x, y)` where one of them is a Tensor that stands for a number."""
    if is_number(x) and is_number(y):
        result = function(x, y)
        return number(result) if isinstance(result, Tensor) else result
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        x, y = (
            (x if not is_number(x) else WeakNumber(x).beside(y)),
            (y if not is_number(y) else WeakNumber(y).beside(x)),
        )
    return function(x, y)
