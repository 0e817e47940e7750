"""`Optimizer`: parameters in groups, learning rates, weight decay.

An optimizer is a Cell called with the gradients. Inside a compiled training step its updates become part of the same executable and
write the Parameters in their own buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.cell import Cell
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.tensor import Tensor

_GROUP_KEYS = ("params", "lr", "weight_decay", "order_params", "grad_centralization")


class Optimizer(Cell):
    """Base of optimizers.

    Args:
        learning_rate: a number, a scalar Tensor, a 1-D Tensor or list with one rate a step, or a Cell step → rate.
        parameters: Parameters, or groups of them: dicts with 'params' and perhaps 'lr' and 'weight_decay', and one with 'order_params'.
        weight_decay: added to each gradient times its Parameter, but for Parameters with 'beta' or 'gamma' in their names unless a group
            asks for it. Default 0.
        loss_scale: gradients are divided by it. Default 1.

    Raises:
        TypeError, ValueError: settings that do not fit; no Parameters.
    """

    def __init__(self, learning_rate: Any, parameters: Any, weight_decay: Any = 0.0, loss_scale: float = 1.0):
        super().__init__(auto_prefix=False)
        if isinstance(loss_scale, bool) or not isinstance(loss_scale, (int, float)):
            raise ArgumentTypeError(f"For 'Optimizer', the 'loss_scale' must be a number, but got {type(loss_scale).__name__}.")
        if loss_scale <= 0:
            raise ArgumentValueError(f"For 'Optimizer', the 'loss_scale' must be positive, but got {loss_scale}.")
        self.loss_scale = float(loss_scale)
        self.global_step = Parameter(Tensor([0], dt.int32), name="global_step", requires_grad=False)
        groups, order = _groups(parameters)
        self.is_group = any(g is not None for g in groups.values())
        params = order or list(groups)
        self._rates: list[Any] = []
        self._rate_of: list[int] = []
        self._decays: list[float] = []
        default_rate = self._add_rate(learning_rate, "learning_rate")
        for p in params:
            group = groups[p] or {}
            self._rate_of.append(self._add_rate(group["lr"], f"learning_rate_{len(self._rates)}") if "lr" in group else default_rate)
            self._decays.append(self._decay(p, group, weight_decay))
        self.parameters = ParameterTuple(params)
        self.weight_decay = weight_decay
        self.dynamic_lr = any(_is_dynamic(rate) for rate in self._rates)

    def _decay(self, p: Parameter, group: dict[str, Any], default: Any) -> float:
        value = group.get("weight_decay", default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ArgumentTypeError(f"For 'Optimizer', the 'weight_decay' must be a number, but got {type(value).__name__}.")
        if value < 0:
            raise ArgumentValueError(f"For 'Optimizer', the 'weight_decay' must not be negative, but got {value}.")
        spared = "weight_decay" not in group and ("beta" in p.name or "gamma" in p.name)
        return 0.0 if spared else float(value)

    def _add_rate(self, rate: Any, name: str) -> int:
        for k, known in enumerate(self._rates):
            if known is rate:
                return k
        if isinstance(rate, bool) or isinstance(rate, str) or rate is None:
            raise ArgumentTypeError(f"For 'Optimizer', the type of 'learning_rate' must be [int, float, Tensor, Iterable, LearningRateSchedule], but got {type(rate)}.")
        if isinstance(rate, Cell):
            entry: Any = rate
        elif isinstance(rate, Tensor):
            if rate.ndim > 1:
                raise ArgumentValueError(f"For 'Optimizer', a Tensor as 'learning_rate' must have 0 or 1 dimensions, but has shape {rate.shape}.")
            entry = Parameter(Tensor(rate, dt.float32), name=name, requires_grad=False)
        elif isinstance(rate, (int, float)):
            if rate < 0:
                raise ArgumentValueError(f"For 'Optimizer', the 'learning_rate' must be not less than 0, but got {rate}.")
            entry = Parameter(Tensor(float(rate), dt.float32), name=name, requires_grad=False)
        elif isinstance(rate, Iterable):
            entry = Parameter(Tensor([float(r) for r in rate], dt.float32), name=name, requires_grad=False)
        else:
            raise ArgumentTypeError(f"For 'Optimizer', the type of 'learning_rate' must be [int, float, Tensor, Iterable, LearningRateSchedule], but got {type(rate)}.")
        number = len(self._rates)
        self._rates.append(entry)
        if number == 0:
            self.learning_rate = entry
        else:
            setattr(self, name, entry)
        return number

    # -- for subclasses ----------------------------------------------------------------------------------------------
    def get_lr(self) -> Any:
        """The rate of this step: a scalar, or one for each Parameter where groups have their own. Raises the step counter."""
        rates = [self._rate(rate) for rate in self._rates]
        ops.assign(self.global_step, self.global_step + 1)  # type: ignore[operator]
        return tuple(rates[k] for k in self._rate_of) if len(rates) > 1 else rates[0]

    def _rate(self, rate: Any) -> Any:
        if isinstance(rate, Cell):
            return rate(self.global_step).reshape(())
        if rate.ndim == 0:
            return rate
        step = ops.minimum(self.global_step, rate.shape[0] - 1)
        return ops.gather(rate, step, 0).reshape(())  # type: ignore[attr-defined]

    def rates(self) -> list[Any]:
        """The rate of this step for each Parameter. Raises the step counter."""
        rate = self.get_lr()
        return list(rate) if isinstance(rate, tuple) else [rate] * len(self.parameters)

    def scale_grad(self, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients divided by the loss scale."""
        if self.loss_scale == 1.0:
            return tuple(gradients)
        return tuple(g * (1.0 / self.loss_scale) for g in gradients)

    def decay_weight(self, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients plus weight decay times the Parameters."""
        return tuple(g + p * d if d else g for g, p, d in zip(gradients, self.parameters, self._decays))

    def checked(self, gradients: Any) -> tuple[Any, ...]:
        """The gradients as a tuple that fits the Parameters.

        Raises:
            TypeError: no sequence of Tensors. ValueError: another number of them, or other shapes.
        """
        if isinstance(gradients, Tensor):
            gradients = (gradients,)
        if not isinstance(gradients, (tuple, list)):
            raise ArgumentTypeError(f"For '{type(self).__name__}', the gradients must be a tuple of Tensors, but are {type(gradients).__name__}.")
        if len(gradients) != len(self.parameters):
            raise ArgumentValueError(f"For '{type(self).__name__}', there are {len(self.parameters)} Parameters but {len(gradients)} gradients.")
        for g, p in zip(gradients, self.parameters):
            if not isinstance(g, Tensor) or g.shape != p.shape:
                raise ArgumentValueError(f"For '{type(self).__name__}', the gradient of {p.name}, of shape {p.shape}, is {getattr(g, 'shape', type(g).__name__)}.")
        return tuple(gradients)

    def slots(self, prefix: str, init: str = "zeros") -> ParameterTuple:
        """One Parameter beside each of the optimizer's, named `prefix.name`."""
        return self.parameters.clone(prefix=prefix, init=init)

    def construct(self, *hyper_params: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define construct(gradients)")


def _is_dynamic(rate: Any) -> bool:
    return isinstance(rate, Cell) or rate.ndim == 1


def _groups(parameters: Any) -> tuple[dict[Parameter, dict[str, Any] | None], list[Parameter]]:
    """Parameter → its group (None without groups), and the order asked for."""
    if isinstance(parameters, Parameter) or not isinstance(parameters, Iterable):
        raise ArgumentTypeError(f"For 'Optimizer', the 'parameters' must be an Iterable of Parameters or dicts, but got {type(parameters)}.")
    items = list(parameters)
    if not items:
        raise ArgumentValueError("For 'Optimizer', the argument parameters must not be empty.")
    if all(isinstance(p, Parameter) for p in items):
        _check_unique(items)
        return dict.fromkeys(items), []
    if not all(isinstance(p, dict) for p in items):
        raise ArgumentTypeError("For 'Optimizer', all elements of the argument 'parameters' must be either 'Parameter' or 'dict', but got both or other types.")
    table: dict[Parameter, dict[str, Any] | None] = {}
    order: list[Parameter] = []
    for group in items:
        unknown = set(group) - set(_GROUP_KEYS)
        if unknown:
            raise ArgumentValueError(f"For 'Optimizer', a group's keys must be in {list(_GROUP_KEYS)}, but got {sorted(unknown)}.")
        if "order_params" in group:
            order = list(group["order_params"])
            continue
        if group.get("grad_centralization"):
            from graphcell.errors import NotImplementedFeatureError

            raise NotImplementedFeatureError("Optimizer: grad_centralization is not there yet")
        params = list(group.get("params", ()))
        if not params:
            raise ArgumentValueError("For 'Optimizer', the 'params' of a group must not be empty.")
        settings = {k: v for k, v in group.items() if k in ("lr", "weight_decay")}
        for p in params:
            if p in table:
                raise ArgumentValueError(f"For 'Optimizer', the parameter {p.name} is in two groups.")
            table[p] = settings
    if order and set(order) != set(table):
        raise ArgumentValueError("For 'Optimizer', 'order_params' must hold the same Parameters as the groups.")
    _check_unique(list(table))
    return table, order


def _check_unique(params: list[Parameter]) -> None:
    names: set[str] = set()
    for p in params:
        if p.name in names:
            raise ArgumentValueError(f"For 'Optimizer', two Parameters have the name '{p.name}'.", hint="give them unique names")
        names.add(p.name)
