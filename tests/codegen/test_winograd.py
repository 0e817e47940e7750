"""Convolutions by Winograd's algorithm against direct numpy float64, on memory with guard pages, for any
division of the blocks; the exact matrices against the definition; and when the algorithm is chosen.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from graphcell.codegen.llvm.contraction import Epilogue, Extra, Plan, choose_tile
from graphcell.codegen.llvm.convolution import emit_convolution, emit_input_gradient
from graphcell.codegen.llvm.correlation import ConvSpec, Correlation, forward_correlation, gradient_correlations
from graphcell.codegen.llvm.target import Target
from graphcell.codegen.llvm.text import F32, PTR, FunctionBuilder, Module, Val, i64
from graphcell.codegen.llvm.winograd import emit_winograd
from graphcell.codegen.llvm.winograd_gradient import emit_winograd_gradient
from graphcell.codegen.llvm.winograd_gradient_schedule import choose as choose_gradient
from graphcell.codegen.llvm.winograd_schedule import applies, choose, schedule
from graphcell.codegen.llvm.winograd_transforms import F2, F4, FORWARD, GRADIENT, Minimal, Nested
from graphcell.errors import ArgumentValueError
from tests.codegen import convolutions as reference
from tests.codegen.plans import TARGETS, Runner, compile_plan, storage, with_chunks

Array = NDArray[Any]
HOST = max(TARGETS)
SAME = (1, 1, 1, 1)
NAMES = {"forward": ("x", "w", "y"), "input": ("dy", "w", "dx")}

SPECS = [
    ConvSpec(2, 8, 8, 16, 32, 3, 3, padding=SAME),
    ConvSpec(1, 4, 4, 32, 48, 3, 3, padding=SAME),
    ConvSpec(3, 9, 11, 19, 37, 3, 3, padding=SAME),  # tiles hang over, channels are no whole vectors
    ConvSpec(1, 13, 6, 3, 5, 3, 3),  # no padding, less than a vector
    ConvSpec(2, 7, 10, 16, 16, 3, 3, padding=(2, 2, 2, 2), weights="HWIO"),
    ConvSpec(2, 6, 5, 20, 33, 3, 3, padding=(0, 2, 1, 0)),
    ConvSpec(2, 5, 9, 8, 16, 3, 3, padding=(-1, 1, 2, -2)),  # negative padding cuts off
    ConvSpec(1, 3, 3, 16, 16, 3, 3, padding=(4, 3, 3, 5)),  # tiles of padding only
    ConvSpec(5, 1, 1, 40, 24, 3, 3, padding=SAME),
    ConvSpec(2, 2, 2, 5, 70, 3, 3, padding=(1, 2, 0, 1), weights="HWIO"),
]
LARGE = [
    ConvSpec(2, 20, 20, 64, 64, 3, 3, padding=SAME),  # several groups of tiles, own input
    ConvSpec(3, 8, 8, 130, 150, 3, 3, padding=SAME),  # several slabs
]


ALL = [algorithm for table in (FORWARD, GRADIENT) for found in table.values() for algorithm in found]
OF_5 = [
    ConvSpec(2, 8, 8, 16, 32, 5, 5, padding=(2, 2, 2, 2)),
    ConvSpec(3, 9, 11, 19, 37, 5, 5, padding=(2, 2, 2, 2)),  # tiles hang over, channels are no whole vectors
    ConvSpec(2, 7, 10, 6, 16, 5, 5, weights="HWIO"),
    ConvSpec(2, 6, 5, 20, 33, 5, 5, padding=(0, 4, 1, 2)),
    ConvSpec(1, 3, 3, 16, 16, 5, 5, padding=(5, 3, 3, 6)),  # tiles of padding only
]
LINES = [
    ConvSpec(2, 1, 50, 19, 37, 1, 3, padding=(0, 0, 1, 1)),
    ConvSpec(3, 9, 11, 19, 37, 1, 5, padding=(0, 0, 2, 2)),
    ConvSpec(2, 13, 6, 20, 33, 7, 1, padding=(3, 3, 0, 0), weights="HWIO"),
    ConvSpec(2, 12, 7, 6, 16, 3, 1),
    ConvSpec(2, 5, 9, 8, 16, 1, 3, padding=(1, 2, -1, 3)),  # rows of zeros though the filter has one
    ConvSpec(2, 9, 5, 16, 24, 5, 1, padding=(4, -1, 2, -1)),
    ConvSpec(1, 1, 3, 5, 20, 1, 7, padding=(0, 0, 7, 5)),  # tiles of padding only
]
OBLONG = [
    ConvSpec(2, 11, 9, 9, 21, 3, 5, padding=(1, 1, 2, 2)),
    ConvSpec(1, 12, 13, 20, 16, 5, 3, padding=(2, 5, 1, 1), dilation=(1, 3), weights="HWIO"),
    ConvSpec(3, 1, 37, 18, 20, 1, 2, padding=(0, 0, 4, 0), dilation=(1, 4)),
    ConvSpec(2, 10, 3, 8, 40, 4, 1, padding=(1, 0, 0, 0)),
]
DILATED = [
    ConvSpec(2, 9, 11, 19, 37, 3, 3, padding=(2, 2, 2, 2), dilation=(2, 2)),
    ConvSpec(1, 13, 10, 16, 20, 3, 3, padding=(3, 1, 2, 2), dilation=(3, 2), weights="HWIO"),
    ConvSpec(2, 5, 9, 8, 16, 3, 3, padding=(8, 8, 4, 4), dilation=(8, 4)),  # one pixel of each residue class
    ConvSpec(2, 1, 40, 16, 24, 1, 3, padding=(0, 0, 8, 0), dilation=(5, 4)),
    ConvSpec(2, 20, 4, 16, 17, 5, 1, padding=(4, 5, 0, 0), dilation=(2, 7)),
    ConvSpec(1, 14, 13, 5, 7, 5, 5, padding=(8, 8, 3, 5), dilation=(4, 2)),
]
NEW = [*LINES, *OBLONG, *DILATED]
CASES = [(spec, algorithm) for spec in (*SPECS, *OF_5, *NEW) for algorithm in FORWARD[spec.kh, spec.kw]]
WITH_SPECIALS = (SPECS[2], SPECS[4], SPECS[5], *OF_5[1:3], *LINES[1:3], *DILATED[:2], DILATED[4])


def correlation(spec: ConvSpec, direction: str) -> Correlation:
    return forward_correlation(spec) if direction == "forward" else gradient_correlations(spec)[0]


def build(
    spec: ConvSpec, direction: str, width: int, algorithm: Nested, own_filters: bool, epilogue: Epilogue | None = None, extra: Extra = ()
) -> Runner:
    part = correlation(spec, direction)

    def emit(module: Module, target: Target) -> Plan:
        plan = schedule(part, target, algorithm, own_filters)
        return emit_winograd(module, "conv", part, plan, target, epilogue, extra, NAMES[direction])

    return compile_plan(emit, TARGETS[width])


def problem(spec: ConvSpec, direction: str) -> tuple[dict[str, Array], str, Array, str, int]:
    """Inputs, the output's name, what is expected in it, its kind, and the terms of each sum."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((spec.n, spec.h, spec.w, spec.c)).astype(storage(spec.x_kind))
    w = rng.standard_normal((spec.k, spec.c, spec.kh, spec.kw)).astype(storage(spec.w_kind))
    dy = rng.standard_normal((spec.n, spec.oh, spec.ow, spec.k)).astype(storage(spec.y_kind))
    laid_out = w if spec.weights == "OIHW" else np.ascontiguousarray(w.transpose(2, 3, 1, 0))
    if direction == "forward":
        return {"x": x, "w": laid_out}, "y", reference.forward(spec, x, w), spec.y_kind, spec.kh * spec.kw * spec.c
    return {"dy": dy, "w": laid_out}, "dx", reference.input_gradient(spec, dy, w), spec.x_kind, spec.kh * spec.kw * spec.k


def assert_close(got: Array, want: Array, kind: str, terms: int, scale: float = 1.0) -> None:
    """To the documented error, three times the largest of direct summation.

    That is, for `terms` products of standard normal numbers, about 6 standard deviations of the accumulated
    roundings of partial sums of standard deviation sqrt(terms): 6 * terms / sqrt(2) / sqrt(3) units; few
    terms have the larger relative error of the transforms alone.
    """
    stored = {"half": 2.0**-11, "bfloat": 2.0**-8, "float": 2.0**-24, "double": 2.0**-53}[kind]
    summed = 2.0**-53 if kind == "double" else 2.0**-24
    smallest = 2.0**-25 if kind == "half" else 0.0
    atol = 3 * scale * 2.5 * summed * (terms + 16 * np.sqrt(terms)) + smallest
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=2 * stored, atol=atol)


def check(spec: ConvSpec, direction: str, width: int, algorithm: Nested, own_filters: bool) -> None:
    inputs, output, want, kind, terms = problem(spec, direction)
    runner = build(spec, direction, width, algorithm, own_filters)
    got = runner(inputs, output, want.shape, storage(kind))
    assert_close(got, want, kind, terms)
    again = with_chunks(runner, 0.3, 0.6)(inputs, output, want.shape, storage(kind), at_end=False)
    assert got.tobytes() == again.tobytes()


@pytest.mark.parametrize("algorithm", dict.fromkeys(one for found in ALL for one in (found.rows, found.pixels)), ids=str)
def test_matrices_compute_the_correlation_exactly(algorithm: Minimal) -> None:
    """A [(G g) * (B d)] is the correlation, in rational numbers, in one dimension for a basis of filters."""
    data = [Fraction(k * k + 3, 7) for k in range(algorithm.size)]

    def product(matrix: tuple[tuple[Fraction, ...], ...], vector: list[Fraction]) -> list[Fraction]:
        return [sum((m * v for m, v in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]

    for tap in range(algorithm.taps):
        taps = [Fraction(int(k == tap)) for k in range(algorithm.taps)]
        left, right = product(algorithm.filter_matrix, taps), product(algorithm.input_matrix, data)
        got = product(algorithm.output_matrix, [x * y for x, y in zip(left, right, strict=True)])
        assert got == data[tap : tap + algorithm.outputs]


def test_the_rest_of_the_way_back_stays_finite() -> None:
    """What `all_moderate` lets pass: it multiplies by 256."""
    for algorithm in ALL:
        assert max(sum(map(abs, row)) for row in algorithm.pixels.output_matrix) < 256


def test_points_must_fit() -> None:
    with pytest.raises(ValueError, match="needs 4 points"):
        Minimal(4, 3, (Fraction(1),))


@pytest.mark.slow
@pytest.mark.parametrize("own_filters", [False, True], ids=["pack", "own"])
@pytest.mark.parametrize("direction", NAMES)
@pytest.mark.parametrize(("spec", "algorithm"), CASES, ids=str)
def test_convolution(spec: ConvSpec, direction: str, algorithm: Nested, own_filters: bool) -> None:
    check(spec, direction, HOST, algorithm, own_filters)


SPECIAL = [np.inf, -np.inf, np.nan, 3e38]


def same_specials(got: Array, want: Array) -> None:
    """NaN and infinities are where they should be, and the other numbers are close."""
    with np.errstate(over="ignore"):
        want = want.astype(np.float32)
    special = ~np.isfinite(want)
    assert special.any() or np.abs(want).max() > 1e37
    np.testing.assert_array_equal(got[special], want[special])
    np.testing.assert_allclose(got[~special], want[~special], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("own_filters", [False, True], ids=["pack", "own"])
@pytest.mark.parametrize("direction", NAMES)
@pytest.mark.parametrize(("spec", "algorithm"), [case for case in CASES if case[0] in WITH_SPECIALS], ids=str)
def test_infinities_and_nan_stay_where_direct_summation_has_them(spec: ConvSpec, direction: str, algorithm: Nested, own_filters: bool) -> None:
    inputs, output, clean, kind, _ = problem(spec, direction)
    runner = build(spec, direction, HOST, algorithm, own_filters)
    name = NAMES[direction][0]
    for value in SPECIAL:
        data = inputs[name].copy()
        data[-1, 2, 3, 1] = value
        w = inputs["w"] if spec.weights == "OIHW" else inputs["w"].transpose(3, 2, 0, 1)
        with np.errstate(all="ignore"):
            want = reference.forward(spec, data, w) if direction == "forward" else reference.input_gradient(spec, data, w)
        got = runner(inputs | {name: data}, output, clean.shape, storage(kind))
        same_specials(got, want)


@pytest.mark.slow
@pytest.mark.parametrize("own_filters", [False, True], ids=["pack", "own"])
@pytest.mark.parametrize("direction", NAMES)
@pytest.mark.parametrize("spec", LARGE, ids=str)
def test_several_blocks(spec: ConvSpec, direction: str, own_filters: bool) -> None:
    runner = build(spec, direction, HOST, F4, own_filters)
    assert runner.plan.stages[-1].blocks >= 4
    check(spec, direction, HOST, F4, own_filters)


def test_weights_in_several_chunks_of_channels() -> None:
    spec = ConvSpec(1, 4, 8, 300, 64, 3, 3, padding=SAME)
    plan = schedule(forward_correlation(spec), TARGETS[HOST], F4, True)
    assert 0 < plan.chunk < spec.c and spec.c % plan.chunk
    check(spec, "forward", HOST, F4, True)


@pytest.mark.slow
@pytest.mark.parametrize("width", [w for w in TARGETS if w != HOST])
@pytest.mark.parametrize("spec", SPECS[1:4], ids=str)
@pytest.mark.parametrize("direction", NAMES)
def test_other_vector_widths(spec: ConvSpec, direction: str, width: int) -> None:
    check(spec, direction, width, F4, False)


@pytest.mark.slow
@pytest.mark.parametrize("width", [w for w in TARGETS if w != HOST])
@pytest.mark.parametrize("spec", [OF_5[1], LINES[1], DILATED[0], DILATED[4]], ids=str)
@pytest.mark.parametrize("direction", NAMES)
def test_other_vector_widths_of_other_taps(spec: ConvSpec, direction: str, width: int) -> None:
    check(spec, direction, width, FORWARD[spec.kh, spec.kw][-1], False)


@pytest.mark.slow
@pytest.mark.parametrize("direction", NAMES)
@pytest.mark.parametrize(
    "kinds", [("half", "half", "half"), ("bfloat", "float", "bfloat"), ("double", "double", "double"), ("half", "half", "float")], ids=str
)
def test_kinds(kinds: tuple[str, str, str], direction: str) -> None:
    x, w, y = kinds
    spec = ConvSpec(2, 9, 11, 19, 16, 3, 3, padding=SAME, x_kind=x, w_kind=w, y_kind=y)
    check(spec, direction, HOST, F4, False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_specs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, h, w, c, k = (int(rng.integers(low, high)) for low, high in ((1, 4), (3, 15), (3, 15), (1, 40), (1, 70)))
    top, bottom, left, right = (int(v) for v in rng.integers(-1, 4, 4))
    spec = ConvSpec(n, h + 1, w + 1, c, k, 3, 3, padding=(top, bottom, left, right), weights=str(rng.choice(["OIHW", "HWIO"])))
    for direction in NAMES:
        check(spec, direction, int(rng.choice(list(TARGETS))), F2 if rng.integers(2) else F4, bool(rng.integers(2)))


@pytest.mark.slow
@pytest.mark.parametrize("channels", [16, 64, 256])
@pytest.mark.parametrize(
    ("taps", "bounds"),
    [((3, 3), (1.0, 4.0)), ((5, 5), (2.0,)), ((1, 3), (4.0,)), ((2, 1), (2.0, 4.0)), ((5, 1), (2.0, 4.0)), ((1, 7), (4.0,)), ((3, 5), (4.0,))],
    ids=str,
)
def test_error_is_within_three_times_that_of_direct_summation(
    taps: tuple[int, int], bounds: tuple[float, ...], channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the docstring of winograd_transforms.py says; direct summation is measured in the same run."""
    spec = ConvSpec(2, 24, 24, channels, 16, *taps, padding=(taps[0] // 2,) * 2 + (taps[1] // 2,) * 2)
    inputs, output, want, kind, _ = problem(spec, "forward")
    monkeypatch.setenv("GRAPHCELL_WINOGRAD", "0")
    direct = compile_plan(lambda module, target: emit_convolution(module, "conv", spec, target), TARGETS[HOST])
    unit = np.abs(direct(inputs, output, want.shape, storage(kind)) - want).max()
    for algorithm, bound in zip(FORWARD[taps], bounds, strict=True):
        error = np.abs(build(spec, "forward", HOST, algorithm, False)(inputs, output, want.shape, storage(kind)) - want).max()
        assert error < bound * unit


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_lines_and_dilations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    taps = list(FORWARD)[int(rng.integers(len(FORWARD)))]
    dilation = (int(rng.integers(1, 4)), int(rng.integers(1, 6)))
    n, h, w, c, k = (int(rng.integers(low, high)) for low, high in ((1, 4), (1, 9), (1, 20), (1, 40), (1, 70)))
    top, bottom, left, right = (int(v) for v in rng.integers(0, 4, 4))
    reach = [d * (t - 1) for d, t in zip(dilation, taps, strict=True)]
    spec = ConvSpec(n, h + reach[0], w + reach[1], c, k, *taps, padding=(top, bottom, left, right), dilation=dilation)
    for direction in NAMES:
        for algorithm in FORWARD[taps]:
            check(spec, direction, int(rng.choice(list(TARGETS))), algorithm, bool(rng.integers(2)))


def linear_index(columns: int) -> Epilogue:
    """Stores 4 * sum + row * columns + column: what it is told, and how often."""

    def apply(b: FunctionBuilder, value: Val, row: Val, column: Val, mask: Val | None, batch: Val) -> Val:
        lanes = value.type.lanes
        where = b.cast(b.add(b.mul(row, i64(columns)), column), value.type.with_lanes(0))
        return b.fma(value, b.const(4.0, value.type), b.add(b.splat(where, lanes), b.cast(b.iota(lanes, "i32"), value.type)))

    return apply


@pytest.mark.slow
@pytest.mark.parametrize("direction", NAMES)
@pytest.mark.parametrize("spec", [*SPECS[:4], LINES[2], DILATED[1]], ids=str)
def test_epilogue_sees_each_element_once_with_its_place(spec: ConvSpec, direction: str) -> None:
    inputs, output, want, kind, terms = problem(spec, direction)
    runner = with_chunks(build(spec, direction, HOST, FORWARD[spec.kh, spec.kw][-1], False, linear_index(want.shape[-1])), 0.5)
    got = runner(inputs, output, want.shape, storage(kind)).astype(np.float64)
    assert_close(got, 4 * want + np.arange(want.size).reshape(want.shape), kind, terms, scale=4)


def test_epilogue_with_pointers_that_stores_itself() -> None:
    def epilogue(b: FunctionBuilder, value: Val, row: Val, column: Val, mask: Val | None, batch: Val) -> None:
        def load(pointer: Val) -> Val:
            return b.load(pointer, value.type) if mask is None else b.masked_load(pointer, mask, value.type)

        at = b.add(b.mul(row, i64(37)), column)
        total = b.add(b.add(value, load(b.gep(b.args["bias"], column, F32))), load(b.gep(b.args["residual"], at, F32)))
        to, result = b.gep(b.args["result"], at, F32), b.binary("maxnum", total, b.const(0.0, value))
        if mask is None:
            b.store(result, to)
        else:
            b.masked_store(result, to, mask)

    spec = SPECS[2]
    inputs, _, want, kind, terms = problem(spec, "forward")
    rng = np.random.default_rng(1)
    more = {
        "bias": rng.standard_normal(spec.k).astype(np.float32),
        "residual": rng.standard_normal(want.shape).astype(np.float32),
    }
    runner = build(spec, "forward", HOST, F4, False, epilogue, [(name, PTR) for name in ("bias", "residual", "result")])
    inputs |= more
    got = runner(inputs | {"y": np.zeros(want.shape, np.float32)}, "result", want.shape, storage(kind))
    assert_close(got, np.maximum(want + more["bias"] + more["residual"], 0), kind, terms)


def test_packed_weights_depend_on_weights_only() -> None:
    for direction in NAMES:
        pack, *others = build(SPECS[0], direction, HOST, F4, False).plan.stages
        assert pack.buffers == ("w", "packed") and others


def test_where_it_applies() -> None:
    for spec in (SPECS[0], *NEW):
        assert applies(forward_correlation(spec)) and applies(gradient_correlations(spec)[0])
    for other in (
        ConvSpec(2, 8, 8, 16, 32, 3, 3, stride=(2, 2), padding=SAME),
        ConvSpec(2, 8, 8, 16, 32, 3, 3, groups=2, padding=SAME),
        ConvSpec(2, 8, 8, 16, 16, 3, 3, groups=16, padding=SAME),
        ConvSpec(2, 8, 8, 16, 32, 6, 3, padding=SAME),
        ConvSpec(2, 8, 8, 16, 32, 1, 3, stride=(2, 1), padding=SAME),
        ConvSpec(2, 8, 8, 16, 32, 1, 1, padding=SAME),
        ConvSpec(2, 8, 8, 0, 32, 3, 3, padding=SAME),
    ):
        assert not applies(forward_correlation(other)) and choose(forward_correlation(other), TARGETS[HOST]) is None
        assert not any(applies(part) for part in gradient_correlations(other))


def test_chosen_where_it_saves_time_unless_the_environment_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    worth = forward_correlation(ConvSpec(16, 32, 32, 64, 64, 3, 3, padding=SAME))
    tiny = forward_correlation(ConvSpec(1, 4, 4, 2, 2, 3, 3, padding=SAME))
    target = TARGETS[HOST]
    assert choose(worth, target) is not None and choose(tiny, target) is None
    monkeypatch.setenv("GRAPHCELL_WINOGRAD", "0")
    assert choose(worth, target) is None
    monkeypatch.setenv("GRAPHCELL_WINOGRAD", "yes")
    with pytest.raises(ArgumentValueError, match="GRAPHCELL_WINOGRAD"):
        choose(worth, target)


@pytest.mark.parametrize("channels", [3, 64, 700, 5000])
@pytest.mark.parametrize("size", [4, 30, 250])
def test_memory_is_bounded(size: int, channels: int) -> None:
    """Each thread has scratch memory to itself; the transformed input is more than twice the input."""
    target = TARGETS[HOST]
    for filters in (8, 600):
        spec = ConvSpec(4, size, size, channels, filters, 3, 3, padding=SAME)
        part = forward_correlation(spec)
        chosen, gradient = choose(part, target), choose_gradient(spec, target)
        assert chosen is not None or channels != 64 or size == 4
        if chosen is not None:
            plan = emit_winograd(Module(), "conv", part, chosen, target, None, (), NAMES["forward"])
            assert plan.scratch_bytes <= 3 * target.l2_bytes
            assert dict(plan.shared).get("transformed", 0) <= 64 << 20
        if gradient is not None:
            plan = emit_winograd_gradient(Module(), "conv", spec, gradient, target, None, ())
            assert plan.scratch_bytes <= 3 * target.l2_bytes


def test_two_threads_have_equally_much_of_few_tiles() -> None:
    """Groups of tiles are an even number, and transform their own input, where they have all columns."""
    target = replace(TARGETS[HOST], vector_bytes=64, l2_bytes=1 << 20)
    for images, height, width, channels, filters in ((2, 11, 15, 48, 48), (2, 22, 30, 48, 24), (2, 44, 60, 12, 12), (5, 15, 19, 32, 32)):
        spec = ConvSpec(images, height, width, channels, filters, 3, 3, padding=SAME)
        plan = schedule(forward_correlation(spec), target, F4)
        assert plan.groups % 2 == 0 and plan.slabs == 1 and not plan.shared_input, spec
    many = schedule(forward_correlation(ConvSpec(8, 64, 64, 64, 64, 3, 3, padding=SAME)), target, F4)
    assert many.tile == choose_tile(many.tiles, 64, "float", target)


def test_pixels_far_apart_are_summed_directly() -> None:
    """Each thread has a row of zeros as long as that of a tile."""
    for dilation, taken in ((8, True), (800, False)):
        spec = ConvSpec(4, 40, 2000, 64, 64, 3, 3, padding=SAME, dilation=(1, dilation))
        found = choose(forward_correlation(spec), TARGETS[HOST]), choose_gradient(spec, TARGETS[HOST])
        assert [plan is not None for plan in found] == [taken, taken]


def test_emitters_take_it() -> None:
    spec = ConvSpec(16, 16, 16, 64, 64, 3, 3, padding=SAME)
    for emit in (emit_convolution, emit_input_gradient):
        assert "F(4x4, 3x3)" in emit(Module(), "conv", spec, TARGETS[HOST]).note
