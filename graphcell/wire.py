"""The wire format of protocol buffers (https://protobuf.dev/programming-guides/encoding): what graphs and checkpoints are written in.

Enters and leaves: fields by number, as bytes. Reading checks every length, so that bytes from anywhere lead to fields or to `Malformed`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}


class Malformed(Exception):
    """Bytes that are not what they should be."""


# -- out -----------------------------------------------------------------------------------------------------------------
def varint(number: int) -> bytes:
    """An int, seven bits a byte; a negative one as 64 bits."""
    number &= 2**64 - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number_field(field: int, value: int) -> bytes:
    """A field that holds an int."""
    return varint(field << 3 | _VARINT) + varint(value)


def float_field(field: int, value: float) -> bytes:
    """A field that holds a double."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def header(field: int, size: int) -> bytes:
    """What stands before the `size` bytes of a field."""
    return varint(field << 3 | _BYTES) + varint(size)


def bytes_field(field: int, value: bytes | str) -> bytes:
    """A field that holds bytes, text or a message."""
    data = value.encode() if isinstance(value, str) else value
    return header(field, len(data)) + data


def repeated(field: int, values: Iterable[bytes | str]) -> bytes:
    """A field that is there once for each value."""
    return b"".join(bytes_field(field, value) for value in values)


# -- in ------------------------------------------------------------------------------------------------------------------
def read_fields(view: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """(number, value) of the fields of a message: an int without sign, or the bytes of what has a length or is fixed.

    Raises:
        Malformed: the bytes are no message.
    """
    at = 0
    while at < len(view):
        key, at = read_varint(view, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = read_varint(view, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = read_varint(view, at)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise Malformed(f"unknown wire type {kind}")
        if number == 0 or at + size > len(view):
            raise Malformed("a field reaches beyond the end")
        yield number, view[at : at + size]
        at += size


def read_varint(view: memoryview, at: int) -> tuple[int, int]:
    """The int at a place, and the place behind it.

    Raises:
        Malformed: it ends too early, or does not end.
    """
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
