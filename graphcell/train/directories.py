"""Directories that callbacks write to."""

from __future__ import annotations

import os
from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError

_MODE = 0o700


def make_directory(path: Any) -> str:
    """The absolute path of a directory, which is made, for its owner only, if it is not there.

    Raises:
        TypeError: the path is no str. ValueError: it is blank. NotADirectoryError: it is a file. OSError: the directory cannot be made.
    """
    if not isinstance(path, str):
        raise ArgumentTypeError("The path is invalid, the type should be string.")
    if not path.strip():
        raise ArgumentValueError("The path is invalid, it should be non-blank.")
    place = str(os.path.realpath(path))
    if os.path.exists(place) and not os.path.isdir(place):
        raise NotADirectoryError(f"The path({place}) is a file path, it should be a directory path.")
    os.makedirs(place, mode=_MODE, exist_ok=True)
    return place
