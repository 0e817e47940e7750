"""Statements: assignment in all its forms, definitions, blocks that Python runs at compile time (with, try),
assert and raise.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from graphcell.errors import (
    ArgumentTypeError,
    BranchTypeError,
    ConcretizationError,
    GraphcellError,
    MissingAttributeError,
    SourceNotFoundError,
    UnsupportedSyntaxError,
    render,
)
from graphcell.frontend import numbers
from graphcell.frontend.expressions import BINARY, Expressions, check_key, mangled, plain_index
from graphcell.frontend.frame import Frame
from graphcell.frontend.numbers import WeakNumber
from graphcell.frontend.places import UNBOUND, AttributePlace, Never, Unbound
from graphcell.frontend.signals import BREAK, CONTINUE, Chain, Done, Signal
from graphcell.frontend.text import Text, formatted, holds_symbols
from graphcell.ops.host import Assert, Raise, template
from graphcell.tensor import Tensor, state

_ALWAYS_RAISED = (BranchTypeError, ConcretizationError, SourceNotFoundError, UnsupportedSyntaxError)
"""What says that a program cannot be compiled is not for the program's own `except`."""


class Statements(Expressions):
    """Adds `run_*` for statements, and `run_block_*` for those that contain statements."""

    tries: tuple[int, ...] = ()
    """For each `try` with handlers around here: how many regions that a Tensor decides on were around it."""

    # -- assignment ----------------------------------------------------------------------------------------
    def run_Assign(self, node: ast.Assign, frame: Frame) -> None:
        value = self.evaluate(node.value, frame)
        for target in node.targets:
            frame.node = node
            self.bind(target, value, frame)

    def run_AnnAssign(self, node: ast.AnnAssign, frame: Frame) -> None:
        if node.value is not None:
            value = self.evaluate(node.value, frame)
            frame.node = node
            self.bind(node.target, value, frame)

    def bind(self, target: ast.expr, value: Any, frame: Frame) -> None:
        """Assigns `value` to a name, attribute, item, or to a tuple of these."""
        if isinstance(target, ast.Name):
            self.store(target.id, value, frame, comprehension=frame.parent is not None)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target.elts, value, frame)
        elif isinstance(target, ast.Attribute):
            self.store_attribute(self.evaluate(target.value, frame), mangled(target.attr, frame), value)
        elif isinstance(target, ast.Subscript):
            container = self.evaluate(target.value, frame)
            index = self.evaluate(target.slice, frame)
            frame.node = target
            self.store_item(container, index, value)
        else:
            raise AssertionError(f"not a target: {ast.dump(target)}")

    def store_item(self, container: Any, index: Any, value: Any) -> None:
        """`container[index] = value`."""
        if isinstance(container, Tensor):
            container[plain_index(index)] = (
                value.beside(container) if isinstance(value, WeakNumber) else value
            )
            return
        method = self.users_method(container, "__setitem__")
        if method is not None:
            self.call(method, (container, index, value), {})
            return
        check_key(container, index)
        self.note_contents(container)
        container[index] = value

    def _unpack(self, targets: Sequence[ast.expr], value: Any, frame: Frame) -> None:
        items = list(self.iterate(value)) if not isinstance(value, (list, tuple)) else value
        star = next((k for k, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
        if star is None:
            if len(items) != len(targets):
                few = f"not enough values to unpack (expected {len(targets)}, got {len(items)})"
                raise ValueError(
                    few
                    if len(items) < len(targets)
                    else f"too many values to unpack (expected {len(targets)})"
                )
            for target, item in zip(targets, items, strict=True):
                self.bind(target, item, frame)
            return
        after = len(targets) - star - 1
        if len(items) < star + after:
            raise ValueError(
                f"not enough values to unpack (expected at least {star + after}, got {len(items)})"
            )
        for target, item in zip(targets[:star], items, strict=False):
            self.bind(target, item, frame)
        middle = targets[star]
        assert isinstance(middle, ast.Starred)
        self.bind(middle.value, self.bear(list(items[star : len(items) - after])), frame)
        for target, item in zip(targets[star + 1 :], items[len(items) - after :], strict=True):
            self.bind(target, item, frame)

    def run_AugAssign(self, node: ast.AugAssign, frame: Frame) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            before = self.load(target.id, frame)
            self.store(target.id, self._updated(node, before, frame), frame)
        elif isinstance(target, ast.Attribute):
            owner, name = self.evaluate(target.value, frame), mangled(target.attr, frame)
            self.store_attribute(owner, name, self._updated(node, self.load_attribute(owner, name), frame))
        else:
            container, index = self.evaluate(target.value, frame), self.evaluate(target.slice, frame)
            self.store_item(container, index, self._updated(node, self.load_item(container, index), frame))

    def _updated(self, node: ast.AugAssign, before: Any, frame: Frame) -> Any:
        value = self.evaluate(node.value, frame)
        frame.node = node
        symbol, function, in_place = BINARY[type(node.op)]
        if isinstance(before, WeakNumber) or isinstance(value, WeakNumber):
            return numbers.binary(symbol, function, before, value)
        self.note_contents(before)
        return self.binary(symbol, in_place, before, value)

    def run_Delete(self, node: ast.Delete, frame: Frame) -> None:
        for target in node.targets:
            self._delete(target, frame)

    def _delete(self, target: ast.expr, frame: Frame) -> None:
        frame.node = target
        if isinstance(target, ast.Name):
            place = frame.place(target.id)
            value = place.get()
            if isinstance(value, Unbound):
                raise frame.unbound_error(target.id, value)
            self.assign(place, UNBOUND)
        elif isinstance(target, ast.Attribute):
            owner = self.evaluate(target.value, frame)
            name = mangled(target.attr, frame)
            if not hasattr(owner, name):
                raise MissingAttributeError(f"{type(owner).__name__} has no attribute '{name}'")
            self.assign(AttributePlace(owner, name), UNBOUND)
        elif isinstance(target, ast.Subscript):
            container, index = self.evaluate(target.value, frame), self.evaluate(target.slice, frame)
            self.note_contents(container)
            del container[index]
        elif isinstance(target, (ast.Tuple, ast.List)):
            for element in target.elts:
                self._delete(element, frame)

    # -- simple statements ---------------------------------------------------------------------------------
    def run_Expr(self, node: ast.Expr, frame: Frame) -> None:
        self.evaluate(node.value, frame)

    def run_Return(self, node: ast.Return, frame: Frame) -> Signal:
        value = None if node.value is None else self.evaluate(node.value, frame)
        frame.node = node
        return Signal(returned=True, value=value)

    def run_Pass(self, node: ast.Pass, frame: Frame) -> None:
        return None

    def run_Global(self, node: ast.Global, frame: Frame) -> None:
        return None

    def run_Nonlocal(self, node: ast.Nonlocal, frame: Frame) -> None:
        return None

    def run_Break(self, node: ast.Break, frame: Frame) -> Signal:
        return BREAK

    def run_Continue(self, node: ast.Continue, frame: Frame) -> Signal:
        return CONTINUE

    def run_Import(self, node: ast.Import, frame: Frame) -> None:
        for alias in node.names:
            module = importlib.import_module(alias.name)
            if alias.asname:
                self.store(alias.asname, module, frame)
            else:
                root = alias.name.partition(".")[0]
                self.store(root, importlib.import_module(root), frame)

    def run_ImportFrom(self, node: ast.ImportFrom, frame: Frame) -> None:
        package = frame.globals.get("__package__") or ""
        module = importlib.import_module("." * node.level + (node.module or ""), package)
        for alias in node.names:
            if not hasattr(module, alias.name):
                importlib.import_module(f"{module.__name__}.{alias.name}")
            self.store(alias.asname or alias.name, getattr(module, alias.name), frame)

    def run_FunctionDef(self, node: ast.FunctionDef, frame: Frame) -> None:
        decorators = [self.evaluate(d, frame) for d in node.decorator_list]
        function: Any = self.make_function(node, frame)
        for decorator in reversed(decorators):
            frame.node = node
            function = self.call(decorator, (function,), {})
        frame.node = node
        self.store(node.name, function, frame)

    # -- errors --------------------------------------------------------------------------------------------
    def run_Assert(self, node: ast.Assert, frame: Frame) -> None:
        truth = self.condition(node.test, frame)
        if truth is True:
            return
        message = "" if node.msg is None else self.evaluate(node.msg, frame)
        frame.node = node.test
        text = formatted(str, message) if holds_symbols(message) else str(message)
        if isinstance(truth, Tensor):
            self._effect(Assert, text, truth)
            return
        self.throw(AssertionError(text) if not isinstance(text, Text) else AssertionError, text)

    def run_Raise(self, node: ast.Raise, frame: Frame) -> Signal | None:
        if node.exc is None:
            frame.node = node
            if frame.handled is None:
                raise RuntimeError("No active exception to reraise")
            raise frame.handled
        if isinstance(node.exc, ast.Call):
            kind = self.evaluate(node.exc.func, frame)
            if isinstance(kind, type) and issubclass(kind, Exception):
                return self._raise_new(kind, node.exc, node, frame)
        error = self.evaluate(node.exc, frame)
        frame.node = node
        if isinstance(error, type) and issubclass(error, BaseException):
            error = error()
        if not isinstance(error, BaseException):
            raise TypeError("exceptions must derive from BaseException")
        if isinstance(error, Exception):
            self.throw(error, str(error))
        raise error

    def _raise_new(
        self, kind: type[Exception], call: ast.Call, node: ast.Raise, frame: Frame
    ) -> Signal | None:
        args = [self.evaluate(a, frame) for a in call.args]
        kwargs = {k.arg: self.evaluate(k.value, frame) for k in call.keywords if k.arg}
        frame.node = node
        if holds_symbols(args):
            text = formatted(lambda values: str(kind(*values)), args)
            self.throw(kind, text)
        error = kind(*args, **kwargs)
        if node.cause is not None:
            error.__cause__ = self.evaluate(node.cause, frame)
        self.throw(error, str(args[0]) if len(args) == 1 else str(error) if args else "")
        return None

    def throw(self, error: Exception | type[Exception], text: Any) -> None:
        """Raises now, or, in code that a Tensor decides on, when the graph runs."""
        caught_here = bool(self.tries) and self.tries[-1] == self.conditional
        if (caught_here or not self.conditional) and isinstance(error, Exception):
            raise error
        if self.tries:
            raise UnsupportedSyntaxError(
                "an exception that a Tensor decides on cannot be caught by `try`: it is raised when the graph runs.",
                hint="move the try statement around the call of the compiled function",
            )
        kind = error if isinstance(error, type) else type(error)
        pieces, operands = template(text.pieces if isinstance(text, Text) else (text,))
        op = Raise(kind.__module__, kind.__qualname__, pieces, self._place())
        op.kind()  # the class must be found again by its name
        state.trace.append(op, operands)  # type: ignore[union-attr]
        raise Never

    def _effect(self, kind: type[Assert], text: Any, truth: Tensor) -> None:
        pieces, operands = template(text.pieces if isinstance(text, Text) else (text,))
        state.trace.append(kind(pieces, self._place()), [truth, *operands])  # type: ignore[union-attr]

    def _place(self) -> str:
        """The present place, as an error shows it that is raised when the graph runs."""
        span = self.span()
        return "" if span is None else render(span.in_any_call())

    # -- with and try --------------------------------------------------------------------------------------
    def run_block_With(self, node: ast.With, frame: Frame, rest: Chain) -> Chain | Done:
        signal = self._with(node, 0, frame)
        return self.after(signal, rest, frame)

    def _with(self, node: ast.With, k: int, frame: Frame) -> Signal | None:
        if k == len(node.items):
            return self.run(Chain(node.body), frame)
        item = node.items[k]
        manager = self.evaluate(item.context_expr, frame)
        frame.node = item.context_expr
        kind = type(manager)
        if not hasattr(kind, "__enter__") or not hasattr(kind, "__exit__"):
            raise ArgumentTypeError(f"'{kind.__name__}' object does not support the context manager protocol")
        value = self.call(kind.__enter__, (manager,), {})
        if item.optional_vars is not None:
            self.bind(item.optional_vars, value, frame)
        try:
            signal = self._with(node, k + 1, frame)
        except Exception as error:
            if isinstance(error, GraphcellError):
                self.locate(error)
            if not self.call(kind.__exit__, (manager, type(error), error, error.__traceback__), {}):
                raise
            return None
        except BaseException:
            self.call(kind.__exit__, (manager, None, None, None), {})
            raise
        self.call(kind.__exit__, (manager, None, None, None), {})
        return signal

    def run_block_Try(self, node: ast.Try, frame: Frame, rest: Chain) -> Chain | Done:
        try:
            signal = self._try(node, frame)
        except BaseException:
            self._finally(node, frame)
            raise
        last = self._finally(node, frame)
        return self.after(signal if last is None else last, rest, frame)

    def _finally(self, node: ast.Try, frame: Frame) -> Signal | None:
        return self.run(Chain(node.finalbody), frame) if node.finalbody else None

    def _try(self, node: ast.Try, frame: Frame) -> Signal | None:
        try:
            with self._catching(node):
                signal = self.run(Chain(node.body), frame)
        except _ALWAYS_RAISED:
            raise
        except Exception as error:
            handler = next((h for h in node.handlers if self._catches(h, error, frame)), None)
            if handler is None:
                raise
            return self._handle(handler, error, frame)
        if signal is None and node.orelse:
            return self.run(Chain(node.orelse), frame)
        return signal

    @contextmanager
    def _catching(self, node: ast.Try) -> Iterator[None]:
        before = self.tries
        if node.handlers:
            self.tries = (*before, self.conditional)
        try:
            yield
        finally:
            self.tries = before

    def _catches(self, handler: ast.ExceptHandler, error: Exception, frame: Frame) -> bool:
        return handler.type is None or isinstance(error, self.evaluate(handler.type, frame))

    def _handle(self, handler: ast.ExceptHandler, error: Exception, frame: Frame) -> Signal | None:
        before, frame.handled = frame.handled, error
        try:
            if handler.name:
                self.store(handler.name, error, frame)
            return self.run(Chain(handler.body), frame)
        finally:
            frame.handled = before
            if handler.name:
                self.assign(frame.place(handler.name), UNBOUND)

    # -- what the layers above define ----------------------------------------------------------------------
    def after(self, signal: Signal | None, rest: Chain, frame: Frame) -> Chain | Done:
        """What follows a block that ended with `signal`."""
        raise NotImplementedError
