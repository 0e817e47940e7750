"""Settings of all data pipelines (`mindspore.dataset.config`): get_… and set_… pairs.

The seed, the number of worker threads and the length of queues have an effect. The others steer machinery that is not there (shared
memory, automatic tuning, watchdogs): they are checked and kept.
"""

from __future__ import annotations

import os
import random

import numpy as np

from graphcell.common.seed import get_data_seed, set_data_seed
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.records import dataclass

INT32_MAX, UINT32_MAX = 2**31 - 1, 2**32 - 1


@dataclass
class _Settings:
    num_parallel_workers: int | None = None
    prefetch_size: int = 16
    monitor_sampling_interval: int = 1000
    callback_timeout: int = 60
    autotune_interval: int = 0
    multiprocessing_timeout_interval: int = 300
    auto_num_workers: bool = False
    numa_enable: bool = False
    enable_shared_mem: bool = True
    enable_autotune: bool = False
    auto_offload: bool = False
    enable_watchdog: bool = True
    fast_recovery: bool = True
    debug_mode: bool = False
    dynamic_shape: bool = False


_settings = _Settings()


def _checked_int(name: str, value: object, most: int = INT32_MAX, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(f"{name} isn't of type int.")
    if not least <= value <= most:
        raise ArgumentValueError(f"{name} given is not within the required range [{least}, {most}].")
    return value


def _checked_bool(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ArgumentTypeError(f"{name} must be of type bool.")
    return value


# -- what has an effect ----------------------------------------------------------------------------------------------------
def set_seed(seed: int) -> None:
    """Makes shuffles, samplers and random transforms repeatable: every iterator made from now on starts from `seed`.

    Seeds Python's and numpy's generators, too, as MindSpore does.

    Raises:
        TypeError: seed is no int. ValueError: it is not between 0 and 2**32 - 1.
    """
    set_data_seed(_checked_int("seed", seed, UINT32_MAX, 0))
    random.seed(seed)
    np.random.seed(seed)


def get_seed() -> int:
    """The seed of data pipelines: that of `set_seed` here or of `mindspore.set_seed`, whichever came last; 5489 if neither was called."""
    seed = get_data_seed()
    return 5489 if seed is None else seed


def set_num_parallel_workers(num: int) -> None:
    """How many threads a `map` and a source have that are given no number of their own.

    Raises:
        TypeError, ValueError: no int above 0.
    """
    _settings.num_parallel_workers = _checked_int("num", num)


def get_num_parallel_workers() -> int:
    """The number set; before that, that of the processors, at most 8 (without a number set, rows are made in one thread all the same)."""
    return _settings.num_parallel_workers or min(8, os.cpu_count() or 1)


def chosen_workers(num: int | None) -> int:
    """The number of threads of a `map` or source that was given `num`."""
    if _settings.debug_mode:
        return 1
    return num or _settings.num_parallel_workers or 1


def set_prefetch_size(size: int) -> None:
    """How many rows or batches at most are made ahead of their use.

    Raises:
        TypeError, ValueError: no int above 0.
    """
    _settings.prefetch_size = _checked_int("size", size)


def get_prefetch_size() -> int:
    """How many rows or batches at most are made ahead of their use. Default 16."""
    return _settings.prefetch_size


# -- what is kept ----------------------------------------------------------------------------------------------------------
def set_monitor_sampling_interval(interval: int) -> None:
    """Kept; nothing is sampled."""
    _settings.monitor_sampling_interval = _checked_int("interval", interval)


def get_monitor_sampling_interval() -> int:
    """Milliseconds. Default 1000."""
    return _settings.monitor_sampling_interval


def set_callback_timeout(timeout: int) -> None:
    """Kept; callbacks are called without waiting."""
    _settings.callback_timeout = _checked_int("timeout", timeout)


def get_callback_timeout() -> int:
    """Seconds. Default 60."""
    return _settings.callback_timeout


def set_autotune_interval(interval: int) -> None:
    """Kept; nothing is tuned."""
    _settings.autotune_interval = _checked_int("interval", interval, least=0)


def get_autotune_interval() -> int:
    """Steps. Default 0."""
    return _settings.autotune_interval


def set_multiprocessing_timeout_interval(interval: int) -> None:
    """Kept; workers are threads."""
    _settings.multiprocessing_timeout_interval = _checked_int("interval", interval)


def get_multiprocessing_timeout_interval() -> int:
    """Seconds. Default 300."""
    return _settings.multiprocessing_timeout_interval


def set_auto_num_workers(enable: bool) -> None:
    """Kept; the number of workers is what was set."""
    _settings.auto_num_workers = _checked_bool("enable", enable)


def get_auto_num_workers() -> bool:
    """Default False."""
    return _settings.auto_num_workers


def set_numa_enable(numa_enable: bool) -> None:
    """Kept."""
    _settings.numa_enable = _checked_bool("numa_enable", numa_enable)


def get_numa_enable() -> bool:
    """Default False."""
    return _settings.numa_enable


def set_enable_shared_mem(enable: bool) -> None:
    """Kept; workers are threads, and share all memory."""
    _settings.enable_shared_mem = _checked_bool("enable", enable)


def get_enable_shared_mem() -> bool:
    """Default True."""
    return _settings.enable_shared_mem


def set_enable_autotune(enable: bool, filepath_prefix: str | None = None) -> None:
    """Kept; nothing is tuned, and no file written."""
    _settings.enable_autotune = _checked_bool("enable", enable)


def get_enable_autotune() -> bool:
    """Default False."""
    return _settings.enable_autotune


def set_auto_offload(offload: bool) -> None:
    """Kept; there is no device to move work to."""
    _settings.auto_offload = _checked_bool("offload", offload)


def get_auto_offload() -> bool:
    """Default False."""
    return _settings.auto_offload


def set_enable_watchdog(enable: bool) -> None:
    """Kept; there are no processes to watch."""
    _settings.enable_watchdog = _checked_bool("enable", enable)


def get_enable_watchdog() -> bool:
    """Default True."""
    return _settings.enable_watchdog


def set_fast_recovery(fast_recovery: bool) -> None:
    """Kept."""
    _settings.fast_recovery = _checked_bool("fast_recovery", fast_recovery)


def get_fast_recovery() -> bool:
    """Default True."""
    return _settings.fast_recovery


def set_debug_mode(debug_mode_flag: bool = False) -> None:
    """Makes every row in the thread that asks for it, so that a debugger sees it; nothing is made ahead."""
    _settings.debug_mode = _checked_bool("debug_mode_flag", debug_mode_flag)


def get_debug_mode() -> bool:
    """Default False."""
    return _settings.debug_mode


def set_dynamic_shape(is_dynamic: bool) -> None:
    """Kept; shapes may differ from row to row at any time."""
    _settings.dynamic_shape = _checked_bool("is_dynamic", is_dynamic)


def get_dynamic_shape() -> bool:
    """Default False."""
    return _settings.dynamic_shape
