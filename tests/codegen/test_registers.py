"""Accumulators of the micro-kernels stay in registers: LLVM keeps none of them on the stack, where at most masks lie."""

from __future__ import annotations

import re

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
