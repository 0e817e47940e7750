"""What LLVM assembly is made of: types, values and constants as text, and the module that collects functions.

Enters: kinds, numbers, texts. Leaves: `LType` and `Val`, whose `str` is what LLVM reads, and the assembly of a `Module`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

import numpy as np

from graphcell.records import dataclass

FLOAT_KINDS = ("half", "bfloat", "float", "double")
_INTRINSIC_SUFFIX = {"half": "f16", "bfloat": "i16", "float": "f32", "double": "f64"}
_FIRST_LANES = re.compile(r"<i1 true(, i1 true)*(, i1 false)*>")
_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}


@dataclass(frozen=True, slots=True)
class LType:
    """An LLVM first-class type: an element kind (`float`, `i32`, `ptr`, …) and a lane count; 0 lanes is a scalar.

    A bfloat is written as the i16 with its bits, and computed with in float. LLVM's own bfloat is not used: where
    the processor cannot round to it, it takes functions of compiler-rt, which a process does not have; where it
    can, subnormals are flushed; and looking only at the sign of a scalar trips an assertion of LLVM 22.
    """

    kind: str
    lanes: int = 0

    def __str__(self) -> str:
        return f"<{self.lanes} x {self.written}>" if self.lanes else self.written

    @property
    def written(self) -> str:
        """One element in LLVM's words."""
        return "i16" if self.kind == "bfloat" else self.kind

    @property
    def is_float(self) -> bool:
        return self.kind in FLOAT_KINDS

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return _BITS.get(self.kind) or int(self.kind[1:])

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory (an i1 is stored as one byte)."""
        return max(1, self.bits // 8)

    @property
    def suffix(self) -> str:
        """The mangling used in intrinsic names: `v16f32`, `i64`, `p0`."""
        base = "p0" if self.kind == "ptr" else _INTRINSIC_SUFFIX.get(self.kind, self.kind)
        return f"v{self.lanes}{base}" if self.lanes else base

    def with_lanes(self, lanes: int) -> LType:
        return LType(self.kind, lanes)

    def with_kind(self, kind: str) -> LType:
        return LType(kind, self.lanes)


PTR, I1, I8, I32, I64 = LType("ptr"), LType("i1"), LType("i8"), LType("i32"), LType("i64")
F32, F64 = LType("float"), LType("double")
VOID = LType("void")


@dataclass(frozen=True, slots=True)
class Val:
    """An SSA value or a constant: its text and its type."""

    text: str
    type: LType

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


def rounded(value: float, kind: str) -> float:
    """The number of `kind` next to `value`, inf past the largest."""
    if kind == "double":
        return float(value)
    with np.errstate(over="ignore"):
        if kind == "bfloat":
            import ml_dtypes

            return float(np.asarray(value, ml_dtypes.bfloat16))
        return float(np.float16(value) if kind == "half" else np.float32(value))


def float_literal(value: float, kind: str) -> str:
    """The exact hexadecimal literal of `value` rounded to `kind`; for bfloat its bits as a decimal number."""
    number = rounded(value, kind)
    if kind in ("float", "double"):
        return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}"
    if kind == "half":
        return f"0xH{int(np.float16(number).view(np.uint16)):04X}"
    return str(int(np.float32(number).view(np.uint32)) >> 16)


def const(value: float | int | bool, type: LType) -> Val:
    """A constant of `type`; a vector type gives a splat."""
    if type.is_float:
        text = float_literal(float(value), type.kind)
    elif type.kind == "ptr":
        if value:
            raise TypeError(f"the only constant pointer is null, got {value}")
        text = "null"
    elif type.kind == "i1":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    if type.lanes:
        text = f"splat ({type.written} {text})"
    return Val(text, type)


def number_in(x: Val) -> float | None:
    """What a float or double constant is, in all lanes; None for other values."""
    found = re.search(r"\b0x([0-9A-F]{16})\)?$", x.text) if x.type.kind in ("float", "double") else None
    return struct.unpack(">d", bytes.fromhex(found[1]))[0] if found else None


def i64(value: int) -> Val:
    return Val(str(int(value)), I64)


def constant_mask(count: int, lanes: int) -> Val:
    """The first `count` of `lanes` lanes on."""
    return mask_of([k < count for k in range(lanes)])


def mask_of(lanes: Sequence[bool]) -> Val:
    """Those lanes on."""
    return Val(f"<{', '.join(f'i1 {str(on).lower()}' for on in lanes)}>", LType("i1", len(lanes)))


def count_of_first_lanes(mask: Val) -> int:
    """How many lanes a mask that is written as the first of them has on; 0 of any other."""
    return mask.text.count("i1 true") if _FIRST_LANES.fullmatch(mask.text) else 0


FLUSHED_ATTRIBUTE = '"denormal-fp-math"="preserve-sign,preserve-sign"'
"""Of functions of a module that `flushes`."""
NONTEMPORAL = "!nontemporal !0"
"""Of stores past the caches; what it refers to is one of `metadata`."""


def metadata(functions: Iterable[str]) -> list[str]:
    """What these functions refer to by number."""
    return ["!0 = !{i32 1}"] if any(NONTEMPORAL in text for text in functions) else []


@dataclass
class Module:
    """Collects functions, declarations, globals and metadata; `str(module)` is the assembly.

    `avx512` says that the module is for a processor with that extension of x86-64, so that its intrinsics may be used; `avx2`, that it is for one
    with AVX2 instead, and `slow_masks`, that a store of some lanes takes as long as ten of all there. `exact` names functions
    whose numbers are to stay constants. `number_bytes` is how long the vectors are in which functions with many numbers read them from memory
    (see `Instructions.numbers_in_memory`); 0: they do not. `flushes`: denormal numbers are zeros where its functions run (llvm/underflow.py), which
    LLVM must know, or it would fold comparisons as if they were not.
    """

    functions: dict[str, str] = field(default_factory=dict)
    finished: dict[str, str] = field(default_factory=dict)
    """Functions that were given away to be translated and change no more."""
    stand_ins: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Symbols of functions that were merged with others when these were finished, see merge_functions.py."""
    declarations: dict[str, str] = field(default_factory=dict)
    globals: dict[str, str] = field(default_factory=dict)
    avx512: bool = False
    avx2: bool = False
    slow_masks: bool = False
    number_bytes: int = 0
    flushes: bool = False
    exact: set[str] = field(default_factory=set)
    _shared: dict[object, tuple[str, list[dict[str, int]]]] = field(default_factory=dict)

    def shared(self, key: object, numbers: dict[str, int], emit: Callable[[], str]) -> str:
        """The function that does what `key` says with these numbers, the arguments (i64) of that name: `emit()` adds it where there is none yet and
        returns its name. What merge_functions.py would find to be alike need not be emitted again and again.
        """
        if key not in self._shared:
            self._shared[key] = emit(), []
        name, known = self._shared[key]
        known.append(numbers)
        return name

    def settle(self) -> None:
        """Shared functions that have had the same numbers from all keep them as constants. Who asks later gets functions of their own."""
        for name, (numbers, *others) in self._shared.values():
            if all(other == numbers for other in others):
                head, _, body = self.functions[name].partition("\n")
                for argument, number in numbers.items():
                    body = re.sub(rf"%{argument}(?![\w.])", str(number), body)
                self.functions[name] = f"{head}\n{body}"
        self._shared = {}

    def hide_functions(self, visible: Sequence[str]) -> None:
        """Makes all functions but these internal: LLVM need not keep them as they are."""
        for name, text in self.functions.items():
            if name not in visible and not text.startswith("define internal"):
                self.functions[name] = text.replace("define", "define internal", 1)

    def has_function(self, name: str) -> bool:
        """Whether a function of this name was emitted."""
        return name in self.functions or name in self.finished or f"@{name}" in self.stand_ins

    def declare(self, name: str, result: LType, params: Sequence[LType], attributes: str = "") -> None:
        if name not in self.declarations:
            args = ", ".join(map(str, params))
            self.declarations[name] = f"declare {result} @{name}({args}) {attributes}".rstrip()

    def add_global(self, name: str, text: str) -> Val:
        """`text` is what stands after the name: `internal constant [4 x i32] [...], align 64`."""
        self.globals[name] = f"@{name} = {text}"
        return Val(f"@{name}", PTR)

    def __str__(self) -> str:
        return self._text({**self.finished, **self.functions})

    def unfinished(self) -> str:
        """The assembly without the functions that are `finished`."""
        return self._text(self.functions)

    def _text(self, functions: dict[str, str]) -> str:
        return "\n".join([*self.globals.values(), *self.declarations.values(), *functions.values(), *metadata(functions.values()), ""])
