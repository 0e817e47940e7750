"""Gradients of 3x3 and 5x5 convolutions in their weights by Winograd's algorithm against direct numpy float64, on memory
with guard pages, for any division of the blocks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from graphcell.codegen.llvm.contraction import Epilogue, Extra, Plan
from graphcell.codegen.llvm.convolution_weights import emit_weights_gradient
from graphcell.codegen.llvm.correlation import ConvSpec
from graphcell.codegen.llvm.target import Target
from graphcell.codegen.llvm.text import Module
from graphcell.codegen.llvm.winograd_gradient import emit_winograd_gradient
from graphcell.codegen.llvm.winograd_gradient_schedule import choose, schedule
from graphcell.codegen.llvm.winograd_transforms import GRADIENT, GRADIENT_F2, GRADIENT_F4, Nested
from tests.codegen import convolutions as reference
from tests.codegen.plans import TARGETS, Runner, compile_plan, storage, with_chunks
from tests.codegen.test_winograd import (
    DILATED,
    LINES,
    NEW,
    OBLONG,
    OF_5,
    SPECIAL,
    SPECS,
    WITH_SPECIALS,
    assert_close,
    linear_index,
    same_specials,
)

Array = NDArray[Any]
HOST = max(TARGETS)
SAME = (1, 1, 1, 1)
CASES = [(spec, algorithm) for spec in (*SPECS, *OF_5, *NEW) for algorithm in GRADIENT.get((spec.kh, spec.kw), ())]


def build(
    spec: ConvSpec, width: int, algorithm: Nested, shared: bool, epilogue: Epilogue | None = None, extra: Extra = ()
) -> Runner:
    def emit(module: Module, target: Target) -> Plan:
        return emit_winograd_gradient(module, "conv", spec, schedule(spec, target, algorithm, shared), target, epilogue, extra)

    return compile_plan(emit, TARGETS[width])


def problem(spec: ConvSpec) -> tuple[dict[str, Array], Array]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((spec.n, spec.h, spec.w, spec.c)).astype(storage(spec.x_kind))
    dy = rng.standard_normal((spec.n, spec.oh, spec.ow, spec.k)).astype(storage(spec.y_kind))
    dw = reference.weights_gradient(spec, x, dy)
    return {"x": x, "dy": dy}, dw if spec.weights == "OIHW" else np.ascontiguousarray(dw.transpose(2, 3, 1, 0))


def check(spec: ConvSpec, width: int, algorithm: Nested, shared: bool) -> None:
    inputs, want = problem(spec)
    runner = build(spec, width, algorithm, shared)
    got = runner(inputs, "dw", want.shape, storage(spec.w_kind))
    assert_close(got, want, spec.w_kind, spec.n * spec.oh * spec.ow)
    again = with_chunks(runner, 0.3, 0.6)(inputs, "dw", want.shape, storage(spec.w_kind), at_end=False)
    assert got.tobytes() == again.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True], ids=["block", "stage"])
@pytest.mark.parametrize(("spec", "algorithm"), CASES, ids=str)
def test_gradient(spec: ConvSpec, algorithm: Nested, shared: bool) -> None:
    check(spec, HOST, algorithm, shared)


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True], ids=["block", "stage"])
@pytest.mark.parametrize(("spec", "algorithm"), [case for case in CASES if case[0] in WITH_SPECIALS], ids=str)
def test_infinities_and_nan_stay_where_direct_summation_has_them(spec: ConvSpec, algorithm: Nested, shared: bool) -> None:
    inputs, clean = problem(spec)
    runner = build(spec, HOST, algorithm, shared)
    for value in SPECIAL:
        x = inputs["x"].copy()
        x[-1, 2, 3, 1] = value
        with np.errstate(all="ignore"):
            dw = reference.weights_gradient(spec, x, inputs["dy"])
        same_specials(runner(inputs | {"x": x}, "dw", clean.shape, storage(spec.w_kind)), dw if spec.weights == "OIHW" else dw.transpose(2, 3, 1, 0))


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True], ids=["block", "stage"])
@pytest.mark.parametrize("weights", ["OIHW", "HWIO"])
def test_several_parts_and_slabs(weights: str, shared: bool) -> None:
    spec = ConvSpec(2, 20, 21, 100, 200, 3, 3, padding=SAME, weights=weights)
    plan = schedule(spec, TARGETS[HOST], GRADIENT_F4, shared)
    assert plan.splits > 1 and min(plan.slabs) > 1
    check(spec, HOST, GRADIENT_F4, shared)


@pytest.mark.parametrize(("tiles", "slabs", "parts"), [(90, 1, 4), (120, 1, 6), (48, 1, 4), (63, 1, 4), (64, 1, 4), (16, 2, 1), (31, 2, 1), (500, 1, 16)])
def test_two_threads_have_equally_many_parts(tiles: int, slabs: int, parts: int) -> None:
    spec = ConvSpec(1, 4, 4 * tiles, 32, 32, 3, 3, padding=SAME)
    plan = schedule(spec, TARGETS[HOST], GRADIENT_F4)
    assert (plan.tiles, plan.slabs, plan.splits) == (tiles, (slabs, 1), parts)


@pytest.mark.parametrize("shared", [False, True], ids=["block", "stage"])
@pytest.mark.parametrize("channels", [45, 64])
def test_few_tiles_of_many_channels_are_two_slabs(channels: int, shared: bool) -> None:
    """Where one block would be all, and take so long that threads have use for two."""
    spec = ConvSpec(3, 8, 10, channels, 70, 3, 3, padding=SAME)
    assert schedule(spec, TARGETS[HOST], GRADIENT_F4).slabs[0] == 2
    assert schedule(replace(spec, n=1, k=16), TARGETS[HOST], GRADIENT_F4).slabs == (1, 1)
    check(spec, HOST, GRADIENT_F4, shared)


def test_several_chunks_of_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, HOST, replace(TARGETS[HOST], l2_bytes=512 << 10))
    spec = ConvSpec(3, 64, 72, 40, 90, 3, 3, padding=SAME)
    plan = schedule(spec, TARGETS[HOST], GRADIENT_F4, False)
    assert plan.chunk < plan.split_tiles
    check(spec, HOST, GRADIENT_F4, False)


@pytest.mark.parametrize("width", [w for w in TARGETS if w != HOST])
@pytest.mark.parametrize("spec", SPECS[1:4], ids=str)
def test_other_vector_widths(spec: ConvSpec, width: int) -> None:
    check(spec, width, GRADIENT_F4, False)


@pytest.mark.parametrize("width", [w for w in TARGETS if w != HOST])
@pytest.mark.parametrize("spec", [OF_5[1], LINES[1], OBLONG[0], DILATED[0], DILATED[4]], ids=str)
def test_other_vector_widths_of_other_taps(spec: ConvSpec, width: int) -> None:
    check(spec, width, GRADIENT[spec.kh, spec.kw][-1], False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds", [("half", "half", "half"), ("bfloat", "float", "bfloat"), ("double", "double", "double"), ("half", "half", "float")], ids=str
)
def test_kinds(kinds: tuple[str, str, str]) -> None:
    x, w, y = kinds
    spec = ConvSpec(2, 9, 11, 19, 16, 3, 3, padding=SAME, x_kind=x, w_kind=w, y_kind=y)
    for shared in (False, True):
        check(spec, HOST, GRADIENT_F4, shared)


@pytest.mark.parametrize("seed", range(6))
def test_random_specs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, h, w, c, k = (int(rng.integers(low, high)) for low, high in ((1, 4), (3, 15), (3, 15), (1, 90), (1, 120)))
    top, bottom, left, right = (int(v) for v in rng.integers(-1, 4, 4))
    spec = ConvSpec(n, h + 1, w + 1, c, k, 3, 3, padding=(top, bottom, left, right), weights=str(rng.choice(["OIHW", "HWIO"])))
    check(spec, int(rng.choice(list(TARGETS))), GRADIENT_F2 if rng.integers(2) else GRADIENT_F4, bool(rng.integers(2)))


@pytest.mark.parametrize("weights", ["OIHW", "HWIO"])
def test_epilogue_sees_each_element_once_with_its_place(weights: str) -> None:
    spec = ConvSpec(2, 9, 11, 19, 37, 3, 3, padding=SAME, weights=weights)
    inputs, want = problem(spec)
    columns = want.shape[-1] if weights == "HWIO" else want.size // spec.k
    runner = with_chunks(build(spec, HOST, GRADIENT_F4, True, linear_index(columns)), 0.5)
    got = runner(inputs, "dw", want.shape, storage("float")).astype(np.float64)
    assert_close(got, 4 * want + np.arange(want.size).reshape(want.shape), "float", spec.n * spec.oh * spec.ow, scale=4)


@pytest.mark.parametrize(
    ("taps", "bounds"),
    [((3, 3), (1.5, 5.0)), ((5, 5), (5.0,)), ((1, 3), (3.0, 5.0)), ((2, 1), (1.5, 3.0)), ((5, 1), (5.0, 5.0)), ((3, 5), (5.0,))],
    ids=str,
)
def test_error_is_within_a_few_times_that_of_direct_summation(
    taps: tuple[int, int], bounds: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ConvSpec(4, 24, 24, 16, 32, *taps, padding=(taps[0] // 2,) * 2 + (taps[1] // 2,) * 2)
    inputs, want = problem(spec)
    monkeypatch.setenv("GRAPHCELL_WINOGRAD", "0")
    direct = compile_plan(lambda module, target: emit_weights_gradient(module, "conv", spec, target), TARGETS[HOST])
    unit = np.abs(direct(inputs, "dw", want.shape, storage("float")) - want).max()
    for algorithm, bound in zip(GRADIENT[taps], bounds, strict=True):
        error = np.abs(build(spec, HOST, algorithm, False)(inputs, "dw", want.shape, storage("float")) - want).max()
        assert error < bound * unit


def test_chosen_where_it_saves_time_unless_the_environment_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    worth = ConvSpec(16, 16, 16, 64, 64, 3, 3, padding=SAME)
    target = TARGETS[HOST]
    assert choose(worth, target) is not None
    assert "F(3x3, 4x4)" in emit_weights_gradient(Module(), "conv", worth, target).note
    assert choose(ConvSpec(1, 4, 4, 2, 2, 3, 3, padding=SAME), target) is None
    assert choose(ConvSpec(16, 16, 16, 64, 64, 3, 3, (2, 2), SAME), target) is None
    monkeypatch.setenv("GRAPHCELL_WINOGRAD", "0")
    assert choose(worth, target) is None
