"""Copies a band of input rows with the zeros around it, so that a convolution's taps never meet an edge.

Enters: NHWC images in memory. Leaves: a copy in scratch memory, of the accumulation kind, with pitches of its
own.
"""

from __future__ import annotations

from graphcell.codegen.llvm.contraction import affine
from graphcell.codegen.llvm.packing import clear_run, copy_run
from graphcell.codegen.llvm.text import FunctionBuilder, LType, Val, i64
from graphcell.records import dataclass


@dataclass(frozen=True, slots=True)
class PaddedCopy:
    """`width` pixels of each row, the first of which is pixel `origin` of the image (it may lie outside:
    zeros).

    `in_shape` is (h, w, channels) of an image; `pitch` the distances in the copy from image to image, row to
    row, pixel to pixel.
    """

    in_shape: tuple[int, int, int]
    origin: int
    width: int
    pitch: tuple[int, int, int]
    in_kind: str
    kind: str
    lanes: int

    def emit(
        self,
        b: FunctionBuilder,
        x: Val,
        to: Val,
        images: int | Val,
        first: Val,
        rows: Val,
        channels: int | Val,
    ) -> None:
        """Copies rows `first`, ... (`rows` of them, any of which may lie outside) of `images` images; x
        points to the first image's first channel that is wanted.
        """
        in_h, in_w, in_c = self.in_shape
        # Even rows that are outside are addressed by integers only, never by a pointer outside the image.
        with b.loop(0, images, name="copy.image") as n, b.loop(0, rows, name="copy.row") as r:
            row = b.add(first, r.index)
            line = b.gep(
                to, affine(b, [(n.index, self.pitch[0]), (r.index, self.pitch[1])]), LType(self.kind)
            )
            source = affine(b, [(n.index, in_h * in_w * in_c), (row, in_w * in_c)])
            b.if_else(
                b.icmp("ult", row, i64(in_h)),
                lambda: self._copy_row(b, b.gep(x, source, LType(self.in_kind)), line, channels),
                lambda: clear_run(b, line, self.width * self.pitch[2], self.kind, self.lanes),
            )

    def _copy_row(self, b: FunctionBuilder, source: Val, to: Val, channels: int | Val) -> None:
        _, in_w, in_c = self.in_shape
        pitch, kind = self.pitch[2], LType(self.kind)
        begin = min(self.width, max(0, -self.origin))
        end = max(begin, min(self.width, in_w - self.origin))
        clear_run(b, to, begin * pitch, self.kind, self.lanes)
        clear_run(b, b.gep(to, end * pitch, kind), (self.width - end) * pitch, self.kind, self.lanes)
        if end == begin:
            return
        source = b.gep(source, (begin + self.origin) * in_c, LType(self.in_kind))
        to = b.gep(to, begin * pitch, kind)
        if channels == pitch == in_c:
            copy_run(b, source, to, (end - begin) * in_c, self.in_kind, self.kind, self.lanes)
            return
        with b.loop(0, end - begin, name="copy.pixel", at_least_once=True) as pixel:
            copy_run(
                b,
                b.gep(source, b.mul(pixel.index, i64(in_c)), LType(self.in_kind)),
                b.gep(to, b.mul(pixel.index, i64(pitch)), kind),
                channels,
                self.in_kind,
                self.kind,
                self.lanes,
            )
