"""Primitive classes of indexing, and of state: gathers, scatters, assignments."""

from __future__ import annotations

from typing import Any

from graphcell import ops as F
from graphcell.ops.primitive import Configured, Plain

__all__ = [
    "Assign", "AssignAdd", "AssignSub", "Depend", "Gather", "GatherD", "GatherNd", "MaskedFill", "Print",
    "ScatterAdd", "ScatterNd", "ScatterNdAdd", "ScatterNdUpdate", "ScatterUpdate", "Select", "StopGradient",
    "TensorScatterAdd", "TensorScatterUpdate", "UnsortedSegmentSum",
]  # fmt: skip


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
