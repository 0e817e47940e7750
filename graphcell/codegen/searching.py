"""From searches in sorted sequences to the plan of their kernel.

Enters: an op and the site where its kernel is emitted. Leaves: the plan, or None for dtypes that have no type in LLVM.
"""

from __future__ import annotations

import math

from graphcell.codegen.llvm.contraction import Plan
from graphcell.codegen.llvm.searching import SearchKernel, emit_search
from graphcell.codegen.native import Site
from graphcell.ops.sorting import SearchSorted


def emit_search_op(op: SearchSorted, site: Site) -> Plan | None:
    sequence, values = site.types
    if not sequence.dtype.llvm:
        return None
    shared = sequence.rank == 1
    rows, count = (1, values.size) if shared else (math.prod(values.shape[:-1]), values.shape[-1])
    kernel = SearchKernel(sequence.dtype, rows, count, sequence.shape[-1], shared, op.right)
    return emit_search(site.module, site.name, kernel, site.target)
