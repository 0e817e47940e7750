"""Checkpoint files turned into the other format, and loaded in the background."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.cell import Cell
from graphcell.train.serialization import load_checkpoint, save_checkpoint

__all__ = ["ParamDictFuture", "ckpt_to_safetensors", "load_checkpoint_async", "safetensors_to_ckpt"]


# -- the other format ----------------------------------------------------------------------------------------------------
def ckpt_to_safetensors(
    file_path: str, save_path: str | None = None, name_map: dict[str, str] | None = None, file_name_regex: str | None = None, processes_num: int = 1
) -> None:  # fmt: skip
    """Writes for each .ckpt file one of the same entries with the suffix .safetensors.

    Args:
        file_path: a file, or a folder whose subfolders rank… hold files.
        save_path: the folder to write to, with the same subfolders; None for where the files are.
        name_map: new names of entries; the others keep theirs.
        file_name_regex: convert only files in whose names this is found.
        processes_num: accepted; files are converted one after another.

    Raises:
        ValueError: a path that is not as said, a corrupt file, two entries of one name. TypeError: a name that is no str, or an entry that is one.
    """
    _convert("ckpt_to_safetensors", ("ckpt", "safetensors"), file_path, save_path, name_map, file_name_regex)


def safetensors_to_ckpt(
    file_path: str, save_path: str | None = None, name_map: dict[str, str] | None = None, file_name_regex: str | None = None, processes_num: int = 1
) -> None:  # fmt: skip
    """Writes for each .safetensors file one of the same entries with the suffix .ckpt. Arguments and errors as of `ckpt_to_safetensors`."""
    _convert("safetensors_to_ckpt", ("safetensors", "ckpt"), file_path, save_path, name_map, file_name_regex)


def _convert(owner: str, formats: tuple[str, str], file_path: Any, save_path: Any, name_map: Any, pattern: str | None) -> None:
    source, target = formats
    if not isinstance(name_map, (dict, type(None))):
        raise ArgumentValueError(f"For {owner}, the type of 'name_map' must be a dict, but got '{type(name_map)}'")
    if save_path is not None and Path(save_path).suffix:
        raise ArgumentValueError(f"For {owner}, the save_path must be a directory, but got '{save_path}'")
    for file, folder in _files(owner, source, file_path):
        if pattern is not None and not re.search(pattern, file.name):
            continue
        place = file.parent if save_path is None else Path(save_path) / folder
        place.mkdir(parents=True, exist_ok=True)
        entries = _renamed(owner, load_checkpoint(str(file), format=source), name_map or {})
        save_checkpoint(entries, str(place / file.stem), format=target)


def _files(owner: str, suffix: str, file_path: Any) -> Iterator[tuple[Path, str]]:
    """The files to convert, each with its folder below `file_path`."""
    if not isinstance(file_path, (str, Path)) or not Path(file_path).exists():
        raise ArgumentValueError(f"For {owner}, the input path must be a valid path or file, but got {file_path}")
    path = Path(file_path)
    if path.is_file():
        if path.suffix != f".{suffix}":
            raise ArgumentValueError(f"For {owner}, the input file must be a .{suffix} file, but got {file_path}")
        yield path, ""
        return
    folders = sorted(p for p in path.glob("rank*") if p.is_dir())
    if not folders:
        raise ArgumentValueError(f"For '{owner}', no directories starting with 'rank' found in {file_path}.")
    for folder in folders:
        for file in sorted(folder.glob(f"*.{suffix}")):
            yield file, folder.name


def _renamed(owner: str, entries: dict[str, Any], name_map: dict[str, str]) -> dict[str, Any]:
    renamed = {name_map.get(name, name): value for name, value in entries.items()}
    if not all(isinstance(name, str) for name in renamed):
        raise ArgumentTypeError(f"For {owner}, 'name_map' must hold strings, but is {name_map}")
    if len(renamed) < len(entries):
        raise ArgumentValueError(f"For {owner}, 'name_map' gives two entries the same name: {name_map}")
    return renamed


# -- in the background ---------------------------------------------------------------------------------------------------
class ParamDictFuture:
    """What `load_checkpoint_async` returns: `result()` waits for the file, and gives what `load_checkpoint` gives."""

    def __init__(self, load: Callable[[], dict[str, Any]]):
        self._load = load
        self._outcome: dict[str, Any] | BaseException = {}
        self._thread = threading.Thread(target=self._run, name="load_checkpoint_async", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome = self._load()
        except BaseException as e:
            self._outcome = e

    def result(self) -> dict[str, Any]:
        """The entries by name. Errors are those of `load_checkpoint`."""
        self._thread.join()
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome


def load_checkpoint_async(
    ckpt_file_name: str, net: Cell | None = None, strict_load: bool = False, filter_prefix: Any = None, dec_key: bytes | None = None,
    dec_mode: str = "AES-GCM", specify_prefix: Any = None, choice_func: Callable[[str], bool] | None = None,
) -> ParamDictFuture:  # fmt: skip
    """`load_checkpoint` in a thread of its own; the file's suffix says its format. Errors are raised by `result()`."""
    format = "safetensors" if str(ckpt_file_name).endswith(".safetensors") else "ckpt"
    return ParamDictFuture(
        lambda: load_checkpoint(ckpt_file_name, net, strict_load, filter_prefix, dec_key, dec_mode, specify_prefix, choice_func, format=format)
    )
