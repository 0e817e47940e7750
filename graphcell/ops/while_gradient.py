"""The gradient of a loop whose number of steps is not known while compiling.

Enters: a `While`, which operands need gradients, which results have cotangents. Leaves: `Linearized`. The forward loop counts its steps
and saves the carried values of every `stride`-th step in a stack of fixed size; when the stack is full, every second entry goes and the
stride doubles. The backward loop takes the steps in reverse, each from the saved step before it, which it repeats up to where it needs
it. So memory is bounded; a loop of n steps and a stack of K slots costs n * n / 4K further steps, none for n <= K. Effects in the body
(print) happen in the forward loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphcell import dtype as dt
from graphcell.ir.graph import Graph
from graphcell.ir.types import TensorType
from graphcell.ops.arithmetic import Add, FloorDiv, Mul, Select, Sub
from graphcell.ops.comparison import BitwiseAnd, Equal, GreaterEqual, Less
from graphcell.ops.control import GraphCall, If, Linearized, Mask, While, positions
from graphcell.ops.creation import Full, Iota, number_of
from graphcell.ops.dispatch import Trace, apply, apply1
from graphcell.ops.movement import BroadcastTo, Concat, Reshape, Slice
from graphcell.ops.reduction import ReduceAny, ReduceSum
from graphcell.tensor import Tensor, state

Tensors = Sequence[Tensor]
_STACK_BYTES = 1 << 20
_FEWEST, _MOST = 8, 1024
"""Slots of the stack: as many as fit into `_STACK_BYTES`, between these (powers of two)."""
_COUNT = TensorType(dt.int64, ())


def linearize_while(loop: While, needed: Mask, seeds: Mask) -> Linearized:
    """Forward and backward op of `loop`; see `RegionOp.linearize`."""
    types = loop.body_graph.input_types
    carried = types[: loop.carried]
    forward = graph_of(f"{loop.body_graph.name}.forward", types, lambda *operands: _forward(loop, operands))
    invariants = types[loop.carried :]
    stacks = [t.with_shape((slot_count(carried), *t.shape)) for t in carried]
    given = [carried[k] for k in positions(seeds)]
    backward = graph_of(
        f"{loop.body_graph.name}.backward",
        [*invariants, _COUNT, _COUNT, *stacks, *given],
        lambda *held: _backward(loop, needed, seeds, held),
    )
    return Linearized(GraphCall(forward), GraphCall(backward), tuple(range(loop.carried, len(types))), ())


def slot_count(carried: Sequence[TensorType]) -> int:
    """How many steps the stack holds."""
    fit = _STACK_BYTES // max(1, sum(t.nbytes for t in carried))
    return max(_FEWEST, min(_MOST, 1 << max(0, fit.bit_length() - 1)))


# -- forward -------------------------------------------------------------------------------------------------------------
def _forward(loop: While, operands: Tensors) -> Tensors:
    """(*carried, number of steps, stride, *stacks)."""
    carried, invariants = operands[: loop.carried], operands[loop.carried :]
    slots = slot_count([t.type for t in carried])
    stacks = [_fill(t.type.with_shape((slots, *t.shape)), 0) for t in carried]
    start = [*carried, number(0), number(1), *stacks]
    types = [t.type for t in (*start, *invariants)]

    def cond(*args: Tensor) -> Tensors:
        return inline(loop.cond_graph, (*args[: loop.carried], *args[len(start) :]))

    def body(*args: Tensor) -> Tensors:
        values, count, stride = args[: loop.carried], args[loop.carried], args[loop.carried + 1]
        full = apply1(Equal(), count, apply1(Mul(), stride, number(slots)))
        stride, *saved = _thin_out(full, stride, args[loop.carried + 2 : len(start)])
        slot = apply1(FloorDiv(), count, stride)
        due = apply1(Equal(), count, apply1(Mul(), slot, stride))
        saved = [_put_row(s, slot, due, v) for s, v in zip(saved, values, strict=True)]
        after = inline(loop.body_graph, (*values, *args[len(start) :]))
        return [*after, apply1(Add(), count, number(1)), stride, *saved]

    op = While(graph_of("save.condition", types, cond), graph_of("save.body", types, body), len(start))
    return apply(op, *start, *invariants)


def _thin_out(full: Tensor, stride: Tensor, stacks: Tensors) -> Tensors:
    """If the stack is full, every second entry moves into its first half, and the stride doubles."""
    types = [stride.type, *(s.type for s in stacks)]

    def thin(stride: Tensor, *stacks: Tensor) -> Tensors:
        return [apply1(Add(), stride, stride), *map(_every_second, stacks)]

    return apply(
        If(graph_of("thin_out", types, thin), graph_of("keep", types, lambda *same: same)),
        full,
        stride,
        *stacks,
    )


def _every_second(stack: Tensor) -> Tensor:
    slots, rest = stack.shape[0], stack.shape[1:]
    still = (1,) * len(rest)
    first = apply1(Slice((0,) * stack.ndim, (slots // 2, *rest), (2, *still)), stack)
    second = apply1(Slice((slots // 2, *(0,) * len(rest)), (slots // 2, *rest), (1, *still)), stack)
    return apply1(Concat(0), first, second)


# -- backward ------------------------------------------------------------------------------------------------------------
def _backward(loop: While, needed: Mask, seeds: Mask, held: Tensors) -> Tensors:
    """Gradients of the needed operands from (*invariants, number of steps, stride, *stacks, *cotangents)."""
    types = loop.body_graph.input_types
    outside = len(types) - loop.carried
    invariants, count, stride = held[:outside], held[outside], held[outside + 1]
    stacks, cotangents = held[outside + 2 : outside + 2 + loop.carried], held[outside + 2 + loop.carried :]
    carried = positions(loop.active_results(needed))
    sums = [k for k in positions(needed) if k >= loop.carried]
    given = dict(zip(positions(seeds), cotangents, strict=True))
    flowing = [given[k] if k in given else _fill(types[k], 0) for k in carried]
    start = [apply1(Sub(), count, number(1)), *flowing, *(_fill(types[k], 0) for k in sums)]
    others = [stride, *stacks, *invariants]
    repeat = _without_effects(loop.body_graph)
    gradients = _gradients_of_body(repeat, carried, sums)

    def cond(*args: Tensor) -> Tensors:
        return [apply1(GreaterEqual(), args[0], number(0))]

    def body(*args: Tensor) -> Tensors:
        at, flow, totals = args[0], args[1 : 1 + len(carried)], args[1 + len(carried) : len(start)]
        stride, stacks = args[len(start)], args[len(start) + 1 : len(start) + 1 + loop.carried]
        invariants = args[len(start) + 1 + loop.carried :]
        values = _values_at(loop, repeat, at, stride, stacks, invariants)
        parts = inline(gradients, (*values, *invariants, *flow))
        grown = [apply1(Add(), s, g) for s, g in zip(totals, parts[len(carried) :], strict=True)]
        return [apply1(Sub(), at, number(1)), *parts[: len(carried)], *grown]

    types_of = [t.type for t in (*start, *others)]
    op = While(graph_of("back.condition", types_of, cond), graph_of("back.body", types_of, body), len(start))
    results = apply(op, *start, *others)
    table = dict(zip((*carried, *sums), results[1:], strict=True))
    return [table[k] for k in positions(needed)]


def _values_at(
    loop: While, repeat: Graph, at: Tensor, stride: Tensor, stacks: Tensors, invariants: Tensors
) -> Tensors:
    """The carried values before step `at`: the last saved ones before it, and the steps from there repeated."""
    slot = apply1(FloorDiv(), at, stride)
    saved = [_row(s, slot) for s in stacks]
    start = [apply1(Mul(), slot, stride), *saved]
    types = [t.type for t in (*start, at, *invariants)]

    def cond(*args: Tensor) -> Tensors:
        return [apply1(Less(), args[0], args[len(start)])]

    def body(*args: Tensor) -> Tensors:
        return [
            apply1(Add(), args[0], number(1)),
            *inline(repeat, (*args[1 : len(start)], *args[len(start) + 1 :])),
        ]

    op = While(graph_of("repeat.condition", types, cond), graph_of("repeat.body", types, body), len(start))
    return apply(op, *start, at, *invariants)[1:]


def _gradients_of_body(body: Graph, carried: Sequence[int], sums: Sequence[int]) -> Graph:
    """(*carried, *invariants, *cotangents of the active carried) -> gradients of these and of the wanted invariants."""
    from graphcell.passes.autodiff import live_nodes, vjp

    joint = vjp(body, [*carried, *sums], carried)
    outputs = joint.outputs[len(body.outputs) :]
    return Graph(joint.name, joint.inputs, live_nodes(joint.nodes, outputs, set()), outputs)


def _without_effects(graph: Graph) -> Graph:
    """`graph` without what only has effects, so that it can be repeated."""
    from graphcell.ir.graph import Node
    from graphcell.passes.autodiff import live_nodes

    nodes = []
    for node in live_nodes(graph.nodes, graph.outputs, set()):
        inner = tuple(map(_without_effects, node.op.regions))
        nodes.append(
            Node(node.op.with_regions(inner), node.operands, node.results, node.span) if inner else node
        )
    return Graph(graph.name, graph.inputs, nodes, graph.outputs)


# -- building ------------------------------------------------------------------------------------------------------------
def graph_of(name: str, types: Sequence[TensorType], function: Callable[..., Tensors]) -> Graph:
    """The graph of a function of Tensors of `types`, written in ops."""
    trace = Trace(name)
    inputs = [trace.input(t) for t in types]
    with trace.active():
        values = [trace.read(t) for t in function(*map(Tensor.of_value, inputs))]
    return trace.finish(values)


def inline(graph: Graph, tensors: Tensors) -> list[Tensor]:
    """`graph` applied to Tensors of the graph under construction."""
    trace = state.trace
    assert trace is not None
    return [Tensor.of_value(v) for v in trace.inline(graph, [trace.read(t) for t in tensors])]


def number(value: int) -> Tensor:
    return _fill(_COUNT, value)


def _fill(type: TensorType, value: int) -> Tensor:
    return apply1(Full(number_of(value, type.dtype), type.shape, type.dtype))


def _is_row(stack: Tensor, slot: Tensor) -> Tensor:
    """Bool of the shape of `stack`: whether the first index is `slot`."""
    slots = stack.shape[0]
    hit = apply1(Equal(), apply1(Iota((slots,), 0, dt.int64)), apply1(BroadcastTo((slots,)), slot))
    return apply1(BroadcastTo(stack.shape), apply1(Reshape((slots, *(1,) * (stack.ndim - 1))), hit))


def _put_row(stack: Tensor, slot: Tensor, due: Tensor, value: Tensor) -> Tensor:
    """`stack` with `value` at `slot`, if it is due."""
    here = apply1(BitwiseAnd(), _is_row(stack, slot), apply1(BroadcastTo(stack.shape), due))
    return apply1(Select(), here, apply1(BroadcastTo(stack.shape), value), stack)


def _row(stack: Tensor, slot: Tensor) -> Tensor:
    """The entry at `slot`. A sum in which all others are zeros."""
    here = _is_row(stack, slot)
    if stack.dtype.is_bool:
        return apply1(ReduceAny((0,)), apply1(BitwiseAnd(), here, stack))
    return apply1(ReduceSum((0,)), apply1(Select(), here, stack, _fill(stack.type, 0)))
