"""Steps of linear algebra: triangular systems; of small matrices systems of equations, inverses, determinants, Cholesky factors, too.
LAPACK takes larger ones.

Enters: a node and the places of its values. Leaves: calls in the entry function, of the host where a matrix has no result: that raises the
error. `LinearAlgebra` is what a frame of lower.py inherits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from graphcell.codegen.llvm.text import I32, FunctionBuilder, const
from graphcell.codegen.lowering import Calls
from graphcell.codegen.movement import Movement
from graphcell.codegen.program import HostCall
from graphcell.ir.graph import Node
from graphcell.locks import whole
from graphcell.ops.linear_algebra import Cholesky, Determinant, Inverse, SignLogDeterminant, Solve, SolveTriangular

if TYPE_CHECKING:
    from graphcell.codegen.llvm.cholesky import CholeskyKernel
    from graphcell.codegen.llvm.elimination import EliminationKernel
    from graphcell.codegen.llvm.triangular import TriangularKernel

    MatrixKernel = EliminationKernel | CholeskyKernel | TriangularKernel


def matrix_kernel(node: Node) -> MatrixKernel | None:
    """The kernel of an op of linear algebra; None where LAPACK is quicker, or alone can do it."""
    op = node.op
    if not isinstance(op, (Cholesky, Determinant, Inverse, SignLogDeterminant, Solve, SolveTriangular)):
        return None
    with whole:  # few programs need these
        from graphcell.codegen.llvm.cholesky import CholeskyKernel
        from graphcell.codegen.llvm.elimination import EliminationKernel
        from graphcell.codegen.llvm.triangular import TriangularKernel

    a = node.operands[0].type
    matrices, rows = math.prod(a.shape[:-2]), a.shape[-1]
    if isinstance(op, Cholesky):
        kernel: MatrixKernel = CholeskyKernel(a.dtype, matrices, rows)
    elif isinstance(op, SolveTriangular):
        kernel = TriangularKernel(a.dtype, matrices, rows, node.operands[1].type.shape[-1], op.transposed)
    else:
        kernel = EliminationKernel(op.name, a.dtype, matrices, rows, node.operands[1].type.shape[-1] if isinstance(op, Solve) else 0)
    return kernel if kernel.fits else None


class LinearAlgebra(Movement):
    """The steps of a frame that do linear algebra."""

    def emit_on_matrices(self, b: FunctionBuilder, node: Node, kernel: MatrixKernel, otherwise: HostCall, call: Calls) -> None:
        name = self.lowering.function(node.op.name, kernel, lambda name: self._emit_kernel(name, kernel))
        places = [self.place_of(v) for v in (*node.operands, *node.results)]
        failed = b.alloca(I32)
        b.store(const(0, I32), failed)
        buffers = [*places, failed] if kernel.may_fail else places
        blocks = kernel.blocks(self.lowering.target)
        with self.lowering.step(b, name, str(kernel), blocks):
            call.blocks(b, name, buffers, blocks, kernel.cost)
        if kernel.may_fail:
            with b.if_then(b.icmp("ne", b.load(failed, I32), const(0, I32))):
                call.host(b, otherwise, places)

    def _emit_kernel(self, name: str, kernel: MatrixKernel) -> str:
        with whole:  # few programs need these
            from graphcell.codegen.llvm.cholesky import CholeskyKernel, emit_cholesky
            from graphcell.codegen.llvm.elimination import emit_elimination
            from graphcell.codegen.llvm.triangular import TriangularKernel, emit_triangular

        module, target = self.lowering.module, self.lowering.target
        if isinstance(kernel, CholeskyKernel):
            return emit_cholesky(module, name, kernel)
        return emit_triangular(module, name, kernel, target) if isinstance(kernel, TriangularKernel) else emit_elimination(module, name, kernel, target)
