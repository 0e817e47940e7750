"""Native matmul against numpy float64: every form, on memory with guard pages, for any division of the
blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from graphcell.codegen.llvm.contraction import (
    Columns,
    Epilogue,
    Extra,
    choose_tile,
    split_columns,
    split_evenly,
    vector_registers,
)
from graphcell.codegen.llvm.matmul import MatmulSpec, Operand, dense_matmul, emit_matmul
from graphcell.codegen.llvm.matmul_schedule import schedule
from graphcell.codegen.llvm.text import F32, PTR, FunctionBuilder, LType, Module, Val, i64
from tests.codegen.plans import TARGETS, Runner, assert_sums, compile_plan, storage, with_chunks

Array = NDArray[Any]
HOST = max(TARGETS)


@dataclass(frozen=True)
class Case:
    m: int
    n: int
    k: int
    kind: str = "float"
    batch: tuple[int, ...] = ()
    transpose_a: bool = False
    transpose_b: bool = False
    a_batch: tuple[int, ...] | None = None
    b_batch: tuple[int, ...] | None = None
    share_b: bool = False

    @property
    def spec(self) -> MatmulSpec:
        return dense_matmul(
            self.m,
            self.n,
            self.k,
            self.kind,
            batch=self.batch,
            transpose_a=self.transpose_a,
            transpose_b=self.transpose_b,
            a_batch=self.a_batch,
            b_batch=self.b_batch,
            share_b=self.share_b,
        )

    def operands(self) -> tuple[Array, Array]:
        """A and B as mathematics sees them; broadcast batch dimensions have extent one."""
        rng = np.random.default_rng(self.m * 1009 + self.n * 31 + self.k)
        shapes = []
        for strides, matrix in ((self.a_batch, (self.m, self.k)), (self.b_batch, (self.k, self.n))):
            lead = [extent if strides is None or strides[d] else 1 for d, extent in enumerate(self.batch)]
            shapes.append((*lead, *matrix))
        a, b = (rng.standard_normal(shape).astype(storage(self.kind)) for shape in shapes)
        return a, b

    def stored(self, a: Array, b: Array) -> dict[str, Array]:
        return {
            "a": np.ascontiguousarray(a.swapaxes(-1, -2)) if self.transpose_a else a,
            "b": np.ascontiguousarray(b.swapaxes(-1, -2)) if self.transpose_b else b,
        }


def build(spec: MatmulSpec, width: int, epilogue: Epilogue | None = None, extra: Extra = ()) -> Runner:
    return compile_plan(
        lambda module, target: emit_matmul(module, "matmul", spec, target, epilogue, extra), TARGETS[width]
    )


def check(case: Case, width: int) -> None:
    """Right to rounding; the same bits however the blocks are divided and wherever the buffers lie."""
    a, b = case.operands()
    inputs, shape, dtype = case.stored(a, b), (*case.batch, case.m, case.n), storage(case.kind)
    runner = build(case.spec, width)
    got = runner(inputs, "c", shape, dtype)
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert got.shape == want.shape
    assert_sums(got, want, case.kind, case.k)
    again = with_chunks(runner, 0.3, 0.6)(inputs, "c", shape, dtype, at_end=False)
    assert got.tobytes() == again.tobytes()


@pytest.mark.parametrize("kind", ["half", "bfloat"])
def test_one_row_whose_elements_lie_apart(kind: str) -> None:
    """It is copied to be converted; its row stride says nothing."""
    spec = MatmulSpec(1, 40, 17, Operand(kind, 1, 3), Operand(kind, 40, 1), Operand(kind, 40, 1))
    a, b = (np.arange(49) / 8).astype(storage(kind)), np.ones((17, 40), storage(kind))
    got = build(spec, HOST)({"a": a, "b": b}, "c", (1, 40), storage(kind))
    np.testing.assert_array_equal(got.astype(np.float64), float(a[::3].astype(np.float64).sum()))


TRANSPOSES = list(itertools.product((False, True), repeat=2))
SHAPES = [
    (1, 1, 1),
    (3, 5, 7),
    (1, 16, 16),
    (17, 33, 65),
    (100, 1, 50),
    (1, 100, 50),
    (64, 64, 64),
    (129, 130, 70),
    (40, 50, 700),
]


@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_and_transpositions(shape: tuple[int, int, int], transpose_a: bool, transpose_b: bool) -> None:
    check(Case(*shape, transpose_a=transpose_a, transpose_b=transpose_b), HOST)


@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
@pytest.mark.parametrize("width", [w for w in TARGETS if w != HOST])
@pytest.mark.parametrize("shape", [(3, 5, 7), (17, 33, 65), (40, 50, 700)], ids=str)
def test_other_vector_widths(
    shape: tuple[int, int, int], width: int, transpose_a: bool, transpose_b: bool
) -> None:
    check(Case(*shape, transpose_a=transpose_a, transpose_b=transpose_b), width)


@pytest.mark.parametrize("seed", range(12))
def test_random_shapes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n, k = (int(2 ** rng.uniform(0, 8)) for _ in range(3))
    batch = tuple(int(x) for x in rng.integers(1, 4, rng.integers(0, 3)))
    kind = str(rng.choice(["float", "double", "half", "bfloat"]))
    a_batch, b_batch = (
        [s * int(rng.integers(0, 2)) for s in np.cumprod((1, *batch[:0:-1]))[::-1][: len(batch)]]
        for _ in range(2)
    )
    # A stride of zero repeats a matrix; strides of the rest must be those of the smaller array.
    strides = []
    for chosen in (a_batch, b_batch):
        lead = [extent if s else 1 for extent, s in zip(batch, chosen, strict=True)]
        strides.append(tuple(int(np.prod(lead[d + 1 :])) if s else 0 for d, s in enumerate(chosen)))
    width = int(rng.choice(list(TARGETS)))
    check(
        Case(m, n, k, kind, batch, bool(rng.integers(2)), bool(rng.integers(2)), strides[0], strides[1]),
        width,
    )


@pytest.mark.parametrize("kind", ["half", "bfloat", "double"])
@pytest.mark.parametrize(
    ("m", "n", "k", "transpose_a", "transpose_b"),
    [
        (50, 70, 65, False, False),
        (50, 70, 300, True, True),
        (4, 70, 300, False, True),
        (20, 7, 5000, True, False),
    ],
)
def test_kinds(kind: str, m: int, n: int, k: int, transpose_a: bool, transpose_b: bool) -> None:
    for width in (HOST, 16):
        check(Case(m, n, k, kind, transpose_a=transpose_a, transpose_b=transpose_b), width)


@pytest.mark.parametrize(
    "case",
    [
        Case(16, 24, 33, batch=(3, 2)),
        Case(16, 24, 33, batch=(3, 2), b_batch=(0, 0)),
        Case(1, 24, 33, batch=(3, 2), b_batch=(0, 0)),
        Case(16, 24, 33, batch=(3, 2), b_batch=(0, 1)),
        Case(16, 24, 33, batch=(3, 2), a_batch=(1, 0), b_batch=(0, 1), transpose_b=True),
        Case(4, 24, 33, batch=(3, 2), a_batch=(1, 0), b_batch=(0, 1), transpose_b=True),
        Case(5, 6, 0, batch=(3,)),
        Case(32, 128, 128, batch=(2,), transpose_a=True),
    ],
    ids=str,
)
def test_batches(case: Case) -> None:
    check(case, HOST)


@pytest.mark.slow
@pytest.mark.parametrize("width", TARGETS)
@pytest.mark.parametrize(("m", "n", "k"), [(1024, 144, 64), (333, 150, 515), (70, 101, 300), (259, 72, 49), (1024, 48, 1100)])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_transposed_operands_of_which_tiles_take_parts_of_cache_lines(m: int, n: int, k: int, kind: str, width: int) -> None:
    """On AMD's processors small tiles have the lines copied; others read them in place, in passes so short that the rest of a line waits in the cache."""
    case = Case(m, n, k, kind, transpose_a=True)
    plan = schedule(case.spec, TARGETS[width])
    if (m, n, kind, width) == (1024, 144, "float", 32):
        assert schedule(case.spec, replace(TARGETS[width], cpu="znver3")).pack_a == "columns"
        assert schedule(case.spec, replace(TARGETS[width], cpu="alderlake")).pack_a == "no"
    if width == 64:
        assert plan.pack_a == "no" and plan.depth <= 256
    check(case, width)


@pytest.mark.slow
@pytest.mark.parametrize("width", TARGETS)
@pytest.mark.parametrize("k", [7, 8, 15, 16, 17, 31, 33])
@pytest.mark.parametrize("n", [16, 23, 40])
def test_squares_of_a_transposed_matrix_overlap(n: int, k: int, width: int) -> None:
    """Where columns or reduction steps fill no square, with as few steps as a square has rows and fewer."""
    check(Case(20, n, k, transpose_b=True), width)
    check(Case(20, n, k, "double", transpose_b=True), width)


@pytest.mark.parametrize("width", TARGETS)
@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_one_vector_of_few_lanes(n: int, kind: str, width: int) -> None:
    """Columns that fill a part of a register."""
    check(Case(20, n, 3, kind, transpose_a=True), width)
    check(Case(20, n, 30, kind, transpose_a=True), width)


@pytest.mark.parametrize("width", TARGETS)
@pytest.mark.parametrize("m", [65, 120, 128, 200, 244, 319])
def test_groups_of_rows_that_are_copied(m: int, width: int) -> None:
    """Whole groups of tiles of either size, groups with tiles of both, and what is left over."""
    check(Case(m, 96, 60, "half", transpose_a=True), width)


@pytest.mark.parametrize("width", TARGETS)
@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize(("cpu", "m", "n", "k", "copied"), [("sapphirerapids", 300, 700, 500, True), ("sapphirerapids", 1024, 96, 400, False), ("znver4", 700, 100, 1400, False)])
def test_threads_carry_out_blocks_one_below_another_as_one(
    cpu: str, m: int, n: int, k: int, copied: bool, kind: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a transposed A, which is copied if its elements meet many columns; the bits do not depend on which blocks fall to a thread."""
    target = replace(TARGETS[width], cpu=cpu, l2_bytes=2 << 20)
    monkeypatch.setitem(TARGETS, width, target)
    case = Case(m, n, k, kind, transpose_a=True)
    plan = schedule(case.spec, target)
    if width == 64:
        assert plan.pack_a == ("columns" if copied else "no") and plan.passes > 1
        assert plan.together > 1 and (plan.together == plan.grid[1] or not copied)
    check(case, width)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        Case(8, 8, 5000, transpose_a=True),  # few outputs, long reduction: split-k
        Case(30, 20, 9001, transpose_a=True, transpose_b=True),
        Case(70, 200, 2100),  # several passes over k
        Case(64, 96, 2048, transpose_a=True),  # the rows of a transposed A are a power of two apart
        Case(9, 100, 2048, "half", transpose_a=True),
        Case(5, 70, 65, share_b=True, transpose_a=True),
        Case(150, 170, 1065, share_b=True, transpose_b=True),
        Case(2048, 40, 70, transpose_a=True),
        Case(600, 100, 600),  # several row blocks use the same panels
        Case(600, 100, 2000, transpose_b=True),
    ],
    ids=str,
)
def test_large_reductions_and_packing(case: Case) -> None:
    check(case, HOST)
    check(replace(case, m=case.m // 2 + 1), 32)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        Case(50, 70, 300, "bfloat"),
        Case(50, 70, 300, "bfloat", transpose_b=True),
        Case(50, 70, 300, "bfloat", transpose_a=True, transpose_b=True),
        Case(51, 71, 300, "bfloat", transpose_a=True),
        Case(51, 71, 301, "bfloat"),  # an odd number of steps is multiplied as floats
        Case(5, 6, 40, "bfloat", batch=(3, 2), b_batch=(0, 1)),
        Case(300, 40, 2100, "bfloat", transpose_b=True),
        Case(5, 70, 64, "bfloat", share_b=True),
        Case(20, 7, 5000, "bfloat", transpose_a=True),
    ],
    ids=str,
)
def test_products_of_bfloats_in_pairs(case: Case) -> None:
    check(case, HOST)
    check(case, 32)


NARROW = [
    Case(350, 4, 350), Case(37, 7, 129), Case(16, 2, 64), Case(40, 3, 331, transpose_b=True), Case(20, 6, 70, "bfloat"), Case(33, 5, 97, "half"),
    Case(25, 3, 45, "double"), Case(64, 10, 600, transpose_b=True), Case(70, 11, 300), Case(18, 3, 80, batch=(4,), transpose_b=True),
    Case(18, 3, 80, batch=(4,), b_batch=(0,)), Case(30, 3, 90, batch=(2,)), Case(50, 4, 200, share_b=True),
]  # fmt: skip
"""A long left operand and few columns."""


@pytest.mark.parametrize("width", TARGETS)
@pytest.mark.parametrize("case", NARROW, ids=str)
def test_few_columns_are_dot_products(case: Case, width: int) -> None:
    check(case, width)
    plan = emit_matmul(Module(), "matmul", case.spec, TARGETS[width])
    lanes = TARGETS[width].lanes(case.spec.kind)
    if lanes > case.n and case.k >= 4 * lanes and case.batch != (2,):
        assert "dot products" in str(plan) and ("columns copied" in str(plan)) is not case.transpose_b


COLUMNS = [
    Case(300, 1, 211), Case(7, 1, 40, "double"), Case(1477, 1, 211, "double"), Case(2, 1, 2), Case(33, 1, 97, "half"), Case(20, 1, 70, "bfloat"),
    Case(41, 1, 5), Case(19, 1, 331, transpose_b=True), Case(18, 1, 80, batch=(4,)), Case(18, 1, 80, batch=(4,), b_batch=(0,)),
    Case(9, 1, 64, batch=(2, 3), transpose_b=True),
]  # fmt: skip
"""A left operand that meets a single column."""


@pytest.mark.parametrize("width", TARGETS)
@pytest.mark.parametrize("case", COLUMNS, ids=str)
def test_a_column_is_computed_as_a_row(case: Case, width: int) -> None:
    check(case, width)
    assert "dot products, tile 1x" in str(emit_matmul(Module(), "matmul", case.spec, TARGETS[width]))


@pytest.mark.parametrize("width", TARGETS)
def test_a_column_whose_elements_lie_apart_is_none(width: int) -> None:
    m, k = 21, 70
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, 1)).astype(np.float32)
    spec = MatmulSpec(m, 1, k, Operand("float", k, 1), Operand("float", 1, 1), Operand("float", 3, 1))
    got = build(spec, width)({"a": a, "b": b}, "c", (m, 3), np.dtype(np.float32))
    assert_sums(got[:, :1], a.astype(np.float64) @ b.astype(np.float64), "float", k)
    assert (np.ascontiguousarray(got[:, 1:]).view(np.uint8) == 0xFF).all()


@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4)])
def test_empty_outputs_have_no_stages(shape: tuple[int, int, int]) -> None:
    assert build(Case(*shape).spec, HOST).plan.stages == ()
    assert build(Case(3, 3, 3, batch=(2, 0)).spec, HOST).plan.stages == ()


@pytest.mark.parametrize(("transpose_a", "transpose_b"), TRANSPOSES)
def test_empty_reduction_gives_zeros(transpose_a: bool, transpose_b: bool) -> None:
    check(Case(19, 21, 0, transpose_a=transpose_a, transpose_b=transpose_b), HOST)


def test_strided_operands_of_attention() -> None:
    """Heads in place: q, k and the result are [batch, token, head, feature] in memory, the product is over
    features.
    """
    b, s, h, d = 2, 9, 3, 20
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((b, s, h, d)).astype(np.float32) for _ in range(2))
    spec = MatmulSpec(
        s,
        s,
        d,
        Operand("float", h * d, 1, (s * h * d, d)),
        Operand("float", 1, h * d, (s * h * d, d)),
        Operand("float", s, 1, (h * s * s, s * s)),
        (b, h),
    )
    got = build(spec, HOST)({"a": q, "b": k}, "c", (b, h, s, s), np.dtype(np.float32))
    want = np.einsum("bshd,bthd->bhst", q.astype(np.float64), k.astype(np.float64))
    assert_sums(got, want, "float", d)
    value = MatmulSpec(
        s,
        d,
        s,
        Operand("float", s, 1, (h * s * s, s * s)),
        Operand("float", h * d, 1, (s * h * d, d)),
        Operand("float", h * d, 1, (s * h * d, d)),
        (b, h),
    )
    mixed = build(value, HOST)({"a": got, "b": k}, "c", (b, s, h, d), np.dtype(np.float32))
    want = np.einsum("bhst,bthd->bshd", got.astype(np.float64), k.astype(np.float64))
    assert_sums(mixed, want, "float", s, scale=20)


@pytest.mark.parametrize("m", [3, 40])
def test_row_strides_leave_the_gaps_alone(m: int) -> None:
    n, k = 21, 30
    rng = np.random.default_rng(1)
    a, b = (
        rng.standard_normal((m, k + 5)).astype(np.float32),
        rng.standard_normal((n, k + 3)).astype(np.float32),
    )
    spec = MatmulSpec(
        m, n, k, Operand("float", k + 5, 1), Operand("float", 1, k + 3), Operand("float", n + 4, 1)
    )
    got = build(spec, HOST)({"a": a, "b": b}, "c", (m, n + 4), np.dtype(np.float32))
    assert_sums(got[:, :n], a[:, :k].astype(np.float64) @ b[:, :k].T.astype(np.float64), "float", k)
    assert (np.ascontiguousarray(got[:, n:]).view(np.uint8) == 0xFF).all()


def test_operands_without_a_unit_stride() -> None:
    m, n, k = 20, 35, 40
    rng = np.random.default_rng(2)
    a, b = (
        rng.standard_normal((m, k, 2)).astype(np.float32),
        rng.standard_normal((k, n, 3)).astype(np.float32),
    )
    spec = MatmulSpec(m, n, k, Operand("float", 2 * k, 2), Operand("float", 3 * n, 3), Operand("float", n, 1))
    got = build(spec, HOST)({"a": a, "b": b}, "c", (m, n), np.dtype(np.float32))
    assert_sums(got, a[..., 0].astype(np.float64) @ b[..., 0].astype(np.float64), "float", k)


def linear_index(columns: int) -> Epilogue:
    """An epilogue that stores 4 * sum + row * columns + column + batch * 2^-8: what it is told, and that it
    is called once.
    """

    def apply(b: FunctionBuilder, value: Val, row: Val, column: Val, mask: Val | None, batch: Val) -> Val:
        lanes = value.type.lanes
        where = b.cast(b.add(b.mul(row, i64(columns)), column), value.type.with_lanes(0))
        within = b.cast(b.iota(lanes, "i32"), value.type)
        batch_part = b.mul(
            b.cast(batch, value.type.with_lanes(0)), b.const(2.0**-8, value.type.with_lanes(0))
        )
        index = b.add(b.add(b.splat(where, lanes), within), b.splat(batch_part, lanes))
        return b.fma(value, b.const(4.0, value.type), index)

    return apply


EPILOGUE_CASES = [
    Case(17, 33, 20),
    Case(40, 50, 900),
    Case(3, 20, 40, transpose_b=True),
    Case(30, 1, 40),
    Case(1, 30, 40),
    Case(7, 9, 0),
    Case(8, 8, 5000),
    Case(6, 5, 9, batch=(2, 3)),
    Case(6, 5, 9, batch=(2, 3), b_batch=(0, 0)),
    Case(6, 5, 9, batch=(4,), b_batch=(0,), transpose_b=True),
    Case(2, 3, 4096, batch=(3,)),
    Case(40, 3, 130),
    Case(20, 3, 80, batch=(4,), b_batch=(0,)),
    Case(100, 70, 2100, "double"),
    Case(130, 90, 700, transpose_a=True),
]


@pytest.mark.parametrize("case", EPILOGUE_CASES, ids=str)
def test_epilogue_sees_each_element_once_with_its_place(case: Case) -> None:
    a, b = case.operands()
    want = a.astype(np.float64) @ b.astype(np.float64)
    runner = build(case.spec, HOST, linear_index(case.n))
    got = runner(case.stored(a, b), "c", want.shape, storage(case.kind)).astype(np.float64)
    place = np.arange(want.size).reshape(want.shape)
    batch = place // (case.m * case.n)
    assert_sums(got, 4 * want + place + batch * 2.0**-8, case.kind, case.k, scale=4)


@pytest.mark.parametrize("kind", ["float", "half", "bfloat"])
def test_fused_bias_residual_and_relu(kind: str) -> None:
    m, n, k = 37, 45, 60

    def epilogue(b: FunctionBuilder, value: Val, row: Val, column: Val, mask: Val | None, batch: Val) -> Val:
        def load(name: str, index: Val) -> Val:
            pointer = b.gep(b.args[name], index, F32)
            return b.load(pointer, value.type) if mask is None else b.masked_load(pointer, mask, value.type)

        total = b.add(value, load("bias", column))
        total = b.add(total, load("residual", b.add(b.mul(row, i64(n)), column)))
        return b.binary("maxnum", total, b.const(0.0, total))

    case = Case(m, n, k, kind)
    a, b = case.operands()
    rng = np.random.default_rng(3)
    bias, residual = rng.standard_normal(n).astype(np.float32), rng.standard_normal((m, n)).astype(np.float32)
    runner = build(case.spec, HOST, epilogue, [("bias", PTR), ("residual", PTR)])
    got = runner({**case.stored(a, b), "bias": bias, "residual": residual}, "c", (m, n), storage(kind))
    want = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias + residual, 0)
    assert_sums(got, want, kind, k)


def test_a_shared_panel_is_packed_once_for_several_products() -> None:
    case = Case(30, 40, 50, share_b=True)
    plan = build(case.spec, HOST).plan
    assert plan.stages[0].buffers == ("b", "packed")
    assert "b" not in plan.stages[1].buffers and dict(plan.shared)["packed"] >= 40 * 50 * 4


def test_infinities_and_nan_stay_in_their_rows_and_columns() -> None:
    case = Case(20, 40, 30)
    a, b = case.operands()
    a[3, 5], b[7, 11] = np.inf, np.nan
    got = build(case.spec, HOST)(case.stored(a, b), "c", (20, 40), np.dtype(np.float32))
    assert np.isnan(got[:, 11]).all() and np.isinf(np.delete(got[3], 11)).all()
    assert np.isfinite(np.delete(np.delete(got, 3, 0), 11, 1)).all()


def test_bfloat_results_round_to_nearest_even() -> None:
    values = np.array(
        [
            1.0,
            1.00390625,
            1.01171875,
            1.0039063,
            -1.00390625,
            3.4e38,
            np.inf,
            -np.inf,
            np.nan,
            1e-40,
            0.0,
            -0.0,
        ],
        np.float32,
    )
    spec = MatmulSpec(
        1,
        values.size,
        1,
        Operand("float", 1, 1),
        Operand("float", values.size, 1),
        Operand("bfloat", values.size, 1),
    )
    got = build(spec, HOST)(
        {"a": np.ones((1, 1), np.float32), "b": values[None]}, "c", (1, values.size), storage("bfloat")
    )
    want = (values[None] + np.float32(0)).astype(storage("bfloat"))  # the sum starts at +0
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("kind", ["half", "bfloat"])
@pytest.mark.parametrize("n", [17, 161])
def test_a_single_narrow_element_is_stored_alone(n: int, kind: str) -> None:
    """The last vector has one lane in use, of two bytes, and the page ends behind it."""
    check(Case(1, n, 66, kind, (3,), transpose_a=True), HOST)


def test_refusals() -> None:
    module, target = Module(), TARGETS[HOST]
    with pytest.raises(ValueError, match="negative"):
        dense_matmul(-1, 2, 3)
    with pytest.raises(ValueError, match="batch strides"):
        MatmulSpec(2, 2, 2, Operand("float", 2, 1), Operand("float", 2, 1), Operand("float", 2, 1), (3,))
    with pytest.raises(ValueError, match="unit column stride"):
        MatmulSpec(2, 2, 2, Operand("float", 2, 1), Operand("float", 2, 1), Operand("float", 1, 2))
    with pytest.raises(ValueError, match="share_b"):
        dense_matmul(2, 2, 2, batch=(3,), share_b=True)
    with pytest.raises(TypeError, match="i32"):
        dense_matmul(2, 2, 2, "i32")
    with pytest.raises(ValueError, match="scratch"):
        emit_matmul(module, "f", dense_matmul(2, 2, 2), target, None, [("scratch", PTR)])


def test_plan_prints_its_stages() -> None:
    text = str(build(Case(256, 512, 512, transpose_b=True).spec, HOST).plan)
    assert "matmul(a, b, c, scratch)" in text and "bytes a thread" in text


@pytest.mark.parametrize("extent", [1, 2, 7, 30, 31, 100])
@pytest.mark.parametrize("size", [1, 3, 14])
def test_even_splits_cover_the_extent(extent: int, size: int) -> None:
    covered: list[int] = []
    tiles = 0
    for segment in split_evenly(extent, size):
        assert segment.first == tiles and segment.size <= size
        for t in range(segment.tiles):
            covered += range(segment.start + t * segment.size, segment.start + (t + 1) * segment.size)
        tiles += segment.tiles
    assert covered == list(range(extent)) and tiles == -(-extent // size)


@pytest.mark.parametrize(
    "kind, lanes, tail, last",
    [("float", 16, 16, 16), ("float", 16, 9, 16), ("float", 16, 8, 8), ("float", 16, 1, 8), ("float", 8, 4, 8), ("double", 8, 4, 4), ("double", 4, 2, 4)],
)
def test_the_last_of_long_vectors_is_half_as_long_where_that_does(kind: str, lanes: int, tail: int, last: int) -> None:
    columns = Columns(3, tail, lanes)
    assert columns.widths(kind) == (lanes, lanes, last)
    assert columns.effort(kind) == 2 + last / lanes
    assert columns.padded == 3 * lanes and columns.used == 2 * lanes + tail  # packed panels stay as they are


@pytest.mark.parametrize("width", list(TARGETS))
@pytest.mark.parametrize("kind", ["float", "double"])
def test_tiles_fit_the_registers(width: int, kind: str) -> None:
    target = TARGETS[width]
    for rows, columns in itertools.product((1, 2, 5, 14, 100, 512), (1, 6, 16, 17, 64, 500)):
        tile = choose_tile(rows, columns, kind, target)
        assert tile.rows * tile.vectors + tile.vectors + 1 <= vector_registers(target)
        assert tile.rows <= rows and tile.lanes <= target.lanes(kind)
        shapes: Sequence[Any] = split_columns(columns, tile)
        assert sum(s.tiles * c.used for s, c in shapes) == columns
        assert LType(kind, tile.lanes).bytes * tile.lanes <= width
