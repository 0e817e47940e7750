"""Functions are parsed from their own lines: what comes of it is what parsing the whole file gives."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import linecache
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphcell.frontend import source as module
from graphcell.frontend.source import source_of, source_of_nested
from graphcell.nn import cell
from graphcell.ops.functional import indexing

ODD = '''
class Outer:
    """A class."""

    def __private(self): return 1

    class __Inner:
        @staticmethod
        def deep(x):
            def inside(y):
                return y
                unreachable = """
    dedented
"""
            return inside

        async def waits(self):
            def within(): return 2
            return within

    def strings(self):
        text = """
no indentation
    """
        return text  # a comment

# a comment at the left
        # and one inside

def one_line(x): return x
def long_head(
    a, b=(lambda q: q),
    *, c,
) -> int:
    """Doc
at the left."""

def ends_in_dead_code(x):
    return x
    y = 1
    if y:
\tz = (
  2)
def факториал(н):
    def внутри(м): return "ж" * м
    return внутри
if True:
        def indented(x):
            return [
    x,
]
'''


def functions_of(namespace: dict[str, object], file: str) -> Iterator[types.FunctionType]:
    seen: set[int] = set()
    stack = list(namespace.values())
    while stack:
        x = stack.pop()
        if isinstance(x, (staticmethod, classmethod)):
            x = x.__func__
        if isinstance(x, type) and id(x) not in seen and x.__module__ == namespace["__name__"]:
            seen.add(id(x))
            stack += vars(x).values()
        if isinstance(x, types.FunctionType) and x.__code__.co_filename == file and x.__name__ != "<lambda>" and id(x) not in seen:
            seen.add(id(x))
            if not inspect.iscoroutinefunction(x) and not inspect.isgeneratorfunction(x):
                yield x


def whole(file: str) -> dict[tuple[str, int], tuple[ast.AST, str]]:
    """Every function of a file and the class around it, by the `ast` of the whole."""
    found: dict[tuple[str, int], tuple[ast.AST, str]] = {}

    def visit(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = child.decorator_list[0].lineno if child.decorator_list else child.lineno
                found[child.name, first] = (child, inside)
            visit(child, child.name if isinstance(child, ast.ClassDef) else inside)

    visit(ast.parse("".join(linecache.getlines(file))), "")
    return found


def check(namespace: dict[str, object], file: str) -> int:
    expected, count = whole(file), 0
    module._files.pop(file, None)
    for f in functions_of(namespace, file):
        module._sources.pop(id(f.__code__), None)
        node, inside = expected[f.__code__.co_name, f.__code__.co_firstlineno]
        found = source_of(f)
        assert ast.dump(found.node, include_attributes=True) == ast.dump(node, include_attributes=True), f.__qualname__
        assert found.class_name == inside, f.__qualname__
        count += 1
    return count


@pytest.fixture
def odd(tmp_path: Path) -> dict[str, object]:
    path = tmp_path / "odd.py"
    path.write_text(ODD.replace("\tz", "        z"), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("odd", path)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return vars(loaded)


def test_odd_forms(odd: dict[str, object]) -> None:
    assert check(odd, str(odd["__file__"])) == 8


@pytest.mark.parametrize("library", [argparse, inspect, textwrap, cell, indexing], ids=lambda m: str(m.__name__))
def test_whole_modules(library: types.ModuleType) -> None:
    assert check(vars(library), str(library.__file__)) > 5


@pytest.mark.parametrize("inner_first", [False, True])
def test_nested_functions_in_either_order(odd: dict[str, object], inner_first: bool) -> None:
    """A function that stands in another is found from it, whether its lines were parsed before or not."""
    outer = vars(vars(odd["Outer"])["_Outer__Inner"])["deep"].__func__
    if inner_first:
        assert source_of(outer(1)).name == "Outer.__Inner.deep.inside"
    source = source_of(outer)
    (definition,) = [n for n in source.body if isinstance(n, ast.FunctionDef)]
    nested = source_of_nested(source, definition)
    assert nested.class_name == "__Inner" and nested.code is outer(1).__code__
    assert nested.span(nested.body[0]).source.strip() == "return y"


def test_a_long_file_is_not_parsed_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    function = argparse.ArgumentParser.parse_args
    module._files.pop(str(argparse.__file__), None)
    module._sources.pop(id(function.__code__), None)
    parsed: list[int] = []
    inner = ast.parse

    def parse(text: str) -> ast.Module:
        parsed.append(len(text.strip().splitlines()))
        return inner(text)

    with monkeypatch.context() as patched:
        patched.setattr(module.ast, "parse", parse)
        source_of(function)
    assert len(parsed) == 1 and parsed[0] < 40
