"""`TensorOperation`, the base of transforms.

A transform is called with one value. Most treat each row alike: their `compute` takes one array, or, with `lead` 1, many of them stacked.
"""

from __future__ import annotations

from typing import Any

from graphcell.dataset.core.columns import Array, as_array
from graphcell.errors import DatasetError, NotImplementedFeatureError


class TensorOperation:
    """Base of transforms that take one array and give one."""

    takes_rows: bool = False
    """Whether `compute` can do with many rows at once."""

    def __call__(self, *inputs: Any) -> Any:
        """The transformed value. Raises RuntimeError: not one input, or one that the transform does not take."""
        if len(inputs) != 1:
            raise DatasetError(f"[{type(self).__name__}] failed. The op is OneToOne, can only accept one tensor as input.")
        return self.compute(self.checked(inputs[0]), 0)

    def checked(self, value: Any) -> Array:
        """The input as an array."""
        array = as_array(value)
        if isinstance(array, dict):
            raise DatasetError(f"{type(self).__name__}: the input is a dict, not an array")
        result: Array = array
        return result

    def compute(self, x: Array, lead: int) -> Any:
        """The transform of `x`; its first `lead` dimensions count rows."""
        raise NotImplementedFeatureError(f"{type(self).__name__} must define compute(x, lead)")
