"""Numbers of half precision that are only moved, as integers of as many bits: they need no conversion to float and back, and keep each bit of a NaN.

Enters: a kernel whose vector loop is not chosen yet. Leaves: an equal one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphcell.codegen.kernel import GatherLoad, Load, LoopKernel, Splat, Statement
from graphcell.codegen.legalize import Copy
from graphcell.dtype import DType, int16


def moved_as_bits(kernel: LoopKernel) -> LoopKernel:
    """The kernel with integers for its halves, if it computes nothing of these."""
    if not any(map(_is_half, kernel.operands)) or any(_is_half(s.dtype) and not isinstance(s.what, (Load, GatherLoad, Copy)) for s in kernel.body):
        return kernel
    if any(_is_half(kernel.body[a].dtype) and not isinstance(s.what, Copy) for s in kernel.body for a in s.args):
        return kernel
    return replace(kernel, body=tuple(map(_of_bits, kernel.body)), operands=tuple(map(bits_of, kernel.operands)))


def bits_of(dtype: DType) -> DType:
    """What stands for numbers of `dtype` that are only moved."""
    return int16 if _is_half(dtype) else dtype


def _is_half(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits == 16


def _of_bits(s: Statement) -> Statement:
    what = s.what
    if isinstance(what, GatherLoad):
        what = replace(what, dtype=bits_of(what.dtype))
    elif isinstance(what, Load):
        what = replace(what, dtype=bits_of(what.dtype), outside=what.outside and _number_of_bits(what.outside))
    return replace(s, what=what, dtype=bits_of(s.dtype))


def _number_of_bits(number: Splat) -> Splat:
    if not _is_half(number.dtype):
        return number
    return Splat(int(np.array(number.value, number.dtype.np_type).view(np.int16)), int16)
