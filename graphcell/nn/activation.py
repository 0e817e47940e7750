"""Activations as Cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.common.initializer import initializer
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.cell import Cell
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class ReLU(Cell):
    """max(x, 0)."""

    def construct(self, x: Any) -> Any:
        return ops.relu(x)


class ReLU6(Cell):
    """min(max(x, 0), 6)."""

    def construct(self, x: Any) -> Any:
        return ops.relu6(x)


class LeakyReLU(Cell):
    """x where x >= 0, else alpha * x. Default alpha 0.2."""

    def __init__(self, alpha: float = 0.2):
        super().__init__()
        self.alpha = alpha

    def construct(self, x: Any) -> Any:
        return ops.leaky_relu(x, self.alpha)


class ELU(Cell):
    """x where x > 0, else alpha * (e**x - 1)."""

    def __init__(self, alpha: float = 1.0):
        super().__init__()
        self.alpha = alpha

    def construct(self, x: Any) -> Any:
        return ops.elu(x, self.alpha)


class GELU(Cell):
    """Gaussian error linear unit; `approximate` (the default) uses the tanh formula."""

    def __init__(self, approximate: bool = True):
        super().__init__()
        if not isinstance(approximate, bool):
            raise ArgumentTypeError(f"For 'GELU', the type of 'approximate' must be bool, but got {type(approximate).__name__}.")
        self.approximate = approximate

    def construct(self, x: Any) -> Any:
        return ops.gelu(x, approximate="tanh" if self.approximate else "none")


class Sigmoid(Cell):
    """1 / (1 + e**-x)."""

    def construct(self, input_x: Any) -> Any:
        return ops.sigmoid(input_x)


class LogSigmoid(Cell):
    """log(sigmoid(x))."""

    def construct(self, input_x: Any) -> Any:
        return ops.logsigmoid(input_x)


class Tanh(Cell):
    """Hyperbolic tangent."""

    def construct(self, x: Any) -> Any:
        return ops.tanh(x)


class SiLU(Cell):
    """x * sigmoid(x)."""

    def construct(self, x: Any) -> Any:
        return ops.silu(x)


class Mish(Cell):
    """x * tanh(softplus(x))."""

    def construct(self, input_x: Any) -> Any:
        return ops.mish(input_x)


class HSwish(Cell):
    """x * relu6(x + 3) / 6."""

    def construct(self, input_x: Any) -> Any:
        return ops.hardswish(input_x)


class HSigmoid(Cell):
    """relu6(x + 3) / 6."""

    def construct(self, input_x: Any) -> Any:
        return ops.hardsigmoid(input_x)


class Softplus(Cell):
    """log(1 + e**x)."""

    def construct(self, x: Any) -> Any:
        return ops.softplus(x)


class Softsign(Cell):
    """x / (1 + |x|)."""

    def construct(self, x: Any) -> Any:
        return ops.softsign(x)


class Softmax(Cell):
    """Softmax along `axis`, by default the last."""

    def __init__(self, axis: int | tuple[int, ...] = -1):
        super().__init__()
        self.axis = axis

    def construct(self, x: Any) -> Any:
        return ops.softmax(x, self.axis)  # type: ignore[arg-type]

    def extend_repr(self) -> str:
        return f"axis={self.axis}"


class LogSoftmax(Cell):
    """Logarithm of softmax along `axis`, by default the last."""

    def __init__(self, axis: int = -1):
        super().__init__()
        self.axis = axis

    def construct(self, x: Any) -> Any:
        return ops.log_softmax(x, self.axis)


class PReLU(Cell):
    """x where x >= 0, else w * x with trained w: one, or one a channel."""

    def __init__(self, channel: int = 1, w: Any = 0.25):
        super().__init__()
        if channel < 1:
            raise ArgumentValueError(f"For 'PReLU', 'channel' must be positive, but got {channel}.")
        if isinstance(w, Tensor):
            init: Any = w
        else:
            init = initializer(float(w), (channel,), dt.float32)
        self.w = Parameter(init, name="a")

    def construct(self, x: Any) -> Any:
        return ops.prelu(x, self.w)


class Identity(Cell):
    """x as it is."""

    def construct(self, x: Any) -> Any:
        return x


_ACTIVATIONS: dict[str, Callable[[], Cell]] = {
    "softmax": Softmax, "logsoftmax": LogSoftmax, "relu": ReLU, "relu6": ReLU6, "tanh": Tanh, "gelu": GELU, "elu": ELU, "sigmoid": Sigmoid,
    "prelu": PReLU, "leakyrelu": LeakyReLU, "hswish": HSwish, "hsigmoid": HSigmoid, "logsigmoid": LogSigmoid, "softsign": Softsign,
    "silu": SiLU, "mish": Mish, "softplus": Softplus,
}


def get_activation(name: Any) -> Any:
    """The activation of a name ('relu', …); None for None; a Cell or function as it is.

    Raises:
        KeyError: for an unknown name.
    """
    if name is None or callable(name):
        return name
    if isinstance(name, str) and name.lower() in _ACTIVATIONS:
        return _ACTIVATIONS[name.lower()]()
    from graphcell.errors import MissingKeyError

    raise MissingKeyError(f"For 'get_activation', the activation must be one of {sorted(_ACTIVATIONS)}, but got {name!r}.")
