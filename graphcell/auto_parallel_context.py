"""How a run over several devices is configured: `set_auto_parallel_context`. Here there is one device.

Enters: MindSpore's keys and values. Leaves: `settings`, which `get_auto_parallel_context` reads. All keys are checked and kept, and change
nothing for one device. Refuses: unknown keys, values of a wrong type or range; and, when a training step is made, a parallel mode with more
than one device (`require_one_device`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError, MissingKeyError, NotImplementedFeatureError
from graphcell.records import dataclass

_MAX_RANK = 4095
_SET = "For 'set_auto_parallel_context', "
Check = Callable[[str, Any], Any]


class ParallelMode:
    """The names of the parallel modes.

    `STAND_ALONE`: one device. The others spread work over several: `DATA_PARALLEL` the data, `HYBRID_PARALLEL` data and model by hand,
    `SEMI_AUTO_PARALLEL` by strategies given for operations, `AUTO_PARALLEL` by strategies that are searched for. `MODE_LIST`: all of them.
    """

    STAND_ALONE = "stand_alone"
    DATA_PARALLEL = "data_parallel"
    HYBRID_PARALLEL = "hybrid_parallel"
    SEMI_AUTO_PARALLEL = "semi_auto_parallel"
    AUTO_PARALLEL = "auto_parallel"
    MODE_LIST = [STAND_ALONE, DATA_PARALLEL, HYBRID_PARALLEL, SEMI_AUTO_PARALLEL, AUTO_PARALLEL]


# -- checks of single values -------------------------------------------------------------------------------------------------
def _of(kind: type, check: Check | None = None) -> Check:
    """Of this very type (a bool is no int), and then what `check` says."""

    def checked(key: str, value: Any) -> Any:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ArgumentTypeError(f"The parameter '{key}' must be {kind}, but got {type(value)}")
        return value if check is None else check(key, value)

    return checked


def _within(least: int, most: int | None = None) -> Check:
    def check(key: str, value: int) -> int:
        if value < least or (most is not None and value > most):
            wanted = f"in [{least}, {most}]" if most is not None else "a positive integer" if least == 1 else f"at least {least}"
            raise ArgumentValueError(f"The context configuration parameter '{key}' must be {wanted}, but got the value of {key} : {value}.")
        return value

    return check


def _one_of(*choices: str) -> Check:
    def check(key: str, value: str) -> str:
        if value not in choices:
            listed = ", ".join(f"'{choice}'" for choice in choices)
            raise ArgumentValueError(f"The context configuration parameter '{key}' only support {listed}, but got the value : {value}.")
        return value

    return check


def _accumulation_step(key: str, value: int) -> int:
    if value < 1:
        raise ArgumentValueError(f"For '{key}', the input value must be int and must > 0, but got '{value}' with type 'int'.")
    if value > 1:
        raise ArgumentValueError("The interface is deprecated. To use gradient accumulation, please use GradAccumulationCell in mindspore.nn.")
    return value


def _shard_size(key: str, value: int) -> int:
    return value if value > 0 else -1


def _indices(key: str, value: list[int]) -> list[int]:
    if not value:
        raise ArgumentValueError(f"{_SET}the argument '{key}' can not be empty")
    for index in value:
        if not isinstance(index, int) or isinstance(index, bool):
            raise ArgumentTypeError(f"{_SET}the elements of '{key}' must be int, but got the type : {type(index)}.")
    return list(value)


def _flag(key: str, value: Any) -> bool:
    return bool(_of(bool)(key, value))


# -- values that are dicts -----------------------------------------------------------------------------------------------------
def _known_keys(given: dict[str, Any], known: dict[str, Any]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ArgumentValueError(f"Unknown config: {unknown}")


def _entries(table: dict[str, Check]) -> Check:
    """A dict some of whose keys are given, each checked by itself."""

    def check(key: str, value: dict[str, Any]) -> dict[str, Any]:
        _known_keys(value, table)
        return {name: table[name](name, x) for name, x in value.items()}

    return check


_FUSION_MODES = {"allreduce": ("auto", "size", "index"), "allgather": ("auto", "size"), "reducescatter": ("auto", "size")}


def _comm_fusion(key: str, value: dict[str, Any]) -> dict[str, Any]:
    for name, config in value.items():
        if name == "openstate":
            _flag(name, config)
            continue
        if name not in _FUSION_MODES:
            raise MissingKeyError(f"comm fusion type must be openstate,allreduce, allgather or reducescatter, but got {name}")
        _of(dict)(name, config)
        for wanted in ("mode", "config"):
            if wanted not in config:
                raise MissingKeyError(f"For '{key}', the key '{wanted}' should be contained.")
        if config["mode"] not in _FUSION_MODES[name]:
            raise MissingKeyError(f"fusion method mode must be {', '.join(_FUSION_MODES[name])}, but got {config['mode']}")
    return copy.deepcopy(value)


def _dataset_strategy(key: str, value: Any) -> Any:
    if isinstance(value, str):
        if value not in ("full_batch", "data_parallel"):
            raise ArgumentValueError(f"{_SET}the argument '{key}' must be 'full_batch' or 'data_parallel', but got the value : {value}.")
        return value
    if not isinstance(value, tuple):
        raise ArgumentTypeError(f"{_SET}the argument '{key}' must be str or tuple type, but got the type : {type(value)}.")
    return [list(_of(tuple)(key, strategy)) for strategy in value]


# -- the keys --------------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Key:
    """A key: its value at the start, and a check that returns the value to keep. `given`: `set_…` takes it; `readable`: `get_…` knows it."""

    start: Any
    check: Check
    given: bool = True
    readable: bool = True


_SEARCH = _of(str, _one_of("recursive_programming", "dynamic_programming", "sharding_propagation"))
_SCHEDULERS = ("gpipe", "1f1b", "seqpipe", "seqvpp", "seqsmartvpp", "zero_bubble_v")
_AUTO = {"mode": "auto", "config": None}

_KEYS: dict[str, _Key] = {
    "device_num": _Key(1, _of(int, _within(1))),
    "global_rank": _Key(0, _of(int, _within(0, _MAX_RANK))),
    "gradients_mean": _Key(False, _flag),
    "gradient_fp32_sync": _Key(True, _flag),
    "loss_repeated_mean": _Key(True, _flag),
    "pipeline_stages": _Key(1, _of(int, _within(1))),
    "pipeline_segments": _Key(1, _of(int, _within(1)), readable=False),
    "auto_pipeline": _Key(False, _flag),
    "pipeline_result_broadcast": _Key(False, _flag),
    "pipeline_interleave": _Key(False, _flag, given=False),
    "pipeline_scheduler": _Key("1f1b", _of(str, _one_of(*_SCHEDULERS)), given=False),
    "parallel_mode": _Key(ParallelMode.STAND_ALONE, _of(str, _one_of(*ParallelMode.MODE_LIST))),
    "search_mode": _Key("recursive_programming", _SEARCH),
    "auto_parallel_search_mode": _Key("recursive_programming", _SEARCH),
    "parameter_broadcast": _Key(False, _flag),
    "strategy_ckpt_load_file": _Key("", _of(str)),
    "strategy_ckpt_save_file": _Key("", _of(str)),
    "group_ckpt_save_file": _Key("", _of(str), readable=False),
    "full_batch": _Key(False, _flag),
    "full_batch_is_set": _Key(False, _flag, given=False),
    "dataset_strategy": _Key(ParallelMode.DATA_PARALLEL, _dataset_strategy),
    "enable_parallel_optimizer": _Key(False, _flag),
    "force_fp32_communication": _Key(False, _flag),
    "parallel_optimizer_config": _Key(
        {}, _of(dict, _entries({
            "gradient_accumulation_shard": _flag, "parallel_optimizer_threshold": _of(int, _within(0)),
            "optimizer_weight_shard_size": _of(int, _within(1)), "optimizer_level": _of(str, _one_of("level1", "level2", "level3")),
        })), readable=False,
    ),
    "pipeline_config": _Key(
        {}, _of(dict, _entries({"pipeline_interleave": _flag, "pipeline_scheduler": _of(str, _one_of(*_SCHEDULERS))})), readable=False,
    ),
    "grad_accumulation_step": _Key(1, _of(int, _accumulation_step)),
    "all_reduce_fusion_config": _Key([], _of(list, _indices)),
    "communi_parallel_mode": _Key(
        "all_group_parallel", _of(str, _one_of("all_group_parallel", "same_server_group_parallel", "no_group_parallel")),
    ),
    "optimizer_weight_shard_size": _Key(-1, _of(int, _shard_size)),
    "optimizer_weight_shard_aggregated_save": _Key(False, _flag),
    "sharding_propagation": _Key(False, _flag),
    "enable_alltoall": _Key(False, _flag),
    "comm_fusion": _Key({"openstate": True, "allreduce": _AUTO, "allgather": _AUTO, "reducescatter": _AUTO}, _of(dict, _comm_fusion)),
    "strategy_ckpt_config": _Key(
        {"load_file": "", "save_file": "", "only_trainable_params": True},
        _of(dict, _entries({"load_file": _of(str), "save_file": _of(str), "only_trainable_params": _flag})),
    ),
    "dump_local_norm": _Key(False, _flag),
    "dump_local_norm_path": _Key("", _of(str)),
    "dump_device_local_norm": _Key(False, _flag),
    "auto_parallel_new_interface": _Key(False, _flag),
    "init_param_in_compile": _Key(True, _flag),
}  # fmt: skip

settings: dict[str, Any] = {key: copy.deepcopy(known.start) for key, known in _KEYS.items()}


def set_auto_parallel_context(**kwargs: Any) -> None:
    """Sets how work is spread over devices, by MindSpore's keys (`parallel_mode`, `device_num`, `gradients_mean`, …).

    All values are checked before the first one is set. With one device they change nothing.

    Raises:
        TypeError: a value is of another type than the key's.
        ValueError: an unknown key, or a value out of its range. KeyError: an unknown key in `comm_fusion`.
    """
    checked = {}
    for key, value in kwargs.items():
        if key not in _KEYS or not _KEYS[key].given:
            raise ArgumentValueError(f"Set context keyword {key} is not recognized!")
        checked[key] = _KEYS[key].check(key, value)
    for key, value in checked.items():
        _keep(key, value)


def _keep(key: str, value: Any) -> None:
    """Stores a value, under all keys that tell of it."""
    if key in ("comm_fusion", "strategy_ckpt_config"):
        settings[key].update(value)
    else:
        settings[key] = value
    if key in ("search_mode", "auto_parallel_search_mode"):
        settings["search_mode"] = settings["auto_parallel_search_mode"] = value
    elif key == "full_batch":
        settings["full_batch_is_set"], settings["dataset_strategy"] = True, "full_batch" if value else "data_parallel"
    elif key == "dataset_strategy":
        settings["full_batch"] = value == "full_batch"
        settings["full_batch_is_set"] = settings["full_batch_is_set"] or isinstance(value, str)
    elif key in ("strategy_ckpt_load_file", "strategy_ckpt_save_file"):
        settings["strategy_ckpt_config"][key.removeprefix("strategy_ckpt_")] = value
    elif key == "strategy_ckpt_config":
        settings.update({f"strategy_ckpt_{name}": x for name, x in value.items() if name.endswith("file")})
    elif key == "pipeline_config":
        settings.update(value)
    elif key == "parallel_optimizer_config" and "optimizer_weight_shard_size" in value:
        settings["optimizer_weight_shard_size"] = value["optimizer_weight_shard_size"]


def get_auto_parallel_context(attr_key: str) -> Any:
    """The value of a key of `set_auto_parallel_context`; also of 'pipeline_interleave', 'pipeline_scheduler' and 'full_batch_is_set'.

    Raises:
        ValueError: there is no such key.
    """
    known = _KEYS.get(attr_key) if isinstance(attr_key, str) else None
    if known is None or not known.readable:
        raise ArgumentValueError(f"Get context keyword {attr_key} is not recognized!")
    return copy.deepcopy(settings[attr_key])


def reset_auto_parallel_context() -> None:
    """Gives all keys of `set_auto_parallel_context` the values that they have at the start."""
    settings.update({key: copy.deepcopy(known.start) for key, known in _KEYS.items()})


def require_one_device(what: str) -> None:
    """Called where gradients would have to be summed over devices.

    Raises:
        NotImplementedError: the parallel mode is another than stand-alone, and there are to be several devices.
    """
    mode, devices = settings["parallel_mode"], settings["device_num"]
    if mode != ParallelMode.STAND_ALONE and devices > 1:
        raise NotImplementedFeatureError(
            f"{what}: parallel_mode={mode!r} with device_num={devices} needs {devices} devices, and there is one",
            hint="set_auto_parallel_context(device_num=1), or reset_auto_parallel_context()",
        )
