"""The transforms of Winograd's algorithm between NHWC images and the operands of its matrix products.

Enters: images of any float kind, cut in overlapping tiles. Leaves: functions of the module. `InputTiles`
brings tiles to the form [product][tile][channel] of the accumulation kind, `OutputTiles` brings the products
back to pixels. What a tile has beyond the image counts as zeros and is neither read nor written.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from graphcell.codegen.llvm.contraction import Epilogue, Extra, affine
from graphcell.codegen.llvm.packing import clear_run, displaced, load_as, store_finished
from graphcell.codegen.llvm.text import I64, PTR, VOID, FunctionBuilder, LType, Module, Val, constant_mask, i64
from graphcell.codegen.llvm.winograd_direct import DirectTile, all_moderate
from graphcell.codegen.llvm.winograd_tiling import Tiling
from graphcell.codegen.llvm.winograd_transforms import Matrices, Nested, evaluate, interpolate, transform_columns, transform_grid, transform_rows
from graphcell.records import dataclass


@dataclass(frozen=True, slots=True)
class Operand:
    """Where a transformed operand lies: elements from tile to tile, and from product to product."""

    pitch: int
    plane: int


@dataclass(frozen=True, slots=True)
class InputTiles:
    """Tiles of as many pixels as the matrices have columns; each begins `origin` (row, pixel) after the place that `tiling`
    says, which may lie outside of the image.
    """

    shape: tuple[int, int, int]  # h, w, channels
    tiling: Tiling
    origin: tuple[int, int]
    matrices: Matrices
    in_kind: str
    kind: str
    lanes: int

    @property
    def _pixels(self) -> tuple[range, range]:
        """Where the rows of a tile and the pixels of a row are, counted from the first."""
        down, across = (range(0, len(matrix[0]) * apart, apart) for matrix, apart in zip(self.matrices, self.tiling.apart, strict=True))
        return down, across

    @property
    def _rows_exist(self) -> bool:
        """Whether all rows of all tiles are rows of the image."""
        down, extent = self._pixels[0], self.tiling.extents[0]
        return len(down) == 1 and self.tiling.steps[0] == 1 and 0 <= self.origin[0] <= self.shape[0] - extent

    def emit(self, module: Module, name: str, to: Operand) -> str:
        """Emits `void name(ptr x, i64 begin, i64 end, i64 low, i64 high, ptr to)`: channels low .. high (whole
        vectors, but for the last) of tiles begin .. end, the first of which goes to `to`; up to whole vectors the
        channels beyond the last become zero. Returns the name.
        """
        (h, w, c), (down, across) = self.shape, self._pixels
        fits = h > down[-1] and w > across[-1]
        inner = self._tile(module, f"{name}.inner", to, False) if fits else ""
        edge = self._tile(module, f"{name}.edge", to, True)
        numbers = i64(c), i64(to.plane)
        params = [("x", PTR), *((n, I64) for n in ("begin", "end", "low", "high")), ("to", PTR)]
        b = FunctionBuilder(module, name, params, attributes="nounwind noinline")
        channels = b.args["low"], b.args["high"]
        nothing = None
        if not self._rows_exist:
            nothing = b.alloca(LType(self.in_kind), (across[-1] + 1) * c)
            clear_run(b, nothing, (across[-1] + 1) * c, self.in_kind, self.lanes)
        with b.loop(b.args["begin"], b.args["end"], name="tile") as tile:
            image, top, left = self.tiling.start(b, tile.index)
            row, pixel = affine(b, [(top, 1)], self.origin[0]), affine(b, [(left, 1)], self.origin[1])
            at = b.gep(b.args["to"], affine(b, [(b.sub(tile.index, b.args["begin"]), to.pitch)]), LType(self.kind))
            start = affine(b, [(image, h * w * c), (row, w * c), (pixel, c)])
            lines = [displaced(b, b.args["x"], affine(b, [(start, 1)], i * w * c), LType(self.in_kind)) for i in down]

            def partly(row: Val = row, pixel: Val = pixel, at: Val = at, lines: list[Val] = lines) -> None:
                inside = lines
                if nothing is not None:
                    exist = [b.icmp("ult", affine(b, [(row, 1)], i), i64(h)) for i in down]
                    inside = [b.select(bit, line, nothing) for bit, line in zip(exist, lines, strict=True)]
                b.call(edge, VOID, *inside, at, *channels, *numbers, b.sub(i64(0), pixel), b.sub(i64(w), pixel))

            if fits:
                whole = b.and_(b.icmp("ult", row, i64(h - down[-1])), b.icmp("ult", pixel, i64(w - across[-1])))
                b.if_else(whole, lambda at=at, lines=lines: b.call(inner, VOID, *lines, at, *channels, *numbers), partly)  # type: ignore[misc]
            else:
                partly()
        return b.finish()

    def _tile(self, module: Module, name: str, to: Operand, partly: bool) -> str:
        """The function for one tile, which convolutions share that differ in their channels only, see `_emit_tile`."""
        whole, rest = divmod(self.shape[2], self.lanes)
        key = "winograd tile", self.matrices, self.tiling.apart, self.in_kind, self.kind, self.lanes, whole > 0, rest, partly
        return module.shared(key, {"channels": self.shape[2], "plane": to.plane}, lambda: self._emit_tile(module, name, partly))

    def _emit_tile(self, module: Module, name: str, partly: bool) -> str:
        """Emits `void name(ptr line..., ptr to, i64 low, i64 high, i64 channels, i64 plane)`: the channels low .. high of one tile from
        where its rows of pixels begin, products `plane` elements apart. With `partly` two more parameters `i64 first, i64 stop` say which
        pixels exist.
        """
        kind, (down, across), products = LType(self.kind), self._pixels, len(self.matrices[1])
        numbers = ("low", "high", "channels", "plane", *(("first", "stop") if partly else ()))
        params = [*((f"line{i}", PTR) for i in range(len(down))), ("to", PTR), *((n, I64) for n in numbers)]
        b = FunctionBuilder(module, name, params, attributes="nounwind noinline")
        exists: list[Val | None] = [None] * len(across)
        if partly:
            inside = [b.and_(b.icmp("sle", b.args["first"], i64(j)), b.icmp("sgt", b.args["stop"], i64(j))) for j in across]
            exists = [b.splat(bit, self.lanes) for bit in inside]
        pixels = [affine(b, [(b.args["channels"], j)]) for j in across]
        places = [affine(b, [(b.args["plane"], k)]) for k in range(len(self.matrices[0]) * products)]

        def piece(channel: Val, lanes: Val | None) -> None:
            lines = [displaced(b, b.args[f"line{i}"], channel, LType(self.in_kind)) for i in range(len(down))]
            at = b.gep(b.args["to"], b.sub(channel, b.args["low"]), kind)

            def load(i: int, j: int) -> Val:
                source = displaced(b, lines[i], pixels[j], LType(self.in_kind))
                return load_as(b, source, self.in_kind, self.kind, self.lanes, _both(b, exists[j], lanes))

            def store(i: int, j: int, value: Val) -> None:
                b.store(value, b.gep(at, places[i * products + j], kind))

            transform_grid(b, self.matrices, load, evaluate, store)

        whole, rest = divmod(self.shape[2], self.lanes)
        _for_channels(b, affine(b, [(b.args["channels"], 1)], -rest) if whole else i64(0), rest, self.lanes, piece)
        return b.finish()


def _for_channels(b: FunctionBuilder, full: Val, rest: int, lanes: int, piece: Callable[[Val, Val | None], None]) -> None:
    """`piece(channel, mask)` for the vectors of the range "low" .. "high" of the function's arguments: whole ones up to `full`, behind which
    `rest` channels are left."""
    if full.text != "0":
        with b.loop(b.args["low"], b.binary("smin", b.args["high"], full), lanes, name="channel") as loop:
            piece(loop.index, None)
    if rest:
        with b.if_then(b.icmp("sgt", b.args["high"], full)):
            piece(full, constant_mask(rest, lanes))


def _both(b: FunctionBuilder, x: Val | None, y: Val | None) -> Val | None:
    if x is None or y is None:
        return y if x is None else x
    return b.and_(x, y)


@dataclass(frozen=True, slots=True)
class OutputTiles:
    """Tiles of outputs of images of `shape` (h, w, channels)."""

    algorithm: Nested
    shape: tuple[int, int, int]
    tiling: Tiling
    kind: str
    out_kind: str
    lanes: int
    direct: DirectTile

    def emit(self, module: Module, name: str, products: Operand, epilogue: Epilogue | None, extra: Extra) -> str:
        """Emits `void name(ptr products, ptr x, ptr w, ptr y, i64 begin, i64 end, i64 low, i64 high, extra...)`: the
        channels low .. high of tiles begin .. end, the first of which is at `products`. Returns the name.
        """
        params = [*((n, PTR) for n in ("products", "x", "w", "y")), *((n, I64) for n in ("begin", "end", "low", "high"))]
        rare: dict[Val | None, str] = {}
        b = FunctionBuilder(module, name, [*params, *extra], attributes="nounwind noinline")
        (h, w, c), (down, across) = self.shape, self.tiling.apart
        with b.loop(b.args["begin"], b.args["end"], name="tile") as tile:
            image, row, pixel = self.tiling.start(b, tile.index)
            first = affine(b, [(image, h * w), (row, w), (pixel, 1)])
            room = (b.sub(i64(h), row), b.sub(i64(w), pixel))
            source = affine(b, [(b.sub(tile.index, b.args["begin"]), products.pitch)])
            at = b.gep(b.args["products"], source, LType(self.kind))

            def piece(column: Val, mask: Val | None) -> None:
                product = b.gep(at, b.sub(column, b.args["low"]), LType(self.kind))

                def load(i: int, j: int) -> Val:
                    place = (i * self.algorithm.pixels.size + j) * products.plane
                    return b.load(b.gep(product, place, LType(self.kind)), LType(self.kind, self.lanes))

                def store(i: int, j: int, value: Val) -> None:
                    i, j = i * down, j * across
                    inside = b.and_(b.icmp("sgt", room[0], i64(i)), b.icmp("sgt", room[1], i64(j))) if not self.tiling.whole else None
                    with b.if_then(inside) if inside is not None else nullcontext():
                        self._store(b, value, affine(b, [(first, 1)], i * w + j), column, mask, epilogue)

                matrices = self.algorithm.output_matrices
                columns = transform_columns(b, matrices, load, interpolate)
                if mask not in rare:
                    rare[mask] = self._emit_direct(module, f"{name}.direct{len(rare)}", epilogue, extra, mask)
                given = [b.args["x"], b.args["w"], b.args["y"], tile.index, column, *(b.args[n] for n, _ in extra)]
                b.if_else(
                    all_moderate(b, [value for line in columns for value in line], mask),
                    lambda: transform_rows(b, matrices, columns, interpolate, store),
                    lambda: b.call(rare[mask], VOID, *given) and None,
                )

            rest = c % self.lanes
            _for_channels(b, i64(c - rest), rest, self.lanes, piece)
        return b.finish()

    def _emit_direct(self, module: Module, name: str, epilogue: Epilogue | None, extra: Extra, mask: Val | None) -> str:
        """Emits `void name(ptr x, ptr w, ptr y, i64 tile, i64 column, extra...)`, which sums a vector of columns of a tile directly."""
        params = [*((n, PTR) for n in ("x", "w", "y")), ("tile", I64), ("column", I64), *extra]
        b = FunctionBuilder(module, name, params, attributes="nounwind noinline cold")
        (h, w, _), column, vector = self.shape, b.args["column"], LType(self.kind, self.lanes)
        (rows, pixels), (down, across) = self.tiling.steps, self.tiling.apart
        sums = self.direct.emit(b, b.args["x"], b.args["w"], b.args["tile"], column, mask)
        image, top, left = self.tiling.start(b, b.args["tile"])
        with b.loop(0, rows, name="row") as i, b.loop(0, pixels, name="pixel") as j:
            row, pixel = affine(b, [(top, 1), (i.index, down)]), affine(b, [(left, 1), (j.index, across)])
            with b.if_then(b.and_(b.icmp("slt", row, i64(h)), b.icmp("slt", pixel, i64(w)))):
                value = b.load(b.gep(sums, affine(b, [(i.index, pixels * self.lanes), (j.index, self.lanes)]), LType(self.kind)), vector)
                self._store(b, value, affine(b, [(image, h * w), (row, w), (pixel, 1)]), column, mask, epilogue)
        return b.finish()

    def _store(self, b: FunctionBuilder, value: Val, pixel: Val, column: Val, mask: Val | None, epilogue: Epilogue | None) -> None:
        finished: Val | None = value
        if epilogue is not None:
            finished = epilogue(b, value, pixel, column, mask, i64(0))
        to = b.gep(b.args["y"], affine(b, [(pixel, self.shape[2]), (column, 1)]), LType(self.out_kind))
        store_finished(b, finished, to, self.out_kind, mask)


