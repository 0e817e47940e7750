"""Primitive classes that combine values at positions, reduce segments of rows, and search in sorted rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from graphcell import dtype as dt
from graphcell import ops as F
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.ops.functional.common import constant
from graphcell.ops.primitive import Configured, Plain
from graphcell.ops.primitives.checks import check_tensors, check_type
from graphcell.ops.primitives.indexing import _Scatter
from graphcell.tensor import Tensor

__all__ = [
    "ApproximateEqual", "CheckValid", "DataFormatDimMap", "DataFormatVecPermute", "Eps", "FastGelu", "Gelu", "InTopK", "InplaceUpdate", "LowerBound",
    "NthElement", "Pack", "Padding", "ParallelConcat", "ScatterDiv", "ScatterMax", "ScatterMin", "ScatterMul", "ScatterNdDiv", "ScatterNdMax",
    "ScatterNdMin", "ScatterNdMul", "ScatterNdSub", "ScatterSub", "SegmentMax", "SegmentMean", "SegmentMin", "SegmentProd", "SegmentSum", "TensorAdd",
    "TensorScatterDiv", "TensorScatterMax", "TensorScatterMin", "TensorScatterMul", "TensorScatterSub", "UniqueWithPad", "Unpack", "UpperBound",
]  # fmt: skip


# -- rows and positions of Parameters ----------------------------------------------------------------------------------------
class _Combined(_Scatter):
    """Combines `updates` with what a Parameter has there; gives back the Parameter's new value."""

    function: ClassVar[Callable[..., Any]]

    def __call__(self, input_x: Any, indices: Any, updates: Any) -> Any:
        return type(self).function(input_x, indices, updates)


class ScatterSub(_Combined):
    """Subtracts `updates` from rows of a Parameter."""

    function = staticmethod(F.scatter_sub)


class ScatterMul(_Combined):
    """Multiplies rows of a Parameter by `updates`."""

    function = staticmethod(F.scatter_mul)


class ScatterDiv(_Combined):
    """Divides rows of a Parameter by `updates`."""

    function = staticmethod(F.scatter_div)


class ScatterMax(_Combined):
    """The larger of `updates` and rows of a Parameter."""

    function = staticmethod(F.scatter_max)


class ScatterMin(_Combined):
    """The smaller of `updates` and rows of a Parameter."""

    function = staticmethod(F.scatter_min)


class ScatterNdSub(_Combined):
    """Subtracts `updates` at positions of a Parameter."""

    function = staticmethod(F.scatter_nd_sub)


class ScatterNdMul(_Combined):
    """Multiplies by `updates` at positions of a Parameter."""

    function = staticmethod(F.scatter_nd_mul)


class ScatterNdDiv(_Combined):
    """Divides by `updates` at positions of a Parameter."""

    function = staticmethod(F.scatter_nd_div)


class ScatterNdMax(_Combined):
    """The larger of `updates` and what stands at positions of a Parameter."""

    function = staticmethod(F.scatter_nd_max)


class ScatterNdMin(_Combined):
    """The smaller of `updates` and what stands at positions of a Parameter."""

    function = staticmethod(F.scatter_nd_min)


class InplaceUpdate(Configured):
    """A copy of x with `v` in the rows of the first dimension that `indices` names.

    Args:
        indices: an int, or a tuple of ints in the range of the first dimension of x.

    Raises:
        TypeError: indices is something else. ValueError: an index out of range, or a shape of v that does not fit.
    """

    def __init__(self, indices: Any):
        rows = (indices,) if isinstance(indices, int) else indices
        if not isinstance(rows, tuple) or not all(isinstance(k, int) for k in rows):
            raise ArgumentTypeError(f"For 'InplaceUpdate', the 'indices' must be int or tuple of int, but got {indices!r}")
        super().__init__(indices=rows)

    def __call__(self, x: Any, v: Any) -> Any:
        check_tensors("InplaceUpdate", x=x, v=v)
        if v.shape != (len(self.indices), *x.shape[1:]):
            raise ShapeError(f"For 'InplaceUpdate', v must have the shape {(len(self.indices), *x.shape[1:])}, but has {v.shape}")
        if any(not 0 <= k < x.shape[0] for k in self.indices):
            raise ArgumentValueError(f"For 'InplaceUpdate', the 'indices' must be in range [0, {x.shape[0]}), but got {self.indices}")
        return F.tensor_scatter_elements(x, F.broadcast_to(F.reshape(_constant(self.indices), (-1, *(1,) * (x.ndim - 1))), v.shape), v, 0)


def _constant(values: Any) -> Tensor:
    return constant(np.array(list(values), np.int32))


# -- positions of Tensors ----------------------------------------------------------------------------------------------------
class TensorScatterSub(Plain):
    """A copy of the input with `updates` subtracted at positions."""

    function = staticmethod(F.tensor_scatter_sub)


class TensorScatterMul(Plain):
    """A copy of the input multiplied by `updates` at positions."""

    function = staticmethod(F.tensor_scatter_mul)


class TensorScatterDiv(Plain):
    """A copy of the input divided by `updates` at positions."""

    function = staticmethod(F.tensor_scatter_div)


class TensorScatterMax(Plain):
    """A copy of the input with the larger of it and `updates` at positions."""

    function = staticmethod(F.tensor_scatter_max)


class TensorScatterMin(Plain):
    """A copy of the input with the smaller of it and `updates` at positions."""

    function = staticmethod(F.tensor_scatter_min)


# -- segments ----------------------------------------------------------------------------------------------------------------
class _Segments(Plain):
    """Reduces rows of equal ids. How many results there are, the ids tell: a compiled call of it runs as Python.

    Inputs: x (n, …), segment_ids (n,), of integers, not negative and not falling. Outputs: (last id + 1, …); ids without rows give `empty`.

    Raises:
        TypeError: no Tensors, ids of no integers. ValueError: shapes that do not fit, falling or negative ids.
    """

    empty: ClassVar[float] = 0.0

    def __call__(self, input_x: Any, segment_ids: Any) -> Any:
        name = type(self).__name__
        check_tensors(name, input_x=input_x, segment_ids=segment_ids)
        if not segment_ids.dtype.is_integer:
            raise ArgumentTypeError(f"For '{name}', the 'segment_ids' must be integers, but are of {segment_ids.dtype}")
        if segment_ids.ndim != 1 or input_x.ndim == 0 or segment_ids.shape[0] != input_x.shape[0]:
            raise ShapeError(f"For '{name}', the 'segment_ids' must have the shape {input_x.shape[:1]}, but have {segment_ids.shape}")
        ids = segment_ids.asnumpy()
        if ids.size and (ids[0] < 0 or (ids[1:] < ids[:-1]).any()):
            raise ArgumentValueError(f"For '{name}', the 'segment_ids' must not be negative, and must not fall, but they are {ids.tolist()}")
        count = int(ids[-1]) + 1 if ids.size else 0
        found = type(self).function(input_x, F.cast(segment_ids, dt.int32), count)
        filled = F.unsorted_segment_sum(F.ones_like(F.cast(segment_ids, dt.int32)), F.cast(segment_ids, dt.int32), count)
        filled = F.reshape(filled, (-1, *(1,) * (input_x.ndim - 1)))
        return self._finished(found, filled)

    def _finished(self, found: Any, rows: Any) -> Any:
        return F.where(rows > 0, found, F.full_like(found, type(self).empty))


class SegmentSum(_Segments):
    """The sums of rows of equal ids."""

    function = staticmethod(F.unsorted_segment_sum)


class SegmentMean(_Segments):
    """The means of rows of equal ids."""

    function = staticmethod(F.unsorted_segment_sum)

    def _finished(self, found: Any, rows: Any) -> Any:
        return F.cast(found / F.maximum(rows, 1), found.dtype)


class SegmentMax(_Segments):
    """The maxima over rows of equal ids."""

    function = staticmethod(F.unsorted_segment_max)


class SegmentMin(_Segments):
    """The minima over rows of equal ids."""

    function = staticmethod(F.unsorted_segment_min)


class SegmentProd(_Segments):
    """The products of rows of equal ids; 1 without rows."""

    function = staticmethod(F.unsorted_segment_prod)
    empty = 1.0


# -- searching ---------------------------------------------------------------------------------------------------------------
class _Bound(Configured):
    """Where the values would stand in the sorted rows, of the same number.

    Args:
        out_type: int32 (default) or int64.

    Raises:
        TypeError: another dtype.
    """

    right: ClassVar[bool]

    def __init__(self, out_type: Any = dt.int32):
        if out_type not in (dt.int32, dt.int64):
            raise ArgumentTypeError(f"For '{type(self).__name__}', the 'out_type' must be int32 or int64, but got {out_type}")
        super().__init__(out_type=out_type)

    def __call__(self, sorted_x: Any, values: Any) -> Any:
        name = type(self).__name__
        check_tensors(name, sorted_x=sorted_x, values=values)
        if sorted_x.ndim != 2 or values.ndim != 2 or sorted_x.shape[0] != values.shape[0]:
            raise ShapeError(f"For '{name}', both must be matrices of as many rows, but their shapes are {sorted_x.shape} and {values.shape}")
        return F.searchsorted(sorted_x, values, out_int32=self.out_type == dt.int32, right=type(self).right)


class LowerBound(_Bound):
    """The first place at which a sorted row is not less than the value."""

    right = False


class UpperBound(_Bound):
    """The first place at which a sorted row is greater than the value."""

    right = True


class InTopK(Configured):
    """Whether the targets' predictions are among the k largest of their rows: x1 (n, classes), x2 (n,) of integers → (n,) of Bool.

    Args:
        k: how many count.

    Raises:
        TypeError: k is no int.
    """

    def __init__(self, k: int):
        check_type("InTopK", "k", k, int)
        super().__init__(k=k)

    def __call__(self, x1: Any, x2: Any) -> Any:
        check_tensors("InTopK", x1=x1, x2=x2)
        if x1.ndim != 2 or x2.shape != x1.shape[:1]:
            raise ShapeError(f"For 'InTopK', x1 must be (n, classes) and x2 (n,), but they are {x1.shape} and {x2.shape}")
        own = F.gather_elements(x1, 1, F.expand_dims(x2, 1))
        larger = F.cast(x1 > own, dt.int32).sum(1)
        return F.logical_and(larger < self.k, F.isfinite(F.squeeze(own, 1)))


class NthElement(Configured):
    """The n-th smallest element of each row.

    Args:
        reverse: the n-th largest.

    Raises:
        TypeError: reverse is no bool. ValueError: n is not in the range of the last dimension.
    """

    def __init__(self, reverse: bool = False):
        check_type("NthElement", "reverse", reverse, bool)
        super().__init__(reverse=reverse)

    def __call__(self, input: Any, n: Any) -> Any:
        check_tensors("NthElement", input=input)
        place = int(n)
        if input.ndim == 0 or not 0 <= place < input.shape[-1]:
            raise ArgumentValueError(f"For 'NthElement', 'n' must be in range [0, {input.shape[-1] if input.ndim else 0}), but got {place}")
        return F.sort(input, -1, self.reverse)[0][..., place]


class UniqueWithPad(Plain):
    """The different elements, and then `pad_num` up to the number of elements; and where each element is among them. How many differ, values
    tell: a compiled call of it runs as Python.
    """

    def __call__(self, x: Any, pad_num: Any) -> Any:
        check_tensors("UniqueWithPad", x=x)
        found, places = F.unique(x)
        pad = F.full_like(F.reshape(x, (-1,))[found.shape[0] :], pad_num if isinstance(pad_num, (int, float)) else pad_num.item())
        return F.concat((found, pad)), places


# -- smaller ones ------------------------------------------------------------------------------------------------------------
class CheckValid(Plain):
    """Whether boxes (n, 4) of (x0, y0, x1, y1) lie inside an image: metas (height, width, ratio), of which the ratio multiplies the others."""

    def __call__(self, bboxes: Any, img_metas: Any) -> Any:
        check_tensors("CheckValid", bboxes=bboxes, img_metas=img_metas)
        if bboxes.ndim != 2 or bboxes.shape[1] != 4 or img_metas.shape != (3,):
            raise ShapeError(f"For 'CheckValid', the boxes must be (n, 4) and the metas (3,), but they are {bboxes.shape} and {img_metas.shape}")
        height, width = img_metas[0] * img_metas[2] - 1, img_metas[1] * img_metas[2] - 1
        x0, y0, x1, y1 = (bboxes[:, k] for k in range(4))
        return F.logical_and(F.logical_and(x0 >= 0, y0 >= 0), F.logical_and(x1 <= width, y1 <= height))


class ApproximateEqual(Configured):
    """Whether |x - y| is less than the tolerance.

    Raises:
        TypeError: tolerance is no float.
    """

    def __init__(self, tolerance: float = 1e-05):
        check_type("ApproximateEqual", "tolerance", tolerance, float)
        super().__init__(tolerance=tolerance)

    def __call__(self, x: Any, y: Any) -> Any:
        check_tensors("ApproximateEqual", x=x, y=y)
        return F.abs(x - y) < self.tolerance


class Eps(Plain):
    """A Tensor of the shape of x, of the distance from 1 to the next number of its dtype."""

    def __call__(self, x: Any) -> Any:
        check_tensors("Eps", x=x)
        return F.full_like(x, {16: 2.0**-10, 32: 2.0**-23, 64: 2.0**-52}[x.dtype.bits])


class Padding(Configured):
    """Zeros after the last dimension, whose extent is 1, up to `pad_dim_size`.

    Raises:
        TypeError: pad_dim_size is no int. ValueError: it is not positive, or the last extent is not 1.
    """

    def __init__(self, pad_dim_size: int = 8):
        check_type("Padding", "pad_dim_size", pad_dim_size, int)
        if pad_dim_size <= 0:
            raise ArgumentValueError(f"For 'Padding', the 'pad_dim_size' must be > 0, but got {pad_dim_size}")
        super().__init__(pad_dim_size=pad_dim_size)

    def __call__(self, x: Any) -> Any:
        check_tensors("Padding", x=x)
        if x.ndim < 2 or x.shape[-1] != 1:
            raise ShapeError(f"For 'Padding', the last dimension of x must be 1, of 2 or more, but the shape is {x.shape}")
        return F.concat((x, F.zeros((*x.shape[:-1], self.pad_dim_size - 1), x.dtype)), -1) if self.pad_dim_size > 1 else x


class DataFormatDimMap(Configured):
    """For places in the destination format: where their dimensions are in the source format.

    Args:
        src_format, dst_format: 'NHWC' or 'NCHW'.

    Raises:
        ValueError: another format.
    """

    def __init__(self, src_format: str = "NHWC", dst_format: str = "NCHW"):
        _formats("DataFormatDimMap", src_format, dst_format)
        super().__init__(src_format=src_format, dst_format=dst_format)

    def __call__(self, input_x: Any) -> Any:
        check_tensors("DataFormatDimMap", input_x=input_x)
        table = F.cast(_constant(self.src_format.index(letter) for letter in self.dst_format), input_x.dtype)
        return F.gather(table, F.where(input_x < 0, input_x + 4, input_x), 0)


class DataFormatVecPermute(Configured):
    """A vector (4,), or pairs (4, 2), of the dimensions of one data format, in the order of another.

    Args:
        src_format, dst_format: 'NHWC' or 'NCHW'.

    Raises:
        ValueError: another format, or a shape that is none of the two.
    """

    def __init__(self, src_format: str = "NHWC", dst_format: str = "NCHW"):
        _formats("DataFormatVecPermute", src_format, dst_format)
        super().__init__(src_format=src_format, dst_format=dst_format)

    def __call__(self, input_x: Any) -> Any:
        check_tensors("DataFormatVecPermute", input_x=input_x)
        if input_x.shape not in ((4,), (4, 2)):
            raise ShapeError(f"For 'DataFormatVecPermute', the input must have the shape (4,) or (4, 2), but has {input_x.shape}")
        return F.gather(input_x, _constant(self.src_format.index(letter) for letter in self.dst_format), 0)


def _formats(owner: str, *formats: str) -> None:
    for given in formats:
        if given not in ("NHWC", "NCHW"):
            raise ArgumentValueError(f"For '{owner}', the formats must be 'NHWC' or 'NCHW', but got {given!r}")


# -- under older names -------------------------------------------------------------------------------------------------------
class TensorAdd(Plain):
    """x + y, by an older name of `ops.Add`."""

    function = staticmethod(F.add)


class Gelu(Plain):
    """`ops.GeLU` under an older name."""

    def __call__(self, input_x: Any) -> Any:
        return F.gelu(input_x, "tanh")


class FastGelu(Plain):
    """`ops.FastGeLU` under an older name."""

    function = staticmethod(F.fast_gelu)


class Pack(Configured):
    """`ops.Stack` under an older name."""

    def __init__(self, axis: int = 0):
        super().__init__(axis=axis)

    def __call__(self, x: Any) -> Any:
        return F.stack(x, self.axis)


class Unpack(Configured):
    """`ops.Unstack` under an older name."""

    def __init__(self, axis: int = 0):
        super().__init__(axis=axis)

    def __call__(self, x: Any) -> Any:
        return F.unstack(x, self.axis)


class ParallelConcat(Plain):
    """Tensors (1, …) of one shape, one after the other."""

    def __call__(self, values: Any) -> Any:
        return F.concat(values, 0)
