"""Native convolutions and their gradients by direct summation against direct numpy float64, on memory with
guard pages, for any division of the blocks. (Winograd's algorithm: test_winograd.py.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from graphcell.codegen.llvm import convolution, weights_schedule
from graphcell.codegen.llvm.contraction import Epilogue, Extra
from graphcell.codegen.llvm.convolution import emit_convolution, emit_input_gradient
from graphcell.codegen.llvm.convolution_schedule import Edges, schedule
from graphcell.codegen.llvm.convolution_weights import emit_weights_gradient
from graphcell.codegen.llvm.correlation import (
    ConvSpec,
    forward_correlation,
    gradient_axis,
    gradient_correlations,
)
from graphcell.codegen.llvm.text import F32, PTR, FunctionBuilder, Module, Val, i64
from tests.codegen import convolutions as reference
from tests.codegen.plans import TARGETS, Runner, assert_sums, compile_plan, storage, with_chunks

Array = NDArray[Any]
HOST = max(TARGETS)
DIRECTIONS = ("forward", "input", "weights")
SAME = (1, 1, 1, 1)


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_WINOGRAD", "0")


SPECS = [
    ConvSpec(2, 8, 8, 3, 5, 3, 3, padding=SAME),
    ConvSpec(2, 9, 11, 16, 32, 3, 3, padding=SAME),
    ConvSpec(2, 9, 11, 16, 32, 3, 3, stride=(2, 2), padding=SAME),
    ConvSpec(2, 9, 11, 16, 20, 3, 3, stride=(2, 3), padding=(1, 0, 2, 1), dilation=(2, 1), weights="HWIO"),
    ConvSpec(2, 9, 11, 12, 32, 3, 3, padding=(2, 2, 2, 2), dilation=(2, 2)),
    ConvSpec(2, 9, 11, 16, 32, 1, 1),
    ConvSpec(2, 5, 4, 16, 32, 1, 1, weights="HWIO"),
    ConvSpec(2, 9, 11, 16, 32, 1, 1, stride=(2, 2)),
    ConvSpec(3, 28, 28, 1, 6, 5, 5, padding=(2, 2, 2, 2)),  # LeNet
    ConvSpec(3, 14, 14, 6, 16, 5, 5),
    ConvSpec(1, 23, 23, 3, 16, 7, 7, stride=(2, 2), padding=(3, 3, 3, 3)),
    ConvSpec(2, 10, 10, 12, 18, 3, 3, groups=3, padding=SAME),
    ConvSpec(2, 10, 10, 20, 20, 3, 3, groups=20, padding=SAME),  # depthwise
    ConvSpec(2, 10, 10, 20, 20, 3, 3, groups=20, padding=SAME, stride=(2, 2), weights="HWIO"),
    ConvSpec(1, 12, 12, 16, 16, 7, 7, groups=16, padding=(3, 3, 3, 3)),
    ConvSpec(2, 6, 6, 8, 16, 3, 3, groups=8, padding=SAME),  # two filters a channel
    ConvSpec(2, 4, 4, 64, 80, 3, 3, padding=SAME),
    ConvSpec(5, 2, 2, 64, 80, 3, 3, padding=SAME, weights="HWIO"),
    ConvSpec(3, 1, 1, 40, 20, 3, 3, padding=SAME),
    ConvSpec(2, 9, 9, 4, 8, 3, 3, padding=(-1, 1, -2, 0)),  # negative padding cuts off
    ConvSpec(2, 7, 7, 4, 8, 3, 3, padding=(5, 5, 4, 6)),  # more padding than taps
    ConvSpec(2, 9, 1, 16, 16, 3, 1, padding=(1, 1, 0, 0)),
    ConvSpec(5, 22, 3, 24, 22, 5, 4, (3, 1), (1, 3, 2, -1), (2, 1), 2),  # taps that no pixel has
    ConvSpec(2, 5, 40, 5, 17, 1, 3, padding=(0, 0, 1, 1)),
    ConvSpec(2, 33, 20, 13, 30, 3, 3, padding=SAME),
    ConvSpec(16, 4, 4, 260, 36, 3, 3, padding=SAME, weights="HWIO"),  # several slabs of channels
    ConvSpec(1, 6, 6, 8, 700, 3, 3, padding=SAME),  # several slabs of filters
]
KINDS = [
    ("half", "half", "half"),
    ("bfloat", "float", "bfloat"),
    ("double", "double", "double"),
    ("half", "half", "float"),
]


def arrays(spec: ConvSpec, seed: int = 0) -> tuple[Array, Array, Array]:
    """x, weights as [k, c / groups, kh, kw], and a cotangent of y."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((spec.n, spec.h, spec.w, spec.c)).astype(storage(spec.x_kind))
    w = rng.standard_normal((spec.k, spec.c // spec.groups, spec.kh, spec.kw)).astype(storage(spec.w_kind))
    dy = rng.standard_normal((spec.n, *reference.output_size(spec), spec.k)).astype(storage(spec.y_kind))
    return x, w, dy


def laid_out(spec: ConvSpec, w: Array) -> Array:
    return w if spec.weights == "OIHW" else np.ascontiguousarray(w.transpose(2, 3, 1, 0))


def build(
    spec: ConvSpec, direction: str, width: int, epilogue: Epilogue | None = None, extra: Extra = ()
) -> Runner:
    emit: Callable[..., Any] = {
        "forward": emit_convolution,
        "input": emit_input_gradient,
        "weights": emit_weights_gradient,
    }[direction]
    return compile_plan(
        lambda module, target: emit(module, "conv", spec, target, epilogue, extra), TARGETS[width]
    )


def problem(spec: ConvSpec, direction: str) -> tuple[dict[str, Array], str, Array, str, int]:
    """Inputs, the output's name, what is expected in it, its kind, and the terms of each sum."""
    x, w, dy = arrays(spec)
    taps = spec.kh * spec.kw
    if direction == "forward":
        return (
            {"x": x, "w": laid_out(spec, w)},
            "y",
            reference.forward(spec, x, w),
            spec.y_kind,
            taps * spec.c // spec.groups,
        )
    if direction == "input":
        dx = reference.input_gradient(spec, dy, w)
        return {"dy": dy, "w": laid_out(spec, w)}, "dx", dx, spec.x_kind, taps * spec.k // spec.groups
    dw = laid_out(spec, reference.weights_gradient(spec, x, dy))
    return {"x": x, "dy": dy}, "dw", dw, spec.w_kind, dy.size // max(spec.k, 1)


def check(spec: ConvSpec, direction: str, width: int) -> None:
    inputs, output, want, kind, terms = problem(spec, direction)
    runner = build(spec, direction, width)
    got = runner(inputs, output, want.shape, storage(kind))
    assert_sums(got, want, kind, terms)
    again = with_chunks(runner, 0.3, 0.6)(inputs, output, want.shape, storage(kind), at_end=False)
    assert got.tobytes() == again.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_convolution(spec: ConvSpec, direction: str) -> None:
    check(spec, direction, HOST)


@pytest.mark.slow
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("width", [w for w in TARGETS if w != HOST])
@pytest.mark.parametrize("spec", SPECS[1:13:2] + SPECS[16:20], ids=str)
def test_other_vector_widths(spec: ConvSpec, width: int, direction: str) -> None:
    check(spec, direction, width)


@pytest.mark.slow
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kinds", KINDS, ids=str)
@pytest.mark.parametrize("groups", [1, 2, 16])
def test_kinds(groups: int, kinds: tuple[str, str, str], direction: str) -> None:
    x, w, y = kinds
    check(
        ConvSpec(2, 9, 11, 16, 16, 3, 3, padding=SAME, groups=groups, x_kind=x, w_kind=w, y_kind=y),
        direction,
        HOST,
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_random_specs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = int(rng.choice([1, 1, 1, 2, 3]))
    kh, kw = (int(v) for v in rng.integers(1, 5, 2))
    top, bottom, left, right = (int(v) for v in rng.integers(-1, 4, 4))
    spec = ConvSpec(
        int(rng.integers(1, 4)),
        int(rng.integers(4, 14)),
        int(rng.integers(4, 14)),
        groups * int(rng.integers(1, 30)),
        groups * int(rng.integers(1, 40)),
        kh,
        kw,
        (int(rng.integers(1, 4)), int(rng.integers(1, 4))),
        (top, bottom, left, right),
        (int(rng.integers(1, 3)), int(rng.integers(1, 3))),
        groups,
        weights=str(rng.choice(["OIHW", "HWIO"])),
    )
    for direction in DIRECTIONS:
        check(spec, direction, int(rng.choice(list(TARGETS))))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_no_output_pixels(direction: str) -> None:
    """The taps do not fit: y is empty, both gradients are zero."""
    spec = ConvSpec(2, 2, 2, 4, 8, 3, 3)
    assert (spec.oh, spec.ow) == (0, 0)
    if direction == "forward":
        assert build(spec, direction, HOST).plan.stages == ()
        return
    inputs, output, want, kind, _ = problem(spec, direction)
    assert (build(spec, direction, HOST)(inputs, output, want.shape, storage(kind)) == 0).all()


def test_no_channels_gives_zeros() -> None:
    spec = ConvSpec(2, 5, 5, 0, 6, 3, 3, padding=SAME)
    got = build(spec, "forward", HOST)(
        {"x": np.zeros((2, 5, 5, 0), np.float32), "w": np.zeros((6, 0, 3, 3), np.float32)},
        "y",
        (2, 5, 5, 6),
        np.dtype(np.float32),
    )
    assert (got == 0).all()
    assert build(spec, "weights", HOST).plan.stages == ()


@pytest.mark.parametrize("direction", ["forward", "input"])
@pytest.mark.parametrize("edges", [Edges.PADDED, Edges.ROW, Edges.IMAGE])
@pytest.mark.parametrize(
    "spec",
    [
        ConvSpec(2, 4, 4, 16, 20, 3, 3, padding=SAME),
        ConvSpec(3, 3, 5, 9, 40, 3, 2, padding=(1, 2, 1, 0)),
        ConvSpec(2, 4, 4, 40, 40, 3, 3, padding=SAME, groups=40),
        ConvSpec(2, 5, 4, 8, 40, 3, 3, padding=(2, 2, 2, 2), dilation=(2, 2)),
        ConvSpec(2, 4, 3, 16, 20, 3, 3, padding=SAME, x_kind="half", y_kind="half"),
    ],
    ids=str,
)
def test_every_way_to_treat_edges(
    spec: ConvSpec, edges: Edges, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is right, whichever the schedule would take."""
    if edges is Edges.IMAGE and HOST < 64:
        pytest.skip("sixteen registers hold no tile of whole images")
    monkeypatch.setattr(convolution, "schedule", lambda part, target: schedule(part, target, edges))
    check(spec, direction, HOST)


@pytest.mark.parametrize("width", [32, 64])
def test_edges_are_chosen_by_the_image(width: int) -> None:
    target = replace(TARGETS[HOST], vector_bytes=width)

    def chosen(spec: ConvSpec) -> Edges:
        return schedule(forward_correlation(spec), target).edges

    assert chosen(ConvSpec(2, 8, 8, 16, 16, 3, 3)) is Edges.INSIDE
    assert chosen(ConvSpec(2, 8, 8, 64, 64, 3, 3, padding=SAME)) in (Edges.ROW, Edges.IMAGE)
    assert chosen(ConvSpec(2, 60, 2, 16, 16, 3, 3, padding=SAME)) is Edges.PADDED  # a row is too short for a tile
    with pytest.raises(ValueError, match="edges"):
        schedule(forward_correlation(ConvSpec(2, 60, 60, 16, 16, 3, 3, padding=SAME)), target, Edges.IMAGE)


def linear_index(columns: int) -> Epilogue:
    """An epilogue that stores 4 * sum + row * columns + column: what it is told, and how often."""

    def apply(b: FunctionBuilder, value: Val, row: Val, column: Val, mask: Val | None, batch: Val) -> Val:
        lanes = value.type.lanes
        where = b.cast(b.add(b.mul(row, i64(columns)), column), value.type.with_lanes(0))
        index = b.add(b.splat(where, lanes), b.cast(b.iota(lanes, "i32"), value.type))
        return b.fma(value, b.const(4.0, value.type), index)

    return apply


@pytest.mark.slow
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("spec", [SPECS[k] for k in (0, 2, 3, 5, 6, 8, 11, 12, 13, 16, 17, 23)], ids=str)
def test_epilogue_sees_each_element_once_with_its_place(spec: ConvSpec, direction: str) -> None:
    inputs, output, want, kind, terms = problem(spec, direction)
    matrix = (
        want.reshape(want.shape[0], -1)
        if (direction, spec.weights) == ("weights", "OIHW")
        else want.reshape(-1, want.shape[-1])
    )
    runner = with_chunks(build(spec, direction, HOST, linear_index(matrix.shape[1])), 0.5)
    got = runner(inputs, output, want.shape, storage(kind)).astype(np.float64)
    assert_sums(got, 4 * want + np.arange(want.size).reshape(want.shape), kind, terms, scale=4)


def test_fused_bias_and_relu() -> None:
    def epilogue(b: FunctionBuilder, value: Val, row: Val, column: Val, mask: Val | None, batch: Val) -> Val:
        pointer = b.gep(b.args["bias"], column, F32)
        bias = b.load(pointer, value.type) if mask is None else b.masked_load(pointer, mask, value.type)
        return b.binary("maxnum", b.add(value, bias), b.const(0.0, value))

    spec = SPECS[0]
    inputs, output, want, kind, terms = problem(spec, "forward")
    bias = np.random.default_rng(1).standard_normal(spec.k).astype(np.float32)
    got = build(spec, "forward", HOST, epilogue, [("bias", PTR)])(
        inputs | {"bias": bias}, output, want.shape, storage(kind)
    )
    assert_sums(got, np.maximum(want + bias, 0), kind, terms)


def test_packed_weights_depend_on_weights_only() -> None:
    for emit in ("forward", "input"):
        stages = build(SPECS[2], emit, HOST).plan.stages
        packs = [stage for stage in stages if stage.buffers[-1].startswith("packed")]
        assert packs and all(stage.buffers[:-1] == ("w",) for stage in packs)
        assert all("w" not in stage.buffers for stage in stages if stage not in packs)


@pytest.mark.parametrize(
    ("stride", "before", "taps", "dilation"),
    [(1, 1, 3, 1), (2, 1, 3, 1), (3, 2, 5, 2), (2, 0, 1, 1), (4, 3, 7, 2)],
)
def test_phases_of_the_input_gradient_are_the_adjoint(
    stride: int, before: int, taps: int, dilation: int
) -> None:
    """Each (output, tap) pair of the forward direction is met exactly once, at the input it read."""
    inputs = 23
    outputs = (inputs + 2 * before - dilation * (taps - 1) - 1) // stride + 1
    expected = {(q * stride + t * dilation - before, q, t) for q in range(outputs) for t in range(taps)}
    found = []
    for phase in range(stride):
        axis = gradient_axis(inputs, phase, stride, before, taps, dilation)
        for q in range(axis.count):
            for i in range(axis.taps):
                output = axis.origin + q * axis.in_step + i * axis.tap_step
                if 0 <= output < outputs:
                    found.append((axis.start + q * axis.step, output, axis.weight + i * axis.weight_step))
    assert len(found) == len(set(found))
    assert set(found) == {pair for pair in expected if 0 <= pair[0] < inputs}


@pytest.mark.parametrize(
    ("spec", "grid"),
    [
        (ConvSpec(24, 8, 8, 64, 128, 4, 4, stride=(2, 2), padding=SAME), (1, 2)),  # by filters
        (ConvSpec(6, 8, 8, 50, 40, 3, 3, padding=SAME, x_kind="half", y_kind="half"), (2, 1)),  # by channels, each with its own zeros around
        (ConvSpec(6, 9, 7, 150, 8, 3, 3), (2, 1)),
        (ConvSpec(1, 6, 6, 25, 128, 3, 3, padding=SAME), (1, 2)),
        (ConvSpec(1, 7, 5, 50, 40, 3, 3, padding=SAME), (1, 1)),  # little to do
        (ConvSpec(6, 8, 8, 10, 64, 5, 5, padding=SAME), (1, 1)),  # few channels, whose rows run over taps
    ],
    ids=str,
)
def test_weights_gradients_of_few_pixels_are_two_slabs(spec: ConvSpec, grid: tuple[int, int]) -> None:
    """Where one block would be all."""
    for width in TARGETS:
        plan = weights_schedule.schedule(spec, replace(TARGETS[width], l2_bytes=1 << 20))
        assert (plan.grid, plan.splits) == (grid, 1)
        check(spec, "weights", width)


def test_flops_of_the_parts_add_up() -> None:
    spec = ConvSpec(2, 8, 8, 4, 6, 3, 3, stride=(2, 2), padding=SAME)
    parts = gradient_correlations(spec)
    assert len(parts) == 4 and sum(part.taps for part in parts) == 9


def test_refusals() -> None:
    with pytest.raises(ValueError, match="groups"):
        ConvSpec(1, 4, 4, 3, 4, 3, 3, groups=2)
    with pytest.raises(ValueError, match="extents"):
        ConvSpec(1, 4, 4, 3, 4, 0, 3)
    with pytest.raises(ValueError, match="extents"):
        replace(SPECS[0], stride=(0, 1))
    with pytest.raises(ValueError, match="OIHW or HWIO"):
        replace(SPECS[0], weights="OHWI")
    with pytest.raises(TypeError, match="i8"):
        replace(SPECS[0], x_kind="i8")
    for emit in (emit_convolution, emit_input_gradient, emit_weights_gradient):
        with pytest.raises(ValueError, match="packed"):
            emit(Module(), "f", SPECS[0], TARGETS[HOST], None, [("packed", PTR)])
