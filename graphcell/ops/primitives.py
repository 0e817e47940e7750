"""MindSpore's primitive classes: `ops.ReLU()`, `ops.MatMul(transpose_b=True)`, `ops.ReduceMean(keep_dims=True)`, …

A primitive is made with its settings and called with Tensors. Each is a thin wrapper of the functions in graphcell/ops/functional; what
enters, leaves and is refused is theirs. This file holds mathematics, reductions, shapes, indexing and state; primitives_nn.py holds
neural networks and optimizers.
"""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops as F
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.ops.primitive import Configured, Plain

# -- mathematics of one operand ------------------------------------------------------------------------------
class Abs(Plain):
    """|input|."""

    function = staticmethod(F.abs)


class ACos(Plain):
    """Arc cosine."""

    function = staticmethod(F.acos)


class Acosh(Plain):
    """Inverse hyperbolic cosine."""

    function = staticmethod(F.acosh)


class Asin(Plain):
    """Arc sine."""

    function = staticmethod(F.asin)


class Asinh(Plain):
    """Inverse hyperbolic sine."""

    function = staticmethod(F.asinh)


class Atan(Plain):
    """Arc tangent."""

    function = staticmethod(F.atan)


class Atanh(Plain):
    """Inverse hyperbolic tangent."""

    function = staticmethod(F.atanh)


class Ceil(Plain):
    """Rounded up."""

    function = staticmethod(F.ceil)


class Cos(Plain):
    """Cosine."""

    function = staticmethod(F.cos)


class Cosh(Plain):
    """Hyperbolic cosine."""

    function = staticmethod(F.cosh)


class Erf(Plain):
    """Error function."""

    function = staticmethod(F.erf)


class Erfc(Plain):
    """1 - erf."""

    function = staticmethod(F.erfc)


class Exp(Plain):
    """e ** input."""

    function = staticmethod(F.exp)


class Expm1(Plain):
    """e ** input - 1."""

    function = staticmethod(F.expm1)


class Floor(Plain):
    """Rounded down."""

    function = staticmethod(F.floor)


class Log(Plain):
    """Natural logarithm."""

    function = staticmethod(F.log)


class Log1p(Plain):
    """log(1 + input)."""

    function = staticmethod(F.log1p)


class Neg(Plain):
    """-input."""

    function = staticmethod(F.neg)


class Reciprocal(Plain):
    """1 / input."""

    function = staticmethod(F.reciprocal)


class Inv(Plain):
    """1 / input."""

    function = staticmethod(F.reciprocal)


class Rsqrt(Plain):
    """1 / sqrt(input)."""

    function = staticmethod(F.rsqrt)


class Sign(Plain):
    """-1, 0 or 1."""

    function = staticmethod(F.sign)


class Sin(Plain):
    """Sine."""

    function = staticmethod(F.sin)


class Sinh(Plain):
    """Hyperbolic sine."""

    function = staticmethod(F.sinh)


class Sqrt(Plain):
    """Square root."""

    function = staticmethod(F.sqrt)


class Square(Plain):
    """input²."""

    function = staticmethod(F.square)


class Tan(Plain):
    """Tangent."""

    function = staticmethod(F.tan)


class Trunc(Plain):
    """Rounded towards 0."""

    function = staticmethod(F.trunc)


class IsFinite(Plain):
    """Whether each element is finite."""

    function = staticmethod(F.isfinite)


class IsInf(Plain):
    """Whether each element is infinite."""

    function = staticmethod(F.isinf)


class IsNan(Plain):
    """Whether each element is NaN."""

    function = staticmethod(F.isnan)


class Invert(Plain):
    """Every bit flipped."""

    function = staticmethod(F.bitwise_not)


class LogicalNot(Plain):
    """not input."""

    function = staticmethod(F.logical_not)


# -- mathematics of two operands, which broadcast ------------------------------------------------------------
class Add(Plain):
    """input + other."""

    function = staticmethod(F.add)


class Sub(Plain):
    """input - other."""

    function = staticmethod(F.sub)


class Mul(Plain):
    """input * other."""

    function = staticmethod(F.mul)


class Div(Plain):
    """input / other."""

    function = staticmethod(F.div)


class RealDiv(Plain):
    """x / y."""

    function = staticmethod(F.div)


class FloorDiv(Plain):
    """input / other, rounded down."""

    function = staticmethod(F.floor_div)


class FloorMod(Plain):
    """Remainder with the sign of y."""

    function = staticmethod(F.floor_mod)


class Mod(Plain):
    """Remainder with the sign of y."""

    function = staticmethod(F.floor_mod)


class TruncateDiv(Plain):
    """x / y, rounded towards 0."""

    function = staticmethod(F.truncate_div)


class TruncateMod(Plain):
    """Remainder with the sign of x."""

    function = staticmethod(F.truncate_mod)


class Pow(Plain):
    """input ** exponent."""

    function = staticmethod(F.pow)


class Maximum(Plain):
    """The larger."""

    function = staticmethod(F.maximum)


class Minimum(Plain):
    """The smaller."""

    function = staticmethod(F.minimum)


class Atan2(Plain):
    """Angle of the point (other, input)."""

    function = staticmethod(F.atan2)


class Xlogy(Plain):
    """input log(other), 0 where input is 0."""

    function = staticmethod(F.xlogy)


class Equal(Plain):
    """input == other."""

    function = staticmethod(F.equal)


class NotEqual(Plain):
    """input != other."""

    function = staticmethod(F.not_equal)


class Less(Plain):
    """input < other."""

    function = staticmethod(F.less)


class LessEqual(Plain):
    """input <= other."""

    function = staticmethod(F.less_equal)


class Greater(Plain):
    """input > other."""

    function = staticmethod(F.greater)


class GreaterEqual(Plain):
    """input >= other."""

    function = staticmethod(F.greater_equal)


class LogicalAnd(Plain):
    """x and y."""

    function = staticmethod(F.logical_and)


class LogicalOr(Plain):
    """x or y."""

    function = staticmethod(F.logical_or)


class LogicalXor(Plain):
    """x xor y."""

    function = staticmethod(F.logical_xor)


class BitwiseAnd(Plain):
    """x & y."""

    function = staticmethod(F.bitwise_and)


class BitwiseOr(Plain):
    """x | y."""

    function = staticmethod(F.bitwise_or)


class BitwiseXor(Plain):
    """x ^ y."""

    function = staticmethod(F.bitwise_xor)


class Round(Plain):
    """Rounded to `decimals` digits after the point, halves to even."""

    def __call__(self, input: Any, decimals: int = 0) -> Any:
        return F.round(input, decimals=decimals)


class AddN(Plain):
    """The sum of a tuple or list of Tensors."""

    function = staticmethod(F.addn)


class AccumulateNV2(Plain):
    """The sum of a tuple or list of Tensors."""

    function = staticmethod(F.addn)


class MatMul(Configured):
    """Product of two matrices, each transposed first if asked for."""

    def __init__(self, transpose_a: bool = False, transpose_b: bool = False):
        super().__init__(transpose_a=transpose_a, transpose_b=transpose_b)

    def __call__(self, input: Any, mat2: Any) -> Any:
        if input.ndim != 2 or mat2.ndim != 2:
            raise ShapeError(f"MatMul: operands must have 2 dimensions, but have shapes {input.shape} and {mat2.shape}")
        return _product(self, input, mat2)


class BatchMatMul(Configured):
    """Products of the matrices in the last two dimensions, each transposed first if asked for."""

    def __init__(self, transpose_a: bool = False, transpose_b: bool = False):
        super().__init__(transpose_a=transpose_a, transpose_b=transpose_b)

    def __call__(self, x: Any, y: Any) -> Any:
        if x.ndim < 2 or y.ndim < 2:
            raise ShapeError(f"BatchMatMul: operands must have 2 dimensions at least, but have shapes {x.shape} and {y.shape}")
        return _product(self, x, y)


def _product(primitive: Any, x: Any, y: Any) -> Any:
    x = F.swapaxes(x, -1, -2) if primitive.transpose_a else x
    y = F.swapaxes(y, -1, -2) if primitive.transpose_b else y
    return F.matmul(x, y)


# -- reductions ----------------------------------------------------------------------------------------------------------
class _Reduce(Configured):
    """Along `axis`: an int, a tuple, or () for all dimensions."""

    def __init__(self, keep_dims: bool = False):
        if not isinstance(keep_dims, bool):
            raise ArgumentTypeError(
                f"For '{type(self).__name__}', the 'keep_dims' must be a bool, but got {type(keep_dims).__name__}."
            )
        super().__init__(keep_dims=keep_dims)


def _axes(axis: Any) -> Any:
    return None if axis is None or axis == () or axis == [] else tuple(axis) if isinstance(axis, list) else axis


class ReduceSum(_Reduce):
    """Sum along `axis`. With `skip_mode`, an empty axis leaves the input as it is."""

    def __init__(self, keep_dims: bool = False, skip_mode: bool = False):
        super().__init__(keep_dims)
        self.add_prim_attr("skip_mode", skip_mode)

    def __call__(self, x: Any, axis: Any = ()) -> Any:
        if self.skip_mode and _axes(axis) is None:
            return x
        return F.sum(x, _axes(axis), self.keep_dims)


class ReduceMean(_Reduce):
    """Mean along `axis`."""

    def __call__(self, x: Any, axis: Any = ()) -> Any:
        return F.mean(x, _axes(axis), self.keep_dims)


class ReduceProd(_Reduce):
    """Product along `axis`."""

    def __call__(self, x: Any, axis: Any = ()) -> Any:
        return F.prod(x, _axes(axis), self.keep_dims)


class ReduceMax(_Reduce):
    """Largest element along `axis`."""

    def __call__(self, x: Any, axis: Any = ()) -> Any:
        return F.amax(x, _axes(axis), self.keep_dims)


class ReduceMin(_Reduce):
    """Smallest element along `axis`."""

    def __call__(self, x: Any, axis: Any = ()) -> Any:
        return F.amin(x, _axes(axis), self.keep_dims)


class ReduceAll(_Reduce):
    """Whether all elements along `axis` are true."""

    def __call__(self, input: Any, axis: Any = None) -> Any:
        return F.all(input, _axes(axis), self.keep_dims)


class ReduceAny(_Reduce):
    """Whether one of the elements along `axis` is true."""

    def __call__(self, x: Any, axis: Any = ()) -> Any:
        return F.any(x, _axes(axis), self.keep_dims)


class _ArgReduce(Configured):
    def __init__(self, axis: int = -1, output_type: Any = dt.int32):
        super().__init__(axis=axis, output_type=dt.as_dtype(output_type))
        if self.output_type not in (dt.int32, dt.int64):
            raise ArgumentTypeError(f"{self.name}: output_type must be int32 or int64, but is {self.output_type}")


class Argmax(_ArgReduce):
    """Place of the largest element along `axis`."""

    def __call__(self, input_x: Any) -> Any:
        return F.cast(F.argmax(input_x, self.axis), self.output_type)


class Argmin(_ArgReduce):
    """Place of the smallest element along `axis`."""

    def __call__(self, x: Any) -> Any:
        return F.cast(F.argmin(x, self.axis), self.output_type)


class _WithValue(Configured):
    def __init__(self, axis: int = 0, keep_dims: bool = False):
        super().__init__(axis=axis, keep_dims=keep_dims)


class ArgMaxWithValue(_WithValue):
    """(place, value) of the largest element along `axis`."""

    def __call__(self, input: Any) -> tuple[Any, Any]:
        value, place = F.max(input, self.axis, self.keep_dims)
        return F.cast(place, dt.int32), value


class ArgMinWithValue(_WithValue):
    """(place, value) of the smallest element along `axis`."""

    def __call__(self, input: Any) -> tuple[Any, Any]:
        value, place = F.min(input, self.axis, self.keep_dims)
        return F.cast(place, dt.int32), value


class _Scan(Configured):
    """`exclusive`: the element itself does not count; `reverse`: from the end."""

    def __init__(self, exclusive: bool = False, reverse: bool = False):
        super().__init__(exclusive=exclusive, reverse=reverse)

    def _scan(self, x: Any, axis: int, function: Any, neutral: int) -> Any:
        if not isinstance(axis, int):
            raise ArgumentTypeError(f"{self.name}: axis must be an int, but is {type(axis).__name__}")
        x = F.flip(x, (axis,)) if self.reverse else x
        y = function(x, axis)
        if self.exclusive and x.shape[axis]:
            first = F.full_like(y, neutral)
            y = F.concat([F.narrow(first, axis, 0, 1), F.narrow(y, axis, 0, x.shape[axis] - 1)], axis)
        return F.flip(y, (axis,)) if self.reverse else y


class CumSum(_Scan):
    """Running sum along an axis."""

    def __call__(self, input: Any, axis: int) -> Any:
        return self._scan(input, axis, F.cumsum, 0)


class CumProd(_Scan):
    """Running product along an axis."""

    def __call__(self, x: Any, axis: int) -> Any:
        return self._scan(x, axis, F.cumprod, 1)


class LpNorm(Configured):
    """(sum of |x|**p along `axis`) ** (1 / p)."""

    def __init__(self, axis: Any, p: int = 2, keep_dims: bool = False, epsilon: float = 1e-12):
        super().__init__(axis=axis, p=p, keep_dims=keep_dims, epsilon=epsilon)

    def __call__(self, input: Any) -> Any:
        return F.norm(input, self.p, self.axis, self.keep_dims)


class L2Normalize(Configured):
    """x / sqrt(max(sum of x² along `axis`, epsilon))."""

    def __init__(self, axis: Any = 0, epsilon: float = 1e-4):
        super().__init__(axis=[axis] if isinstance(axis, int) else list(axis), epsilon=epsilon)

    def __call__(self, x: Any) -> Any:
        total = F.sum(x * x, tuple(self.axis), True)
        return x * F.rsqrt(F.maximum(total, self.epsilon))


class Sort(Configured):
    """(sorted values, their places) along `axis`."""

    def __init__(self, axis: int = -1, descending: bool = False):
        super().__init__(axis=axis, descending=descending)

    def __call__(self, x: Any) -> tuple[Any, Any]:
        values, places = F.sort(x, self.axis, self.descending)
        return values, F.cast(places, dt.int32)


class TopK(Configured):
    """(the k largest values, their places) along the last dimension."""

    def __init__(self, sorted: bool = True):
        super().__init__(sorted=sorted)

    def __call__(self, input_x: Any, k: int) -> tuple[Any, Any]:
        values, places = F.topk(input_x, k, sorted=self.sorted)
        return values, F.cast(places, dt.int32)


# -- shapes --------------------------------------------------------------------------------------------------------------
class Cast(Plain):
    """The input converted to `dtype`."""

    function = staticmethod(F.cast)


class DType(Plain):
    """The dtype of a Tensor."""

    function = staticmethod(F.dtype)


class Shape(Plain):
    """The shape of a Tensor, a tuple."""

    function = staticmethod(F.shape)


class Rank(Plain):
    """The number of dimensions."""

    function = staticmethod(F.rank)


class Size(Plain):
    """The number of elements."""

    function = staticmethod(F.size)


class Identity(Plain):
    """A Tensor with the same values."""

    function = staticmethod(F.identity)


class Reshape(Plain):
    """The same elements in another shape."""

    function = staticmethod(F.reshape)


class Transpose(Plain):
    """Dimensions in another order."""

    function = staticmethod(F.transpose)


class ExpandDims(Plain):
    """A dimension of extent 1 put in at `axis`."""

    function = staticmethod(F.expand_dims)


class Squeeze(Configured):
    """Dimensions of extent 1 taken out: those in `axis`, or all."""

    def __init__(self, axis: Any = ()):
        super().__init__(axis=axis)

    def __call__(self, input: Any) -> Any:
        return F.squeeze(input, None if self.axis == () else self.axis)


class Flatten(Plain):
    """All dimensions but the first as one."""

    def __call__(self, input_x: Any) -> Any:
        return F.flatten(input_x)


class BroadcastTo(Configured):
    """The input repeated to a shape; -1 keeps an extent."""

    def __init__(self, shape: Any):
        super().__init__(shape=tuple(shape))

    def __call__(self, input: Any) -> Any:
        return F.broadcast_to(input, self.shape)


class Tile(Plain):
    """The input repeated along its dimensions."""

    function = staticmethod(F.tile)


class Concat(Configured):
    """Tensors joined along `axis`."""

    def __init__(self, axis: int = 0):
        super().__init__(axis=axis)

    def __call__(self, tensors: Any) -> Any:
        return F.concat(tensors, self.axis)


class Stack(Configured):
    """Tensors joined along a new dimension `axis`."""

    def __init__(self, axis: int = 0):
        super().__init__(axis=axis)

    def __call__(self, input_x: Any) -> Any:
        return F.stack(input_x, self.axis)


class Unstack(Configured):
    """A tuple of the parts along `axis`, without that dimension."""

    def __init__(self, axis: int = 0, num: int | None = None):
        super().__init__(axis=axis, num=num)

    def __call__(self, input_x: Any) -> Any:
        if self.num is not None and input_x.shape[self.axis] != self.num:
            raise ShapeError(f"Unstack: num is {self.num}, but dimension {self.axis} of {input_x.shape} has another extent")
        return F.unstack(input_x, self.axis)


class Split(Configured):
    """A tuple of `output_num` equal parts along `axis`."""

    def __init__(self, axis: int = 0, output_num: int = 1):
        super().__init__(axis=axis, output_num=output_num)

    def __call__(self, input_x: Any) -> Any:
        extent = input_x.shape[self.axis]
        if extent % self.output_num:
            raise ArgumentValueError(f"Split: {self.output_num} parts do not divide dimension {self.axis} of {input_x.shape}")
        return F.split(input_x, extent // self.output_num, self.axis)


class Slice(Plain):
    """`size` elements from `begin` on, in each dimension."""

    function = staticmethod(F.slice)


class StridedSlice(Configured):
    """From `begin` to `end` in steps of `strides`; the masks are bits, one a dimension."""

    def __init__(
        self, begin_mask: int = 0, end_mask: int = 0, ellipsis_mask: int = 0, new_axis_mask: int = 0, shrink_axis_mask: int = 0
    ):
        super().__init__(
            begin_mask=begin_mask, end_mask=end_mask, ellipsis_mask=ellipsis_mask, new_axis_mask=new_axis_mask,
            shrink_axis_mask=shrink_axis_mask,
        )  # fmt: skip

    def __call__(self, input_x: Any, begin: Any, end: Any, strides: Any) -> Any:
        return F.strided_slice(
            input_x, begin, end, strides, self.begin_mask, self.end_mask, self.ellipsis_mask, self.new_axis_mask,
            self.shrink_axis_mask,
        )  # fmt: skip


class ReverseV2(Configured):
    """The dimensions in `axis` reversed."""

    def __init__(self, axis: Any):
        super().__init__(axis=(axis,) if isinstance(axis, int) else tuple(axis))

    def __call__(self, input: Any) -> Any:
        return F.flip(input, self.axis)


class Pad(Configured):
    """Zeros put around: `paddings` holds (before, after) for each dimension."""

    def __init__(self, paddings: Any):
        if not isinstance(paddings, tuple):
            raise ArgumentTypeError(f"For 'Pad', the type of 'paddings' must be tuple, but got {type(paddings)}.")
        super().__init__(paddings=paddings)

    def __call__(self, input_x: Any) -> Any:
        if len(self.paddings) != input_x.ndim:
            raise ShapeError(f"Pad: there are {len(self.paddings)} paddings, but the input has shape {input_x.shape}")
        return F.pad(input_x, tuple(n for pair in reversed(self.paddings) for n in pair))


# -- Tensors made --------------------------------------------------------------------------------------------------------
class Ones(Plain):
    """Ones of a shape and dtype."""

    function = staticmethod(F.ones)


class Zeros(Plain):
    """Zeros of a shape and dtype."""

    function = staticmethod(F.zeros)


class OnesLike(Plain):
    """Ones of the input's shape and dtype."""

    function = staticmethod(F.ones_like)


class ZerosLike(Plain):
    """Zeros of the input's shape and dtype."""

    function = staticmethod(F.zeros_like)


class Fill(Plain):
    """`value` of a dtype in a shape: called with (type, shape, value)."""

    function = staticmethod(F.fill)


class FillV2(Plain):
    """The scalar Tensor `value` in a shape: called with (shape, value)."""

    def __call__(self, shape: Any, value: Any) -> Any:
        return F.broadcast_to(F.reshape(value, ()), tuple(shape.tolist()) if hasattr(shape, "tolist") else tuple(shape))


class Eye(Plain):
    """Ones on the diagonal of an n × m matrix: called with (n, m, dtype)."""

    function = staticmethod(F.eye)


class Range(Configured):
    """Numbers from `start` to `end` in steps of `step`, `maxlen` at most."""

    def __init__(self, maxlen: int = 1000000):
        super().__init__(maxlen=maxlen)

    def __call__(self, start: Any, end: Any, step: Any) -> Any:
        return F.range(start, end, step, self.maxlen)


class OneHot(Configured):
    """`on_value` at the places `indices` along a new dimension `axis` of extent `depth`, else `off_value`."""

    def __init__(self, axis: int = -1):
        super().__init__(axis=axis)

    def __call__(self, indices: Any, depth: int, on_value: Any, off_value: Any) -> Any:
        return F.one_hot(indices, depth, on_value, off_value, self.axis)


# -- indexing ------------------------------------------------------------------------------------------------------------
class Gather(Configured):
    """Slices of `input_params` along `axis` at `input_indices`."""

    def __init__(self, batch_dims: int = 0):
        super().__init__(batch_dims=batch_dims)

    def __call__(self, input_params: Any, input_indices: Any, axis: int) -> Any:
        return F.gather(input_params, input_indices, axis, self.batch_dims)


class GatherD(Plain):
    """Elements along `dim` at `index`: called with (x, dim, index)."""

    function = staticmethod(F.gather_d)


class GatherNd(Plain):
    """Slices at the positions in the last dimension of `indices`."""

    function = staticmethod(F.gather_nd)


class ScatterNd(Plain):
    """`updates` added up at positions in zeros: called with (indices, updates, shape)."""

    function = staticmethod(F.scatter_nd)


class _Scatter(Configured):
    def __init__(self, use_locking: bool = False):
        super().__init__(use_locking=use_locking)


class ScatterAdd(_Scatter):
    """Adds `updates` to rows of a Parameter; gives back the Parameter's new value."""

    def __call__(self, input_x: Any, indices: Any, updates: Any) -> Any:
        return F.scatter_add(input_x, indices, updates)


class ScatterUpdate(_Scatter):
    """Writes `updates` to rows of a Parameter; gives back the Parameter's new value."""

    def __init__(self, use_locking: bool = True):
        super().__init__(use_locking)

    def __call__(self, input_x: Any, indices: Any, updates: Any) -> Any:
        return F.scatter_update(input_x, indices, updates)


class ScatterNdUpdate(_Scatter):
    """Writes `updates` to positions of a Parameter; gives back the Parameter's new value."""

    def __init__(self, use_locking: bool = True):
        super().__init__(use_locking)

    def __call__(self, input_x: Any, indices: Any, updates: Any) -> Any:
        return F.scatter_nd_update(input_x, indices, updates)


class ScatterNdAdd(_Scatter):
    """Adds `updates` at positions of a Parameter; gives back the Parameter's new value."""

    def __call__(self, input_x: Any, indices: Any, updates: Any) -> Any:
        return F.scatter_nd_add(input_x, indices, updates)


class TensorScatterAdd(Plain):
    """A copy of the input with `updates` added at positions."""

    function = staticmethod(F.tensor_scatter_add)


class TensorScatterUpdate(Plain):
    """A copy of the input with `updates` written at positions."""

    function = staticmethod(F.tensor_scatter_update)


class Select(Plain):
    """`input` where the condition holds, else `other`."""

    function = staticmethod(F.select)


class MaskedFill(Plain):
    """`value` where the mask holds, else the input."""

    function = staticmethod(F.masked_fill)


class UnsortedSegmentSum(Plain):
    """Sums of the slices of `input_x` that have the same number in `segment_ids`: called with (input_x, segment_ids, num_segments)."""

    function = staticmethod(F.unsorted_segment_sum)


# -- state and effects ---------------------------------------------------------------------------------------------------
class Assign(Plain):
    """Makes `value` the value of a Parameter; gives it back."""

    function = staticmethod(F.assign)


class AssignAdd(Plain):
    """Adds `value` to a Parameter; gives back the sum."""

    function = staticmethod(F.assign_add)


class AssignSub(Plain):
    """Subtracts `value` from a Parameter; gives back the difference."""

    function = staticmethod(F.assign_sub)


class Depend(Plain):
    """`value`, after `expr`."""

    function = staticmethod(F.depend)


class StopGradient(Plain):
    """The input, through which no gradient flows."""

    function = staticmethod(F.stop_gradient)


class Print(Plain):
    """Prints its arguments, each in a line of its own, whenever it runs."""

    function = staticmethod(F.print_)


__all__ = sorted(
    name
    for name, value in list(globals().items())
    if isinstance(value, type) and issubclass(value, (Plain, Configured)) and not name.startswith("_")
    and value not in (Plain, Configured)
)  # fmt: skip
