"""Matrix products with tile registers against numpy float64: every form, on memory with guard pages; and where they are not used."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import graphcell as ms
from graphcell import ops
from graphcell.codegen.llvm import processor
from graphcell.codegen.llvm.contraction import multiplies_tiles
from graphcell.codegen.llvm.matmul import MatmulSpec, Operand, dense_matmul, emit_matmul
from graphcell.codegen.llvm.matmul_tiles_schedule import STEPS_OF_A, tile_schedule
from graphcell.codegen.llvm.target import Target, compile_object, host
from graphcell.codegen.llvm.text import F32, PTR, FunctionBuilder, Module
from tests.codegen.plans import TARGETS, assert_sums, compile_plan, storage
from tests.codegen.test_contraction import Case, check

Array = NDArray[Any]
HOST = max(TARGETS)
FEATURES = "+amx-bf16,+amx-tile,+avx512bf16,+avx512bw,+avx512cd,+avx512dq,+avx512f,+avx512vl,-prefer-256-bit"
WITH_TILES = Target("x86_64-unknown-linux-gnu", "sapphirerapids", FEATURES, 64, 48 << 10, 2 << 20, 64 << 20, flushes=True)
needs_tiles = pytest.mark.skipif(not multiplies_tiles(host()), reason="this processor has no tile registers, or the system does not give them")
TRANSPOSES = list(itertools.product((False, True), repeat=2))
KINDS = ["float", "half", "bfloat"]


@pytest.fixture(autouse=True)
def with_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host as it is."""
    monkeypatch.setitem(TARGETS, HOST, host())


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the product."""
    monkeypatch.setattr("graphcell.codegen.llvm.matmul_tiles_schedule.WORTH", math.inf)


def check_in_tiles(case: Case) -> None:
    plan = tile_schedule(case.spec, TARGETS[HOST])
    assert plan is not None, case
    check(case, HOST)


SHAPES = [(1, 1, 1), (3, 5, 7), (16, 16, 32), (17, 33, 65), (33, 17, 31), (64, 64, 64), (100, 1, 50), (1, 100, 50), (129, 130, 70), (48, 50, 1100)]


@needs_tiles
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_and_transpositions(shape: tuple[int, int, int], transpose_a: bool, transpose_b: bool, kind: str, always: None) -> None:
    check_in_tiles(Case(*shape, kind, transpose_a=transpose_a, transpose_b=transpose_b))


@needs_tiles
@pytest.mark.parametrize("seed", range(20))
def test_random_shapes(seed: int, always: None) -> None:
    rng = np.random.default_rng(seed)
    m, n, k = (int(2 ** rng.uniform(0, 9)) for _ in range(3))
    k = k // 32 * 32 or k if seed % 2 else k
    batch = [(), (3,), (2, 2)][int(rng.integers(3))]
    b_batch = None if rng.integers(2) else (0,) * len(batch)
    shares = bool(rng.integers(2)) and (b_batch is not None or not batch)
    kind = str(rng.choice(KINDS))
    check_in_tiles(Case(m, n, k, kind, batch, bool(rng.integers(2)), bool(rng.integers(2)), None, b_batch, shares))


@needs_tiles
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "n", "k"), [(300, 260, 416), (37, 700, 800), (700, 37, 800), (520, 300, 1056), (1100, 1100, 64)])
@pytest.mark.parametrize("share_b", [False, True])
def test_passes_and_blocks(m: int, n: int, k: int, kind: str, share_b: bool, always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With caches so small that k is in parts and the output in blocks; rows that are packed beside the products of those before, and all others."""
    monkeypatch.setitem(TARGETS, HOST, replace(TARGETS[HOST], l2_bytes=512 << 10))
    plan = tile_schedule(Case(m, n, k, kind, share_b=share_b).spec, TARGETS[HOST])
    assert plan is not None and math.prod(plan.grid) > 1
    check_in_tiles(Case(m, n, k, kind, share_b=share_b))
    check_in_tiles(Case(m, n, k - 1, kind, share_b=share_b, transpose_b=True))


@needs_tiles
def test_the_output_may_be_of_another_kind_and_its_rows_apart(always: None) -> None:
    m, n, k = 40, 50, 70
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k)).astype(storage("bfloat")), rng.standard_normal((k, n)).astype(storage("bfloat"))
    spec = MatmulSpec(m, n, k, Operand("bfloat", k, 1), Operand("bfloat", n, 1), Operand("float", 60, 1))
    runner = compile_plan(lambda module, target: emit_matmul(module, "matmul", spec, target), TARGETS[HOST])
    got = runner({"a": a, "b": b}, "c", (m, 60), storage("float"))
    assert_sums(got[:, :n], a.astype(np.float64) @ b.astype(np.float64), "float", k)
    assert np.isnan(got[:, n:]).all()  # as they were


def product(case: Case, a: Array, b: Array) -> Array:
    runner = compile_plan(lambda module, target: emit_matmul(module, "matmul", case.spec, target), TARGETS[HOST])
    return runner(case.stored(a, b), "c", (case.m, case.n), storage(case.kind)).astype(np.float64)


def check_special(case: Case, a: Array, b: Array) -> None:
    """Infinities and NaN where float64 has them, and all other numbers to rounding."""
    got = product(case, a, b)
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float64) @ b.astype(np.float64)
        error = np.abs(got - want)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    finite = np.isfinite(want)
    size = np.abs(np.nan_to_num(a.astype(np.float64), posinf=0, neginf=0)) @ np.abs(np.nan_to_num(b.astype(np.float64), posinf=0, neginf=0))
    assert (error[finite] <= (size * 2.0 ** (-10 if case.kind == "half" else -20))[finite]).all()


SPECIAL = [
    Case(70, 75, 96), Case(70, 75, 97, transpose_a=True), Case(70, 75, 85, transpose_b=True), Case(40, 39, 33, transpose_a=True, transpose_b=True),
    Case(70, 260, 96),  # packs rows beside products
    Case(70, 260, 96, transpose_b=True, share_b=True), Case(70, 75, 77, share_b=True),
    Case(70, 260, 160), Case(70, 75, 150, transpose_a=True), Case(70, 75, 160, share_b=True),  # several passes
]  # fmt: skip


@needs_tiles
@pytest.mark.parametrize("kind", ["float", "half"])
@pytest.mark.parametrize("case", SPECIAL, ids=str)
@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan, "largest"])
def test_numbers_that_have_no_parts(number: float | str, side: str, case: Case, kind: str, always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Infinities, NaN, and floats of which bfloats are infinite: the tiles that meet them are computed from the operands as they are."""
    for parts in (2, 3):
        monkeypatch.setitem(STEPS_OF_A, parts, 64 if case.k > 100 else 1024)
    case = replace(case, kind=kind)
    plan = tile_schedule(case.spec, TARGETS[HOST])
    assert plan is not None and plan.passes == (3 if case.k > 100 else 1) and bool(plan.meanwhile) == (case.n == 260)
    a, b = case.operands()
    what = np.finfo(storage(kind)).max if number == "largest" else number
    if number == "largest":
        a, b = a * storage(kind).type(2.0**-4), b * storage(kind).type(2.0**-4)
    for at in (0, case.k // 2, case.k - 1):  # in the first steps and in the last
        x, y = a.copy(), b.copy()
        (x if side == "a" else y.T)[33, at] = what
        check_special(case, x, y)


@needs_tiles
@pytest.mark.parametrize("kind", ["float", "half"])
def test_all_others_are_computed_in_tiles(kind: str, always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is computed again: what would be, is NaN here."""

    def spoil(tile: Any) -> str:
        b = FunctionBuilder(tile.owner.module, f"{tile.name}.plain", [("a", PTR), ("b", PTR), ("sums", PTR)])
        with b.loop(0, 32 * 32) as k:
            b.store(b.const(math.nan, F32), b.gep(b.args["sums"], k.index, F32))
        return b.finish()

    monkeypatch.setattr("graphcell.codegen.llvm.matmul_tiles._Tile._emit_plain", spoil)
    for case in SPECIAL:
        case = replace(case, kind=kind)
        a, b = case.operands()
        check_special(case, a, b)
        a[33, 3] = np.inf
        got = product(case, a, b)
        rows = np.isnan(got).any(1)
        assert rows[33] and not rows[:32].any() and not rows[64:].any()  # of the row tile that has it


@needs_tiles
@pytest.mark.parametrize("transpose_b", [False, True])
def test_numbers_whose_parts_would_vanish_or_overflow(transpose_b: bool, always: None) -> None:
    """Panels of small numbers, small products, and products near the largest number."""
    case = Case(40, 45, 96, transpose_b=transpose_b)
    a, b = case.operands()
    with np.errstate(under="ignore"):
        for x, y in ((-126, 126), (-120, 100), (110, -115), (-55, -55), (-60, -40), (60, 50)):
            check_special(case, a * np.float32(2.0) ** x, b * np.float32(2.0) ** y)
        x, y = np.zeros_like(a), np.zeros_like(b)
        x[3, 5], y[5, 7] = 1.9975 * 2.0**63, 1.9975 * 2.0**63
        check_special(case, x, y)


@needs_tiles
def test_infinite_bfloats_are_multiplied_as_they_are(always: None) -> None:
    case = Case(40, 40, 64, "bfloat")
    a, b = case.operands()
    a[5, 7], b[9, 3] = np.inf, np.nan
    runner = compile_plan(lambda module, target: emit_matmul(module, "matmul", case.spec, target), TARGETS[HOST])
    got = runner({"a": a, "b": b}, "c", (40, 40), storage("bfloat")).astype(np.float64)
    want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])


@needs_tiles
@pytest.mark.parametrize("scale", [1.0, 2.0**60, 2.0**-50])
def test_products_of_floats_are_as_exact_as_multiply_adds(scale: float) -> None:
    """Beside the sum of the magnitudes, as the rounding of sums is measured."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((512, 512)).astype(np.float32) * np.float32(scale) for _ in range(2))
    if scale > 1:
        b = b / np.float32(scale)
    spec = dense_matmul(512, 512, 512)
    assert tile_schedule(spec, TARGETS[HOST]) is not None
    wide, narrow = TARGETS[HOST], TARGETS[32]
    exact, size = a.astype(np.float64) @ b.astype(np.float64), np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    tiles, adds = (
        np.abs(compile_plan(lambda module, target: emit_matmul(module, "matmul", spec, target), target)({"a": a, "b": b}, "c", (512, 512), storage("float")) - exact)
        / size
        for target in (wide, narrow)
    )
    assert tiles.max() < 2.0**-21 and tiles.mean() < 2 * adds.mean() and (tiles != adds).any()


@needs_tiles
def test_integers_are_exact() -> None:
    """All parts of numbers up to 2**11 are found, and their sums have all digits."""
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-2048, 2049, (320, 320)).astype(np.float32) for _ in range(2))
    a[:, 3:] = 0  # so that sums stay below 2**24
    spec = dense_matmul(320, 320, 320)
    assert tile_schedule(spec, TARGETS[HOST]) is not None
    got = compile_plan(lambda module, target: emit_matmul(module, "matmul", spec, target), TARGETS[HOST])({"a": a, "b": b}, "c", (320, 320), storage("float"))
    np.testing.assert_array_equal(got, a.astype(np.float64) @ b.astype(np.float64))


@needs_tiles
@pytest.mark.parametrize("dtype", [ms.float32, ms.float16, ms.bfloat16])
def test_what_follows_a_product(dtype: ms.dtype.DType, always: None) -> None:
    """A bias, a residual and an activation, of a batch of matrices and of rows of all."""
    rng = np.random.default_rng(3)
    x, w, bias, beside = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 45, 70), (50, 70), (50,), (3, 45, 50)))
    tensors = [ms.Tensor(v).astype(dtype) for v in (x, w, bias, beside)]

    @ms.jit
    def f(x: ms.Tensor, w: ms.Tensor, bias: ms.Tensor, beside: ms.Tensor) -> ms.Tensor:
        return ops.relu(ops.matmul(x, w.swapaxes(0, 1)) + bias) + beside

    got = f(*tensors).astype(ms.float32).asnumpy()
    x, w, bias, beside = (t.astype(ms.float32).asnumpy().astype(np.float64) for t in tensors)
    want = np.maximum(x @ w.T + bias, 0) + beside
    np.testing.assert_allclose(got, want, rtol=0, atol={ms.float32: 2e-5, ms.float16: 4e-2, ms.bfloat16: 3e-1}[dtype])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
def test_code_for_such_processors_is_made_on_any(kind: str, transpose_a: bool, transpose_b: bool) -> None:
    spec = dense_matmul(500, 533, 850, kind, transpose_a=transpose_a, transpose_b=transpose_b)
    module = WITH_TILES.module()
    plan = emit_matmul(module, "matmul", spec, WITH_TILES)
    assert "tile registers" in plan.note and plan.scratch_bytes < WITH_TILES.l2_bytes
    if host().triple.startswith("x86_64"):
        assert compile_object(str(module), WITH_TILES)


def test_how_large_products_are_divided() -> None:
    plan = tile_schedule(dense_matmul(1024, 1024, 1024), WITH_TILES)
    assert plan is not None and plan.meanwhile and plan.passes > 1 and math.prod(plan.grid) % 2 == 0
    text = str(plan)
    assert "6 products of parts" in text and "pack a: beside products" in text
    for share_b, pack_b in ((False, "block"), (True, "shared")):
        shared = tile_schedule(dense_matmul(256, 512, 2048, "bfloat", share_b=share_b), WITH_TILES)
        assert shared is not None and shared.pack_b == pack_b and "parts" not in str(shared)


def test_few_rows_of_prepared_weights_are_read_as_they_are() -> None:
    """Panels of floats take more memory than weights."""
    for kind, m, used in (("float", 12, False), ("float", 32, False), ("float", 256, True), ("half", 8, False), ("bfloat", 16, True)):
        assert (tile_schedule(dense_matmul(m, 4096, 4096, kind, share_b=True), WITH_TILES) is not None) == used, (kind, m)
    one_tile = tile_schedule(dense_matmul(32, 512, 512, "bfloat"), WITH_TILES)
    assert one_tile is not None and not one_tile.meanwhile  # there is no other to pack


def test_all_pairs_of_parts_but_the_smallest_are_multiplied() -> None:
    """Each once, and one operand of a product is that of the product before."""
    for kind, most in (("float", 3), ("half", 2), ("bfloat", 1)):
        plan = tile_schedule(dense_matmul(512, 512, 512, kind), WITH_TILES)
        assert plan is not None and plan.parts == most
        assert sorted(plan.products) == [(i, j) for i in range(most) for j in range(most) if i + j < 3]
        assert all((i == x) != (j == y) for (i, j), (x, y) in itertools.pairwise(plan.products))


def test_where_tile_registers_are_not_used() -> None:
    large = dense_matmul(1024, 1024, 1024)
    assert tile_schedule(large, WITH_TILES) is not None
    assert tile_schedule(large, replace(WITH_TILES, features="+avx512bw,+avx512f")) is None
    assert tile_schedule(dense_matmul(1024, 1024, 1024, "double"), WITH_TILES) is None
    assert tile_schedule(dense_matmul(1024, 1024, 0), WITH_TILES) is None
    assert tile_schedule(dense_matmul(8, 64, 64), WITH_TILES) is None  # too small
    assert tile_schedule(replace(large, a=Operand("float", 2048, 2)), WITH_TILES) is None
    assert tile_schedule(replace(large, b=Operand("bfloat", 1024, 1)), WITH_TILES) is None
    assert tile_schedule(replace(large, mirrored=True), WITH_TILES) is None
    keeps = replace(WITH_TILES, flushes=False)  # the eager mode's
    assert tile_schedule(large, keeps) is None
    assert tile_schedule(dense_matmul(1024, 1024, 1024, "half"), keeps) is not None and tile_schedule(dense_matmul(1024, 1024, 1024, "bfloat"), keeps) is not None
    assert "tile registers" not in emit_matmul(Module(), "matmul", dense_matmul(8, 64, 64), WITH_TILES).note


PROCESSOR = processor.Processor("x86_64-unknown-linux-gnu", "sapphirerapids", tuple((name.strip("+"), True) for name in FEATURES.split(",")[:-1]))


@pytest.mark.parametrize(
    ("permitted", "variables", "used"),
    [(True, {}, True), (False, {}, False), (True, {"GRAPHCELL_TILES": "0"}, False), (True, {"GRAPHCELL_DENORMALS": "1"}, False), (True, {"GRAPHCELL_VECTOR_BYTES": "32"}, False)],
)
def test_who_may_use_them(permitted: bool, variables: dict[str, str], used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GRAPHCELL_TILES", "GRAPHCELL_DENORMALS", "GRAPHCELL_VECTOR_BYTES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(processor, "_may_use_tiles", lambda: permitted)
    processor._describe.cache_clear()
    try:
        assert multiplies_tiles(processor.describe(PROCESSOR)) is used
    finally:
        processor._describe.cache_clear()
