"""Compares a function that was traced, and its graph evaluated op by op, with the same function run by
Python.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from graphcell import ops  # noqa: F401  (attaches the operators of Tensor)
from graphcell.frontend import Traced, trace_function
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.verify import verify
from graphcell.tensor import Tensor


def tensor(*values: float, dtype: Any = np.float32) -> Tensor:
    """A vector."""
    return Tensor(np.array(values, dtype))


def tensors_in(value: Any) -> list[Tensor]:
    """Plain Tensors in nested containers."""
    if isinstance(value, Tensor):
        return [value] if type(value) is Tensor else []
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors_in(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_in(v)]
    return []


def run_traced(traced: Traced, args: Any) -> Any:
    """Evaluates a traced function on its arguments, applies what it writes, and returns its result."""
    verify(traced.graph)
    inputs = [*tensors_in(args), *traced.captured]
    outputs = evaluate_graph(traced.graph, [t.array().copy() for t in inputs])
    written = dict(traced.updates)
    results = [Tensor.of_array(np.array(a)) for k, a in enumerate(outputs) if k not in written]
    for position, target in traced.updates:
        inputs[target].rebind(np.array(outputs[position]))
    result = traced.result.build(results)
    for effect in traced.effects:
        effect.apply(results)
    return result


def same(got: Any, want: Any, where: str = "result") -> None:
    """Asserts equality of type, structure, dtype, shape and values (floats to a few ulp)."""
    if isinstance(want, Tensor):
        assert isinstance(got, Tensor), f"{where}: {got!r} is no Tensor, but {want!r} is"
        assert got.dtype is want.dtype and got.shape == want.shape, (
            f"{where}: {got.ir_type}, want {want.ir_type}"
        )
        np.testing.assert_allclose(got.asnumpy(), want.asnumpy(), rtol=1e-5, atol=1e-6, err_msg=where)
        return
    assert type(got) is type(want), f"{where}: {got!r} where {want!r} is wanted"
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want), f"{where}: {len(got)} items, want {len(want)}"
        for k, (g, w) in enumerate(zip(got, want, strict=True)):
            same(g, w, f"{where}[{k}]")
    elif isinstance(want, dict):
        assert list(got) == list(want), f"{where}: keys {list(got)}, want {list(want)}"
        for k in want:
            same(got[k], want[k], f"{where}[{k!r}]")
    elif isinstance(want, float):
        np.testing.assert_allclose(got, want, rtol=1e-5, err_msg=where)
    else:
        assert got == want, f"{where}: {got!r}, want {want!r}"


def check(function: Callable[..., Any], *args: Any) -> Traced:
    """Asserts that the traced function gives what Python gives, and leaves its arguments as Python does."""
    mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
    want = function(*theirs)
    traced = trace_function(function, mine)
    got = run_traced(traced, mine)
    same(got, want)
    for k, (a, b) in enumerate(zip(tensors_in(mine), tensors_in(theirs), strict=False)):
        same(a, b, f"argument {k} afterwards")
    return traced


def op_names(traced: Traced) -> list[str]:
    """The names of all ops, regions included."""
    return [node.op.name for node in traced.graph.walk()]


def check_all(functions: dict[str, Callable[..., Any]], *argument_lists: tuple[Any, ...]) -> Iterator[str]:
    """Checks every function on every list of arguments; yields the names."""
    for name, function in functions.items():
        for args in argument_lists:
            check(function, *args)
        yield name
