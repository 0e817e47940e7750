"""Compiled objects on disk, so that a second process need not compile.

Enters: a key, metadata, object code. Leaves: the same, or None. Refuses: keys that are not plain names,
metadata that is not JSON. Nothing found on the disk raises: an entry that is truncated, corrupt, foreign or
unreadable is a miss and is removed, and a folder that cannot be written, or that others could write to, is
not used (which a warning says once).

The code in an entry will be run, so folder and files must belong to this user and be writable by nobody else.
The checksum guards against accidents, not against this user. An entry is one file:

    magic (8) | version u32 | metadata bytes u32 | object bytes u64 | checksum (32) | metadata | object

The checksum is the blake2b of the key and of everything else in the file. Writers fill a temporary file in
the same folder and rename it, so readers see whole entries, the old one or the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import struct
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError

DIRECTORY_VARIABLE = "GRAPHCELL_CACHE_DIR"
SWITCH_VARIABLE = "GRAPHCELL_CACHE"
LIMIT_VARIABLE = "GRAPHCELL_CACHE_LIMIT_MB"
DEFAULT_LIMIT = 512 << 20
_MAGIC = b"graphcel"
_VERSION = 1
_PREFIX = struct.Struct("<8sIIQ")
_DIGEST_BYTES = 32
_HEADER_BYTES = _PREFIX.size + _DIGEST_BYTES
_SUFFIX, _TEMPORARY = ".gco", ".tmp"
_KEY = re.compile(r"[0-9A-Za-z_-]{1,128}")
_SWEEPS_PER_LIMIT = 64  # the folder is looked through about once while this fraction of the limit is written
_SWEEP_TO = 0.8  # what a sweep leaves, as a fraction of the limit
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_READ_FLAGS = os.O_RDONLY
for _name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):  # as far as the platform has them
    _READ_FLAGS |= int(getattr(os, _name, 0))
_STALE_SECONDS = 3600  # a temporary file as old as this was left by a process that died


def make_key(*parts: str | bytes) -> str:
    """A key of 64 hexadecimal digits. The same text split differently gives another key, and so do bytes for
    str."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(struct.pack("<BQ", isinstance(part, str), len(data)))
        digest.update(data)
    return digest.hexdigest()


def cache_directory() -> Path | None:
    """GRAPHCELL_CACHE_DIR, else graphcell in the user's cache folder; None if there is no such, or
    GRAPHCELL_CACHE is 0.

    Raises ArgumentValueError (a ValueError) if GRAPHCELL_CACHE is neither 0 nor 1.
    """
    switch = os.environ.get(SWITCH_VARIABLE, "").strip()
    if switch not in ("", "0", "1"):
        raise ArgumentValueError(f"{SWITCH_VARIABLE} must be 0 (no object cache) or 1, got {switch!r}")
    if switch == "0":
        return None
    chosen = os.environ.get(DIRECTORY_VARIABLE, "")
    if chosen:
        return Path(os.path.abspath(os.path.expanduser(chosen)))
    base = _user_cache_folder()
    return None if base is None else base / "graphcell"


def _user_cache_folder() -> Path | None:
    home = os.path.expanduser("~")
    if sys.platform == "win32":
        folder = os.environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local")
    elif sys.platform == "darwin":
        folder = os.path.join(home, "Library", "Caches")
    else:
        folder = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(folder):  # the specification tells to ignore relative ones
            folder = os.path.join(home, ".cache")
    return Path(folder) if os.path.isabs(folder) else None


def cache_limit() -> int:
    """GRAPHCELL_CACHE_LIMIT_MB in bytes, else 512 MiB. Raises ArgumentValueError (a ValueError) if it is no
    number."""
    text = os.environ.get(LIMIT_VARIABLE, "").strip()
    if not text:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdecimal()):
        raise ArgumentValueError(f"{LIMIT_VARIABLE} must be a number of megabytes, got {text!r}")
    return int(text) << 20


def open_cache() -> ObjectCache:
    """The cache that the environment asks for."""
    return ObjectCache(cache_directory(), cache_limit())


class ObjectCache:
    """Entries in one folder, about `limit` bytes of them; the least recently used go first. No folder: holds
    nothing.

    Any number of threads and processes may use one folder.
    """

    def __init__(self, directory: str | os.PathLike[str] | None, limit: int = DEFAULT_LIMIT):
        self.directory = None if directory is None else Path(directory)
        self.limit = limit
        self._usable: bool | None = None if directory is not None else False  # None: not looked at yet
        self._writable = True
        self._warned = False

    def get(self, key: str) -> tuple[dict[str, Any], bytes] | None:
        """The metadata and the object under `key`, or None. Raises ArgumentValueError for a key that is no
        plain name."""
        path = self._path(key)
        if path is None or not self._is_usable(create=False):
            return None
        try:
            data = _read_own_file(path, self.limit)
        except FileNotFoundError:
            return None
        except OSError:
            data = None
        entry = None if data is None else _unpack(key, data)
        if entry is None:
            self._remove(path)
        return entry

    def put(self, key: str, metadata: dict[str, Any], object: bytes) -> None:
        """Stores an entry, over an older one; one beyond the limit is left out.

        Raises ArgumentTypeError (a TypeError) for metadata that is not JSON, ArgumentValueError (a
        ValueError) for a key that is no plain name.
        """
        path, data = self._path(key), _pack(key, metadata, object)
        if path is None or len(data) > self.limit or not self._writable or not self._is_usable(create=True):
            return
        try:
            self._write(path, data)
        except OSError as error:
            self._writable = False
            self._warn(str(error.strerror or error))
            return
        # A draw of lots, which needs no memory of earlier puts and so holds over many short processes, too.
        lot = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=4).digest(), "little") / 2**32
        if lot * self.limit < len(data) * _SWEEPS_PER_LIMIT:
            self.sweep()

    def sweep(self) -> None:
        """Removes what exceeds the limit, oldest use first, and what crashed writers left behind."""
        if not self._is_usable(create=False):
            return
        entries: list[tuple[int, int, Path]] = []
        for path, status in self._files():
            if path.suffix == _SUFFIX:
                entries.append((status.st_mtime_ns, status.st_size, path))
            elif path.suffix == _TEMPORARY and status.st_mtime < time.time() - _STALE_SECONDS:
                self._remove(path)
        total = sum(size for _, size, _ in entries)
        if total <= self.limit:
            return
        for _, size, path in sorted(entries):
            if total <= self.limit * _SWEEP_TO:
                return
            self._remove(path)
            total -= size

    def _path(self, key: str) -> Path | None:
        if not _KEY.fullmatch(key):
            raise ArgumentValueError(f"a cache key has 1 to 128 letters, digits, '-' and '_', got {key!r}")
        return None if self.directory is None else self.directory / (key + _SUFFIX)

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        """The regular files of the folder with their sizes and times; others may be removing them
        meanwhile."""
        assert self.directory is not None
        found = []
        with contextlib.suppress(OSError), os.scandir(self.directory) as listing:
            for item in listing:
                with contextlib.suppress(OSError):
                    status = item.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        found.append((Path(item.path), status))
        return found

    def _write(self, path: Path, data: bytes) -> None:
        descriptor, temporary = tempfile.mkstemp(suffix=_TEMPORARY, dir=path.parent)  # mode 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            self._remove(Path(temporary))
            raise

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()

    def _is_usable(self, *, create: bool) -> bool:
        """Whether the folder is there (made, if asked to) and fit to load code from."""
        if self._usable is not None:
            return self._usable
        assert self.directory is not None
        try:
            if create:
                os.makedirs(self.directory, mode=0o700, exist_ok=True)
            status = os.stat(self.directory)
            complaint = _complaint(status)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not create:
                return False  # undecided: a put may make it
            complaint = str(error.strerror or error)
        self._usable = not complaint
        if complaint:
            self._warn(complaint)
        return self._usable

    def _warn(self, complaint: str) -> None:
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"compiled code is not kept in {self.directory}: {complaint}. Set {DIRECTORY_VARIABLE} to a "
            f"folder of your own with mode 0700, or {SWITCH_VARIABLE}=0 to do without.",
            RuntimeWarning, stacklevel=3)


def _complaint(status: os.stat_result) -> str:
    """Why code must not be loaded from a folder; empty if it may."""
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a folder"
    if os.name != "posix":  # Windows: the folder lies in the user's profile, and modes mean nothing
        return ""
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    if status.st_mode & _WRITABLE_BY_OTHERS:
        return "other users can write to it"
    return ""


def _read_own_file(path: Path, limit: int) -> bytes | None:
    """The bytes of a regular file that only this user can write, its time of use renewed; None if it is
    anything else."""
    with os.fdopen(os.open(path, _READ_FLAGS), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        if os.name == "posix" and (status.st_uid != os.geteuid() or status.st_mode & _WRITABLE_BY_OTHERS):
            return None
        data = file.read()
        with contextlib.suppress(OSError):
            os.utime(file.fileno() if os.utime in os.supports_fd else path)
    return data


def _digest(key: str, prefix: bytes, body: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in (struct.pack("<Q", len(key)), key.encode(), prefix, body):
        digest.update(part)
    return digest.digest()


def _pack(key: str, metadata: dict[str, Any], object: bytes) -> bytes:
    try:
        described = json.dumps(metadata, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentTypeError(f"metadata of a cache entry must be JSON: {error}") from error
    prefix = _PREFIX.pack(_MAGIC, _VERSION, len(described), len(object))
    body = described + object
    return prefix + _digest(key, prefix, body) + body


def _unpack(key: str, data: bytes) -> tuple[dict[str, Any], bytes] | None:
    """The entry in a file's bytes; None unless every one of them is as it was written under `key`."""
    if len(data) < _HEADER_BYTES:
        return None
    prefix, digest, body = data[:_PREFIX.size], data[_PREFIX.size:_HEADER_BYTES], data[_HEADER_BYTES:]
    magic, version, metadata_bytes, object_bytes = _PREFIX.unpack(prefix)
    if (magic, version) != (_MAGIC, _VERSION) or len(body) != metadata_bytes + object_bytes:
        return None
    if digest != _digest(key, prefix, body):
        return None
    try:
        metadata = json.loads(body[:metadata_bytes])
    except (ValueError, RecursionError):
        return None
    return (metadata, body[metadata_bytes:]) if isinstance(metadata, dict) else None
