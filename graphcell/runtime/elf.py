"""Object code brought into the process without LLVM, whose library alone takes longer to load than most programs take to start.

Enters: objects as LLVM writes them for x86-64 Linux (ELF, position-independent, small code model), of one module or of several that belong together. Leaves: a
`Mapping` with the addresses of what they define, which frees its memory when it dies. Refuses: whatever else may be in an object (`NotLoadable`), for which
LLVM's own linker is asked instead (loader.py).

All sections lie in one run of pages: code and constants, which nothing can write any more once they are there, and behind them what is variable. Calls that
lead outside go by way of a jump, since the process's libraries may be further away than a displacement of 32 bits reaches.
Source: System V Application Binary Interface, AMD64 Architecture Processor Supplement, chapter 4.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graphcell import buffer
from graphcell.errors import CodegenError
from graphcell.ir.op import Array
from graphcell.records import dataclass

_HEADER = np.dtype({
    "names": ["magic", "class", "order", "type", "machine", "sections", "section_size", "section_count"],
    "formats": ["S4", "u1", "u1", "<u2", "<u2", "<u8", "<u2", "<u2"],
    "offsets": [0, 4, 5, 16, 18, 40, 58, 60],
    "itemsize": 64,
})  # fmt: skip
_SECTION = np.dtype([
    ("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8"), ("size", "<u8"), ("link", "<u4"), ("info", "<u4"),
    ("alignment", "<u8"), ("entry_size", "<u8"),
])  # fmt: skip
_SYMBOL = np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")])
_RELOCATION = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])

_HEADER_OF_ALL = (b"\x7fELF", 2, 1, 1, 62)  # 64 bits, little-endian, relocatable, x86-64
_CONTENTS, _SYMBOLS, _RELOCATIONS, _CLEARED = 1, 2, 4, 8
_UNWINDING = 0x70000001
"""Tables for exceptions of C++, of which there are none, and for debuggers: left out."""
_WRITTEN, _PRESENT, _THREAD_LOCAL = 1, 2, 1 << 10
_LAST_SECTION = 0xFF00
_NAME_OF_SOURCE = 4
"""A kind of symbol; those with smaller numbers are functions, variables and sections."""
_TO_PLACE, _TO_CALL, _TO_TABLE = 2, 4, (9, 41, 42)  # R_X86_64_PC32, _PLT32, _GOTPCREL and its two kinds that a linker may simplify
_ENTRY = np.dtype([("jump", "V8"), ("address", "<u8")])
"""What stands for a function outside: a jump to the address behind it."""
_JUMP = np.frombuffer(b"\xff\x25\x02\0\0\0\x90\x90", "V8")  # jmp *2(%rip), padding
_READ, _EXECUTE = 1, 4


class NotLoadable(Exception):
    """An object that holds what is not handled here."""


class NotExecutable(Exception):
    """A system that lets no memory become code."""


class Mapping:
    """Code in memory. Addresses hold as long as it lives."""

    def __init__(self, memory: Array, symbols: dict[str, int]):
        self._memory, self._symbols = memory, symbols

    def address(self, name: str) -> int:
        """The address of a function or a variable that an object defines.

        Raises:
            CodegenError: none does.
        """
        try:
            return self._symbols[name]
        except KeyError:
            raise CodegenError(f"cannot load {name}: the object does not define it") from None


@dataclass
class _Object:
    """One object; where its sections begin in memory (-1: they are not there)."""

    data: bytes
    sections: Array
    symbols: Array
    names: dict[int, str]
    """Of the symbols that other objects may know."""
    places: Array

    def contents(self, section: Any, dtype: np.dtype[Any]) -> Array:
        return np.frombuffer(self.data, dtype, int(section["size"]) // dtype.itemsize, int(section["offset"]))

    def relocations(self) -> Iterator[tuple[int, Array]]:
        """(place of the section that they are for, the relocations) of each section that is there."""
        for section in self.sections[self.sections["type"] == _RELOCATIONS]:
            place, rows = int(self.places[section["info"]]), self.contents(section, _RELOCATION)
            if place < 0:
                continue
            if np.any(rows["offset"].astype(np.int64) + 4 > int(self.sections[section["info"]]["size"])) or np.any(rows["offset"] >= 1 << 31):
                raise NotLoadable("a relocation outside of its section")
            yield place, rows


@functools.cache
def is_handled() -> bool:
    """Whether this platform's objects are of the kind that is read here."""
    return sys.platform.startswith("linux") and platform.machine() == "x86_64" and sys.maxsize > 1 << 32


def load(objects: Sequence[bytes]) -> Mapping:
    """Brings objects that belong together into memory.

    Raises:
        NotLoadable: one holds something else than code, constants and variables that are found relative to the code, or is corrupt; two define a symbol;
            or the process lacks one.
        NotExecutable: the system does not let memory become code.
    """
    try:
        return _load(objects)
    except (LookupError, ValueError, OverflowError, OSError, MemoryError) as error:
        raise NotLoadable(str(error)) from error


def _load(objects: Sequence[bytes]) -> Mapping:
    read = [_read(data) for data in objects]
    end = _place(read, 0, _PRESENT)
    outside = _outside(read)
    entries = end + -end % 16
    fixed = entries + _ENTRY.itemsize * sum(len(o.names) for o in read)
    fixed += -fixed % mmap.PAGESIZE
    total = _place(read, fixed, _PRESENT | _WRITTEN)
    memory = np.frombuffer(mmap.mmap(-1, total, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    base = buffer.address(memory)
    for o in read:
        for section, place in zip(o.sections, o.places.tolist(), strict=True):
            if place >= 0 and section["type"] == _CONTENTS:
                memory[place : place + int(section["size"])] = o.contents(section, np.dtype(np.uint8))
    known = {name: base + _value(o, number) for o in read for number, name in o.names.items() if o.symbols[number]["section"]}
    table = _Table(memory, entries, {**known, **outside})
    for o in read:
        _relocate(o, memory, base, known, table)
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(base), ctypes.c_size_t(fixed), _READ | _EXECUTE):
        raise NotExecutable("the system does not let memory become code")
    return Mapping(memory, known)


def _read(data: bytes) -> _Object:
    header = np.frombuffer(data, _HEADER, 1)[0]
    if tuple(header[name].item() for name in ("magic", "class", "order", "type", "machine")) != _HEADER_OF_ALL or header["section_size"] != _SECTION.itemsize:
        raise NotLoadable("no relocatable object for x86-64")
    sections = np.frombuffer(data, _SECTION, int(header["section_count"]), int(header["sections"]))
    present = sections[(sections["flags"] & _PRESENT != 0) & (sections["type"] != _UNWINDING)]
    if np.any(present["flags"] & _THREAD_LOCAL) or not np.all(np.isin(present["type"], (_CONTENTS, _CLEARED))):
        raise NotLoadable("sections of another kind")
    if np.any(present["alignment"] > mmap.PAGESIZE):
        raise NotLoadable("a section that is aligned to more than a page")
    tables = sections[sections["type"] == _SYMBOLS]
    if len(tables) != 1:
        raise NotLoadable("no table of symbols")
    found = _Object(data, sections, np.empty(0, _SYMBOL), {}, np.full(len(sections), -1))
    found.symbols = found.contents(tables[0], _SYMBOL)
    texts = found.contents(sections[tables[0]["link"]], np.dtype(np.uint8)).tobytes()
    for number in np.flatnonzero(found.symbols["info"] >> 4).tolist():  # not local
        start = int(found.symbols[number]["name"])
        found.names[number] = texts[start : texts.index(b"\0", start)].decode()
    kinds = found.symbols["info"] & 15
    if np.any(kinds > _NAME_OF_SOURCE) or np.any(found.symbols["section"][kinds != _NAME_OF_SOURCE] >= _LAST_SECTION):
        raise NotLoadable("a symbol that is neither function nor variable")
    return found


def _place(objects: Sequence[_Object], end: int, flags: int) -> int:
    """Gives the sections with exactly these of the flags their places from `end` on; returns where they end."""
    for o in objects:
        for number, section in enumerate(o.sections):
            if section["flags"] & (_PRESENT | _WRITTEN) == flags and section["type"] != _UNWINDING:
                end += -end % max(1, int(section["alignment"]))
                o.places[number] = end
                end += int(section["size"])
    return end


def _value(o: _Object, symbol: int) -> int:
    """Where a symbol that the object defines lies in memory."""
    place = int(o.places[o.symbols[symbol]["section"]])
    if place < 0:
        raise NotLoadable("a symbol of a section that is not there")
    return place + int(o.symbols[symbol]["value"])


def _outside(objects: Sequence[_Object]) -> dict[str, int]:
    """The addresses of the symbols that no object defines."""
    defined = [name for o in objects for number, name in o.names.items() if o.symbols[number]["section"]]
    own = set(defined)
    if len(own) < len(defined):
        raise NotLoadable("a symbol that is defined twice")
    wanted = {name for o in objects for number, name in o.names.items() if name and name not in own}
    process = ctypes.CDLL(None)
    try:
        return {name: ctypes.cast(process[name], ctypes.c_void_p).value or 0 for name in sorted(wanted)}
    except AttributeError as error:
        raise NotLoadable(str(error)) from error


class _Table:
    """What stands for a symbol that may be far away, or whose address itself is asked for: made when first needed."""

    def __init__(self, memory: Array, start: int, addresses: dict[str, int]):
        self._memory, self._start, self._addresses = memory, start, addresses
        self._places: dict[str, int] = {}

    def entry(self, name: str) -> int:
        """Where the jump to a symbol lies in memory; its address is 8 bytes further."""
        if name not in self._places:
            place = self._start + _ENTRY.itemsize * len(self._places)
            entry = self._memory[place : place + _ENTRY.itemsize].view(_ENTRY)
            entry["jump"], entry["address"] = _JUMP, self._addresses[name]
            self._places[name] = place
        return self._places[name]


def _relocate(o: _Object, memory: Array, base: int, known: dict[str, int], table: _Table) -> None:
    """Writes the distances that the object's code asks for."""
    places = np.where(o.symbols["section"] < len(o.places), o.places[np.minimum(o.symbols["section"], len(o.places) - 1)], -1)
    values = base + places + o.symbols["value"].astype(np.int64)
    is_known = places >= 0
    for number, name in o.names.items():
        if name in known:
            values[number], is_known[number] = known[name], True
    for place, rows in o.relocations():
        symbols, kinds = rows["symbol"], rows["type"]
        wanted = values[symbols]
        in_table = np.isin(kinds, _TO_TABLE)
        by_jump = (kinds == _TO_CALL) & ~is_known[symbols]
        if not np.all(in_table | by_jump | (np.isin(kinds, (_TO_PLACE, _TO_CALL)) & is_known[symbols])):
            raise NotLoadable("a relocation of another kind")
        for row in np.flatnonzero(in_table | by_jump).tolist():
            asked = o.names.get(int(symbols[row]))
            if asked is None:
                raise NotLoadable("a local symbol in the table of addresses")
            wanted[row] = base + table.entry(asked) + (8 if in_table[row] else 0)
        at = place + rows["offset"].astype(np.int64)
        distances = wanted + rows["addend"] - (base + at)
        if np.any(distances != distances.astype(np.int32)):
            raise NotLoadable("a distance of more than 31 bits")
        memory[at[:, None] + np.arange(4)] = distances.astype("<i4").view(np.uint8).reshape(-1, 4)


__all__ = ["Mapping", "NotExecutable", "NotLoadable", "is_handled", "load"]
