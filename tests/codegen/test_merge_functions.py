"""Equal functions of a module become one: what stays, what is renamed, and that the module computes the same."""

from __future__ import annotations

import ctypes

import pytest

from graphcell.codegen.llvm.merge_functions import merge_functions
from graphcell.codegen.llvm.target import compile_object, host, load_object
from graphcell.codegen.llvm.text import I64, FunctionBuilder, Module, Val, i64


def add_constant(module: Module, name: str, constant: int, *, internal: bool = True, calls: str = "") -> None:
    b = FunctionBuilder(module, name, [("x", I64)], I64, internal=internal)
    x = b.call(calls, I64, b.args["x"]) if calls else b.args["x"]
    b.finish(b.add(x, i64(constant)))


def build() -> Module:
    """f, g and f2 are alike, and then h and h2, which call them; other is not."""
    module = Module()
    for name, constant in (("f", 1), ("g", 1), ("f2", 1), ("other", 2)):
        add_constant(module, name, constant)
    add_constant(module, "h", 10, calls="f")
    add_constant(module, "h2", 10, calls="g")
    add_constant(module, "h3", 10, calls="other")
    module.add_global("table", "internal constant [2 x ptr] [ptr @f2, ptr @other]")
    b = FunctionBuilder(module, "run", [("x", I64)], I64, internal=False)
    total: Val = b.args["x"]
    for k, name in enumerate(("f", "g", "f2", "other", "h", "h2", "h3")):
        total = b.add(b.mul(total, i64(3 + k)), b.call(name, I64, b.args["x"]))
    b.finish(total)
    return module


def compute(module: Module, x: int) -> int:
    library = load_object(compile_object(str(module), host()))
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.address("run"))(x))


@pytest.mark.parametrize("x", [0, 5, -7])
def test_equal_functions_become_one(x: int) -> None:
    expected = x
    for k, value in enumerate((x + 1, x + 1, x + 1, x + 2, x + 11, x + 11, x + 12)):
        expected = expected * (3 + k) + value
    module = build()
    assert compute(module, x) == expected
    merge_functions(module)
    assert list(module.functions) == ["f", "other", "h", "h3", "run"]
    assert module.globals["table"] == "@table = internal constant [2 x ptr] [ptr @f, ptr @other]"
    assert compute(module, x) == expected


def test_functions_seen_from_outside_stay() -> None:
    module = Module()
    add_constant(module, "run", 1, internal=False)
    add_constant(module, "prepare", 1, internal=False)
    merge_functions(module)
    assert list(module.functions) == ["run", "prepare"]
