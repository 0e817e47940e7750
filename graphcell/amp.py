"""Mixed precision: levels for whole networks, loss scaling, and whether gradients are finite.

Half precision gradients that are too small for their dtype become 0: a `LossScaler` multiplies the loss by a large number and divides the
gradients by it again; steps whose gradients are not finite (`all_finite`) are left out, and make the number smaller.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.common.marks import jit_class
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.checks import is_number
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor
from graphcell.train.amp import auto_mixed_precision, build_train_network, custom_mixed_precision, get_black_list, get_white_list
from graphcell.train.loss_scale_manager import DynamicLossScaleManager, FixedLossScaleManager, LossScaleManager

__all__ = [
    "DynamicLossScaleManager", "DynamicLossScaler", "FixedLossScaleManager", "LossScaleManager", "LossScaler", "StaticLossScaler",
    "all_finite", "auto_mixed_precision", "build_train_network", "custom_mixed_precision", "get_black_list", "get_white_list",
]  # fmt: skip


def all_finite(inputs: Any) -> Tensor:
    """Whether all elements of all Tensors are finite: a Bool scalar.

    Args:
        inputs: a tuple or list of Tensors, which may be nested.

    Raises:
        TypeError: it is none, or holds something else. ValueError: it is empty.
    """
    if not isinstance(inputs, (tuple, list)):
        raise ArgumentTypeError(f"For 'all_finite', the 'inputs' must be a tuple or list of Tensors, but got {type(inputs).__name__}.")
    if not inputs:
        raise ArgumentValueError("For 'all_finite', the 'inputs' must hold at least one Tensor.")
    finite: Tensor = ops.stack([all_finite(x) if isinstance(x, (tuple, list)) else ops.isfinite(_tensor("all_finite", x)).all() for x in inputs])
    return finite.all()  # type: ignore[no-any-return]


def _tensor(owner: str, x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise ArgumentTypeError(f"For '{owner}', the inputs must be Tensors, but got {type(x).__name__}.")
    return x


def _map(function: Callable[[Tensor], Tensor], inputs: Any) -> Any:
    """`function` of a Tensor, or of each in nested tuples, lists and dicts."""
    if isinstance(inputs, (tuple, list)):
        return type(inputs)([_map(function, x) for x in inputs])
    if isinstance(inputs, dict):
        return {name: _map(function, x) for name, x in inputs.items()}
    return function(_tensor("LossScaler", inputs))


@jit_class
class LossScaler(ABC):
    """Base of the loss scalers. Subclasses define all three methods."""

    @abstractmethod
    def scale(self, inputs: Any) -> Any:
        """`inputs`, a Tensor or a tuple of them, multiplied by the scale."""

    @abstractmethod
    def unscale(self, inputs: Any) -> Any:
        """`inputs`, a Tensor or a tuple of them, divided by the scale."""

    @abstractmethod
    def adjust(self, grads_finite: Any) -> Any:
        """Changes the scale after a step: `grads_finite`, a Bool scalar, says whether its gradients were finite."""


class StaticLossScaler(LossScaler):
    """A scale that stays.

    Args:
        scale_value: the scale.

    Raises:
        TypeError: it is no number. ValueError: it is less than 1.
    """

    def __init__(self, scale_value: float):
        if not is_number(scale_value) or isinstance(scale_value, Tensor):
            raise ArgumentTypeError(f"The type of 'scale_value' should be one of '['float', 'int']', but got type '{type(scale_value).__name__}'.")
        if scale_value < 1.0:
            raise ArgumentValueError(f"The argument 'scale_value' must be > 1, but got {scale_value}")
        self.scale_value = Parameter(Tensor(scale_value, dt.float32), name="scale_value")

    def scale(self, inputs: Any) -> Any:
        return _map(lambda x: x * self.scale_value.astype(x.dtype), inputs)

    def unscale(self, inputs: Any) -> Any:
        return _map(lambda x: x * ops.reciprocal(self.scale_value).astype(x.dtype), inputs)

    def adjust(self, grads_finite: Any) -> bool:
        """False: the scale stays."""
        return False


class DynamicLossScaler(StaticLossScaler):
    """A scale that is divided by `scale_factor` after a step with infinite gradients (down to 1), and multiplied by it after
    `scale_window` steps without.

    Args:
        scale_value: the first scale.
        scale_factor: what it is multiplied and divided by.
        scale_window: how many steps make it larger.

    Raises:
        TypeError: scale_value is no number, another no int. ValueError: the scale is less than 1, another not positive.
    """

    def __init__(self, scale_value: float, scale_factor: int, scale_window: int):
        super().__init__(scale_value)
        self.scale_window, self.scale_factor = _positive("scale_window", scale_window), _positive("scale_factor", scale_factor)
        self.counter = Parameter(Tensor(0, dt.int32), name="counter")

    def adjust(self, grads_finite: Any) -> bool:
        """Changes the scale; True."""
        larger = self.scale_value * self.scale_factor
        larger = ops.select(ops.isfinite(larger), larger, self.scale_value)
        grown = ops.select(self.counter == self.scale_window - 1, larger, self.scale_value)
        smaller = ops.maximum(self.scale_value / self.scale_factor, 1.0)
        finite = Tensor(grads_finite) if isinstance(grads_finite, bool) else grads_finite
        ops.assign(self.scale_value, ops.select(finite, grown, smaller))
        ops.assign(self.counter, (self.counter + 1) % self.scale_window * finite.astype(dt.int32))
        return True


def _positive(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ArgumentTypeError(f"The '{name}' must be int, but got '{type(value).__name__}'")
    if value <= 0:
        raise ArgumentValueError(f"The '{name}' must be int and must > 0, but got '{value}' with type 'int'.")
    return value
