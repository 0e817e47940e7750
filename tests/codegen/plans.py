"""Runs the plans of contractions on guarded memory, for the tests of matmul and convolution."""

from __future__ import annotations

import ctypes
import itertools
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphcell.codegen.llvm.contraction import Plan, Stage
from graphcell.codegen.llvm.target import Library, Target, compile_object, host, load_object
from graphcell.codegen.llvm.text import Module
from tests.codegen.harness import NUMPY_TYPES

PAGE = mmap.PAGESIZE
CANARY = 0xA5


def without_tiles(target: Target) -> Target:
    """The processor without registers for tiles of matrices."""
    return replace(target, features=target.features.replace("+amx", "-amx"))


TARGETS = {width: without_tiles(host(str(width))) for width in (16, 32, 64) if width <= host("").vector_bytes}
"""By the bytes of a vector. Products with tile registers have tests of their own (test_matmul_tiles.py)."""
Array = NDArray[Any]


@dataclass
class Guarded:
    """An array whose last (or first) byte touches a page that cannot be accessed; the rest of its pages holds
    canaries.
    """

    array: Array
    _region: mmap.mmap
    _raw: Array
    _offset: int

    @property
    def address(self) -> int:
        return int(self.array.ctypes.data)

    def check(self, name: str) -> None:
        before, after = self._raw[PAGE : self._offset], self._raw[self._offset + self.array.nbytes : -PAGE]
        assert (before == CANARY).all() and (after == CANARY).all(), (
            f"{name}: written outside its {self.array.nbytes} bytes"
        )


def guarded(shape: tuple[int, ...], dtype: np.dtype[Any], *, at_end: bool = True) -> Guarded:
    """An uninitialised array against a guard page at its end (or at its beginning)."""
    size = int(np.prod(shape)) * dtype.itemsize
    room = max(1, -(-size // PAGE)) * PAGE
    region = mmap.mmap(-1, room + 2 * PAGE)
    raw = np.frombuffer(region, np.uint8)
    raw[:] = CANARY
    offset = PAGE + (room - size if at_end else 0)
    array = raw[offset : offset + size].view(dtype).reshape(shape)
    libc = ctypes.CDLL(None, use_errno=True)
    base = raw.ctypes.data
    for page in (base, base + PAGE + room):
        if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    return Guarded(array, region, raw, offset)


@dataclass
class Runner:
    """A compiled plan; calling it with arrays runs every stage and checks all guards."""

    plan: Plan
    library: Library
    chunks: Callable[[int], Sequence[tuple[int, int]]] = field(default=lambda blocks: [(0, blocks)])

    def __call__(
        self,
        inputs: dict[str, Array],
        output: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        at_end: bool = True,
    ) -> Array:
        buffers = {}
        for name, array in inputs.items():
            buffers[name] = guarded(array.shape, array.dtype, at_end=at_end)
            buffers[name].array[...] = array
        buffers[output] = guarded(shape, dtype, at_end=at_end)
        buffers[output].array.view(np.uint8)[...] = 0xFF  # NaN
        for name, size in self.plan.shared:
            buffers[name] = self._scratch(size)
        for stage in self.plan.stages:
            for begin, end in self.chunks(stage.blocks):
                if self.plan.scratch_bytes:
                    buffers["scratch"] = self._scratch(self.plan.scratch_bytes)
                self._call(stage, buffers, begin, end)
                if self.plan.scratch_bytes:
                    buffers["scratch"].check("scratch")
        for name, buffer in buffers.items():
            buffer.check(name)
        for name, array in inputs.items():
            assert buffers[name].array.tobytes() == array.tobytes(), f"{name} was written"
        return np.array(buffers[output].array)

    def _scratch(self, size: int) -> Guarded:
        """Scratch memory full of NaN, aligned to 64 bytes at either end."""
        buffer = guarded((-(-size // 64) * 64,), np.dtype(np.uint8))
        buffer.array[...] = 0xFF
        assert buffer.address % 64 == 0
        return buffer

    def _call(self, stage: Stage, buffers: dict[str, Guarded], begin: int, end: int) -> None:
        pointers = [buffers[name].address for name in (*stage.buffers, *stage.extra)]
        types = [ctypes.c_void_p] * len(pointers) + [ctypes.c_int64] * 2
        ctypes.CFUNCTYPE(None, *types)(self.library.address(stage.function))(*pointers, begin, end)


def compile_plan(emit: Callable[[Module, Target], Plan], target: Target) -> Runner:
    module = target.module()
    plan = emit(module, target)
    return Runner(plan, load_object(compile_object(str(module), target)))


def with_chunks(runner: Runner, *cuts: float) -> Runner:
    """The same plan, its blocks divided as over threads, the last part first."""

    def chunks(blocks: int) -> list[tuple[int, int]]:
        edges = [0, *(int(blocks * cut) for cut in cuts), blocks]
        return list(itertools.pairwise(edges))[::-1]

    return replace(runner, chunks=chunks)


def storage(kind: str) -> np.dtype[Any]:
    dtype: np.dtype[Any] = NUMPY_TYPES[kind]
    return dtype


def assert_sums(got: Array, want: Array, kind: str, terms: int, scale: float = 1.0) -> None:
    """Asserts that `got`, stored as `kind`, holds the float64 sums `want`, to rounding.

    The sums have `terms` products of standard normal numbers (`scale`: of larger ones). One by one their
    error has a standard deviation of about 0.4 terms units; storing rounds once more, relatively.
    """
    stored = {"half": 2.0**-11, "bfloat": 2.0**-8, "float": 2.0**-24, "double": 2.0**-53}[kind]
    summed = 2.0**-53 if kind == "double" else 2.0**-24
    smallest = 2.0**-25 if kind == "half" else 0.0  # half has few subnormal numbers
    atol = scale * 6 * summed * max(terms, 1) + smallest
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=stored, atol=atol)
