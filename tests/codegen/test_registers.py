"""Accumulators of the micro-kernels stay in registers: LLVM keeps none of them on the stack, where at most masks lie."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from graphcell import ops
from graphcell.codegen.llvm.target import assembly
from graphcell.codegen.lower import lower
from graphcell.passes.pipeline import run_pipeline
from tests.codegen.plans import TARGETS
from tests.codegen.test_loop_shapes import graph_of, normal

WIDE = [target for width, target in TARGETS.items() if width >= 32]
_FUNCTION = re.compile(r"^(\w+\.micro\w*):$(.*?)^\.Lfunc_end", re.MULTILINE | re.DOTALL)
_STORED_ON_STACK = re.compile(r"%[xyz]mm\d+, (-?\d*\(%r[sb]p\))")


@pytest.mark.skipif(not WIDE, reason="vectors are short")
@pytest.mark.parametrize(("terms", "rows", "columns"), [(257, 40, 40), (1000, 64, 56), (1000, 100, 40), (300, 24, 20), (512, 40, 72), (90, 33, 75)])
def test_the_last_vector_of_a_row_may_be_narrower(terms: int, rows: int, columns: int) -> None:
    """Numbers of columns whose last vector is half as long, which lets LLVM believe that a broadcast number may be overwritten."""
    for target in WIDE:
        graph = graph_of(lambda x, y: ops.matmul(x.T, y), [normal(terms, rows), normal(terms, columns)])
        found = _FUNCTION.findall(assembly(lower(run_pipeline(graph)[0], (), target).text, target))
        assert found
        for name, code in found:
            assert "vfmadd" in code
            slots = _STORED_ON_STACK.findall(code)
            assert len(slots) == len(set(slots)), f"{name} with vectors of {target.vector_bytes} bytes stores one again and again:\n{code}"


@pytest.mark.skipif(32 not in TARGETS, reason="vectors are short")
@pytest.mark.parametrize(("terms", "rows", "columns"), [(300, 168, 8), (134, 13, 8), (64, 30, 8)])
def test_totals_of_one_vector_stay_where_they_are(terms: int, rows: int, columns: int) -> None:
    """A broadcast number that is used once would become the total, and with tall tiles one of them would be on the stack at any time."""
    for dtype in (np.float32, np.float64):
        graph = graph_of(lambda x, y: ops.matmul(x, y.T), [normal(rows, terms).astype(dtype), normal(columns, terms).astype(dtype)])
        found = _FUNCTION.findall(assembly(lower(run_pipeline(graph)[0], (), TARGETS[32]).text, TARGETS[32]))
        assert found
        for name, code in found:
            assert not _STORED_ON_STACK.findall(code), f"{name}:\n{code}"


@pytest.mark.skipif(32 not in TARGETS, reason="vectors are short")
def test_sets_of_totals_fit_beside_the_rows_that_a_tap_is_not_for() -> None:
    """A 3x3 convolution whose taps at the edge are for seven of eight pixels: two sets of their totals would be one register too many."""
    graph = graph_of(lambda x, w: ops.conv2d(x, w, pad_mode="pad", padding=1, stride=2), [normal(1, 128, 16, 16), normal(256, 128, 3, 3)])
    target = replace(TARGETS[32], l2_bytes=1 << 20)
    found = _FUNCTION.findall(assembly(lower(run_pipeline(graph)[0], (), target).text, target))
    assert found
    for name, code in found:
        slots = _STORED_ON_STACK.findall(code)
        assert len(slots) == len(set(slots)), f"{name} stores one again and again:\n{code}"
