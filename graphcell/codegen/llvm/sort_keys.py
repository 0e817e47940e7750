"""What is sorted, and the keys and words that stand for elements while they are (sorting.py, first_few.py, sorting_network.py)."""

from __future__ import annotations

from graphcell.codegen.llvm.text import FunctionBuilder, LType, Val
from graphcell.dtype import DType
from graphcell.records import dataclass

INSERTED = 32
"""Words that are inserted one by one: counting digits takes some thousand cycles however few they are."""
_COUNTED = {1: 64, 2: 96, 4: 128, 8: 128}  # elements of a row up to which they are counted, by their bytes
_FIRST_COUNTED = {1: 64, 2: 64, 4: 64, 8: 32}  # the same where only a few are asked for
_FIRST_ALONE_COUNTED = {1: 40, 2: 48, 4: 48, 8: 16}  # and where it is the first one
_FEWEST_COUNTED = 6
ROOM = 3
"""Times k that the buffer of the first k has room for."""


@dataclass(frozen=True)
class SortKernel:
    """The first `count` of the sorted order of `extent` elements `inner` apart, in `rows` times `inner` sequences.

    Results lie as the array does, `count` in the place of `extent`.
    """

    dtype: DType
    rows: int
    extent: int
    inner: int
    count: int
    descending: bool

    def __str__(self) -> str:
        order = "descending" if self.descending else "ascending"
        part = "" if self.count == self.extent else f"first {self.count} of "
        return f"sort {self.dtype} ({self.rows} x {part}{self.extent} x {self.inner}, {order})"

    @property
    def bits(self) -> int:
        """Of an element in memory, and of its key."""
        return self.dtype.itemsize * 8

    @property
    def word(self) -> LType:
        return LType("i64" if self.bits <= 32 else "i128")

    @property
    def shift(self) -> int:
        """The bits of a word below its key."""
        return 32 if self.bits <= 32 else 64

    @property
    def sequences(self) -> int:
        return self.rows * self.inner

    @property
    def counts(self) -> bool:
        """Whether the place of each element is found by counting."""
        if self.count == 1 < self.extent:
            most = _FIRST_ALONE_COUNTED
        else:
            most = _COUNTED if 8 * self.count >= self.extent else _FIRST_COUNTED
        return _FEWEST_COUNTED <= self.extent <= most[self.bits // 8]

    @property
    def key(self) -> LType:
        """Of a key in memory where elements are counted."""
        return LType("i64" if self.bits == 64 else "i32")

    @property
    def inserts(self) -> bool:
        """Whether the first elements are so few that others are inserted among them."""
        return self.count <= INSERTED

    def buffer(self, lanes: int) -> int:
        """Words that are sorted at first: all, or so many that what follows is a whole number of vectors."""
        least = self.count if self.inserts else ROOM * self.count + lanes
        if self.inner != 1 or (not self.inserts and 2 * least > self.extent):
            return self.extent
        return least + (self.extent - least) % lanes


def keys_of(b: FunctionBuilder, kernel: SortKernel, bits: Val) -> Val:
    """The keys of elements whose bits these are: their unsigned order is the order asked for."""
    size = kernel.bits
    sign = b.const(1 << (size - 1), bits)
    if kernel.dtype.is_float:
        magnitude = b.and_(bits, b.const((1 << (size - 1)) - 1, bits))
        zero = b.icmp("eq", magnitude, b.const(0, bits))
        bits = b.select(zero, magnitude, bits)
        negative = b.shr(bits, b.const(size - 1, bits), signed=True)
        key = b.xor(bits, b.or_(negative, sign))
        key = b.select(b.icmp("ugt", magnitude, b.const(_infinity(kernel.dtype), bits)), b.const(-1, bits), key)
    elif kernel.dtype.signed:
        key = b.xor(bits, sign)
    else:
        key = bits
    return b.xor(key, b.const(-1, bits)) if kernel.descending else key


def _infinity(dtype: DType) -> int:
    """The bits of infinity: those of larger magnitude are NaN."""
    exponent, fraction = {"half": (5, 10), "bfloat": (8, 7), "float": (8, 23), "double": (11, 52)}[dtype.llvm]
    return ((1 << exponent) - 1) << fraction
