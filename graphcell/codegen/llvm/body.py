"""The builder that ops' `emit` methods see: LLVM instructions, vector mathematics, and conversions between dtypes."""

from __future__ import annotations

from typing import Any

from graphcell.codegen.llvm import math
from graphcell.codegen.llvm.text import I64, FunctionBuilder, LType, Val
from graphcell.dtype import DType
from graphcell.locks import whole

_FUNCTIONS = frozenset(math.__all__)
_WORDS = {"i1": "i8", "half": "i16", "bfloat": "i16"}
"""Integers as which such elements are loaded one by one."""


def storage_type(dtype: DType, lanes: int = 0) -> LType:
    """The LLVM type of `dtype` in memory."""
    return LType(dtype.llvm, lanes)


def compute_type(dtype: DType, lanes: int = 0) -> LType:
    """The LLVM type in which values of `dtype` are computed: half precision is widened to float."""
    return LType("float" if dtype.llvm in ("half", "bfloat") else dtype.llvm, lanes)


class BodyBuilder(FunctionBuilder):
    """A FunctionBuilder on which every function of codegen/llvm/math.py is a method: `b.exp(x)`.

    `dtypes` are the dtypes of the operands of the op that is being emitted, since LLVM integers carry no sign.
    """

    dtypes: tuple[DType, ...] = ()

    @staticmethod
    def extending(b: FunctionBuilder) -> BodyBuilder:
        """A builder that appends to the same function as `b`."""
        body = BodyBuilder.__new__(BodyBuilder)
        body.__dict__ = b.__dict__
        return body

    def __getattr__(self, name: str) -> Any:
        if name not in _FUNCTIONS:
            raise AttributeError(f"neither an instruction nor a vector function: {name}")
        function = vars(math).get(name)
        if function is None:
            with whole:  # the module of its subject is imported
                function = getattr(math, name)
        return lambda *operands: function(self, *operands)

    def load_value(self, pointer: Val, dtype: DType, lanes: int, mask: Val | None = None) -> Val:
        """Loads a scalar (0 lanes) or a vector and widens it to the type of computation."""
        stored, wide = storage_type(dtype, lanes), compute_type(dtype, lanes)
        return self.load_as(pointer, stored, wide) if mask is None else self.cast(self.masked_load(pointer, mask, stored), wide)

    def store_value(self, value: Val, pointer: Val, dtype: DType, mask: Val | None = None) -> None:
        """Stores what `load_value` loads; of a vector with a mask, the lanes that are on."""
        stored = self.narrow(value, dtype)
        if mask is None:
            self.store(stored, pointer)
        else:
            self.masked_store(stored, pointer, mask)

    def gather_value(self, pointers: Val, dtype: DType, mask: Val) -> Val:
        lanes = pointers.type.lanes
        return self.cast(self.gather(pointers, mask, storage_type(dtype, lanes)), compute_type(dtype, lanes))

    def gather_each(self, pointer: Val, places: Val, dtype: DType, count: int) -> Val:
        """The first `count` lanes of what lies at `places` from `pointer`, the others are zero: element by element, whose addresses are made of places more
        quickly than taken out of vectors of pointers, which are longer, as a gather does it where LLVM finds none of the processor's own worth while: on AMD's
        before AVX-512, and on Haswell.
        """
        stored, lanes = storage_type(dtype, places.type.lanes), places.type.lanes
        as_words = stored.with_kind(_WORDS.get(stored.kind, stored.kind))
        word = as_words.with_lanes(0)
        result = Val("zeroinitializer" if count < lanes else "poison", as_words)
        for k in range(count):
            at = self.cast(self.extract(places, k), I64)
            result = self.insert(result, self.load(self.gep(pointer, at, word), word), k)
        if stored.kind == "i1":
            return self.icmp("ne", result, self.const(0, result))
        return self.cast(result if as_words == stored else self.bitcast(result, stored), compute_type(dtype, lanes))

    def narrow(self, value: Val, dtype: DType) -> Val:
        """From the type of computation to that of memory."""
        return self.cast(value, storage_type(dtype, value.type.lanes))

    def _rounded(self, x: Val, dtype: DType) -> Val:
        """`x` with no more digits than `dtype` has, in the type of computation."""
        if dtype.bits == 16 and x.type.kind == "float":
            return self.rounded_to(dtype.llvm, x)
        return self.cast(self.narrow(x, dtype), compute_type(dtype, x.type.lanes))

    def convert(self, x: Val, source: DType, target: DType) -> Val:
        """`x` of dtype `source` as dtype `target`: floats truncate and saturate to integers, anything to Bool is `x != 0`.

        Half precision is computed in float, which may have digits that `source` has not: they go first.
        """
        lanes = x.type.lanes
        if source.is_float and source.bits == 16 and target is not source:
            x = self._rounded(x, source)
        if target.is_bool:
            zero = self.const(0, x)
            if source.is_bool:
                return x
            return self.fcmp("une", x, zero) if source.is_float else self.icmp("ne", x, zero)
        if source.is_float and target.is_float:
            narrower = target.bits < source.bits or target.bits == source.bits == 16
            return self._rounded(x, target) if narrower else self.cast(x, compute_type(target, lanes))
        return self.cast(x, compute_type(target, lanes), signed=target.signed if source.is_float else source.signed)
