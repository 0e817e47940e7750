"""Random numbers from a counter-based generator.

The Philox4x32-10 block function (J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns a key and a counter
into random words. The key is the seed; the counter holds the element's index and the number of the random call, so that every element
is computed on its own: eagerly, in graphs, with any number of threads, and again under recomputation, with the same result.

The state is two scalars, the seed and the number of calls so far. A call reads them and raises the second; in a graph they are captured
and written back like a Parameter.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.errors import DTypeError
from graphcell.ir.op import Array, frozen
from graphcell.ir.types import Shape
from graphcell.ops.base import Elementwise, Emitter, Val
from graphcell.ops.creation import Iota
from graphcell.ops.dispatch import apply1, note_change
from graphcell.ops.kernels import composite
from graphcell.tensor import Tensor, state

Grads = tuple[Any, ...]
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint32(0x9E3779B9), np.uint32(0xBB67AE85))
_LOW = np.uint64(0xFFFFFFFF)
_ROUNDS = 10


def philox_words(index: Array, seed: Array, call: Array) -> tuple[Array, Array, Array, Array]:
    """Four uint32 words for each element: counter (index, call), key `seed` (all int64, of one shape)."""
    index, seed, call = (x.astype(np.int64).view(np.uint64) for x in (index, seed, call))
    c = [(x & _LOW).astype(np.uint32) for x in (index, index >> np.uint64(32), call, call >> np.uint64(32))]
    key = [(seed & _LOW).astype(np.uint32), (seed >> np.uint64(32)).astype(np.uint32)]
    with np.errstate(over="ignore"):
        for _ in range(_ROUNDS):
            p0, p1 = c[0].astype(np.uint64) * _MULTIPLIERS[0], c[2].astype(np.uint64) * _MULTIPLIERS[1]
            high0, high1 = (p0 >> np.uint64(32)).astype(np.uint32), (p1 >> np.uint64(32)).astype(np.uint32)
            c = [high1 ^ c[1] ^ key[0], (p1 & _LOW).astype(np.uint32), high0 ^ c[3] ^ key[1], (p0 & _LOW).astype(np.uint32)]
            key = [key[0] + _WEYL[0], key[1] + _WEYL[1]]
    return c[0], c[1], c[2], c[3]


def _words(b: Emitter, index: Val, seed: Val, call: Val) -> tuple[Val, Val, Val, Val]:
    """The same in LLVM IR, on i64 operands."""
    low = index.type.with_kind("i32")

    def halves(x: Val) -> tuple[Val, Val]:
        return b.cast(x, low), b.cast(b.shr(x, b.const(32, x)), low)

    words: tuple[Val, Val, Val, Val] = b.philox(*halves(seed), *halves(index), *halves(call))
    return words


class _Random(Elementwise):
    """Operands: the element's index, the seed, the number of the call (int64)."""

    dtype: DType
    fast = False

    def result_dtype(self, *dtypes: DType) -> DType:
        if any(d is not dt.int64 for d in dtypes):
            raise DTypeError(f"{self.name}: index, seed and call must be Int64, but are {', '.join(map(str, dtypes))}")
        return self.dtype

    def grad(self, inputs: Grads, outputs: Grads, cotangents: Grads) -> Grads:
        return None, None, None


@frozen
class RandomUniform(_Random):
    """Uniform on [0, 1): 24 random bits in float32 and narrower, 53 in float64."""

    dtype: DType
    name = "random_uniform"
    eval_element_nanoseconds = 20.0

    def eval(self, index: Array, seed: Array, call: Array) -> Array:  # type: ignore[override]
        w = philox_words(index, seed, call)
        if self.dtype is dt.float64:
            return (((w[0].astype(np.uint64) << np.uint64(32) | w[1]) >> np.uint64(11)).astype(np.float64)) * 2.0**-53
        return np.asarray((w[0] >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)).astype(self.dtype.np_type)

    def emit(self, b: Emitter, index: Val, seed: Val, call: Val) -> Val:  # type: ignore[override]
        w = _words(b, index, seed, call)
        return _wide_unit(b, w[0], w[1]) if self.dtype is dt.float64 else _unit(b, w[0])


@frozen
class RandomNormal(_Random):
    """Standard normal, by the method of Box and Muller."""

    dtype: DType
    name = "random_normal"
    eval_element_nanoseconds = 40.0

    def eval(self, index: Array, seed: Array, call: Array) -> Array:  # type: ignore[override]
        w = philox_words(index, seed, call)
        if self.dtype is dt.float64:
            far = 1.0 - ((w[0].astype(np.uint64) << np.uint64(32) | w[1]) >> np.uint64(11)).astype(np.float64) * 2.0**-53
            angle = ((w[2].astype(np.uint64) << np.uint64(32) | w[3]) >> np.uint64(11)).astype(np.float64) * 2.0**-53
            return np.asarray(np.sqrt(-2.0 * np.log(far)) * np.cos(2.0 * np.pi * angle))
        one, scale = np.float32(1), np.float32(2.0**-24)
        radius = one - (w[0] >> np.uint32(8)).astype(np.float32) * scale
        turn = (w[1] >> np.uint32(8)).astype(np.float32) * scale
        normal = np.sqrt(np.float32(-2) * np.log(radius)) * np.cos(np.float32(2 * np.pi) * turn)
        return np.asarray(normal).astype(self.dtype.np_type)

    def emit(self, b: Emitter, index: Val, seed: Val, call: Val) -> Val:  # type: ignore[override]
        w = _words(b, index, seed, call)
        wide = self.dtype is dt.float64
        u, turn = (_wide_unit(b, w[0], w[1]), _wide_unit(b, w[2], w[3])) if wide else (_unit(b, w[0]), _unit(b, w[1]))
        radius = b.sub(b.const(1.0, u), u)
        length = b.sqrt(b.mul(b.const(-2.0, u), b.log(radius)))
        return b.mul(length, b.cos(b.mul(b.const(2 * np.pi, turn), turn)))


def _unit(b: Emitter, word: Val) -> Val:
    top = b.shr(word, b.const(8, word))
    value = b.cast(top, word.type.with_kind("float"))
    return b.mul(value, b.const(2.0**-24, value))


def _wide_unit(b: Emitter, high: Val, low: Val) -> Val:
    wide = high.type.with_kind("i64")
    upper = b.cast(high, wide, signed=False)
    both = b.or_(b.shl(upper, b.const(32, upper)), b.cast(low, wide, signed=False))
    value = b.cast(b.shr(both, b.const(11, both)), high.type.with_kind("double"))
    return b.mul(value, b.const(2.0**-53, value))


class Generator:
    """The state of the random numbers: `seed` and `calls`, two Int64 scalars that graphs read and update."""

    def __init__(self, seed: int):
        self.seed = _storage(seed)
        self.calls = _storage(0)

    def reset(self, seed: int) -> None:
        """Starts the sequence of `seed` anew."""
        self.seed.rebind(np.array(seed, np.int64))
        self.calls.rebind(np.array(0, np.int64))

    def next_call(self) -> Tensor:
        """The number of this call; the state is raised for the next one."""
        calls = self.calls
        if state.trace is None:
            number = Tensor.of_array(np.array(calls.array()))
            note_change(calls)
            calls.rebind(np.array(number.array() + 1, np.int64))
            return number
        value = Tensor.of_value(state.trace.read(calls))
        state.trace.write(calls, state.trace.read(value + 1))  # type: ignore[operator]
        return value


def _storage(value: int) -> Tensor:
    before, state.trace = state.trace, None
    try:
        tensor = Tensor.of_array(np.array(value, np.int64))
    finally:
        state.trace = before
    tensor._persistent = True
    return tensor


generator = Generator(int.from_bytes(os.urandom(4), "little"))
"""The process's generator."""


def random(op: RandomUniform | RandomNormal, shape: Shape, source: Generator | None = None) -> Tensor:
    """A Tensor of `shape` of fresh random numbers."""
    source = source or generator
    call = source.next_call()
    return _uniform(op.dtype, shape, source.seed, call) if isinstance(op, RandomUniform) else _numbers(op, shape, source.seed, call)


def _numbers(op: RandomUniform | RandomNormal, shape: Shape, seed: Tensor, call: Tensor) -> Tensor:
    """The numbers of one call."""
    from graphcell.ops.functional.common import broadcast

    size = int(np.prod(shape, dtype=np.int64))
    index = apply1(Iota((size,), 0, dt.int64)).reshape(shape)  # type: ignore[attr-defined]
    return apply1(op, index, broadcast(seed, shape), broadcast(call, shape))


@composite
def _uniform(dtype: DType, shape: Shape, seed: Tensor, call: Tensor) -> Tensor:
    """Uniform ones, natively in eager mode too: they are the same to the last bit, which normal ones would not be."""
    return _numbers(RandomUniform(dtype), shape, seed, call)
