"""Expressions: from AST nodes to Python values, with Tensors as values of the graph."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

from graphcell import dtype as dt
from graphcell.errors import ConcretizationError, GraphcellError, UnsupportedSyntaxError
from graphcell.frontend import numbers
from graphcell.frontend.core import Core
from graphcell.frontend.frame import Frame
from graphcell.frontend.libraries import is_library_file
from graphcell.frontend.numbers import WeakNumber
from graphcell.frontend.signals import Signal
from graphcell.frontend.source import source_of_nested
from graphcell.frontend.text import formatted, holds_symbols
from graphcell.frontend.trees import is_leaf
from graphcell.frontend.trials import Trial
from graphcell.ops.functional.common import cast
from graphcell.ops.functional.comparison import equal, logical_and, logical_not, logical_or
from graphcell.ops.functional.indexing import bounded_index
from graphcell.tensor import Tensor

Binary = Callable[[Any, Any], Any]
BINARY: dict[type[ast.operator], tuple[str, Binary, Binary]] = {
    ast.Add: ("+", operator.add, operator.iadd),
    ast.Sub: ("-", operator.sub, operator.isub),
    ast.Mult: ("*", operator.mul, operator.imul),
    ast.Div: ("/", operator.truediv, operator.itruediv),
    ast.FloorDiv: ("//", operator.floordiv, operator.ifloordiv),
    ast.Mod: ("%", operator.mod, operator.imod),
    ast.Pow: ("**", operator.pow, operator.ipow),
    ast.MatMult: ("@", operator.matmul, operator.imatmul),
    ast.BitAnd: ("&", operator.and_, operator.iand),
    ast.BitOr: ("|", operator.or_, operator.ior),
    ast.BitXor: ("^", operator.xor, operator.ixor),
    ast.LShift: ("<<", operator.lshift, operator.ilshift),
    ast.RShift: (">>", operator.rshift, operator.irshift),
}
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
}
HASHED = (dict, set, frozenset)
COMPARISONS: dict[type[ast.cmpop], Binary] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


class Expressions(Core):
    """Adds `visit_*`, one method for each kind of expression."""

    # -- names, constants, containers ----------------------------------------------------------------------
    def visit_Constant(self, node: ast.Constant, frame: Frame) -> Any:
        return node.value

    def visit_Name(self, node: ast.Name, frame: Frame) -> Any:
        frame.node = node
        return self.load(node.id, frame)

    def visit_Tuple(self, node: ast.Tuple, frame: Frame) -> Any:
        return tuple(self._items(node.elts, frame))

    def visit_List(self, node: ast.List, frame: Frame) -> Any:
        return self.bear(self._items(node.elts, frame))

    def visit_Set(self, node: ast.Set, frame: Frame) -> Any:
        return self.bear(set(self._items(node.elts, frame)))

    def _items(self, nodes: Sequence[ast.expr], frame: Frame) -> list[Any]:
        items: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                items.extend(self.iterate(self.evaluate(node.value, frame)))
            else:
                items.append(self.evaluate(node, frame))
        return items

    def visit_Dict(self, node: ast.Dict, frame: Frame) -> Any:
        result: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                result.update(self.evaluate(value, frame))
            else:
                name = self.evaluate(key, frame)
                check_key(result, name)
                result[name] = self.evaluate(value, frame)
        return self.bear(result)

    def visit_Slice(self, node: ast.Slice, frame: Frame) -> Any:
        parts = (None if n is None else self.evaluate(n, frame) for n in (node.lower, node.upper, node.step))
        return slice(*parts)

    def visit_JoinedStr(self, node: ast.JoinedStr, frame: Frame) -> Any:
        result: Any = ""
        for part in node.values:
            result = result + self.evaluate(part, frame)
        return result

    def visit_FormattedValue(self, node: ast.FormattedValue, frame: Frame) -> Any:
        value = self.evaluate(node.value, frame)
        form = "" if node.format_spec is None else self.evaluate(node.format_spec, frame)
        frame.node = node
        as_text: dict[int, Callable[[Any], str]] = {115: str, 114: repr, 97: ascii}
        convert = as_text.get(node.conversion)
        if convert is None:
            convert = str if holds_symbols(value) else None
        return formatted(lambda x: format(x if convert is None else convert(x), form), value)

    def visit_NamedExpr(self, node: ast.NamedExpr, frame: Frame) -> Any:
        value = self.evaluate(node.value, frame)
        frame.node = node
        self.store(node.target.id, value, frame)
        return value

    # -- attributes and items ------------------------------------------------------------------------------
    def visit_Attribute(self, node: ast.Attribute, frame: Frame) -> Any:
        owner = self.evaluate(node.value, frame)
        frame.node = node
        return self.load_attribute(owner, mangled(node.attr, frame))

    def visit_Subscript(self, node: ast.Subscript, frame: Frame) -> Any:
        container = self.evaluate(node.value, frame)
        index = self.evaluate(node.slice, frame)
        frame.node = node
        return self.load_item(container, index)

    def load_item(self, container: Any, index: Any) -> Any:
        """`container[index]`."""
        if isinstance(container, Tensor):
            if isinstance(index, WeakNumber):
                for loop in reversed(self.loops):
                    row = loop.row(container, index)
                    if row is not None:
                        return row
            return container[plain_index(index)]
        if isinstance(container, (list, tuple)) and isinstance(index, Tensor) and not self.is_constant(index):
            return self._item_of_sequence(container, index)
        check_key(container, index)
        method = self.users_method(container, "__getitem__")
        return container[index] if method is None else self.call(method, (container, index), {})

    def users_method(self, owner: Any, name: str) -> FunctionType | None:
        """A special method that the user's class of `owner` defines, which is interpreted."""
        method = getattr(type(owner), name, None)
        if (
            type(method) is FunctionType
            and not is_library_file(method.__code__.co_filename)
            and self.is_interpreted(method, owner)
        ):
            return method
        return None

    def _item_of_sequence(self, items: Sequence[Any], index: Tensor) -> Any:
        """A list or tuple of Tensors of one type, at a place known only while the graph runs."""
        if items and all(isinstance(x, Tensor) and x.ir_type == items[0].ir_type for x in items):
            from graphcell.ops.functional.movement import stack

            return stack(list(items))[index]
        raise ConcretizationError(
            f"a {type(items).__name__} is indexed with a Tensor whose value is not known while the graph is being built",
            hint="all items must be Tensors of one shape and dtype for that; stack them with ops.stack, or index with a Python int",
        )

    # -- operators -----------------------------------------------------------------------------------------
    def visit_BinOp(self, node: ast.BinOp, frame: Frame) -> Any:
        x = self.evaluate(node.left, frame)
        y = self.evaluate(node.right, frame)
        frame.node = node
        symbol, function, _ = BINARY[type(node.op)]
        return self.binary(symbol, function, x, y)

    def binary(self, symbol: str, function: Binary, x: Any, y: Any) -> Any:
        """`x symbol y`."""
        if isinstance(x, WeakNumber) or isinstance(y, WeakNumber):
            return numbers.binary(symbol, function, x, y)
        if stands_for_number(x) or stands_for_number(y):
            return numbers.apply_numbers(function, x, y)
        if symbol == "%" and isinstance(x, str) and holds_symbols(y):
            return formatted(lambda values: x % values, y)
        method = self.users_method(x, f"__{function.__name__.rstrip('_')}__")
        if method is not None:
            result = self.call(method, (x, y), {})
            if result is not NotImplemented:
                return result
        result = function(x, y)
        return self.bear(result) if type(result) is list and result is not x else result

    def visit_UnaryOp(self, node: ast.UnaryOp, frame: Frame) -> Any:
        if isinstance(node.op, ast.Not):
            return self._not(node.operand, frame)
        x = self.evaluate(node.operand, frame)
        frame.node = node
        if isinstance(x, WeakNumber):
            return numbers.negate(x) if isinstance(node.op, ast.USub) else UNARY[type(node.op)](x)
        if not stands_for_number(x):
            return UNARY[type(node.op)](x)
        if isinstance(node.op, ast.Invert) and not x.dtype.is_float:
            return numbers.number(-1 - cast(x, dt.int64))  # of Tensors, `~` is `logical_not`
        return numbers.number(UNARY[type(node.op)](x))

    def _not(self, operand: ast.expr, frame: Frame) -> bool | Tensor:
        """`not operand`, which is a number if `operand` is one."""
        if isinstance(operand, ast.BoolOp):
            return self.negated(self.condition(operand, frame))
        value = self.evaluate(operand, frame)
        frame.node = operand
        result = self.negated(self.truth(value))
        return numbers.number(result) if isinstance(result, Tensor) and numbers.is_number(value) else result

    @staticmethod
    def negated(truth: bool | Tensor) -> bool | Tensor:
        """`not truth`."""
        if not isinstance(truth, Tensor):
            return not truth
        return numbers.number(logical_not(truth)) if numbers.is_number(truth) else logical_not(truth)

    def visit_Compare(self, node: ast.Compare, frame: Frame) -> Any:
        left = self.evaluate(node.left, frame)
        return self._compare(node, 0, left, frame)

    def _compare(self, node: ast.Compare, k: int, left: Any, frame: Frame) -> Any:
        right = self.evaluate(node.comparators[k], frame)
        frame.node = node
        result = self.compare(node.ops[k], left, right)
        if k + 1 == len(node.ops):
            return result
        truth = self.truth(result)
        if isinstance(truth, bool):
            return self._compare(node, k + 1, right, frame) if truth else result
        return self.both(truth, lambda: self.truth(self._compare(node, k + 1, right, frame)))

    def compare(self, op: ast.cmpop, x: Any, y: Any) -> Any:
        """One comparison."""
        if isinstance(op, (ast.Is, ast.IsNot)):
            return (x is y) == isinstance(op, ast.Is)
        if isinstance(op, (ast.In, ast.NotIn)):
            found = self.contains(y, x)
            return found if isinstance(op, ast.In) else self.negated(found)
        function = COMPARISONS[type(op)]
        if isinstance(x, WeakNumber) or isinstance(y, WeakNumber):
            return numbers.compare(function, x, y)
        if stands_for_number(x) or stands_for_number(y):
            return numbers.apply_numbers(function, x, y)
        return function(x, y)

    def contains(self, container: Any, x: Any) -> bool | Tensor:
        """`x in container`."""
        if isinstance(container, HASHED) and stands_for_number(x):
            container = list(container)
        if not isinstance(container, (list, tuple)) or not (holds_symbols(container) or holds_symbols(x)):
            return x in container
        result: bool | Tensor = False
        for item in container:
            if item is x:
                return True
            if not (is_leaf(item) and is_leaf(x)):
                continue
            truth = self.truth(equal(item, x))
            if truth is True:
                return True
            result = truth if result is False else logical_or(result, truth)
        return numbers.number(result) if isinstance(result, Tensor) and numbers.is_number(x) else result

    # -- truth ---------------------------------------------------------------------------------------------
    def condition(self, node: ast.expr, frame: Frame) -> bool | Tensor:
        """The truth of an expression."""
        if isinstance(node, ast.BoolOp):
            return self._condition_of(isinstance(node.op, ast.And), node.values, frame)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.negated(self.condition(node.operand, frame))
        value = self.evaluate(node, frame)
        frame.node = node
        return self.truth(value)

    def _condition_of(self, conjunction: bool, nodes: Sequence[ast.expr], frame: Frame) -> bool | Tensor:
        truth = self.condition(nodes[0], frame)
        if len(nodes) == 1 or (truth is not conjunction and isinstance(truth, bool)):
            return truth
        if isinstance(truth, bool):
            return self._condition_of(conjunction, nodes[1:], frame)
        combine = self.both if conjunction else self.either
        return combine(truth, lambda: self._condition_of(conjunction, nodes[1:], frame))

    def both(self, first: Tensor, second: Callable[[], bool | Tensor]) -> bool | Tensor:
        """`first and second()`: computed at once where that is cheap and harmless, else only if `first`
        holds.
        """
        with Trial(self) as trial:
            truth = second()
            if trial.is_harmless():
                trial.keep()
                if isinstance(truth, bool):
                    return first if truth else False
                return logical_and(first, truth)
        return self.choose(first, second, lambda: False)  # type: ignore[no-any-return]

    def either(self, first: Tensor, second: Callable[[], bool | Tensor]) -> bool | Tensor:
        """`first or second()`."""
        with Trial(self) as trial:
            truth = second()
            if trial.is_harmless():
                trial.keep()
                if isinstance(truth, bool):
                    return True if truth else first
                return logical_or(first, truth)
        return self.choose(first, lambda: True, second)  # type: ignore[no-any-return]

    def visit_BoolOp(self, node: ast.BoolOp, frame: Frame) -> Any:
        return self._operand_of(isinstance(node.op, ast.And), node.values, frame)

    def _operand_of(self, conjunction: bool, nodes: Sequence[ast.expr], frame: Frame) -> Any:
        """The value of `and` or `or`: one of the operands; of Bool Tensors, their conjunction or disjunction."""
        value = self.evaluate(nodes[0], frame)
        if len(nodes) == 1:
            return value
        truth = self.truth(value)
        if isinstance(truth, bool):
            return self._operand_of(conjunction, nodes[1:], frame) if truth is conjunction else value

        def others() -> Any:
            return self._operand_of(conjunction, nodes[1:], frame)

        if isinstance(value, Tensor) and value.dtype.is_bool:
            with Trial(self) as trial:
                other = others()
                is_bool = isinstance(other, bool) or (
                    isinstance(other, Tensor) and other.dtype.is_bool and other.size == 1
                )
                if is_bool and trial.is_harmless():
                    trial.keep()
                    return (logical_and if conjunction else logical_or)(truth, self.truth(other))
        return (
            self.choose(truth, others, lambda: value)
            if conjunction
            else self.choose(truth, lambda: value, others)
        )

    def visit_IfExp(self, node: ast.IfExp, frame: Frame) -> Any:
        truth = self.condition(node.test, frame)
        if isinstance(truth, bool):
            return self.evaluate(node.body if truth else node.orelse, frame)
        frame.node = node
        return self.choose(
            truth, lambda: self.evaluate(node.body, frame), lambda: self.evaluate(node.orelse, frame)
        )

    def choose(self, condition: Tensor, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """`then()` where the condition holds, else `otherwise()`."""
        signal = self.branch(condition, lambda: Signal(value=then()), lambda: Signal(value=otherwise()))
        return None if signal is None else signal.value

    # -- functions and comprehensions ----------------------------------------------------------------------
    def visit_Lambda(self, node: ast.Lambda, frame: Frame) -> Any:
        return self.make_function(node, frame)

    def make_function(self, node: ast.FunctionDef | ast.Lambda, frame: Frame) -> FunctionType:
        """An ordinary Python function for a nested `def` or `lambda`, which shares the variables of `frame`."""
        source = source_of_nested(frame.source, node)
        arguments = node.args
        defaults = tuple(self.evaluate(d, frame) for d in arguments.defaults)
        closure = tuple(frame.cell(name) for name in source.code.co_freevars)
        function = FunctionType(source.code, frame.globals, source.code.co_name, defaults or None, closure)
        keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        function.__kwdefaults__ = {
            a.arg: self.evaluate(d, frame) for a, d in keywords if d is not None
        } or None  # type: ignore[assignment]
        function.__qualname__ = source.code.co_qualname
        if isinstance(node, ast.FunctionDef):
            function.__doc__ = ast.get_docstring(node)
        outside = frame.base.source.code.co_freevars
        self.born.update(
            (id(cell), cell)
            for name, cell in zip(source.code.co_freevars, closure, strict=True)
            if name not in outside
        )
        return self.bear(function)  # type: ignore[no-any-return]

    def visit_ListComp(self, node: ast.ListComp, frame: Frame) -> Any:
        return self.bear(list(self._comprehend(node, frame, lambda inner: self.evaluate(node.elt, inner))))

    def visit_SetComp(self, node: ast.SetComp, frame: Frame) -> Any:
        return self.bear(set(self._comprehend(node, frame, lambda inner: self.evaluate(node.elt, inner))))

    def visit_GeneratorExp(self, node: ast.GeneratorExp, frame: Frame) -> Any:
        return self._comprehend(node, frame, lambda inner: self.evaluate(node.elt, inner))

    def visit_DictComp(self, node: ast.DictComp, frame: Frame) -> Any:
        def pair(inner: Frame) -> tuple[Any, Any]:
            return self.evaluate(node.key, inner), self.evaluate(node.value, inner)

        return self.bear(dict(self._comprehend(node, frame, pair)))

    def _comprehend(self, node: Any, frame: Frame, make: Callable[[Frame], Any]) -> Iterator[Any]:
        first = self.iterate(self.evaluate(node.generators[0].iter, frame))
        return self._generate(node.generators, 0, first, frame.nested(len(self.logs) - 1), make)

    def _generate(
        self,
        generators: list[ast.comprehension],
        k: int,
        items: Iterator[Any],
        inner: Frame,
        make: Callable[[Frame], Any],
    ) -> Iterator[Any]:
        if generators[k].is_async:
            raise UnsupportedSyntaxError(
                "Unsupported expression: an async comprehension cannot be compiled.", hint="use a plain for"
            )
        for item in items:
            self.bind(generators[k].target, item, inner)
            if not self._passes(generators[k], inner):
                continue
            if k + 1 == len(generators):
                yield self._inside(inner, lambda: make(inner))
                continue
            following = self._inside(
                inner, lambda: self.iterate(self.evaluate(generators[k + 1].iter, inner))
            )
            yield from self._generate(generators, k + 1, following, inner, make)

    def _passes(self, generator: ast.comprehension, inner: Frame) -> bool:
        return all(self._inside(inner, functools.partial(self._known, test, inner)) for test in generator.ifs)

    def _inside(self, inner: Frame, thunk: Callable[[], Any]) -> Any:
        """Evaluates in the frame of a comprehension, for the places of errors and nodes."""
        self.frames.append(inner)
        try:
            return thunk()
        except GraphcellError as e:
            self.locate(e)
            raise
        finally:
            self.frames.pop()

    def _known(self, test: ast.expr, frame: Frame) -> bool:
        truth = self.condition(test, frame)
        if isinstance(truth, bool):
            return truth
        raise ConcretizationError(
            "the condition of a comprehension depends on the value of a Tensor, so its length is not known while the graph is being built",
            hint="select the values with ops.select or ops.where, or use a for loop",
        )

    # -- what the layers above define ----------------------------------------------------------------------
    def bind(self, target: ast.expr, value: Any, frame: Frame) -> None:
        """Assigns `value` to a target."""
        raise NotImplementedError


def check_key(container: Any, key: Any) -> None:
    """Refuses a number that only the graph knows where Python looks up the number itself.

    Raises:
        ConcretizationError: `container` is a dict or set, and `key` such a number.
    """
    if isinstance(container, HASHED) and stands_for_number(key):
        raise ConcretizationError(
            f"a {type(container).__name__} is asked for a number that is not known while the graph is being built",
            hint="compare with each key, or keep the values in one Tensor and index that",
        )


def stands_for_number(x: Any) -> bool:
    """True for a Tensor that stands for a Python number."""
    return isinstance(x, Tensor) and numbers.is_number(x)


def mangled(name: str, frame: Frame) -> str:
    """The name of a private attribute (`__x` inside a class)."""
    class_name = frame.source.class_name.lstrip("_")
    return (
        f"_{class_name}{name}" if class_name and name.startswith("__") and not name.endswith("__") else name
    )


def plain_index(index: Any) -> Any:
    """An index of a Tensor with loop indices as Tensors."""
    if isinstance(index, WeakNumber):
        bounds = index.bounds()
        return index.as_tensor() if bounds is None else bounded_index(index.as_tensor(), *bounds)
    if isinstance(index, tuple):
        return tuple(map(plain_index, index))
    return index
