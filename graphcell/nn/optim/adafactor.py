"""AdaFactor: N. Shazeer, M. Stern, "Adafactor: adaptive learning rates with sublinear memory cost" (ICML 2018)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.optim.checks import check_flag, check_fraction, check_not_negative, check_positive
from graphcell.nn.optim.optimizer import Optimizer
from graphcell.nn.optim.updates import average
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.tensor import Tensor


class AdaFactor(Optimizer):
    """g / sqrt(v), where for matrices v is known by its means over rows and columns; clipped to a root mean square of `clip_threshold`,
    times the learning rate, averaged with `beta1`.

    Args:
        params: Parameters, or groups, see `Optimizer`.
        learning_rate: a number, with `relative_step` False; default None: min(0.01, 1 / sqrt(step)).
        eps: added to g²; the least root mean square of a Parameter for `scale_parameter`. Default (1e-30, 0.001).
        clip_threshold, decay_rate: default 1 and 0.8: v is averaged with 1 - step**-decay_rate.
        beta1: default 0.9; 0: updates are not averaged.
        weight_decay: times the learning rate and the Parameter, for all Parameters. Default 0.
        scale_parameter: the learning rate, unless it changes with the steps, is times the root mean square of the Parameter. Default True.
        relative_step: the learning rate follows the step. Default True.
        warmup_init: it starts with 1e-6 times the step. Default False.
        compression: v of vectors is float16. Default False.
        loss_scale: see `Optimizer`.

    Raises:
        TypeError, ValueError: arguments of other kinds; a learning rate beside `relative_step`; `warmup_init` without it.

    State by name: exp_avg.<name>; exp_avg_sq_row_<name>, exp_avg_sq_col_<name>, exp_avg_sq_<name>, the v; afactor_step.
    """

    spares_norms = False

    def __init__(
        self, params: Any, learning_rate: Any = None, eps: tuple[float, float] = (1e-30, 1e-3), clip_threshold: float = 1.0, decay_rate: float = 0.8,
        beta1: float = 0.9, weight_decay: float = 0.0, scale_parameter: bool = True, relative_step: bool = True, warmup_init: bool = False,
        compression: bool = False, loss_scale: float = 1.0,
    ):  # fmt: skip
        if learning_rate is not None and relative_step:
            raise ArgumentValueError("For AdaFactor, cannot combine manual lr and relative_step options.")
        if warmup_init and not relative_step:
            raise ArgumentValueError("For AdaFactor, warmup_init requires relative_step=True.")
        if learning_rate is None and not relative_step:
            raise ArgumentValueError("For AdaFactor, learning_rate must be provided when relative_step is False.")
        super().__init__(0.0 if learning_rate is None else learning_rate, params, weight_decay, loss_scale)
        if not isinstance(eps, (list, tuple)) or len(eps) != 2:
            raise ArgumentTypeError(f"For 'AdaFactor', the 'eps' must be a list or tuple of two numbers, but got {eps}.")
        self.eps = tuple(check_not_negative("AdaFactor", f"eps[{k}]", e) for k, e in enumerate(eps))
        self.clip_threshold = check_positive("AdaFactor", "clip_threshold", clip_threshold)
        self.decay_rate = check_fraction("AdaFactor", "decay_rate", decay_rate)
        self.beta1 = check_not_negative("AdaFactor", "beta1", beta1)
        flags = {"scale_parameter": scale_parameter, "relative_step": relative_step, "warmup_init": warmup_init, "compression": compression}
        for name, value in flags.items():
            check_flag("AdaFactor", name, value)
        self.scale_lr = scale_parameter and not self.dynamic_lr
        self.relative_step, self.warmup_init = relative_step, warmup_init
        self.exp_avg = self.slots("exp_avg") if self.beta1 else None
        self.exp_avg_sq_row = self._state("exp_avg_sq_row", lambda shape: shape[:-1] if len(shape) > 1 else (1,))
        self.exp_avg_sq_col = self._state("exp_avg_sq_col", lambda shape: shape[:-2] + shape[-1:] if len(shape) > 1 else (1,))
        self.exp_avg_sq = self._state("exp_avg_sq", lambda shape: (1,) if len(shape) > 1 else shape, compression)
        self.step = Parameter(Tensor([0.0], dt.float32), name="afactor_step")

    def _state(self, prefix: str, shape: Callable[[tuple[int, ...]], tuple[int, ...]], compression: bool = False) -> ParameterTuple:
        def slot(p: Parameter) -> Parameter:
            dtype = dt.float16 if compression and p.ndim < 2 else dt.float32
            return Parameter(ops.zeros(shape(p.shape), dtype), name=f"{prefix}_{p.name}")

        return ParameterTuple([slot(p) for p in self.parameters])

    def construct(self, gradients: Any) -> tuple[bool, ...]:
        grads = self.gradients_centralization(self.checked(gradients))  # the loss scale cancels out
        ops.assign(self.step, self.step + 1.0)
        step: Any = (self.step * 1.0).reshape(())
        decays, rates = self.decays(), self.rates()
        for k, (p, g) in enumerate(zip(self.parameters, grads)):
            wide = ops.cast(g, dt.float32)
            update = wide * self._inverse_root(k, wide * wide + self.eps[0], 1.0 - step**-self.decay_rate)
            update = update / ops.maximum(_root_mean_square(update) / self.clip_threshold, 1.0)
            rate = self._rate_of(ops.cast(p, dt.float32), step, rates[k])
            update = update * rate
            if self.exp_avg is not None:
                update = average(self.exp_avg[k], update, self.beta1)
            if isinstance(decays[k], Tensor) or decays[k]:
                update = update + p * (decays[k] * rate)
            ops.assign(p, p - ops.cast(update, p.dtype))
        return self._updated

    def _rate_of(self, p: Any, step: Any, rate: Any) -> Any:
        if self.relative_step:
            most = step * 1e-6 if self.warmup_init else 1e-2
            rate = ops.minimum(1.0 / ops.sqrt(step), most)
        return rate * ops.maximum(_root_mean_square(p), self.eps[1]) if self.scale_lr else rate

    def _inverse_root(self, k: int, square: Any, beta2: Any) -> Any:
        """1 / sqrt(v), after `square` has been averaged into the state of the Parameter k."""
        if square.ndim < 2:
            return ops.rsqrt(average(self.exp_avg_sq[k], square, beta2))
        row, col = average(self.exp_avg_sq_row[k], square.mean(-1), beta2), average(self.exp_avg_sq_col[k], square.mean(-2), beta2)
        return ops.rsqrt(row / row.mean(-1, True)).expand_dims(-1) * ops.rsqrt(col).expand_dims(-2)


def _root_mean_square(x: Any) -> Any:
    return ops.sqrt((x * x).mean())
