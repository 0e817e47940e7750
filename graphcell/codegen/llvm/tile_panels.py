"""Operands of matrix products packed for tile registers, as sums of bfloats.

Enters: rows (or columns) of an operand in memory, as far apart as they are. Leaves: a panel of up to 32 of them. A bfloat has 8 significant bits, so a
half is exactly the sum of two and a float of three; a product of two floats is then six products of bfloats (llvm/matmul_tiles.py). A panel is a run of
groups of 32 reduction steps, behind the last step zeros; a group has the parts one after the other, and of each part one tile or two. Beside the panel goes
what its numbers' magnitudes have at most (as bits, in 16 lanes that have nothing to do with each other): where a number is infinite, NaN, or so large that
its first part is infinite, its parts do not add up to it, and whoever reads the panel has to see that.

A part rounds what the parts before leave of a number to nearest, so the remainder is exact; what is left behind all parts is less than 2**-126.
"""

from __future__ import annotations

from graphcell.codegen.llvm.contraction import ceil_div
from graphcell.codegen.llvm.packing import displaced, emit_transpose, load_as, prefetch, zeros
from graphcell.codegen.llvm.text import I8, I64, PTR, VOID, FunctionBuilder, LType, Module, Val, constant_mask, i64
from graphcell.codegen.llvm.tile_registers import ROW_BYTES, TILE_BYTES, TILE_ROWS, TILE_STEPS
from graphcell.records import dataclass

PARTS = {"bfloat": 1, "half": 2, "float": 3}
"""Bfloats that a number is the sum of."""
LARGEST = 0x7F7F_7FFF
"""The bits of the largest float whose first part is finite."""
_WORDS = LType("i32", TILE_ROWS)
NO_BITS = zeros(_WORDS)
"""The largest bits of nothing."""
_FLOATS = LType("float", TILE_ROWS)
_GROUPS_AHEAD = 2  # of 32 steps of a row, which are asked for ahead where many rows are read in turn


@dataclass(frozen=True, slots=True)
class Panel:
    """`size` rows or columns of an operand, `across` elements apart, their reduction steps `along` apart; one of both is 1. `right`: the operand is the
    second one, of whose tiles a row is a pair of steps. `room`: how many tiles of a part there is room for, if not for as many as there are.
    """

    kind: str
    across: int
    along: int
    size: int
    right: bool
    room: int = 0

    @property
    def tiles(self) -> int:
        """Tiles of a part."""
        return self.room or ceil_div(self.size, TILE_ROWS)

    @property
    def group_bytes(self) -> int:
        """Of 32 reduction steps."""
        return PARTS[self.kind] * self.tiles * TILE_BYTES

    def tile_at(self, part: int, tile: int) -> int:
        """Where a tile begins in its group, in bytes."""
        return (part * self.tiles + tile) * TILE_BYTES


def panel_bytes(kind: str, steps: int) -> int:
    """Room for the largest panel of so many reduction steps."""
    return ceil_div(steps, TILE_STEPS) * PARTS[kind] * 2 * TILE_BYTES + ROW_BYTES


def emit_pack(module: Module, name: str, panel: Panel) -> str:
    """Emits `void name(ptr source, ptr panel, ptr largest, i64 count)`: packs `count` reduction steps; the largest bits, and what `largest` holds, go there.
    Returns the name.
    """
    b = FunctionBuilder(module, name, [("source", PTR), ("panel", PTR), ("largest", PTR), ("count", I64)], attributes="nounwind noinline")
    _Packer(b, panel, b.args["count"]).emit()
    return b.finish()


def clear_largest(b: FunctionBuilder, place: Val) -> None:
    """Before a panel is packed."""
    b.store(zeros(_WORDS), place)


def keep_largest(b: FunctionBuilder, place: Val, largest: Val) -> None:
    """Puts the largest bits with those that have been found before."""
    b.store(b.binary("umax", b.load(place, _WORDS), largest), place)


def pack_row(b: FunctionBuilder, panel: Panel, source: Val, to: Val, largest: Val) -> Val:
    """Packs 32 steps of a row of a first operand, whose group begins at `to` but for the row; returns the largest bits so far."""
    words, largest = _Packer(b, panel, i64(TILE_STEPS)).steps(source, None, largest)
    for part, word in enumerate(words):
        b.store(word, b.gep(to, panel.tile_at(part, 0), I8))
    return largest


class _Packer:
    """Emits the body of a packing function."""

    def __init__(self, b: FunctionBuilder, panel: Panel, count: Val):
        self.b, self.panel, self.element = b, panel, LType(panel.kind)
        self.count, self.parts = count, PARTS[panel.kind]
        self.tracks = self.parts > 1

    def emit(self) -> None:
        if self.panel.along == 1 and not self.panel.right:
            self._rows()
        else:
            self._groups()

    def _rows(self) -> None:
        """Row by row, each of whose groups is a row of a tile."""
        b, panel = self.b, self.panel
        whole = b.and_(self.count, i64(-TILE_STEPS))
        with b.loop(0, panel.size, name="row", at_least_once=True) as row:
            source = b.gep(b.args["source"], b.mul(row.index, i64(panel.across)), self.element)
            to = b.gep(b.args["panel"], b.mul(row.index, i64(ROW_BYTES)), I8)

            def group(k: Val, largest: Val, mask: bool, source: Val = source, to: Val = to) -> Val:
                left = b.sub(self.count, k) if mask else None
                words, largest = self.steps(b.gep(source, k, self.element), left, largest)
                self._store(words, [b.gep(b.gep(to, self._group(k), I8), panel.tile_at(part, 0), I8) for part in range(self.parts)], i64(0))
                return largest

            with b.loop(0, whole, TILE_STEPS, carried=[zeros(_WORDS)], name="k") as k:
                k.carry(group(k.index, k.carried[0], mask=False))
            self._keep(k.results[0])
            with b.if_then(b.icmp("slt", whole, self.count)):
                self._keep(group(whole, zeros(_WORDS), mask=True))

    def _group(self, k: Val) -> Val:
        """Where the group that begins with step k lies, in bytes."""
        return self.b.mul(k, i64(self.panel.group_bytes // TILE_STEPS))

    def _groups(self) -> None:
        """Group by group: each tile is written as it lies in memory, or by way of the stack if it is to be turned."""
        b, panel = self.b, self.panel
        turns = (panel.along == 1) == panel.right
        square = emit_transpose(b.module, TILE_ROWS, "i32", "i32") if turns else ""
        aside = b.alloca(I8, self.parts * TILE_BYTES) if turns else None
        with b.loop(0, self.count, TILE_STEPS, name="group") as k:
            group = b.gep(b.args["panel"], self._group(k.index), I8)
            left = b.binary("smin", b.sub(self.count, k.index), i64(TILE_STEPS))
            for tile in range(panel.tiles):
                size = min(TILE_ROWS, panel.size - tile * TILE_ROWS)
                start = b.gep(b.args["source"], b.mul(k.index, i64(panel.along)), self.element)
                start = b.gep(start, tile * TILE_ROWS * panel.across, self.element)
                homes = [b.gep(group, panel.tile_at(part, tile), I8) for part in range(self.parts)]
                places = homes if aside is None else [b.gep(aside, part * TILE_BYTES, I8) for part in range(self.parts)]
                self._keep(self._lines(start, left, size, places) if panel.along == 1 else self._pairs(start, left, size, places))
                if turns:
                    for place, home in zip(places, homes, strict=True):
                        b.call(square, VOID, place, i64(TILE_ROWS), home, i64(TILE_ROWS))

    def _lines(self, start: Val, left: Val, size: int, places: list[Val]) -> Val:
        """Of each row (or column) the steps of a group; returns the largest bits."""
        b = self.b
        with b.loop(0, size, carried=[zeros(_WORDS)], name="line", at_least_once=True) as line:
            source = b.gep(start, b.mul(line.index, i64(self.panel.across)), self.element)
            for at in range(0, TILE_STEPS, ROW_BYTES // self.element.bytes):
                prefetch(b, displaced(b, source, _GROUPS_AHEAD * TILE_STEPS + at, self.element))
            words, largest = self.steps(source, left, line.carried[0])
            self._store(words, places, line.index)
            line.carry(largest)
        return line.results[0]

    def _pairs(self, start: Val, left: Val, size: int, places: list[Val]) -> Val:
        """Of each pair of steps all rows (or columns); returns the largest bits."""
        b, along = self.b, self.panel.along
        mask = None if size == TILE_ROWS else constant_mask(size, TILE_ROWS)
        pairs = b.div(left, i64(2), signed=False)
        with b.loop(0, pairs, carried=[zeros(_WORDS)], name="pair") as pair:
            source = b.gep(start, b.mul(pair.index, i64(2 * along)), self.element)
            for at in (0, along):  # what the next panel begins with
                prefetch(b, displaced(b, source, at + 2 * TILE_ROWS, self.element))
            words, largest = self._step_and_next(source, mask, pair.carried[0], has_next=True)
            self._store(words, places, pair.index)
            pair.carry(largest)
        last = b.alloca(_WORDS)
        b.store(pair.results[0], last)
        with b.if_then(b.icmp("ne", b.and_(left, i64(1)), i64(0))):
            source = b.gep(start, b.mul(pairs, i64(2 * along)), self.element)
            words, largest = self._step_and_next(source, mask, pair.results[0], has_next=False)
            self._store(words, places, pairs)
            b.store(largest, last)
        with b.loop(b.div(b.add(left, i64(1)), i64(2), signed=False), TILE_ROWS, name="behind") as behind:
            self._store([zeros(_WORDS)] * self.parts, places, behind.index)
        return b.load(last, _WORDS)

    def _store(self, words: list[Val], places: list[Val], line: Val) -> None:
        for word, place in zip(words, places, strict=True):
            self.b.store(word, self.b.gep(place, self.b.mul(line, i64(ROW_BYTES)), I8))

    def _keep(self, largest: Val) -> None:
        if self.tracks:
            keep_largest(self.b, self.b.args["largest"], largest)

    def steps(self, source: Val, left: Val | None, largest: Val) -> tuple[list[Val], Val]:
        """The words of 32 steps that follow each other in memory, or of the `left` first of them; and the largest bits."""
        b = self.b
        if self.panel.kind == "bfloat":
            type = LType("i16", TILE_STEPS)
            value = b.load(source, type) if left is None else b.masked_load(source, b.lane_mask(left, TILE_STEPS), type)
            return [b.bitcast(value, _WORDS)], largest
        halves = []
        for first in (0, TILE_ROWS):
            mask = None if left is None else b.lane_mask(b.binary("smax", b.sub(left, i64(first)), i64(0)), TILE_ROWS)
            parts, largest = self._split(load_as(b, b.gep(source, first, self.element), self.panel.kind, "float", TILE_ROWS, mask), largest)
            halves.append([b.bitcast(part, LType("i16", TILE_STEPS)) for part in parts])
        upper, (first_half, second_half) = range(1, 2 * TILE_STEPS, 2), halves
        return [b.bitcast(b.shuffle(low, high, upper), _WORDS) for low, high in zip(first_half, second_half, strict=True)], largest

    def _step_and_next(self, source: Val, mask: Val | None, largest: Val, has_next: bool) -> tuple[list[Val], Val]:
        """The words of a step and of the next one (of zeros if there is none), of all rows or columns; and the largest bits."""
        b, sixteen = self.b, _number(self.b, 16)
        following = b.gep(source, self.panel.along, self.element)
        if self.panel.kind == "bfloat":

            def bits(at: Val) -> Val:
                type = LType("i16", TILE_ROWS)
                return b.cast(b.load(at, type) if mask is None else b.masked_load(at, mask, type), _WORDS, signed=False)

            one = bits(source)
            return [b.or_(one, b.shl(bits(following), sixteen)) if has_next else one], largest
        low, largest = self._split(load_as(b, source, self.panel.kind, "float", TILE_ROWS, mask), largest)
        low = [b.shr(part, sixteen) for part in low]
        if not has_next:
            return low, largest
        high, largest = self._split(load_as(b, following, self.panel.kind, "float", TILE_ROWS, mask), largest)
        upper = _number(b, -1 << 16)
        return [b.or_(x, b.and_(y, upper)) for x, y in zip(low, high, strict=True)], largest

    def _split(self, value: Val, largest: Val) -> tuple[list[Val], Val]:
        """The parts of numbers, each the upper half of a word; and the largest bits so far, of magnitudes."""
        b = self.b
        bits = b.bitcast(value, _WORDS)
        largest = b.binary("umax", largest, b.and_(bits, _number(b, 0x7FFF_FFFF)))
        parts = []
        for _ in range(self.parts - 1):
            parts.append(b.and_(b.add(bits, _number(b, 0x8000)), _number(b, -1 << 16)))
            value = b.sub(value, b.bitcast(parts[-1], _FLOATS))
            bits = b.bitcast(value, _WORDS)
        return [*parts, bits], largest


def _number(b: FunctionBuilder, number: int) -> Val:
    return b.const(number, _WORDS)
