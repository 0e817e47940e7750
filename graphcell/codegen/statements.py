"""The statements of a kernel while they are rewritten.

Enters: statements in order, each kept or replaced by others. Leaves: a kernel.
"""

from __future__ import annotations

from dataclasses import replace

from graphcell.codegen.kernel import LoopKernel, Statement


class Body:
    """Statements, and which of them stand for those of a kernel."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.number: list[int] = []

    def add(self, s: Statement) -> int:
        self.statements.append(s)
        return len(self.statements) - 1

    def keep(self, s: Statement) -> None:
        self.number.append(self.add(replace(s, args=tuple(self.number[a] for a in s.args))))

    def of(self, kernel: LoopKernel) -> LoopKernel:
        if len(self.statements) == len(kernel.body):
            return kernel
        return replace(kernel, body=tuple(self.statements), stores=tuple(replace(s, local=self.number[s.local]) for s in kernel.stores))
