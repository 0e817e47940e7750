"""Functions that take numbers and are emitted once for all who need them: `Module.shared`."""

from __future__ import annotations

import ctypes

import pytest

from graphcell.codegen.llvm.target import compile_object, host, load_object
from graphcell.codegen.llvm.text import I64, FunctionBuilder, Module, i64


def scaled(module: Module, name: str, factor: int, emitted: list[str]) -> None:
    """Emits `i64 name(i64 x)` = factor * x + 1 by a function that all factors share."""

    def emit() -> str:
        emitted.append(f"{name}.product")
        b = FunctionBuilder(module, emitted[-1], [("x", I64), ("factor", I64)], I64)
        return b.finish(b.mul(b.args["x"], b.args["factor"]))

    shared = module.shared("product", {"factor": factor}, emit)
    b = FunctionBuilder(module, name, [("x", I64)], I64, internal=False)
    b.finish(b.add(b.call(shared, I64, b.args["x"], i64(factor)), i64(1)))


def results(module: Module, names: str) -> list[int]:
    library = load_object(compile_object(str(module), host()))
    return [ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.address(name))(10) for name in names]


@pytest.mark.parametrize("factors", [(3, 3), (3, -5), (4, 4, 7)])
def test_one_function_serves_all_numbers(factors: tuple[int, ...]) -> None:
    module, emitted = Module(), list[str]()
    names = "abc"[: len(factors)]
    for name, factor in zip(names, factors, strict=True):
        scaled(module, name, factor, emitted)
    module.settle()
    assert emitted == ["a.product"]
    assert results(module, names) == [10 * factor + 1 for factor in factors]


def test_numbers_on_which_all_agree_are_constants() -> None:
    module = Module()
    for name in "ab":
        scaled(module, name, 3, [])
    assert "mul i64 %x, %factor" in module.functions["a.product"]
    module.settle()
    assert "mul i64 %x, 3" in module.functions["a.product"]


def test_who_comes_after_the_others_have_settled_gets_a_function_of_its_own() -> None:
    module, emitted = Module(), list[str]()
    scaled(module, "a", 3, emitted)
    module.settle()
    scaled(module, "b", 5, emitted)
    module.settle()
    assert emitted == ["a.product", "b.product"]
    assert results(module, "ab") == [31, 51]
