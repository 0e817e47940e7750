"""`set_context` and its relatives: keys, defaults, values read back and errors as in MindSpore 2.10 on a CPU
(texts taken there).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from graphcell import context
from graphcell.context import (
    GRAPH_MODE,
    PYNATIVE_MODE,
    config,
    get_context,
    get_current_device,
    set_context,
    set_deterministic,
    set_device,
)

DEFAULTS = {
    "mode": 1,
    "device_id": 0,
    "device_target": "CPU",
    "deterministic": "OFF",
    "max_call_depth": 1000,
    "variable_memory_max_size": "0",
    "mempool_block_size": 1.0,
    "memory_optimize_level": 0,
    "max_device_memory": 1024.0,
    "pynative_synchronize": False,
    "compile_cache_path": "",
    "enable_compile_cache": None,
    "inter_op_parallel_num": 0,
    "disable_format_transform": False,
    "jit_syntax_level": 2,
    "jit_config": {},
    "jit_level": "",
    "exec_order": "bfs",
    "op_timeout": 900,
    "aoe_tune_mode": "",
    "aoe_config": {},
    "save_graphs": 0,
    "save_graphs_path": ".",
    "ascend_config": {},
    "gpu_config": {},
    "print_file_path": "",
    "env_config_path": "",
    "debug_level": 0,
    "reserve_class_name_in_scope": True,
    "check_bprop": False,
    "enable_reduce_precision": True,
    "support_binary": False,
    "enable_graph_kernel": False,
    "graph_kernel_flags": "",
    "enable_profiling": False,
}


def test_constants() -> None:
    assert (GRAPH_MODE, PYNATIVE_MODE) == (0, 1)
    assert (context.STRICT, context.COMPATIBLE, context.LAX, context.RELEASE, context.DEBUG) == (
        0,
        1,
        2,
        0,
        1,
    )


@pytest.mark.parametrize(("key", "value"), DEFAULTS.items())
def test_defaults(key: str, value: Any) -> None:
    got = get_context(key)
    assert got == value and type(got) is type(value)


READ_BACK: list[tuple[str, Any, Any]] = [
    ("mode", 0, 0),
    ("mode", True, 1),
    ("device_id", 4095, 4095),
    ("device_target", "CPU", "CPU"),
    ("deterministic", "ON", "ON"),
    ("max_call_depth", 10, 10),
    ("memory_optimize_level", "O1", 1),
    ("pynative_synchronize", True, True),
    ("compile_cache_path", "/tmp/x", "/tmp/x"),
    ("enable_compile_cache", True, True),
    ("inter_op_parallel_num", 2, 2),
    ("runtime_num_threads", 1000, 1000),
    ("jit_syntax_level", 0, 0),
    ("jit_syntax_level", 1, 1),
    ("jit_syntax_level", 2, 2),
    ("jit_config", {"jit_level": "O1"}, {"jit_level": "O1"}),
    ("jit_level", "O2", "O2"),
    ("jit_config", {"jit_level": "O0", "infer_boost": "on"}, {"jit_level": "O0", "infer_boost": "on"}),
    ("exec_order", "dfs", "dfs"),
    ("op_timeout", 0, 0),
    ("aoe_tune_mode", "online", "online"),
    ("aoe_config", {"job_type": "1"}, {"job_type": "1"}),
    ("save_graphs", True, 2),
    ("save_graphs", False, 0),
    ("save_graphs", 3, 3),
    ("debug_level", 1, 1),
    ("reserve_class_name_in_scope", False, False),
    ("check_bprop", True, True),
    ("support_binary", True, True),
    ("enable_graph_kernel", True, True),
    ("graph_kernel_flags", "--a", "--a"),
    ("enable_profiling", True, True),
    # without effect on a CPU
    ("variable_memory_max_size", "1GB", "0"),
    ("mempool_block_size", "2GB", 1.0),
    ("max_device_memory", "3GB", 1024.0),
    ("disable_format_transform", True, False),
    ("enable_reduce_precision", False, True),
    ("ascend_config", {"precision_mode": "force_fp16"}, {}),
    ("gpu_config", {"conv_allow_tf32": True}, {}),
    ("print_file_path", "/tmp/pf", ""),
]


@pytest.mark.parametrize(("key", "value", "expected"), READ_BACK)
def test_values_are_read_back(key: str, value: Any, expected: Any) -> None:
    set_context(**{key: value})
    got = get_context(key)
    assert got == expected and type(got) is type(expected)


SET = "For 'context.set_context', "
ERRORS: list[tuple[str, Any, type[Exception], str]] = [
    (
        "mode",
        7,
        ValueError,
        SET + "the argument 'mode' should be context.GRAPH_MODE (0) or context.PYNATIVE_MODE (1), but got 7.",
    ),
    ("mode", "a", TypeError, "The parameter 'mode' must be <class 'int'>, but got <class 'str'>"),
    ("mode", 1.0, TypeError, "The parameter 'mode' must be <class 'int'>, but got <class 'float'>"),
    ("device_id", -1, ValueError, SET + "the argument 'device_id' must be in range [0, 4095], but got -1."),
    (
        "device_id",
        4096,
        ValueError,
        SET + "the argument 'device_id' must be in range [0, 4095], but got 4096.",
    ),
    ("device_id", 1.5, TypeError, "The parameter 'device_id' must be <class 'int'>, but got <class 'float'>"),
    (
        "device_target",
        "GPU",
        RuntimeError,
        "Unsupported device target GPU. This process only supports one of the ['CPU'].",
    ),
    (
        "device_target",
        "Ascend",
        RuntimeError,
        "Unsupported device target Ascend. This process only supports one of the ['CPU'].",
    ),
    (
        "device_target",
        "XPU",
        ValueError,
        SET + "the argument 'device_target' must be one of ['CPU', 'GPU', 'Ascend', 'Davinci'], but got XPU.",
    ),
    (
        "device_target",
        1,
        TypeError,
        "The parameter 'device_target' must be <class 'str'>, but got <class 'int'>",
    ),
    (
        "deterministic",
        "on",
        ValueError,
        SET + "the argument 'deterministic' must be one of ['ON', 'OFF'], but got on.",
    ),
    (
        "deterministic",
        True,
        TypeError,
        "The parameter 'deterministic' must be <class 'str'>, but got <class 'bool'>",
    ),
    (
        "max_call_depth",
        0,
        ValueError,
        SET + "the argument 'max_call_depth' must be greater than 0, but got 0.",
    ),
    (
        "max_call_depth",
        "1",
        TypeError,
        "The parameter 'max_call_depth' must be <class 'int'>, but got <class 'str'>",
    ),
    (
        "memory_optimize_level",
        "O2",
        ValueError,
        SET + "the argument 'memory_optimize_level' must be one of ['O0', 'O1'], but got O2.",
    ),
    (
        "variable_memory_max_size",
        3,
        TypeError,
        "The parameter 'variable_memory_max_size' must be <class 'str'>, but got <class 'int'>",
    ),
    (
        "mempool_block_size",
        2,
        TypeError,
        "The parameter 'mempool_block_size' must be <class 'str'>, but got <class 'int'>",
    ),
    (
        "max_device_memory",
        3,
        TypeError,
        "The parameter 'max_device_memory' must be <class 'str'>, but got <class 'int'>",
    ),
    (
        "pynative_synchronize",
        1,
        TypeError,
        "The parameter 'pynative_synchronize' must be <class 'bool'>, but got <class 'int'>",
    ),
    (
        "enable_compile_cache",
        "1",
        TypeError,
        "The parameter 'enable_compile_cache' must be <class 'bool'>, but got <class 'str'>",
    ),
    ("inter_op_parallel_num", -1, ValueError, "The num of parallel thread must bigger than or equal to 0."),
    ("runtime_num_threads", -1, ValueError, "The num of thread must bigger than or equal to 0."),
    (
        "runtime_num_threads",
        "2",
        TypeError,
        "The parameter 'runtime_num_threads' must be <class 'int'>, but got <class 'str'>",
    ),
    (
        "jit_syntax_level",
        3,
        ValueError,
        "For 'jit_syntax_level', the value should be context.STRICT or context.LAX, but got 3.",
    ),
    (
        "jit_config",
        {"jit_level": "O9"},
        ValueError,
        "For 'jit_config', the value of argument jit_level must be one of ['O0', 'O1', 'O2'], but got O9.",
    ),
    (
        "jit_config",
        {"foo": "O9"},
        ValueError,
        SET
        + "the key of argument 'jit_config' must be one of {'jit_level': ['O0', 'O1', 'O2'], 'infer_boost': ['on', 'off']}, but got foo.",
    ),
    (
        "jit_config",
        {"jit_level": "O2", "infer_boost": "on"},
        ValueError,
        "Only jit_level set O0 can set infer_boost to on.",
    ),
    ("jit_config", 3, TypeError, "The parameter 'jit_config' must be <class 'dict'>, but got <class 'int'>"),
    (
        "exec_order",
        "x",
        ValueError,
        SET + "the argument 'exec_order' must be one of ['bfs', 'dfs'], but got x.",
    ),
    ("op_timeout", -1, ValueError, "The num of op exe timeout must bigger than or equal to 0."),
    (
        "aoe_tune_mode",
        "x",
        ValueError,
        SET + "the argument 'aoe_tune_mode' must be in ['online', 'offline'], but got x.",
    ),
    (
        "aoe_config",
        {"x": "1"},
        ValueError,
        SET + "the key of argument 'aoe_config' must be one of {'job_type': ['1', '2']}, but got x.",
    ),
    ("save_graphs", 4, ValueError, "value for save_graphs should be 0-3 but got '4'"),
    (
        "save_graphs",
        "1",
        TypeError,
        "The parameter 'save_graphs' must be (<class 'bool'>, <class 'int'>), but got <class 'str'>",
    ),
    (
        "save_graphs_path",
        3,
        TypeError,
        "The parameter 'save_graphs_path' must be <class 'str'>, but got <class 'int'>",
    ),
    (
        "save_graphs_path",
        "",
        ValueError,
        SET
        + "the 'save_graphs_path' or the 'print_file_path' is invalid type, it should be Non-empty string, but got ''.",
    ),
    (
        "env_config_path",
        "/no/such.json",
        ValueError,
        SET + "the 'env_config_path' file '/no/such.json' is not exists, please check",
    ),
    (
        "debug_level",
        2,
        ValueError,
        "For 'debug_level', the value should be context.DEBUG or context.RELEASE, but got 2.",
    ),
    (
        "check_bprop",
        1,
        TypeError,
        "The parameter 'check_bprop' must be <class 'bool'>, but got <class 'int'>",
    ),
    (
        "foo",
        1,
        ValueError,
        SET
        + "the keyword argument foo is not recognized! For detailed usage of 'set_context', please refer to the",
    ),
    (
        "save_compile_cache",
        True,
        ValueError,
        SET + "the keyword argument save_compile_cache is not recognized!",
    ),
    (
        "precompile_only",
        True,
        ValueError,
        SET
        + "the parameter 'precompile_only' has been removed since MindSpore 2.10 version. Please use the env",
    ),
    (
        "grad_for_scalar",
        True,
        ValueError,
        SET + "the parameter 'grad_for_scalar' has been removed since MindSpore 2.10 version.",
    ),
    (
        "exception_dump",
        "2",
        ValueError,
        SET + "the parameter 'exception_dump' has been removed since MindSpore 2.6 version.",
    ),
]


@pytest.mark.parametrize(("key", "value", "error", "text"), ERRORS, ids=[f"{k}={v}" for k, v, _, _ in ERRORS])
def test_errors(key: str, value: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        set_context(**{key: value})
    assert str(caught.value).startswith(text)


def test_nothing_is_set_if_one_value_is_wrong() -> None:
    with pytest.raises(ValueError, match="foo"):
        set_context(mode=GRAPH_MODE, foo=1)
    assert get_context("mode") == PYNATIVE_MODE


def test_several_keys_at_once() -> None:
    set_context(mode=GRAPH_MODE, device_target="CPU", max_call_depth=7)
    assert (config.mode, config.max_call_depth) == (GRAPH_MODE, 7)


@pytest.mark.parametrize("key", ["foo", "enable_auto_mixed_precision", "verify", "precompile_only"])
def test_unknown_keys_of_get_context(key: str) -> None:
    text = f"For 'context.get_context', the argument {key} is not recognized! For detailed usage of 'get_context', please refer to"
    with pytest.raises(ValueError, match="not recognized") as caught:
        get_context(key)
    assert str(caught.value).startswith(text)


def test_get_context_of_no_str() -> None:
    with pytest.raises(TypeError, match="attribute name must be string, not 'int'"):
        get_context(3)  # type: ignore[arg-type]


def test_dicts_are_copied() -> None:
    given = {"jit_level": "O1"}
    set_context(jit_config=given)
    given["jit_level"] = "O2"
    get_context("jit_config")["jit_level"] = "O0"
    assert get_context("jit_config") == {"jit_level": "O1"}


def test_the_path_of_graphs_is_absolute_and_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    set_context(save_graphs_path="a/../graphs")
    assert get_context("save_graphs_path") == os.path.realpath(tmp_path / "graphs")
    assert (tmp_path / "graphs").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="not a directory"):
        set_context(save_graphs_path="file")


def test_threads() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert get_context("runtime_num_threads") == cores
    assert config.runtime_num_threads == 0
    set_context(runtime_num_threads=3)
    assert get_context("runtime_num_threads") == config.runtime_num_threads == 3


@pytest.mark.parametrize(("text", "level"), [("", 1), ("0", 0), ("2", 2), ("on", 1)])
def test_dumps_by_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, level: int) -> None:
    set_context(save_graphs=1, save_graphs_path=str(tmp_path))
    monkeypatch.setenv("MS_DEV_SAVE_GRAPHS", text)
    assert config.graph_dump_level() == level
    assert config.graph_dump_path() == os.path.realpath(tmp_path)
    monkeypatch.setenv("MS_DEV_SAVE_GRAPHS_PATH", "elsewhere")
    assert config.graph_dump_path() == "elsewhere"


def test_set_device() -> None:
    set_device("CPU", 2)
    assert get_current_device() == ("CPU", 2)
    set_device("CPU")
    assert get_current_device() == ("CPU", 0)
    with pytest.raises(RuntimeError, match="Unsupported device target GPU"):
        set_device("GPU")
    with pytest.raises(ValueError, match="must be one of"):
        set_device("xx")
    with pytest.raises(TypeError, match="'device_target' must be <class 'str'>"):
        set_device(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'device_id' must be <class 'int'>"):
        set_device("CPU", "a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="The device id must bigger than"):
        set_device("CPU", -1)


def test_set_deterministic() -> None:
    set_deterministic(True)
    assert get_context("deterministic") == "ON"
    set_deterministic(False)
    assert get_context("deterministic") == "OFF"
    with pytest.raises(TypeError, match="'deterministic' must be <class 'bool'>"):
        set_deterministic(1)  # type: ignore[arg-type]
