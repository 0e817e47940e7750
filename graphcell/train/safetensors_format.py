"""The bytes of a safetensors file (https://github.com/huggingface/safetensors): the length of a JSON header as eight bytes, the header,
the raw little-endian data. The header says for each name the dtype, the shape and where the data lie.

Reading checks every number, so that no file, however damaged, leads to anything but an error. Strings have no place in this format.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, CheckpointError
from graphcell.train.checkpoint_format import Array, Entries, Malformed, array_of

_ORDER = ("U64", "I64", "F64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16", "I8", "U8", "BOOL")
_DTYPES = (
    dt.uint64, dt.int64, dt.float64, dt.float32, dt.uint32, dt.int32, dt.bfloat16, dt.float16, dt.uint16, dt.int16, dt.int8, dt.uint8,
    dt.bool_,
)  # fmt: skip
_NAMES = dict(zip(_DTYPES, _ORDER, strict=True))
_BY_NAME = dict(zip(_ORDER, _DTYPES, strict=True))
_HEADER_LIMIT = 100_000_000


def encode(entries: Iterable[tuple[str, Array | str]]) -> Iterator[bytes]:
    """The pieces of a file that holds named arrays: those of large elements first, then by name.

    Raises:
        TypeError: a string is among them.
    """
    arrays: list[tuple[int, str, Array]] = []
    for name, value in entries:
        if isinstance(value, str):
            raise ArgumentTypeError(f"the format safetensors holds Tensors only, but {name} is a str", hint="use format='ckpt'")
        arrays.append((_ORDER.index(_NAMES[dt.from_numpy(value.dtype)]), name, value))
    arrays.sort(key=lambda entry: entry[:2])
    header: dict[str, Any] = {"__metadata__": {"format": "ms"}}
    at = 0
    for kind, name, value in arrays:
        header[name] = {"dtype": _ORDER[kind], "shape": list(value.shape), "data_offsets": [at, at + value.nbytes]}
        at += value.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, _, value in arrays:
        yield np.ascontiguousarray(value.astype(value.dtype.newbyteorder("<"), copy=False)).tobytes()


def decode(data: bytes) -> Entries:
    """The named arrays of a file, by name.

    Raises:
        CheckpointError: if the bytes are not a whole file of this format.
    """
    try:
        size = int.from_bytes(data[:8], "little")
        if len(data) < 8 or size > min(len(data) - 8, _HEADER_LIMIT):
            raise Malformed("its header is cut off")
        header = json.loads(data[8 : 8 + size].decode())
        if not isinstance(header, dict):
            raise Malformed("its header is no object")
        body = memoryview(data)[8 + size :]
        return [(name, _array(name, header[name], body)) for name in sorted(header) if name != "__metadata__"]
    except (Malformed, ValueError, RecursionError) as e:  # ValueError: text that is no UTF-8, no JSON, or holds too long a number
        raise CheckpointError(f"the file is corrupt or no safetensors ({e})") from e


def _array(name: str, entry: Any, body: memoryview) -> Array:
    kind = entry.get("dtype") if isinstance(entry, dict) else None
    if not isinstance(kind, str) or kind not in _BY_NAME:
        raise Malformed(f"the entry of {name} has no known dtype")
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= len(body):
        raise Malformed(f"the entry of {name} has no valid shape and place")
    return array_of(body[offsets[0] : offsets[1]], _BY_NAME[kind], tuple(shape))


def _are_sizes(x: Any) -> bool:
    return isinstance(x, list) and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in x)
