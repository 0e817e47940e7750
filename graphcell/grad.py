"""`grad`, `value_and_grad` and what belongs to them, with MindSpore 2.10's arguments and result structures.

Enters: a function, a Cell or a compiled function. Leaves: a function of the same arguments that gives gradients. Three situations, one
meaning: inside a graph under construction the gradient becomes part of it; in PYNATIVE_MODE a tape records the eager ops; in GRAPH_MODE
the whole gradient function is compiled. Refuses: positions and weights that are not there, `has_aux` of a function with one output.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from graphcell.context import GRAPH_MODE, config
from graphcell.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ArityError,
    NoGradientError,
    PositionError,
    ShapeError,
)
from graphcell.jit import jit
from graphcell.ops.functional.common import NUMBER_TYPES, full_like
from graphcell.pullback import (
    Arguments,
    Cotangents,
    Function,
    differentiable,
    gradient_structure,
    name_of,
    ones,
    replace_tensors,
    tensors_in,
    value_and_gradients,
)
from graphcell.records import dataclass
from graphcell.tensor import Tensor, state

Weights = Tensor | Sequence[Tensor] | None
Positions = int | tuple[int, ...] | None

__all__ = ["GradOperation", "get_grad", "grad", "value_and_grad"]


def grad(
    fn: Function,
    grad_position: Positions = 0,
    weights: Weights = None,
    has_aux: bool = False,
    return_ids: bool = False,
    sens_param: bool = False,
) -> Function:
    """The gradient function of `fn`.

    Args:
        fn: a function, Cell or compiled function. Several float outputs count with the sum of their gradients.
        grad_position: which arguments to differentiate: an int, or a tuple. None: none of them (then `weights` is required).
            Arguments that hold no Tensor (numbers, strings, None) have no gradient and are left out.
        weights: a Parameter, or a list or tuple of them, to differentiate. Those with requires_grad=False have zero gradients.
        has_aux: only the first output is differentiated; the others are returned as they are.
        return_ids: each gradient comes in a pair with its position or the Parameter's name; see `get_grad`.
        sens_param: the last argument of the gradient function, or its keyword `sens`, is the gradient with respect to the output.
            Default: ones.

    Returns:
        A function of `fn`'s arguments. It gives the gradient for an int position (or a tuple of one), a tuple for several, for weights
        a tuple (or one, if one Parameter was given); (inputs, weights) where both are asked for; with `has_aux` (that, other outputs).
        Gradients have the dtype and shape of what they belong to.

    Raises:
        TypeError, ValueError: for arguments of another kind, duplicate or negative positions, `has_aux` with one output.
        IndexError: for a position that the call has no argument for.
        RuntimeError: if an op on the way has no gradient.
    """
    _check_any(grad_position, weights)
    return _gradient_function(
        request_of("grad", fn, grad_position, weights, has_aux, return_ids, sens_param), with_value=False
    )


def value_and_grad(
    fn: Function,
    grad_position: Positions = 0,
    weights: Weights = None,
    has_aux: bool = False,
    return_ids: bool = False,
    sens_param: bool = False,
) -> Function:
    """Like `grad`, for a function that gives (what `fn` returns, gradients)."""
    _check_any(grad_position, weights)
    return _gradient_function(
        request_of("value_and_grad", fn, grad_position, weights, has_aux, return_ids, sens_param),
        with_value=True,
    )


def _check_any(grad_position: Any, weights: Any) -> None:
    if grad_position is None and weights is None:
        raise ArgumentValueError("`grad_position` and `weight` can not be None at the same time.")


def get_grad(gradients: Any, identifier: Any) -> Tensor:
    """The gradient for a position or a Parameter, out of what `grad(..., return_ids=True)` gave.

    Raises:
        TypeError: if `identifier` is neither an int nor a Parameter.
        RuntimeError: if it is not there.
    """
    if not isinstance(identifier, (int, Tensor)):
        raise ArgumentTypeError(
            f"For `get_grad`, the `x` should be an integer or a Parameter, but got {identifier}"
        )
    key = getattr(identifier, "name", None) if isinstance(identifier, Tensor) else identifier
    found = _find(gradients, key)
    if found is None:
        raise NoGradientError(f"Can not find the gradient for position or Parameter {identifier}")
    return found


def _find(gradients: Any, key: Any) -> Tensor | None:
    if not isinstance(gradients, tuple):
        return None
    if len(gradients) == 2 and isinstance(gradients[0], (int, str)):
        return gradients[1] if gradients[0] == key else None
    return next((g for g in (_find(part, key) for part in gradients) if g is not None), None)


class GradOperation:
    """MindSpore's older way to ask for gradients; `GradOperation(...)(fn, weights)` is a gradient function.

    Args:
        get_all: gradients of all arguments, as a tuple; else that of the first.
        get_by_list: gradients of `weights` (a tuple, or one Parameter's); with `get_all`, (inputs, weights).
        sens_param: the last argument of the gradient function is the gradient with respect to the output.

    Raises:
        TypeError: for arguments that are not bool.
    """

    def __init__(self, get_all: bool = False, get_by_list: bool = False, sens_param: bool = False):
        for flag, value in (("get_all", get_all), ("get_by_list", get_by_list), ("sens_param", sens_param)):
            if not isinstance(value, bool):
                raise ArgumentTypeError(
                    f"For 'GradOperation', the '{flag}' should be bool, but got {type(value).__name__}"
                )
        self.get_all, self.get_by_list, self.sens_param = get_all, get_by_list, sens_param

    def __call__(self, fn: Function, weights: Weights = None) -> Function:
        """The gradient function of `fn`. Without `weights`, `get_by_list` takes the Cell's trainable parameters."""
        if self.get_by_list and weights is None:
            weights = tuple(fn.trainable_params()) if hasattr(fn, "trainable_params") else ()
        position = None if self.get_all or self.get_by_list else 0
        request = request_of(
            "GradOperation", fn, position, weights if self.get_by_list else None, sens_param=self.sens_param
        )
        return _gradient_function(replace(request, every=self.get_all), with_value=False)


# -- what is asked for ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Request:
    """Checked arguments. `positions` None: no argument is differentiated; `every`: all of them are, and come as a tuple."""

    fn: Function
    positions: tuple[int, ...] | None
    weights: tuple[Tensor, ...] | None
    one_weight: bool
    has_aux: bool
    return_ids: bool
    sens_param: bool

    every: bool = False


def request_of(
    name: str,
    fn: Any,
    grad_position: Any = None,
    weights: Any = None,
    has_aux: Any = False,
    return_ids: Any = False,
    sens_param: Any = False,
) -> Request:
    """A Request of what the user gave; checks it. Messages name the function `name`."""
    if not callable(fn):
        raise ArgumentTypeError(f"For '{name}', the fn should be callable, but got {type(fn).__name__}")
    for flag, value in (("has_aux", has_aux), ("return_ids", return_ids), ("sens_param", sens_param)):
        if not isinstance(value, bool):
            raise ArgumentTypeError(
                f"For '{name}', the '{flag}' should be bool, but got {type(value).__name__}"
            )
    positions = None if grad_position is None else _check_positions(name, grad_position)
    chosen, one = check_weights(name, weights)
    return Request(fn, positions, chosen, one, has_aux, return_ids, sens_param)


def _check_positions(name: str, given: Any) -> tuple[int, ...]:
    if not isinstance(given, (int, tuple)):
        raise ArgumentTypeError(
            f"For '{name}', the 'grad_position' must be int or tuple, but got {type(given).__name__}"
        )
    positions = given if isinstance(given, tuple) else (given,)
    if any(not isinstance(k, int) for k in positions):
        raise ArgumentTypeError(f"For '{name}', the element in 'grad_position' must be int, but got {given}")
    if not positions:
        raise ArgumentValueError(f"For '{name}', the 'grad_position' must not be empty")
    if min(positions) < 0:
        raise ArgumentValueError(f"For '{name}', the 'grad_position' must be >= 0, but got {given}")
    if len(set(positions)) < len(positions):
        raise ArgumentValueError(f"For '{name}', there are duplicate positions in 'grad_position', {given}")
    return positions


def check_weights(name: str, given: Any) -> tuple[tuple[Tensor, ...] | None, bool]:
    if given is None:
        return None, False
    if isinstance(given, Tensor):
        return (given,), True
    if not isinstance(given, (list, tuple)) or any(not isinstance(w, Tensor) for w in given):
        raise ArgumentTypeError(
            f"For '{name}', the 'weights' must be a Parameter, or a list or tuple of Parameters, but got {type(given).__name__}",
            hint="a generator can be used once only; make a list of it" if hasattr(given, "__next__") else "",
        )
    return tuple(given), False


def _gradient_function(request: Request, with_value: bool) -> Function:
    def gradient(*args: Any, **kwargs: Any) -> Any:
        return _run(request, with_value, args, kwargs)

    return compiled_in_graph_mode(gradient, f"{name_of(request.fn)}_gradient")


def compiled_in_graph_mode(function: Any, name: str) -> Function:
    """`function`, which in GRAPH_MODE, called outside of a graph, is compiled (as `name` in dumps) at its first call."""
    function.__name__ = name
    compiled = jit(function)

    def after_grad(*args: Any, **kwargs: Any) -> Any:
        outside = config.mode == GRAPH_MODE and state.trace is None
        hooked = outside and any(t.gradient_hooks for t in tensors_in((args, kwargs)))  # which the inputs of a graph do not have
        return (compiled if outside and not hooked else function)(*args, **kwargs)

    return after_grad


def _run(request: Request, with_value: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs the function once, takes its gradients, and puts them into MindSpore's structure."""
    args, kwargs, sens = _take_sens(request, args, kwargs)
    chosen = chosen_arguments(request, args, kwargs)
    args, kwargs, chosen = separate(args, kwargs, chosen)
    inputs = [t for _, x in chosen for t in tensors_in(x)]
    weights = trainable(request)
    wrt = [*inputs, *weights]

    def cotangents(output: Any) -> Cotangents:
        return seeds(request, output, sens, wrt)

    output, gradients = value_and_gradients(request.fn, args, kwargs, wrt, cotangents, _followed(args, kwargs) if inputs else ())
    result = _pack(
        request,
        chosen,
        gradients[: len(inputs)],
        dict(zip(map(id, weights), gradients[len(inputs) :], strict=True)),
    )
    if with_value:
        return output, result
    return (result, output[1:]) if request.has_aux else result


def _followed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The arguments that backward hooks see gradients of, whether or not they are asked for."""
    return [t for t in tensors_in((args, kwargs)) if t.dtype.is_float] if Arguments.followed else []


def trainable(request: Request) -> list[Tensor]:
    """The weights that have gradients."""
    return [w for w in request.weights or () if getattr(w, "requires_grad", True)]


def _take_sens(
    request: Request, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    if not request.sens_param:
        return args, kwargs, None
    if "sens" in kwargs:
        return args, {k: x for k, x in kwargs.items() if k != "sens"}, kwargs["sens"]
    if not args:
        raise ArityError(
            f"{name_of(request.fn)}: sens_param=True needs the gradient with respect to the output as the last argument"
        )
    return args[:-1], kwargs, args[-1]


def chosen_arguments(
    request: Request, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[int, Any]]:
    """(position, argument) of the arguments to differentiate that hold Tensors."""
    everything = [*args, *kwargs.values()]
    chosen = []
    for k in range(len(everything)) if request.every else request.positions or ():
        if k >= len(everything):
            _check_arity(request.fn, args, kwargs)
            raise PositionError(
                f"{name_of(request.fn)}: 'grad_position' {k} is out of range, the call has {len(everything)} arguments"
            )
        if tensors_in(everything[k]):
            chosen.append((k, everything[k]))
    return chosen


def _check_arity(fn: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raises TypeError if `fn` cannot be called with these arguments at all."""
    try:
        signature = inspect.signature(getattr(fn, "construct", fn))
    except ValueError:  # a builtin may have none
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as e:
        raise ArityError(f"{name_of(fn)}: {e}") from None


def separate(
    args: tuple[Any, ...], kwargs: dict[str, Any], chosen: list[tuple[int, Any]], from_outside: bool = False
) -> tuple[tuple[Any, ...], dict[str, Any], list[tuple[int, Any]]]:
    """Arguments in which no Tensor occurs twice, so that each place has a gradient of its own. Parameters stay themselves.

    `from_outside`: nor is any of them a Tensor that the function may also read from outside.
    """
    everything = [*args, *kwargs.values()]
    leaves = tensors_in(everything)
    if len({id(t) for t in leaves}) == len(leaves) and not from_outside:
        return args, kwargs, chosen
    seen: set[int] = set()
    separate: list[Tensor] = []
    for t in leaves:
        separate.append(_another(t) if (from_outside or id(t) in seen) and type(t) is Tensor else t)
        seen.add(id(t))
    everything = replace_tensors(everything, iter(separate))
    count = len(args)
    return (
        tuple(everything[:count]),
        dict(zip(kwargs, everything[count:], strict=True)),
        [(k, everything[k]) for k, _ in chosen],
    )


def _another(tensor: Tensor) -> Tensor:
    """Another Tensor with the same value, for the tapes and graphs around too."""
    if state.trace is not None:
        return Tensor.of_value(state.trace.read(tensor))
    copy = Tensor.of_array(tensor.array())
    for tape in state.tapes:
        tape.alias(copy, tensor)
    return copy


def seeds(request: Request, output: Any, sens: Any, wrt: Sequence[Tensor]) -> Cotangents:
    leaves = tensors_in(output)
    if not request.has_aux:
        return ones(leaves, wrt) if sens is None else _givenseeds(request, leaves, sens, wrt)
    if not isinstance(output, tuple) or len(output) < 2:
        raise ArgumentValueError(
            "When has_aux is True, origin fn requires more than one outputs.",
            hint=f"{name_of(request.fn)} must return a tuple (loss, other, ...)",
        )
    first = tensors_in(output[0])
    rest: list[Tensor | None] = [None] * (len(leaves) - len(first))
    return [*(ones(first, wrt) if sens is None else _givenseeds(request, first, sens, wrt)), *rest]


def _givenseeds(
    request: Request, leaves: Sequence[Tensor], sens: Any, wrt: Sequence[Tensor]
) -> list[Tensor | None]:
    """`sens`, a Tensor, a number or a structure of them, for each Tensor in the output."""
    parts = list(sens) if isinstance(sens, (tuple, list)) else [sens]
    parts = [p for part in parts for p in (part if isinstance(part, (tuple, list)) else [part])]
    if len(parts) != len(leaves):
        raise ArityError(
            f"{name_of(request.fn)}: sens has {len(parts)} Tensors, but the output has {len(leaves)}"
        )
    return [
        seed(name_of(request.fn), p, t) if differentiable(t, wrt) else None
        for p, t in zip(parts, leaves, strict=True)
    ]


def seed(name: str, given: Any, output: Tensor) -> Tensor:
    if isinstance(given, NUMBER_TYPES):
        number: Any = given
        return full_like(output, number)
    if not isinstance(given, Tensor):
        raise ArgumentTypeError(
            f"{name}: a gradient with respect to an output must be a Tensor, but is {type(given).__name__}"
        )
    if given.shape != output.shape:
        raise ShapeError(
            f"{name}: the gradient with respect to an output of shape {output.shape} has shape {given.shape}"
        )
    return given.astype(output.dtype)  # type: ignore[no-any-return, attr-defined]


def _pack(
    request: Request,
    chosen: Sequence[tuple[int, Any]],
    gradients: Sequence[Tensor],
    of_weights: dict[int, Tensor],
) -> Any:
    """Gradients of arguments and of weights (by the id of the Parameter) in MindSpore's structure."""
    stream = iter(gradients)
    inputs: list[Any] = []
    for k, x in chosen:
        g = gradient_structure(x, stream)
        inputs.append((k, g) if request.return_ids else g)
    of_inputs = inputs[0] if len(inputs) == 1 and not request.every else tuple(inputs)
    if request.weights is None:
        return of_inputs
    packed = pack_weights(request, of_weights)
    return packed if request.positions is None and not request.every else (of_inputs, packed)


def pack_weights(request: Request, gradients: dict[int, Tensor]) -> Any:
    """Gradients, by the id of the Parameter, as asked for; zeros for those that are not there."""
    parts: list[Any] = []
    for w in request.weights or ():
        g = gradients[id(w)] if id(w) in gradients else full_like(w, 0)
        parts.append((getattr(w, "name", ""), g) if request.return_ids else g)
    return parts[0] if request.one_weight else tuple(parts)
