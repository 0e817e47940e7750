"""What a stage keeps for later ones: bodies of a few statements whose best choice is plain to see."""

from __future__ import annotations

from collections.abc import Sequence

from graphcell import dtype as dt
from graphcell.codegen.kernel import Access, Load, Statement
from graphcell.codegen.llvm.spills import WorkOfLaterStages
from graphcell.ir.op import Op
from graphcell.ops.arithmetic import Add, Mul
from graphcell.ops.mathematics import Exp, Sigmoid

LOAD = Load(Access(0, (1,)), dt.float32)


def statements(*ops: tuple[Op | None, tuple[int, ...], int]) -> list[Statement]:
    """Of an op (None: a load), its arguments and its stage."""
    return [Statement(LOAD if op is None else op, args, dt.float32, 1, stage) for op, args, stage in ops]


def work(body: Sequence[Statement], roots: Sequence[int], more: Sequence[int] = ()) -> WorkOfLaterStages:
    """Of one later stage, or of another one that is to find `more`."""

    def computed(roots: Sequence[int], kept: Sequence[int]) -> set[int]:
        found: set[int] = set()
        stack = list(roots)
        while stack:
            n = stack.pop()
            if n not in found and n not in kept:
                found.add(n)
                stack += body[n].args
        return found

    return WorkOfLaterStages(body, 0, [roots, *([more] if more else [])], computed)


def kept(found: WorkOfLaterStages, size: int = 100, room: int = 1000) -> list[int]:
    return found.worth_keeping({n: size for n, s in enumerate(found.body) if s.stage == 0}, room)


def test_what_is_cheap_is_computed_again() -> None:
    assert kept(work(statements((None, (), 0), (Mul(), (0, 0), 0), (Add(), (1, 0), 1)), [2])) == []


def test_a_function_is_kept() -> None:
    body = statements((None, (), 0), (Exp(), (0,), 0), (Mul(), (1, 0), 1))
    assert kept(work(body, [2])) == [1]
    assert kept(work(body, [2]), size=2000) == []


def test_results_of_a_function_are_kept_instead_of_it() -> None:
    """Two, each of which takes ten products more: one alone would save too little, as the other one would need the function still."""
    chain = [(Sigmoid(), (0,), 0)]
    for start in (1, 1 + 10):
        chain += [(Mul(), (start + k if k else 1, 0), 0) for k in range(10)]
    body = statements((None, (), 0), *chain, (Add(), (11, 21), 1))
    assert kept(work(body, [22])) == [11, 21]
    assert kept(work(body, [22]), room=100) == [1]
    short = statements((None, (), 0), (Sigmoid(), (0,), 0), (Mul(), (1, 0), 0), (Add(), (1, 0), 0), (Add(), (2, 3), 1))
    assert kept(work(short, [4])) == [1]


def test_what_several_later_stages_compute_counts_for_each() -> None:
    body = statements((None, (), 0), *((Mul(), (k, 0), 0) for k in range(6)), (Add(), (6, 0), 1), (Mul(), (6, 6), 2))
    assert kept(work(body, [7])) == []
    assert kept(work(body, [7], [8])) == [6]
