"""Encrypted checkpoints, in MindSpore's form.

Enters: the bytes of a checkpoint, a key and a mode. Leaves: encrypted bytes, and back. Refuses: keys of other lengths and unknown modes
(`ArgumentValueError`); files of another mode, another key, or spoiled ones (`CheckpointError`); everything, where the package
`cryptography`, which does the arithmetic, is not installed.

A file is a row of blocks, each: the mode's mark, in mode AES-GCM the 16 bytes by which changes are noticed, then four lengths-and-bytes as
little-endian 32-bit numbers: how many bytes follow, the initial vector with its length before it, the ciphertext with its length before it.
The CBC modes fill up the last cipher block by PKCS #7 and notice changes by chance only.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from graphcell.errors import ArgumentValueError, CheckpointError, NotImplementedFeatureError

_MARKS = {"AES-GCM": 0x7F3A5ED8, "AES-CBC": 0x7F3A5ED9, "SM4-CBC": 0x7F3A5EDA}
_KEY_LENGTHS = {"AES-GCM": (16, 24, 32), "AES-CBC": (16, 24, 32), "SM4-CBC": (16,)}
_VECTOR_BYTES = _TAG_BYTES = _CIPHER_BLOCK = 16
_GCM_VECTOR_BYTES = 12
"""Of the initial vector, AES-GCM uses so many."""
BLOCK_BYTES = 1 << 29
"""Of the plain checkpoint in one encrypted block, at most."""


def encrypt(pieces: Iterable[bytes | memoryview], key: bytes, mode: str) -> Iterator[bytes]:
    """The encrypted form of the bytes that `pieces` make together.

    Args:
        key: 16, 24 or 32 bytes; 16 for SM4-CBC.
        mode: 'AES-GCM', 'AES-CBC' or 'SM4-CBC'.

    Raises:
        ValueError: another mode, or a key of another length. NotImplementedError: the package `cryptography` is not installed.
    """
    _check(key, mode, "enc")
    return (_encrypted(block, key, mode) for block in _blocks(pieces))


def decrypt(data: bytes, key: bytes, mode: str) -> bytes:
    """What was encrypted.

    Raises:
        CheckpointError: it was not, or with another key or mode, or it is spoiled. ValueError, NotImplementedError: as `encrypt`.
    """
    _check(key, mode, "dec")
    plain, place = [], 0
    while place < len(data):
        block, place = _decrypted(data, place, key, mode)
        plain.append(block)
    return b"".join(plain)


def is_encrypted(data: bytes) -> bool:
    """Whether the bytes begin as an encrypted checkpoint does."""
    return len(data) >= 4 and struct.unpack_from("<I", data)[0] in _MARKS.values()


def _check(key: bytes, mode: str, which: str) -> None:
    if mode not in _MARKS:
        raise ArgumentValueError(f"'{which}_mode' must be one of {list(_MARKS)}, but got {mode!r}.")
    lengths = _KEY_LENGTHS[mode]
    if len(key) not in lengths:
        raise ArgumentValueError(f"'{which}_key' must have {' or '.join(map(str, lengths))} bytes for mode {mode}, but got {len(key)}.")
    try:
        import cryptography  # noqa: F401
    except ImportError as e:
        raise NotImplementedFeatureError(
            "encrypted checkpoints need the package 'cryptography', which is not installed", hint="pip install cryptography"
        ) from e


def _blocks(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """The same bytes, BLOCK_BYTES at a time."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        while len(waiting) > BLOCK_BYTES:
            yield bytes(waiting[:BLOCK_BYTES])
            del waiting[:BLOCK_BYTES]
    yield bytes(waiting)


def _cipher(key: bytes, mode: str, vector: bytes, tag: bytes | None = None) -> Any:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    algorithm = algorithms.SM4(key) if mode == "SM4-CBC" else algorithms.AES(key)
    return Cipher(algorithm, modes.GCM(vector[:_GCM_VECTOR_BYTES], tag) if mode == "AES-GCM" else modes.CBC(vector))


def _encrypted(plain: bytes, key: bytes, mode: str) -> bytes:
    vector = os.urandom(_VECTOR_BYTES)
    encryptor = _cipher(key, mode, vector).encryptor()
    if mode != "AES-GCM":
        missing = _CIPHER_BLOCK - len(plain) % _CIPHER_BLOCK
        plain += bytes([missing]) * missing
    text: bytes = encryptor.update(plain) + encryptor.finalize()
    tag: bytes = encryptor.tag if mode == "AES-GCM" else b""
    rest: bytes = struct.pack("<I", len(vector)) + vector + struct.pack("<I", len(text)) + text
    return struct.pack("<I", _MARKS[mode]) + tag + struct.pack("<I", len(rest)) + rest


def _decrypted(data: bytes, place: int, key: bytes, mode: str) -> tuple[bytes, int]:
    """The block at `place`, and where the next one begins."""
    from cryptography.exceptions import InvalidTag

    mark, place = _number(data, place)
    if mark != _MARKS[mode]:
        raise CheckpointError(f"it is not encrypted in mode {mode}")
    tag: bytes | None = None
    if mode == "AES-GCM":
        tag, place = _part(data, place, _TAG_BYTES)
    length, place = _number(data, place)
    end = place + length
    vector, place = _sized(data, place)
    text, place = _sized(data, place)
    if place != end or len(vector) != _VECTOR_BYTES:
        raise CheckpointError("the lengths in it do not fit together")
    decryptor = _cipher(key, mode, vector, tag).decryptor()
    try:
        plain = decryptor.update(text) + decryptor.finalize()
    except (InvalidTag, ValueError) as e:
        raise CheckpointError("the key is another one, or it was changed") from e
    return (plain if tag is not None else _without_filling(plain)), place


def _number(data: bytes, place: int) -> tuple[int, int]:
    part, end = _part(data, place, 4)
    return int.from_bytes(part, "little"), end


def _sized(data: bytes, place: int) -> tuple[bytes, int]:
    length, place = _number(data, place)
    return _part(data, place, length)


def _part(data: bytes, place: int, length: int) -> tuple[bytes, int]:
    if length > len(data) - place:
        raise CheckpointError("it ends too early")
    return data[place : place + length], place + length


def _without_filling(plain: bytes) -> bytes:
    count = plain[-1] if plain else 0
    if not 1 <= count <= _CIPHER_BLOCK or plain[-count:] != bytes([count]) * count:
        raise CheckpointError("the key is another one, or it was changed")
    return plain[:-count]
