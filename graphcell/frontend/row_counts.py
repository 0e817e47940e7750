"""An interpreter that notices when code decides something by how many rows there are.

Enters: a function whose Tensor arguments have a conspicuous number of rows. Leaves: its graph; extents that depend on that number may be computed
with and become shapes. Refuses (`NotRowWise`) all else that is done with them: comparing, counting, looking up, giving them to foreign code.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from graphcell.frontend.interpreter import Interpreter
from graphcell.passes.row_wise import NotRowWise
from graphcell.tensor import Tensor

ROWS = (4099, 4111)
"""Two numbers of rows, primes: what can be divided by one of them depends on it."""
_NUMERIC = {"+", "-", "*", "//", "%"}


class Extent(int):
    """An extent that depends on the number of rows."""


def _marked(x: Any, rows: int) -> Any:
    """A number, or a tuple of numbers, with those that depend on the number of rows as `Extent`s."""
    if type(x) is int:
        return Extent(x) if x and x % rows == 0 else x
    return tuple([_marked(e, rows) for e in x]) if type(x) is tuple else x


def _is_marked(x: Any) -> bool:
    return isinstance(x, Extent) or (isinstance(x, (tuple, list)) and any(map(_is_marked, x)))


def _plain(x: Any) -> Any:
    if isinstance(x, Extent):
        return int(x)
    return type(x)([_plain(e) for e in x]) if type(x) in (tuple, list) and _is_marked(x) else x


class RowCounting(Interpreter):
    """Interprets a function for `rows` rows."""

    def __init__(self, rows: int, varying: frozenset[tuple[int, str]] = frozenset()):
        super().__init__(varying)
        self.rows = rows

    def load_attribute(self, owner: Any, name: str) -> Any:
        value = super().load_attribute(owner, name)
        return _marked(value, self.rows) if isinstance(owner, Tensor) else value

    def binary(self, symbol: str, function: Any, x: Any, y: Any) -> Any:
        if not (isinstance(x, Extent) or isinstance(y, Extent)):
            return super().binary(symbol, function, x, y)
        result = super().binary(symbol, function, _plain(x), _plain(y))
        if type(result) is not int:
            return result
        if symbol not in _NUMERIC:
            raise NotRowWise("the number of rows is computed with")
        return Extent(result)

    def compare(self, op: ast.cmpop, x: Any, y: Any) -> Any:
        if isinstance(op, (ast.Is, ast.IsNot)) or not (_is_marked(x) or _is_marked(y)):
            return super().compare(op, x, y)
        if isinstance(op, (ast.Eq, ast.NotEq)) and _is_same(x, y):
            return isinstance(op, ast.Eq)
        raise NotRowWise("the number of rows is compared")

    def truth(self, value: Any) -> bool | Tensor:
        if isinstance(value, Extent):
            raise NotRowWise("the number of rows is compared")
        return super().truth(value)

    def iterate(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.ndim and isinstance(_marked(value.shape[0], self.rows), Extent):
            raise NotRowWise("the rows are iterated over")
        return super().iterate(value)

    def load_item(self, container: Any, index: Any) -> Any:
        if _is_marked(index) and not isinstance(container, Tensor):
            raise NotRowWise("the number of rows is looked up")
        return super().load_item(container, _plain(index))

    def call(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if function is builtins.len and len(args) == 1 and isinstance(args[0], Tensor):
            return _marked(super().call(function, args, kwargs), self.rows)
        is_foreign = isinstance(function, type) or getattr(function, "__module__", None) == "builtins"
        if is_foreign and function not in (tuple, list, isinstance) and self._are_marked(args, kwargs):
            raise NotRowWise(f"the number of rows is given to {getattr(function, '__name__', function)}")
        return super().call(function, args, kwargs)

    def _call_library(self, function: FunctionType, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self._called(super()._call_library, function, str(function.__globals__.get("__name__", "")), args, kwargs)

    def _call_object(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return self._called(super()._call_object, function, type(function).__module__, args, kwargs)

    def _call_builtin(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(function.__self__, list) and function.__name__ in ("append", "extend"):
            return super()._call_builtin(function, args, kwargs)
        return self._called(super()._call_builtin, function, "", args, kwargs)

    def _called(self, call: Any, function: Any, module: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Calls what is not interpreted: graphcell's functions get plain numbers, others none that depend on the number of rows."""
        is_ours = module.partition(".")[0] in ("graphcell", "mindspore")
        if self._are_marked(args, kwargs):
            if not is_ours:
                raise NotRowWise(f"the number of rows is given to {getattr(function, '__name__', function)}")
            args, kwargs = [_plain(x) for x in args], {k: _plain(x) for k, x in kwargs.items()}
        result = call(function, args, kwargs)
        return _marked(result, self.rows) if is_ours else result

    @staticmethod
    def _are_marked(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        return any(map(_is_marked, args)) or any(map(_is_marked, kwargs.values()))


def _is_same(x: Any, y: Any) -> bool:
    """True for extents that are equal for any number of rows."""
    if isinstance(x, tuple) and isinstance(y, tuple):
        return len(x) == len(y) and all(map(_is_same, x, y))
    return isinstance(x, Extent) == isinstance(y, Extent) and x == y
