"""Checkpoints: `save_checkpoint`, `load_checkpoint`, `load_param_into_net`.

Files are MindSpore's own format (checkpoint_format.py) or safetensors (safetensors_format.py). They are written beside their place and
renamed, so that a crash at any moment leaves the old file or the new one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from graphcell import buffer
from graphcell.dtype import DType
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
from graphcell.train import checkpoint_format, safetensors_format
from graphcell.train.checkpoint_format import Array, Entries

__all__ = ["load_checkpoint", "load_param_into_net", "save_checkpoint"]

_FORMATS = ("safetensors", "ckpt")
_READ_ONLY = 0o400


# -- saving --------------------------------------------------------------------------------------------------------------
def save_checkpoint(
    save_obj: Any, ckpt_file_name: str, integrated_save: bool = True, async_save: bool = False,
    append_dict: dict[str, Any] | None = None, enc_key: bytes | None = None, enc_mode: str = "AES-GCM",
    choice_func: Callable[[str], bool] | None = None, crc_check: bool = False, format: str = "ckpt",
) -> None:  # fmt: skip
    """Saves Parameters to a file, which is readable by its owner only, and not writable.

    Args:
        save_obj: a Cell, a list of {'name': str, 'data': Tensor}, or a dict name → Parameter or Tensor.
        ckpt_file_name: the path; the format's suffix is added where it is missing.
        append_dict: more entries: Tensors, numbers, strings.
        choice_func: called with each name; False leaves that one out.
        crc_check: add a checksum (format 'ckpt').
        format: 'ckpt' or 'safetensors'.
        integrated_save, async_save: accepted; files are written whole, before the call returns.

    Raises:
        TypeError: arguments of the wrong kind. ValueError: an unknown format. OSError: the file cannot be written; an old file stays.
        NotImplementedError: encryption, which is not there.
    """
    if not isinstance(save_obj, (Cell, list, dict)):
        raise ArgumentTypeError(
            f"For 'save_checkpoint', the parameter 'save_obj' must be nn.Cell, list or dict, but got {type(save_obj)}."
        )
    if not isinstance(ckpt_file_name, (str, os.PathLike)):
        raise ArgumentTypeError(
            f"For 'save_checkpoint', the parameter {ckpt_file_name} for checkpoint file name is invalid,"
            f"'ckpt_file_name' must be string, but got {type(ckpt_file_name)}."
        )
    if format not in _FORMATS:
        raise ArgumentValueError(f"For 'save_checkpoint', the format must be 'safetensors' or 'ckpt', but got {format}.")
    _refuse_encryption("save_checkpoint", enc_key)
    path = _path_to_write(os.fspath(ckpt_file_name), format)
    entries = [(n, v) for n, v in _entries_of(save_obj) if choice_func is None or choice_func(n)]
    entries += _appended(append_dict)
    if format == "ckpt":
        _write(path, checkpoint_format.encode(entries, crc_check))
    else:
        _write(path, safetensors_format.encode(entries))


def _refuse_encryption(function: str, key: Any) -> None:
    if key is not None:
        raise NotImplementedFeatureError(f"{function}: encryption is not there yet")


def _path_to_write(name: str, format: str) -> Path:
    if Path(name).is_dir() or name.endswith(os.sep):
        raise IsADirectoryError(
            f"For 'save_checkpoint', the parameter `ckpt_file_name`: {name} is a directory, it must be a file name."
        )
    return Path(name if name.endswith(f".{format}") else f"{name}.{format}")


def _entries_of(save_obj: Any) -> Entries:
    if isinstance(save_obj, Cell):
        save_obj.init_parameters_data()
        return [(p.name, p.array()) for p in save_obj.get_parameters()]
    if isinstance(save_obj, dict):
        return [(_name(n), _data(n, v)) for n, v in save_obj.items()]
    entries: Entries = []
    for item in save_obj:
        if isinstance(item, Parameter):
            entries.append((item.name, item.array()))
            continue
        if not isinstance(item, dict) or not {"name", "data"} <= set(item):
            raise ArgumentTypeError(
                "For save_checkpoint, save_obj should be a list of dict items, and the dict should have key values 'name' "
                f"and 'data', but got {type(item)} and {item}."
            )
        entries.append((_name(item["name"]), _data(item["name"], item["data"])))
    return entries


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise ArgumentTypeError(
            "For save_checkpoint, when save_obj is a list of dict items, the name in dict should be string, "
            f"but got {type(name)}."
        )
    return name


def _data(name: str, value: Any) -> Array | str:
    if isinstance(value, Tensor):
        return value.array()
    if isinstance(value, str):
        return value
    raise ArgumentTypeError(
        "For save_checkpoint, when save_obj is a list of dict items, the data in dict should be parameter, "
        f"but got {type(value)}."
    )


def _appended(append_dict: Any) -> Entries:
    if append_dict is None:
        return []
    if not isinstance(append_dict, dict):
        raise ArgumentTypeError(
            f"For 'save_checkpoint', the argument 'append_dict' must be dict, but got {type(append_dict)}."
        )
    entries: Entries = []
    for name, value in append_dict.items():
        if not isinstance(name, str) or not isinstance(value, (Tensor, str, bool, int, float)):
            raise ArgumentTypeError(
                "For 'save_checkpoint', the type of dict 'append_info' must be key: string, value: int, float, bool, str or "
                f"Tensor, but got key: {type(name)}, value: {type(value)}"
            )
        number = isinstance(value, (bool, int, float))
        entries.append((name, Tensor(value).array() if number else _data(name, value)))
    return entries


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    """Writes a file beside its place and renames it; on the way it has another name."""
    import tempfile  # takes as long to import as a whole layer; only needed here

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _READ_ONLY)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


# -- loading -------------------------------------------------------------------------------------------------------------
def load_checkpoint(
    ckpt_file_name: str, net: Cell | None = None, strict_load: bool = False, filter_prefix: Any = None,
    dec_key: bytes | None = None, dec_mode: str = "AES-GCM", specify_prefix: Any = None,
    choice_func: Callable[[str], bool] | None = None, crc_check: bool = False, remove_redundancy: bool = False,
    format: str = "ckpt",
) -> dict[str, Any]:  # fmt: skip
    """Reads a checkpoint.

    Args:
        net: a Cell to load the Parameters into as well.
        strict_load: dtypes must agree too.
        filter_prefix, specify_prefix: a str, or a list of them: names that begin so are left out, or are the only ones read.
        choice_func: called with each name; False leaves that one out.
        crc_check: check the file's checksum, if it has one.
        format: 'ckpt' or 'safetensors'.
        remove_redundancy: accepted; there is one device.

    Returns:
        dict name → Parameter (a str stays a str).

    Raises:
        ValueError: no such file, another format, a corrupt file, or nothing left after filtering.
        TypeError: arguments of the wrong kind. RuntimeError: a Parameter does not fit `net`'s.
    """
    if not isinstance(ckpt_file_name, (str, os.PathLike)):
        raise ArgumentTypeError(
            f"For 'load_checkpoint', the argument 'ckpt_file_name' must be string, but got {type(ckpt_file_name)}."
        )
    _refuse_encryption("load_checkpoint", dec_key)
    path = _path_to_read(os.fspath(ckpt_file_name), format)
    left_out, wanted = _prefixes(filter_prefix), _prefixes(specify_prefix)
    result: dict[str, Any] = {}
    for name, value in _read(path, format, crc_check):
        chosen = (not wanted or name.startswith(wanted)) and not (left_out and name.startswith(left_out))
        if chosen and (choice_func is None or choice_func(name)):
            result[name] = value if isinstance(value, str) else Parameter(Tensor.of_array(value), name=name)
    if not result:
        raise CheckpointError(
            "The loaded parameter dict is empty after filter or specify, please check whether 'filter_prefix' or "
            "'specify_prefix' are set correctly."
        )
    if net is not None:
        load_param_into_net(net, result, strict_load)
    return result


def _path_to_read(name: str, format: str) -> Path:
    owner = "For 'load_checkpoint', the checkpoint file"
    path = Path(os.path.abspath(name))
    if format not in _FORMATS:
        raise ArgumentValueError(
            f"{owner} should end with '.ckpt' or '.safetensors', please input the correct 'format'."
        )
    if path.suffix != f".{format}":
        raise CheckpointError(f"{owner} format must same with 'format', but got file_name:'{name}', format:'{format}'")
    if not path.is_file():
        raise CheckpointError(
            f"{owner}: {path} does not exist, please check whether the 'ckpt_file_name' is correct."
        )
    return path


def _read(path: Path, format: str, checksum: bool) -> Entries:
    try:
        data = path.read_bytes()
        return checkpoint_format.decode(data, checksum) if format == "ckpt" else safetensors_format.decode(data)
    except CheckpointError as e:
        raise CheckpointError(
            f"Failed to read the checkpoint file {path}. The file may be corrupted, and the content cannot be parsed.",
            hint=e.message,
        ) from e


def _prefixes(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    items = (value,) if isinstance(value, str) else value
    owner = "For 'load_checkpoint', the"
    if not isinstance(items, (list, tuple)) or not all(isinstance(v, str) for v in items):
        raise ArgumentTypeError(
            f"{owner} type of 'specify_prefix' or 'filter_prefix' must be string, list[string] or tuple[string], "
            f"but got {type(value)}."
        )
    if "" in items:
        raise ArgumentValueError(f"{owner} value of 'specify_prefix' or 'filter_prefix' can't include ''.")
    return tuple(items)


# -- into a net ----------------------------------------------------------------------------------------------------------
def load_param_into_net(
    net: Cell, parameter_dict: dict[str, Any], strict_load: bool = False, remove_redundancy: bool = False
) -> tuple[list[str], list[str]]:
    """Copies the values of Parameters into those of a Cell that have the same names. Nothing is changed if any of them does not fit.

    Args:
        strict_load: dtypes must agree; else floats are converted to floats, and signed integers to signed integers.
        remove_redundancy: accepted; there is one device.

    Returns:
        names in the Cell that were not loaded, and names in the dict that the Cell does not have.

    Raises:
        TypeError: arguments of the wrong kind. RuntimeError: shapes or dtypes do not fit.
    """
    owner = "For 'load_param_into_net', the argument"
    if not isinstance(net, Cell):
        raise ArgumentTypeError(f"{owner} 'net' should be a Cell, but got {type(net)}.")
    if not isinstance(parameter_dict, dict):
        raise ArgumentTypeError(f"{owner} 'parameter_dict' should be a dict, but got {type(parameter_dict)}.")
    if not isinstance(strict_load, bool):
        raise ArgumentTypeError(f"{owner} 'strict_load' must be a bool, but got {type(strict_load)}.")
    for name, value in parameter_dict.items():
        if not isinstance(name, str) or not isinstance(value, (Parameter, str)):
            raise ArgumentTypeError(
                "For 'parameter_dict', the element in the argument 'parameter_dict' should be a 'str' and 'Parameter' , "
                f"but got {type(name)} and {type(value)}."
            )
    pairs: list[tuple[Parameter, Tensor]] = []
    missing: list[str] = []
    for param in net.get_parameters():
        new = parameter_dict.get(param.name)
        if isinstance(new, Parameter):
            pairs.append((param, _fitting(param, new, strict_load)))
        else:
            missing.append(param.name)
    for param, value in pairs:
        param.set_data(value)
    names = {p.name for p in net.get_parameters()}
    return missing, [n for n in parameter_dict if n not in names]


def _fitting(param: Parameter, new: Parameter, strict: bool) -> Tensor:
    """The values of `new` in the shape of `param` ((1,) and () count as the same).

    Raises:
        CheckpointMismatchError: shape or dtype do not fit.
    """
    name = param.name
    if param.shape != new.shape and {param.shape, new.shape} != {(), (1,)}:
        raise CheckpointMismatchError(
            f"For 'load_param_into_net', {name} in the argument 'net' should have the same shape as {name} in the argument "
            f"'parameter_dict'. But got its shape {param.shape} in the argument 'net' and shape {new.shape} in the argument "
            "'parameter_dict'."
        )
    if param.dtype is not new.dtype and (strict or not _convertible(new.dtype, param.dtype)):
        raise CheckpointMismatchError(
            f"For 'load_param_into_net', {name} in the argument 'net' should have the same type as {name} in the argument "
            f"'parameter_dict'. but got its type {param.dtype} in the argument 'net' and type {new.dtype} in the argument "
            "'parameter_dict'."
        )
    return Tensor.of_array(buffer.copy(np.asarray(new.array()).reshape(param.shape)))  # shared memory could be written unseen


def _convertible(source: DType, target: DType) -> bool:
    return (source.is_float and target.is_float) or (
        source.is_integer and source.signed and target.is_integer and target.signed
    )
