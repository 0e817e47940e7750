"""Aligned memory for Tensors."""

from __future__ import annotations

import ctypes
import math
import sys
import sysconfig
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
    start = -address(raw) % ALIGNMENT
    return raw[start : start + nbytes].view(dtype).reshape(shape)


def _field_of_address() -> int:
    """Where an array object keeps the address of its memory (numpy's PyArrayObject_fields); 0 if this Python is not CPython."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return 0
    probe, field = np.zeros(3), 2 * ctypes.sizeof(ctypes.c_void_p)
    return field if ctypes.c_size_t.from_address(id(probe) + field).value == probe.ctypes.data else 0


_FIELD = _field_of_address()


def address(data: Array) -> int:
    """The address of the first element: `data.ctypes.data`, several times as fast."""
    return ctypes.c_size_t.from_address(id(data) + _FIELD).value if _FIELD else int(data.ctypes.data)


def copy(source: Array) -> Array:
    """An aligned, C-contiguous copy."""
    target = empty(source.shape, source.dtype)
    target[...] = source
    return target
