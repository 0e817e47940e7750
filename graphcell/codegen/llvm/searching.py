"""Emits binary searches in sorted sequences, for a vector of values at a time.

Enters: a `SearchKernel`. Leaves: a function of the module and the `Plan` to call it: buffers a (sequences), b (values), c (how many elements of the
sequence come before each value, i64).

Every lane halves its own part of the sequence; all lanes take as many steps, which the length of the sequence tells, so there are no branches, and
nothing beyond the sequence is read whatever the order of its elements. NaN come after all numbers.

Reference: D. E. Knuth, "The Art of Computer Programming", volume 3, 6.2.1 (uniform binary search).
"""

from __future__ import annotations

from graphcell.codegen.llvm.body import BodyBuilder, storage_type
from graphcell.codegen.llvm.contraction import Plan, Stage, affine, ceil_div, split_index
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.text import I64, PTR, LType, Module, Val, const, constant_mask, i64
from graphcell.dtype import DType
from graphcell.records import dataclass

_VALUES = 512  # of a block
_STEP = 20  # rough instructions of a step for a value, of which gathering an element is most


@dataclass(frozen=True)
class SearchKernel:
    """`rows` times `values` values, each searched in the sequence of `extent` elements of its row, or with `shared` in the only one there is.

    Elements that equal a value come before it with `right`.
    """

    dtype: DType
    rows: int
    values: int
    extent: int
    shared: bool
    right: bool

    def __str__(self) -> str:
        return f"search {self.dtype} ({self.rows} x {self.values} in {'one of ' if self.shared else ''}{self.extent}, {'right' if self.right else 'left'})"


def emit_search(module: Module, name: str, kernel: SearchKernel, target: Target) -> Plan | None:
    """Emits `void name(ptr a, ptr b, ptr c, i64 begin, i64 end)`, whose blocks are some values of a row; None for sequences that no i32 counts."""
    if not kernel.rows * kernel.values:
        return Plan((), note="empty output")
    if kernel.extent >= 1 << 31:
        return None
    buffers, chunks = ("a", "b", "c"), ceil_div(kernel.values, _VALUES)
    b = BodyBuilder(module, name, [*((n, PTR) for n in buffers), ("begin", I64), ("end", I64)], internal=False)
    lanes = max(1, target.vector_bytes // max(4, kernel.dtype.itemsize))
    with b.loop(b.args["begin"], b.args["end"], name="block") as loop:
        row, chunk = split_index(b, loop.index, (kernel.rows, chunks))
        first = b.mul(chunk, i64(_VALUES))
        past = b.binary("smin", b.add(first, i64(_VALUES)), i64(kernel.values))
        sequence = b.args["a"] if kernel.shared else b.gep(b.args["a"], affine(b, [(row, kernel.extent)]), storage_type(kernel.dtype))
        start = affine(b, [(row, kernel.values)])
        search = _Search(b, kernel, sequence, b.gep(b.args["b"], start, storage_type(kernel.dtype)), b.gep(b.args["c"], start, I64), lanes)
        whole = b.add(first, b.and_(b.sub(past, first), i64(-lanes)))
        with b.loop(first, whole, lanes, name="values") as at:
            search.emit(at.index, None)
        with b.if_then(b.icmp("slt", whole, past)):
            search.emit(whole, b.lane_mask(b.sub(past, whole), lanes))
    steps = kernel.extent.bit_length() + 1
    stage = Stage(b.finish(), buffers, (), kernel.rows * chunks, min(_VALUES, kernel.values) * steps * _STEP)
    return Plan((stage,), note=str(kernel))


@dataclass(frozen=True)
class _Search:
    """The values of a row, a vector of them at a time."""

    b: BodyBuilder
    kernel: SearchKernel
    sequence: Val
    values: Val
    results: Val
    lanes: int

    def emit(self, at: Val, mask: Val | None) -> None:
        b, kernel = self.b, self.kernel
        value = b.load_value(b.gep(self.values, at, storage_type(kernel.dtype)), kernel.dtype, self.lanes, mask)
        index = LType("i32", self.lanes)
        found, left = const(0, index), kernel.extent
        while left > 1:
            half = left // 2
            passed = self._comes_before(b.add(found, const(half - 1, index)), value)
            found = b.select(passed, b.add(found, const(half, index)), found)
            left -= half
        if left:
            found = b.select(self._comes_before(found, value), b.add(found, const(1, index)), found)
        count, to = b.cast(found, LType("i64", self.lanes), signed=False), b.gep(self.results, at, I64)
        if mask is None:
            b.store(count, to)
        else:
            b.masked_store(count, to, mask)

    def _comes_before(self, places: Val, value: Val) -> Val:
        """Whether the elements at `places` come before the values."""
        b, dtype, right = self.b, self.kernel.dtype, self.kernel.right
        wide = b.cast(places, LType("i64", self.lanes), signed=False)
        element = b.gather_value(b.gep_vector(self.sequence, wide, storage_type(dtype)), dtype, constant_mask(self.lanes, self.lanes))
        if not dtype.is_float:
            return b.icmp(("s" if dtype.signed else "u") + ("le" if right else "lt"), element, value)
        no_number = b.fcmp("uno", value, value)
        last = no_number if right else b.and_(no_number, b.fcmp("ord", element, element))
        return b.or_(b.fcmp("ole" if right else "olt", element, value), last)
