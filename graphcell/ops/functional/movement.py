"""Public functions that change shapes, and join and cut Tensors; all of them compositions of views and `concat`.

Enters: Tensors and static shapes, axes, sizes. Leaves: Tensors with the same elements. Refuses what does not fit, with the shapes in the message.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from graphcell.dtype import DType
from graphcell.errors import ArgumentValueError, DTypeError, ShapeError
from graphcell.ir.types import Shape
from graphcell.ops.automatic import listed
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.axes import infer_shape, int_of, int_or_ints, ints_of, normalize_axis, tensor_of, tensors_of
from graphcell.ops.functional.common import broadcast, constant
from graphcell.ops.kernels import composite
from graphcell.ops.movement import Bitcast, Concat, Reshape, Slice, Transpose
from graphcell.tensor import Tensor

__all__ = [
    "adjoint", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to", "cat", "chunk", "column_stack", "concat", "dsplit", "dstack",
    "dyn_shape", "expand_dims", "flatten", "hsplit", "hstack", "moveaxis", "movedim", "narrow", "numel", "permute", "rank", "ravel",
    "reshape", "row_stack", "shape", "size", "slice", "split", "squeeze", "stack", "strided_slice", "swapaxes", "swapdims", "t",
    "tensor_split", "transpose", "unbind", "unsqueeze", "unstack", "vsplit", "vstack",
]  # fmt: skip

Tensors = tuple[Tensor, ...]


# -- compositions for internal use: everything normalised ---------------------------------------------------------------
def unchanged(x: Tensor) -> Tensor:
    """What a function that has nothing to do returns: x itself; of a Parameter, a Tensor with the value that it has now."""
    if type(x) is Tensor:
        return x
    from graphcell.ops.functional.creation import identity

    value: Tensor = identity(x)
    return value


def reshaped(x: Tensor, to: Shape) -> Tensor:
    """`x` under the shape `to`, which must hold as many elements."""
    return unchanged(x) if x.shape == to else apply1(Reshape(to), x)


def permuted(x: Tensor, perm: tuple[int, ...]) -> Tensor:
    """`x` with its dimensions in the order `perm` (non-negative, complete)."""
    return unchanged(x) if perm == tuple(range(len(perm))) else apply1(Transpose(perm), x)


def cut(x: Tensor, axis: int, start: int, length: int) -> Tensor:
    """`length` entries from `start` on along `axis`."""
    if start == 0 and length == x.shape[axis]:
        return unchanged(x)
    rank = x.ndim
    begin = tuple(start if k == axis and length else 0 for k in range(rank))
    extents = tuple(length if k == axis else d for k, d in enumerate(x.shape))
    return apply1(Slice(begin, extents, (1,) * rank), x)


def joined(xs: Tensors, axis: int) -> Tensor:
    """Tensors of one dtype after one another along `axis`."""
    return unchanged(xs[0]) if len(xs) == 1 else apply1(Concat(axis), *xs)


def bitcast(x: Tensor, dtype: DType) -> Tensor:
    """The bits of `x` read as another dtype; where sizes differ, the last dimension gets longer or shorter.

    Raises:
        TypeError: Bool. ValueError: the last dimension does not fit.
    """
    return x if x.dtype is dtype else apply1(Bitcast(dtype), x)


# -- shape -----------------------------------------------------------------------------------------------------------------
def reshape(input: Tensor, shape: Any) -> Tensor:
    """The same elements in row-major order under another shape; one extent may be -1.

    Raises:
        TypeError: input is no Tensor, shape no tuple of ints. ValueError: the shape holds another number of elements.
    """
    x = tensor_of(input, "reshape")
    return reshaped(x, infer_shape(shape, x.size, f"reshape of a Tensor of shape {x.shape}"))


def transpose(input: Tensor, dims: Any) -> Tensor:
    """Dimension k of the result is dimension dims[k] of the input.

    Raises:
        TypeError: dims are no ints. ValueError: no permutation of the dimensions.
    """
    return _permute(input, dims, "transpose")


def permute(input: Tensor, axis: Any) -> Tensor:
    """The same as `transpose`."""
    return _permute(input, axis, "permute")


def _permute(input: Tensor, dims: Any, function: str) -> Tensor:
    x = tensor_of(input, function)
    perm = tuple(normalize_axis(d, x.ndim, function, "dims") for d in ints_of(dims, function, "dims"))
    if sorted(perm) != list(range(x.ndim)):
        raise ShapeError(f"{function}: {perm} is no permutation of the {x.ndim} dimensions of shape {x.shape}")
    return permuted(x, perm)


def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """Two dimensions exchanged.

    Raises:
        TypeError: axes are no ints. ValueError: out of range.
    """
    x = tensor_of(input, "swapaxes")
    a, b = normalize_axis(axis0, x.ndim, "swapaxes", "axis0"), normalize_axis(axis1, x.ndim, "swapaxes", "axis1")
    perm = list(range(x.ndim))
    perm[a], perm[b] = perm[b], perm[a]
    return permuted(x, tuple(perm))


def swapdims(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """The same as `swapaxes`."""
    return swapaxes(input, dim0, dim1)


def moveaxis(x: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions `source` moved to `destination`; the others keep their order.

    Raises:
        TypeError: neither ints nor tuples of them. ValueError: out of range, repeated, or of different lengths.
    """
    x = tensor_of(x, "moveaxis", "x")
    origin = [normalize_axis(a, x.ndim, "moveaxis", "source") for a in int_or_ints(source, "moveaxis", "source")]
    goal = [normalize_axis(a, x.ndim, "moveaxis", "destination") for a in int_or_ints(destination, "moveaxis", "destination")]
    if len(origin) != len(goal) or len(set(origin)) != len(origin) or len(set(goal)) != len(goal):
        raise ArgumentValueError(f"moveaxis: source {source} and destination {destination} must name as many different dimensions")
    perm = [k for k in range(x.ndim) if k not in origin]
    for to, k in sorted(zip(goal, origin, strict=True)):
        perm.insert(to, k)
    return permuted(x, tuple(perm))


def movedim(x: Tensor, source: Any, destination: Any) -> Tensor:
    """The same as `moveaxis`."""
    return moveaxis(x, source, destination)


def t(input: Tensor) -> Tensor:
    """A matrix transposed; Tensors of less than two dimensions as they are.

    Raises:
        ValueError: more than two dimensions.
    """
    x = tensor_of(input, "t")
    if x.ndim > 2:
        raise ShapeError(f"t: the input must have two dimensions at most, but its shape is {x.shape}")
    return permuted(x, tuple(reversed(range(x.ndim))))


def adjoint(x: Tensor) -> Tensor:
    """The last two dimensions exchanged.

    Raises:
        ValueError: less than two dimensions.
    """
    t = tensor_of(x, "adjoint", "x")
    if t.ndim < 2:
        raise ShapeError(f"adjoint: x must have two dimensions at least, but its shape is {t.shape}")
    return swapaxes(t, -1, -2)


def broadcast_to(input: Tensor, shape: Any) -> Tensor:
    """`input` repeated to `shape`; dimensions align at the end, and -1 keeps the extent of the input.

    Raises:
        TypeError: shape is no tuple of ints. ValueError: the shapes do not fit.
    """
    x = tensor_of(input, "broadcast_to")
    given = ints_of(shape, "broadcast_to", "shape")
    lead = len(given) - x.ndim
    if any(d < -1 for d in given) or any(d == -1 for d in given[: max(lead, 0)]):
        raise ShapeError(f"broadcast_to: {given} is no shape for a Tensor of shape {x.shape}; -1 stands for an extent of the input only")
    target = given if lead < 0 else given[:lead] + tuple(e if d == -1 else d for d, e in zip(given[lead:], x.shape, strict=True))
    return unchanged(x) if target == x.shape else broadcast(x, target)


def expand_dims(input_x: Tensor, axis: int) -> Tensor:
    """A dimension of extent 1 put in at `axis`, in [-rank-1, rank].

    Raises:
        TypeError: axis is no int. ValueError: out of range.
    """
    x = tensor_of(input_x, "expand_dims", "input_x")
    k = normalize_axis(axis, x.ndim + 1, "expand_dims")
    return reshaped(x, (*x.shape[:k], 1, *x.shape[k:]))


def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """The same as `expand_dims`."""
    return expand_dims(input, dim)


def squeeze(input: Tensor, axis: Any = None) -> Tensor:
    """Without the dimensions of extent 1, or without those of `axis` that have extent 1.

    Raises:
        TypeError: axis is neither None, int nor a tuple of ints. ValueError: out of range.
    """
    x = tensor_of(input, "squeeze")
    if axis is None:
        return reshaped(x, tuple(d for d in x.shape if d != 1))
    axes = {normalize_axis(a, max(x.ndim, 1), "squeeze") for a in int_or_ints(axis, "squeeze", "axis")}
    return reshaped(x, tuple(d for k, d in enumerate(x.shape) if d != 1 or k not in axes))


def flatten(input: Tensor, order: str = "C", *, start_dim: int = 1, end_dim: int = -1) -> Tensor:
    """Dimensions `start_dim` to `end_dim` as one. `order` 'F' lays the elements out with the first index fastest.

    Raises:
        TypeError: dims are no ints. ValueError: an order other than 'C' and 'F', dims out of range or in the wrong order.
    """
    x = tensor_of(input, "flatten")
    if order not in ("C", "F"):
        raise ArgumentValueError(f"flatten: order must be 'C' or 'F', but is {order!r}")
    if order == "F":
        x = permuted(x, tuple(reversed(range(x.ndim))))
    rank = max(x.ndim, 1)
    if x.ndim < 2:
        return reshaped(x, (x.size,))
    first, last = normalize_axis(start_dim, rank, "flatten", "start_dim"), normalize_axis(end_dim, rank, "flatten", "end_dim")
    if first > last:
        raise ArgumentValueError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
    middle = 1
    for d in x.shape[first : last + 1]:
        middle *= d
    return reshaped(x, (*x.shape[:first], middle, *x.shape[last + 1 :]))


def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension."""
    x = tensor_of(input, "ravel")
    return reshaped(x, (x.size,))


def shape(input_x: Tensor) -> Shape:
    """The extents, as a tuple."""
    return tensor_of(input_x, "shape", "input_x").shape


def dyn_shape(input_x: Tensor) -> Tensor:
    """The extents, as a 1-D Tensor (Int64)."""
    return constant(np.array(tensor_of(input_x, "dyn_shape", "input_x").shape, np.int64))


def size(input_x: Tensor) -> int:
    """The number of elements."""
    return tensor_of(input_x, "size", "input_x").size


def numel(input: Tensor) -> int:
    """The number of elements."""
    return tensor_of(input, "numel").size


def rank(input_x: Tensor) -> int:
    """The number of dimensions."""
    return tensor_of(input_x, "rank", "input_x").ndim


# -- joining ---------------------------------------------------------------------------------------------------------------
@listed
def concat(tensors: Any, axis: int = 0) -> Tensor:
    """Tensors of one dtype one after another along `axis`.

    Raises:
        TypeError: no tuple or list of Tensors, or of different dtypes. ValueError: none, or shapes that do not fit, or axis out of range.
    """
    xs = tensors_of(tensors, "concat")
    k = normalize_axis(axis, xs[0].ndim, "concat")
    _same_dtype(xs, "concat")
    return joined(xs, k)


def cat(tensors: Any, axis: int = 0) -> Tensor:
    """The same as `concat`."""
    return concat(tensors, axis)


def _same_dtype(xs: Tensors, function: str) -> None:
    for k, x in enumerate(xs):
        if x.dtype is not xs[0].dtype:
            raise DTypeError(f"{function}: all Tensors must have one dtype, but tensors[0] is {xs[0].dtype} and tensors[{k}] is {x.dtype}")


@composite
def stack(tensors: Any, axis: int = 0) -> Tensor:
    """Tensors of one dtype and shape along a new dimension at `axis`.

    Raises:
        TypeError: no tuple or list of Tensors, or of different dtypes. ValueError: none, different shapes, or axis out of range.
    """
    xs = tensors_of(tensors, "stack")
    k = normalize_axis(axis, xs[0].ndim + 1, "stack")
    _same_dtype(xs, "stack")
    for n, x in enumerate(xs):
        if x.shape != xs[0].shape:
            raise ShapeError(f"stack: all Tensors must have one shape, but tensors[0] is {xs[0].shape} and tensors[{n}] is {x.shape}")
    row = (*xs[0].shape[:k], 1, *xs[0].shape[k:])
    return joined(tuple(reshaped(x, row) for x in xs), k)


def atleast_1d(inputs: Any) -> Any:
    """A Tensor, or each of several, with one dimension at least (a number becomes shape (1,))."""
    return _each(inputs, "atleast_1d", lambda x: x if x.ndim else reshaped(x, (1,)))


def atleast_2d(inputs: Any) -> Any:
    """A Tensor, or each of several, with two dimensions at least, new ones in front."""
    return _each(inputs, "atleast_2d", lambda x: reshaped(x, (1,) * (2 - x.ndim) + x.shape))


def atleast_3d(inputs: Any) -> Any:
    """A Tensor, or each of several, with three dimensions at least: (n,) becomes (1, n, 1), (m, n) becomes (m, n, 1)."""
    return _each(inputs, "atleast_3d", _three_dimensions)


def _three_dimensions(x: Tensor) -> Tensor:
    wanted = {0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}
    return reshaped(x, wanted.get(x.ndim, x.shape))


def _each(inputs: Any, function: str, change: Any) -> Any:
    if isinstance(inputs, Tensor):
        return change(inputs)
    return tuple(change(x) for x in tensors_of(inputs, function, "inputs"))


def hstack(tensors: Any) -> Tensor:
    """Tensors side by side: along axis 1, or axis 0 where they have one dimension."""
    xs: Tensors = atleast_1d(tuple(tensors_of(tensors, "hstack")))
    return concat(xs, 0 if xs[0].ndim == 1 else 1)


def vstack(inputs: Any) -> Tensor:
    """Tensors on top of each other, along axis 0; (n,) counts as (1, n)."""
    return concat(atleast_2d(tuple(tensors_of(inputs, "vstack", "inputs"))), 0)


def row_stack(tensors: Any) -> Tensor:
    """The same as `vstack`."""
    return vstack(tensors)


def dstack(tensors: Any) -> Tensor:
    """Tensors behind each other, along axis 2; (n,) counts as (1, n, 1), (m, n) as (m, n, 1)."""
    return concat(atleast_3d(tuple(tensors_of(tensors, "dstack"))), 2)


def column_stack(tensors: Any) -> Tensor:
    """Tensors side by side; one of one dimension is a column, (n, 1)."""
    xs = tensors_of(tensors, "column_stack")
    return concat(tuple(reshaped(x, (x.size, 1)) if x.ndim < 2 else x for x in xs), 1)


# -- cutting ---------------------------------------------------------------------------------------------------------------
def unstack(input_x: Tensor, axis: int = 0) -> Tensors:
    """The slices along `axis`, without that dimension; the inverse of `stack`.

    Raises:
        TypeError: axis is no int. ValueError: out of range.
    """
    x = tensor_of(input_x, "unstack", "input_x")
    k = normalize_axis(axis, x.ndim, "unstack")
    rest = x.shape[:k] + x.shape[k + 1 :]
    return tuple(reshaped(cut(x, k, n, 1), rest) for n in range(x.shape[k]))


def unbind(input: Tensor, dim: int = 0) -> Tensors:
    """The same as `unstack`."""
    return unstack(input, dim)


def split(tensor: Tensor, split_size_or_sections: Any, axis: int = 0) -> Tensors:
    """Pieces along `axis`: of one size (the last may be smaller), or of the sizes listed.

    Raises:
        TypeError: neither an int nor a tuple or list of ints. ValueError: sizes that are not positive (negative in a list) or do not add up.
    """
    x = tensor_of(tensor, "split", "tensor")
    k = normalize_axis(axis, x.ndim, "split")
    extent = x.shape[k]
    if isinstance(split_size_or_sections, (tuple, list)):
        sizes = ints_of(split_size_or_sections, "split", "split_size_or_sections")
        if min(sizes, default=0) < 0 or sum(sizes) != extent:
            raise ArgumentValueError(f"split: sections {sizes} must not be negative and add up to {extent}, the extent of axis {axis} of {x.shape}")
        return _pieces(x, k, sizes)
    step = int_of(split_size_or_sections, "split", "split_size_or_sections")
    if step <= 0:
        raise ArgumentValueError(f"split: the size of a piece must be positive, but is {step}")
    return _pieces(x, k, tuple(min(step, extent - at) for at in range(0, max(extent, 1), step)))


def _pieces(x: Tensor, axis: int, sizes: tuple[int, ...]) -> Tensors:
    pieces, at = [], 0
    for n in sizes:
        pieces.append(cut(x, axis, at, n))
        at += n
    return tuple(pieces)


def chunk(input: Tensor, chunks: int, axis: int = 0) -> Tensors:
    """At most `chunks` pieces of equal size along `axis` (the last may be smaller).

    Raises:
        TypeError: chunks is no int. ValueError: not positive.
    """
    x = tensor_of(input, "chunk")
    k = normalize_axis(axis, x.ndim, "chunk")
    count = int_of(chunks, "chunk", "chunks")
    if count <= 0:
        raise ArgumentValueError(f"chunk: chunks must be positive, but is {count}")
    return split(x, max(1, -(-x.shape[k] // count)), k)


def tensor_split(input: Tensor, indices_or_sections: Any, axis: int = 0) -> Tensors:
    """Pieces along `axis`: an int gives that many, as equal as can be (the first ones larger); a tuple gives the places of the cuts.

    Raises:
        TypeError: neither an int nor a tuple or list of ints. ValueError: no sections.
    """
    x = tensor_of(input, "tensor_split")
    if x.ndim == 0:
        raise ShapeError("tensor_split: the input must have one dimension at least, but is a scalar")
    k = normalize_axis(axis, x.ndim, "tensor_split")
    extent = x.shape[k]
    if isinstance(indices_or_sections, (tuple, list)):
        places = ints_of(indices_or_sections, "tensor_split", "indices_or_sections")
        edges = [0, *(min(max(p + extent if p < 0 else p, 0), extent) for p in places), extent]
        return tuple(cut(x, k, a, max(b - a, 0)) for a, b in itertools.pairwise(edges))
    count = int_of(indices_or_sections, "tensor_split", "indices_or_sections")
    if count <= 0:
        raise ArgumentValueError(f"tensor_split: the number of sections must be positive, but is {count}")
    return _pieces(x, k, tuple(extent // count + (n < extent % count) for n in range(count)))


def hsplit(input: Tensor, indices_or_sections: Any) -> Tensors:
    """`tensor_split` along axis 1, or axis 0 of a Tensor of one dimension."""
    return tensor_split(input, indices_or_sections, 0 if tensor_of(input, "hsplit").ndim == 1 else 1)


def vsplit(input: Tensor, indices_or_sections: Any) -> Tensors:
    """`tensor_split` along axis 0."""
    return tensor_split(input, indices_or_sections, 0)


def dsplit(input: Tensor, indices_or_sections: Any) -> Tensors:
    """`tensor_split` along axis 2."""
    return tensor_split(input, indices_or_sections, 2)


def narrow(input: Tensor, axis: int, start: int, length: int) -> Tensor:
    """`length` entries from `start` on along `axis`.

    Raises:
        TypeError: not ints. ValueError: outside of the extent.
    """
    x = tensor_of(input, "narrow")
    k = normalize_axis(axis, x.ndim, "narrow")
    extent, count = x.shape[k], int_of(length, "narrow", "length")
    begin = int_of(start, "narrow", "start")
    first = begin + extent if begin < 0 else begin
    if count < 0 or not 0 <= first <= extent - count:
        raise ArgumentValueError(f"narrow: start {begin} and length {count} do not fit axis {k} of shape {x.shape}")
    return cut(x, k, first, count)


def slice(input_x: Tensor, begin: Any, size: Any) -> Tensor:
    """The block of extents `size` (-1: all that remains) that starts at `begin`.

    Raises:
        TypeError: no tuples of ints. ValueError: of a wrong length, or outside of the input.
    """
    x = tensor_of(input_x, "slice", "input_x")
    start, extents = ints_of(begin, "slice", "begin"), ints_of(size, "slice", "size")
    if not len(start) == len(extents) == x.ndim:
        raise ArgumentValueError(f"slice: begin {start} and size {extents} need one entry for each dimension of shape {x.shape}")
    full = tuple(d - a if n == -1 else n for a, n, d in zip(start, extents, x.shape, strict=True))
    if any(a < 0 or n < 0 or a + n > d for a, n, d in zip(start, full, x.shape, strict=True)):
        raise ArgumentValueError(f"slice: begin {start} and size {extents} lie outside of shape {x.shape}")
    first = tuple(a if n else 0 for a, n in zip(start, full, strict=True))
    return unchanged(x) if full == x.shape else apply1(Slice(first, full, (1,) * x.ndim), x)


def strided_slice(
    input_x: Tensor,
    begin: Any,
    end: Any,
    strides: Any,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
) -> Tensor:
    """`input_x[begin[0]:end[0]:strides[0], …]`. Bit k of a mask changes entry k: `begin_mask` and `end_mask` leave that bound out,
    `ellipsis_mask` makes it `...`, `new_axis_mask` a new dimension, `shrink_axis_mask` the single index begin[k].

    Raises:
        TypeError: bounds or masks that are no ints. ValueError: different lengths, a stride of 0, two ellipses. IndexError: an index out of range.
    """
    import builtins

    from graphcell.ops.functional.indexing import tensor_getitem

    x = tensor_of(input_x, "strided_slice", "input_x")
    bounds = tuple(ints_of(b, "strided_slice", n) for b, n in ((begin, "begin"), (end, "end"), (strides, "strides")))
    if len({len(b) for b in bounds}) != 1:
        raise ArgumentValueError(f"strided_slice: begin {bounds[0]}, end {bounds[1]} and strides {bounds[2]} must be of one length")
    if 0 in bounds[2]:
        raise ArgumentValueError(f"strided_slice: strides must not be 0, but are {bounds[2]}")
    if bin(ellipsis_mask).count("1") > 1:
        raise ArgumentValueError("strided_slice: ellipsis_mask may have one bit at most")
    index: list[Any] = []
    for k, (a, b, s) in enumerate(zip(*bounds, strict=True)):
        bit = 1 << k
        if ellipsis_mask & bit:
            index.append(Ellipsis)
        elif new_axis_mask & bit:
            index.append(None)
        elif shrink_axis_mask & bit:
            index.append(a)
        else:
            index.append(builtins.slice(None if begin_mask & bit else a, None if end_mask & bit else b, s))
    return tensor_getitem(x, tuple(index))
