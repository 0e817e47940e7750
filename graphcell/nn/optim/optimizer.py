"""`Optimizer`: parameters in groups, learning rates, weight decay.

An optimizer is a Cell called with the gradients. Inside a compiled training step its updates become part of the same executable and
write the Parameters in their own buffers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import wraps
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.composite import HyperMap, Map
from graphcell.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    CheckpointMismatchError,
    MissingKeyError,
)
from graphcell.nn.cell import Cell
from graphcell.nn.layer.container import CellList
from graphcell.nn.optim.updater import Updater
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.records import dataclass
from graphcell.tensor import Tensor

_CHANNELS = 16
GROUP_KEYS = ("params", "lr", "weight_decay", "order_params", "grad_centralization")


class _IteratorLearningRate(Cell):
    """One rate a step; after the last one, that stays."""

    def __init__(self, rates: Any, name: str):
        super().__init__(auto_prefix=False)
        self.learning_rate = Parameter(Tensor(rates, dt.float32), name=name)

    def construct(self, global_step: Any) -> Any:
        last = self.learning_rate.shape[0] - 1
        return ops.gather(self.learning_rate, ops.minimum(global_step, last), 0)


class _ConvertToCell(Cell):
    """A fixed rate beside others that change."""

    def __init__(self, rate: Parameter):
        super().__init__(auto_prefix=False)
        self.learning_rate = rate

    def construct(self, global_step: Any) -> Any:
        return self.learning_rate + 0.0


class _WrappedWeightDecay(Cell):
    """A weight decay that changes with the steps, times the loss scale."""

    def __init__(self, schedule: Cell, loss_scale: float):
        super().__init__(auto_prefix=False)
        self.weight_decay, self.loss_scale = schedule, loss_scale

    def construct(self, global_step: Any) -> Any:
        return self.weight_decay(global_step) * self.loss_scale


@dataclass(eq=False)
class _Group:
    """One group of Parameters as the user gave it; `given` says which settings are its own."""

    params: list[Parameter]
    given: dict[str, Any] = field(default_factory=dict)


def opt_init_args_register(function: Callable[..., None]) -> Callable[..., None]:
    """Decorates the `__init__` of an optimizer: the arguments of a call are kept as `init_params`, `init_learning_rate` and `init_args`."""
    signature = inspect.signature(function)

    @wraps(function)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        function(self, *args, **kwargs)
        kept = {"init_params": given.pop("params", None), "init_learning_rate": given.pop("learning_rate", None)}
        self.__dict__.update(kept, init_args={name: value for name, value in given.items() if value is not self})

    return init


class Optimizer(Updater):
    """Base of optimizers. A subclass defines `construct(gradients)`.

    Args:
        learning_rate: a number, a scalar Tensor, a 1-D Tensor, list or generator with one rate a step (the last one stays), or a Cell
            step → rate.
        parameters: Parameters, or groups of them: dicts with 'params' and perhaps 'lr', 'weight_decay', 'grad_centralization', and one
            with 'order_params'.
        weight_decay: a number or a Cell step → number; added to each gradient times its Parameter; without groups, Parameters with
            'beta' or 'gamma' in their names are spared. Default 0.
        loss_scale: gradients are divided by it. Default 1.

    Raises:
        TypeError, ValueError, KeyError, RuntimeError: settings that do not fit; no Parameters; a Parameter in two groups.
    """

    spares_norms = True
    """Whether, without groups, Parameters with 'beta' or 'gamma' in their names have no weight decay."""

    def __init__(self, learning_rate: Any, parameters: Any, weight_decay: Any = 0.0, loss_scale: float = 1.0):
        super().__init__(auto_prefix=False)
        self._check_loss_scale(loss_scale)
        self.loss_scale = float(loss_scale)
        self.reciprocal_scale = 1.0 / self.loss_scale
        self.need_scale = self.loss_scale != 1.0
        self.global_step = Parameter(Tensor([0], dt.int32), name="global_step")
        self.global_step_increase_tensor = Tensor([1], dt.int32)
        self.assignadd, self.hyper_map, self.map_ = ops.assign_add, HyperMap(), Map()
        groups, order, self.is_group = _groups(parameters)
        params = order or [p for g in groups for p in g.params]
        group_of = {id(p): g for g in groups for p in g.params}
        self._target, self._unique = "CPU", True
        self._make_rates(learning_rate, groups, [group_of[id(p)] for p in params])
        self.parameters = ParameterTuple(params)
        self.params = self.parameters
        self.param_length = len(params)
        self._make_decays(weight_decay, [group_of[id(p)] for p in params])
        self.grad_centralization_flags = tuple(bool(group_of[id(p)].given.get("grad_centralization")) for p in params)

    def _check_loss_scale(self, value: Any) -> None:
        owner = type(self).__name__
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ArgumentTypeError(
                f"For '{owner}', the type of 'loss_scale' should be 'float', but got type '{type(value).__name__}'."
            )
        if value <= 0:
            raise ArgumentValueError(
                f"For '{owner}', the 'loss_scale' must be float and must > 0, but got '{float(value)}' with type 'float'."
            )

    # -- learning rates ----------------------------------------------------------------------------------------------
    def _make_rates(self, default: Any, groups: list[_Group], group_of: list[_Group]) -> None:
        """Sets `learning_rate`: one Parameter or Cell for all, or for each Parameter a tuple of Parameters or a CellList."""
        own = {
            id(g): self._rate(g.given["lr"], f"learning_rate_group_{k}") for k, g in enumerate(groups) if "lr" in g.given
        }
        common: Any = self._rate(default, "learning_rate") if len(own) < len(groups) or not own else None
        rates: list[Any] = [own.get(id(g), common) for g in group_of]
        self.is_group_lr = bool(own)
        self.dynamic_lr = any(isinstance(r, Cell) for r in rates)
        self.learning_rate: Any
        if not own:
            self.learning_rate = common
        elif self.dynamic_lr:
            cells = {id(r): r if isinstance(r, Cell) else _ConvertToCell(r) for r in rates}
            self.learning_rate = CellList([cells[id(r)] for r in rates], auto_prefix=False)
        else:
            for rate in rates:
                self._parameters[rate.name] = rate
            self.__dict__["learning_rate"] = tuple(rates)

    def _rate(self, rate: Any, name: str) -> Any:
        """A Parameter, or a Cell for a rate that changes."""
        kinds = "int, float, Tensor, Iterable or LearningRateSchedule"
        if isinstance(rate, Cell):
            return rate
        if isinstance(rate, Tensor):
            if rate.ndim > 1:
                raise ArgumentValueError(
                    "For 'Optimizer', if 'learning_rate' is Tensor type, then the dimension of it should be 0 or 1, "
                    f"but got {rate.ndim}."
                )
            return _IteratorLearningRate(rate, name) if rate.ndim else Parameter(Tensor(rate, dt.float32), name=name)
        if isinstance(rate, (int, float)):
            if rate < 0:
                raise ArgumentValueError(
                    f"For '{type(self).__name__}', the 'learning rate' must be float and must >= 0, "
                    f"but got '{float(rate)}' with type 'float'."
                )
            return Parameter(Tensor(float(rate), dt.float32), name=name)
        if not isinstance(rate, Iterable):
            raise ArgumentTypeError(
                f"For 'Optimizer', the argument 'learning_rate' must be {kinds}, but got {type(rate)}."
            )
        return _IteratorLearningRate([float(r) for r in rate], name)

    def get_lr(self) -> Any:
        """The rate of this step: a scalar, or one for each Parameter where groups have their own."""
        rate = self.learning_rate
        if not self.is_group_lr:
            return rate(self.global_step).reshape(()) if self.dynamic_lr else rate
        if self.dynamic_lr:
            return tuple(r(self.global_step).reshape(()) for r in rate)
        return rate

    def get_lr_parameter(self, param: Any) -> Any:
        """The learning rate of a Parameter, itself a Parameter (of a list of rates, all of them) or a schedule; for a list of Parameters, a list.

        Raises:
            TypeError: neither. ValueError: the optimizer does not have that Parameter.
        """
        if not isinstance(param, (Parameter, list)):
            raise ArgumentTypeError(
                f"For 'get_lr_parameter', the 'param' must be 'Parameter' or 'list' type, but got {type(param)}."
            )
        if isinstance(param, list):
            return [self.get_lr_parameter(p) for p in param]
        for k, p in enumerate(self.parameters):
            if p is param:
                rate = self.learning_rate[k] if self.is_group_lr else self.learning_rate
                return rate.learning_rate if isinstance(rate, (_ConvertToCell, _IteratorLearningRate)) else rate
        raise ArgumentValueError(f"For 'get_lr_parameter', the parameter {param.name} is not in optimizer.")

    def rates(self) -> list[Any]:
        """The rate of this step for each Parameter. Raises the step counter."""
        rate = self.get_lr()
        rates = list(rate) if isinstance(rate, tuple) else [rate] * len(self.parameters)
        ops.assign(self.global_step, self.global_step + 1)
        return rates

    # -- weight decay ------------------------------------------------------------------------------------------------
    def _make_decays(self, default: Any, group_of: list[_Group]) -> None:
        """Sets `weight_decay` as MindSpore does, times the loss scale, and `_decays`, without it, for each Parameter."""
        schedules: dict[int, Cell] = {}

        def checked(value: Any) -> Any:
            if not isinstance(value, Cell):
                return self._check_decay(value)
            if id(value) not in schedules:
                schedules[id(value)] = _WrappedWeightDecay(value, self.loss_scale)
            return schedules[id(value)]

        values = [checked(g.given.get("weight_decay", default)) for g in group_of]
        spares = self.spares_norms and not self.is_group
        self._decays = [0.0 if spares and ("beta" in p.name or "gamma" in p.name) else value for p, value in zip(self.parameters, values)]
        self.decay_flags = tuple(isinstance(d, Cell) or d > 0 for d in self._decays)
        self.is_group_params_ordered = True
        self.dynamic_weight_decay = bool(schedules)
        self.exec_weight_decay = any(self.decay_flags)
        if self.is_group:
            self.__dict__["weight_decay"] = tuple(self._scaled(d) for d in self._decays)
        else:
            self.weight_decay = self._scaled(checked(default))

    def _scaled(self, value: Any) -> Any:
        return value if isinstance(value, Cell) else Tensor(value * self.loss_scale, dt.float32)

    def _check_decay(self, value: Any) -> float:
        if not isinstance(value, (int, float)):
            raise ArgumentTypeError(
                f"For 'Optimizer', the argument 'Weight_decay' must be int, float or Cell.but got {type(value)}"
            )
        if value < 0:
            raise ArgumentValueError(
                f"For '{type(self).__name__}', the 'weight_decay' must be float and must >= 0, "
                f"but got '{float(value)}' with type 'float'."
            )
        return float(value)

    def get_weight_decay(self) -> Any:
        """The weight decay of this step times the loss scale; a tuple where groups have their own. A scalar, but of a Cell what that gives
        for `global_step`, whose shape is (1,)."""
        decay = self.weight_decay
        if isinstance(decay, tuple):
            return tuple(d(self.global_step) if isinstance(d, Cell) else d for d in decay)
        return decay(self.global_step) if isinstance(decay, Cell) else decay

    def decays(self) -> list[Any]:
        """The weight decay of this step for each Parameter, without the loss scale: a number, or a scalar Tensor."""
        now: dict[int, Any] = {}
        for d in self._decays:
            if isinstance(d, Cell) and id(d) not in now:
                now[id(d)] = d(self.global_step).reshape(()) * self.reciprocal_scale
        return [now[id(d)] if isinstance(d, Cell) else d for d in self._decays]

    def decay_weight(self, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients plus weight decay, times the loss scale, times the Parameters."""
        if not self.exec_weight_decay:
            return tuple(gradients)
        return tuple(
            g + ops.cast(p * (d * self.loss_scale), g.dtype) if isinstance(d, Tensor) or d else g
            for g, p, d in zip(gradients, self.parameters, self.decays())
        )

    # -- gradients ---------------------------------------------------------------------------------------------------
    def scale_grad(self, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients divided by the loss scale."""
        if not self.need_scale:
            return tuple(gradients)
        return tuple(g * self.reciprocal_scale for g in gradients)

    def gradients_centralization(self, gradients: Sequence[Any]) -> tuple[Any, ...]:
        """Gradients of convolution weights in groups with 'grad_centralization', minus their mean over all dimensions but the first. MindSpore
        leaves those alone whose number of input channels is no multiple of 16; so does this.
        """
        return tuple(
            g - g.mean(tuple(range(1, g.ndim)), True) if flag and g.ndim > 2 and g.shape[1] % _CHANNELS == 0 else g
            for g, flag in zip(gradients, self.grad_centralization_flags)
        )

    def flatten_gradients(self, gradients: Sequence[Any]) -> Sequence[Any]:
        """The gradients as they are."""
        return gradients

    def broadcast_params(self, optim_result: Any) -> Any:
        """What it is given: there is one device."""
        return optim_result

    def prepared(self, gradients: Any) -> tuple[Any, ...]:
        """The gradients, checked, with weight decay, centralised, and without the loss scale."""
        grads = self.decay_weight(self.checked(gradients))
        return self.scale_grad(self.gradients_centralization(grads))

    # -- settings ----------------------------------------------------------------------------------------------------
    @property
    def unique(self) -> bool:
        """Kept for MindSpore's sake: gradients are never sparse."""
        return self._unique

    @unique.setter
    def unique(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise ArgumentTypeError(f"For 'Optimizer', the property 'unique' must be bool, but got {type(value)}")
        self._unique = value

    @property
    def target(self) -> str:
        """'CPU'."""
        return self._target

    @target.setter
    def target(self, value: str) -> None:
        if not isinstance(value, str):
            raise ArgumentTypeError(f"For 'Optimizer', the property 'target' must be string, but got {type(value)}")
        if value not in ("CPU", "Ascend", "GPU"):
            raise ArgumentValueError(
                f"For 'Optimizer', the property 'target' must be one of ['CPU', 'Ascend' ,'GPU'], but got {value}"
            )
        self._target = value

    def construct(self, *hyper_params: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define construct(gradients)")


# -- groups --------------------------------------------------------------------------------------------------------------
def _groups(parameters: Any) -> tuple[list[_Group], list[Parameter], bool]:
    """The groups (one for plain Parameters), the order asked for, and whether groups were given."""
    if parameters is None:
        raise ArgumentValueError("For 'Optimizer', the argument parameters can not be None.")
    if not isinstance(parameters, Iterable):
        raise ArgumentTypeError(
            f"For 'Optimizer', the argument parameters must be Iterable type, but got {type(parameters)}."
        )
    items: list[Any] = [None] if isinstance(parameters, Tensor) else list(parameters)  # one Parameter is no collection of them
    if not items:
        raise ArgumentValueError("For 'Optimizer', the argument parameters must not be empty.")
    if all(isinstance(p, Parameter) for p in items):
        _check_names(items)
        return [_Group(items)], [], False
    if not all(isinstance(p, dict) for p in items):
        raise ArgumentTypeError(
            "For 'Optimizer', all elements of the argument 'parameters' must be 'Parameter' or 'dict', "
            "please check the 'parameters'."
        )
    return (*_dict_groups(items), True)


def _dict_groups(items: list[dict[str, Any]]) -> tuple[list[_Group], list[Parameter]]:
    groups: list[_Group] = []
    order: list[Parameter] = []
    seen: set[int] = set()
    for group in items:
        unknown = [k for k in group if k not in GROUP_KEYS]
        if unknown:
            raise MissingKeyError(
                f"For 'Optimizer', the key in group params must be one of in {list(GROUP_KEYS)}, but got {unknown}."
            )
        if "order_params" in group:
            order = list(group["order_params"])
            continue
        if "params" not in group:
            raise MissingKeyError("params")
        made = _one_group(group)
        for p in made.params:
            if id(p) in seen:
                raise CheckpointMismatchError(
                    f"For 'Optimizer', the {p.name} parameter already exists, it does not support repeated setting. "
                    "Please check whether the optimizer parameter has been set multiple times."
                )
            seen.add(id(p))
        groups.append(made)
    everything = [p for g in groups for p in g.params]
    _check_names(everything)
    _check_order(order, everything)
    return groups, order


def _one_group(group: dict[str, Any]) -> _Group:
    params = list(group["params"])
    if not params:
        raise ArgumentValueError("For 'Optimizer', the argument group `params` must not be empty.")
    for k, p in enumerate(params):
        if not isinstance(p, Parameter):
            raise ArgumentTypeError(
                f"For 'Optimizer', the element in group parameters must be Parameter type, but got {type(p)} at index {k}."
            )
    central = group.get("grad_centralization", False)
    if not isinstance(central, bool):
        raise ArgumentTypeError(
            f"For 'Optimizer', the 'gradients_centralization' must be bool type, but got {type(central)}."
        )
    return _Group(params, {k: v for k, v in group.items() if k != "params"})


def _check_order(order: list[Parameter], everything: list[Parameter]) -> None:
    if not order:
        return
    if len(order) != len(everything):
        raise ArgumentValueError(
            "For 'Optimizer',the length of order parameters must be the same as the length of group parameters, but got "
            f"order parameters' length {len(order)}, group parameters' length {len(everything)}."
        )
    if {id(p) for p in order} != {id(p) for p in everything}:
        raise ArgumentValueError("For 'Optimizer', 'order_params' must hold the same Parameters as the groups.")


def _check_names(params: list[Parameter]) -> None:
    names: set[str] = set()
    for p in params:
        if p.name in names:
            raise ArgumentValueError(f"The value {p} , its name '{p.name}' already exists. Please set a unique name for the parameter.")
        names.add(p.name)
