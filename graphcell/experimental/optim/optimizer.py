"""`Optimizer`: Parameters in groups, each a dict of settings of its own.

A learning rate is a Parameter that the compiled training step reads, so that a new one takes effect in the next step without compiling
again. The other settings are constants of the graph: changed ones compile it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError, MissingKeyError
from graphcell.nn.optim.updater import Updater
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.tensor import Tensor


class ParamGroup(dict[str, Any]):
    """The settings of a group, by name, and its Parameters under 'params'. What is assigned to 'lr' is written into the Parameter that is there;
    any other change compiles the graphs anew that the settings are constants of.
    """

    owner: Optimizer | None = None

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "lr" and isinstance(self.get("lr"), Parameter):
            ops.assign(self["lr"], rate_tensor(value))
            return
        super().__setitem__(name, value)
        self._change()

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._change()

    def update(self, *args: Any, **kwargs: Any) -> None:
        """As of any dict."""
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def __ior__(self, other: Any) -> Self:  # type: ignore[override, misc]
        self.update(other)
        return self

    def setdefault(self, name: str, default: Any = None) -> Any:
        """As of any dict."""
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        """As of any dict."""
        found = super().pop(name, *default)
        self._change()
        return found

    def popitem(self) -> tuple[str, Any]:
        """As of any dict."""
        found = super().popitem()
        self._change()
        return found

    def clear(self) -> None:
        """As of any dict."""
        super().clear()
        self._change()

    def _change(self) -> None:
        if self.owner is not None:
            self.owner.settings_mark = object()


class Optimizer(Updater):
    """Base of optimizers. A subclass defines `construct(gradients)`.

    Args:
        params: Parameters, or groups of them: dicts with 'params' (Parameters, or one) and settings of their own.
        defaults: the settings of groups that have none of that name; 'lr' (a number or a scalar Tensor) must be there or in each group,
            'weight_decay' is 0 if it is not.

    `param_groups` are these dicts, to which `add_param_group` alone appends, `parameters` all Parameters in that order, `lrs` the learning rates,
    one a group, and `group_start_id` where the groups begin in `parameters`, and their end.

    Raises:
        TypeError, ValueError, KeyError: settings that do not fit; no Parameters; a Parameter in two groups; two of one name.
    """

    def __init__(self, params: Any, defaults: Mapping[str, Any]):
        super().__init__(auto_prefix=False)
        if not isinstance(defaults, Mapping):
            raise ArgumentTypeError(f"For 'Optimizer', the argument defaults must be a dict, but got {type(defaults)}.")
        self.defaults = dict(defaults)
        self.param_groups: list[ParamGroup] = []
        self.lrs: list[Parameter] = []
        self.group_start_id = [0]
        self.parameters = ParameterTuple(())
        self._kept: dict[str, Any] = {}
        self.settings_mark = object()
        """Another object after each change of a setting: compiled functions look at this alone."""
        for group in _groups(params):
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Appends a group of Parameters, with the settings that are given and the defaults for all others. Steps are counted for all groups together.

        Raises:
            TypeError: no dict; 'params' are no Parameters, or in a set, which has no order. KeyError: no 'params'.
            ValueError: a Parameter is in another group, or has the name of another one.
        """
        if not isinstance(param_group, dict):
            raise ArgumentTypeError("Param group must be a dict.")
        group = ParamGroup({**self.defaults, **param_group})
        group["params"] = _parameters(param_group)
        known = {id(p) for p in self.parameters}
        if any(id(p) in known for p in group["params"]):
            raise ArgumentValueError("some parameters appear in more than one parameter group.")
        owner = type(self).__name__
        rate = _checked_rate(owner, group.get("lr"))
        group["weight_decay"] = _checked_decay(owner, group.get("weight_decay", 0.0))
        self.parameters = ParameterTuple([*self.parameters, *group["params"]])
        dict.__setitem__(group, "lr", Parameter(rate, name=f"learning_rate_group_{len(self.param_groups)}"))
        group.owner, self.settings_mark = self, object()
        self.param_groups.append(group)
        self.lrs.append(group["lr"])
        self.group_start_id.append(len(self.parameters))
        for name, start in self._kept.items():
            setattr(self, name, ParameterTuple([*getattr(self, name), *_made(name, start, group["params"])]))

    # -- what subclasses use -----------------------------------------------------------------------------------------
    def keep(self, name: str, start: Any = "zeros") -> None:
        """From now on the attribute `name` holds a Parameter `name.p` beside each Parameter p: of its shape, filled by the initializer `start`;
        where that is a number, a float32 scalar `name_p`."""
        self._kept[name] = start
        setattr(self, name, ParameterTuple(_made(name, start, self.parameters)))

    def count(self, counter: Any) -> Any:
        """Raises the Parameter `counter` by 1; the number of this step, a float64 scalar."""
        step = counter + ops.ones_like(counter)
        ops.assign(counter, step)
        return ops.cast(step, dt.float64).reshape(())

    def grouped(self, gradients: Any) -> list[tuple[ParamGroup, list[tuple[int, Any, Any]]]]:
        """For each group its settings, and of each Parameter its place in `parameters`, itself, and its gradient, in its dtype and negated where
        the group is to `maximize`.

        Raises:
            TypeError: no sequence of Tensors. ValueError: other shapes, or another number of them (which is a RuntimeError, too).
        """
        return _members(self, self.checked(gradients), self.settings_mark)

    def decayed(self, gradients: Any) -> list[tuple[ParamGroup, list[tuple[int, Any, Any]]]]:
        """As `grouped`, with the group's weight decay times its Parameter added to each gradient."""
        return _members(self, self.checked(gradients), self.settings_mark, decays=True)

    def _decay_weight(self, weight_decay: float, params: Sequence[Any], gradients: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients plus `weight_decay` times the Parameters: what optimizers that users wrote for MindSpore call."""
        if not weight_decay:
            return tuple(gradients)
        return tuple(g + ops.cast(p * weight_decay, g.dtype) for p, g in zip(params, gradients))

    def construct(self, *hyper_params: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define construct(gradients)")

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for k, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {k}")
            for name in sorted(group):
                if name != "params":
                    value = group[name]
                    lines.append(f"    {name}: {value.value() if isinstance(value, Parameter) else value}")
            lines.append("")
        return "\n".join([*lines[:-1], ")"])


def rate_tensor(rate: Any) -> Tensor:
    """A learning rate, a number or a Tensor of one element, as a float32 scalar.

    Raises:
        TypeError: something else. ValueError: a Tensor of more elements.
    """
    if isinstance(rate, Tensor):
        if rate.size != 1:
            raise ArgumentValueError(f"The tensor should have only one element, but got {rate.size}, more than one element is ambiguous.")
        scalar: Tensor = ops.cast(rate, dt.float32).reshape(())
        return scalar
    if not isinstance(rate, (int, float)) and not hasattr(rate, "__float__"):
        raise ArgumentTypeError(
            f"For 'Optimizer', the argument 'learning_rate' must be int, float or Tensor, but got {type(rate)}."
        )
    return Tensor(float(rate), dt.float32)


def _members(
    optimizer: Optimizer, grads: Sequence[Any], mark: object, decays: bool = False
) -> list[tuple[ParamGroup, list[tuple[int, Any, Any]]]]:  # fmt: skip
    """What `Optimizer.grouped` and `decayed` give. A function, since the frontend would note what each container holds that a method reads, for
    every call to compare; `mark`, which that method has read, says as much.
    """
    found = []
    for group, start, end in zip(optimizer.param_groups, optimizer.group_start_id, optimizer.group_start_id[1:]):
        members = []
        for place in range(start, end):
            p = optimizer.parameters[place]
            g = ops.cast(grads[place], p.dtype)
            g = -g if group.get("maximize") else g
            members.append((place, p, g + p * group["weight_decay"] if decays and group["weight_decay"] else g))
        found.append((group, members))
    return found


# -- groups --------------------------------------------------------------------------------------------------------------
def _groups(params: Any) -> list[dict[str, Any]]:
    if params is None:
        raise ArgumentValueError("For 'Optimizer', the argument params can not be None.")
    if not isinstance(params, Iterable):
        raise ArgumentTypeError(f"For 'Optimizer', the argument params must be Iterable type, but got {type(params)}.")
    items: list[Any] = [None] if isinstance(params, Tensor) else list(params)  # one Parameter is no collection of them
    if not items:
        raise ArgumentValueError("For 'Optimizer', the argument params must not be empty.")
    if all(isinstance(p, Parameter) for p in items):
        return [{"params": items}]
    if not all(isinstance(p, dict) for p in items):
        raise ArgumentTypeError("For 'Optimizer', all elements of the argument 'params' must be 'Parameter' or 'dict', please check the 'params'.")
    return items


def _parameters(group: dict[str, Any]) -> list[Parameter]:
    if "params" not in group:
        raise MissingKeyError("params")
    params = group["params"]
    if isinstance(params, Parameter):
        return [params]
    if isinstance(params, (set, frozenset)):
        raise ArgumentTypeError(
            "Optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets will change between runs. "
            "Please use a list instead."
        )
    found = list(params) if isinstance(params, Iterable) and not isinstance(params, Tensor) else [params]
    for p in found:
        if not isinstance(p, Parameter):
            raise ArgumentTypeError(f"For 'Optimizer', the 'params' of a group must be Parameters, but got {type(p)}.")
    if len({id(p) for p in found}) < len(found):
        raise ArgumentValueError("For 'Optimizer', a Parameter appears twice in one parameter group.")
    return found


def _checked_rate(owner: str, rate: Any) -> Tensor:
    if isinstance(rate, (int, float)) and rate < 0:
        raise ArgumentValueError(
            f"For '{owner}', the 'learning rate' must be float and must >= 0, but got '{float(rate)}' with type 'float'."
        )
    return rate_tensor(rate)


def _checked_decay(owner: str, decay: Any) -> float:
    if not isinstance(decay, (int, float)):
        raise ArgumentTypeError(f"For 'Optimizer', the argument 'Weight_decay' must be int or float.but got {type(decay)}")
    if decay < 0:
        raise ArgumentValueError(
            f"For '{owner}', the 'weight_decay' must be float and must >= 0, but got '{float(decay)}' with type 'float'."
        )
    return float(decay)


def _made(name: str, start: Any, params: Sequence[Parameter]) -> list[Parameter]:
    if isinstance(start, float):
        return [Parameter(Tensor(start, dt.float32), name=f"{name}_{p.name}") for p in params]
    return list(ParameterTuple(params).clone(prefix=name, init=start))
