"""Calls: which callables are interpreted, and how.

Interpreted: the user's functions, methods, lambdas and closures, callable objects, `functools.partial`,
compiled functions (inlined), and the methods of Cells, graphcell's own layers included. Run as they are:
graphcell's functions, builtins, classes, and libraries; they see symbolic Tensors. Builtins whose meaning
differs on Tensors are in builtin_calls.py.
"""

from __future__ import annotations

import ast
import builtins
import functools
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from types import (
    BuiltinMethodType,
    CellType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    WrapperDescriptorType,
)
from typing import Any

from graphcell.errors import (
    ArgumentTypeError,
    ConcretizationError,
    SourceNotFoundError,
    UnsupportedSyntaxError,
)
from graphcell.frontend.arguments import bind_arguments
from graphcell.frontend.builtin_calls import BUILTINS, item, reads_frame, string_method
from graphcell.frontend.expressions import check_key
from graphcell.frontend.frame import Frame
from graphcell.frontend.guards import is_cell
from graphcell.frontend.libraries import is_layer_file, is_library_file, is_library_name
from graphcell.frontend.loops import Loops
from graphcell.frontend.places import CONTAINERS, Speculation
from graphcell.frontend.source import is_plain, source_of
from graphcell.frontend.supported import FORBIDDEN_BUILTINS, forbidden_builtin
from graphcell.frontend.text import holds_symbols
from graphcell.tensor import Tensor, state

_IMMUTABLE = (str, bytes, tuple, int, float, complex, bool, range, frozenset, slice, type(None), type)
_PURE_MODULES = frozenset(
    {
        "math", "cmath", "operator", "_operator", "functools", "_functools", "itertools", "copy", "collections", "builtins", "typing", "dataclasses",
        "enum", "types", "re",
    }
)  # fmt: skip
"""Modules of Python whose functions change nothing outside: they may run in a trial that is undone."""
_GIVES_DATA = frozenset({"asnumpy", "numpy", "item", "tolist", "__array__"})
_CALL_BACK = (builtins.sorted, functools.reduce, functools.cmp_to_key)
"""Functions in C that call what they are given."""


class Calls(Loops):
    """Adds calls."""

    def visit_Call(self, node: ast.Call, frame: Frame) -> Any:
        function = self._callee(node, frame)
        args: list[Any] = []
        for a in node.args:
            if isinstance(a, ast.Starred):
                args.extend(self.iterate(self.evaluate(a.value, frame)))
            else:
                args.append(self.evaluate(a, frame))
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.evaluate(keyword.value, frame)
            if keyword.arg is None:
                kwargs.update(value)
            else:
                kwargs[keyword.arg] = value
        frame.node = node
        if function is super and not args:
            return self._super(frame)
        if reads_frame(function, args):
            return self._read_frame(function, frame)
        return self.call(function, args, kwargs)

    def _callee(self, node: ast.Call, frame: Frame) -> Any:
        """What is called. A list that is only appended to is not watched for what it holds."""
        callee = node.func
        if not isinstance(callee, ast.Attribute) or callee.attr != "append":
            return self.evaluate(callee, frame)
        with self.guards.without_contents():
            owner = self.evaluate(callee.value, frame)
        frame.node = callee
        return self.load_attribute(owner, callee.attr)

    def _super(self, frame: Frame) -> Any:
        base = frame.base
        cell = base.cells.get("__class__")
        code = base.source.code
        if cell is None or not code.co_argcount:
            raise RuntimeError("super(): no arguments, and not inside a method")
        return super(cell.cell_contents, frame.find(code.co_varnames[0]))  # type: ignore[misc]

    def _read_frame(self, function: Any, frame: Frame) -> Any:
        if function is builtins.globals:
            return frame.globals
        names = frame.base.locals | {name: cell.cell_contents for name, cell in frame.base.cells.items()}
        return self.bear({k: v for k, v in names.items() if not k.startswith("__class__")})

    # -- dispatch ------------------------------------------------------------------------------------------
    def call(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Calls any callable."""
        kind = type(function)
        if kind is FunctionType:
            return self._call_function(function, args, kwargs, None)
        if kind is MethodType:
            inner = function.__func__
            if inner is Tensor.item:
                return item(self, (function.__self__, *args), kwargs)
            if type(inner) is FunctionType:
                return self._call_function(inner, (function.__self__, *args), kwargs, function.__self__)
            return self.call(inner, (function.__self__, *args), kwargs)
        special = BUILTINS.get(function) if _is_hashable(function) else None
        if special is not None:
            return special(self, args, kwargs)
        if kind is functools.partial:
            return self.call(function.func, (*function.args, *args), {**function.keywords, **kwargs})
        if isinstance(function, BuiltinMethodType):
            return self._call_builtin(function, args, kwargs)
        if isinstance(function, type):
            return self._make(function, args, kwargs)
        if kind in (staticmethod, classmethod):
            return self.call(function.__func__, args, kwargs)
        return self._call_object(function, args, kwargs)

    def is_interpreted(self, function: FunctionType, owner: Any = None) -> bool:
        """True for functions of the user, and for methods of graphcell's layers, that have a source."""
        code = function.__code__
        if is_library_file(code.co_filename) and not (is_cell(owner) and is_layer_file(code.co_filename)):
            return False
        if not is_plain(code):
            return False
        try:
            source_of(function)
        except SourceNotFoundError:
            return False
        return True

    def _call_function(
        self, function: FunctionType, args: Sequence[Any], kwargs: dict[str, Any], owner: Any
    ) -> Any:
        if owner is not None and is_cell(owner) and not isinstance(owner, type):
            self.guards.met(owner, type(owner).__name__)
        if not self.is_interpreted(function, owner):
            return self._call_library(function, args, kwargs)
        return self.interpret(function, args, kwargs)

    def interpret(self, function: FunctionType, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Interprets a call of `function`.

        Raises:
            SourceNotFoundError: it has no source.
        """
        source = source_of(function)
        bound = bind_arguments(function, args, kwargs)
        frame = Frame(source, function.__globals__, self.span(), len(self.logs) - 1)
        frame.function = function
        frame.library = is_library_file(source.file)
        code = source.code
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            frame.cells[name] = cell
        for name in code.co_cellvars:
            if name in source.local_names:
                cell = frame.cells[name] = CellType(bound.pop(name)) if name in bound else CellType()
                self.born[id(cell)] = cell
        frame.locals = bound
        return self.run_function(source, frame)

    def _call_object(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """An object with `__call__`."""
        traced = getattr(type(function), "__traced__", None)
        if traced is not None:
            return self.call(function.__traced__, args, kwargs)
        method = getattr(type(function), "__call__", None)  # noqa: B004  (the method itself is wanted)
        if isinstance(method, FunctionType):
            return self._call_function(method, (function, *args), kwargs, function)
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None and isinstance(function, functools._lru_cache_wrapper):
            return self.call(wrapped, args, kwargs)
        if isinstance(function, (MethodDescriptorType, WrapperDescriptorType)) and args:
            self.note_contents(args[0])
        if not callable(function):
            raise ArgumentTypeError(f"'{type(function).__name__}' object is not callable")
        return self._finish(function(*args, **kwargs))

    # -- what runs as it is --------------------------------------------------------------------------------
    def _call_library(self, function: FunctionType, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if function.__name__ in _GIVES_DATA and args and isinstance(args[0], Tensor):
            self._look_at(args[0])
        if self.logs[-1].strict and not self._is_undoable(function):
            raise Speculation(f"{function.__qualname__} is called, which may change something outside")
        return self._finish(function(*args, **kwargs))

    def _look_at(self, tensor: Tensor) -> None:
        """The data of a Tensor from outside are asked for: they become constants, as long as they stay what they are."""
        if tensor.is_symbolic or self.is_constant(tensor):
            return
        if state.trace is not None and any(
            id(tensor) in scope.newest_values for scope in state.trace.chain()
        ):
            raise ConcretizationError(
                "the value of a Tensor that was written to is not known while the graph is being built"
            )
        self.guards.data_read(tensor)

    @staticmethod
    def _is_undoable(function: FunctionType) -> bool:
        module = str(function.__globals__.get("__name__", ""))
        root = module.partition(".")[0]
        if root == "numpy":
            return ".random" not in module
        return root == "graphcell" or root in _PURE_MODULES or not is_library_name(module)

    def _call_builtin(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A function or method written in C. Methods may change their object."""
        owner = function.__self__
        if isinstance(owner, str) and (holds_symbols(args) or holds_symbols(kwargs)):
            return string_method(function, args, kwargs)
        if args:
            check_key(owner, args[0])
        if isinstance(owner, CONTAINERS):
            self.note_contents(owner)
        elif function is builtins.next:
            self._check_next(args)
        elif (
            function.__name__ in FORBIDDEN_BUILTINS
            and owner is builtins
            and not (args and function.__name__ in ("vars", "dir"))
        ):
            raise forbidden_builtin(function.__name__)
        elif self.logs[-1].strict and not self._keeps_owner(function, owner):
            raise Speculation(f"{function.__name__} is called, which may change something outside")
        if function in _CALL_BACK:
            args = [self.wrapped(a) for a in args]
            kwargs = {k: self.wrapped(v) for k, v in kwargs.items()}
        return self._finish(function(*args, **kwargs))

    @staticmethod
    def _keeps_owner(function: Any, owner: Any) -> bool:
        if isinstance(owner, (_IMMUTABLE, Tensor)):
            return True
        if isinstance(owner, type(sys)):
            return owner.__name__.partition(".")[0] in _PURE_MODULES or (
                owner.__name__.startswith("numpy") and "random" not in owner.__name__
            )
        return bool(type(owner).__module__ == "numpy")

    def _check_next(self, args: Sequence[Any]) -> None:
        iterator = args[0] if args else None
        if len(self.logs) == 1 or id(iterator) in self.logs[-1].births:
            return
        if self.logs[-1].strict:
            raise Speculation("next() of an iterator from outside the loop is called")
        raise UnsupportedSyntaxError(
            "next() takes from an iterator that was made outside of a branch or loop that a Tensor decides on.",
            hint="take the item before it",
        )

    def _make(self, kind: type, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """An instance of a class; made as it is."""
        if kind in (map, filter) or kind.__module__ == "itertools":
            args = [self.wrapped(a) for a in args]
            kwargs = {k: self.wrapped(v) for k, v in kwargs.items()}
        if kind in (list, tuple, set, frozenset, dict, enumerate, zip, map, filter, deque):
            args = [self.iterate(a) if isinstance(a, Tensor) else a for a in args]
        made = kind(*args, **kwargs)
        return made if isinstance(made, _IMMUTABLE) else self.bear(made)

    def _finish(self, result: Any) -> Any:
        """Notes a container or iterator that was made by the call (nothing else refers to it)."""
        if isinstance(result, (*CONTAINERS, Iterator)) and sys.getrefcount(result) <= 4:
            return self.bear(result)
        return result

    def wrapped(self, function: Any) -> Any:
        """For code in C that calls back: a function of the user's that is interpreted when it is called."""
        if not isinstance(function, (FunctionType, MethodType, functools.partial)) and not is_cell(function):
            return function
        inner = getattr(function, "__func__", function)
        if isinstance(inner, FunctionType) and not self.is_interpreted(
            inner, getattr(function, "__self__", None)
        ):
            return function
        return lambda *args, **kwargs: self.call(function, args, kwargs)


def _is_hashable(function: Any) -> bool:
    return isinstance(function, (BuiltinMethodType, type))
