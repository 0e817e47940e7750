"""Equal functions of a module become one: what stays, what is renamed, and that the module computes the same."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import graphcell as gc
from graphcell.codegen.llvm.merge_functions import MOST_NUMBERS, merge_functions
from graphcell.codegen.llvm.target import compile_object, host, load_object
from graphcell.codegen.llvm.text import I64, PTR, FunctionBuilder, Module, Val, i64
from graphcell.passes.pipeline import run_pipeline


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


# -- functions that differ in numbers --------------------------------------------------------------------------------
def add_sum(module: Module, name: str, rows: int, pitch: int, *, start: int = 0, attributes: str = "nounwind", exact: bool = False) -> None:
    """`rows` numbers of an array from `start`, `pitch` apart, and the three after them, weighted: every kind of place where a number can stand."""
    b = FunctionBuilder(module, name, [("x", PTR)], I64, attributes=attributes)
    if exact:
        b.keep_numbers()
    with b.loop(start, rows, carried=[i64(pitch)]) as loop:
        value = b.load(b.gep(b.args["x"], b.mul(loop.index, i64(pitch)), I64), I64)
        loop.carry(b.add(loop.carried[0], value))
    total = loop.results[0]
    for k in range(1, 4):
        value = b.load(b.gep(b.args["x"], k * pitch, I64), I64)
        total = b.add(b.mul(total, i64(10)), b.add(value, i64(k)))
    quotient, rest = b.div(total, i64(rows)), b.rem(total, i64(rows))
    least = b.intrinsic("smin.i64", I64, quotient, i64(1000 * rows))
    b.finish(b.add(b.mul(least, i64(7)), b.add(rest, b.shl(total, i64(1)))))


def sum_in_python(x: list[int], rows: int, pitch: int, start: int = 0) -> int:
    total = pitch + sum(x[k * pitch] for k in range(start, rows))
    for k in range(1, 4):
        total = total * 10 + x[k * pitch] + k
    return min(total // rows, 1000 * rows) * 7 + total % rows + 2 * total


def build_sums(shapes: Sequence[tuple[int, int]], taken: Sequence[str] = (), **options: Any) -> Module:
    """`sum0`, `sum1` … for each (rows, pitch), and `run`, which adds up what they give, times 3 each; the addresses of `taken` come from a table."""
    module = Module()
    for k, (rows, pitch) in enumerate(shapes):
        add_sum(module, f"sum{k}", rows, pitch, **options)
    table = module.add_global("table", f"internal constant [{len(taken)} x ptr] [{', '.join(f'ptr @{name}' for name in taken)}]")
    b = FunctionBuilder(module, "run", [("x", PTR)], I64, internal=False)
    total = i64(0)
    for k in range(len(shapes)):
        if f"sum{k}" in taken:
            value = b.call_pointer(b.load(b.gep(table, taken.index(f"sum{k}"), PTR), PTR), I64, b.args["x"])
        else:
            value = b.call(f"sum{k}", I64, b.args["x"])
        total = b.add(b.mul(total, i64(3)), value)
    b.finish(total)
    return module


def run_sums(module: Module, x: list[int]) -> int:
    library = load_object(compile_object(str(module), host()))
    array = (ctypes.c_int64 * len(x))(*x)
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(library.address("run"))(ctypes.addressof(array)))


SHAPES = ((3, 2), (5, 3), (4, 7), (3, 2))
NUMBERS = [(k * k * 7919) % 101 for k in range(64)]


def expected_sum(shapes: Sequence[tuple[int, int]], **options: Any) -> int:
    total = 0
    for rows, pitch in shapes:
        total = total * 3 + sum_in_python(NUMBERS, rows, pitch, **options)
    return total


def test_functions_that_differ_in_numbers_take_them_as_arguments() -> None:
    module = build_sums(SHAPES)
    assert run_sums(module, NUMBERS) == expected_sum(SHAPES)
    merge_functions(module)
    assert list(module.functions) == ["sum0", "run"]
    assert run_sums(module, NUMBERS) == expected_sum(SHAPES)


def test_multiples_share_an_argument() -> None:
    module = build_sums(SHAPES)
    merge_functions(module)
    head = module.functions["sum0"].splitlines()[0]
    assert head.count("i64 %") == 2, "rows and 1000 * rows, pitch and its multiples"
    assert re.search(r"%number1\.\d\.\d+ = mul i64 %number1\.\d, 1000\n", module.functions["sum0"])


def test_functions_whose_address_is_taken_keep_their_arguments() -> None:
    module = build_sums(SHAPES[:3], taken=("sum1",))
    merge_functions(module)
    assert list(module.functions) == ["sum0", "sum1", "run"]
    assert module.functions["sum1"].startswith("define internal i64 @sum1(ptr %x) ")
    assert run_sums(module, NUMBERS) == expected_sum(SHAPES[:3])


def test_exact_functions_keep_their_numbers() -> None:
    module = build_sums(SHAPES, exact=True)
    merge_functions(module)
    assert list(module.functions) == ["sum0", "sum1", "sum2", "run"]
    assert run_sums(module, NUMBERS) == expected_sum(SHAPES)


def test_numbers_that_are_no_values_keep_functions_apart() -> None:
    """Shifts, sizes of the stack and lanes want constants."""
    module = Module()
    for name, bits in (("f", 1), ("g", 2)):
        b = FunctionBuilder(module, name, [("x", I64)], I64)
        value = b.args["x"]
        for k in range(30):
            value = b.add(value, i64(k))
        b.store(value, b.alloca(I64, bits))
        b.finish(b.shl(value, i64(bits)))
    b = FunctionBuilder(module, "run", [("x", I64)], I64, internal=False)
    b.finish(b.sub(b.call("g", I64, b.args["x"]), b.call("f", I64, b.args["x"])))
    merge_functions(module)
    assert list(module.functions) == ["f", "g", "run"]
    assert compute(module, 5) == 2 * (5 + 435)


def test_too_many_numbers_keep_functions_apart_unless_they_are_cold() -> None:
    def build(attributes: str) -> Module:
        module = Module()
        for name, factor in (("f", 2), ("g", 3)):
            b = FunctionBuilder(module, name, [("x", I64)], I64, attributes=attributes)
            value = b.args["x"]
            for k in range(MOST_NUMBERS + 2):
                value = b.mul(b.add(value, i64(factor**k)), i64(2))
            b.finish(value)
        b = FunctionBuilder(module, "run", [("x", I64)], I64, internal=False)
        b.finish(b.sub(b.call("g", I64, b.args["x"]), b.call("f", I64, b.args["x"])))
        merge_functions(module)
        return module

    assert list(build("nounwind").functions) == ["f", "g", "run"]
    cold = build("nounwind cold")
    assert list(cold.functions) == ["f", "run"]
    expected = 0
    for factor, sign in ((3, 1), (2, -1)):
        value = 11
        for k in range(MOST_NUMBERS + 2):
            value = (value + factor**k) * 2
        expected += sign * value
    assert compute(cold, 11) == expected


def test_callers_of_what_was_merged_are_merged_too() -> None:
    module = Module()
    for k, (rows, pitch) in enumerate(SHAPES[:3]):
        add_sum(module, f"inner{k}", rows, pitch)
        b = FunctionBuilder(module, f"outer{k}", [("x", PTR)], I64)
        value = b.call(f"inner{k}", I64, b.args["x"])
        for number in range(20):
            value = b.add(value, i64(number))
        b.finish(b.mul(value, i64(pitch)))
    b = FunctionBuilder(module, "run", [("x", PTR)], I64, internal=False)
    b.finish(functools.reduce(b.add, [b.call(f"outer{k}", I64, b.args["x"]) for k in range(3)]))
    merge_functions(module)
    assert list(module.functions) == ["inner0", "outer0", "run"]
    expected = sum((sum_in_python(NUMBERS, rows, pitch) + 190) * pitch for rows, pitch in SHAPES[:3])
    assert run_sums(module, NUMBERS) == expected


def test_programs_are_smaller_and_compute_the_same() -> None:
    """Convolutions of several sizes share their transforms; each is checked against sums in float64."""
    from graphcell.codegen.lower import lower
    from graphcell.frontend.tracing import trace_function

    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, 16, 20, 20)).astype(np.float32)
    weights = [rng.standard_normal((n, m, 3, 3)).astype(np.float32) for n, m in ((32, 16), (48, 32), (32, 48))]

    def f(x: Any, *weights: Any) -> Any:
        for w in weights:
            x = gc.ops.conv2d(x, w, padding=1, pad_mode="pad")
        return x

    tensors = [gc.Tensor(a) for a in (x, *weights)]
    y = gc.jit(f)(*tensors).asnumpy()
    reference = x.astype(np.float64)
    for w in weights:
        padded = np.pad(reference, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
        reference = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64))
    np.testing.assert_allclose(y, reference, rtol=2e-4, atol=2e-4 * np.abs(reference).max())
    text = lower(run_pipeline(trace_function(f, tuple(tensors), {}).graph, "f")[0], (), host()).text
    assert text.count("define internal void @") > 0
    assert ", i64 %number" in text


def add_product(module: Module, name: str, count: int, calls: str = "") -> None:
    """The sum of `count` to `count` + 7, times x, and what `calls` gives."""
    b = FunctionBuilder(module, name, [("x", I64)], I64)
    total = i64(0)
    for k in range(24):
        total = b.add(total, b.mul(b.args["x"], i64(count + k % 8)))
    b.finish(b.add(total, b.call(calls, I64, b.args["x"])) if calls else total)


def finish(module: Module) -> None:
    module.stand_ins = merge_functions(module)
    module.finished, module.functions = module.functions, {}


def test_functions_that_are_emitted_later_call_what_earlier_ones_became() -> None:
    """f and g take numbers when they are given away, h and i then; k calls all four."""
    module = Module()
    add_product(module, "f", 3)
    add_product(module, "g", 5)
    expected = [sum(24 // 8 * (n + k) for k in range(8)) for n in (3, 5, 7, 11)]
    finish(module)
    assert list(module.finished) == ["f"] and {s: other for s, (other, _) in module.stand_ins.items()} == {"@f": "@f", "@g": "@f"}
    assert module.has_function("f") and module.has_function("g") and not module.has_function("h")
    add_product(module, "h", 7, calls="f")
    add_product(module, "i", 11, calls="g")
    b = FunctionBuilder(module, "run", [("x", I64)], I64, internal=False)
    total = i64(0)
    for name in "fghi":
        total = b.add(b.mul(total, i64(1000)), b.call(name, I64, b.args["x"]))
    b.finish(total)
    merge_functions(module)
    assert list(module.functions) == ["h", "run"]
    want = [expected[0], expected[1], expected[2] + expected[0], expected[3] + expected[1]]
    assert compute(module, 2) == functools.reduce(lambda total, x: total * 1000 + 2 * x, want, 0)


def test_a_later_address_of_a_function_with_other_arguments_is_noticed() -> None:
    module = Module()
    add_product(module, "f", 3)
    add_product(module, "g", 5)
    finish(module)
    b = FunctionBuilder(module, "run", [("x", I64)], I64, internal=False)
    place = b.alloca(PTR)
    b.store(Val("@g", PTR), place)
    b.finish(b.call_pointer(b.load(place, PTR), I64, b.args["x"]))
    with pytest.raises(AssertionError, match="arguments"):
        merge_functions(module)


def test_merging_again_changes_no_call_twice() -> None:
    """Two functions, and later two more of the same form, without anything being given away between."""
    module = Module()
    for name, count in (("f", 3), ("g", 5)):
        add_product(module, name, count)
    b = FunctionBuilder(module, "first", [("x", I64)], I64, internal=False)
    b.finish(b.add(b.call("f", I64, b.args["x"]), b.mul(b.call("g", I64, b.args["x"]), i64(1000))))
    merge_functions(module)
    for name, count in (("h", 7), ("i", 11)):
        add_product(module, name, count)
    b = FunctionBuilder(module, "run", [("x", I64)], I64, internal=False)
    b.finish(b.add(b.call("first", I64, b.args["x"]), b.add(b.call("h", I64, b.args["x"]), b.call("i", I64, b.args["x"]))))
    merge_functions(module)
    sums = [sum(24 // 8 * (n + k) for k in range(8)) for n in (3, 5, 7, 11)]
    assert compute(module, 2) == 2 * (sums[0] + 1000 * sums[1] + sums[2] + sums[3])
    counts = {name: text.partition("\n")[0].count("i64 %") for name, text in module.functions.items()}
    for text in module.functions.values():
        for call in re.finditer(r"call i64 @(\w+)\(([^()]*)\)", text):
            assert call[2].count("i64 ") == counts[call[1]]
