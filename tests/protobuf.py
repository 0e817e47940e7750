"""Reads protocol-buffers messages (https://protobuf.dev/programming-guides/encoding), for tests of what writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def decode(data: bytes) -> Iterator[tuple[int, Any]]:
    """(field number, value) of a message; numbers (as 64 bits without sign), or the bytes of what has a length or is fixed."""
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while at < len(data):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
            continue
        assert tag & 7 in (1, 2)
        size = 8 if tag & 7 == 1 else varint()
        at += size
        assert at <= len(data)
        yield tag >> 3, data[at - size : at]
