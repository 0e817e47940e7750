"""The processor that code is made for, and what LLVM is told about making it.

Enters: what LLVM calls the processor and its features. Leaves: a `Target`. Nothing here needs LLVM itself, which a process that finds its programs
compiled never loads.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
from pathlib import Path

from graphcell.codegen.llvm.text import LType, Module
from graphcell.errors import ArgumentValueError
from graphcell.records import dataclass

VECTOR_BYTES_VARIABLE = "GRAPHCELL_VECTOR_BYTES"
DENORMALS_VARIABLE = "GRAPHCELL_DENORMALS"
TILES_VARIABLE = "GRAPHCELL_TILES"
PASSES = ("sroa", "instruction_combine", "simplify_cfg")
"""What runs before instruction selection. The emitted code is vectorised and nearly in SSA form already: on
elementwise kernels, normalisations, matrix products and attention, with their gradients, these three gave
the run time of -O1 and -O2 for a small part of their compile time, up to a seventh less than no passes.
"""
NOT_RUN = ("disable-lsr", "disable-post-ra")
"""Passes of instruction selection that are left out. Loop strength reduction takes more than a quarter of its time, and the addresses in
the emitted loops are simple; the second scheduling, after registers are given, takes a fifteenth, and processors that run instructions out of
order do that themselves. Of twelve workloads none ran measurably slower without them.
"""
_WIDTHS = (16, 32, 64)
_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA = 158, 0x1023, 18  # of Linux on x86-64: asm/prctl.h, and the number of the state's part
_CACHE_DEFAULTS = {1: 32 << 10, 2: 512 << 10, 3: 8 << 20}


@dataclass(frozen=True, slots=True)
class Target:
    """A processor to generate code for: LLVM's names for it, the bytes of a vector register, the data caches
    in bytes, and whether programs take numbers too small for all their digits for zero (llvm/underflow.py).
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    flushes: bool = False

    def lanes(self, kind: str) -> int:
        """How many elements of `kind` (`float`, `i32`, …) fill one vector register."""
        return self.vector_bytes // LType(kind).bytes

    @property
    def avx512(self) -> bool:
        """True if the processor has AVX-512 (with DQ, as all but the first have) and it is not switched off by narrower vectors."""
        return {"+avx512f", "+avx512dq"} <= set(self.features.split(","))

    @property
    def writes_past_caches(self) -> bool:
        """True where vectors are long enough for it, and what follows is ordered after all stores by any locked instruction."""
        return self.triple.startswith("x86_64") and self.vector_bytes >= 32

    def module(self) -> Module:
        """A new module for this processor."""
        avx2 = "+avx2" in self.features.split(",") and not self.avx512
        slow_masks = avx2 and is_amd(self.cpu)
        number_bytes = self.vector_bytes if avx2 else 0  # AVX2 has few registers
        return Module(avx512=self.avx512, avx2=avx2, slow_masks=slow_masks, number_bytes=number_bytes, flushes=self.flushes)


def is_amd(cpu: str) -> bool:
    """Whether LLVM's name is that of one of AMD's processors since Zen."""
    return cpu.startswith("znver")


@dataclass(frozen=True, slots=True)
class Processor:
    """What LLVM says of a processor: names of the platform and of the processor, and which features it has."""

    triple: str
    cpu: str
    features: tuple[tuple[str, bool], ...]


def describe(processor: Processor, vector_bytes: str | None = None) -> Target:
    """The target for a processor. `vector_bytes` (16, 32 or 64) limits the vectors, so that the code of smaller processors can be tried here; by default
    it is what `GRAPHCELL_VECTOR_BYTES` in the environment says at each call, and with neither the vectors are as long as the processor has them.
    `GRAPHCELL_DENORMALS=1` there keeps denormal numbers, which programs for x86 take for zero. Registers for tiles of matrices, which know no denormal
    numbers, are used unless `GRAPHCELL_TILES=0`, or these are kept, or the system refuses them.

    Raises ArgumentValueError (a ValueError) for anything else.
    """
    keeps = os.environ.get(DENORMALS_VARIABLE, "0") not in ("", "0")
    tiles = not keeps and os.environ.get(TILES_VARIABLE, "1") not in ("", "0")
    return _describe(processor, os.environ.get(VECTOR_BYTES_VARIABLE, "") if vector_bytes is None else vector_bytes, keeps, tiles)


@functools.cache
def _describe(processor: Processor, vector_bytes: str, keeps_denormals: bool, tiles: bool) -> Target:
    features = dict(processor.features)
    if features.get("amx-tile") and not (tiles and _may_use_tiles()):
        features.update({name: False for name in features if name.startswith("amx")})
    native = 64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    width = _parse_width(vector_bytes) if vector_bytes else native
    l1, l2, l3 = (_cache_bytes(level) for level in (1, 2, 3))
    flushes = processor.triple.startswith("x86_64") and not keeps_denormals
    return Target(processor.triple, processor.cpu, _feature_string(features, width), width, l1, l2, l3, flushes)


@functools.cache
def _may_use_tiles() -> bool:
    """Asks the system for the registers of AMX, which it gives a process that asks, for all its threads."""
    if not sys.platform.startswith("linux"):
        return False
    system_call = ctypes.CDLL(None).syscall
    return bool(system_call(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_REQUEST_STATE), ctypes.c_long(_TILE_DATA)) == 0)


def _parse_width(text: str) -> int:
    if text not in map(str, _WIDTHS):
        raise ArgumentValueError(
            f"{VECTOR_BYTES_VARIABLE} is {text!r}, expected one of {', '.join(map(str, _WIDTHS))}"
        )
    return int(text)


def _feature_string(features: dict[str, bool], width: int) -> str:
    """The host's features, without the instructions whose registers are wider than `width` bytes, and without SSE4a, whose two shuffles have no AVX
    form: each waits for the upper halves of all registers. Measured on Zen 3: 300 cycles.

    FMA and 128-bit AVX stay at 16 bytes: that is what NEON has too. (On a processor that lacks FMA every fma
    is a call of the C library: slow, with the same results.)
    """
    kept = dict(features)
    if width < 64:
        kept.update({name: False for name in kept if name.startswith(("avx512", "avx10", "amx"))})
    if width < 32 and "avx2" in kept:
        kept["avx2"] = False
    if "sse4a" in kept:
        kept["sse4a"] = False
    # What is off comes last, since a feature that is on switches on those that it builds upon.
    ordered = sorted(kept.items(), key=lambda item: (not item[1], item[0]))
    text = ",".join(f"{'+' if on else '-'}{name}" for name, on in ordered)
    # Without this LLVM splits <16 x float> in two on processors whose clock once suffered from 512-bit
    # instructions.
    return f"{text},-prefer-256-bit" if width == 64 and kept.get("avx512f") else text


def _cache_bytes(level: int) -> int:
    """Bytes of one data or unified cache of `level`; a usual size where the system does not tell."""
    found = _sysctl_cache(level) if sys.platform == "darwin" else _sysfs_cache(level)
    return found or _CACHE_DEFAULTS[level]


def _sysfs_cache(level: int, root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    for folder in sorted(root.glob("index*")):
        try:
            here, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        match = re.fullmatch(r"(\d+)([KMG]?)", size)
        if here == str(level) and kind in ("Data", "Unified") and match:
            return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]
    return 0


def _sysctl_cache(level: int) -> int:
    libc = ctypes.CDLL(None)
    stem = "l1dcachesize" if level == 1 else f"l{level}cachesize"
    for name in (f"hw.perflevel0.{stem}", f"hw.{stem}"):
        value, size = ctypes.c_uint64(0), ctypes.c_size_t(8)
        if (
            libc.sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0) == 0
            and value.value
        ):
            return value.value
    return 0
