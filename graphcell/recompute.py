"""`recompute`: runs a part of a network so that its intermediate values are not kept for gradients but computed again in the backward pass.

Enters: a function or Cell and its arguments. Leaves: what it returns. In a graph it becomes a `recomputed` op, which the transform for
gradients opens; eagerly the tapes note the call instead of its ops, and run it again on the same inputs, random numbers and
moving statistics. Results and gradients are the same as far as kernels round alike: in a graph another one may add in another order, and
eagerly an op may have moved from numpy to its native kernel between the two runs. Refuses: functions that are no Cells, where MindSpore
does; eagerly, gradients through values that leave the function in another way than as its results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.frontend.guards import is_cell
from graphcell.ops.control import Recomputed
from graphcell.ops.dispatch import Trace
from graphcell.ops.recomputed import RecomputedCall
from graphcell.pullback import Function, replace_tensors, tensors_in, trace_child
from graphcell.records import dataclass
from graphcell.tensor import Tensor, state

__all__ = ["recompute"]

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]


def _no_contexts() -> Contexts:
    return nullcontext(), nullcontext()


@dataclass(frozen=True)
class Recomputation:
    """How something is recomputed: whether its results are too, and what gives the context managers of the first and the second run."""

    outputs: bool = False
    contexts: Callable[[], Contexts] = _no_contexts


def recomputation(use_reentrant: Any, output_recompute: Any, early_stop: Any, context_fn: Any) -> Recomputation:
    """The settings of MindSpore's interface, checked.

    Raises:
        TypeError: a flag is no bool. ValueError: `context_fn` with use_reentrant=True.
    """
    for name, flag in (("use_reentrant", use_reentrant), ("output_recompute", output_recompute), ("early_stop", early_stop)):
        if not isinstance(flag, bool):
            raise ArgumentTypeError(f"For 'recompute', the '{name}' must be bool, but got {type(flag).__name__}.")
    if context_fn is None:
        return Recomputation(output_recompute)
    if use_reentrant and not output_recompute:
        raise ArgumentValueError("context_fn is only supported when use_reentrant=False.")
    return Recomputation(output_recompute, context_fn)


def recompute(
    block: Function, *args: Any, use_reentrant: bool = True, output_recompute: bool = False, early_stop: bool = True,
    context_fn: Any = None, **kwargs: Any,
) -> Any:  # fmt: skip
    """`block(*args, **kwargs)`, of which gradients keep nothing but the arguments and the result: the rest is computed again.

    Args:
        block: a Cell. With use_reentrant=False or output_recompute=True, and in graphs, any function.
        use_reentrant, early_stop: MindSpore's ways to do this; here there is one, which has the limits of none.
        output_recompute: the result is not kept either, unless something else keeps it.
        context_fn: gives two context managers, for the first run and the second; eagerly, with use_reentrant=False.

    Raises:
        TypeError: block is no Cell, or a setting no bool. ValueError: context_fn with use_reentrant=True.
    """
    how = recomputation(use_reentrant, output_recompute, early_stop, context_fn)
    if state.trace is None and use_reentrant and not output_recompute and not is_cell(block):
        raise ArgumentTypeError(
            "Recompute function now only support block which inherited from Cell when use_reentrant=True!",
            hint="use_reentrant=False takes any function",
        )
    return call_recomputed(block, args, kwargs, how)


def call_recomputed(fn: Function, args: Sequence[Any], kwargs: dict[str, Any], how: Recomputation) -> Any:
    """`fn(*args, **kwargs)`, of which gradients keep no values but those of the arguments and results."""
    if state.trace is not None:
        return _traced(state.trace, fn, args, kwargs, how)
    if not state.tapes:
        return fn(*args, **kwargs)
    first, second = how.contexts()

    def replay(inputs: Sequence[Tensor]) -> list[Tensor]:
        new_args, new_kwargs = replace_tensors((tuple(args), kwargs), iter(inputs))
        with second:
            return tensors_in(fn(*new_args, **new_kwargs))

    call = RecomputedCall(replay, tensors_in((args, kwargs)))
    with call.running(), first:
        result = fn(*args, **kwargs)
    call.finish(tensors_in(result))
    return result


def _traced(outer: Trace, fn: Function, args: Sequence[Any], kwargs: dict[str, Any], how: Recomputation) -> Any:
    child = trace_child(outer, fn, args, kwargs, ())
    results = outer.append_values(Recomputed(child.graph, how.outputs), child.operands)
    return child.give_back(outer, results)
