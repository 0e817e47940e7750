"""Tables of words that Python fills in and emitted code reads, and the emitter that knows them.

Enters: names of fields. Leaves: ctypes structures of 64-bit words, `StructureBuilder`. Refuses nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from graphcell.codegen.llvm.text import I8, I64, PTR, VOID, FunctionBuilder, LType, Val, const, i64

WORD = ctypes.c_int64


def words(name: str, *fields: str) -> Any:
    """A structure of so many words."""
    return type(name, (ctypes.Structure,), {"_fields_": [(f, WORD) for f in fields]})


def table_of(values: Sequence[int]) -> Any:
    """Words in a row; there is one at least."""
    return (WORD * max(1, len(values)))(*values)


def array_of(structure: Any, rows: Sequence[Sequence[int]]) -> Any:
    """Structures in a row, of these fields; there is one at least."""
    return (structure * max(1, len(rows)))(*(structure(*row) for row in rows))


class StructureBuilder(FunctionBuilder):
    """A FunctionBuilder that reads and writes such tables."""

    def get(self, base: Val, structure: Any, field: str, type: LType = I64) -> Val:
        """A field's value."""
        return self.load(self.gep(base, getattr(structure, field).offset, I8), type)

    def set(self, base: Val, structure: Any, field: str, value: Val) -> None:
        """Stores a field's value."""
        self.store(value, self.gep(base, getattr(structure, field).offset, I8))

    def item(self, table: Val, index: Val | int, type: LType = PTR) -> Val:
        """A word of a table."""
        return self.load(self.gep(table, index, I64), type)

    def entry(self, table: Val, index: Val, structure: Any) -> Val:
        """The address of one of the structures in a row."""
        return self.gep(table, self.mul(index, i64(ctypes.sizeof(structure))), I8)

    def at(self, base: Val, offset: Val) -> Val:
        """An address so many bytes further."""
        return self.gep(base, offset, I8)

    def copy(self, target: Val, source: Val, nbytes: Val) -> None:
        """Copies memory."""
        self.intrinsic("memcpy.p0.p0.i64", VOID, target, source, nbytes, const(0, LType("i1")))
