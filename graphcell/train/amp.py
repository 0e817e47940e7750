"""Mixed precision for whole networks: which parts compute in float16 or bfloat16, and training steps for such networks.

Enters: a network. Leaves: one whose Cells have the dtype that their level says (`Cell.to_float`), with casts at the seams. Parameters stay
float32; what a Cell computes of them is cast. Refuses: other levels and dtypes, lists that hold something else.

* O0: nothing changes.
* O1: Cells and primitive operations of the white list compute in half precision; what leaves them is float32.
* O2: all but the Cells of the black list compute in half precision; the network's outputs are float32.
* O3: everything does.
* auto: each function of a list computes in half precision or in float32, the others in what comes (ops/automatic.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence, Set
from dataclasses import replace
from functools import wraps
from types import FunctionType, MethodType
from typing import Any

from graphcell import dtype as dt
from graphcell import nn, ops
from graphcell.dtype import DType
from graphcell.errors import ArgumentTypeError, ArgumentValueError, NotImplementedFeatureError
from graphcell.frontend import call
from graphcell.jit import JitFunction
from graphcell.nn.cell import Cell, cast_floats
from graphcell.nn.optim.updater import Updater
from graphcell.ops.automatic import automatic
from graphcell.ops.primitive import Primitive
from graphcell.records import dataclass
from graphcell.tensor import state
from graphcell.train.loss_scale_manager import DynamicLossScaleManager, LossScaleManager

_WHITE_CELLS = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Conv1dTranspose, nn.Conv2dTranspose, nn.Conv3dTranspose, nn.Dense, nn.LSTMCell, nn.RNNCell, nn.GRUCell,
)  # fmt: skip
_WHITE_PRIMITIVES = (
    "Conv2D", "Conv3D", "Conv2DTranspose", "Conv3DTranspose", "Conv2DBackpropInput", "MatMul", "BatchMatMul", "PReLU", "ReLU", "Ger",
)  # fmt: skip
_LAYERS = {
    "MatMul": ("Dense",), "Conv2D": ("Conv1d", "Conv2d"), "Conv3D": ("Conv3d",), "Conv2DTranspose": ("Conv1dTranspose", "Conv2dTranspose"),
    "Conv3DTranspose": ("Conv3dTranspose",),
}  # fmt: skip
"""The layers that compute by a primitive of another name than theirs."""
_BLACK_CELLS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm)
_LEVELS = ("O0", "O1", "O2", "O3", "auto")


def get_white_list() -> list[type]:
    """The Cells and primitives that compute in half precision at level O1, as a list of your own."""
    return [*_WHITE_CELLS, *(getattr(ops, name) for name in _WHITE_PRIMITIVES if hasattr(ops, name))]


def get_black_list() -> list[type]:
    """The Cells that stay float32 at level O2, as a list of your own."""
    return list(_BLACK_CELLS)


# -- casts at the seams --------------------------------------------------------------------------------------------------
class _OutputTo16(Cell):
    """A Cell whose outputs are cast to half precision."""

    def __init__(self, backbone: Cell, dtype: DType = dt.float16):
        super().__init__(auto_prefix=False)
        self._backbone, self.dtype = backbone, dtype

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        return cast_floats(self._backbone(*args, **kwargs), self.dtype)


class _OutputTo32(Cell):
    """A Cell whose outputs are cast to float32."""

    def __init__(self, backbone: Cell):
        super().__init__(auto_prefix=False)
        self._backbone = backbone

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        return cast_floats(self._backbone(*args, **kwargs), dt.float32)


class _WithLossCell(Cell):
    """The loss of a network, in float32."""

    def __init__(self, backbone: Cell, loss_fn: Cell):
        super().__init__(auto_prefix=False)
        self._backbone, self._loss_fn = backbone, loss_fn

    def construct(self, data: Any, label: Any) -> Any:
        return self._loss_fn(cast_floats(self._backbone(data), dt.float32), cast_floats(label, dt.float32))


_WithLossCell.__name__ = _WithLossCell.__qualname__ = "WithLossCell"


class _Converted(Primitive):
    """A primitive of the white list: computes in half precision, and gives float32."""

    def __init__(self, primitive: Primitive, dtype: DType):
        super().__init__(primitive.name)
        self.primitive, self.dtype, self.attrs = primitive, dtype, primitive.attrs

    def __getattr__(self, name: str) -> Any:
        if name == "primitive":
            raise AttributeError(name)
        return getattr(self.primitive, name)

    def __call__(self, *args: Any) -> Any:
        return cast_floats(self.primitive(*cast_floats(args, self.dtype)), dt.float32)


def _give_float32(cell: Cell, args: Any, output: Any) -> Any:
    """The forward hook of Cells of the white list."""
    return cast_floats(output, dt.float32)


# -- levels --------------------------------------------------------------------------------------------------------------
def auto_mixed_precision(network: Any, amp_level: str = "O0", dtype: DType = dt.float16) -> Any:
    """`network` at a level of mixed precision, see the top of this module. The network itself is changed; use what is returned.

    Args:
        network: a Cell; at level 'auto' also a function, in whose place another is returned.
        amp_level: 'O0', 'O1', 'O2', 'O3', 'auto'.
        dtype: float16 or bfloat16.

    Raises:
        TypeError: network is no Cell, and at level 'auto' no function either. ValueError: another level or dtype.
    """
    if not isinstance(network, Cell):
        if amp_level == "auto" and isinstance(network, (FunctionType, MethodType, JitFunction)):
            _check_dtype(dtype)
            return _with_automatic_casts(network, dtype)
        what = "Cell or function" if amp_level == "auto" else "Cell"
        raise ArgumentTypeError(f"For amp_level '{amp_level}', the network type should be {what}.")
    _check_dtype(dtype)
    if amp_level == "O0":
        return network
    if amp_level not in _LEVELS:
        raise ArgumentValueError(f"The amp level {amp_level} is not supported")
    before = getattr(network, "_amp_level", None)
    if before is not None:
        warnings.warn(
            f"The network's auto mixed-precision level is adjusted from {before} to {amp_level}, and repeated calls to mixed-precision "
            "interfaces can cause performance degradation.", stacklevel=2,
        )  # fmt: skip
    if amp_level == "O1":
        _narrow_listed(network, get_white_list(), dtype)
    elif amp_level == "auto":
        network._auto_to = dtype
    elif amp_level == "O2":
        network = _OutputTo32(_narrow_all_but(network, get_black_list(), dtype))
    else:
        network = _OutputTo32(network.to_float(dtype))
    network._amp_level = amp_level  # type: ignore[attr-defined]
    return network


def _with_automatic_casts(function: Any, dtype: DType) -> Any:
    """A function that calls `function` with them."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with automatic(dtype):
            return function(*args, **kwargs) if state.trace is None else call(function, *args, **kwargs)

    return run


def custom_mixed_precision(
    network: Cell, *, white_list: list[type] | None = None, black_list: list[type] | None = None, dtype: DType = dt.float16
) -> Cell:
    """`network` with mixed precision by one list of yours. The network itself is changed; use what is returned.

    Args:
        network: a Cell.
        white_list: classes of Cells and primitives that compute in half precision, as at level O1.
        black_list: classes of Cells that stay float32, as at level O2.
        dtype: float16 or bfloat16.

    Raises:
        TypeError: network is no Cell, or a list holds something else. ValueError: no list, two of them, or another dtype.
    """
    if not isinstance(network, Cell):
        raise ArgumentTypeError("The network type should be Cell.")
    if white_list is None and black_list is None:
        raise ArgumentValueError("For custom_mixed_precision, one of white_list and black_list must be provided.")
    if white_list is not None and black_list is not None:
        raise ArgumentValueError(
            "For custom_mixed_precision, the white_list or black_list cannot be provided at the same time, please provide one or the other."
        )
    _check_dtype(dtype)
    if white_list is not None:
        _check_list("white_list", white_list, (Cell, Primitive))
        return _narrow_listed(network, white_list, dtype)
    assert black_list is not None
    _check_list("black_list", black_list, (Cell,))
    return _OutputTo32(_narrow_all_but(network, black_list, dtype))


def _check_dtype(dtype: Any) -> None:
    if dtype not in (dt.float16, dt.bfloat16):
        raise ArgumentValueError(f"The dtype should be one of (mstype.float16, mstype.bfloat16), but got {dtype}.")


def _check_list(name: str, given: Any, bases: tuple[type, ...]) -> None:
    if not isinstance(given, list):
        raise ArgumentTypeError(f"The type of {name} should be list, but got {type(given)}")
    listed = " and ".join(f"'{base.__name__}'" for base in bases)
    for item in given:
        if not isinstance(item, type):
            raise ArgumentTypeError(f"The element in {name} should be a class, but got {item}")
        if not issubclass(item, bases):
            raise ArgumentTypeError(f"The subclass of element in {name} should be one of {listed}, but got {item}")


def _narrow_listed(network: Cell, white_list: Sequence[type], dtype: DType) -> Cell:
    """Cells in `network`, and primitives that they hold, whose class is listed compute in `dtype`. What a user has set `to_float` stays."""
    names = [name for kind in white_list if issubclass(kind, Primitive) for name in (kind.__name__, *_LAYERS.get(kind.__name__, ()))]
    return _narrow_inside(network, {*white_list, *(getattr(nn, name) for name in names if hasattr(nn, name))}, dtype)


def _narrow_inside(network: Cell, listed: Set[type], dtype: DType) -> Cell:
    if network._to_float is not None:
        return network
    if type(network) in listed:
        _narrow(network, dtype)
        network.register_forward_hook(_give_float32)
        return network
    for name, value in tuple(vars(network).items()):
        if isinstance(value, Primitive) and type(value) in listed:
            setattr(network, name, _Converted(value, dtype))
    for cell in network.cells():
        _narrow_inside(cell, listed, dtype)
    return network


def _narrow(cell: Cell, dtype: DType) -> None:
    """`cell.to_float(dtype)`, but for Cells inside for which a user has set it."""
    cell._compute_in(dtype)
    for inner in cell.cells():
        if inner._to_float is None:
            _narrow(inner, dtype)


def _narrow_all_but(network: Cell, black_list: Sequence[type], dtype: DType) -> Cell:
    network.to_float(dtype)
    return _keep_wide(network, black_list, dtype)


def _keep_wide(network: Cell, black_list: Sequence[type], dtype: DType) -> Cell:
    """Cells in `network` of a listed class compute in float32, and give `dtype`."""
    for name, cell in network.name_cells().items():
        if isinstance(cell, tuple(black_list)):
            network._cells[name] = _OutputTo16(cell.to_float(dt.float32), dtype)
        else:
            _keep_wide(cell, black_list, dtype)
    return network


# -- training steps ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Config:
    """What a level says of a training step; keyword arguments of `build_train_network` say otherwise."""

    keep_batchnorm_fp32: bool = False
    cast_model_type: DType = dt.float32
    loss_scale_manager: LossScaleManager | None = None

    @staticmethod
    def of_level(level: str) -> _Config:
        if level == "O2":
            return _Config(True, dt.float16, DynamicLossScaleManager())
        return _Config(False, dt.float16) if level == "O3" else _Config()


def build_train_network(
    network: Cell, optimizer: Any, loss_fn: Any = None, level: str = "O0", boost_level: str = "O0", **kwargs: Any
) -> Cell:
    """A training step of a network in mixed precision.

    Args:
        network: the network; with loss_fn None, its output is the loss.
        optimizer: the optimizer of its Parameters.
        loss_fn: the loss, a Cell; it computes in float32.
        level: 'O0' to 'O3' or 'auto', see `auto_mixed_precision`. O2 also scales the loss (`DynamicLossScaleManager`).
        boost_level: 'O0'.
        kwargs: `cast_model_type` (float16 or float32), `keep_batchnorm_fp32` (bool), `loss_scale_manager` (or None): instead of what the level
            says.

    Returns:
        An `nn.TrainOneStepCell`, or an `nn.TrainOneStepWithLossScaleCell` where steps that overflow are left out; set to training.

    Raises:
        TypeError, ValueError: arguments that are of the wrong kind. NotImplementedError: a boost level.
    """
    if not isinstance(optimizer, Updater):
        raise ArgumentTypeError(f"The type of 'optimizer' should be 'Optimizer', but got type '{type(optimizer).__name__}'.")
    _check_levels(level, boost_level)
    _check_options(kwargs)
    config = replace(_Config.of_level(level), **kwargs)
    network = _narrowed_as(network, config, level)
    if loss_fn is not None:
        network = _with_loss(network, loss_fn, config.cast_model_type)
    manager = config.loss_scale_manager
    update = manager.get_update_cell() if manager is not None else None
    if update is not None:
        return nn.TrainOneStepWithLossScaleCell(network, optimizer, scale_sense=update).set_train()
    return nn.TrainOneStepCell(network, optimizer, None if manager is None else manager.get_loss_scale()).set_train()


def _check_levels(level: Any, boost_level: Any) -> None:
    if not isinstance(level, str):
        raise ArgumentTypeError(f"The argument `level` must be a string in {list(_LEVELS)},but got type {type(level)}.")
    if level not in _LEVELS:
        raise ArgumentValueError(f"The 'level' should be in : {list(_LEVELS)}, but got {level}.")
    if boost_level not in ("O0", "O1", "O2"):
        raise ArgumentValueError(f"The 'boost_level' should be in : ['O0', 'O1', 'O2'], but got {boost_level}.")
    if boost_level != "O0":
        raise NotImplementedFeatureError(f"build_train_network: there are no boost algorithms, but boost_level is {boost_level!r}")


def _check_options(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if name not in ("cast_model_type", "keep_batchnorm_fp32", "loss_scale_manager"):
            raise ArgumentValueError(f"Unsupported arg '{name}'")
        if name == "cast_model_type" and value not in (dt.float16, dt.float32):
            raise ArgumentTypeError(f"The 'cast_model_type' should be one of [Float16, Float32], but got '{value}'.")
        if name == "keep_batchnorm_fp32" and not isinstance(value, bool):
            raise ArgumentTypeError(f"The type of 'keep_batchnorm_fp32' should be 'bool', but got type '{type(value).__name__}'.")
        if name == "loss_scale_manager" and value is not None and not isinstance(value, LossScaleManager):
            raise ArgumentTypeError(f"The type of 'loss_scale_manager' should be 'LossScaleManager', but got type '{type(value).__name__}'.")


def _narrowed_as(network: Cell, config: _Config, level: str) -> Cell:
    if config.cast_model_type is dt.float16:
        network.to_float(dt.float16)
        return _keep_wide(network, get_black_list(), dt.float16) if config.keep_batchnorm_fp32 else network
    if level == "O2" and not config.keep_batchnorm_fp32:
        return network.to_float(dt.float16)
    return network if level in ("O2", "O3") else auto_mixed_precision(network, level)


def _with_loss(network: Cell, loss_fn: Any, cast_model_type: DType) -> Cell:
    if not isinstance(loss_fn, Cell):
        raise ArgumentTypeError(f"The type of 'loss_fn' should be 'Cell', but got type '{type(loss_fn).__name__}'.")
    wide = cast_model_type is dt.float16 or getattr(network, "_amp_level", None) in ("O2", "O3")
    return _WithLossCell(network, loss_fn) if wide else nn.WithLossCell(network, loss_fn)
