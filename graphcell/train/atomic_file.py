"""Files that appear whole or not at all, written at once or by a thread.

Enters: a path and the pieces of the file. A piece is written beside the place of the file, and the whole renamed into it, so that whoever is killed
at any moment, or runs out of disk, leaves the old file or the new one. What a killed process left beside the file is removed by the next
one that writes there.
"""

from __future__ import annotations

import fcntl
import glob
import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from graphcell.errors import CheckpointError

_READ_ONLY = 0o400
_SECONDS_TO_LOCK = 5.0  # a temporary file so young may not be locked by its writer yet


def replace_file(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Writes a file that only its owner can read, and nobody write, in place of any that is there.

    Raises:
        OSError: it cannot be written, by its name; the old file stays.
    """
    try:
        _replace(path, pieces)
    except OSError as e:
        if e.errno is None or e.filename == str(path):
            raise
        raise OSError(e.errno, e.strerror, str(path)) from e  # the temporary file's name says nothing, and some have none


def _replace(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    import tempfile  # takes as long to import as a whole layer; only needed here

    _remove_abandoned(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            with suppress(OSError):  # some file systems have no locks; nothing is removed there
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # says that its writer lives
            _write(file, pieces)
            os.chmod(temporary, _READ_ONLY)
            os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _write(file: BinaryIO, pieces: Iterable[bytes | memoryview]) -> None:
    for piece in pieces:
        file.write(piece)
    file.flush()
    os.fsync(file.fileno())


def _remove_abandoned(path: Path) -> None:
    """Removes temporary files for `path` whose writers are gone: nobody holds their lock."""
    for name in glob.glob(f"{glob.escape(str(path.parent / f'.{path.name}'))}.*.tmp"):
        try:
            with open(name, "rb") as file:
                if time.time() - os.fstat(file.fileno()).st_mtime > _SECONDS_TO_LOCK:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(name)
        except OSError:  # locked, or removed by another process meanwhile
            continue


class BackgroundWriter:
    """Writes one file at a time in a thread. The process does not end before it is done; an error of the thread is printed."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # of those who start a thread

    def replace_file(self, path: Path, pieces: Iterable[bytes | memoryview]) -> None:
        """`replace_file` in the background, after what is being written now."""
        with self._lock:
            self.wait()
            thread = threading.Thread(target=_replace_or_say, args=(path, pieces), name="async_save_ckpt")
            thread.start()
            self._thread = thread

    def wait(self) -> None:
        """Returns when what is being written is done."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def is_busy(self) -> bool:
        """True while a file is being written."""
        thread = self._thread
        return thread is not None and thread.is_alive()


def _replace_or_say(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    try:
        replace_file(path, pieces)
    except OSError as e:
        raise CheckpointError(f"the checkpoint file {path} could not be saved in the background: {e}") from e
