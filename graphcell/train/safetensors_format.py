"""The bytes of a safetensors file, by the package of that name (https://github.com/huggingface/safetensors), which also checks the files
that it reads: a damaged or hostile file leads to an error and nothing else. Strings have no place in this format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, CheckpointError
from graphcell.train.checkpoint_format import Array, Entries, Malformed, array_of

_DTYPES = {
    "BOOL": dt.bool_, "I8": dt.int8, "I16": dt.int16, "I32": dt.int32, "I64": dt.int64, "U8": dt.uint8, "U16": dt.uint16, "U32": dt.uint32,
    "U64": dt.uint64, "F16": dt.float16, "BF16": dt.bfloat16, "F32": dt.float32, "F64": dt.float64,
}  # fmt: skip


def encode(entries: Iterable[tuple[str, Array | str]]) -> Iterator[bytes]:
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
    yield save(arrays, {"format": "ms"})


def decode(data: bytes) -> Entries:
    """The named arrays of a file, by name.

    Raises:
        CheckpointError: if the bytes are not a whole file of this format.
    """
    from safetensors import SafetensorError, deserialize

    try:
        entries = sorted(deserialize(data), key=lambda entry: entry[0])  # type: ignore[no-untyped-call]
        return [(name, _array(name, entry["dtype"], entry["shape"], entry["data"])) for name, entry in entries]
    except (Malformed, SafetensorError) as e:
        raise CheckpointError(f"the file is corrupt or no safetensors ({e})") from e


def _array(name: str, kind: str, shape: list[int], data: bytearray) -> Array:
    if kind not in _DTYPES:
        raise Malformed(f"{name} has elements of the type {kind}, which no Tensor holds")
    return array_of(memoryview(data), _DTYPES[kind], tuple(shape))
