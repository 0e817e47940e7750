"""More primitive classes of mathematics: special functions, rarer functions of one and two operands, reductions, scans, distances."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops as F
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ExecutionError, ShapeError
from graphcell.ops.automatic import uncast
from graphcell.ops.functional.common import full_like
from graphcell.ops.primitive import Configured, Plain
from graphcell.ops.primitives.checks import check_choice, check_tensors, check_type
from graphcell.tensor import Tensor

__all__ = [
    "GLU", "Addcdiv", "Addcmul", "Bincount", "Bucketize", "Cdist", "CeLU", "CountNonZero", "Cross", "Cummax", "Cummin",
    "CumulativeLogsumexp", "Dense", "Digamma", "DivNoNan", "EqualCount", "Erfinv", "Fmax", "Gcd", "Ger", "HShrink",
    "Heaviside", "Histogram", "Hypot", "IsClose", "L2Loss", "Lcm", "LeftShift", "Lerp", "Lgamma", "Logit", "Median",
    "MulNoNan", "MultiMarginLoss", "Mvlgamma", "NanToNum", "NextAfter", "Pdist", "Polygamma", "PopulationCount",
    "ReduceStd", "Renorm", "RightShift", "Rint", "SearchSorted", "Sinc", "SoftShrink", "SquareSumAll",
    "SquaredDifference", "Trace", "Xdivy",
]  # fmt: skip


def _of_floats(owner: str, x: Any) -> Tensor:
    check_tensors(owner, x=x)
    if not x.dtype.is_float:
        raise DTypeError(f"For '{owner}', the input must be a Tensor of floats, but has the dtype {x.dtype}")
    tensor: Tensor = x
    return tensor


# -- one operand ---------------------------------------------------------------------------------------------------------
class Lgamma(Plain):
    """The logarithm of |gamma(x)|."""

    function = staticmethod(F.lgamma)


class Digamma(Plain):
    """The derivative of the logarithm of gamma(x)."""

    function = staticmethod(F.digamma)


class Erfinv(Plain):
    """The inverse of erf, of floats."""

    def __call__(self, input: Any) -> Any:
        return F.erfinv(_of_floats("Erfinv", input))


class Sinc(Plain):
    """sin(pi x) / (pi x), 1 at 0."""

    function = staticmethod(F.sinc)


class Rint(Plain):
    """Rounded to the nearest integer, halves to even; of floats."""

    def __call__(self, input_x: Any) -> Any:
        return F.round(_of_floats("Rint", input_x))


class L2Loss(Plain):
    """Half the sum of the squares."""

    @uncast
    def __call__(self, input_x: Any) -> Any:
        x: Any = _of_floats("L2Loss", input_x)
        return (x * x).sum() * 0.5


class PopulationCount(Plain):
    """How many bits are set in each integer, as UInt8."""

    def __call__(self, input_x: Any) -> Any:
        check_tensors("PopulationCount", input_x=input_x)
        if not input_x.dtype.is_integer:
            raise DTypeError(f"For 'PopulationCount', the input must be integers, but is {input_x.dtype}")
        bits = input_x.dtype.bits
        x: Any = F.cast(input_x, dt.int64)
        x = x if bits == 64 else F.bitwise_and(x, (1 << bits) - 1)
        for shift in (1, 2, 4, 8, 16, 32):  # the counts of neighbouring fields are added up
            mask = sum(((1 << shift) - 1) << k for k in range(0, 64, 2 * shift))
            x = F.bitwise_and(x, mask) + F.bitwise_and(F.bitwise_right_shift(x, shift), mask)
        return F.cast(x, dt.uint8)


class CeLU(Configured):
    """x where x > 0, else alpha (exp(x / alpha) - 1)."""

    def __init__(self, alpha: float = 1.0):
        super().__init__(alpha=alpha)

    def __call__(self, x: Any) -> Any:
        return F.celu(x, self.alpha)


class HShrink(Configured):
    """x where |x| > lambd, else 0."""

    def __init__(self, lambd: float = 0.5):
        if not isinstance(lambd, (bool, int, float)):
            raise ArgumentTypeError(f"For 'HShrink', the type of 'lambd' should be one of '[bool, int, float]', but got {type(lambd)}.")
        super().__init__(lambd=lambd)

    def __call__(self, input: Any) -> Any:
        return F.hardshrink(input, self.lambd)


class SoftShrink(Configured):
    """x moved by lambd towards 0, and 0 where that would go beyond."""

    def __init__(self, lambd: float = 0.5):
        super().__init__(lambd=lambd)

    def __call__(self, input: Any) -> Any:
        return F.softshrink(input, self.lambd)


class GLU(Configured):
    """a sigmoid(b), where a and b are the halves of the input along `axis`."""

    def __init__(self, axis: int = -1):
        super().__init__(axis=check_type("GLU", "axis", axis, int))

    def __call__(self, x: Any) -> Any:
        x = _of_floats("GLU", x)
        if -x.ndim <= self.axis < x.ndim and x.shape[self.axis] % 2:
            raise ExecutionError(f"For 'GLU', the extent of dimension {self.axis} must be even, but the shape is {x.shape}")
        return F.glu(x, self.axis)


class Logit(Configured):
    """log(x / (1 - x)), of x within [eps, 1 - eps] if eps is not negative."""

    def __init__(self, eps: float = -1.0):
        super().__init__(eps=float(check_type("Logit", "eps", eps, float, int)))

    def __call__(self, input: Any) -> Any:
        return F.logit(input, self.eps if self.eps >= 0 else None)


class Mvlgamma(Configured):
    """The logarithm of the multivariate gamma function in `p` dimensions."""

    def __init__(self, p: int):
        super().__init__(p=check_type("Mvlgamma", "p", p, int))

    def __call__(self, x: Any) -> Any:
        return F.mvlgamma(x, self.p)


class NanToNum(Configured):
    """NaN, infinity and -infinity replaced: by 0 and the largest numbers there are, unless others are given."""

    def __init__(self, nan: Any = None, posinf: Any = None, neginf: Any = None):
        super().__init__(nan=nan, posinf=posinf, neginf=neginf)

    def __call__(self, input: Any) -> Any:
        return F.nan_to_num(input, self.nan, self.posinf, self.neginf)


# -- two operands and more -------------------------------------------------------------------------------------------------
class Polygamma(Plain):
    """The derivative of order `a` of digamma(x)."""

    function = staticmethod(F.polygamma)


class DivNoNan(Plain):
    """x1 / x2, and 0 where x2 is 0."""

    def __call__(self, x1: Any, x2: Any) -> Any:
        divisor = x2 if isinstance(x2, Tensor) else full_like(x1, x2)
        is_zero: Any = F.equal(divisor, 0)
        quotient = F.div(x1, F.select(is_zero, F.ones_like(divisor), divisor))
        return F.select(F.broadcast_to(is_zero, quotient.shape), F.zeros_like(quotient), quotient)


class MulNoNan(Plain):
    """x y, and 0 where y is 0, whatever x is."""

    def __call__(self, x: Any, y: Any) -> Any:
        check_tensors("MulNoNan", x=x, y=y)
        product = F.mul(x, y)
        is_zero = F.broadcast_to(F.equal(y, 0), product.shape)
        wide = F.broadcast_to(x, product.shape)
        return F.mul(F.select(is_zero, F.zeros_like(wide), wide), y)


class Xdivy(Plain):
    """x / y, and 0 where x is 0."""

    function = staticmethod(F.xdivy)


class Fmax(Plain):
    """The larger, or the one that is no NaN."""

    function = staticmethod(F.fmax)


class Hypot(Plain):
    """sqrt(x1² + x2²)."""

    function = staticmethod(F.hypot)


class Heaviside(Plain):
    """0 for negative x, 1 for positive x, `values` at 0."""

    function = staticmethod(F.heaviside)


class NextAfter(Plain):
    """The next float from input towards other."""

    function = staticmethod(F.nextafter)


class Gcd(Plain):
    """The greatest common divisor of integers."""

    function = staticmethod(F.gcd)


class Lcm(Plain):
    """The least common multiple of integers."""

    function = staticmethod(F.lcm)


class LeftShift(Plain):
    """x1 << x2."""

    function = staticmethod(F.bitwise_left_shift)


class RightShift(Plain):
    """input_x >> input_y."""

    function = staticmethod(F.bitwise_right_shift)


class SquaredDifference(Plain):
    """(x - y)²."""

    def __call__(self, x: Any, y: Any) -> Any:
        return F.square(F.sub(x, y))


class SquareSumAll(Plain):
    """The sums of the squares of x and of y."""

    @uncast
    def __call__(self, x: Any, y: Any) -> Any:
        return F.square(_of_floats("SquareSumAll", x)).sum(), F.square(_of_floats("SquareSumAll", y)).sum()


class EqualCount(Plain):
    """How many elements of x and y, of one shape and dtype, are equal: (1,), in their dtype."""

    def __call__(self, x: Any, y: Any) -> Any:
        check_tensors("EqualCount", x=x, y=y)
        if x.shape != y.shape:
            raise ShapeError(f"For 'EqualCount', the shapes differ: {x.shape} and {y.shape}")
        if x.dtype is not y.dtype:
            raise DTypeError(f"For 'EqualCount', the dtypes differ: {x.dtype} and {y.dtype}")
        return F.cast(F.cast(F.equal(x, y), dt.int64).sum().reshape(1), x.dtype)


class IsClose(Configured):
    """Where |input - other| <= atol + rtol |other|."""

    def __init__(self, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False):
        super().__init__(rtol=rtol, atol=atol, equal_nan=equal_nan)

    def __call__(self, input: Any, other: Any) -> Any:
        return F.isclose(input, other, self.rtol, self.atol, self.equal_nan)


class Addcdiv(Plain):
    """input + value tensor1 / tensor2."""

    function = staticmethod(F.addcdiv)


class Addcmul(Plain):
    """input + value tensor1 tensor2."""

    function = staticmethod(F.addcmul)


class Lerp(Plain):
    """input + weight (end - input), of floats."""

    def __call__(self, input: Any, end: Any, weight: Any) -> Any:
        return F.lerp(_of_floats("Lerp", input), _of_floats("Lerp", end), weight)


class Cross(Configured):
    """The vector product along a dimension of extent 3: `dim`, or by default the first."""

    def __init__(self, dim: int = -65530):
        super().__init__(dim=check_type("Cross", "dim", dim, int))

    def __call__(self, input: Any, other: Any) -> Any:
        return F.cross(input, other, None if self.dim == -65530 else self.dim)


class Ger(Plain):
    """The products of all elements of one vector and all of another."""

    function = staticmethod(F.ger)


class Dense(Plain):
    """input weightᵀ + bias."""

    function = staticmethod(F.dense)


class MultiMarginLoss(Configured):
    """The mean over classes of max(0, margin - (x of the target) + x)^p: called with (inputs, target, weight)."""

    def __init__(self, p: int = 1, margin: float = 1.0, reduction: str = "mean"):
        if check_type("MultiMarginLoss", "p", p, int) not in (1, 2):
            raise ArgumentValueError(f"For 'MultiMarginLoss', the 'p' must be 1 or 2, but got {p}")
        check_choice("MultiMarginLoss", "reduction", reduction, "none", "mean", "sum")
        super().__init__(p=p, margin=float(margin), reduction=reduction)

    def __call__(self, x: Any, target: Any, weight: Any = None) -> Any:
        return F.multi_margin_loss(x, target, self.p, self.margin, weight, self.reduction)


# -- distances -------------------------------------------------------------------------------------------------------------
class Cdist(Configured):
    """The p-norms of the differences of all rows of x1 (B, P, M) and all of x2 (B, R, M): (B, P, R)."""

    def __init__(self, p: float = 2.0):
        if check_type("Cdist", "p", p, float, int) < 0:
            raise ArgumentValueError(f"For 'Cdist', the 'p' must not be negative, but got {p}")
        super().__init__(p=float(p))

    def __call__(self, x1: Any, x2: Any) -> Any:
        return F.cdist(x1, x2, self.p)


class Pdist(Configured):
    """The p-norms of the differences of every two rows of x (N, M): (N (N - 1) / 2,)."""

    def __init__(self, p: float = 2.0):
        if check_type("Pdist", "p", p, float, int) < 0:
            raise ArgumentValueError(f"For 'Pdist', the 'p' must not be negative, but got {p}")
        super().__init__(p=float(p))

    def __call__(self, x: Any) -> Any:
        return F.pdist(x, self.p)


class Renorm(Configured):
    """Each slice along `dim` scaled so that its p-norm is `maxnorm` at most."""

    def __init__(self, p: int, dim: int, maxnorm: float = 1.0):
        if check_type("Renorm", "p", p, int) <= 0:
            raise ArgumentValueError(f"For 'Renorm', the 'p' must be positive, but got {p}")
        check_type("Renorm", "dim", dim, int)
        super().__init__(p=float(p), dim=dim, maxnorm=float(check_type("Renorm", "maxnorm", maxnorm, float, int)))

    def __call__(self, x: Any) -> Any:
        return F.renorm(x, self.p, self.dim, self.maxnorm)


# -- reductions and scans ----------------------------------------------------------------------------------------------------
class ReduceStd(Configured):
    """(standard deviation, mean) along `axis`: an int, or several; none of them are all."""

    def __init__(self, axis: Any = (), unbiased: bool = True, keep_dims: bool = False):
        axes = axis if isinstance(axis, int) else tuple(check_type("ReduceStd", "axis", axis, tuple, list))
        check_type("ReduceStd", "keep_dims", keep_dims, bool)
        super().__init__(axis=axes, unbiased=check_type("ReduceStd", "unbiased", unbiased, bool), keep_dims=keep_dims)

    def __call__(self, x: Any) -> Any:
        return F.std_mean(_of_floats("ReduceStd", x), None if self.axis == () else self.axis, int(self.unbiased), self.keep_dims)


class CountNonZero(Configured):
    """How many elements along `dims` (None: all) are not zero, as Int64."""

    def __init__(self, dims: Any = None):
        super().__init__(dims=tuple(dims) if isinstance(dims, list) else dims)

    def __call__(self, x: Any) -> Any:
        check_tensors("CountNonZero", x=x)
        return F.count_nonzero(x, () if self.dims is None else self.dims, dtype=dt.int64)


class Cummax(Configured):
    """The largest element so far along `axis`, and its place (Int64)."""

    def __init__(self, axis: int):
        super().__init__(axis=check_type("Cummax", "axis", axis, int))

    def __call__(self, input: Any) -> Any:
        return F.cummax(input, self.axis)


class Cummin(Configured):
    """The smallest element so far along `axis`, and its place (Int32)."""

    def __init__(self, axis: int):
        super().__init__(axis=check_type("Cummin", "axis", axis, int))

    def __call__(self, input: Any) -> Any:
        least, places = F.cummin(input, self.axis)
        return least, F.cast(places, dt.int32)


class CumulativeLogsumexp(Configured):
    """log(sum(exp(x))) of the elements so far along an axis, without this one if `exclusive`: called with (x, axis)."""

    def __init__(self, exclusive: bool = False, reverse: bool = False):
        check_type("CumulativeLogsumexp", "exclusive", exclusive, bool)
        super().__init__(exclusive=exclusive, reverse=check_type("CumulativeLogsumexp", "reverse", reverse, bool))

    def __call__(self, x: Any, axis: Any) -> Any:
        k = int(axis) if not isinstance(axis, Tensor) else axis.item()
        x = _of_floats("CumulativeLogsumexp", x)
        if not -x.ndim <= k < x.ndim:
            raise ArgumentValueError(f"For 'CumulativeLogsumexp', the axis must be in [{-x.ndim}, {x.ndim}), but got {k}")
        k %= x.ndim
        y = F.flip(x, (k,)) if self.reverse else x
        y = F.logcumsumexp(y, k)
        if self.exclusive:
            lowest = float(dt.finfo(x.dtype).min)
            y = F.concat((F.full_like(F.narrow(y, k, 0, min(1, y.shape[k])), lowest), F.narrow(y, k, 0, max(0, y.shape[k] - 1))), k)
        return F.flip(y, (k,)) if self.reverse else y


class Median(Configured):
    """(median, its place as Int64) along `axis`, or of all elements; the lower one of two."""

    def __init__(self, global_median: bool = False, axis: int = 0, keep_dims: bool = False, ignore_nan: bool = False):
        for name, value in (("global_median", global_median), ("keep_dims", keep_dims), ("ignore_nan", ignore_nan)):
            check_type("Median", name, value, bool)
        check_type("Median", "axis", axis, int)
        super().__init__(global_median=global_median, axis=axis, keep_dims=keep_dims, ignore_nan=ignore_nan)

    def __call__(self, x: Any) -> Any:
        check_tensors("Median", x=x)
        function = F.nanmedian if self.ignore_nan else F.median
        if self.global_median:
            return function(x.reshape(-1), 0)
        return function(x, self.axis, self.keep_dims)


class Trace(Plain):
    """The sum of the diagonal of a matrix."""

    function = staticmethod(F.trace)


# -- counting and searching --------------------------------------------------------------------------------------------------
class Histogram(Configured):
    """How many elements lie in each of `bins` equal intervals from `min` to `max`; if both are 0, from the least to the largest."""

    def __init__(self, bins: int = 100, min: float = 0.0, max: float = 0.0):
        if check_type("Histogram", "bins", bins, int) <= 0:
            raise ArgumentValueError(f"For 'Histogram', the 'bins' must be positive, but got {bins}")
        check_type("Histogram", "min", min, float)
        check_type("Histogram", "max", max, float)
        if min > max:
            raise ArgumentValueError(f"For 'Histogram', the 'min' must not be above 'max', but they are {min} and {max}")
        super().__init__(bins=bins, min=min, max=max)

    def __call__(self, x: Any) -> Any:
        return F.cast(F.histc(x, self.bins, self.min, self.max), dt.float32 if x.dtype is dt.float16 else x.dtype)


class Bincount(Plain):
    """The sums of the weights of the elements 0, 1, … below `size`: called with (array, size, weights); without weights, their numbers."""

    def __call__(self, array: Any, size: Any, weights: Any) -> Any:
        check_tensors("Bincount", array=array, weights=weights)
        count: Any = size.item() if isinstance(size, Tensor) else size
        if count < 0:
            raise ArgumentValueError(f"For 'Bincount', the size must not be negative, but is {count}")
        flat = array.reshape(-1)
        is_counted = F.logical_and(flat >= 0, flat < count)
        each = F.ones_like(F.cast(flat, weights.dtype)) if weights.size == 0 else weights.reshape(-1)
        sums = F.unsorted_segment_sum(F.select(is_counted, each, F.zeros_like(each)), F.clamp(flat, 0, max(count - 1, 0)), max(count, 1))
        return F.narrow(sums, 0, 0, count)


class Bucketize(Configured):
    """The number of the interval between `boundaries` in which each element lies, as Int32; a boundary belongs to the one above it."""

    def __init__(self, boundaries: Any):
        for b in check_type("Bucketize", "boundaries", boundaries, list):
            check_type("Bucketize", "boundaries", b, float)
        super().__init__(boundaries=boundaries)

    def __call__(self, input: Any) -> Any:
        check_tensors("Bucketize", input=input)
        total: Any = F.zeros_like(input, dtype=dt.int32)
        for b in self.boundaries:
            total = total + F.cast(input >= b, dt.int32)
        return total


class SearchSorted(Configured):
    """Where the values are to be put into sorted sequences: called with (sorted_sequence, values, sorter)."""

    def __init__(self, dtype: Any = dt.int64, right: bool = False):
        if dtype not in (dt.int32, dt.int64):
            raise ArgumentTypeError(f"For 'SearchSorted', the 'dtype' must be Int32 or Int64, but got {dtype}")
        super().__init__(dtype=dtype, right=check_type("SearchSorted", "right", right, bool))

    def __call__(self, sorted_sequence: Any, values: Any, sorter: Any = None) -> Any:
        return F.searchsorted(sorted_sequence, values, out_int32=self.dtype is dt.int32, right=self.right, sorter=sorter)
