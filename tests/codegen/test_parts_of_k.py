"""Products whose reduction is cut in parts that are added up: which are, and what they come to (test_contraction.py has the reference)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphcell.codegen.llvm.matmul_schedule import schedule
from tests.codegen.plans import TARGETS
from tests.codegen.test_contraction import Case, check


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float", "half", "bfloat", "double"])
@pytest.mark.parametrize(("m", "n", "k", "batch"), [(1, 33000, 130, ()), (3, 9001, 1030, ()), (2, 20100, 200, (3,)), (12, 40000, 140, ())])
def test_large_matrices_that_meet_few_rows(m: int, n: int, k: int, batch: tuple[int, ...], kind: str) -> None:
    """B is read a few whole rows at a time: parts of k, each in short passes over all columns."""
    case, width = Case(m, n, k, kind, batch=batch), 32
    plan = schedule(case.spec, TARGETS[width])
    if kind == "float" and not batch and 4 * k * n > 8 * TARGETS[width].l2_bytes:
        assert (plan.pack_b, plan.depth) == ("no", 8 if 4 * k * n > TARGETS[width].l3_bytes else 16) and plan.splits > 1
    check(case, width)


@pytest.mark.parametrize("case", [Case(33, 270, 5003), Case(20, 161, 5003, transpose_a=True), Case(270, 32, 5003, transpose_a=True, transpose_b=True)], ids=str)
@pytest.mark.parametrize("width", [16, 32])
def test_strips_are_added_up_from_parts_of_a_long_reduction(case: Case, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no block of the strip reads the narrow operand from memory again. The cache is taken for a small one, whatever the machine's."""
    target = replace(TARGETS[width], l2_bytes=1 << 19)
    monkeypatch.setitem(TARGETS, width, target)
    plan = schedule(case.spec, target)
    assert plan.splits == -(-case.k // plan.split_depth) > 1
    assert schedule(replace(case.spec, k=200), target).splits == 1
    check(case, width)


@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("case", [Case(64, 64, 256, transpose_a=True), Case(17, 130, 517, transpose_a=True, transpose_b=True), Case(192, 64, 900, "double", transpose_a=True)], ids=str)
def test_sums_of_many_rows_are_two_halves(case: Case, width: int) -> None:
    """So that threads read what they have written."""
    assert schedule(case.spec, TARGETS[width]).splits == 2
    for other in (replace(case, transpose_a=False), replace(case, k=250), replace(case, m=8 * case.m, n=8 * case.n), replace(case, batch=(3,))):
        assert schedule(other.spec, TARGETS[width]).splits == 1
    check(case, width)


def test_very_long_strips_are_not_added_up_from_parts() -> None:
    """Each block reads thousands of rows already, and the parts would take sixteen times the memory of the result."""
    for case in (Case(64, 100_000, 8192), Case(50_000, 32, 8192, transpose_a=True)):
        assert schedule(case.spec, TARGETS[32]).splits == 1
