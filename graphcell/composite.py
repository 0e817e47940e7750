"""Functions over nested tuples and lists: `HyperMap`, `Map`, and `MultitypeFuncGraph`, which chooses a function by its arguments' types.

Enters: functions and (nested) tuples or lists of arguments. Leaves: the results in the same structure, as tuples. They run in both
modes; what the user registered is interpreted in a compiled function like any other function of theirs. Refuses: arguments of types
that nothing is registered for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.pullback import invoke
from graphcell.tensor import Tensor

__all__ = ["HyperMap", "Map", "MultitypeFuncGraph", "Partial", "partial"]

Function = Callable[..., Any]
Test = Callable[[Any], bool]


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool)


_KINDS: dict[str, Test] = {
    "Tensor": lambda x: isinstance(x, Tensor),
    "Number": _is_number,
    "Bool": lambda x: isinstance(x, bool),
    "Int": lambda x: isinstance(x, int) and not isinstance(x, bool),
    "Float": lambda x: isinstance(x, float),
    "String": lambda x: isinstance(x, str),
    "Tuple": lambda x: isinstance(x, tuple),
    "List": lambda x: isinstance(x, list),
    "Dictionary": lambda x: isinstance(x, dict),
    "None": lambda x: x is None,
    "TypeNone": lambda x: x is None,
    "TypeType": lambda x: isinstance(x, dt.DType),
    "Function": callable,
    "RowTensor": lambda x: False,
}


class MultitypeFuncGraph:
    """An overloaded function: `register` adds an implementation for types of arguments, a call takes the first that matches.

    Args:
        name: shown in errors.
        read_value: accepted for MindSpore's sake; a Parameter always reads as its value.
        need_raise: accepted for MindSpore's sake; missing implementations always raise.
    """

    def __init__(self, name: str, read_value: bool = False, need_raise: bool = False):
        if not isinstance(name, str):
            raise ArgumentTypeError(f"MultitypeFuncGraph: name must be a str, but is {type(name).__name__}")
        self.name = name
        self.entries: tuple[tuple[tuple[str, ...], Function], ...] = ()

    def register(self, *type_names: Any) -> Callable[[Function], Function]:
        """A decorator: the function serves arguments of these types: 'Tensor', 'Number', 'Bool', 'Int', 'Float', 'String', 'Tuple', 'List',
        'Dictionary', 'Function' or 'None', or of the kinds that dtypes name: `mindspore.number`, `tensor_type`, `tuple_` …

        Raises:
            ValueError: a name is none of these.
        """
        names = tuple(name.name if isinstance(name, dt.Kind) else name for name in type_names)
        for name in names:
            if name not in _KINDS:
                known = ", ".join(k for k in _KINDS if k != "RowTensor")
                raise ArgumentValueError(f"MultitypeFuncGraph '{self.name}': {name!r} is no kind of argument; there are {known}")

        def add(function: Function) -> Function:
            self.entries += ((names, function),)
            return function

        return add

    def __call__(self, *args: Any) -> Any:
        """The result of the first implementation whose types are those of `args`.

        Raises:
            ValueError: there is none.
        """
        for names, function in self.entries:
            if len(names) == len(args) and all(_KINDS[n](x) for n, x in zip(names, args)):
                return invoke(function, args, {})
        got = ", ".join(type(x).__name__ for x in args)
        known = "; ".join(f"({', '.join(names)})" for names, _ in self.entries) or "none"
        message = f"For 'MultitypeFuncGraph', cannot find fn match given args: '{self.name}' got ({got})"
        raise ArgumentValueError(message, hint=f"registered are: {known}")


class Map:
    """Applies a function to the elements of sequences, one level deep: `Map(ops)(xs, ys)` or `Map()(function, xs, ys)`.

    Args:
        ops: the function; default: the first argument of the call.
        reverse: accepted for MindSpore's sake; the results are in the order of the elements.
    """

    _deep = False

    def __init__(self, ops: Any = None, reverse: bool = False):
        if ops is not None and not callable(ops):
            raise ArgumentTypeError(f"{type(self).__name__}: ops must be a function, but is {type(ops).__name__}")
        self.ops = ops

    def __call__(self, *args: Any) -> Any:
        """The results as a tuple, as many as the shortest sequence has elements.

        Raises:
            TypeError: no function, no sequences, or sequences beside something else.
        """
        function, inputs = (args[0] if args else None, args[1:]) if self.ops is None else (self.ops, args)
        if not callable(function) or not inputs:
            raise ArgumentTypeError(f"{type(self).__name__}: expected a function and at least one sequence")
        return self._apply(function, inputs, True)

    def _apply(self, function: Function, inputs: tuple[Any, ...], descend: bool) -> Any:
        sequences = [isinstance(x, (tuple, list)) for x in inputs]
        if not descend or not any(sequences):
            return invoke(function, inputs, {})
        if not all(sequences):
            kinds = ", ".join(type(x).__name__ for x in inputs)
            raise ArgumentTypeError(f"{type(self).__name__}: all arguments must be sequences of the same structure, but are ({kinds})")
        return tuple(self._apply(function, elements, self._deep) for elements in zip(*inputs))


class HyperMap(Map):
    """Applies a function to the leaves of nested sequences of the same structure: `HyperMap(ops)(xs, ys)` or `HyperMap()(function, xs, ys)`."""

    _deep = True


def partial(function: Function, *args: Any, **kwargs: Any) -> Function:
    """The function with its first arguments given.

    Raises:
        TypeError: `function` is not callable.
    """
    if not callable(function):
        raise ArgumentTypeError(f"partial: expected a function, but got {type(function).__name__}")
    return functools.partial(function, *args, **kwargs)


class Partial:
    """`Partial()(function, *args)` is the function with its first arguments given."""

    def __call__(self, function: Function, *args: Any, **kwargs: Any) -> Function:
        return partial(function, *args, **kwargs)
