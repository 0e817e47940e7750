"""Primitive classes that see or change gradients: `InsertGradientOf`, `HookBackward`. Both give back their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcell.bprop import call_with_bprop
from graphcell.errors import ArgumentTypeError
from graphcell.ops.primitive import Primitive
from graphcell.pullback import invoke

__all__ = ["HookBackward", "InsertGradientOf"]


class InsertGradientOf(Primitive):
    """The input as it is; its gradient is `f` of the gradient.

    Raises:
        TypeError: f cannot be called.
    """

    def __init__(self, f: Callable[[Any], Any]):
        super().__init__("InsertGradientOf")
        if not callable(f):
            raise ArgumentTypeError(f"For 'InsertGradientOf', f must be callable, but is {type(f).__name__}")
        self.f = f

    def __call__(self, x: Any) -> Any:
        def changed(x: Any, out: Any, dout: Any) -> tuple[Any]:
            return (invoke(self.f, (dout,), {}),)

        return call_with_bprop(_identity, changed, x)


class HookBackward(Primitive):
    """The inputs as they are (one as itself, several as a tuple). In the backward pass `hook_fn` is called with the tuple of their
    gradients; what it returns (if not None) replaces them.

    Raises:
        TypeError: hook_fn cannot be called.
    """

    def __init__(self, hook_fn: Callable[[Any], Any], cell_id: str = ""):
        super().__init__("HookBackward")
        if not callable(hook_fn):
            raise ArgumentTypeError(
                f"For 'HookBackward', the type of 'hook_fn' must be python function, but got {type(hook_fn)}."
            )
        self.hook_fn, self.cell_id = hook_fn, cell_id

    def __call__(self, *inputs: Any) -> Any:
        def hooked(*given: Any) -> tuple[Any, ...]:
            gradients = given[-1] if len(inputs) > 1 else (given[-1],)
            new = invoke(self.hook_fn, (gradients,), {})
            if new is None:
                return tuple(gradients)
            return tuple(new) if isinstance(new, (tuple, list)) else (new,)

        return call_with_bprop(_identity, hooked, *inputs)


def _identity(*inputs: Any) -> Any:
    return inputs if len(inputs) > 1 else inputs[0]
