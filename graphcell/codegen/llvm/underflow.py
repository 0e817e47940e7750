"""What becomes of numbers that are too small for all their digits (denormal ones): a program takes them for zero.

Enters: the entry function of a program. Leaves: instructions that tell the processor so, and what the caller had told it.

Intel's processors take some 150 cycles for a multiplication or multiply-add that meets a denormal number, which gradients and an optimizer's
state become while a model converges. As in MindSpore's graph mode and in XLA, results that would be denormal are 0 of the same sign, and so are
operands that are. Moves, selections and conversions of half precision keep them. `Target.flushes` says where: on x86, unless somebody wants them.

Reference: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, sections 10.2.3.3 and 10.2.3.4.
"""

from __future__ import annotations

from graphcell.codegen.llvm.text import I32, VOID, FunctionBuilder, Val, const

_FLUSH = 1 << 15 | 1 << 6  # of MXCSR: results are flushed to zero; denormals (as operands) are zeros


def save_modes(b: FunctionBuilder, place: Val) -> None:
    """Stores the modes of the thread: rounding, and what becomes of denormal numbers. x86 only."""
    b.intrinsic("x86.sse.stmxcsr", VOID, place)


def set_modes(b: FunctionBuilder, place: Val) -> None:
    """The reverse of `save_modes`."""
    b.intrinsic("x86.sse.ldmxcsr", VOID, place)


class Flushing:
    """Two sets of modes, of the caller and of the program; from here on those of the program hold."""

    def __init__(self, b: FunctionBuilder):
        self._callers, self._own = b.alloca(I32), b.alloca(I32)
        save_modes(b, self._callers)
        b.store(b.or_(b.load(self._callers, I32), const(_FLUSH, I32)), self._own)
        self.resume(b)

    def suspend(self, b: FunctionBuilder) -> None:
        """Those of the caller hold, for code that is not ours."""
        set_modes(b, self._callers)

    def resume(self, b: FunctionBuilder) -> None:
        set_modes(b, self._own)
