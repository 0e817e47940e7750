"""Builtins whose meaning is another one on Tensors, on what a loop counts, or while a graph is being built."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, UnsupportedSyntaxError
from graphcell.formatting import constant_in_graph
from graphcell.frontend.counted import SymbolicRange
from graphcell.frontend.numbers import WeakNumber, is_number, number
from graphcell.frontend.places import AttributePlace
from graphcell.frontend.text import Text, formatted, holds_symbols
from graphcell.frontend.trees import NUMBERS
from graphcell.ops.arithmetic import Maximum, Minimum
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.common import binary, cast
from graphcell.ops.functional.comparison import logical_and, logical_or
from graphcell.ops.functional.creation import stop_gradient
from graphcell.ops.host import Print, template
from graphcell.ops.mathematics import Round
from graphcell.ops.reduction import ReduceMax, ReduceMin, ReduceSum
from graphcell.tensor import Tensor, state

if TYPE_CHECKING:
    from graphcell.frontend.calls import Calls

Handler = Callable[["Calls", Sequence[Any], dict[str, Any]], Any]


def reads_frame(function: Any, args: Sequence[Any]) -> bool:
    """True for locals() and globals()."""
    return (function is builtins.locals or function is builtins.globals) and not args


# -- print -------------------------------------------------------------------------------------------------
def print_(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """print: an op, so that it prints whenever the graph runs. Each argument stands in a line of its own, as
    MindSpore's graphs have it; with `sep` or `end` given, in Python's form.
    """
    unknown = set(kwargs) - {"sep", "end", "flush"}
    if unknown:
        raise UnsupportedSyntaxError(
            f"print(..., {min(unknown)}=...) cannot be compiled.",
            hint="print to standard output, or elsewhere",
        )
    if kwargs.keys() & {"sep", "end"}:
        sep, end = kwargs.get("sep"), kwargs.get("end")
        text = formatted(
            lambda values: (
                (" " if sep is None else sep).join(map(str, values)) + ("\n" if end is None else end)
            ),
            list(args),
        )
        pieces = list(text.pieces) if isinstance(text, Text) else [text]
    else:
        pieces = [piece for a in args for piece in _lines(a)] or ["\n"]
    parts, operands = template(pieces)
    assert state.trace is not None
    state.trace.append(Print(parts), operands)


def _sequence_lines(values: Sequence[Any]) -> list[Any]:
    """Numbers in one line, without Python's comma behind a single one: `(3)`; of others, each item in a line of its own."""
    if all(type(x) in (int, float) for x in values):
        return [f"({', '.join(map(str, values))})\n"]
    return [piece for x in values for piece in _lines(x)]


def _lines(value: Any) -> list[Any]:
    """The pieces of the lines that `value` is printed in."""
    if isinstance(value, Tensor):
        return [(value, "g"), "\n"]
    if isinstance(value, WeakNumber):
        return [(value.as_tensor(), "g"), "\n"]
    if isinstance(value, Text):
        return [*value.pieces, "\n"]
    if isinstance(value, (list, tuple)) and value:
        return _sequence_lines(value)
    if isinstance(value, (bool, int, float)):
        return [constant_in_graph(value), "\n"]
    text = formatted(str, value)
    return [*(text.pieces if isinstance(text, Text) else (text,)), "\n"]


# -- conversions -------------------------------------------------------------------------------------------
def _converter(kind: type, dtype: dt.DType) -> Handler:
    def convert(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if len(args) == 1 and not kwargs:
            x = args[0]
            if isinstance(x, WeakNumber):
                return _convert_weak(x, kind, dtype)
            if isinstance(x, Tensor) and not calls.is_constant(x):
                if x.size != 1:
                    raise ArgumentTypeError(
                        f"{kind.__name__}() of a Tensor of shape {x.shape}: only one element can be converted"
                    )
                return _as_number(x, dtype)
        return kind(*args, **kwargs)

    return convert


def item(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Tensor.item: a number that is known while the graph runs."""
    x = args[0]
    if calls.is_constant(x) or len(args) > 1 or kwargs:
        return Tensor.item(*args, **kwargs)
    if x.size != 1:
        raise ArgumentValueError(f"item: a Tensor of shape {x.shape} has {x.size} elements, not one")
    kind = dt.bool_ if x.dtype.is_bool else dt.int64 if x.dtype.is_integer else dt.float32
    return _as_number(x, dt.float64 if x.dtype is dt.float64 else kind)


def _as_number(x: Tensor, dtype: dt.DType) -> Tensor:
    """The one element of `x` as a Python number, through which no gradient goes, as none goes through a number that is known."""
    return number(stop_gradient(cast(x.reshape(()), dtype)))


def _convert_weak(x: WeakNumber, kind: type, dtype: dt.DType) -> Any:
    if kind is int and x.tensor.dtype is dt.int64:
        return x
    return WeakNumber(cast(x.tensor, dt.float64 if kind is float else dtype))


def str_(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """str: of Tensors, a text that is known when the graph runs."""
    if len(args) == 1 and not kwargs and holds_symbols(args[0]):
        return args[0] if isinstance(args[0], Text) else formatted(str, args[0])
    return str(*args, **kwargs)


def string_method(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A method of a str whose arguments hold Tensors or texts."""
    if function.__name__ == "format":
        return formatted(lambda values: function(*values[0], **values[1]), (list(args), kwargs))
    if function.__name__ == "join":
        result: Any = ""
        for k, item in enumerate(args[0]):
            result = result + (function.__self__ if k else "") + item
        return result
    return function(*args, **kwargs)


def isinstance_(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """isinstance: a number that only the graph knows is a bool, int or float."""
    if len(args) == 2 and (isinstance(args[0], WeakNumber) or _stands_for_number(args[0])):
        dtype = args[0].tensor.dtype if isinstance(args[0], WeakNumber) else args[0].dtype
        return issubclass(bool if dtype.is_bool else int if dtype.is_integer else float, args[1])
    return isinstance(*args, **kwargs)


def range_(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """range: with Tensors for its ends, a range that only a `for` can use."""
    if not any(isinstance(a, Tensor) and not calls.is_constant(a) for a in args):
        return range(*args, **kwargs)
    start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if type(step) is not int or step == 0:
        raise ArgumentTypeError("range() with Tensors takes a plain int, not 0, for its step")
    ends = []
    for end in (start, stop):
        if isinstance(end, Tensor):
            if end.size != 1 or not end.dtype.is_integer:
                raise ArgumentTypeError(
                    f"range() takes integers, but got a Tensor of {end.dtype} and shape {end.shape}"
                )
            end = number(cast(end.reshape(()), dt.int64))
        ends.append(end)
    return SymbolicRange(ends[0], ends[1], step)


# -- attributes --------------------------------------------------------------------------------------------
def getattr_(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """getattr."""
    if len(args) not in (2, 3) or kwargs:
        return getattr(*args, **kwargs)
    owner, name, *default = args
    try:
        return calls.load_attribute(owner, name)
    except AttributeError:
        if not default:
            raise
        return default[0]


def hasattr_(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """hasattr."""
    if len(args) != 2 or kwargs:
        return hasattr(*args, **kwargs)
    try:
        calls.load_attribute(args[0], args[1])
    except AttributeError:
        return False
    return True


def setattr_(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """setattr."""
    owner, name, value = args
    calls.store_attribute(owner, name, value)


def delattr_(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """delattr."""
    owner, name = args
    calls.note(AttributePlace(owner, name))
    delattr(owner, name)


# -- extrema, sums, any and all ----------------------------------------------------------------------------
def _extremum(plain: Any, op: Any, reduction: type) -> Handler:
    def extremum(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if kwargs or not args:
            return plain(*args, **{k: calls.wrapped(v) for k, v in kwargs.items()})
        if len(args) == 1 and isinstance(args[0], Tensor):
            if args[0].ndim != 1:
                raise ArgumentTypeError(
                    f"{plain.__name__}() of a Tensor of shape {args[0].shape}: the truth value of its rows is ambiguous"
                )
            return apply1(reduction((0,), False), args[0])
        items = list(calls.iterate(args[0])) if len(args) == 1 else list(args)
        if not any(isinstance(x, (Tensor, WeakNumber)) for x in items):
            return plain(items)
        result = items[0]
        for x in items[1:]:
            result = _larger(calls, plain, op, result, x)
        return result

    return extremum


def _larger(calls: Calls, plain: Any, op: Any, x: Any, y: Any) -> Any:
    if type(x) in NUMBERS and type(y) in NUMBERS:
        return plain(x, y)
    first, second = (v.as_tensor() if isinstance(v, WeakNumber) else v for v in (x, y))
    for v in (first, second):
        if isinstance(v, Tensor) and v.size != 1:
            raise ArgumentTypeError(
                f"{plain.__name__}() compares Tensors of one element, but one has shape {v.shape}"
            )
    result = binary(op, first, second)
    return number(result) if is_number(x) and is_number(y) else result


def sum_(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """sum: of a Tensor, over its rows."""
    if len(args) == 1 and not kwargs and isinstance(args[0], Tensor) and args[0].ndim:
        return apply1(ReduceSum((0,), False), args[0])
    if not args or "start" in kwargs:
        return sum(*args, **kwargs)
    result = args[1] if len(args) > 1 else 0
    for x in calls.iterate(args[0]):
        result = calls.binary("+", lambda a, b: a + b, result, x)
    return result


def _quantifier(conjunction: bool) -> Handler:
    def quantifier(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        (items,) = args
        result: Any = conjunction
        for x in calls.iterate(items):
            truth = calls.truth(x)
            if isinstance(truth, bool):
                if truth is not conjunction:
                    return truth
            elif isinstance(result, bool):
                result = truth
            else:
                result = logical_and(result, truth) if conjunction else logical_or(result, truth)
        return number(result) if isinstance(result, Tensor) else result

    return quantifier


def abs_(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """abs: of a number, a number."""
    result = abs(*args, **kwargs)
    return number(result) if _stands_for_number(args[0]) else result


def round_(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """round: of a number, an integer."""
    if len(args) > 1 or kwargs or not _stands_for_number(args[0]):
        return round(*args, **kwargs)
    return number(cast(apply1(Round(), args[0]) if args[0].dtype.is_float else args[0], dt.int64))


def pow_(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """pow: `x ** y`."""
    if len(args) != 2 or kwargs or not any(map(_stands_for_number, args)):
        return pow(*args, **kwargs)
    return calls.binary("**", operator.pow, *args)


def divmod_(calls: Calls, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """divmod: of numbers, `//` and `%`."""
    if len(args) != 2 or kwargs or not all(map(is_number, args)) or not any(map(_stands_for_number, args)):
        return divmod(*args, **kwargs)  # type: ignore[misc]
    return calls.binary("//", operator.floordiv, *args), calls.binary("%", operator.mod, *args)


def _stands_for_number(x: Any) -> bool:
    return isinstance(x, Tensor) and is_number(x)


BUILTINS: dict[Any, Handler] = {
    print: print_,
    int: _converter(int, dt.int64),
    float: _converter(float, dt.float32),
    bool: _converter(bool, dt.bool_),
    str: str_,
    isinstance: isinstance_,
    range: range_,
    getattr: getattr_,
    hasattr: hasattr_,
    setattr: setattr_,
    delattr: delattr_,
    max: _extremum(max, Maximum(), ReduceMax),
    min: _extremum(min, Minimum(), ReduceMin),
    sum: sum_,
    abs: abs_,
    round: round_,
    pow: pow_,
    divmod: divmod_,
    any: _quantifier(False),
    all: _quantifier(True),
}
