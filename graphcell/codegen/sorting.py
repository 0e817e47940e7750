"""From the sorting ops to the plan of their kernel.

Enters: an op and the site where its kernel is emitted. Leaves: the plan, or None for dtypes that have no type in LLVM.
"""

from __future__ import annotations

import math

from graphcell.codegen.llvm.contraction import Plan
from graphcell.codegen.llvm.sort_keys import SortKernel
from graphcell.codegen.llvm.sorting import emit_sort
from graphcell.codegen.native import Site
from graphcell.ops.sorting import Sort, TopK


def emit_sort_op(op: Sort | TopK, site: Site) -> Plan | None:
    (x,) = site.types
    if not x.dtype.llvm:
        return None
    count, descending = (op.k, op.largest) if isinstance(op, TopK) else (x.shape[op.axis], op.descending)
    kernel = SortKernel(x.dtype, math.prod(x.shape[: op.axis]), x.shape[op.axis], math.prod(x.shape[op.axis + 1 :]), count, descending)
    return emit_sort(site.module, site.name, kernel, site.target)
