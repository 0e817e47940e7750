"""The bytes of a safetensors file, by the package of that name (https://github.com/huggingface/safetensors), which also checks the files
that it reads: a damaged or hostile file leads to an error and nothing else. Strings have no place in this format.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, CheckpointError
from graphcell.train.checkpoint_format import Array, Entries, array_of, warn_of_no_checksum
from graphcell.wire import Malformed

_DTYPES = {
    "BOOL": dt.bool_, "I8": dt.int8, "I16": dt.int16, "I32": dt.int32, "I64": dt.int64, "U8": dt.uint8, "U16": dt.uint16, "U32": dt.uint32,
    "U64": dt.uint64, "F16": dt.float16, "BF16": dt.bfloat16, "F32": dt.float32, "F64": dt.float64,
}  # fmt: skip
_CHECKSUM = "crc_num"
_ZEROS = bytes(1 << 16)
_MOST_ZEROS = 1 << 28  # more steps than a training has


def encode(entries: Iterable[tuple[str, Array | str]], checksum: bool = False) -> Iterator[bytes]:
    """The one piece of a file that holds named arrays.

    Raises:
        TypeError: a string is among them.
    """
    from safetensors.numpy import save  # only needed by those who use the format

    arrays: dict[str, Array] = {}
    for name, value in entries:
        if isinstance(value, str):
            raise ArgumentTypeError(f"the format safetensors holds Tensors only, but {name} is a str", hint="use format='ckpt'")
        arrays[name] = np.asarray(value, order="C")
    yield save(arrays, {"format": "ms", _CHECKSUM: str(_checksum(arrays))} if checksum else {"format": "ms"})


def decode(data: bytes, checksum: bool = False) -> Entries:
    """The named arrays of a file, by name; with `checksum` the file's is checked.

    Raises:
        CheckpointError: if the bytes are not a whole file of this format, or the checksum is another. Warns: there is none to check.
    """
    from safetensors import SafetensorError, deserialize

    try:
        entries = sorted(deserialize(data), key=lambda entry: entry[0])  # type: ignore[no-untyped-call]
        found = [(name, _array(name, entry["dtype"], entry["shape"], entry["data"])) for name, entry in entries]
    except (Malformed, SafetensorError) as e:
        raise CheckpointError(f"the file is corrupt or no safetensors ({e})") from e
    if checksum:
        _check(data, dict(found))
    return [*found]


def _check(data: bytes, arrays: dict[str, Array]) -> None:
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    written = (header.get("__metadata__") or {}).get(_CHECKSUM)
    if written is None:
        warn_of_no_checksum()
    elif written != str(_checksum(arrays)):
        raise CheckpointError("its checksum is wrong")


def _checksum(arrays: dict[str, Array]) -> int:
    """MindSpore's: the CRC-32 of all names and arrays in the order of the names. It takes `bytes(array)`, by which an int array of no dimensions
    counts as that many zeros.
    """
    crc = 0
    for name in sorted(arrays):
        array = arrays[name]
        crc = zlib.crc32(name.encode(), crc)
        zeros = int(array) if array.ndim == 0 and array.dtype.kind in "iu" else -1
        if not 0 <= zeros <= _MOST_ZEROS:
            crc = zlib.crc32(array.tobytes(), crc)
            continue
        for start in range(0, zeros, len(_ZEROS)):
            crc = zlib.crc32(memoryview(_ZEROS)[: zeros - start], crc)
    return crc


def _array(name: str, kind: str, shape: list[int], data: bytearray) -> Array:
    if kind not in _DTYPES:
        raise Malformed(f"{name} has elements of the type {kind}, which no Tensor holds")
    return array_of(memoryview(data), _DTYPES[kind], tuple(shape))
