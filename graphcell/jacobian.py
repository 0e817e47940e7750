"""Products with Jacobians, and whole Jacobians: `vjp`, `jvp`, `jacrev`, `jacfwd`, with MindSpore 2.10's structures.

Enters: a function and its inputs (Tensors). Leaves: its output with products or Jacobians. All rest on one pullback, which is linear in the
cotangents, so that its own pullback is the push forward: no second set of rules is needed, and everything nests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.context import GRAPH_MODE, config
from graphcell.errors import ArgumentTypeError, ArgumentValueError, UnsupportedSyntaxError
from graphcell.grad import (
    Request,
    Weights,
    chosen_arguments,
    compiled_in_graph_mode,
    pack_weights,
    request_of,
    seed,
    seeds,
    separate,
    trainable,
)
from graphcell.ir.types import TensorType
from graphcell.ops.control import For
from graphcell.ops.creation import Constant, Literal
from graphcell.ops.dispatch import Trace, apply1
from graphcell.ops.functional.common import full_like
from graphcell.ops.movement import Concat, Reshape, Slice, Transpose
from graphcell.pullback import Function, Pullback, gradient_structure, linearize, name_of, replace_tensors, tensors_in
from graphcell.tensor import Tensor, state

__all__ = ["jacfwd", "jacrev", "jvp", "vjp"]

Rows = Callable[..., Sequence[Tensor]]


def vjp(fn: Function, *inputs: Any, weights: Weights = None, has_aux: bool = False) -> tuple[Any, ...]:
    """What `fn(*inputs)` returns, and the function that multiplies its Jacobian from the left.

    Returns:
        (output, vjp_fn), with `has_aux` (first output, vjp_fn, *other outputs). `vjp_fn` takes one Tensor for each output (or a tuple of
        them) and gives a tuple with a gradient for each input, with `weights` (that, gradients of weights).

    Raises:
        TypeError, ValueError: as in `grad`.
    """
    request = request_of("vjp", fn, tuple(range(len(inputs))) or None, weights, has_aux)
    if not all(isinstance(x, Tensor) for x in inputs):
        raise ArgumentTypeError("vjp: the inputs must be Tensors")
    args, _, chosen = separate(inputs, {}, chosen_arguments(request, inputs, {}), config.mode == GRAPH_MODE)
    tensors, wanted = tensors_in([x for _, x in chosen]), trainable(request)
    wrt = [*tensors, *wanted]
    output, pullback = linearize(fn, args, {}, wrt)
    seeds(request, output, None, wrt)  # for its errors

    def vjp_fn(*v: Any) -> Any:
        gradients = pullback(seeds(request, output, v, wrt))
        of_inputs = tuple(gradient_structure([x for _, x in chosen], iter(gradients)))
        of_weights = dict(zip(map(id, wanted), gradients[len(tensors) :], strict=True))
        return of_inputs if request.weights is None else (of_inputs, pack_weights(request, of_weights))

    return (output[0], vjp_fn, *output[1:]) if has_aux else (output, vjp_fn)


def jvp(fn: Function, inputs: Any, v: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """What `fn(*inputs)` returns, and its Jacobian multiplied by `v` from the right.

    `inputs` and `v` are Tensors, or tuples of as many. Returns (output, product), with `has_aux` (first output, its product, *others).

    Raises:
        TypeError: for anything else, or `v` of another dtype. ValueError: if `v` has another length or shape.
    """
    request = request_of("jvp", fn, None, None, has_aux)
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    tangents = tuple(v) if isinstance(v, (tuple, list)) else (v,)
    if len(args) != len(tangents):
        raise ArgumentValueError(f"jvp: v has invalid length: should be {len(args)}, but got {len(tangents)}")
    if not all(isinstance(x, Tensor) for x in args):
        raise ArgumentTypeError("jvp: the inputs must be Tensors")
    for k, (x, t) in enumerate(zip(args, tangents, strict=True)):
        if not isinstance(t, Tensor) or t.dtype is not x.dtype:
            raise ArgumentTypeError(f"jvp: v[{k}] must be a Tensor of {x.dtype}, as its input is, but is {getattr(t, 'dtype', type(t).__name__)}")
    args, _, _ = separate(args, {}, [], True)
    given = [seed("jvp", t, x) for x, t in zip(args, tangents, strict=True)]
    output, push = _push_forward(request, args, args)
    first = output[0] if has_aux else output
    product = replace_tensors(first, iter(push(given)))
    return (first, product, *output[1:]) if has_aux else (output, product)


def jacrev(fn: Function, grad_position: int | tuple[int, ...] = 0, has_aux: bool = False) -> Function:
    """The Jacobian of `fn` by reverse mode, one pass an output element: for fewer outputs than inputs.

    Returns:
        A function of `fn`'s arguments that gives, for each output, a Tensor of shape (*output, *input) for each position (one Tensor for
        an int or a tuple of one); with `has_aux` (that, other outputs), where a single other output stands for itself.

    Raises:
        TypeError, ValueError, IndexError: as in `grad`.
    """
    request = request_of("jacrev", fn, grad_position, None, has_aux)

    def jacobian(*args: Any) -> Any:
        args, _, chosen = separate(args, {}, chosen_arguments(request, args, {}), True)
        wrt = tensors_in([x for _, x in chosen])
        output, pullback = linearize(fn, args, {}, wrt)
        return _pack(request, output, _rows_of_outputs(request, output, pullback, wrt))

    return compiled_in_graph_mode(jacobian, f"{name_of(fn)}_jacobian")


def jacfwd(fn: Function, grad_position: int | tuple[int, ...] = 0, has_aux: bool = False) -> Function:
    """The Jacobian of `fn` by forward mode, one pass an input element: for fewer inputs than outputs. See `jacrev`."""
    request = request_of("jacfwd", fn, grad_position, None, has_aux)

    def jacobian(*args: Any) -> Any:
        args, _, chosen = separate(args, {}, chosen_arguments(request, args, {}), True)
        wrt = tensors_in([x for _, x in chosen])
        output, push = _push_forward(request, args, wrt)
        return _pack(request, output, _columns_of_inputs(request, output, push, wrt))

    return compiled_in_graph_mode(jacobian, f"{name_of(fn)}_jacobian")


# -- forward mode --------------------------------------------------------------------------------------------------------
def _push_forward(
    request: Request, args: Sequence[Any], wrt: Sequence[Tensor]
) -> tuple[Any, Callable[[Sequence[Tensor]], list[Tensor]]]:
    """What the function returns, and the function from tangents of `wrt` to those of the (differentiated) output's Tensors."""
    output, pullback = linearize(request.fn, args, {}, wrt)
    ones = seeds(request, output, None, wrt)
    zeros = [full_like(s, 0) for s in ones if s is not None]

    def transposed(*given: Tensor) -> Any:
        stream = iter(given)
        return tuple(pullback([None if s is None else next(stream) for s in ones]))

    _, back = linearize(transposed, zeros, {}, zeros)
    differentiated = tensors_in(output[0]) if request.has_aux else tensors_in(output)

    def push(tangents: Sequence[Tensor]) -> list[Tensor]:
        products = iter(back(list(tangents)))
        return [
            full_like(t, 0) if s is None else next(products)
            for t, s in zip(differentiated, ones, strict=False)
        ]

    return output, push


# -- whole Jacobians -----------------------------------------------------------------------------------------------------
def _rows_of_outputs(
    request: Request, output: Any, pullback: Pullback, wrt: Sequence[Tensor]
) -> list[list[Tensor]]:
    """For each differentiated output, a Jacobian for each of `wrt`."""
    cotangents = seeds(request, output, None, wrt)
    found = []
    for k, s in enumerate(cotangents):
        if s is None:
            continue

        def row(g: Tensor, k: int = k) -> Sequence[Tensor]:
            return pullback(
                [g if j == k else None if c is None else full_like(c, 0) for j, c in enumerate(cotangents)]
            )

        parts = map_rows(row, basis(s.ir_type))
        found.append([_reshape(p, (*s.shape, *x.shape)) for p, x in zip(parts, wrt, strict=True)])
    return found


def _columns_of_inputs(
    request: Request, output: Any, push: Callable[[Sequence[Tensor]], list[Tensor]], wrt: Sequence[Tensor]
) -> list[list[Tensor]]:
    """The same as `_rows_of_outputs`, by forward mode."""
    columns = []
    for k, x in enumerate(wrt):

        def column(t: Tensor, k: int = k) -> Sequence[Tensor]:
            return push([t if j == k else full_like(y, 0) for j, y in enumerate(wrt)])

        columns.append([_move_first_last(part, x.shape) for part in map_rows(column, basis(x.ir_type))])
    return [list(row) for row in zip(*columns, strict=True)]


def _pack(request: Request, output: Any, jacobians: list[list[Tensor]]) -> Any:
    each = [row[0] if len(row) == 1 else tuple(row) for row in jacobians]
    result = each[0] if len(each) == 1 else tuple(each)
    if not request.has_aux:
        return result
    return result, output[1] if len(output) == 2 else output[1:]


def basis(type: TensorType) -> Tensor:
    """All unit Tensors of `type`: shape (size, *shape)."""
    data = np.eye(type.size, dtype=type.dtype.np_type).reshape(type.size, *type.shape)
    return apply1(Constant(Literal(data), type.dtype))


def map_rows(function: Rows, *rows: Tensor) -> list[Tensor]:
    """`function` applied to the slices of `rows` along their first dimension; the results stacked. In a graph this is one loop.

    Raises:
        UnsupportedSyntaxError: in a graph, if the function assigns to Parameters or to Tensors from outside.
    """
    if state.trace is not None:
        return _map_rows_in_graph(state.trace, function, rows)
    results = []
    for k in range(rows[0].shape[0]):
        slices = [_reshape(apply1(Slice((k, *(0,) * (r.ndim - 1)), (1, *r.shape[1:]), (1,) * r.ndim), r), r.shape[1:]) for r in rows]
        results.append([_reshape(t, (1, *t.shape)) for t in function(*slices)])
    return [apply1(Concat(0), *parts) for parts in zip(*results, strict=True)]


def _map_rows_in_graph(outer: Trace, function: Rows, rows: Sequence[Tensor]) -> list[Tensor]:
    body = Trace("row", outer)
    body.input(TensorType(dt.int64, ()), "index")
    slices = [Tensor.of_value(body.input(r.ir_type.with_shape(r.shape[1:]), "row")) for r in rows]
    with body.active():
        values = [body.read(t) for t in function(*slices)]
    if body.writes():
        raise UnsupportedSyntaxError("a function that is applied along a dimension assigns to a Parameter, or to a Tensor from outside.")
    graph = body.finish(values)
    operands = [*map(outer.read, rows), *(outer.lift(v) for v in body.lifted)]
    return [Tensor.of_value(v) for v in outer.append_values(For(graph, rows[0].shape[0], 0, len(rows)), operands)]


def _reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.shape == shape else apply1(Reshape(shape), x)


def _move_first_last(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """(size, *rest) with size = prod(shape) -> (*rest, *shape)."""
    moved = apply1(Transpose((*range(1, x.ndim), 0)), x) if x.ndim > 1 else x
    assert x.shape[0] == math.prod(shape)
    return _reshape(moved, (*x.shape[1:], *shape))
