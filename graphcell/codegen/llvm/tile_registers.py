"""AMX: registers that hold tiles of matrices, and the instruction that multiplies two of them and adds the product to a third.

Enters: a function under construction. Leaves: instructions in it. There are eight registers, here always of 16 rows of 64 bytes. Of a product, the first
operand holds 16 rows of 32 bfloats each, the second 16 pairs of reduction steps of 16 columns each (a word is two bfloats, the lower half is the earlier
step), the result 16 x 16 floats. Each thread configures its own registers before it uses them and gives them up behind.

The instruction takes denormal numbers for zero and rounds to nearest; infinities and NaN go through it as through multiply-adds.
Reference: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18, and volume 2, TDPBF16PS.
"""

from __future__ import annotations

from graphcell.codegen.llvm.text import VOID, FunctionBuilder, LType, Val, i64

TILE_ROWS = 16  # of a register, and columns of a result
TILE_STEPS = 32  # reduction steps of a product
ROW_BYTES = 64
TILE_BYTES = TILE_ROWS * ROW_BYTES
_REGISTERS = 8
_PALETTE = 1


def configure(b: FunctionBuilder) -> None:
    """Gives the thread all registers, as described above."""
    widths = ROW_BYTES.to_bytes(2, "little") * _REGISTERS
    table = bytes([_PALETTE]).ljust(16, b"\0") + widths.ljust(32, b"\0") + bytes([TILE_ROWS] * _REGISTERS).ljust(16, b"\0")
    text = "".join(f"\\{byte:02x}" for byte in table)
    b.intrinsic("x86.ldtilecfg", VOID, b.module.add_global("tiles.configuration", f'internal constant [{len(table)} x i8] c"{text}", align 64'))


def release(b: FunctionBuilder) -> None:
    """Gives them up, so that the system need not keep them for the thread."""
    b.intrinsic("x86.tilerelease", VOID)


def clear(b: FunctionBuilder, tile: int) -> None:
    b.intrinsic("x86.tilezero", VOID, _number(tile))


def load_tile(b: FunctionBuilder, tile: int, pointer: Val, pitch: int = ROW_BYTES) -> None:
    """`pitch`: bytes from row to row."""
    b.intrinsic("x86.tileloadd64", VOID, _number(tile), pointer, i64(pitch))


def store_tile(b: FunctionBuilder, tile: int, pointer: Val, pitch: int) -> None:
    b.intrinsic("x86.tilestored64", VOID, _number(tile), pointer, i64(pitch))


def multiply_tiles(b: FunctionBuilder, total: int, left: int, right: int) -> None:
    """total += left . right"""
    b.intrinsic("x86.tdpbf16ps", VOID, _number(total), _number(left), _number(right))


def _number(tile: int) -> Val:
    return Val(str(tile), LType("i8"))
