"""Finding the source of functions, and its places."""

# ruff: noqa: B007, E731, F401, F841, RUF059, SIM105  (the functions are written to exercise syntax)
from __future__ import annotations

import ast
import functools
import linecache
import threading
from pathlib import Path
from typing import Any

import pytest

from graphcell.errors import SourceNotFoundError, render
from graphcell.frontend import source
from graphcell.frontend.source import source_of


def decorator(*args: Any) -> Any:
    return lambda f: f


@decorator(1)
@decorator(2, 3)
def decorated(a: Any, b: Any = 1) -> Any:
    return a


PAIR = (lambda a: a + 1, lambda a: a + 2)
NESTED = lambda a: lambda a: lambda a: a
# fmt: off
MULTILINE = (
    lambda a:
    a
    * 2
)
# fmt: on


class Holder:
    __slots__ = ()

    def method(self) -> Any:
        return 1

    class Inner:
        def method(self) -> Any:
            return 2


def body_text(function: Any) -> str:
    source = source_of(function)
    span = source.span(source.body[0])
    return span.source[span.column : span.end_column]


def test_decorated_function() -> None:
    source = source_of(decorated)
    assert source.node.name == "decorated" and body_text(decorated) == "return a"
    assert source.span(source.node).line == source.node.lineno


def test_lambdas_are_told_apart() -> None:
    assert body_text(PAIR[0]) == "a + 1" and body_text(PAIR[1]) == "a + 2"
    assert body_text(NESTED) == "lambda a: lambda a: a"
    assert body_text(NESTED(1)) == "lambda a: a" and body_text(NESTED(1)(1)) == "a"
    assert source_of(MULTILINE).span(source_of(MULTILINE).body[0]).source.strip() == "a"


def test_equal_lambdas_in_one_line() -> None:
    f, g = lambda x: x * 2, lambda x: x * 2
    assert source_of(f).node.col_offset < source_of(g).node.col_offset


def test_methods() -> None:
    assert body_text(Holder.method) == "return 1" and body_text(Holder.Inner.method) == "return 2"
    assert (
        source_of(Holder.method).class_name == "Holder"
        and source_of(Holder.Inner.method).class_name == "Inner"
    )
    assert source_of(Holder.Inner.method).name.endswith("Holder.Inner.method")


def test_partial_is_no_function() -> None:
    assert body_text(functools.partial(decorated, 1).func) == "return a"


def load(tmp_path: Path, text: str, name: str = "program.py") -> dict[str, Any]:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(compile(text, str(path), "exec"), namespace)
    return namespace


def test_columns_are_characters(tmp_path: Path) -> None:
    f = load(tmp_path, 'def 计算(数):\n    名 = "中文" + str(数)\n    return 名\n')["计算"]
    source = source_of(f)
    span = source.span(source.body[0].value.right)
    assert span.source[span.column : span.end_column] == "str(数)"
    assert render(span).splitlines()[2] == "     |" + " " * (span.column + 1) + "^" * 6


def test_file_changes_on_disk(tmp_path: Path) -> None:
    first = load(tmp_path, "def f(x):\n    return 1\n")["f"]
    assert body_text(first) == "return 1"
    second = load(tmp_path, "# a line more\ndef f(x):\n    return 2\n")["f"]
    linecache.checkcache()
    assert body_text(second) == "return 2"


def test_file_that_does_not_match(tmp_path: Path) -> None:
    namespace = load(tmp_path, "x = 1\ndef f(x):\n    return 1\n")
    (tmp_path / "program.py").write_text("nothing = 0\n")
    with pytest.raises(SourceNotFoundError, match="changed since it was imported"):
        source_of(namespace["f"])


def test_indented_block_of_a_file_that_does_not_parse(tmp_path: Path) -> None:
    text = "if True:\n    def f(x):\n        return x + 1\n"
    f = load(tmp_path, text)["f"]
    (tmp_path / "program.py").write_text(text + "%magic line\n")
    span = source_of(f).span(source_of(f).body[0].value)
    assert (span.line, span.column, span.end_column) == (3, 15, 20)


def test_notebook_cells_come_through_linecache() -> None:
    text = "def f(x):\n    return x * 3\n"
    name = "<ipython-input-1-abc>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {}
    exec(compile(text, name, "exec"), namespace)
    assert body_text(namespace["f"]) == "return x * 3"


def test_no_source() -> None:
    namespace: dict[str, Any] = {}
    exec("def f(x): return x", namespace)
    with pytest.raises(SourceNotFoundError, match="no Python source was found for function f") as e:
        source_of(namespace["f"])
    assert "put it in a file" in str(e.value) and isinstance(e.value, RuntimeError)


def test_local_names() -> None:
    def f(a: Any, *b: Any, c: Any = 1, **d: Any) -> Any:
        global decorated
        e = [g for g in a]
        (h, *i), j = a
        for k in b:
            pass
        with a as m:
            pass
        import os.path
        from math import pi as n

        def o() -> Any:
            p = 1
            return p

        _ = [q := r for r in a]
        decorated = e
        try:
            pass
        except ValueError as s:
            pass

    assert source_of(f).local_names == set("abcdehijkmnoqs") | {"os", "_"}


def test_a_thread_does_not_take_for_complete_what_another_one_is_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["first = lambda a: a\n", "second = lambda a, b: b\n"]
    names: dict[str, Any] = {}
    exec(compile("".join(lines), "pair.py", "exec"), names)
    file = source._File(lines)
    others: list[Any] = []
    thread = threading.Thread(target=lambda: others.extend(file.read(names["second"].__code__)))
    parse = ast.parse

    def parse_slowly(text: str) -> ast.Module:
        if not thread.ident:
            thread.start()
            thread.join(0.2)  # it waits, or it is wrong
        return parse(text)

    monkeypatch.setattr(source.ast, "parse", parse_slowly)
    assert file.read(names["first"].__code__)
    thread.join()
    assert others
