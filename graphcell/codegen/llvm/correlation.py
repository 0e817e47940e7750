"""What a convolution of known shape computes, and its form as correlations.

Enters: `ConvSpec`, as a user's op gives it. Leaves: `Correlation`s, one for the forward direction and one for
each phase (row and column modulo the stride) of the gradient with respect to the input: out[q] = sum over
taps of in[origin + q * in_step + tap * tap_step] * weight. Refuses: extents, groups and layouts that make no
sense (`ValueError`) and kinds that are no floats (`TypeError`).

Reference: V. Dumoulin, F. Visin, "A guide to convolution arithmetic for deep learning", arXiv:1603.07285.
"""

from __future__ import annotations

from dataclasses import replace

from graphcell.codegen.llvm.contraction import accumulation_kind, ceil_div
from graphcell.records import dataclass


@dataclass(frozen=True, slots=True)
class ConvSpec:
    """A convolution: x [n, h, w, c] with weights of k filters gives y [n, oh, ow, k].

    `weights` names the layout in memory: "OIHW" is [k, c / groups, kh, kw], "HWIO" is [kh, kw, c / groups,
    k]. `padding` is (top, bottom, left, right), zeros, and may be negative (rows are cut off).
    """

    n: int
    h: int
    w: int
    c: int
    k: int
    kh: int
    kw: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    x_kind: str = "float"
    w_kind: str = "float"
    y_kind: str = "float"
    weights: str = "OIHW"

    def __post_init__(self) -> None:
        if (
            min(self.n, self.h, self.w, self.c, self.k) < 0
            or min(self.kh, self.kw, *self.stride, *self.dilation, self.groups) < 1
        ):
            raise ValueError(f"convolution: bad extents in {self}")
        if self.c % self.groups or self.k % self.groups:
            raise ValueError(f"convolution: channels are no multiple of the groups in {self}")
        if self.weights not in ("OIHW", "HWIO"):
            raise ValueError(f"convolution: weights are OIHW or HWIO, not {self.weights}")
        accumulation_kind(self.x_kind, self.w_kind, self.y_kind)

    @property
    def kind(self) -> str:
        """The kind in which products are summed."""
        return accumulation_kind(self.x_kind, self.w_kind, self.y_kind)

    @property
    def oh(self) -> int:
        return max(
            0,
            (self.h + self.padding[0] + self.padding[1] - self.dilation[0] * (self.kh - 1) - 1)
            // self.stride[0]
            + 1,
        )

    @property
    def ow(self) -> int:
        return max(
            0,
            (self.w + self.padding[2] + self.padding[3] - self.dilation[1] * (self.kw - 1) - 1)
            // self.stride[1]
            + 1,
        )

    @property
    def depthwise(self) -> bool:
        return self.groups == self.c == self.k and self.groups > 1

    @property
    def pointwise(self) -> bool:
        """Whether it is the product of a pixels x channels matrix with the weights."""
        return (self.kh, self.kw, self.stride, self.padding, self.groups) == (1, 1, (1, 1), (0, 0, 0, 0), 1)

    @property
    def flops(self) -> int:
        return 2 * self.n * self.oh * self.ow * self.k * self.kh * self.kw * (self.c // self.groups)

    @property
    def weight_strides(self) -> tuple[int, int, int, int]:
        """Elements from filter to filter (within a group), channel to channel, tap row to tap row, tap to
        tap.
        """
        taps, channels = self.kh * self.kw, self.c // self.groups
        if self.weights == "OIHW":
            return channels * taps, taps, self.kw, 1
        return 1, self.k, self.kw * channels * self.k, channels * self.k

    @property
    def group_stride(self) -> int:
        """Elements from the weights of one group to the next."""
        return self.k // self.groups * self.weight_strides[0]


@dataclass(frozen=True, slots=True)
class Axis:
    """One image axis of a correlation: output q (of `count`) is at `start + q * step`; its tap i reads
    `origin + q * in_step + i * tap_step`.

    Tap i (of `taps`) has the weights of tap `weight + i * weight_step` of the convolution.
    """

    count: int
    start: int
    step: int
    in_step: int
    origin: int
    taps: int
    tap_step: int
    weight: int
    weight_step: int

    @property
    def reach(self) -> int:
        """Inputs from the first to the last that one output reads."""
        return (self.taps - 1) * self.tap_step + 1 if self.taps else 0

    def inputs(self, outputs: int) -> int:
        """Inputs that `outputs` neighbouring outputs read."""
        return (outputs - 1) * self.in_step + self.reach if self.taps else 0

    def active(self, tap: int, extent: int) -> range:
        """The outputs for which `tap` reads inside 0 .. extent."""
        first = self.origin + tap * self.tap_step
        start = max(0, ceil_div(-first, self.in_step))
        return range(start, max(start, min(self.count, (extent - 1 - first) // self.in_step + 1)))

    def all_active(self, extent: int) -> tuple[range, ...]:
        """`active` for each tap."""
        return tuple(self.active(tap, extent) for tap in range(self.taps))

    def inside(self, extent: int) -> bool:
        """Whether no tap ever reaches outside 0 .. extent."""
        return self.taps == 0 or (self.origin >= 0 and self.origin + self.inputs(self.count) <= extent)


def forward_axis(outputs: int, stride: int, before: int, taps: int, dilation: int) -> Axis:
    return Axis(outputs, 0, 1, stride, -before, taps, dilation, 0, 1)


def gradient_axis(inputs: int, phase: int, stride: int, before: int, taps: int, dilation: int) -> Axis:
    """The inputs `phase + q * stride`: tap t was read by output q + (phase + before - t * dilation) / stride,
    where that is whole.
    """
    meeting = [t for t in range(taps) if (phase + before - t * dilation) % stride == 0][::-1]
    offsets = [(phase + before - t * dilation) // stride for t in meeting]
    count = ceil_div(inputs - phase, stride)
    if not meeting:
        return Axis(count, phase, stride, 1, 0, 0, 1, 0, 0)
    several = len(meeting) > 1
    return Axis(
        count,
        phase,
        stride,
        1,
        offsets[0],
        len(meeting),
        offsets[1] - offsets[0] if several else 1,
        meeting[0],
        meeting[1] - meeting[0] if several else 0,
    )


@dataclass(frozen=True, slots=True)
class Correlation:
    """out[n, rows, columns, group, column] = sum over taps and reduction channels of in[...] * weight.

    `reduced` input channels and `columns` output channels a group; depthwise: one group, `reduced` is 1 and
    all channels are columns. Strides of a weight are given for (reduction channel, column, tap row, tap,
    group).
    """

    images: int
    in_shape: tuple[int, int, int]  # h, w, channels
    out_shape: tuple[int, int, int]
    rows: Axis
    pixels: Axis
    groups: int
    reduced: int
    columns: int
    depthwise: bool
    weight_strides: tuple[int, int, int, int, int]
    kind: str
    in_kind: str
    w_kind: str
    out_kind: str

    @property
    def grid(self) -> tuple[int, int, int]:
        """The output as a box of images, rows, pixels."""
        return self.images, self.rows.count, self.pixels.count

    @property
    def taps(self) -> int:
        return self.rows.taps * self.pixels.taps

    @property
    def flops(self) -> int:
        return (
            2
            * self.images
            * self.rows.count
            * self.pixels.count
            * self.groups
            * self.columns
            * self.reduced
            * self.taps
        )


def forward_correlation(spec: ConvSpec) -> Correlation:
    by_filter, by_channel, by_row, by_tap = spec.weight_strides
    rows = forward_axis(spec.oh, spec.stride[0], spec.padding[0], spec.kh, spec.dilation[0])
    pixels = forward_axis(spec.ow, spec.stride[1], spec.padding[2], spec.kw, spec.dilation[1])
    common = (spec.kind, spec.x_kind, spec.w_kind, spec.y_kind)
    shapes = (spec.n, (spec.h, spec.w, spec.c), (spec.oh, spec.ow, spec.k), rows, pixels)
    if spec.depthwise:
        return Correlation(*shapes, 1, 1, spec.c, True, (0, spec.group_stride, by_row, by_tap, 0), *common)
    return Correlation(
        *shapes,
        spec.groups,
        spec.c // spec.groups,
        spec.k // spec.groups,
        False,
        (by_channel, by_filter, by_row, by_tap, spec.group_stride),
        *common,
    )


def gradient_correlations(spec: ConvSpec) -> list[Correlation]:
    """One correlation of dy for each phase of the input."""
    by_filter, by_channel, by_row, by_tap = spec.weight_strides
    phases = []
    for down in range(min(spec.stride[0], spec.h)):
        for across in range(min(spec.stride[1], spec.w)):
            rows = gradient_axis(spec.h, down, spec.stride[0], spec.padding[0], spec.kh, spec.dilation[0])
            pixels = gradient_axis(spec.w, across, spec.stride[1], spec.padding[2], spec.kw, spec.dilation[1])
            if not rows.taps or not pixels.taps:
                rows, pixels = replace(rows, taps=0), replace(pixels, taps=0)
            common = (spec.kind, spec.y_kind, spec.w_kind, spec.x_kind)
            shapes = (spec.n, (spec.oh, spec.ow, spec.k), (spec.h, spec.w, spec.c), rows, pixels)
            if spec.depthwise:
                phases.append(
                    Correlation(
                        *shapes, 1, 1, spec.c, True, (0, spec.group_stride, by_row, by_tap, 0), *common
                    )
                )
                continue
            phases.append(
                Correlation(
                    *shapes,
                    spec.groups,
                    spec.k // spec.groups,
                    spec.c // spec.groups,
                    False,
                    (by_filter, by_channel, by_row, by_tap, spec.group_stride),
                    *common,
                )
            )
    return phases
