"""The one configuration object, behind `set_context` and `get_context`.

Enters: MindSpore's keys (and their values as MindSpore 2.10 takes them), a few environment variables. Leaves:
`config`, whose fields every other file reads directly. Refuses: unknown keys, values of a wrong type or
range, devices other than the CPU. Keys that steer hardware which is not there (Ascend, GPU memory pools) are
checked and then have no effect, as in MindSpore on a CPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import field
from typing import Any

from graphcell.auto_parallel_context import (  # noqa: F401  (MindSpore has them here)
    ParallelMode,
    get_auto_parallel_context,
    reset_auto_parallel_context,
    set_auto_parallel_context,
)
from graphcell.errors import ArgumentTypeError, ArgumentValueError, NotImplementedFeatureError
from graphcell.records import dataclass

GRAPH_MODE = 0
PYNATIVE_MODE = 1
STRICT = 0
COMPATIBLE = 1
LAX = 2
RELEASE = 0
DEBUG = 1

_MAX_DEVICE_ID = 4095
_MAX_SAVE_GRAPHS = 3


@dataclass(slots=True)
class Config:
    """Everything that can be configured. Field names are `set_context`'s keys, except for `verify`."""

    mode: int = PYNATIVE_MODE
    device_target: str = "CPU"
    device_id: int = 0
    deterministic: str = "OFF"
    """Kept for MindSpore's sake: results never depend on the number of threads here."""
    jit_syntax_level: int = LAX
    jit_config: dict[str, str] = field(default_factory=dict)
    jit_level: str = ""
    """Kept for MindSpore's sake: every graph is compiled in full."""
    max_call_depth: int = 1000
    save_graphs: int = 0
    """0: nothing; 1 to 3: each pass that changes a graph writes the result to `save_graphs_path`."""
    save_graphs_path: str = "."
    runtime_num_threads: int = 0
    """0: as many as the process may use. The environment's GRAPHCELL_NUM_THREADS, read by the runtime, goes
    before it.
    """
    inter_op_parallel_num: int = 0
    enable_compile_cache: bool | None = None
    compile_cache_path: str = ""
    pynative_synchronize: bool = False
    check_bprop: bool = False
    debug_level: int = RELEASE
    memory_optimize_level: int = 0
    exec_order: str = "bfs"
    op_timeout: int = 900
    print_file_path: str = ""
    env_config_path: str = ""
    reserve_class_name_in_scope: bool = True
    support_binary: bool = False
    enable_profiling: bool = False
    enable_graph_kernel: bool = False
    graph_kernel_flags: str = ""
    enable_reduce_precision: bool = True
    disable_format_transform: bool = False
    aoe_tune_mode: str = ""
    aoe_config: dict[str, str] = field(default_factory=dict)
    ascend_config: dict[str, Any] = field(default_factory=dict)
    gpu_config: dict[str, Any] = field(default_factory=dict)
    variable_memory_max_size: str = "0"
    mempool_block_size: float = 1.0
    max_device_memory: float = 1024.0
    verify: bool = field(default_factory=lambda: os.environ.get("GRAPHCELL_VERIFY", "") == "1")
    """Verify every graph before and after every pass. Not a key of `set_context`; the environment's
    GRAPHCELL_VERIFY=1 sets it.
    """

    def graph_dump_level(self) -> int:
        """`save_graphs`, before which the environment's MS_DEV_SAVE_GRAPHS (0 to 3) goes, as in MindSpore."""
        text = os.environ.get("MS_DEV_SAVE_GRAPHS", "").strip()
        return int(text) if text in {"0", "1", "2", "3"} else self.save_graphs

    def graph_dump_path(self) -> str:
        """`save_graphs_path`, before which the environment's MS_DEV_SAVE_GRAPHS_PATH goes."""
        return os.environ.get("MS_DEV_SAVE_GRAPHS_PATH", "").strip() or self.save_graphs_path

    def is_strict(self) -> bool:
        """Whether code that a graph cannot hold is an error: `jit_syntax_level`, before which the environment's MS_DEV_JIT_SYNTAX_LEVEL goes."""
        text = os.environ.get("MS_DEV_JIT_SYNTAX_LEVEL", "").strip()
        return (int(text) if text in {"0", "1", "2"} else self.jit_syntax_level) == STRICT


config = Config()

_SET = "For 'context.set_context', "
Check = Callable[[str, Any], Any]


@dataclass(frozen=True, slots=True)
class _Key:
    """One key of `set_context`: the types it takes, and a check that returns the value to store.

    `stored`: False for keys that are accepted and leave no trace on a CPU; `readable`: False if `get_context`
    does not know it.
    """

    types: tuple[type, ...]
    check: Check
    stored: bool = True
    readable: bool = True


def _argument(key: str) -> str:
    return f"{_SET}the argument '{key}'"


def _any(key: str, value: Any) -> Any:
    return value


def _integer(key: str, value: Any) -> int:
    return int(value)


def _mode(key: str, value: Any) -> int:
    if value not in (GRAPH_MODE, PYNATIVE_MODE):
        raise ArgumentValueError(
            f"{_argument(key)} should be context.GRAPH_MODE (0) or "
            f"context.PYNATIVE_MODE (1), but got {value}."
        )
    return int(value)


def _one_of(*choices: str) -> Check:
    def check(key: str, value: Any) -> str:
        if value not in choices:
            raise ArgumentValueError(f"{_argument(key)} must be one of {list(choices)}, but got {value}.")
        return str(value)

    return check


def _tune_mode(key: str, value: Any) -> str:
    if value not in ("online", "offline"):
        raise ArgumentValueError(f"{_argument(key)} must be in ['online', 'offline'], but got {value}.")
    return str(value)


def _level(*choices: tuple[str, int]) -> Check:
    def check(key: str, value: Any) -> int:
        if value not in [number for _, number in choices]:
            names = " or ".join(f"context.{name}" for name, _ in choices)
            raise ArgumentValueError(f"For '{key}', the value should be {names}, but got {value}.")
        return int(value)

    return check


def _syntax_level(key: str, value: Any) -> int:
    if value not in (STRICT, COMPATIBLE, LAX):
        raise ArgumentValueError(
            f"For '{key}', the value should be context.STRICT or context.LAX, but got {value}."
        )
    return int(value)


def _not_negative(what: str) -> Check:
    def check(key: str, value: Any) -> int:
        if value < 0:
            raise ArgumentValueError(f"The num of {what} must bigger than or equal to 0.")
        return int(value)

    return check


def _call_depth(key: str, value: Any) -> int:
    if value <= 0:
        raise ArgumentValueError(f"{_argument(key)} must be greater than 0, but got {value}.")
    return int(value)


def _device_id(key: str, value: Any) -> int:
    if not 0 <= value <= _MAX_DEVICE_ID:
        raise ArgumentValueError(f"{_argument(key)} must be in range [0, {_MAX_DEVICE_ID}], but got {value}.")
    return int(value)


def _device_target(key: str, value: Any) -> str:
    targets = ["CPU", "GPU", "Ascend", "Davinci"]
    if value not in targets:
        raise ArgumentValueError(f"{_argument(key)} must be one of {targets}, but got {value}.")
    return _require_cpu(value)


def _require_cpu(target: str) -> str:
    if target != "CPU":
        raise NotImplementedFeatureError(
            f"Unsupported device target {target}. This process only supports one of the ['CPU'].",
            hint="graphcell generates code for CPUs; set device_target='CPU', or leave it out",
        )
    return target


def _memory_level(key: str, value: Any) -> int:
    return int(_one_of("O0", "O1")(key, value)[1])


def _save_graphs(key: str, value: Any) -> int:
    if isinstance(value, bool):
        return 2 if value else 0
    if not 0 <= value <= _MAX_SAVE_GRAPHS:
        raise ArgumentValueError(f"value for {key} should be 0-{_MAX_SAVE_GRAPHS} but got '{value}'")
    return int(value)


def _directory(key: str, value: Any) -> str:
    if not value:
        raise ArgumentValueError(
            f"{_SET}the 'save_graphs_path' or the 'print_file_path' is invalid type, "
            f"it should be Non-empty string, but got '{value}'."
        )
    path = os.path.realpath(str(value))
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as e:
        raise ArgumentValueError(
            f"{_SET}{key} '{value}' is not a directory that can be written: {e.strerror}."
        ) from e
    return path


def _existing_file(key: str, value: Any) -> str:
    if not os.path.isfile(value):
        raise ArgumentValueError(
            f"{_SET}the '{key}' file '{value}' is not exists, please check whether '{key}' is correct."
        )
    return os.path.realpath(str(value))


def _choices(key: str, value: dict[str, Any], table: dict[str, list[str]]) -> dict[str, str]:
    for name, choice in value.items():
        if name not in table:
            raise ArgumentValueError(
                f"{_SET}the key of argument '{key}' must be one of {table}, but got {name}."
            )
        if choice not in table[name]:
            raise ArgumentValueError(
                f"For '{key}', the value of argument {name} must be one of {table[name]}, but got {choice}."
            )
    return dict(value)


def _jit_config(key: str, value: Any) -> dict[str, str]:
    checked = _choices(key, value, {"jit_level": ["O0", "O1", "O2"], "infer_boost": ["on", "off"]})
    if checked.get("infer_boost") == "on" and checked.get("jit_level") != "O0":
        raise ArgumentValueError("Only jit_level set O0 can set infer_boost to on.")
    return checked


def _aoe_config(key: str, value: Any) -> dict[str, str]:
    return _choices(key, value, {"job_type": ["1", "2"]})


_INT = (int,)
_STR = (str,)
_BOOL = (bool,)
_DICT = (dict,)

_KEYS: dict[str, _Key] = {
    "mode": _Key(_INT, _mode),
    "device_target": _Key(_STR, _device_target),
    "device_id": _Key(_INT, _device_id),
    "deterministic": _Key(_STR, _one_of("ON", "OFF")),
    "jit_syntax_level": _Key(_INT, _syntax_level),
    "jit_config": _Key(_DICT, _jit_config),
    "jit_level": _Key(_STR, _any),
    "max_call_depth": _Key(_INT, _call_depth),
    "save_graphs": _Key((bool, int), _save_graphs),
    "save_graphs_path": _Key(_STR, _directory),
    "runtime_num_threads": _Key(_INT, _not_negative("thread")),
    "inter_op_parallel_num": _Key(_INT, _not_negative("parallel thread")),
    "enable_compile_cache": _Key(_BOOL, _any),
    "compile_cache_path": _Key(_STR, _any),
    "pynative_synchronize": _Key(_BOOL, _any),
    "check_bprop": _Key(_BOOL, _any),
    "debug_level": _Key(_INT, _level(("DEBUG", DEBUG), ("RELEASE", RELEASE))),
    "memory_optimize_level": _Key(_STR, _memory_level),
    "exec_order": _Key(_STR, _one_of("bfs", "dfs")),
    "op_timeout": _Key(_INT, _not_negative("op exe timeout")),
    "print_file_path": _Key(_STR, _any, stored=False),
    "env_config_path": _Key(_STR, _existing_file),
    "reserve_class_name_in_scope": _Key(_BOOL, _any),
    "support_binary": _Key(_BOOL, _any),
    "enable_profiling": _Key(_BOOL, _any),
    "enable_graph_kernel": _Key(_BOOL, _any),
    "graph_kernel_flags": _Key(_STR, _any),
    "enable_auto_mixed_precision": _Key(_BOOL, _any, stored=False, readable=False),
    "enable_reduce_precision": _Key(_BOOL, _any, stored=False),
    "disable_format_transform": _Key(_BOOL, _any, stored=False),
    "aoe_tune_mode": _Key(_STR, _tune_mode),
    "aoe_config": _Key(_DICT, _aoe_config),
    "ascend_config": _Key(_DICT, _any, stored=False),
    "gpu_config": _Key(_DICT, _any, stored=False),
    "variable_memory_max_size": _Key(_STR, _any, stored=False),
    "mempool_block_size": _Key(_STR, _any, stored=False),
    "max_device_memory": _Key(_STR, _any, stored=False),
}

_REMOVED = {
    "precompile_only": "2.10 version. Please use the env MS_DEV_PRECOMPILE_ONLY instead.",
    "grad_for_scalar": "2.10 version. Please use the tensor derivative instead.",
    "exception_dump": "2.6 version. Please use the device_context.ascend.op_debug.aclinit_config() instead.",
}


def set_context(**kwargs: Any) -> None:
    """Sets configuration values by MindSpore's keys (`mode`, `save_graphs`, `jit_syntax_level`, …); see
    `Config` for them all.

    All values are checked before the first one is set.

    Raises:
        TypeError: a value is of another type than the key's.
        ValueError: an unknown or removed key, or a value out of its range.
        RuntimeError: a device other than the CPU.
    """
    checked = {key: _check(key, value) for key, value in kwargs.items()}
    for key, value in checked.items():
        if _KEYS[key].stored:
            setattr(config, key, value)


def _check(key: str, value: Any) -> Any:
    if key in _REMOVED:
        raise ArgumentValueError(
            f"{_SET}the parameter '{key}' has been removed since MindSpore {_REMOVED[key]}"
        )
    known = _KEYS.get(key)
    if known is None:
        raise _unknown_key("set_context", f"keyword argument {key}")
    if not isinstance(value, known.types):
        wanted = known.types[0] if len(known.types) == 1 else known.types
        raise ArgumentTypeError(f"The parameter '{key}' must be {wanted}, but got {type(value)}")
    return known.check(key, value)


def get_context(attr_key: str) -> Any:
    """The value of a key of `set_context`.

    Raises:
        TypeError: `attr_key` is no str. ValueError: there is no such key.
    """
    if not isinstance(attr_key, str):
        raise ArgumentTypeError(f"attribute name must be string, not '{type(attr_key).__name__}'")
    known = _KEYS.get(attr_key)
    if known is None or not known.readable:
        raise _unknown_key("get_context", f"argument {attr_key}")
    value = getattr(config, attr_key)
    if attr_key == "runtime_num_threads" and value == 0:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return dict(value) if isinstance(value, dict) else value


def _unknown_key(function: str, what: str) -> ArgumentValueError:
    return ArgumentValueError(
        f"For 'context.{function}', the {what} is not recognized! "
        f"For detailed usage of '{function}', please refer to the Mindspore official website."
    )


def set_device(device_target: str, device_id: int | None = None) -> None:
    """Chooses the device: "CPU" is the only one.

    Raises:
        TypeError: arguments of another type. ValueError: an unknown device or a negative id. RuntimeError:
        "GPU" or "Ascend".
    """
    if not isinstance(device_target, str):
        raise ArgumentTypeError(f"The parameter 'device_target' must be {str}, but got {type(device_target)}")
    if device_id is not None and not isinstance(device_id, int):
        raise ArgumentTypeError(f"The parameter 'device_id' must be {int}, but got {type(device_id)}")
    targets = ["CPU", "GPU", "Ascend"]
    if device_target not in targets:
        raise ArgumentValueError(
            f"The argument 'device_target' must be one of {targets}, but got {device_target}."
        )
    if device_id is not None and device_id < 0:
        raise ArgumentValueError("The device id must bigger than or equal to 0.")
    config.device_target = _require_cpu(device_target)
    config.device_id = device_id or 0


def get_current_device() -> tuple[str, int]:
    """The device in use, as (target, id)."""
    return config.device_target, config.device_id


def set_deterministic(deterministic: bool) -> None:
    """Kept for MindSpore's sake: results are the same in every run and for every number of threads anyway.

    Raises:
        TypeError: the argument is no bool.
    """
    if not isinstance(deterministic, bool):
        raise ArgumentTypeError(
            f"The parameter 'deterministic' must be {bool}, but got {type(deterministic)}"
        )
    config.deterministic = "ON" if deterministic else "OFF"


def set_recursion_limit(recursion_limit: int = 1000) -> None:
    """How deep calls may nest in a compiled function: `max_call_depth` of `set_context`.

    Raises:
        TypeError: the limit is no int. ValueError: it is not positive.
    """
    set_context(max_call_depth=recursion_limit)
