"""Which results of a program are written past the caches: their lines are not read first, and displace nothing.

Enters: results of the whole program that no step reads, as one step writes them, and the product that makes one. Leaves: those that are large enough. That is
all for a loop nest; a product must wait for its output, too.
"""

from __future__ import annotations

from collections.abc import Collection

from graphcell.codegen.llvm.contraction import LINE_BYTES, PAGE_BYTES
from graphcell.ir.graph import Node, Value
from graphcell.ops.contraction import MatMul

_FROM = 8 << 20
"""Bytes. Measured on Emerald Rapids (L2 2 MB, L3 shared with others): 4 MB are written 1.3 times, 8 MB and more 1.5 to 1.9 times as fast, but are read again
at half the speed. On Zen 3 (L3 32 MB, another program beside): loops write 10 to 16 MB 1.0 to 2.5 times as fast, products 12 MB 1.09 to 1.28 times; even six
ops on 9 MB in eager mode, each of which reads what the one before has written, take 0.6 to 0.75 of the time. Results of
one step count in sum: four of a step of Adam in mixed precision, 22 MB together, take 0.73 of the time, on two threads 0.66."""
_PART = 8
"""Of these bytes that one of several results of a step has, at least."""
_FEW_STEPS = 64
"""Measured on Zen 3: with 16 to 64 reduction steps 1.0 to 1.6 times as fast, on two threads 1.0 to 1.9 times; where rows lie multiples of half a page
apart 0.75 to 0.85 times."""


def large_results(written: Collection[Value]) -> frozenset[Value]:
    """Of what a step writes, what is written past the caches."""
    if sum(v.type.nbytes for v in written) < _FROM:
        return frozenset()
    return frozenset(v for v in written if v.type.nbytes * _PART >= _FROM)


def waits_for_output(node: Node) -> bool:
    """Whether a product has so few reduction steps that it waits for the memory of its result, whose rows are whole cache lines, and not multiples
    of half a page."""
    op, result = node.op, node.results[0]
    if not isinstance(op, MatMul) or result.type.dtype.llvm not in ("float", "double"):
        return False
    steps = node.operands[0].type.shape[-2 if op.transpose_x else -1]
    row = result.type.shape[-1] * result.type.dtype.itemsize
    return steps <= _FEW_STEPS and row % LINE_BYTES == 0 and row % (PAGE_BYTES // 2) != 0
