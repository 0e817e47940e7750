"""Checkpoints: `save_checkpoint`, `load_checkpoint`, `load_param_into_net`.

Files are MindSpore's own format (checkpoint_format.py). They are written beside their place and renamed, so that a crash at any moment
leaves the old file or the new one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphcell.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CheckpointError,
    CheckpointMismatchError,
    NotImplementedFeatureError,
)
from graphcell.nn.cell import Cell
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor
from graphcell.train.checkpoint_format import decode, encode

Array = np.ndarray[Any, Any]
Entries = list[tuple[str, "Array | str"]]


def save_checkpoint(save_obj: Any, ckpt_file_name: str, integrated_save: bool = True, async_save: bool = False, append_dict: dict[str, Any] | None = None,
                    enc_key: bytes | None = None, enc_mode: str = "AES-GCM", choice_func: Callable[[str], bool] | None = None, crc_check: bool = False,
                    format: str = "ckpt") -> None:
    """Saves Parameters to a file.

    Args:
        save_obj: a Cell, a list of {'name': str, 'data': Tensor}, or a dict name → Parameter or Tensor.
        ckpt_file_name: the path; '.ckpt' is added where it is missing.
        append_dict: more entries: Tensors, numbers, strings.
        choice_func: called with each name; False leaves that one out.
        integrated_save, async_save: accepted; files are written whole, before the call returns.

    Raises:
        TypeError: arguments of the wrong kind. ValueError: an unknown format. OSError: the file cannot be written; an old file stays.
        NotImplementedError: encryption and checksums, which are not there.
    """
    if not isinstance(save_obj, (Cell, list, dict)):
        raise ArgumentTypeError(f"For 'save_checkpoint', the parameter 'save_obj' must be nn.Cell, list or dict, but got {type(save_obj)}.")
    if not isinstance(ckpt_file_name, (str, os.PathLike)):
        raise ArgumentTypeError(
            f"For 'save_checkpoint', the parameter {ckpt_file_name} for checkpoint file name is invalid,'ckpt_file_name' must be string, "
            f"but got {type(ckpt_file_name)}."
        )
    _check_options("save_checkpoint", enc_key, crc_check, format)
    entries = [(n, v) for n, v in _entries_of(save_obj) if choice_func is None or choice_func(n)]
    entries += [(n, _appended(n, v)) for n, v in (append_dict or {}).items()]
    name = os.fspath(ckpt_file_name)
    if not os.path.basename(name):
        raise IsADirectoryError(f"For 'save_checkpoint', the parameter 'ckpt_file_name': {name!r} is a directory, it must be a file name.")
    _write(Path(name if name.endswith(".ckpt") else f"{name}.ckpt"), entries)


def _check_options(function: str, key: Any, crc_check: bool, format: str) -> None:
    if format not in ("ckpt", "safetensors"):
        raise ArgumentValueError(f"For '{function}', the 'format' must be 'ckpt' or 'safetensors', but got {format!r}.")
    if format == "safetensors":
        raise NotImplementedFeatureError(f"{function}: the format safetensors is not there yet", hint="use format='ckpt'")
    if key is not None or crc_check:
        raise NotImplementedFeatureError(f"{function}: encryption and checksums are not there yet")


def _entries_of(save_obj: Any) -> Entries:
    if isinstance(save_obj, Cell):
        save_obj.init_parameters_data()
        return [(p.name, p.array()) for p in save_obj.get_parameters()]
    if isinstance(save_obj, dict):
        return [(_checked_name(n), _data(n, v)) for n, v in save_obj.items()]
    entries: Entries = []
    for item in save_obj:
        if not isinstance(item, dict) or not {"name", "data"} <= set(item):
            raise ArgumentTypeError("For 'save_checkpoint', each element of a list must be a dict with the keys 'name' and 'data'.")
        entries.append((_checked_name(item["name"]), _data(item["name"], item["data"])))
    return entries


def _checked_name(name: Any) -> str:
    if not isinstance(name, str):
        raise ArgumentTypeError(f"For 'save_checkpoint', names must be strings, but got {type(name)}.")
    return name


def _data(name: str, value: Any) -> Array | str:
    if isinstance(value, Tensor):
        return value.array()
    if isinstance(value, str):
        return value
    raise ArgumentTypeError(f"For 'save_checkpoint', the value of {name} must be a Parameter or Tensor, but got {type(value)}.")


def _appended(name: str, value: Any) -> Array | str:
    if isinstance(value, (Tensor, str)):
        return _data(name, value)
    if isinstance(value, (bool, int, float)):
        return Tensor(value).array()
    raise ArgumentTypeError(f"For 'save_checkpoint', the value of {name} in 'append_dict' must be a Tensor, number or str, but got {type(value)}.")


def _write(path: Path, entries: Entries) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    import tempfile

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in encode(entries):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_checkpoint(ckpt_file_name: str, net: Cell | None = None, strict_load: bool = False, filter_prefix: Any = None, dec_key: bytes | None = None,
                    dec_mode: str = "AES-GCM", specify_prefix: Any = None, choice_func: Callable[[str], bool] | None = None, crc_check: bool = False,
                    remove_redundancy: bool = False, format: str = "ckpt") -> dict[str, Any]:
    """Reads a checkpoint.

    Args:
        net: a Cell to load the Parameters into as well.
        strict_load: dtypes must agree too.
        filter_prefix, specify_prefix: a str, or a list of them: names that begin so are left out, or are the only ones read.
        choice_func: called with each name; False leaves that one out.

    Returns:
        dict name → Parameter (a str stays a str).

    Raises:
        ValueError: no such file, another format, a corrupt file, or nothing left after filtering.
        TypeError: arguments of the wrong kind.
    """
    if not isinstance(ckpt_file_name, (str, os.PathLike)):
        raise ArgumentTypeError(f"For 'load_checkpoint', the argument 'ckpt_file_name' must be string, but got {type(ckpt_file_name)}.")
    _check_options("load_checkpoint", dec_key, crc_check, format)
    path = Path(os.path.abspath(os.fspath(ckpt_file_name)))
    if not path.is_file():
        raise CheckpointError(f"For 'load_checkpoint', the checkpoint file: {path} does not exist, please check whether the 'ckpt_file_name' is correct.")
    if path.suffix != ".ckpt":
        raise CheckpointError(f"For 'load_checkpoint', the checkpoint file format must same with 'format', but got file_name:'{path.name}', format:'{format}'")
    try:
        entries = decode(path.read_bytes())
    except CheckpointError as e:
        raise CheckpointError(f"Failed to read the checkpoint file {path}. The file may be corrupted, and the content cannot be parsed.", hint=e.message) from e
    left_out, wanted = _prefixes("filter_prefix", filter_prefix), _prefixes("specify_prefix", specify_prefix)
    result: dict[str, Any] = {}
    for name, value in entries:
        chosen = (not wanted or name.startswith(wanted)) and not (left_out and name.startswith(left_out))
        if chosen and (choice_func is None or choice_func(name)):
            result[name] = value if isinstance(value, str) else Parameter(Tensor.of_array(value), name=name)
    if not result:
        raise CheckpointError(
            "The loaded parameter dict is empty after filter or specify, please check whether 'filter_prefix' or 'specify_prefix' are set correctly."
        )
    if net is not None:
        load_param_into_net(net, {n: p for n, p in result.items() if isinstance(p, Parameter)}, strict_load)
    return result


def _prefixes(what: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    items: Sequence[Any] = (value,) if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(v, str) for v in items):
        raise ArgumentTypeError(f"For 'load_checkpoint', the '{what}' must be a str, or a list or tuple of str, but got {value!r}.")
    return tuple(items)


def load_param_into_net(net: Cell, parameter_dict: dict[str, Any], strict_load: bool = False, remove_redundancy: bool = False) -> tuple[list[str], list[str]]:
    """Copies the values of Parameters into those of a Cell that have the same names.

    Nothing is changed if any of them does not fit.

    Returns:
        names in the Cell that were not loaded, and names in the dict that the Cell does not have.

    Raises:
        TypeError: arguments of the wrong kind. RuntimeError: shapes, or with `strict_load` dtypes, differ.
    """
    if not isinstance(net, Cell):
        raise ArgumentTypeError(f"For 'load_param_into_net', the argument 'net' should be a Cell, but got {type(net)}.")
    if not isinstance(parameter_dict, dict):
        raise ArgumentTypeError(f"For 'load_param_into_net', the argument 'parameter_dict' should be a dict, but got {type(parameter_dict)}.")
    for name, value in parameter_dict.items():
        if not isinstance(name, str) or not isinstance(value, (Parameter, str)):
            raise ArgumentTypeError(
                "For 'parameter_dict', the element in the argument 'parameter_dict' should be a 'str' and 'Parameter' , "
                f"but got {type(name)} and {type(value)}."
            )
    pairs: list[tuple[Parameter, Parameter]] = []
    missing: list[str] = []
    for param in net.get_parameters():
        new = parameter_dict.get(param.name)
        if not isinstance(new, Parameter):
            missing.append(param.name)
            continue
        _check_fit(param, new, strict_load)
        pairs.append((param, new))
    for param, new in pairs:
        param.set_data(new)
    names = {p.name for p in net.get_parameters()}
    return missing, [n for n in parameter_dict if n not in names]


def _check_fit(param: Parameter, new: Parameter, strict: bool) -> None:
    name = param.name
    if param.shape != new.shape:
        raise CheckpointMismatchError(
            f"For 'load_param_into_net', {name} in the argument 'net' should have the same shape as {name} in the argument 'parameter_dict'. But got its shape "
            f"{param.shape} in the argument 'net' and shape {new.shape} in the argument 'parameter_dict'."
        )
    if strict and param.dtype is not new.dtype:
        raise CheckpointMismatchError(
            f"For 'load_param_into_net', {name} in the argument 'net' should have the same type as {name} in the argument 'parameter_dict'. but got its type "
            f"{param.dtype} in the argument 'net' and type {new.dtype} in the argument 'parameter_dict'."
        )
