"""Activations as Cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.common.initializer import initializer
from graphcell.errors import ArgumentTypeError, ArgumentValueError, MissingKeyError, ShapeError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_bool, check_choice, check_number, is_int, positive_int
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class _Fixed(Cell):
    """An activation without settings."""

    def __init__(self) -> None:
        super().__init__()


class ReLU(_Fixed):
    """max(x, 0)."""

    def construct(self, input: Any) -> Any:
        return ops.relu(input)


class ReLU6(_Fixed):
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


class RReLU(Cell):
    """x where x > 0, else a * x, with a fresh a uniform on [lower, upper) for each element, in training and outside of it."""

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3):
        super().__init__()
        for name, value in (("lower", lower), ("upper", upper)):
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise ArgumentTypeError(
                    f"For 'RReLU', the type of '{name}' must be float or int, but got {type(value).__name__}."
                )
        if lower > upper:
            raise ArgumentValueError(
                f"For 'RReLU', the value of 'upper' must be greater than 'lower', but got {upper} and {lower}."
            )
        self.lower, self.upper = float(lower), float(upper)

    def construct(self, x: Any) -> Any:
        return ops.rrelu(x, self.lower, self.upper)


class ELU(Cell):
    """x where x > 0, else alpha * (e**x - 1)."""

    def __init__(self, alpha: float = 1.0):
        super().__init__()
        self.alpha = alpha

    def construct(self, x: Any) -> Any:
        return ops.elu(x, self.alpha)


class CELU(Cell):
    """max(0, x) + min(0, alpha * (e**(x / alpha) - 1))."""

    def __init__(self, alpha: float = 1.0):
        super().__init__()
        self.alpha = alpha

    def construct(self, x: Any) -> Any:
        return ops.celu(x, self.alpha)


class SeLU(_Fixed):
    """Scaled exponential linear unit."""

    def construct(self, input_x: Any) -> Any:
        return ops.selu(input_x)


class GELU(Cell):
    """Gaussian error linear unit; `approximate` (the default) uses the tanh formula."""

    def __init__(self, approximate: bool = True):
        super().__init__()
        self.approximate = check_bool("GELU", "approximate", approximate)

    def construct(self, x: Any) -> Any:
        return ops.gelu(x, approximate="tanh" if self.approximate else "none")


class FastGelu(_Fixed):
    """x * sigmoid(1.702 x), an approximation of GELU."""

    def construct(self, x: Any) -> Any:
        return ops.fast_gelu(x)


class Sigmoid(_Fixed):
    """1 / (1 + e**-x)."""

    def construct(self, x: Any) -> Any:
        return ops.sigmoid(x)


class LogSigmoid(_Fixed):
    """log(sigmoid(x))."""

    def construct(self, input_x: Any) -> Any:
        return ops.logsigmoid(input_x)


class Tanh(_Fixed):
    """Hyperbolic tangent."""

    def construct(self, x: Any) -> Any:
        return ops.tanh(x)


class Tanhshrink(_Fixed):
    """x - tanh(x)."""

    def construct(self, x: Any) -> Any:
        return ops.tanhshrink(x)


class SiLU(_Fixed):
    """x * sigmoid(x)."""

    def construct(self, x: Any) -> Any:
        return ops.silu(x)


class Mish(_Fixed):
    """x * tanh(softplus(x))."""

    def construct(self, input_x: Any) -> Any:
        return ops.mish(input_x)


class GLU(Cell):
    """Half of x along `axis`, times the sigmoid of the other half."""

    def __init__(self, axis: int = -1):
        super().__init__()
        self.dim = axis

    def construct(self, x: Any) -> Any:
        return ops.glu(x, self.dim)


class HSwish(_Fixed):
    """x * relu6(x + 3) / 6."""

    def construct(self, input: Any) -> Any:
        return ops.hardswish(input)


class HSigmoid(_Fixed):
    """relu6(x + 3) / 6."""

    def construct(self, input: Any) -> Any:
        return ops.hardsigmoid(input)


class Hardtanh(Cell):
    """x cut off below `min_val` and above `max_val`."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0):
        super().__init__()
        check_number("Hardtanh", "min_val", min_val)
        check_number("Hardtanh", "max_val", max_val)
        if min_val >= max_val:
            raise ArgumentValueError(f"For Hardtanh, min_val should be less than max_val,but got {min_val} and {max_val}")
        self.min_val, self.max_val = min_val, max_val

    def construct(self, x: Any) -> Any:
        return ops.hardtanh(x, self.min_val, self.max_val)


class HShrink(Cell):
    """x where |x| > lambd, else 0."""

    def __init__(self, lambd: float = 0.5):
        super().__init__()
        self.lambd = lambd

    def construct(self, input: Any) -> Any:
        return ops.hardshrink(input, self.lambd)


class SoftShrink(Cell):
    """x moved towards 0 by lambd, and 0 where |x| <= lambd."""

    def __init__(self, lambd: float = 0.5):
        super().__init__()
        self.lambd = lambd

    def construct(self, input: Any) -> Any:
        return ops.softshrink(input, self.lambd)


class Threshold(Cell):
    """x where x > threshold, else `value`."""

    def __init__(self, threshold: float, value: float):
        super().__init__()
        self.threshold, self.value = threshold, value

    def construct(self, input_x: Any) -> Any:
        return ops.threshold(input_x, self.threshold, self.value)


class Softplus(_Fixed):
    """log(1 + e**x). MindSpore has it as a function only."""

    def construct(self, x: Any) -> Any:
        return ops.softplus(x)


class Softsign(_Fixed):
    """x / (1 + |x|)."""

    def construct(self, x: Any) -> Any:
        return ops.softsign(x)


class Softmax(Cell):
    """Softmax along `axis` (an int, or a tuple of one), by default the last.

    Raises:
        TypeError: axis is neither.
    """

    def __init__(self, axis: Any = -1):
        super().__init__()
        if not is_int(axis) and not (isinstance(axis, tuple) and all(map(is_int, axis))):
            raise ArgumentTypeError(
                f"For 'Softmax', the type of 'axis' should be one of '[int, tuple of int]', but got {type(axis)}."
            )
        self.axis = axis

    def construct(self, input: Any) -> Any:
        return ops.softmax(input, self.axis)


class LogSoftmax(Cell):
    """Logarithm of softmax along `axis`, by default the last."""

    def __init__(self, axis: int = -1):
        super().__init__()
        self.axis = axis

    def construct(self, x: Any) -> Any:
        return ops.log_softmax(x, self.axis)


class Softmin(Cell):
    """Softmax of -x along `axis`, by default the last."""

    def __init__(self, axis: int = -1):
        super().__init__()
        self.axis = axis

    def construct(self, x: Any) -> Any:
        return ops.softmin(x, self.axis)


class Softmax2d(_Fixed):
    """Softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def construct(self, x: Any) -> Any:
        if x.ndim not in (3, 4):
            raise ShapeError(f"For 'Softmax2d', the dimension of 'x' must be 3 or 4, but got {x.ndim}.")
        return ops.softmax(x, -3)


class PReLU(Cell):
    """x where x >= 0, else w * x with trained w: one, or one a channel.

    Args:
        channel: 1, or the channels of the input.
        w: the first value: a number, a list of `channel` floats, or a Tensor.

    Raises:
        TypeError, ValueError: settings that do not fit.
    """

    def __init__(self, channel: int = 1, w: Any = 0.25):
        super().__init__()
        positive_int("PReLU", "channel", channel)
        if not isinstance(w, (int, float, list, Tensor)) or isinstance(w, bool):
            raise ArgumentTypeError(
                f"For 'PReLU', the 'w' only supported float, list and tensor, but got {type(w).__name__}."
            )
        if isinstance(w, (int, float)):
            start: Any = initializer(float(w), (channel,), dt.float32)
        else:
            start = w if isinstance(w, Tensor) else Tensor(w, dt.float32)
            if start.shape != (channel,):
                raise ShapeError(
                    "For 'PReLU', the dimension of 'w' must be 1, and the elements number should be equal to the "
                    f"'channel', but got 'w' shape {start.shape}, the 'channel' {channel}."
                )
        self.w = Parameter(start, name="a")

    def construct(self, x: Any) -> Any:
        return ops.prelu(x, self.w)


class LRN(Cell):
    """x / (bias + alpha * sum of x² over the channels at most `depth_radius` away) ** beta, for x (N, C, H, W).

    Raises:
        ValueError: a negative radius, or another region than 'ACROSS_CHANNELS'.
    """

    def __init__(
        self, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5, norm_region: str = "ACROSS_CHANNELS"
    ):
        super().__init__()
        if not is_int(depth_radius) or depth_radius < 0:
            raise ArgumentValueError(f"For 'LRN', the 'depth_radius' must be int and must >= 0, but got '{depth_radius}' with type 'int'.")
        self.depth_radius, self.bias, self.alpha, self.beta = depth_radius, bias, alpha, beta
        self.norm_region = check_choice("LRN", "norm_region", norm_region, ("ACROSS_CHANNELS",))

    def construct(self, input_x: Any) -> Any:
        return ops.lrn(input_x, self.depth_radius, self.bias, self.alpha, self.beta, self.norm_region)


_ACTIVATIONS: dict[str, Callable[..., Cell]] = {
    "softmin": Softmin, "softmax": Softmax, "softmax2d": Softmax2d, "logsoftmax": LogSoftmax, "relu": ReLU, "relu6": ReLU6,
    "rrelu": RReLU, "silu": SiLU, "tanh": Tanh, "tanhshrink": Tanhshrink, "hardtanh": Hardtanh, "gelu": GELU,
    "fast_gelu": FastGelu, "elu": ELU, "sigmoid": Sigmoid, "softsign": Softsign, "prelu": PReLU, "leakyrelu": LeakyReLU,
    "hswish": HSwish, "hsigmoid": HSigmoid, "logsigmoid": LogSigmoid, "softshrink": SoftShrink, "hshrink": HShrink,
    "threshold": Threshold, "mish": Mish,
}  # fmt: skip


def get_activation(name: Any, prim_name: str | None = None) -> Cell | None:
    """The activation Cell of a name ('relu', …); None for None.

    Raises:
        KeyError: for an unknown name.
    """
    if name is None:
        return None
    if name not in _ACTIVATIONS:
        owner = f"For '{prim_name}', the" if prim_name else "The"
        raise MissingKeyError(f"{owner} 'name' must be in {list(_ACTIVATIONS)}, but got {name}.")
    return _ACTIVATIONS[name]()
