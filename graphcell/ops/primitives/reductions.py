"""Primitive classes that combine the elements along dimensions: reductions, running sums, norms, sorting."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops as F
from graphcell.errors import ArgumentTypeError
from graphcell.ops.automatic import uncast
from graphcell.ops.primitive import Configured
from graphcell.ops.primitives.checks import check_type

__all__ = [
    "ArgMaxWithValue", "ArgMinWithValue", "Argmax", "Argmin", "CumProd", "CumSum", "L2Normalize", "LpNorm",
    "ReduceAll", "ReduceAny", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Sort", "TopK",
]  # fmt: skip


class _Reduce(Configured):
    """Along `axis`: an int, a tuple, or () for all dimensions."""

    def __init__(self, keep_dims: bool = False):
        super().__init__(keep_dims=check_type(type(self).__name__, "keep_dims", keep_dims, bool))


def _axes(axis: Any) -> Any:
    return None if axis is None or axis == () or axis == [] else tuple(axis) if isinstance(axis, list) else axis


class ReduceSum(_Reduce):
    """Sum along `axis`. With `skip_mode`, an empty axis leaves the input as it is."""

    def __init__(self, keep_dims: bool = False, skip_mode: bool = False):
        super().__init__(keep_dims)
        self.add_prim_attr("skip_mode", skip_mode)

    @uncast
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
        return place, value


class ArgMinWithValue(_WithValue):
    """(place, value) of the smallest element along `axis`."""

    def __call__(self, input: Any) -> tuple[Any, Any]:
        value, place = F.min(input, self.axis, self.keep_dims)
        return place, value


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
        check_type("LpNorm", "axis", axis, int, tuple, list)
        super().__init__(axis=axis, p=p, keep_dims=keep_dims, epsilon=epsilon)

    @uncast
    def __call__(self, input: Any) -> Any:
        axis = self.axis if isinstance(self.axis, int) else tuple(self.axis)
        total: Any = F.sum(F.abs(input) ** self.p, axis, self.keep_dims)
        return total ** (1.0 / self.p)


class L2Normalize(Configured):
    """x / sqrt(max(sum of x² along `axis`, epsilon))."""

    def __init__(self, axis: Any = 0, epsilon: float = 1e-4):
        check_type("L2Normalize", "axis", axis, int, tuple, list)
        super().__init__(axis=[axis] if isinstance(axis, int) else list(axis), epsilon=epsilon)

    @uncast
    def __call__(self, x: Any) -> Any:
        total = F.sum(x * x, tuple(self.axis), True)
        return x * F.rsqrt(F.maximum(total, self.epsilon))


class Sort(Configured):
    """(sorted values, their places) along `axis`."""

    def __init__(self, axis: int = -1, descending: bool = False):
        check_type("Sort", "axis", axis, int)
        super().__init__(axis=axis, descending=check_type("Sort", "descending", descending, bool))

    def __call__(self, x: Any) -> tuple[Any, Any]:
        values, places = F.sort(x, self.axis, self.descending)
        return values, F.cast(places, dt.int32)


class TopK(Configured):
    """(the k largest values, their places) along the last dimension."""

    def __init__(self, sorted: bool = True):
        super().__init__(sorted=check_type("TopK", "sorted", sorted, bool))

    def __call__(self, input_x: Any, k: int) -> tuple[Any, Any]:
        values, places = F.topk(input_x, k, sorted=self.sorted)
        return values, F.cast(places, dt.int32)
