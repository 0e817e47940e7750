"""What `Cell.set_inputs` declares, and whether a call in GRAPH_MODE keeps to it.

Enters: descriptions of inputs, Tensors of a shape and dtype among them, and the arguments of calls. Refuses: arguments of another number,
rank, size or dtype than declared, with MindSpore's messages.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError, ArityError
from graphcell.records import dataclass
from graphcell.tensor import Tensor

_ANY_RANK = (-2,)
_ANY_SIZE = -1
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class DeclaredInputs:
    """The inputs declared for `construct`: all (`every`), or those at some positions."""

    construct: Callable[..., Any]
    inputs: dict[int, Any]
    every: bool

    @staticmethod
    def of(construct: Callable[..., Any], inputs: tuple[Any, ...], named: dict[str, Any]) -> DeclaredInputs:
        """What `set_inputs(*inputs, **named)` declares.

        Raises:
            ValueError: both ways at once, or an unknown name. TypeError: a name that stands for any number of arguments.
        """
        if inputs and named:
            raise ArgumentValueError(f"For Cell, set_inputs should only set inputs or kwargs(inputs: {inputs}, kwargs: {named})!")
        if not named:
            return DeclaredInputs(construct, dict(enumerate(inputs)), True)
        parameters = inspect.signature(construct).parameters
        names = list(parameters)
        for name in named:
            if name not in names:
                raise ArgumentValueError(f"For dict mode, valid key is {names}, but got {name}!")
            if parameters[name].kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                raise ArgumentTypeError("Dynamic arguments is not accepted for VAR_POSITIONAL or VAR_KEYWORD parameters!")
        return DeclaredInputs(construct, {names.index(name): value for name, value in named.items()}, False)

    @property
    def with_any_rows(self) -> dict[int, int]:
        """The positions of Tensors of which one dimension has any size, each with that dimension."""
        tensors = [(k, x.shape) for k, x in self.inputs.items() if isinstance(x, Tensor)]
        return {k: shape.index(_ANY_SIZE) for k, shape in tensors if [d for d in shape if d < 0] == [_ANY_SIZE]}

    def as_given(self) -> Any:
        """A tuple of all inputs, or MindSpore's description of some of them."""
        if self.every:
            return tuple(self.inputs.values())
        total = len(inspect.signature(self.construct).parameters)
        return {"arg_specified_infos": [[k, value] for k, value in self.inputs.items()], "total_arg_length": total}

    def check_count(self) -> None:
        """Raises TypeError if `construct` does not take that many inputs."""
        parameters = list(inspect.signature(self.construct).parameters.values())
        if not self.every or any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
            return
        needed = sum(p.kind in _POSITIONAL and p.default is p.empty for p in parameters)
        optional = sum(p.kind in _POSITIONAL and p.default is not p.empty for p in parameters)
        if needed <= len(self.inputs) <= needed + optional:
            return
        takes = _counted(needed, "positional") + (f" and {_counted(optional, 'default')}, total {needed + optional}" if optional else "")
        raise ArityError(
            f"For 'Cell', the function construct requires {takes}, but got {len(self.inputs)}. "
            "When using set_inputs, please make sure that all networks and loss functions are configured with set_inputs."
        )

    def check_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raises ValueError or TypeError if the arguments of a call are not those declared."""
        given = dict(enumerate(args)) if not kwargs and len(args) == len(self.inputs) else self._by_position(args, kwargs)
        if self.every and len(given) != len(self.inputs):
            raise ArgumentValueError(
                f"For set_inputs, the length of input must be equal to expected one, but got expected: {len(self.inputs)} and input: {len(given)}!"
            )
        for k, declared in self.inputs.items():
            if k in given:
                _check(declared, given[k], f"{k + 1}th")

    def _by_position(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, Any]:
        """The arguments of a call by their positions, where those that can only be given by keyword may be declared.

        Raises:
            TypeError: `construct` does not take them.
        """
        signature = inspect.signature(self.construct)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as e:
            raise ArityError(f"For 'Cell', the function construct: {e}") from None
        names = list(signature.parameters)
        by_keyword = {} if self.every else {names.index(name): x for name, x in bound.kwargs.items() if name in names}
        return dict(enumerate(bound.args)) | by_keyword


def _counted(count: int, kind: str) -> str:
    return f"{count} {kind} argument{'' if count == 1 else 's'}"


def _check(declared: Any, given: Any, which: str) -> None:
    """Raises ValueError or TypeError if `given`, the `which` input, is not as declared."""
    owner = "For set_inputs or tuple(list) in set_inputs, the"
    if isinstance(declared, (tuple, list)) and type(given) is type(declared) and len(given) == len(declared):
        for d, g in zip(declared, given, strict=True):
            _check(d, g, which)
    elif isinstance(declared, Tensor) is not isinstance(given, Tensor):
        kinds = ("mutable", "static") if isinstance(declared, Tensor) else ("static", "mutable")
        raise ArgumentTypeError(f"{owner} {which} should be {kinds[0]} one, but got {kinds[1]}!")
    elif isinstance(declared, Tensor):
        _check_tensor(declared, given, which)
    elif type(declared) is not type(given) or isinstance(declared, (tuple, list)) or declared != given:
        raise ArgumentValueError(f"{owner} {which} should be {declared!r}, but got {given!r}!")


def _check_tensor(declared: Tensor, given: Tensor, which: str) -> None:
    if given.dtype is not declared.dtype:
        raise ArgumentTypeError(
            f"For set_inputs or tuple(list) in set_inputs, the {which} type should be Tensor[{declared.dtype}], but got Tensor[{given.dtype}]!"
        )
    if declared.shape == _ANY_RANK:
        return
    owner = f"For set_inputs and tuple(list) in set_inputs, the {{}} of {which} input must be the same as expected, but got expected: {{}}, and input: {{}}!"
    if len(declared.shape) != len(given.shape):
        raise ArgumentValueError(owner.format("dims", len(declared.shape), len(given.shape)))
    for d, g in zip(declared.shape, given.shape, strict=True):
        if d not in (_ANY_SIZE, g):
            raise ArgumentValueError(owner.format("shape", d, g))
