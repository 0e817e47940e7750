"""Checkpoints: `save_checkpoint`, `load_checkpoint`, `load_param_into_net`, and what belongs to them.

Files are MindSpore's own format (checkpoint_format.py) or safetensors (safetensors_format.py). A crash at any moment leaves the old file or
the new one (atomic_file.py). Encryption is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from graphcell import buffer
from graphcell.common.generator import Generator
from graphcell.dtype import DType
from graphcell.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CheckpointError,
    CheckpointMismatchError,
)
from graphcell.nn.cell import Cell
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor
from graphcell.train import checkpoint_format, safetensors_format
from graphcell.train.atomic_file import BackgroundWriter, replace_file
from graphcell.train.checkpoint_format import Array, Entries
from graphcell.train.encryption import decrypt, encrypt, is_encrypted

__all__ = ["async_ckpt_thread_status", "load_checkpoint", "load_param_into_net", "save_checkpoint"]

_FORMATS = ("safetensors", "ckpt")
_background = BackgroundWriter()


# -- saving --------------------------------------------------------------------------------------------------------------
def save_checkpoint(
    save_obj: Any, ckpt_file_name: str, integrated_save: bool = True, async_save: bool | str = False,
    append_dict: dict[str, Any] | None = None, enc_key: bytes | None = None, enc_mode: str = "AES-GCM",
    choice_func: Callable[[str], bool] | None = None, crc_check: bool = False, format: str = "ckpt",
) -> None:  # fmt: skip
    """Saves Parameters to a file, which is readable by its owner only, and not writable.

    Args:
        save_obj: a Cell, a list of {'name': str, 'data': Tensor}, or a dict name → Parameter, Tensor or numpy array.
        ckpt_file_name: the path; the format's suffix is added where it is missing.
        append_dict: more entries: Tensors, numbers, strings, and Generators, whose states (see `Generator.get_state`) are saved.
        choice_func: called with each name; False leaves that one out.
        crc_check: add a checksum.
        format: 'ckpt' or 'safetensors'.
        async_save: True, "thread" or "process" copies the values and writes them in the background, by a thread. A later call waits for it, as
            does the end of the process.
        integrated_save: accepted; there is one device.
        enc_key, enc_mode: encrypts the file, of format 'ckpt': a key of 16, 24 or 32 bytes, and 'AES-GCM', 'AES-CBC' or 'SM4-CBC' (16 bytes). Needs
            the package `cryptography`.

    Raises:
        TypeError: arguments of the wrong kind. ValueError: an unknown format or mode, or a key that does not fit. OSError: the file cannot be written;
            an old file stays. NotImplementedError: encryption without the package `cryptography`.
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
    if not isinstance(integrated_save, bool):
        raise ArgumentTypeError(f"The input value must be a bool, but got {type(integrated_save).__name__}.")
    check_async_save(async_save)
    _check_kind("crc_check", crc_check, bool)
    _check_encryption("save_checkpoint", enc_key, enc_mode, "enc", format)
    path = _path_to_write(os.fspath(ckpt_file_name), format)
    entries = {name: value for name, value in _entries_of(save_obj) if choice_func is None or choice_func(name)}
    entries |= _appended(append_dict)
    _background.wait()
    if not async_save:
        replace_file(path, _encoded(entries, format, crc_check, enc_key, enc_mode))
        return
    values = {name: value if isinstance(value, str) else value.copy() for name, value in entries.items()}
    _background.replace_file(path, _encoded(values, format, crc_check, enc_key, enc_mode))


def _encoded(entries: dict[str, Array | str], format: str, checksum: bool, key: bytes | None, mode: str) -> Iterable[bytes | memoryview]:
    items = entries.items()
    if format != "ckpt":
        return safetensors_format.encode(items, checksum)
    pieces = checkpoint_format.encode(items, checksum)
    return pieces if key is None else encrypt(pieces, key, mode)


def _check_kind(name: str, value: Any, *kinds: type) -> None:
    if not isinstance(value, kinds):
        raise ArgumentValueError(f"The parameter '{name}' must be isinstance of {kinds[0] if len(kinds) == 1 else kinds}, but got {value}.")


def _check_encryption(function: str, key: Any, mode: Any, which: str, format: str) -> None:
    _check_kind(f"{which}_key", key, type(None), bytes)
    _check_kind(f"{which}_mode", mode, str)
    if key is not None and format != "ckpt":
        raise ArgumentValueError(
            f"For '{function}', when format is '{format}', the parameter '{which}_key' must be set to default value 'None'."
        )


def check_async_save(async_save: Any) -> None:
    """Refuses what `async_save` cannot be.

    Raises:
        ArgumentTypeError: not a bool or str. ArgumentValueError: another str than "process" and "thread".
    """
    if not isinstance(async_save, (bool, str)):
        raise ArgumentTypeError(f"For 'save_checkpoint', the parameter 'async_save' must be bool or str, but got {type(async_save)}.")
    if isinstance(async_save, str) and async_save not in ("process", "thread"):
        raise ArgumentValueError(
            f"For 'save_checkpoint', the argument 'async_save' can only be 'process' or 'thread',but got {async_save}."
        )


def _path_to_write(name: str, format: str) -> Path:
    if Path(name).is_dir() or name.endswith(os.sep):
        raise IsADirectoryError(
            f"For 'save_checkpoint', the parameter `ckpt_file_name`: {name} is a directory, it must be a file name."
        )
    # A link stays one, and what it leads to is written. The whole path, for the thread may write when the current folder is another.
    return Path(os.path.realpath(name if name.endswith(f".{format}") else f"{name}.{format}"))


def _entries_of(save_obj: Any) -> Entries:
    if isinstance(save_obj, Cell):
        save_obj.init_parameters_data()
        return [(p.name, p.array()) for p in save_obj.get_parameters()]
    if isinstance(save_obj, dict):
        return [(_name(n), _data(v)) for n, v in save_obj.items()]
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
        entries.append((_name(item["name"]), _data(item["data"])))
    return entries


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise ArgumentTypeError(
            "For save_checkpoint, when save_obj is a list of dict items, the name in dict should be string, "
            f"but got {type(name)}."
        )
    return name


def _data(value: Any) -> Array | str:
    if isinstance(value, Tensor):
        return value.array()
    if isinstance(value, np.ndarray):
        return Tensor(value).array()
    if isinstance(value, str):
        return value
    raise ArgumentTypeError(
        "For save_checkpoint, when save_obj is a list of dict items, the data in dict should be parameter, "
        f"but got {type(value)}."
    )


def _appended(append_dict: Any) -> dict[str, Array | str]:
    if append_dict is None:
        return {}
    if not isinstance(append_dict, dict):
        raise ArgumentTypeError(
            f"For 'save_checkpoint', the argument 'append_dict' must be dict, but got {type(append_dict)}."
        )
    entries: dict[str, Array | str] = {}
    for name, value in append_dict.items():
        if not isinstance(name, str) or not isinstance(value, (Tensor, Generator, str, bool, int, float)):
            raise ArgumentTypeError(
                "For 'save_checkpoint', the type of dict 'append_info' must be key: string, value: int, float, bool, str, Tensor "
                f"or Generator, but got key: {type(name)}, value: {type(value)}"
            )
        if isinstance(value, Generator):
            value = value.get_state()
        elif isinstance(value, (bool, int, float)):
            value = Tensor(value)
        entries[name] = _data(value)
    return entries


def async_ckpt_thread_status() -> bool:
    """True while a checkpoint is being saved in the background."""
    return _background.is_busy()


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
        choice_func: called with each name; False leaves that one out. Not called if prefixes are given.
        crc_check: check the file's checksum, and warn if it has none. That of a file of format 'ckpt' is checked anyway.
        format: 'ckpt' or 'safetensors'.
        remove_redundancy: accepted; there is one device.
        dec_key, dec_mode: the key and mode by which the file was encrypted, see `save_checkpoint`.

    Returns:
        dict name → Parameter (a str stays a str).

    Raises:
        ValueError: no such file, another format, a corrupt file, another key, or nothing left after filtering.
        TypeError: arguments of the wrong kind. RuntimeError: a Parameter does not fit `net`'s.
    """
    if not isinstance(ckpt_file_name, (str, os.PathLike)):
        raise ArgumentTypeError(
            f"For 'load_checkpoint', the argument 'ckpt_file_name' must be string, but got {type(ckpt_file_name)}."
        )
    _check_kind("crc_check", crc_check, bool)
    _check_kind("remove_redundancy", remove_redundancy, bool)
    _check_encryption("load_checkpoint", dec_key, dec_mode, "dec", format)
    _background.wait()
    path = _path_to_read(os.fspath(ckpt_file_name), format)
    left_out, wanted = _prefixes(filter_prefix), _prefixes(specify_prefix)
    result: dict[str, Any] = {}
    for name, value in _read(path, format, crc_check, dec_key, dec_mode):
        if left_out or wanted:
            chosen = (not wanted or name.startswith(wanted)) and not (left_out and name.startswith(left_out))
        else:
            chosen = choice_func is None or choice_func(name)
        if chosen:
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


def _read(path: Path, format: str, checksum: bool, key: bytes | None, mode: str) -> Entries:
    try:
        data = path.read_bytes()
    except OSError as e:
        raise CheckpointError(f"Failed to read the checkpoint file {path}. May not have permission to read it ({e}).") from e
    if key is not None:
        try:
            data = decrypt(data, key, mode)
        except CheckpointError as e:
            raise CheckpointError(
                f"Failed to read the checkpoint file {path}. The file may be encrypted or tempered with, please pass in the correct "
                "'dec_key' or check the file integrity.",
                hint=e.message,
            ) from e
    try:
        return checkpoint_format.decode(data, checksum) if format == "ckpt" else safetensors_format.decode(data, checksum)
    except CheckpointError as e:
        raise CheckpointError(
            f"Failed to read the checkpoint file {path}. The file may be corrupted, and the content cannot be parsed.",
            hint="it is encrypted: give 'dec_key' and 'dec_mode'" if is_encrypted(data) else e.message,
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
    if not items:
        raise ArgumentValueError(f"{owner} argument 'specify_prefix' or 'filter_prefix' can't be empty when it is a list or tuple.")
    if "" in items:
        raise ArgumentValueError(f"{owner} value of 'specify_prefix' or 'filter_prefix' can't include ''.")
    return tuple(items)


# -- into a net ----------------------------------------------------------------------------------------------------------
def load_param_into_net(
    net: Cell, parameter_dict: dict[str, Any], strict_load: bool = False, remove_redundancy: bool = False
) -> tuple[list[str], list[str]]:
    """Copies the values of Parameters into those of a Cell that have the same names. Nothing is changed if any of them does not fit.

    Args:
        strict_load: names and dtypes must agree. Else floats are converted to floats, and signed integers to signed integers; and a Parameter whose
            name is not in the dict takes an entry that has that name after some prefix and a dot.
        remove_redundancy: must be False; there is one device.

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
    _check_kind("remove_redundancy", remove_redundancy, bool)
    if remove_redundancy:
        raise ArgumentTypeError(f"{owner} 'remove_redundancy' can only be True for several devices, but there is one.")
    for name, value in parameter_dict.items():
        if not isinstance(name, str) or not isinstance(value, (Parameter, str)):
            raise ArgumentTypeError(
                "For 'parameter_dict', the element in the argument 'parameter_dict' should be a 'str' and 'Parameter' , "
                f"but got {type(name)} and {type(value)}."
            )
    params = {p.name: p for p in net.get_parameters()}
    entries = {name: value for name, value in parameter_dict.items() if isinstance(value, Parameter)}
    chosen = {name: entries[name] for name in params if name in entries}
    if not strict_load:
        chosen = _prefixed(list(params), entries) | chosen
    fitting = {name: _fitting(params[name], value, strict_load) for name, value in chosen.items()}
    for name, value in fitting.items():
        params[name].set_data(value)
    return [name for name in params if name not in chosen], [name for name in parameter_dict if name not in params]


def _prefixed(names: list[str], entries: dict[str, Parameter]) -> dict[str, Parameter]:
    """The entries that have one of `names` after a prefix and a dot: the longest of them, and of several entries for one the first."""
    found: dict[str, Parameter] = {}
    known = set(names)
    for entry, value in entries.items():
        parts = entry.split(".")
        suffixes = (".".join(parts[k:]) for k in range(len(parts)))
        name = next((suffix for suffix in suffixes if suffix in known), entry)
        if name != entry:
            found.setdefault(name, value)
    return found


def _fitting(param: Parameter, new: Parameter, strict: bool) -> Tensor:
    """The values of `new` in the shape of `param`, which `new` may have with further extents of 1 behind it.

    Raises:
        CheckpointMismatchError: shape or dtype do not fit.
    """
    name = param.name
    rank = len(param.shape)
    if new.shape[:rank] != param.shape or set(new.shape[rank:]) - {1}:
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
