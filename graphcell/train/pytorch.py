"""Weights of PyTorch models: a `state_dict` into the Cell that is built alike, and back.

The two sides name a layer by its attributes; what is inside a layer has other names (`weight` of a normalisation is `gamma` here), and the weights
of 1-D convolutions another shape. Both are translated by walking the Cell. docs/from_pytorch.md goes through it. PyTorch itself is
needed only to read its own files.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphcell import nn
from graphcell.errors import ArgumentTypeError, ArgumentValueError, CheckpointError, CheckpointMismatchError
from graphcell.nn.cell import Cell
from graphcell.tensor import Tensor
from graphcell.train import safetensors_format

__all__ = ["load_pytorch_state_dict", "pytorch_state_dict"]

Array = np.ndarray[Any, Any]
_NORM = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_NAMES: tuple[tuple[tuple[type[Cell], ...], dict[str, str]], ...] = (
    ((nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm, nn.LayerNorm, nn.GroupNorm, *_INSTANCE_NORMS), _NORM),
    ((nn.Embedding,), {"embedding_table": "weight"}),
    ((nn.PReLU,), {"w": "weight"}),
)
"""PyTorch's names of what layers hold, where they are not the same."""


def load_pytorch_state_dict(
    net: Cell, state_dict: Mapping[str, Any] | str | Path, name_map: Mapping[str, str] | None = None, strict: bool = False
) -> tuple[list[str], list[str]]:  # fmt: skip
    """Copies the weights of a PyTorch model into a Cell whose layers have the same attribute names. Nothing is copied if a shape does not fit.

    Args:
        state_dict: names → torch Tensors, numpy arrays or Tensors; or the path of a .safetensors file, or of a .pt, .pth or .bin file that
            `torch.save` wrote (which needs PyTorch, and reads weights only).
        name_map: PyTorch's path of a module → the path in the Cell, where they differ: {"features.0": "conv1", "module": ""}.
        strict: raise if a name has no counterpart on either side.

    Warns: if not one name has a counterpart.

    Returns:
        names in the Cell that got no value, and names in the state_dict that were not used (`num_batches_tracked`, which counts steps
        and has no counterpart, is not among them).

    Raises:
        TypeError: arguments of the wrong kind. ValueError: a file that is missing or corrupt. RuntimeError: shapes, or with `strict`
        names, do not fit.
    """
    if not isinstance(net, Cell):
        raise ArgumentTypeError(f"load_pytorch_state_dict: 'net' must be a Cell, but is {type(net).__name__}")
    given = _read(Path(state_dict)) if isinstance(state_dict, (str, Path)) else state_dict
    if not isinstance(given, Mapping):
        raise ArgumentTypeError(
            f"load_pytorch_state_dict: 'state_dict' must be a dict or the path of a file, but is {type(given).__name__}",
            hint="of a model, give model.state_dict()" if hasattr(given, "state_dict") else "",
        )
    ours = {theirs: (key, cell) for theirs, key, cell, _ in _state(net)}
    values: dict[str, Tensor] = {}
    unused: list[str] = []
    for name, value in given.items():
        if name.endswith("num_batches_tracked"):
            continue
        key, cell = ours.get(_mapped(name, name_map or {}), ("", None))
        if cell is None:
            unused.append(name)
        else:
            values[key] = Tensor(_shaped(cell, key, _as_array(name, value)))
    missing = [key for key, _ in ours.values() if key not in values]
    if strict and (missing or unused):
        raise CheckpointMismatchError(
            f"load_pytorch_state_dict: names without a counterpart. In {type(net).__name__}: {', '.join(missing) or 'none'}. "
            f"In the state_dict: {', '.join(unused) or 'none'}.",
            hint="name_map={'path.there': 'path.here'} translates paths of modules",
        )
    if unused and not values:
        warnings.warn(
            f"load_pytorch_state_dict: nothing was loaded: {type(net).__name__} has no counterpart of any of the {len(unused)} names, {unused[0]} for one. "
            "name_map={'path.there': 'path.here'} translates paths of modules.",
            stacklevel=2,
        )
    net.load_state_dict(values, strict=False)
    return missing, unused


def pytorch_state_dict(net: Cell) -> dict[str, Array]:
    """The Parameters and buffers of a Cell under PyTorch's names and in its shapes, as numpy arrays that share no memory with them.

    `model.load_state_dict({k: torch.from_numpy(v) for k, v in pytorch_state_dict(net).items()})` loads them. Values of bfloat16,
    which numpy does not have, are given as float32.
    """
    found: dict[str, Array] = {}
    for theirs, key, cell, tensor in _state(net):
        value = np.array(tensor.array(), order="C")
        if value.dtype.kind == "V":  # how numpy sees bfloat16
            value = value.astype(np.float32)
        found[theirs] = value.squeeze(2) if _is_flat(cell, key) else value
    return found


# -- names and shapes ----------------------------------------------------------------------------------------------------
def _state(net: Cell) -> Iterator[tuple[str, str, Cell, Tensor]]:
    """PyTorch's name, the name here, the layer and the value, of each Parameter and persistent buffer."""
    for key, value in net.state_dict().items():
        if not isinstance(value, Tensor):
            continue  # extra state of user-defined Cells
        path, _, attribute = key.rpartition(".")
        cell = net.get_sub_cell(path)
        if isinstance(cell, _INSTANCE_NORMS) and attribute.startswith("moving_"):
            continue  # which neither side uses
        for kinds, names in _NAMES:
            if isinstance(cell, kinds):
                attribute = names.get(attribute, attribute)
        theirs = _module_path(net, path)
        yield f"{theirs}.{attribute}" if theirs else attribute, key, cell, value


def _module_path(net: Cell, path: str) -> str:
    """PyTorch's path of the layer at `path`."""
    outer, _, last = path.rpartition(".")
    holder = net.get_sub_cell(outer)
    if isinstance(holder, nn.BatchNorm3d):
        last = ""  # it holds a BatchNorm2d, which has all
    if isinstance(holder, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        last = {"dense1": "linear1", "dense2": "linear2"}.get(last, last)
    return ".".join(part for part in (outer, last) if part)


def _mapped(name: str, name_map: Mapping[str, str]) -> str:
    """`name` with the longest path that `name_map` has for its beginning replaced."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        path = ".".join(parts[:count])
        if path in name_map:
            return ".".join(part for part in (name_map[path], *parts[count:]) if part)
    return name


def _is_flat(cell: Cell, key: str) -> bool:
    """True for weights (out, in, 1, kernel), which are (out, in, kernel) there."""
    return isinstance(cell, (nn.Conv1d, nn.Conv1dTranspose)) and key.rpartition(".")[2] == "weight"


def _shaped(cell: Cell, key: str, value: Array) -> Array:
    return value[:, :, None, :] if _is_flat(cell, key) and value.ndim == 3 else value


# -- values --------------------------------------------------------------------------------------------------------------
def _as_array(name: str, value: Any) -> Array:
    if isinstance(value, Tensor):
        return value.array()
    if hasattr(value, "detach"):  # a torch Tensor
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    if not isinstance(value, np.ndarray):
        raise ArgumentTypeError(
            f"load_pytorch_state_dict: {name} must be a Tensor or a numpy array, but is {type(value).__name__}",
            hint="of a checkpoint that holds more than weights, give the entry with the state_dict",
        )
    return value


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise CheckpointError(f"load_pytorch_state_dict: there is no file {path}")
    if path.suffix == ".safetensors":
        return dict(safetensors_format.decode(path.read_bytes()))
    if path.suffix not in (".pt", ".pth", ".bin"):
        raise ArgumentValueError(f"load_pytorch_state_dict: the file must end in .safetensors, .pt, .pth or .bin, but is {path}")
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]
    except ImportError as e:
        raise CheckpointError(
            f"load_pytorch_state_dict: reading {path} needs PyTorch, which is not installed",
            hint="where it is, safetensors.torch.save_file(model.state_dict(), 'model.safetensors') writes a file that can be read without it",
        ) from e
    try:
        found: Mapping[str, Any] = torch.load(path, map_location="cpu", weights_only=True)  # never runs code from the file
    except Exception as e:  # whatever PyTorch raises for such files
        raise CheckpointError(f"load_pytorch_state_dict: PyTorch cannot read {path} ({e})") from e
    return found
