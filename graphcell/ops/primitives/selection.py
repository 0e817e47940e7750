"""Primitive classes that select elements by value or place, write to places, and make Tensors of ranges."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell import ops as F
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ExecutionError, ShapeError
from graphcell.ops.functional.common import constant
from graphcell.ops.primitive import Configured, Plain
from graphcell.ops.primitives.checks import check_choice, check_tensors, check_type
from graphcell.tensor import Tensor

__all__ = [
    "BartlettWindow", "BlackmanWindow", "EmbeddingLookup", "HammingWindow", "IdentityN", "IndexAdd", "IndexFill",
    "IndexPut", "InplaceAdd", "InplaceIndexAdd", "InplaceSub", "InplaceUpdateV2", "InvertPermutation", "LinSpace",
    "LogSpace", "MaskedScatter", "MaskedSelect", "Meshgrid", "NonZero", "ReverseSequence", "ScalarToTensor",
    "SparseToDense", "TensorScatterElements", "TensorShape", "TensorToTuple", "TupleToArray", "Unique",
    "UniqueConsecutive", "UnravelIndex", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd",
]  # fmt: skip


# -- by value ------------------------------------------------------------------------------------------------------------
class NonZero(Plain):
    """The places of the elements that are not zero: (count, rank), Int64."""

    def __call__(self, input: Any) -> Any:
        check_tensors("NonZero", input=input)
        return F.nonzero(input)


class Unique(Plain):
    """(the different elements of a vector in the order in which they first come, the place of each element among them as Int32)."""

    def __call__(self, input_x: Any) -> Any:
        check_tensors("Unique", input_x=input_x)
        if input_x.ndim != 1:
            raise ExecutionError(f"For 'Unique', the input must have one dimension, but its shape is {input_x.shape}")
        return F.unique(input_x)


class UniqueConsecutive(Configured):
    """(elements, or slices along `dim`, without repetitions next to each other; the place of each among them; how often each came).

    The last two are Int64, and 0 unless asked for.
    """

    def __init__(self, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None):
        check_type("UniqueConsecutive", "return_inverse", return_inverse, bool)
        check_type("UniqueConsecutive", "return_counts", return_counts, bool)
        if dim is not None:
            check_type("UniqueConsecutive", "dim", dim, int)
        super().__init__(return_inverse=return_inverse, return_counts=return_counts, dim=dim)

    def __call__(self, input: Any) -> Any:
        y, places, counts = F.unique_consecutive(input, True, True, self.dim)
        nothing = F.zeros((), dt.int64)
        return y, F.cast(places, dt.int64) if self.return_inverse else nothing, F.cast(counts, dt.int64) if self.return_counts else nothing


class MaskedSelect(Plain):
    """The elements of `input` where the mask (Bool) is True, one after the other; both broadcast."""

    def __call__(self, input: Any, mask: Any) -> Any:
        return F.masked_select(input, mask)


class MaskedScatter(Plain):
    """`input`, with the elements of `source`, in order, where the mask (Bool, of a shape that broadcasts to input's) is True."""

    def __call__(self, input: Any, mask: Any, source: Any) -> Any:
        check_tensors("MaskedScatter", input=input, mask=mask, source=source)
        if not mask.dtype.is_bool or input.dtype is not source.dtype:
            raise DTypeError(f"For 'MaskedScatter', expected a mask of Bool and two Tensors of one dtype, but got {mask.dtype}, {input.dtype}, {source.dtype}")
        flags = F.broadcast_to(mask, input.shape).reshape(-1)
        places = F.cumsum(F.cast(flags, dt.int64), 0) - 1
        taken = F.gather(source.reshape(-1), F.select(flags, places, F.zeros_like(places)), 0)
        return F.select(flags, taken, input.reshape(-1)).reshape(input.shape)


# -- by place --------------------------------------------------------------------------------------------------------------
class EmbeddingLookup(Plain):
    """Rows of `input_params` at indices - offset; zeros where there is none. Called with (input_params, input_indices, offset)."""

    def __call__(self, input_params: Any, input_indices: Any, offset: int) -> Any:
        check_tensors("EmbeddingLookup", input_params=input_params, input_indices=input_indices)
        check_type("EmbeddingLookup", "offset", offset, int)
        rows = input_params.shape[0]
        place = F.cast(input_indices, dt.int64) - offset
        is_there = F.logical_and(place >= 0, place < rows)
        taken = F.gather(input_params, F.select(is_there, place, F.zeros_like(place)), 0)
        wide = F.broadcast_to(is_there.reshape(*place.shape, *(1,) * (input_params.ndim - 1)), taken.shape)
        return F.select(wide, taken, F.zeros_like(taken))


class IndexAdd(Configured):
    """Adds y to the slices of x along `axis` at indices; gives back x: called with (x, indices, y)."""

    def __init__(self, axis: int, use_lock: bool = True, check_index_bound: bool = True):
        super().__init__(axis=check_type("IndexAdd", "axis", axis, int), use_lock=use_lock, check_index_bound=check_index_bound)

    def __call__(self, x: Any, indices: Any, y: Any) -> Any:
        return F.index_add(x, indices, y, self.axis, self.use_lock, self.check_index_bound)


class InplaceIndexAdd(Configured):
    """Adds updates to the slices of var along `axis` at indices; gives back var: called with (var, indices, updates)."""

    def __init__(self, axis: int):
        super().__init__(axis=check_type("InplaceIndexAdd", "axis", axis, int))

    def __call__(self, var: Any, indices: Any, updates: Any) -> Any:
        return F.index_add(var, indices, updates, self.axis)


class IndexFill(Plain):
    """x with `value` in the slices along `dim` at `index`: called with (x, dim, index, value)."""

    def __call__(self, x: Any, dim: Any, index: Any, value: Any) -> Any:
        return F.index_fill(x, int(dim.item()) if isinstance(dim, Tensor) else dim, index, value)


class IndexPut(Configured):
    """x1 with values x2 at places: called with (x1, x2, indices), one index Tensor for each of the first dimensions. 1: added to what is there."""

    def __init__(self, accumulate: int = 0):
        if check_type("IndexPut", "accumulate", accumulate, int) not in (0, 1):
            raise ArgumentValueError(f"For 'IndexPut', the 'accumulate' must be 0 or 1, but got {accumulate}")
        super().__init__(accumulate=accumulate)

    def __call__(self, x1: Any, x2: Any, indices: Any) -> Any:
        check_tensors("IndexPut", x1=x1, x2=x2)
        shape = np.broadcast_shapes(*(i.shape for i in indices))
        places = F.stack([F.broadcast_to(F.cast(i, dt.int64), shape) for i in indices], -1)
        updates = F.broadcast_to(x2, (*places.shape[:-1], *x1.shape[places.shape[-1] :]))
        return F.tensor_scatter_add(x1, places, updates) if self.accumulate else F.tensor_scatter_update(x1, places, updates)


class _OfRows(Configured):
    """Rows of x at `indices`, an int or several, changed; x itself stays as it is."""

    def __init__(self, indices: Any):
        owner = type(self).__name__
        rows = indices if isinstance(indices, tuple) else (indices,)
        for row in rows:
            check_type(owner, "indices", row, int)
        super().__init__(indices=rows)

    def _parts(self, x: Any, v: Any) -> tuple[Any, Any]:
        check_tensors(self.name, x=x, input_v=v)
        if v.shape != (len(self.indices), *x.shape[1:]):
            raise ShapeError(f"For '{self.name}', the shape of the values must be {(len(self.indices), *x.shape[1:])}, but is {v.shape}")
        return constant(np.array(self.indices, np.int64).reshape(-1, 1)), v


class InplaceAdd(_OfRows):
    """x with input_v added to its rows at `indices`: called with (x, input_v)."""

    def __call__(self, x: Any, input_v: Any) -> Any:
        places, v = self._parts(x, input_v)
        return F.tensor_scatter_add(x, places, v)


class InplaceSub(_OfRows):
    """x with input_v subtracted from its rows at `indices`: called with (x, input_v)."""

    def __call__(self, x: Any, input_v: Any) -> Any:
        places, v = self._parts(x, input_v)
        return F.tensor_scatter_add(x, places, -v)


class InplaceUpdateV2(Plain):
    """x with v as its rows at `indices`: called with (x, indices, v), where indices are an int, several, or a Tensor."""

    def __call__(self, x: Any, indices: Any, v: Any) -> Any:
        check_tensors("InplaceUpdateV2", x=x, v=v)
        rows = indices if isinstance(indices, Tensor) else constant(np.atleast_1d(np.array(indices, np.int64)))
        if v.shape != (rows.size, *x.shape[1:]):
            raise ShapeError(f"For 'InplaceUpdateV2', the shape of the values must be {(rows.size, *x.shape[1:])}, but is {v.shape}")
        return F.tensor_scatter_update(x, rows.reshape(-1, 1), v)


class TensorScatterElements(Configured):
    """A copy of the data with updates written ('none') or added ('add') at indices along `axis`: called with (data, indices, updates)."""

    def __init__(self, axis: int = 0, reduction: str = "none"):
        check_type("TensorScatterElements", "axis", axis, int)
        super().__init__(axis=axis, reduction=check_choice("TensorScatterElements", "reduction", reduction, "none", "add"))

    def __call__(self, data: Any, indices: Any, updates: Any) -> Any:
        return F.tensor_scatter_elements(data, indices, updates, self.axis, self.reduction)


class UnsortedSegmentMax(Plain):
    """The largest of the slices that have the same number: called with (input_x, segment_ids, num_segments)."""

    function = staticmethod(F.unsorted_segment_max)


class UnsortedSegmentMin(Plain):
    """The smallest of the slices that have the same number: called with (input_x, segment_ids, num_segments)."""

    function = staticmethod(F.unsorted_segment_min)


class UnsortedSegmentProd(Plain):
    """The product of the slices that have the same number: called with (input_x, segment_ids, num_segments)."""

    function = staticmethod(F.unsorted_segment_prod)


class SparseToDense(Plain):
    """`values` at places (count, rank) of zeros: called with (indices, values, sparse_shape)."""

    def __call__(self, indices: Any, values: Any, sparse_shape: Any) -> Any:
        check_tensors("SparseToDense", indices=indices, values=values)
        return F.tensor_scatter_update(F.zeros(tuple(sparse_shape), values.dtype), indices, values)


class UnravelIndex(Plain):
    """Row-major numbers of elements as places in a Tensor of the shape `dims`: called with (indices, dims); a row for each dimension."""

    def __call__(self, indices: Any, dims: Any) -> Any:
        check_tensors("UnravelIndex", indices=indices, dims=dims)
        extents = [int(d) for d in dims.tolist()]
        rest: Any = indices.reshape(-1)
        if not rest.is_symbolic and rest.size and not 0 <= int(rest.min()) <= int(rest.max()) < int(np.prod(extents)):
            raise ArgumentValueError(f"For 'UnravelIndex', the indices must lie in a Tensor of shape {tuple(extents)}, but are {rest.tolist()}")
        parts = []
        for extent in reversed(extents):
            parts.append(rest % extent)
            rest = rest // extent
        return F.stack(parts[::-1], 0) if indices.ndim else F.stack(parts[::-1], 0).reshape(-1)


class ReverseSequence(Configured):
    """The first seq_lengths[b] elements along `seq_dim` in reverse order, for each b along `batch_dim`: called with (x, seq_lengths)."""

    def __init__(self, seq_dim: int, batch_dim: int = 0):
        check_type("ReverseSequence", "seq_dim", seq_dim, int)
        super().__init__(seq_dim=seq_dim, batch_dim=check_type("ReverseSequence", "batch_dim", batch_dim, int))

    def __call__(self, x: Any, seq_lengths: Any) -> Any:
        check_tensors("ReverseSequence", x=x, seq_lengths=seq_lengths)
        if not seq_lengths.is_symbolic and seq_lengths.ndim == 1 and -x.ndim <= self.seq_dim < x.ndim:
            longest = x.shape[self.seq_dim]
            if any(not 0 <= n <= longest for n in seq_lengths.tolist()):
                raise ExecutionError(f"For 'ReverseSequence', the seq_lengths must be in [0, {longest}], but are {seq_lengths.tolist()}")
        return F.reverse_sequence(x, seq_lengths, self.seq_dim, self.batch_dim)


class InvertPermutation(Plain):
    """The tuple y with y[x[k]] = k, of a tuple x that holds each of 0, 1, … once."""

    def __call__(self, input_x: Any) -> Any:
        if not isinstance(input_x, (tuple, list)) or any(isinstance(n, bool) or not isinstance(n, int) for n in input_x):
            raise ArgumentTypeError(f"For 'InvertPermutation', the input must be a tuple of ints, but got {input_x!r}")
        if sorted(input_x) != list(range(len(input_x))):
            raise ArgumentValueError(f"For 'InvertPermutation', the input must hold each of 0 to {len(input_x) - 1} once, but is {input_x}")
        return tuple(input_x.index(k) for k in range(len(input_x)))


# -- ranges, windows, forms --------------------------------------------------------------------------------------------------
class LinSpace(Plain):
    """`num` numbers from start to stop, both scalar Tensors of floats, which get no gradient: called with (start, stop, num)."""

    def __call__(self, start: Any, stop: Any, num: Any) -> Any:
        check_tensors("LinSpace", start=start, stop=stop)
        for name, x in (("start", start), ("stop", stop)):
            if x.ndim:
                raise ShapeError(f"For 'LinSpace', the '{name}' must be a scalar, but its shape is {x.shape}")
            if x.dtype not in (dt.float32, dt.float64):
                raise DTypeError(f"For 'LinSpace', the '{name}' must be Float32 or Float64, but is {x.dtype}")
        count: Any = num.item() if isinstance(num, Tensor) else num
        if check_type("LinSpace", "num", count, int) < 1:
            raise ArgumentValueError(f"For 'LinSpace', the num must be greater than 0, but got {count}.")
        return F.linspace(F.stop_gradient(start), F.stop_gradient(stop), count)


class LogSpace(Configured):
    """`steps` numbers from base**start to base**end, evenly spaced by their logarithms: called with (start, end)."""

    def __init__(self, steps: int = 10, base: int = 10, dtype: Any = dt.float32):
        if check_type("LogSpace", "steps", steps, int) < 0 or check_type("LogSpace", "base", base, int) < 0:
            raise ArgumentValueError(f"For 'LogSpace', 'steps' and 'base' must not be negative, but are {steps} and {base}")
        super().__init__(steps=steps, base=base, dtype=dtype)

    def __call__(self, start: Any, end: Any) -> Any:
        check_tensors("LogSpace", start=start, end=end)
        return F.logspace(start, end, self.steps, self.base, dtype=self.dtype)


class _Window(Configured):
    """Called with the length, a Tensor of one integer."""

    def __init__(self, periodic: bool = True, dtype: Any = dt.float32, **settings: Any):
        owner = type(self).__name__
        check_type(owner, "periodic", periodic, bool)
        if dtype not in (dt.float16, dt.float32, dt.float64):
            raise ArgumentTypeError(f"For '{owner}', the 'dtype' must be one of Float16, Float32, Float64, but got {dtype}")
        super().__init__(periodic=periodic, **settings, dtype=dtype)

    def _length(self, length: Any, rank: int) -> int:
        check_tensors(self.name, length=length)
        if length.dtype not in (dt.int32, dt.int64):
            raise DTypeError(f"For '{self.name}', the length must be Int32 or Int64, but is {length.dtype}")
        if length.ndim != rank or length.size != 1:
            raise ShapeError(f"For '{self.name}', the length must be a Tensor of one integer with {rank} dimensions, but its shape is {length.shape}")
        return int(length.item())


class BartlettWindow(_Window):
    """The triangular window."""

    def __init__(self, periodic: bool = True, dtype: Any = dt.float32):
        super().__init__(periodic, dtype)

    def __call__(self, window_length: Any) -> Any:
        return F.bartlett_window(self._length(window_length, 0), self.periodic, dtype=self.dtype)


class BlackmanWindow(_Window):
    """Blackman's window."""

    def __init__(self, periodic: bool = True, dtype: Any = dt.float32):
        super().__init__(periodic, dtype)

    def __call__(self, window_length: Any) -> Any:
        return F.blackman_window(self._length(window_length, 0), self.periodic, dtype=self.dtype)


class HammingWindow(_Window):
    """alpha - beta cos(2 pi n / N)."""

    def __init__(self, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, dtype: Any = dt.float32):
        check_type("HammingWindow", "alpha", alpha, float)
        super().__init__(periodic, dtype, alpha=alpha, beta=check_type("HammingWindow", "beta", beta, float))

    def __call__(self, length: Any) -> Any:
        return F.hamming_window(self._length(length, 1), self.periodic, self.alpha, self.beta, dtype=self.dtype)


class Meshgrid(Configured):
    """Grids of the coordinates in a tuple of vectors."""

    def __init__(self, indexing: str = "xy"):
        if not isinstance(indexing, str):
            raise ArgumentTypeError(f"For 'Meshgrid', the input 'indexing' should be a str, but got {type(indexing)}.")
        super().__init__(indexing=check_choice("Meshgrid", "indexing", indexing, "xy", "ij"))

    def __call__(self, inputs: Any) -> Any:
        if not isinstance(inputs, (tuple, list)):
            raise ArgumentTypeError(f"For 'Meshgrid', the inputs must be a tuple or list of Tensors, but got {type(inputs).__name__}")
        return F.meshgrid(*inputs, indexing=self.indexing)


class IdentityN(Plain):
    """A tuple of Tensors with the same values."""

    def __call__(self, x: Any) -> Any:
        return tuple(F.identity(t) for t in x)


class ScalarToTensor(Plain):
    """A number as a scalar Tensor."""

    def __call__(self, x: Any, dtype: Any = dt.float32) -> Any:
        return F.scalar_to_tensor(x, dtype)


class TensorShape(Plain):
    """The shape of a Tensor, as a Tensor of Int64."""

    def __call__(self, input_x: Any) -> Any:
        check_tensors("TensorShape", input_x=input_x)
        return constant(np.array(input_x.shape, np.int64))


class TupleToArray(Plain):
    """A tuple of numbers of one type as a Tensor."""

    function = staticmethod(F.tuple_to_array)


class TensorToTuple(Plain):
    """A vector as a tuple of numbers."""

    def __call__(self, x: Any) -> Any:
        check_tensors("TensorToTuple", x=x)
        if x.ndim > 1:
            raise ShapeError(f"For 'TensorToTuple', the input must have one dimension, but its shape is {x.shape}")
        return tuple(x.reshape(-1).tolist())
