"""The bytes of a MindSpore checkpoint.

A file is a protocol-buffers message (https://protobuf.dev/programming-guides/encoding):

    Checkpoint  { repeated Value value = 1 }
    Value       { string tag = 1; TensorProto tensor = 2 }
    TensorProto { repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3 }

with one Value for each entry in order, dims not packed, and the content as raw little-endian data. Reading checks every length, so that
no file, however damaged, leads to anything but an error; nothing is ever executed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import CheckpointError

Array = np.ndarray[Any, Any]
_TYPES = {str(d): d for d in dt.ALL}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def encode(entries: Iterable[tuple[str, Array | str]]) -> Iterator[bytes]:
    """The pieces of a file that holds named arrays and strings, in order."""
    for name, value in entries:
        tensor = _encode_tensor(value)
        body = _field(1, name.encode()) + _field(2, tensor)
        yield _field(1, body)


def _encode_tensor(value: Array | str) -> bytes:
    if isinstance(value, str):
        return b"\x08\x00" + _field(2, b"str") + _field(3, value.encode("utf-32-le"))
    dims = b"".join(b"\x08" + _varint(d) for d in value.shape)
    little = value.astype(value.dtype.newbyteorder("<"), copy=False)
    return dims + _field(2, str(dt.from_numpy(value.dtype)).encode()) + _field(3, np.ascontiguousarray(little).tobytes())


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


class _Malformed(Exception):
    pass


def decode(data: bytes) -> list[tuple[str, Array | str]]:
    """The named arrays and strings of a file.

    Raises:
        CheckpointError: if the bytes are not a whole checkpoint.
    """
    try:
        view = memoryview(data)
        return [_decode_value(content) for number, content in _fields(view) if number == 1 and isinstance(content, memoryview)]
    except (_Malformed, UnicodeDecodeError) as e:
        raise CheckpointError(f"the file is corrupt or no checkpoint ({e})") from e


def _fields(view: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    at = 0
    while at < len(view):
        key, at = _read_varint(view, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _read_varint(view, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _read_varint(view, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise _Malformed(f"unknown wire type {kind}")
        if number == 0 or at + size > len(view):
            raise _Malformed("a field reaches beyond the end")
        yield number, view[at : at + size]
        at += size


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if at >= len(view):
            raise _Malformed("it ends inside a number")
        byte = view[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
    raise _Malformed("a number is too long")


def _decode_value(view: memoryview) -> tuple[str, Array | str]:
    name: str | None = None
    tensor: Array | str | None = None
    for number, content in _fields(view):
        if not isinstance(content, memoryview):
            raise _Malformed("a number where text was expected")
        if number == 1:
            name = bytes(content).decode()
        elif number == 2:
            tensor = _decode_tensor(content)
    if name is None or tensor is None:
        raise _Malformed("an entry without name or content")
    return name, tensor


def _decode_tensor(view: memoryview) -> Array | str:
    dims: list[int] = []
    kind, content = "", memoryview(b"")
    for number, value in _fields(view):
        if number == 1 and isinstance(value, int):
            dims.append(value)
        elif number == 1 and isinstance(value, memoryview):  # packed
            at = 0
            while at < len(value):
                d, at = _read_varint(value, at)
                dims.append(d)
        elif number == 2 and isinstance(value, memoryview):
            kind = bytes(value).decode()
        elif number == 3 and isinstance(value, memoryview):
            content = value
    if kind == "str":
        return bytes(content).decode("utf-32-le")
    if kind not in _TYPES:
        raise _Malformed(f"unknown element type {kind!r}")
    dtype = _TYPES[kind].np_type
    shape = () if dims == [0] and len(content) == dtype.itemsize else tuple(dims)
    if math.prod(shape) * dtype.itemsize != len(content):
        raise _Malformed(f"{len(content)} bytes are not a {kind} of shape {shape}")
    return np.frombuffer(content, dtype.newbyteorder("<") if dtype.kind in "iuf" and dtype.itemsize > 1 else dtype).reshape(shape).astype(dtype)
