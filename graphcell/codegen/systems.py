"""Steps of linear algebra on small matrices: systems of equations, inverses, determinants, Cholesky factors. LAPACK takes larger ones.

Enters: a node and the places of its values. Leaves: calls in the entry function, of the host where a matrix has no result: that raises the
error. `Systems` is what a frame of lower.py inherits.
"""

from __future__ import annotations

import math

from graphcell.codegen.llvm.cholesky import CholeskyKernel, emit_cholesky
from graphcell.codegen.llvm.elimination import EliminationKernel, emit_elimination
from graphcell.codegen.llvm.text import I32, FunctionBuilder, const
from graphcell.codegen.lowering import PARALLEL_FROM, Calls
from graphcell.codegen.movement import Movement
from graphcell.codegen.program import HostCall
from graphcell.ir.graph import Node
from graphcell.ops.linear_algebra import Cholesky, Determinant, Inverse, SignLogDeterminant, Solve

SmallKernel = EliminationKernel | CholeskyKernel


def small_kernel(node: Node) -> SmallKernel | None:
    """The kernel of an op of linear algebra, if its matrices are small."""
    op = node.op
    if not isinstance(op, (Cholesky, Determinant, Inverse, SignLogDeterminant, Solve)):
        return None
    a = node.operands[0].type
    matrices, rows = math.prod(a.shape[:-2]), a.shape[-1]
    if isinstance(op, Cholesky):
        kernel: SmallKernel = CholeskyKernel(a.dtype, matrices, rows)
    else:
        kernel = EliminationKernel(op.name, a.dtype, matrices, rows, node.operands[1].type.shape[-1] if isinstance(op, Solve) else 0)
    return kernel if kernel.fits else None


class Systems(Movement):
    """The steps of a frame that work on small matrices."""

    def emit_small(self, b: FunctionBuilder, node: Node, kernel: SmallKernel, otherwise: HostCall, call: Calls) -> None:
        name = self.lowering.function(node.op.name, kernel, lambda name: self._emit_kernel(name, kernel))
        places = [self.place_of(v) for v in (*node.operands, *node.results)]
        failed = [b.alloca(I32)] if kernel.may_fail else []
        for flag in failed:
            b.store(const(0, I32), flag)
        with self.lowering.step(b, name, str(kernel), kernel.matrices):
            call.blocks(b, name, [*places, *failed], kernel.matrices, kernel.cost >= PARALLEL_FROM)
        for flag in failed:
            with b.if_then(b.icmp("ne", b.load(flag, I32), const(0, I32))):
                call.host(b, otherwise, places)

    def _emit_kernel(self, name: str, kernel: SmallKernel) -> str:
        module, target = self.lowering.module, self.lowering.target
        return emit_cholesky(module, name, kernel) if isinstance(kernel, CholeskyKernel) else emit_elimination(module, name, kernel, target)
