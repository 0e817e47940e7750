"""The bytes of a MindSpore checkpoint.

A file is a protocol-buffers message (https://protobuf.dev/programming-guides/encoding):

    Checkpoint  { repeated Value value = 1 }
    Value       { string tag = 1; TensorProto tensor = 2 }
    TensorProto { repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3 }

with one Value for each entry in order, dims not packed (none for a scalar), and the content as raw little-endian data. With a checksum,
`crc_num` and the CRC-32 of all before it, as ten big-endian bytes, follow. Reading checks every length, so that no file, however damaged,
leads to anything but an error; nothing is ever executed.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import CheckpointError

Array = np.ndarray[Any, Any]
Entries = list[tuple[str, Array | str]]
_TYPES = {str(d): d for d in dt.ALL}
_CRC_MARK, _CRC_SIZE = b"crc_num", 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def encode(entries: Iterable[tuple[str, Array | str]], checksum: bool = False) -> Iterator[bytes]:
    """The pieces of a file that holds named arrays and strings, in order."""
    crc = 0
    for name, value in entries:
        tensor = _encode_tensor(value)
        piece = _field(1, _field(1, name.encode()) + _field(2, tensor))
        crc = zlib.crc32(piece, crc)
        yield piece
    if checksum:
        yield _CRC_MARK + crc.to_bytes(_CRC_SIZE, "big")


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


class Malformed(Exception):
    """Bytes that are no checkpoint."""


def decode(data: bytes, checksum: bool = False) -> Entries:
    """The named arrays and strings of a file.

    Args:
        checksum: check the CRC, if the file has one.

    Raises:
        CheckpointError: if the bytes are not a whole checkpoint.
    """
    try:
        view = _without_checksum(data, checksum)
        return [_decode_value(content) for number, content in _fields(view) if number == 1 and isinstance(content, memoryview)]
    except (Malformed, UnicodeDecodeError) as e:
        raise CheckpointError(f"the file is corrupt or no checkpoint ({e})") from e


def _without_checksum(data: bytes, check: bool) -> memoryview:
    at = len(data) - _CRC_SIZE - len(_CRC_MARK)
    if at < 0 or data[at : at + len(_CRC_MARK)] != _CRC_MARK:
        return memoryview(data)
    if check and int.from_bytes(data[-_CRC_SIZE:], "big") != zlib.crc32(memoryview(data)[:at]):
        raise Malformed("its checksum is wrong")
    return memoryview(data)[:at]


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
            raise Malformed(f"unknown wire type {kind}")
        if number == 0 or at + size > len(view):
            raise Malformed("a field reaches beyond the end")
        yield number, view[at : at + size]
        at += size


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if at >= len(view):
            raise Malformed("it ends inside a number")
        byte = view[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
    raise Malformed("a number is too long")


def _decode_value(view: memoryview) -> tuple[str, Array | str]:
    name: str | None = None
    tensor: Array | str | None = None
    for number, content in _fields(view):
        if not isinstance(content, memoryview):
            raise Malformed("a number where text was expected")
        if number == 1:
            name = bytes(content).decode()
        elif number == 2:
            tensor = _decode_tensor(content)
    if name is None or tensor is None:
        raise Malformed("an entry without name or content")
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
        raise Malformed(f"unknown element type {kind!r}")
    return array_of(content, _TYPES[kind], () if dims == [0] and len(content) == _TYPES[kind].itemsize else tuple(dims))


def array_of(content: memoryview, dtype: dt.DType, shape: tuple[int, ...]) -> Array:
    """Raw little-endian data as an array of its own.

    Raises:
        Malformed: the data do not fit.
    """
    if any(not 0 <= d < 2**63 for d in shape) or math.prod(shape) * dtype.itemsize != len(content):
        raise Malformed(f"{len(content)} bytes are not a {dtype} of shape {shape}")
    if dtype.is_bool:  # any other byte than 0 counts as true
        flat: np.ndarray = np.frombuffer(content, np.uint8) != 0
    else:
        little = dtype.np_type.newbyteorder("<") if dtype is not dt.bfloat16 else dtype.np_type
        flat = np.frombuffer(content, little).astype(dtype.np_type)
    try:
        return flat.reshape(shape)
    except (ValueError, OverflowError) as e:
        raise Malformed(f"an array cannot have shape {shape}") from e
