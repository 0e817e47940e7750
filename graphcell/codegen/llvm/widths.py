"""How wide the vectors of a loop nest are: the lanes of a register, and how many registers a vector fills.

Enters: a kernel (codegen/kernel.py) whose vector loop is chosen. Leaves: numbers of lanes, which those that emit it and those that count its blocks share.
"""

from __future__ import annotations

from graphcell.codegen.kernel import GatherLoad, Load, LoopKernel
from graphcell.codegen.llvm.body import compute_type
from graphcell.codegen.llvm.processor import Target
from graphcell.ops.mathematics import Digamma, Lgamma, Pow
from graphcell.passes.costs import SMALL_STRIDE

_FEWEST_LANES = 4
_ONE_MASKED = 2
"""Time that an element of 8 or 16 bits takes under a mask before AVX-512, in that of a vector. Measured on Zen 3: of rows of 15 lengths from 11 to 998 bytes
none takes more than 1.3 of the time that it takes by the best width."""
_REGISTERS = 4
"""Registers of a vector in kernels of polynomials."""
_REGISTERS_OF_LONG = 2
"""The same where one of the longest functions of floats is computed in double, which takes twice as many, or where there are several powers, whose code
would not stay in the cache of decoded instructions. Measured on Zen 3: kernels with lgamma and digamma take 0.75 of the time that they took with four
registers, and half as long to compile; those with several powers and their slopes 0.82 to 1.05."""
_MOST_LIVE = 24
"""Values that are waited for at one time, beside which as many instructions of AVX-512 store and load those of four registers as compute. Measured on Zen 4:
kernels with 27 and 38 of them take 0.95 and 0.92 of the time with two registers, one with 22 takes 1.09."""
_MOST_STREAMS = 16
"""Of memory, beside which several registers' values on the stack would not stay in the L1 cache. Measured on Zen 3: a kernel with 26 streams takes half of the
time with one register."""
_CHAINS = (100, 4), (80, 2)
"""Cycles of the longest chain of instructions from which a vector of floats fills so many registers with AVX-512. Measured on Zen 4: of 40 kernels with
chains of 80 to 190 cycles most take 0.87 to 1 of the time with two registers, four 1.02 to 1.05. With four instead of two, programs with chains from 100
on take 0.84 to 1.01 of the time, those with shorter ones 1 to 1.04."""
_CHAIN_OF_STAGES, _FEW_STAGES = 190, 3
"""The same for four registers of kernels of more stages than a few, or of as many that add up columns beside their rows: with shorter chains layer norm and
GELU takes 1.09 of the time so, other norms 0.98 to 1.03."""
_MOST_WASTED = 1 / 16
"""Part of these registers that may lie beyond the end of a row."""


def lanes_of(kernel: LoopKernel, target: Target) -> int:
    """Lanes of the kernel's vectors: those of one register or of several."""
    return register_lanes(kernel, target) * registers_of(kernel, target)


def register_lanes(kernel: LoopKernel, target: Target) -> int:
    """Lanes of a register of the widest float that the kernel computes with (integers take more registers instead), or of its integers of 8 or 16 bits,
    if it has nothing else.

    A vector loop of few iterations gets shorter vectors.
    """
    kinds = {compute_type(s.dtype).kind for s in kernel.body}
    floats = kinds & {"float", "double"}
    if kinds <= {"i8", "i16", "i1"} and _goes_along_memory(kernel, target):
        return _lanes_of_short(kernel, target, "i16" if "i16" in kinds else "i8")
    if floats:
        lanes = target.lanes("double" if "double" in floats else "float")
    else:
        lanes = target.lanes("i32" if kinds - {"i64", "i1"} or kinds == {"i1"} else "i64")
    extent = kernel.extents[kernel.vector] if kernel.vector >= 0 else lanes
    while lanes > _FEWEST_LANES and lanes >= 2 * extent:
        lanes //= 2
    return lanes


def _goes_along_memory(kernel: LoopKernel, target: Target) -> bool:
    """Whether rows are read and written element by element, without masks where these are slow."""
    if kernel.vector < kernel.outer or kernel.tile >= 0 or kernel.group >= 0:
        return False
    loads = [s.what for s in kernel.body if isinstance(s.what, (Load, GatherLoad))]
    if not all(isinstance(load, Load) and (target.avx512 or not load.guards) for load in loads):
        return False
    return all(abs(a.strides[kernel.vector]) <= 1 for a in (*(load.access for load in loads), *(store.access for store in kernel.stores)))


def _lanes_of_short(kernel: LoopKernel, target: Target, kind: str) -> int:
    """Of a whole register, or fewer if that leaves so many elements at the end of each row, which go one by one before AVX-512, that it takes longer."""
    extent, whole = kernel.extents[kernel.vector], target.lanes(kind)
    widths = [whole >> k for k in range(whole.bit_length()) if _FEWEST_LANES <= whole >> k < 2 * extent] or [_FEWEST_LANES]
    if kernel.is_run or target.avx512:
        return widths[0]
    return min(widths, key=lambda lanes: extent // lanes + _ONE_MASKED * (extent % lanes))


def registers_of(kernel: LoopKernel, target: Target) -> int:
    """How many registers a vector of the kernel fills: several where what is computed takes long, since its instructions wait for each other.

    A processor looks a few hundred instructions ahead for others, little more than one long chain of them. With instructions on several registers in turn
    it finds those of another vector. Before AVX-512, and in double, that is so for each exponential, tanh or erf, which is a polynomial: kernels with such
    functions take a tenth to a third less time (Zen 4 with AVX2, benchmarks/peers). With AVX-512 the functions of float look tables up instead; kernels
    that have no doubles go by the longest chain.
    """
    if kernel.vector < 0 or kernel.tile >= 0:
        return 1
    functions = [s for s in kernel.body if s.is_slow]
    registers = _registers_of_chain(kernel) if target.avx512 and _has_no_doubles(kernel) else _REGISTERS if functions else 1
    if registers == 1:
        return 1
    if any(kernel.body[n].dtype.is_integer for s in functions for n in s.args):  # of 64 bits, they take twice the registers
        return 1
    loads = (s.what for s in kernel.body if isinstance(s.what, Load))
    if any(1 < abs(load.access.strides[kernel.vector]) <= SMALL_STRIDE for load in loads):  # these are put together from registers
        return 1
    accesses = [*(s.access for s in kernel.stores), *(s.what.access for s in kernel.body if isinstance(s.what, Load))]
    if sum(access.strides[kernel.vector] != 0 for access in accesses) > _MOST_STREAMS:
        return 1
    vectors = -(-kernel.extents[kernel.vector] // register_lanes(kernel, target))
    of_floats = [s.what for s in functions if compute_type(s.dtype).kind == "float"]
    if any(isinstance(f, (Lgamma, Digamma)) for f in of_floats) or sum(isinstance(f, Pow) for f in of_floats) > 1:
        registers = min(registers, _REGISTERS_OF_LONG)
    if target.avx512 and _most_live(kernel) > _MOST_LIVE:
        registers = min(registers, _REGISTERS_OF_LONG)
    while -vectors % registers > vectors * _MOST_WASTED:
        registers //= 2
    return registers


def _has_no_doubles(kernel: LoopKernel) -> bool:
    return all(compute_type(s.dtype).kind != "double" for s in kernel.body)


def _registers_of_chain(kernel: LoopKernel) -> int:
    """By the longest chain of instructions that one vector takes, or a part of the chain before or after a reduction."""
    longest = [0] * len(kernel.body)
    for n, s in enumerate(kernel.body):
        if s.loops >> kernel.vector & 1 and not s.is_reduction:
            longest[n] = max((longest[a] for a in s.args), default=0) + s.latency
    chain = max(longest, default=0)
    registers = next((registers for cycles, registers in _CHAINS if chain >= cycles), 1)
    few_do = kernel.stages + (kernel.summed > 0) > _FEW_STAGES and chain < _CHAIN_OF_STAGES
    return min(registers, _REGISTERS_OF_LONG) if few_do else registers


def _most_live(kernel: LoopKernel) -> int:
    """How many values of a vector are still waited for at one time, if each is computed in its turn."""
    last = {a: n for n, s in enumerate(kernel.body) for a in s.args}
    live, most = set[int](), 0
    for n, s in enumerate(kernel.body):
        live = {a for a in (live | {n} if s.loops >> kernel.vector & 1 else live) if last.get(a, n) > n}
        most = max(most, len(live))
    return most
