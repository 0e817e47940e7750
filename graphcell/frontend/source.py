"""Function objects → their AST, with absolute places.

Enters: a function, or its code object. Leaves: a `FunctionSource`: the AST node with the lines and columns of
the file (of a long file only the function's own lines are parsed, as they stand there), and `Span`s with
columns in characters. Sources of the REPL and of notebooks come through `linecache`. Refuses, with
`SourceNotFoundError`, functions that have no Python source.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Iterator
from dataclasses import field
from types import CodeType, FunctionType, MethodType
from typing import Any

from graphcell.errors import SourceNotFoundError, Span, UnsupportedSyntaxError
from graphcell.frontend.libraries import is_library_file
from graphcell.frontend.supported import captured_name
from graphcell.locks import Lock
from graphcell.records import dataclass

Function = ast.FunctionDef | ast.Lambda
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NEVER_RUN_BY_US = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@dataclass(slots=True, eq=False)
class FunctionSource:
    """The source of one function.

    `class_name`: the class around it (for the mangling of private names), or "". `local_names`: the names
    that are bound in its body.
    """

    node: Function
    code: CodeType
    lines: list[str]
    class_name: str
    local_names: frozenset[str]
    body: list[ast.stmt]
    nested: dict[ast.AST, CodeType] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return self.code.co_filename

    @property
    def name(self) -> str:
        return getattr(self.code, "co_qualname", self.code.co_name).replace(".<locals>", "")

    def span(self, node: ast.AST, caller: Span | None = None) -> Span:
        """The place of `node` in the file."""
        line: int = getattr(node, "lineno", 1)
        end: int = getattr(node, "end_lineno", None) or line
        start = self._characters(line, getattr(node, "col_offset", 0))
        stop = self._characters(end, getattr(node, "end_col_offset", None) or 0)
        return Span(self.file, line, start, end, stop, self.name, caller)

    def _characters(self, line: int, offset: int) -> int:
        """A column in characters, of one in UTF-8 bytes."""
        return characters(self.lines[line - 1] if line <= len(self.lines) else "", offset)

    def code_of(self, node: Function) -> CodeType:
        """The code object of a function or lambda that stands directly in this one."""
        found = self.nested.get(node)
        if found is None:
            for code in _nested_codes(self.code):
                if code.co_name == _code_name(node) and _same_place(_find(code, self.lines).node, node):
                    found = self.nested[node] = code
                    break
            else:
                raise SourceNotFoundError(
                    f"{self.name}: the compiled form of the function at line {node.lineno} was not found",
                    hint="the file seems to have changed since it was imported; start Python again",
                )
        return found


@dataclass(slots=True, eq=False)
class _File:
    """The lines of a file and the functions found in them so far, by name and first line, each with the name of the class around it."""

    lines: list[str]
    functions: dict[tuple[str, int], list[tuple[Function, str]]] = field(default_factory=dict)
    is_whole: bool = False
    lock: Lock = field(default_factory=Lock)

    def add(self, tree: ast.Module, class_name: str) -> None:
        """Adds the functions of a tree; those that are known already stay."""
        found: dict[tuple[str, int], list[tuple[Function, str]]] = {}
        for node, inside in _walk_functions(tree, class_name):
            found.setdefault((_code_name(node), _first_line(node)), []).append((node, inside))
        for key, functions in found.items():
            self.functions.setdefault(key, functions)

    def read(self, code: CodeType) -> list[tuple[Function, str]]:
        """The functions that `code` may come from. Its own lines are parsed, a long file only where these do not tell."""
        key = (code.co_name, code.co_firstlineno)
        with self.lock:  # what one thread parses another one need not, nor may take for complete
            if key not in self.functions and not self.is_whole and code.co_name != "<lambda>":
                tree = _parse_lines(self.lines, code)
                if tree is not None:
                    self.add(tree, _class_of(code))
            if key not in self.functions and not self.is_whole:
                self._read_all(code)
        return self.functions.get(key, [])

    def _read_all(self, code: CodeType) -> None:
        try:
            tree = ast.parse("".join(self.lines))
            self.is_whole = True
        except SyntaxError:
            tree = _parse_block(self.lines, code)
        self.add(tree, "")


_files: dict[str, _File] = {}
_sources: dict[int, FunctionSource] = {}  # by id of the code object, which the value keeps alive


def source_of(function: FunctionType) -> FunctionSource:
    """The source of `function`; cached by its code object.

    Raises:
        SourceNotFoundError: there is none.
    """
    code = function.__code__
    found = _sources.get(id(code))
    if found is None:
        found = _sources[id(code)] = _find(code, _read_lines(code, function.__globals__))
    return found


def source_of_nested(outer: FunctionSource, node: Function) -> FunctionSource:
    """The source of a function that stands directly in `outer`."""
    code = outer.code_of(node)
    found = _sources.get(id(code))
    if found is None:
        found = _sources[id(code)] = _make(node, code, outer.lines, outer.class_name)
    return found


def characters(text: str, offset: int) -> int:
    """A column in characters, of one in UTF-8 bytes."""
    return offset if text.isascii() else len(text.encode()[:offset].decode(errors="replace"))


def check_interpretable(fn: Any) -> None:
    """A function of the user's must be interpretable, since running it as it is would miss its control flow.

    Raises:
        SourceNotFoundError: it has no source. UnsupportedSyntaxError: a generator, or asynchronous.
    """
    inner = fn.__func__ if isinstance(fn, MethodType) else fn
    if not isinstance(inner, FunctionType) or is_library_file(inner.__code__.co_filename):
        return
    if inspect.isgeneratorfunction(inner):
        raise UnsupportedSyntaxError(
            f"{inner.__qualname__} is a generator and cannot be compiled.",
            hint="return a list or a tuple instead of using yield",
        )
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        raise UnsupportedSyntaxError(
            f"{inner.__qualname__} is asynchronous and cannot be compiled.", hint="use a plain def"
        )
    source_of(inner)


def is_plain(code: CodeType) -> bool:
    """False for generators and coroutines, which are not interpreted."""
    return not code.co_flags & _NEVER_RUN_BY_US


def _read_lines(code: CodeType, module_globals: dict[str, object]) -> list[str]:
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, module_globals)
    if not lines:
        name = "a lambda" if code.co_name == "<lambda>" else f"function {code.co_name}"
        raise SourceNotFoundError(
            f"no Python source was found for {name} (its file is {code.co_filename})",
            hint="put it in a file or a notebook cell; functions made by exec or eval cannot be compiled",
        )
    return lines


def _find(code: CodeType, lines: list[str]) -> FunctionSource:
    known = _files.get(code.co_filename)
    if known is None or (known.lines is not lines and known.lines != lines):
        known = _files[code.co_filename] = _File(lines)
    node, class_name = _choose(code, known.read(code))
    return _make(node, code, known.lines, class_name)


def _make(node: Function, code: CodeType, lines: list[str], class_name: str) -> FunctionSource:
    if isinstance(node, ast.Lambda):
        statement = ast.copy_location(ast.Return(node.body), node.body)
        body: list[ast.stmt] = [statement]
    else:
        body = node.body
    return FunctionSource(node, code, lines, class_name, local_names(node), body)


def _parse_lines(lines: list[str], code: CodeType) -> ast.Module | None:
    """A function's own lines as a tree with the places of the file; None if they cannot be told from the others.

    They reach from the first decorator to the last line that the code has instructions for, and on while lines are indented deeper:
    code that is never reached, and comments.
    """
    first, stop = code.co_firstlineno, min(_last_line(code), len(lines))
    if not 0 < first <= stop:
        return None
    indent = _indent(lines[first - 1])
    if indent and first == 1:
        return None
    while stop < len(lines) and (not lines[stop].strip() or lines[stop].lstrip().startswith("#") or _indent(lines[stop]) > indent):
        stop += 1
    before = "\n" * (first - 2) + "if 1:\n" if indent else "\n" * (first - 1)
    try:
        return ast.parse(before + "".join(lines[first - 1 : stop]))
    except SyntaxError:  # the lines end within a string
        return None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _last_line(code: CodeType) -> int:
    ends = [end for _, end, _, _ in code.co_positions() if end is not None]
    return max([code.co_firstlineno, *ends, *(_last_line(c) for c in code.co_consts if isinstance(c, CodeType))])


def _class_of(code: CodeType) -> str:
    """The name of the class around a function, as its qualified name tells: names that no `<locals>` follows are classes."""
    outer = code.co_qualname.split(".")[:-1]
    classes = [name for name, following in zip(outer, [*outer, ""][1:], strict=True) if "<locals>" not in (name, following)]
    return classes[-1] if classes else ""


def _parse_block(lines: list[str], code: CodeType) -> ast.Module:
    """Only the function's own lines, moved to where they stand, for a file that does not parse as a whole."""
    block = inspect.getblock(lines[code.co_firstlineno - 1 :])
    text = textwrap.dedent("".join(block))
    try:
        tree = ast.parse(text)
    except SyntaxError as e:
        raise SourceNotFoundError(
            f"the source of {code.co_name} in {code.co_filename} could not be parsed: {e.msg}"
        ) from e
    indent = len(block[0]) - len(block[0].lstrip()) if block else 0
    lines_before = code.co_firstlineno - 1
    shifts = (
        ("lineno", lines_before),
        ("end_lineno", lines_before),
        ("col_offset", indent),
        ("end_col_offset", indent),
    )
    for node in ast.walk(tree):
        for attribute, shift in shifts:
            if hasattr(node, attribute):
                setattr(node, attribute, getattr(node, attribute) + shift)
    return tree


def _walk_functions(tree: ast.AST, class_name: str) -> Iterator[tuple[Function, str]]:
    """All functions in the order of the text, each with the name of the innermost class around it."""
    stack = [(tree, class_name)]
    while stack:
        node, inside = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            yield node, inside
        elif isinstance(node, ast.ClassDef):
            inside = node.name
        children: list[tuple[ast.AST, str]] = []
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                children += [(x, inside) for x in value if isinstance(x, ast.AST)]
            elif isinstance(value, ast.AST):
                children.append((value, inside))
        stack += reversed(children)


def _code_name(node: Function) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def _first_line(node: Function) -> int:
    """`co_firstlineno`: that of the first decorator, if there is one."""
    decorators = getattr(node, "decorator_list", [])
    return int(decorators[0].lineno) if decorators else node.lineno


def _choose(code: CodeType, candidates: list[tuple[Function, str]]) -> tuple[Function, str]:
    """The candidate that `code` was compiled from; several lambdas may stand in one line."""
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    fitting = [c for c in candidates if _argument_names(c[0]) == names]
    if len(fitting) > 1:
        fitting = _by_position(code, fitting)
    if not fitting:
        raise SourceNotFoundError(
            f"function {code.co_name} was not found at line {code.co_firstlineno} of {code.co_filename}",
            hint="the file seems to have changed since it was imported; start Python again",
        )
    return fitting[0]


def _same_place(a: Function, b: Function) -> bool:
    """True for one function of the file, perhaps parsed twice: alone, and with the function around it."""
    return (a.lineno, a.col_offset, a.end_lineno, a.end_col_offset) == (b.lineno, b.col_offset, b.end_lineno, b.end_col_offset)


def _argument_names(node: Function) -> tuple[str, ...]:
    a = node.args
    return tuple(x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs))


def _by_position(code: CodeType, candidates: list[tuple[Function, str]]) -> list[tuple[Function, str]]:
    """The candidates with the smallest body around all instructions of `code`."""
    places = [p for p in code.co_positions() if None not in p and p[2:] != (0, 0)]
    if not places:
        return candidates
    first = min((line, column) for line, _, column, _ in places)
    last = max((line, column) for _, line, _, column in places)
    around = [c for c in candidates if _body_start(c[0]) <= first and last <= _body_end(c[0])]
    around.sort(key=lambda c: _body_start(c[0]), reverse=True)
    return around


def _body_start(node: Function) -> tuple[int, int]:
    body = node.body if isinstance(node, ast.Lambda) else node.body[0]
    return body.lineno, body.col_offset


def _body_end(node: Function) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    """The code objects of functions in `code`; comprehensions (which are functions of their own before 3.12)
    are looked through.
    """
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            if constant.co_name.startswith("<") and constant.co_name != "<lambda>":
                yield from _nested_codes(constant)


def local_names(node: Function) -> frozenset[str]:
    """The names that are local to a function: arguments, and all that its body binds but does not declare
    global or nonlocal.
    """
    a = node.args
    names = {x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg)))}
    elsewhere: set[str] = set()
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    for statement in body:
        _collect(statement, names, elsewhere, False)
    return frozenset(names - elsewhere)


def _collect(node: ast.AST, names: set[str], elsewhere: set[str], inside: bool) -> None:
    """Adds what `node` binds. `inside` a comprehension only walrus targets count, since its own targets live
    in its own scope.
    """
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, (ast.Store, ast.Del)) and not inside:
            names.add(node.id)
        return
    if isinstance(node, ast.NamedExpr):
        names.add(node.target.id)
        _collect(node.value, names, elsewhere, inside)
        return
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        elsewhere.update(node.names)
        return
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        names.add(node.name)
        return
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        return
    if isinstance(node, ast.ExceptHandler) and node.name:
        names.add(node.name)
    names.update(captured_name(node))
    inside = inside or isinstance(node, _COMPREHENSIONS)
    for child in ast.iter_child_nodes(node):
        _collect(child, names, elsewhere, inside)
