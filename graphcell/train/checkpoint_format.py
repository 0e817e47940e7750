"""The bytes of a MindSpore checkpoint.

A file is a protocol-buffers message (https://protobuf.dev/programming-guides/encoding):

    Checkpoint  { repeated Value value = 1 }
    Value       { string tag = 1; TensorProto tensor = 2 }
    TensorProto { repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3 }

with a Value for each entry in order, dims not packed (none for a scalar), and the content as raw little-endian data. The content of a large
Tensor is cut: Values of one tag that follow each other, all with the whole dims. With a checksum, `crc_num` and the CRC-32 of all before
it, as ten big-endian bytes, follow. No file, however damaged, leads to anything but an error; nothing is ever executed.
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import CheckpointError
from graphcell.records import dataclass
from graphcell.wire import Malformed, bytes_field, header, number_field, read_fields, read_varint

Array = np.ndarray[Any, Any]
Entries = list[tuple[str, Array | str]]
_TYPES = {str(d): d for d in dt.ALL}
_CRC_MARK, _CRC_SIZE = b"crc_num", 10
_CHUNK = 2**29
_DIMS_LIMIT = 64  # of which MindSpore's Tensors have 8 at most


def encode(entries: Iterable[tuple[str, Array | str]], checksum: bool = False, chunk: int = _CHUNK) -> Iterator[bytes | memoryview]:
    """The pieces of a file that holds named arrays and strings, in order. Arrays of more than `chunk` bytes are cut."""
    crc = 0
    for name, value in entries:
        for piece in _encode_text(name, value) if isinstance(value, str) else _encode_array(name, value, chunk):
            crc = zlib.crc32(piece, crc) if checksum else 0
            yield piece
    if checksum:
        yield _CRC_MARK + crc.to_bytes(_CRC_SIZE, "big")


def _encode_text(name: str, value: str) -> Iterator[bytes | memoryview]:
    return _encode_value(name, number_field(1, 0), "str", memoryview(value.encode("utf-32-le")))


def _encode_array(name: str, value: Array, chunk: int) -> Iterator[bytes | memoryview]:
    kind = str(dt.from_numpy(value.dtype))
    dims = b"".join(number_field(1, d) for d in value.shape)
    little = np.ascontiguousarray(value.astype(value.dtype.newbyteorder("<"), copy=False))
    content = memoryview(little.reshape(-1).view(np.uint8))  # type: ignore[arg-type]  # Python 3.11 has no type for buffers
    for start in range(0, max(len(content), 1), chunk):
        yield from _encode_value(name, dims, kind, content[start : start + chunk])


def _encode_value(name: str, dims: bytes, kind: str, content: memoryview) -> Iterator[bytes | memoryview]:
    """A Value; its content comes as it is, since it may be large."""
    tensor = dims + bytes_field(2, kind) + header(3, len(content))
    value = bytes_field(1, name) + header(2, len(tensor) + len(content)) + tensor
    yield header(1, len(value) + len(content)) + value
    yield content


def decode(data: bytes, checksum: bool = False) -> Entries:
    """The named arrays and strings of a file, whose checksum is checked if it has one.

    Raises:
        CheckpointError: if the bytes are not a whole checkpoint. Warns: with `checksum`, if there is none to check.
    """
    try:
        view = _without_checksum(data)
        if checksum and len(view) == len(data):
            warn_of_no_checksum()
        values = (_decode_value(number, content) for number, content in read_fields(view))
        found = [(name, _join(list(parts))) for name, parts in groupby(values, lambda value: value.name)]
        if len({name for name, _ in found}) < len(found):
            raise Malformed("two entries have the same name")
        return found
    except (Malformed, UnicodeDecodeError) as e:
        raise CheckpointError(f"the file is corrupt or no checkpoint ({e})") from e


def warn_of_no_checksum() -> None:
    warnings.warn("load_checkpoint: crc_check is True, but the file has no checksum", RuntimeWarning, stacklevel=4)


def _without_checksum(data: bytes) -> memoryview:
    at = len(data) - _CRC_SIZE - len(_CRC_MARK)
    if at < 0 or data[at : at + len(_CRC_MARK)] != _CRC_MARK:
        return memoryview(data)
    if int.from_bytes(data[-_CRC_SIZE:], "big") != zlib.crc32(memoryview(data)[:at]):
        raise Malformed("its checksum is wrong")
    return memoryview(data)[:at]


@dataclass(frozen=True)
class _Value:
    """An entry, or a part of a large one."""

    name: str
    kind: str
    dims: tuple[int, ...]
    content: memoryview


def _decode_value(field: int, entry: memoryview | int) -> _Value:
    if field != 1 or not isinstance(entry, memoryview):
        raise Malformed(f"a part that is no entry (field {field})")
    name: str | None = None
    tensor: memoryview | None = None
    for number, content in read_fields(entry):
        if not isinstance(content, memoryview):
            raise Malformed("a number where text was expected")
        if number == 1:
            name = bytes(content).decode()
        elif number == 2:
            tensor = content
    if name is None or tensor is None:
        raise Malformed("an entry without name or content")
    return _decode_tensor(name, tensor)


def _decode_tensor(name: str, view: memoryview) -> _Value:
    dims: list[int] = []
    kind, content = "", memoryview(b"")
    for number, value in read_fields(view):
        if number == 1:
            dims += [value] if isinstance(value, int) else _packed(value)
        elif number == 2 and isinstance(value, memoryview):
            kind = bytes(value).decode()
        elif number == 3 and isinstance(value, memoryview):
            content = value
        if len(dims) > _DIMS_LIMIT:
            raise Malformed(f"{name} has too many dimensions")
    if kind != "str" and kind not in _TYPES:
        raise Malformed(f"unknown element type {kind!r}")
    return _Value(name, kind, tuple(dims), content)


def _packed(view: memoryview) -> list[int]:
    numbers: list[int] = []
    at = 0
    while at < len(view) and len(numbers) <= _DIMS_LIMIT:
        number, at = read_varint(view, at)
        numbers.append(number)
    return numbers


def _join(parts: list[_Value]) -> Array | str:
    """The entry whose parts these are."""
    first = parts[0]
    if any((part.kind, part.dims) != (first.kind, first.dims) for part in parts):
        raise Malformed(f"the parts of {first.name} do not fit each other")
    content = first.content if len(parts) == 1 else memoryview(b"".join(part.content for part in parts))
    if first.kind == "str":
        return bytes(content).decode("utf-32-le")
    dtype = _TYPES[first.kind]
    is_scalar = first.dims == (0,) and len(content) == dtype.itemsize
    return array_of(content, dtype, () if is_scalar else first.dims)


def array_of(content: memoryview, dtype: dt.DType, shape: tuple[int, ...]) -> Array:
    """Raw little-endian data as an array, which may share their memory.

    Raises:
        Malformed: the data do not fit.
    """
    if any(not 0 <= d < 2**63 for d in shape) or math.prod(shape) * dtype.itemsize != len(content):
        raise Malformed(f"{len(content)} bytes are not a {dtype} of shape {shape}")
    if dtype.is_bool:  # any other byte than 0 counts as true
        flat: np.ndarray = np.frombuffer(content, np.uint8) != 0
    else:
        little = dtype.np_type.newbyteorder("<") if dtype is not dt.bfloat16 else dtype.np_type
        flat = np.frombuffer(content, little).astype(dtype.np_type, copy=False)
    try:
        return flat.reshape(shape)
    except (ValueError, OverflowError) as e:
        raise Malformed(f"an array cannot have shape {shape}") from e
