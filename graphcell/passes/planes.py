"""Convolutions in which every channel has filters of its own, as sums of shifted images: blurs, edge detectors, stencils, short filters of signals.

Enters: such a convolution, or its gradient for the images, channels-first and between steps that are so, too. Leaves: multiply-adds of what is padded and
shifted, which are loops along the rows of pixels together with the steps before and behind. Refuses: strides that loops would gather, and those of
gradients, whose results would be put between each other, and those of half precision, of which the ends of rows are loaded one by one; filters of more taps
than there are registers for their weights, and short rows, unless the channels, along which the convolution's own kernel goes, are too few for it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from graphcell.dtype import DType, float32
from graphcell.ir.graph import Node, Value
from graphcell.ir.types import Shape
from graphcell.ops.arithmetic import Add, Cast, Mul
from graphcell.ops.convolution import Conv, ConvInputGrad
from graphcell.ops.movement import BroadcastTo, Pad, Reshape, Slice
from graphcell.passes.costs import SMALL_STRIDE, masks_are_quick

_MOST_TAPS, _MOST_TAPS_OF_FEW = 9, 64
_LEAST_WIDTH, _WIDE = 16, 64  # pixels of a row
_MOST_FILTERS = 4  # of a channel with rows that are not wide
_FEW, _VERY_FEW = 7, 3  # channels of the result
_VERY_FEW_BY_STRIDE = {1: _VERY_FEW, 2: 1}  # of filters of many taps
_MOST_TERMS = 1024  # of a graph or a region, such as of a loop that is unrolled; they take about a second to compile

Emit = Callable[..., Value]
Margins = tuple[tuple[int, int], ...]


def convolutions_of_planes(nodes: Sequence[Node]) -> frozenset[Node]:
    """Those of the nodes that are better sums of shifted images where these are channels-first; none if so many sums would take long to compile."""
    terms = {node: n for node in nodes if (n := _terms(node))}
    return frozenset(terms if sum(terms.values()) <= _MOST_TERMS else ())


def _terms(node: Node) -> int:
    """Of how many shifted images the result is the sum; 0 for nodes that stay as they are."""
    op = node.op
    if not isinstance(op, (Conv, ConvInputGrad)) or op.channels_last or op.rank != 2:
        return 0
    weights, result = node.operands[isinstance(op, Conv)].type.shape, node.results[0].type.shape
    if not _strides_suit(op, weights[0], node.results[0].type.dtype) or weights[1] != 1 or 0 in result or min(itertools.chain(*_margins(op, weights[2:]))) < 0:
        return 0
    filters, taps, width = weights[0] // op.groups, math.prod(weights[2:]), result[-1]
    terms = taps if isinstance(op, Conv) else taps * filters
    if terms > (_MOST_TAPS_OF_FEW if weights[0] <= _VERY_FEW_BY_STRIDE.get(op.stride[1], 0) and width >= _WIDE else _MOST_TAPS):
        return 0
    suits = terms == 1 or width >= _WIDE or (filters <= _MOST_FILTERS and (width >= _LEAST_WIDTH or weights[0] <= _FEW))
    return terms if suits else 0


def _strides_suit(op: Conv | ConvInputGrad, channels: int, dtype: DType) -> bool:
    """Whether loops along rows read and write whole vectors."""
    if op.stride[1] == 1 or isinstance(op, ConvInputGrad):
        return isinstance(op, Conv) or op.stride == (1, 1)
    return op.stride[1] <= SMALL_STRIDE and (channels <= _VERY_FEW or masks_are_quick(dtype))


def sum_of_shifted(node: Node, images: Value, weights: Value, emit: Emit) -> Value:
    """What `node` computes of images and weights that are channels-first; of half precision in float32, rounded once, though a long sum be several loops."""
    op = node.op
    assert isinstance(op, (Conv, ConvInputGrad))
    dtype = images.type.dtype
    if dtype.itemsize == 2:
        images, weights = emit(Cast(float32), images), emit(Cast(float32), weights)
    is_gradient = isinstance(op, ConvInputGrad)
    filters, kernel = weights.type.shape[0] // op.groups, weights.type.shape[2:]
    result = node.results[0].type.shape
    low, high = zip(*_margins(op, kernel), strict=True)
    padded = emit(Pad((0, 0, *low), (0, 0, *high), (0, 0, 0, 0), 0.0), images)
    inner = 1 if is_gradient else filters  # images of the result for each channel
    count, extents = result[0], padded.type.shape[2:]
    planes = emit(Reshape((count, op.groups, padded.type.shape[1] // op.groups, *extents)), padded)
    shape = (count, op.groups, inner, *result[2:])
    numbers = emit(Reshape((1, op.groups, filters, *kernel)), weights)
    taps = list(op.taps(kernel, result[2:]))
    pairs = list(zip([window for _, window in taps], [tap for tap, _ in (reversed(taps) if is_gradient else taps)], strict=True))
    total: Value | None = None
    for filter, (window, tap) in itertools.product(range(filters if is_gradient else 1), pairs):
        rows, columns = window[2:]
        start, steps = (0, 0, filter, rows.start, columns.start), (1, 1, 1, rows.step, columns.step)
        shifted = _part(emit, planes, start, (count, op.groups, 1, *result[2:]), steps)
        weight = _part(emit, numbers, (0, 0, filter, *tap), (1, op.groups, inner, 1, 1), (1,) * 5)
        product = emit(Mul(), *[v if v.type.shape == shape else emit(BroadcastTo(shape), v) for v in (shifted, weight)])
        total = product if total is None else emit(Add(), total, product)
    assert total is not None
    rounded = total if total.type.dtype is dtype else emit(Cast(dtype), total)
    return emit(Reshape(result), rounded)


def _margins(op: Conv | ConvInputGrad, kernel: Shape) -> Margins:
    """Zeros before and behind the rows and columns of what is shifted; for a gradient, the results of a convolution, those that its filters reach over."""
    if isinstance(op, Conv):
        return op.padding
    return tuple((d * (k - 1) - low, d * (k - 1) - high) for k, d, (low, high) in zip(kernel, op.dilation, op.padding, strict=True))


def _part(emit: Emit, v: Value, start: tuple[int, ...], size: Shape, steps: tuple[int, ...]) -> Value:
    """Some elements of v; of as many as v has, there are no others to step over."""
    return v if size == v.type.shape else emit(Slice(start, size, steps), v)
