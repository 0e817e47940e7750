"""`ModelCheckpoint`: saves checkpoints while training; `CheckpointConfig`: when, how many, and what goes into them.

Files are `<prefix>-<epoch>_<step>.ckpt` (step: of the epoch), and in GRAPH_MODE the text of the training graph, `<prefix>-graph.meta`. A prefix
that the directory has already is continued as `<prefix>_1`, `<prefix>_2`, …
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_bool, non_negative_int
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor
from graphcell.train.atomic_file import replace_file
from graphcell.train.callback._callback import Callback, RunContext
from graphcell.train.directories import make_directory
from graphcell.train.serialization import async_ckpt_thread_status, check_async_save, save_checkpoint

_COUNTERS = ("epoch_num", "step_num")
_SECONDS_TO_LOOK = 0.01
Name = str | Callable[[Any], str]


class CheckpointConfig:
    """When `ModelCheckpoint` saves, and what.

    Args:
        save_checkpoint_steps: steps from one file to the next. Default 1.
        save_checkpoint_seconds: seconds from one file to the next; only without steps.
        keep_checkpoint_max: the oldest files beyond this number are deleted. Default 5.
        keep_checkpoint_per_n_minutes: of files that are younger, only the oldest stays; only without a number.
        integrated_save, async_save, enc_key, enc_mode, crc_check, format: see `save_checkpoint`.
        saved_network: the Cell to save. Default None: the training network.
        append_info: more entries of the file: 'epoch_num', 'step_num', and one dict of numbers, strings and Tensors.
        exception_save: save too when the training ends with an exception, as `<prefix>-<epoch>_<step>_breakpoint.ckpt`.
        remove_redundancy: for several devices only.

    Raises:
        TypeError, ValueError: arguments of the wrong kind, or nothing that says when to save.
    """

    def __init__(
        self, save_checkpoint_steps: int | None = 1, save_checkpoint_seconds: int | None = 0, keep_checkpoint_max: int | None = 5,
        keep_checkpoint_per_n_minutes: int | None = 0, integrated_save: bool = True, async_save: bool | str = False, saved_network: Cell | None = None,
        append_info: list[Any] | None = None, enc_key: bytes | None = None, enc_mode: str = "AES-GCM", exception_save: bool = False,
        crc_check: bool = False, remove_redundancy: bool = False, format: str = "ckpt",
    ):  # fmt: skip
        owner = "CheckpointConfig"
        counts = {
            "save_checkpoint_steps": save_checkpoint_steps, "save_checkpoint_seconds": save_checkpoint_seconds,
            "keep_checkpoint_max": keep_checkpoint_max, "keep_checkpoint_per_n_minutes": keep_checkpoint_per_n_minutes,
        }  # fmt: skip
        for name, value in counts.items():
            if value is not None:
                non_negative_int(owner, name, value)
        if not any(counts.values()):
            listed = ", ".join(f"'{name}'" for name in counts)
            raise ArgumentValueError(f"For '{owner}', the input arguments {listed} can't be all None or 0.")
        if saved_network is not None and not isinstance(saved_network, Cell):
            raise ArgumentTypeError(f"For '{owner}', the type of 'saved_network' must be None or Cell, but got {type(saved_network)}.")
        check_async_save(async_save)
        if not isinstance(enc_key, (bytes, type(None))):
            raise ArgumentValueError(f"For '{owner}', the parameter 'enc_key' must be None or bytes, but got {enc_key}.")
        if not isinstance(enc_mode, str):
            raise ArgumentValueError(f"For '{owner}', the parameter 'enc_mode' must be str, but got {enc_mode}.")
        if check_bool(owner, "remove_redundancy", remove_redundancy):
            raise ArgumentTypeError("The deduplication feature for saving checkpoint can only be used in parallel scenarios, but got 'stand_alone'.")
        if format == "safetensors" and (enc_key is not None or enc_mode != "AES-GCM" or crc_check or exception_save):
            raise ArgumentValueError("For 'save_checkpoint', when format is 'safetensors', other param must be default.")
        self.save_checkpoint_steps = save_checkpoint_steps
        self.save_checkpoint_seconds = None if save_checkpoint_steps else save_checkpoint_seconds
        self.keep_checkpoint_max = keep_checkpoint_max if keep_checkpoint_max or keep_checkpoint_per_n_minutes else 1
        self.keep_checkpoint_per_n_minutes = None if keep_checkpoint_max else keep_checkpoint_per_n_minutes
        self.integrated_save = check_bool(owner, "integrated_save", integrated_save)
        self.async_save = async_save
        self.saved_network = saved_network
        self.append_dict = _append_dict(append_info)
        self.enc_key, self.enc_mode = enc_key, enc_mode
        self.exception_save = check_bool(owner, "exception_save", exception_save)
        self.crc_check = check_bool(owner, "crc_check", crc_check)
        self.format = format

    def get_checkpoint_policy(self) -> dict[str, Any]:
        """When files are saved and which are kept, as a dict."""
        return {
            "save_checkpoint_steps": self.save_checkpoint_steps, "save_checkpoint_seconds": self.save_checkpoint_seconds,
            "keep_checkpoint_max": self.keep_checkpoint_max, "keep_checkpoint_per_n_minutes": self.keep_checkpoint_per_n_minutes,
            "saved_network": self.saved_network,
        }  # fmt: skip


def _append_dict(append_info: Any) -> dict[str, Any] | None:
    """The entries that `append_info` asks for, with counters at 0; None for none."""
    if not append_info:
        return None
    owner = "For 'CheckpointConfig', the"
    if not isinstance(append_info, list):
        raise ArgumentTypeError(f"{owner} type of 'append_info' must be list,but got {type(append_info)}.")
    entries: dict[str, Any] = {name: 0 for name in _COUNTERS if name in append_info}
    for element in append_info:
        if not isinstance(element, (str, dict)):
            raise ArgumentTypeError(f"{owner} type of 'append_info' element must be str or dict,but got {type(element)}.")
        if isinstance(element, str) and element not in _COUNTERS:
            raise ArgumentValueError(f"{owner} value of element in the argument 'append_info' must be in {list(_COUNTERS)}, but got {element}.")
    dicts = [element for element in append_info if isinstance(element, dict)]
    if len(dicts) > 1:
        raise ArgumentTypeError(f"{owner} element of 'append_info' must has only one dict, but got {len(dicts)}")
    for key, value in (dicts[0] if dicts else {}).items():
        if not isinstance(key, str) or not isinstance(value, (int, float, str, Parameter, Tensor)):
            raise ArgumentTypeError(
                f"{owner} key type of the dict 'append_info' must be string, the value type must be int or float or bool, "
                f"but got key type {type(key)}, value type {type(value)}"
            )
        entries[key] = value
    return entries


class ModelCheckpoint(Callback):
    """Saves the training network while it is trained, and at the end.

    Args:
        prefix: the beginning of the files' names, or a function of the run's parameters that gives a whole name.
        directory: where; made if it is not there. Or a function of the run's parameters. Default None: the current directory.
        config: when and what. Default: every step, the last five.

    Raises:
        ValueError: a prefix that is no file name. TypeError: arguments of the wrong kind. OSError: while training, if a file cannot be written.
    """

    def __init__(self, prefix: Name = "CKP", directory: Name | None = None, config: CheckpointConfig | None = None):
        super().__init__()
        if config is not None and not isinstance(config, CheckpointConfig):
            raise ArgumentTypeError(f"For 'ModelCheckpoint', the type of argument 'config' should be 'CheckpointConfig', but got {type(config)}.")
        self._config = CheckpointConfig() if config is None else config
        self._prefix_of = prefix if callable(prefix) else None
        self._directory_of = directory if callable(directory) else None
        self._prefix = self._exception_prefix = "" if callable(prefix) else _file_name(prefix)
        self._directory = os.getcwd() if directory is None or callable(directory) else make_directory(directory)
        if self._prefix_of is None and self._directory_of is None:
            self._prefix = unused_prefix(self._directory, self._prefix)
        self._append_dict = dict(self._config.append_dict or {})
        self._first = {name: self._append_dict.get(name, 0) for name in _COUNTERS}
        self._latest_ckpt_file_name = ""
        self._last_triggered_step = 0
        self._last_time = time.time()
        self._saves: dict[str, int] = {}  # the number of the save that wrote a file last
        self._graph_saved = False

    @property
    def latest_ckpt_file_name(self) -> str:
        """The path of the file that was saved last; '' before."""
        return self._latest_ckpt_file_name

    def begin(self, run_context: RunContext) -> None:
        """Counts the steps of a new run."""
        self._last_triggered_step = 0

    def step_end(self, run_context: RunContext) -> None:
        """Saves when it is time to."""
        run = run_context.original_args()
        if self._prefix_of is not None:
            self._prefix = _file_name(self._prefix_of(run))
        if self._directory_of is not None:
            self._directory = make_directory(self._directory_of(run))
        if not self._graph_saved:
            self._save_graph(run.train_network)
            self._graph_saved = True
        if self._is_time(run.cur_step_num):
            self._save(run)

    def end(self, run_context: RunContext) -> None:
        """Saves the last step, and waits until all is written."""
        run = run_context.original_args()
        if run.cur_step_num != self._last_triggered_step:
            self._save(run)
        while self._config.async_save and async_ckpt_thread_status():
            time.sleep(_SECONDS_TO_LOOK)
        self._delete_old(0)

    def _save_graph(self, network: Cell) -> None:
        text = network.get_func_graph_proto()
        if text is not None:
            replace_file(Path(self._directory, f"{self._prefix}-graph.meta"), [text])

    def _is_time(self, step: int) -> bool:
        if step == self._last_triggered_step:
            return False
        if self._config.save_checkpoint_steps:
            return bool(step >= self._last_triggered_step + self._config.save_checkpoint_steps)
        seconds = self._config.save_checkpoint_seconds
        return bool(seconds) and time.time() - self._last_time > (seconds or 0)

    def _save(self, run: Any) -> None:
        step = (run.cur_step_num - 1) % run.batch_num + 1
        counted = "" if self._prefix_of is not None else f"-{run.cur_epoch_num}_{step}"
        path = os.path.join(self._directory, f"{self._prefix}{counted}.{self._config.format}")
        self._write(run.train_network, path, run.cur_epoch_num, run.cur_step_num)
        self._last_triggered_step, self._last_time, self._latest_ckpt_file_name = run.cur_step_num, time.time(), path
        self._saves[path] = max(self._saves.values(), default=0) + 1
        self._delete_old(1 if self._config.async_save else 0)  # the newest may not be written yet

    def _write(self, network: Cell, path: str, epoch: int, step: int) -> None:
        now = {"epoch_num": epoch, "step_num": step}
        entries = self._append_dict | {name: self._first[name] + now[name] for name in _COUNTERS if name in self._append_dict}
        config = self._config
        save_checkpoint(
            config.saved_network or network, path, config.integrated_save, config.async_save, entries, config.enc_key, config.enc_mode,
            crc_check=config.crc_check, format=config.format,
        )  # fmt: skip

    def save_breakpoint(self, network: Cell, epoch: int, step: int) -> None:
        """Saves what an exception interrupted, where `exception_save` asks for it."""
        if self._config.exception_save:
            prefix = unused_prefix(self._directory, self._exception_prefix, "_breakpoint.ckpt")
            self._write(network, os.path.join(self._directory, f"{prefix}-{epoch}_{step}_breakpoint.ckpt"), epoch, step)

    def _delete_old(self, waiting: int) -> None:
        """Deletes files beyond those that the configuration keeps; `waiting` of the newest may not be there yet."""
        with suppress(FileNotFoundError):  # somebody else tidies up too; the next save looks again
            for file in self._old_files(waiting):
                os.chmod(file, stat.S_IWRITE)
                os.remove(file)
                self._saves.pop(file, None)

    def _old_files(self, waiting: int) -> list[str]:
        pattern = re.compile(rf"{re.escape(self._prefix)}-(\d+)_(\d+)\.{self._config.format}")
        matches = [m for m in map(pattern.fullmatch, os.listdir(self._directory)) if m]
        paths = {os.path.join(self._directory, m[0]): (int(m[1]), int(m[2])) for m in matches}
        files = sorted(paths, key=lambda path: (os.stat(path).st_mtime_ns, self._saves.get(path, 0), paths[path]))  # the system's clock may be coarse
        if self._config.keep_checkpoint_max:
            old = files[: max(0, len(files) - self._config.keep_checkpoint_max - waiting)]
        else:
            recent = time.time() - 60 * (self._config.keep_checkpoint_per_n_minutes or 0)
            old = [f for f in files if os.path.getmtime(f) > recent][1:]
        return [f for f in old if f != self._latest_ckpt_file_name]


def _file_name(prefix: Any) -> str:
    if not isinstance(prefix, str) or "/" in prefix:
        raise ArgumentValueError(
            "For 'ModelCheckpoint', the argument 'prefix' for checkpoint file name is invalid, it must be callable or string that does not "
            f"contain '/', but got {prefix}."
        )
    return prefix


def unused_prefix(directory: str, prefix: str, ending: str = "") -> str:
    """`prefix`, or with the next number where the directory has checkpoints of it: those that end so, or without an `ending` all but breakpoints."""
    pattern = re.compile(rf"{re.escape(prefix)}(?:_(\d+))?-.*\.(?:ckpt|safetensors)")
    numbers = [
        int(m[1] or 0) + 1 for m in map(pattern.fullmatch, os.listdir(directory)) if m and m[0].endswith("_breakpoint.ckpt") == bool(ending)
    ]
    return f"{prefix}_{max(numbers)}" if numbers else prefix
