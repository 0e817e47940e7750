"""Direct convolution in numpy float64, tap by tap: the reference of the tests of native convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphcell.codegen.llvm.correlation import ConvSpec

Array = NDArray[Any]


def output_size(spec: ConvSpec) -> tuple[int, int]:
    """By the textbook formula, one axis at a time."""
    sizes = []
    for extent, pads, taps, dilation, stride in (
        (spec.h, spec.padding[:2], spec.kh, spec.dilation[0], spec.stride[0]),
        (spec.w, spec.padding[2:], spec.kw, spec.dilation[1], spec.stride[1]),
    ):
        room = extent + sum(pads) - (dilation * (taps - 1) + 1)
        sizes.append(room // stride + 1 if room >= 0 else 0)
    return sizes[0], sizes[1]


def tap_slices(spec: ConvSpec) -> Iterator[tuple[int, int, slice, slice]]:
    """(tap row, tap, rows, pixels): the slices of the padded input that the tap reads."""
    oh, ow = output_size(spec)
    for i in range(spec.kh):
        for j in range(spec.kw):
            top, left = i * spec.dilation[0], j * spec.dilation[1]
            yield (
                i,
                j,
                slice(top, top + (oh - 1) * spec.stride[0] + 1, spec.stride[0]),
                slice(left, left + (ow - 1) * spec.stride[1] + 1, spec.stride[1]),
            )


def pad(spec: ConvSpec, x: Array) -> Array:
    """Zeros around, or rows and columns cut off where the padding is negative."""
    top, bottom, left, right = spec.padding
    x = np.pad(x, ((0, 0), (max(top, 0), max(bottom, 0)), (max(left, 0), max(right, 0)), (0, 0)))
    return x[:, max(-top, 0) : x.shape[1] - max(-bottom, 0), max(-left, 0) : x.shape[2] - max(-right, 0)]


def forward(spec: ConvSpec, x: Array, w: Array) -> Array:
    """x [n, h, w, c], w [k, c / groups, kh, kw] -> y [n, oh, ow, k]."""
    oh, ow = output_size(spec)
    padded = pad(spec, x.astype(np.float64)).reshape(
        spec.n, *pad(spec, x).shape[1:3], spec.groups, spec.c // spec.groups
    )
    filters = w.astype(np.float64).reshape(spec.groups, spec.k // spec.groups, *w.shape[1:])
    y = np.zeros((spec.n, oh, ow, spec.groups, spec.k // spec.groups))
    for i, j, rows, pixels in tap_slices(spec):
        y += np.einsum("nhwgc,gkc->nhwgk", padded[:, rows, pixels], filters[..., i, j])
    return y.reshape(spec.n, oh, ow, spec.k)


def input_gradient(spec: ConvSpec, dy: Array, w: Array) -> Array:
    """The adjoint of `forward` in x: what each tap read gets its share of dy back."""
    top, bottom, left, right = spec.padding
    height, width = spec.h + max(top, 0) + max(bottom, 0), spec.w + max(left, 0) + max(right, 0)
    full = np.zeros((spec.n, height, width, spec.c))
    seen = full[
        :, max(-top, 0) : height - max(-bottom, 0), max(-left, 0) : width - max(-right, 0)
    ]  # the rest was cut off
    cotangent = dy.astype(np.float64).reshape(*dy.shape[:3], spec.groups, spec.k // spec.groups)
    filters = w.astype(np.float64).reshape(spec.groups, spec.k // spec.groups, *w.shape[1:])
    for i, j, rows, pixels in tap_slices(spec):
        share = np.einsum("nhwgk,gkc->nhwgc", cotangent, filters[..., i, j])
        seen[:, rows, pixels] += share.reshape(*share.shape[:3], spec.c)
    return full[:, max(top, 0) : max(top, 0) + spec.h, max(left, 0) : max(left, 0) + spec.w]


def weights_gradient(spec: ConvSpec, x: Array, dy: Array) -> Array:
    """The adjoint of `forward` in w: [k, c / groups, kh, kw]."""
    padded = pad(spec, x.astype(np.float64)).reshape(
        spec.n, *pad(spec, x).shape[1:3], spec.groups, spec.c // spec.groups
    )
    cotangent = dy.astype(np.float64).reshape(*dy.shape[:3], spec.groups, spec.k // spec.groups)
    dw = np.zeros((spec.groups, spec.k // spec.groups, spec.c // spec.groups, spec.kh, spec.kw))
    for i, j, rows, pixels in tap_slices(spec):
        dw[..., i, j] = np.einsum("nhwgc,nhwgk->gkc", padded[:, rows, pixels], cotangent)
    return dw.reshape(spec.k, spec.c // spec.groups, spec.kh, spec.kw)
