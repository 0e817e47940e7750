"""Shared by the tests of ops: finite differences in float64, and a plain interpreter of graphs.

Nothing here uses graphcell.grad, the passes' pipeline or codegen, so that each of them can be tested against it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphcell.frontend.interpreter import interpreting
from graphcell.ir.graph import Graph
from graphcell.ir.op import evaluate
from graphcell.ir.types import TensorType
from graphcell.ir.verify import verify
from graphcell.ops.dispatch import Tape, Trace, recording
from graphcell.passes.autodiff import vjp, zeros_of
from graphcell.pullback import replace_tensors, tensors_in
from graphcell.tensor import Tensor, state

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]


def trace(fn: Function, *types: TensorType, name: str = "f") -> Graph:
    """The graph of `fn` called with symbolic Tensors of `types`. `fn` must not read concrete Tensors from outside."""
    builder = Trace(name, state.trace)
    inputs = [builder.input(t) for t in types]
    with builder.active():
        results = _as_tuple(fn(*map(Tensor.of_value, inputs)))
        values = [builder.read(t) for t in results]
    if builder.captured or builder.lifted:
        raise AssertionError("trace: the function reads Tensors from outside; pass them as arguments")
    graph = builder.finish(values)
    verify(graph)
    return graph


def in_graph(fn: Function, *args: Any) -> Any:
    """What `fn(*args)` returns when it is interpreted into a graph, which then runs by the ops' `eval`. Plain Tensors in `args` become inputs;
    what the function writes into Parameters is written."""
    builder = Trace("outer")
    plain = list({id(t): t for t in tensors_in(args) if type(t) is Tensor}.values())
    symbols = {id(t): Tensor.of_value(builder.input(t.ir_type)) for t in plain}
    with interpreting(builder) as interpreter:
        result = interpreter.call(fn, replace_tensors(args, iter([symbols.get(id(t), t) for t in tensors_in(args)])), {})
        values = [builder.read(t) for t in tensors_in(result)]
    written = [(t, v) for t, v in builder.writes() if not t.is_symbolic]
    graph = builder.finish([*values, *(v for _, v in written)])
    verify(graph)
    arrays = run(graph, *(t.array() for t in plain), *(t.array() for t, _ in builder.captured.values()))
    for (t, _), array in zip(written, arrays[len(values) :], strict=True):
        t.rebind(array)
    return replace_tensors(result, map(Tensor.of_array, arrays[: len(values)]))


def run(graph: Graph, *arrays: Array) -> tuple[Array, ...]:
    """Evaluates a graph by its ops' `eval`; asserts that each result has the dtype and shape that `infer` gave."""
    table = dict(zip(graph.inputs, arrays, strict=True))
    for node in graph.nodes:
        results = evaluate(node.op, tuple(table[v] for v in node.operands))
        for v, r in zip(node.results, results, strict=True):
            assert r.shape == v.type.shape and r.dtype == v.type.dtype.np_type, (
                f"{node.op}: eval gave {r.dtype}{r.shape}, infer {v.type}"
            )
            table[v] = r
    return tuple(table[v] for v in graph.outputs)


def numeric_gradient(f: Callable[..., float], arrays: Sequence[Array], k: int, step: float = 1e-5) -> Array:
    """Central differences of the scalar function `f(*arrays)` in every element of `arrays[k]` (float64)."""
    result = np.zeros(arrays[k].shape)
    for index in np.ndindex(*arrays[k].shape):
        values = []
        for sign in (1, -1):
            moved = arrays[k].copy()
            moved[index] += sign * step
            values.append(f(*arrays[:k], moved, *arrays[k + 1 :]))
        result[index] = (values[0] - values[1]) / (2 * step)
    return result


def check_gradients(
    fn: Function,
    *arrays: Any,
    order: int = 2,
    step: float = 1e-5,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    wrt: Sequence[int] | None = None,
) -> None:
    """Asserts that the gradients of `fn`, to the given order, are those of finite differences in float64.

    `fn` takes as many Tensors as there are `arrays` and returns a Tensor or a tuple of them (float outputs count). Float arrays become
    float64 and are differentiated (or only those at positions `wrt`); integer and Bool arrays are passed on. Gradients are taken both
    eagerly (Tape) and as a graph (vjp), and must agree. Use small arrays: each element costs two calls an order.
    """
    operands = [_float64(a) for a in arrays]
    positions = (
        tuple(k for k, a in enumerate(operands) if a.dtype == np.float64) if wrt is None else tuple(wrt)
    )
    assert positions, "check_gradients: no float array to differentiate"
    current = fn
    for level in range(1, order + 1):
        _check_level(current, operands, positions, level, step, rtol, atol)
        current = gradient_of(current, positions)


def gradient_of(fn: Function, positions: Sequence[int]) -> Function:
    """A function of the same arguments that returns the gradients of sum(w * output) over the float outputs, w being fixed numbers."""

    def gradient(*tensors: Tensor) -> tuple[Tensor, ...]:
        return (
            _traced_gradient(fn, tensors, positions)
            if state.trace is not None
            else _taped_gradient(fn, tensors, positions)
        )

    return gradient


def weights_of(shape: tuple[int, ...], k: int) -> Array:
    """Fixed numbers between 0.5 and 1.5, for output `k`."""
    return np.random.default_rng(17 + k).uniform(0.5, 1.5, shape)


def _check_level(
    fn: Function,
    operands: list[Array],
    positions: tuple[int, ...],
    level: int,
    step: float,
    rtol: float,
    atol: float,
) -> None:
    def scalar(*values: Array) -> float:
        outputs = _as_tuple(fn(*map(Tensor, values)))
        return sum(
            float((weights_of(t.shape, k) * t.asnumpy()).sum())
            for k, t in enumerate(outputs)
            if t.dtype.is_float
        )

    gradient = gradient_of(fn, positions)
    eager = [t.asnumpy() for t in gradient(*map(Tensor, operands))]
    graph = trace(gradient, *(Tensor(a).ir_type for a in operands))
    for k, got, traced in zip(positions, eager, run(graph, *operands), strict=True):
        assert got.shape == operands[k].shape and got.dtype == operands[k].dtype, (
            f"order {level}: gradient of argument {k} is {got.dtype}{got.shape}"
        )
        want = numeric_gradient(scalar, operands, k, step)
        scale = max(1.0, float(np.abs(want).max(initial=0)))
        np.testing.assert_allclose(
            got, want, rtol=rtol, atol=atol * scale, err_msg=f"order {level}: gradient of argument {k}"
        )
        np.testing.assert_allclose(
            traced,
            got,
            rtol=1e-9,
            atol=1e-9 * scale,
            err_msg=f"order {level}: graph and tape differ for argument {k}",
        )


def _taped_gradient(fn: Function, tensors: Sequence[Tensor], positions: Sequence[int]) -> tuple[Tensor, ...]:
    tape = Tape()
    for k in positions:
        tape.watch(tensors[k])
    with recording(tape):
        outputs = _as_tuple(fn(*tensors))
    seeds = [
        Tensor(weights_of(t.shape, k).astype(t.dtype.np_type)) if t.dtype.is_float else None
        for k, t in enumerate(outputs)
    ]
    found = tape.gradients(outputs, seeds, [tensors[k] for k in positions])
    return tuple(zeros_of(tensors[k]) if g is None else g for k, g in zip(positions, found, strict=True))


def _traced_gradient(fn: Function, tensors: Sequence[Tensor], positions: Sequence[int]) -> tuple[Tensor, ...]:
    outer = state.trace
    assert outer is not None
    graph = trace(fn, *(t.ir_type for t in tensors))
    seeds = [
        Tensor(weights_of(t.shape, k).astype(t.dtype.np_type))
        for k, t in enumerate(graph.output_types)
        if t.dtype.is_float
    ]
    results = outer.inline(vjp(graph, positions), [outer.read(t) for t in itertools.chain(tensors, seeds)])
    return tuple(map(Tensor.of_value, results[len(graph.outputs) :]))


def _float64(array: Any) -> Array:
    data = np.array(array)
    return data if data.dtype.kind in "biu" else data.astype(np.float64)


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return tuple(results) if isinstance(results, (tuple, list)) else (results,)


def plain(x: Any) -> Any:
    """Tensors as Python numbers and lists (integers stay integers)."""
    if isinstance(x, Tensor):
        return x.asnumpy().tolist()
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    return type(x)(map(plain, x)) if isinstance(x, (tuple, list)) else x
