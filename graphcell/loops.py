"""Loops whose bodies are given as functions: `WhileLoop`, `ForiLoop`, `Scan`.

Enters: the functions, what they start with. Leaves: what the loops written out in Python leave. In a graph they are interpreted as if the
user had written them there, so that a loop that a Tensor decides on is one op. Refuses: what is no function, bounds that are no integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphcell.errors import ArgumentTypeError
from graphcell.frontend.interpreter import active
from graphcell.tensor import Tensor

__all__ = ["ForiLoop", "Scan", "WhileLoop"]

Function = Callable[..., Any]


class WhileLoop:
    """`WhileLoop()(cond_func, loop_func, init_val)`: `loop_func` of the value again and again, as long as `cond_func` of it is true.

    Raises:
        TypeError: `cond_func` or `loop_func` is no function.
    """

    def __call__(self, cond_func: Function, loop_func: Function, init_val: Any) -> Any:
        _check_function("WhileLoop", "cond_func", cond_func)
        _check_function("WhileLoop", "loop_func", loop_func)
        return _run(_while_loop, cond_func, loop_func, init_val)


class ForiLoop:
    """`ForiLoop()(lower, upper, loop_func, init_val)`: `loop_func(i, value)` for i from `lower` to before `upper`.

    `unroll` is accepted for MindSpore's sake; loops become one op where their types allow it.

    Raises:
        TypeError: a bound is neither an int nor a Tensor, or `loop_func` no function.
    """

    def __call__(self, lower: Any, upper: Any, loop_func: Function, init_val: Any, unroll: bool = True) -> Any:
        for name, bound in (("lower", lower), ("upper", upper)):
            if not isinstance(bound, (int, Tensor)) or isinstance(bound, bool):
                raise ArgumentTypeError(f"For 'ForiLoop', the '{name}' should be an int or a Tensor, but got {type(bound).__name__}.")
        _check_function("ForiLoop", "loop_func", loop_func)
        return _run(_for_loop, lower, upper, loop_func, init_val)


class Scan:
    """`Scan()(loop_func, init, xs, length)`: `loop_func(carry, x)` gives (carry, y) for each x; the result is the last carry and the list of ys.

    xs None stands for `length` times None.

    Raises:
        TypeError: `loop_func` is no function, xs no sequence, or both xs and `length` None.
    """

    def __call__(self, loop_func: Function, init: Any, xs: Sequence[Any] | None, length: int | None = None, unroll: bool = True) -> Any:
        _check_function("Scan", "loop_func", loop_func)
        if xs is None and length is not None:
            xs = [None] * length
        if not isinstance(xs, (list, tuple)):
            raise ArgumentTypeError(f"For 'Scan', the 'xs' should be a list, a tuple, or None with a 'length', but got {type(xs).__name__}.")
        return _run(_scan, loop_func, init, xs)


def _check_function(owner: str, name: str, given: Any) -> None:
    if not callable(given):
        raise ArgumentTypeError(f"For '{owner}', the '{name}' should be a function, but got {type(given).__name__}.")


def _run(loop: Function, *args: Any) -> Any:
    interpreter = active()
    return loop(*args) if interpreter is None else interpreter.interpret(loop, args, {})  # type: ignore[arg-type]


def _while_loop(condition: Function, body: Function, value: Any) -> Any:
    while condition(value):
        value = body(value)
    return value


def _for_loop(lower: Any, upper: Any, body: Function, value: Any) -> Any:
    for i in range(lower, upper):
        value = body(i, value)
    return value


def _scan(body: Function, carry: Any, xs: Sequence[Any]) -> Any:
    ys = []
    for x in xs:
        carry, y = body(carry, x)
        ys.append(y)
    return carry, ys
