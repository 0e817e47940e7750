"""Checks of arguments, with MindSpore's messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphcell.dataset.core.config import INT32_MAX
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DatasetError, NotImplementedFeatureError


def check_type(name: str, value: Any, kinds: type | tuple[type, ...]) -> Any:
    """`value` if it is of one of `kinds` (a bool is no int). Raises TypeError."""
    wanted = kinds if isinstance(kinds, tuple) else (kinds,)
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        raise ArgumentTypeError(f"Argument {name} with value {value} is not of type {list(wanted)}, but got {type(value)}.")
    return value


def check_int(name: str, value: Any, least: int, most: int = INT32_MAX) -> int:
    """`value` if it is an int in that range. Raises TypeError or ValueError."""
    check_type(name, value, int)
    if not least <= value <= most:
        raise ArgumentValueError(f"Input {name} is not within the required interval of [{least}, {most}].")
    return int(value)


def check_count(value: Any) -> int:
    """-1 or an int above 0. Raises TypeError or ValueError."""
    check_type("count", value, int)
    if value != -1 and not 1 <= value <= INT32_MAX:
        raise ArgumentValueError(f"count should be either -1 or positive integer, range[1, INT32_MAX], got {value}.")
    return int(value)


def check_workers(value: Any) -> int | None:
    """None or an int above 0. Raises TypeError or ValueError."""
    if value is None:
        return None
    check_type("num_parallel_workers", value, int)
    if value < 1:
        raise ArgumentValueError(f"num_parallel_workers must be at least 1, but got {value}.")
    return int(value)


def check_process_options(python_multiprocessing: Any, max_rowsize: Any) -> None:
    """Options of processes, which have no effect on threads. Raises TypeError or ValueError."""
    check_type("python_multiprocessing", python_multiprocessing, bool)
    if max_rowsize is None:
        return
    sizes = check_type("max_rowsize", max_rowsize, (int, list))
    if isinstance(sizes, list) and len(sizes) != 2:
        raise ArgumentTypeError("max_rowsize should be a single integer or a list[in_rowsize, out_rowsize] of length 2.")
    for size in sizes if isinstance(sizes, list) else [sizes]:
        check_int("max_rowsize", size, -1)


def check_no_cache(cache: Any) -> None:
    """Raises NotImplementedError for anything but None."""
    if cache is not None:
        raise NotImplementedFeatureError("cache: there is no cache server to keep rows in", hint="leave it None; rows of files are in memory already")


def check_names(name: str, value: Any) -> list[str]:
    """A name, or a list of different names, as a list. Raises TypeError or ValueError."""
    if isinstance(value, str):
        value = [value]
    check_type(name, value, (list, tuple))
    if not value:
        raise ArgumentValueError(f"{name} should not be empty.")
    for k, item in enumerate(value):
        check_type(f"{name}[{k}]", item, str)
        if not item:
            raise ArgumentValueError(f"{name}[{k}] should not be empty.")
    if len(set(value)) != len(value):
        raise ArgumentValueError(f"Every column name should not be same with others in {name}.")
    return list(value)


def check_shards(num_shards: Any, shard_id: Any) -> None:
    """Both or neither, and `shard_id` is below `num_shards`. Raises TypeError or ValueError."""
    if (num_shards is None) != (shard_id is None):
        raise ArgumentValueError("num_shards and shard_id need to be passed in together.")
    if num_shards is None:
        return
    check_int("num_shards", num_shards, 1)
    check_type("shard_id", shard_id, int)
    if not 0 <= shard_id < num_shards:
        raise ArgumentValueError(f"shard_id should be at least 0 and less than num_shards, but got {shard_id} of {num_shards}.")


def positions(wanted: Sequence[str], columns: Sequence[str], where: str) -> list[int]:
    """Where the columns `wanted` are. Raises DatasetError."""
    for name in wanted:
        if name not in columns:
            raise DatasetError(f"{where}: column '{name}' doesn't exist in the dataset columns {list(columns)}")
    return [columns.index(name) for name in wanted]
