"""Aligned memory for Tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcell.errors import OutOfMemoryError

ALIGNMENT = 64
Array = np.ndarray[Any, Any]


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An uninitialised C-contiguous array whose first byte lies on a 64-byte boundary.

    Raises:
        OutOfMemoryError: with the bytes asked for.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    try:
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as e:
        raise OutOfMemoryError(f"cannot allocate {nbytes:,} bytes for a Tensor of shape {shape}") from e
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes].view(dtype).reshape(shape)


def copy(source: Array) -> Array:
    """An aligned, C-contiguous copy."""
    target = empty(source.shape, source.dtype)
    target[...] = source
    return target
