"""Convolutions of bfloats with tile registers, and their gradients for the image: against numpy float64, on memory with guard pages."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from graphcell.codegen.llvm.contraction import multiplies_tiles
from graphcell.codegen.llvm.convolution import emit_convolution, emit_input_gradient
from graphcell.codegen.llvm.correlation import ConvSpec
from graphcell.codegen.llvm.matmul_tiles_schedule import STEPS_OF_A
from graphcell.codegen.llvm.target import compile_object, host
from graphcell.codegen.llvm.text import Module
from tests.codegen.convolutions import output_size
from tests.codegen.plans import assert_sums, storage, with_chunks
from tests.codegen.test_convolution import HOST, SPECS, TARGETS, build, check, linear_index, problem
from tests.codegen.test_matmul_tiles import WITH_TILES, needs_tiles

BFLOATS = [replace(spec, x_kind="bfloat", w_kind="bfloat", y_kind="bfloat") for spec in SPECS if spec.groups == 1]
ADJOINT = ("forward", "input")


@pytest.fixture(autouse=True)
def with_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host as it is."""
    monkeypatch.setitem(TARGETS, HOST, host())


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the convolution."""
    monkeypatch.setattr("graphcell.codegen.llvm.convolution_tiles.WORTH", math.inf)
    monkeypatch.setattr("graphcell.codegen.llvm.matmul_tiles_schedule.WORTH", math.inf)


def in_tiles(spec: ConvSpec, direction: str) -> bool:
    emit = emit_convolution if direction == "forward" else emit_input_gradient
    return "tile registers" in emit(Module(), "conv", spec, WITH_TILES).note


@needs_tiles
@pytest.mark.parametrize("direction", ADJOINT)
@pytest.mark.parametrize("spec", BFLOATS, ids=str)
def test_convolution(spec: ConvSpec, direction: str, always: None) -> None:
    check(spec, direction, HOST)
    assert in_tiles(spec, direction) == (direction == "forward" or spec.stride == (1, 1))


@needs_tiles
@pytest.mark.slow
@pytest.mark.parametrize("steps", [32, 96, 256])
@pytest.mark.parametrize("spec", [BFLOATS[k] for k in (1, 3, 9, 10, 12, 18, 19)], ids=str)
def test_passes_of_whole_taps(spec: ConvSpec, steps: int, always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEPS_OF_A, 1, steps)
    check(spec, "forward", HOST)
    check(replace(spec, stride=(1, 1)), "input", HOST)


@needs_tiles
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_random_convolutions(seed: int, always: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setitem(STEPS_OF_A, 1, int(rng.choice([64, 1024])))
    monkeypatch.setitem(TARGETS, HOST, replace(TARGETS[HOST], l2_bytes=int(rng.choice([256 << 10, 2 << 20]))))
    n, h, w, c, k, kh, kw = (int(x) for x in rng.integers((1, 1, 1, 1, 1, 1, 1), (4, 20, 20, 50, 80, 6, 6)))
    stride, dilation = (tuple(int(x) for x in rng.integers(1, 4, 2)) for _ in range(2))
    padding = tuple(int(x) for x in rng.integers(-1, 4, 4))
    spec = ConvSpec(n, h, w, c, k, kh, kw, stride, padding, dilation, 1, "bfloat", "bfloat", "bfloat", str(rng.choice(["OIHW", "HWIO"])))
    if 0 not in output_size(spec):
        check(spec, "forward", HOST)
    if 0 not in output_size(replace(spec, stride=(1, 1))):
        check(replace(spec, stride=(1, 1)), "input", HOST)


@needs_tiles
@pytest.mark.parametrize("direction", ADJOINT)
@pytest.mark.parametrize("spec", [BFLOATS[k] for k in (1, 4, 13)], ids=str)
def test_epilogue_sees_each_element_once_with_its_place(spec: ConvSpec, direction: str, always: None) -> None:
    spec = replace(spec, y_kind="bfloat")
    inputs, output, want, kind, terms = problem(spec, direction)
    runner = with_chunks(build(spec, direction, HOST, linear_index(want.shape[-1])), 0.5)
    got = runner(inputs, output, want.shape, storage(kind)).astype(np.float64)
    expected = 4 * want + np.arange(want.size).reshape(want.shape)
    assert_sums(got, expected, kind, terms, scale=4 + want.size)


@pytest.mark.parametrize("direction", ADJOINT)
@pytest.mark.parametrize("spec", [BFLOATS[k] for k in (1, 8, 9, 18)], ids=str)
def test_code_for_such_processors_is_made_on_any(spec: ConvSpec, direction: str, always: None) -> None:
    module = WITH_TILES.module()
    plan = (emit_convolution if direction == "forward" else emit_input_gradient)(module, "conv", replace(spec, stride=(1, 1)), WITH_TILES)
    assert "tile registers" in plan.note and [stage.buffers[0] for stage in plan.stages] == ["w", "x" if direction == "forward" else "dy"]
    if host().triple.startswith("x86_64"):
        assert compile_object(str(module), WITH_TILES)


def test_where_tile_registers_are_not_used() -> None:
    large = ConvSpec(8, 28, 28, 128, 128, 3, 3, padding=(1, 1, 1, 1), x_kind="bfloat", w_kind="bfloat", y_kind="bfloat")
    assert in_tiles(large, "forward") and in_tiles(large, "input")
    assert in_tiles(replace(large, stride=(2, 2)), "forward") and not in_tiles(replace(large, stride=(2, 2)), "input")  # whose outputs lie apart
    for other in (
        replace(large, groups=2), replace(large, groups=128), replace(large, x_kind="float", w_kind="float", y_kind="float"),
        replace(large, y_kind="float"), replace(large, n=1, h=4, w=4, c=3, k=4),
    ):  # fmt: skip
        assert not in_tiles(other, "forward")
    assert "tile registers" not in emit_convolution(Module(), "conv", large, replace(WITH_TILES, features="+avx512f")).note
    assert not multiplies_tiles(replace(WITH_TILES, features="+avx512f"))
