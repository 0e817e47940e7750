"""The gradient of a loop whose number of steps is not known while compiling.

Enters: a `While`, which operands need gradients, which results have cotangents. Leaves: `Linearized`. The forward loop counts its steps and
saves the carried values of every `stride`-th step in a stack of fixed size; when the stack is full, every second entry goes and the stride
doubles. The backward loop goes back block by block: from the saved values before a block it repeats the steps up to the block, and then
takes the block as a counted loop, with its gradient. So memory is bounded. A loop of n steps is run twice forward; beyond `slots * block`
steps, also n / (4 * slots * block) times more. Effects in the body (print) happen in the forward loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphcell import dtype as dt
from graphcell.ir.graph import Graph
from graphcell.ir.types import TensorType
from graphcell.ops.arithmetic import Add, FloorDiv, Mul, Select, Sub
from graphcell.ops.comparison import BitwiseAnd, Equal, GreaterEqual, Less
from graphcell.ops.control import For, GraphCall, If, Linearized, Mask, While, positions
from graphcell.ops.creation import Full, Iota, number_of
from graphcell.ops.dispatch import Trace, apply, apply1
from graphcell.ops.movement import BroadcastTo, Concat, Reshape, Slice
from graphcell.ops.reduction import ReduceAny, ReduceSum
from graphcell.tensor import Tensor, state

Tensors = Sequence[Tensor]
_STACK_BYTES = 1 << 20
_FEWEST_SLOTS, _MOST_SLOTS = 8, 1024
"""Slots of the stack: as many as fit into `_STACK_BYTES`, between these (powers of two)."""
_BLOCK_BYTES = 4 << 20
_SHORTEST_BLOCK, _LONGEST_BLOCK = 4, 32
"""Steps of a block: as many as have carried values of `_BLOCK_BYTES`, between these."""
_COUNT = TensorType(dt.int64, ())


def linearize_while(loop: While, needed: Mask, seeds: Mask) -> Linearized:
    """Forward and backward op of `loop`; see `RegionOp.linearize`."""
    types = loop.body_graph.input_types
    carried, invariants = types[: loop.carried], types[loop.carried :]
    name = loop.body_graph.name
    forward = graph_of(f"{name}.forward", types, lambda *operands: _forward(loop, operands))
    stacks = [t.with_shape((_slots(carried), *t.shape)) for t in carried]
    given = [carried[k] for k in positions(seeds)]
    held = [*invariants, _COUNT, _COUNT, *stacks, *given]
    backward = graph_of(f"{name}.backward", held, lambda *held: _backward(loop, needed, seeds, held))
    return Linearized(GraphCall(forward), GraphCall(backward), tuple(range(loop.carried, len(types))), ())


def _slots(carried: Sequence[TensorType]) -> int:
    return _fit(_STACK_BYTES, carried, _FEWEST_SLOTS, _MOST_SLOTS)


def _block(carried: Sequence[TensorType]) -> int:
    return _fit(_BLOCK_BYTES, carried, _SHORTEST_BLOCK, _LONGEST_BLOCK)


def _fit(limit: int, types: Sequence[TensorType], fewest: int, most: int) -> int:
    """The power of two of values of `types` that fit into `limit` bytes, within bounds."""
    fit = limit // max(1, sum(t.nbytes for t in types))
    return max(fewest, min(most, 1 << max(0, fit.bit_length() - 1)))


# -- forward -------------------------------------------------------------------------------------------------------------
def _forward(loop: While, operands: Tensors) -> Tensors:
    """(*carried, number of steps, stride, *stacks). Each pass of the outer loop saves the values and takes `stride` steps."""
    carried, invariants = operands[: loop.carried], operands[loop.carried :]
    types = [t.ir_type for t in carried]
    slots = _slots(types)
    stacks = [_fill(t.with_shape((slots, *t.shape)), 0) for t in types]
    (going,) = inline(loop.cond_graph, operands)
    start = [going, *carried, number(0), number(_block(types)), *stacks]
    inside = [t.ir_type for t in (*start, *invariants)]
    count_at = 1 + loop.carried

    def body(*args: Tensor) -> Tensors:
        going, values, count, stride = args[0], args[1:count_at], args[count_at], args[count_at + 1]
        full = apply1(Equal(), count, apply1(Mul(), stride, number(slots)))
        stride, *saved = _thin_out(full, stride, args[count_at + 2 : len(start)])
        slot = apply1(FloorDiv(), count, stride)
        saved = [_put_row(s, slot, v) for s, v in zip(saved, values, strict=True)]
        limit = apply1(Add(), count, stride)
        return [*_steps(loop, going, values, count, limit, args[len(start) :]), stride, *saved]

    condition = graph_of("save.condition", inside, lambda *args: args[:1])
    op = While(condition, graph_of("save.body", inside, body), len(start))
    return apply(op, *start, *invariants)[1:]


def _steps(loop: While, going: Tensor, values: Tensors, count: Tensor, limit: Tensor, invariants: Tensors) -> Tensors:
    """(going, *carried, count) after the steps from `count` to `limit`, or to the end of the loop."""
    start = [going, *values, count]
    types = [t.ir_type for t in (*start, limit, *invariants)]

    def condition(*args: Tensor) -> Tensors:
        return [apply1(BitwiseAnd(), args[0], apply1(Less(), args[len(start) - 1], args[len(start)]))]

    def body(*args: Tensor) -> Tensors:
        after = inline(loop.body_graph, (*args[1 : 1 + loop.carried], *args[len(start) + 1 :]))
        (going,) = inline(loop.cond_graph, (*after, *args[len(start) + 1 :]))
        return [going, *after, apply1(Add(), args[len(start) - 1], number(1))]

    op = While(graph_of("steps.condition", types, condition), graph_of("steps.body", types, body), len(start))
    return apply(op, *start, limit, *invariants)


def _thin_out(full: Tensor, stride: Tensor, stacks: Tensors) -> Tensors:
    """If the stack is full, every second entry moves into its first half, and the stride doubles."""
    types = [stride.ir_type, *(s.ir_type for s in stacks)]

    def thin(stride: Tensor, *stacks: Tensor) -> Tensors:
        return [apply1(Add(), stride, stride), *map(_every_second, stacks)]

    return apply(If(graph_of("thin_out", types, thin), graph_of("keep", types, lambda *same: same)), full, stride, *stacks)


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
    length = number(_block(types[: loop.carried]))
    last = apply1(Mul(), apply1(FloorDiv(), apply1(Sub(), count, number(1)), length), length)  # negative without steps
    start = [last, *flowing, *(_fill(types[k], 0) for k in sums)]
    others = [count, stride, *stacks, *invariants]
    inside = [t.ir_type for t in (*start, *others)]
    repeat = _without_effects(loop.body_graph)
    gradients = _gradients_of_block(loop, repeat, carried, sums)

    def body(*args: Tensor) -> Tensors:
        at, flow, totals = args[0], args[1 : 1 + len(carried)], args[1 + len(carried) : len(start)]
        count, stride, *rest = args[len(start) :]
        stacks, invariants = rest[: loop.carried], rest[loop.carried :]
        values = _values_at(repeat, at, stride, stacks, invariants)
        parts = inline(gradients, (*values, *invariants, at, count, *flow))
        grown = [apply1(Add(), s, g) for s, g in zip(totals, parts[len(carried) :], strict=True)]
        return [apply1(Sub(), at, number(_block(types[: loop.carried]))), *parts[: len(carried)], *grown]

    condition = graph_of("back.condition", inside, lambda *args: [apply1(GreaterEqual(), args[0], number(0))])
    op = While(condition, graph_of("back.body", inside, body), len(start))
    table = dict(zip((*carried, *sums), apply(op, *start, *others)[1:], strict=True))
    return [table[k] for k in positions(needed)]


def _values_at(repeat: Graph, at: Tensor, stride: Tensor, stacks: Tensors, invariants: Tensors) -> Tensors:
    """The carried values before step `at`: the last saved ones before it, and the steps from there repeated."""
    slot = apply1(FloorDiv(), at, stride)
    start = [apply1(Mul(), slot, stride), *(_row(s, slot) for s in stacks)]
    types = [t.ir_type for t in (*start, at, *invariants)]

    def condition(*args: Tensor) -> Tensors:
        return [apply1(Less(), args[0], args[len(start)])]

    def body(*args: Tensor) -> Tensors:
        return [apply1(Add(), args[0], number(1)), *inline(repeat, (*args[1 : len(start)], *args[len(start) + 1 :]))]

    op = While(graph_of("repeat.condition", types, condition), graph_of("repeat.body", types, body), len(start))
    return apply(op, *start, at, *invariants)[1:]


def _gradients_of_block(loop: While, repeat: Graph, carried: Sequence[int], sums: Sequence[int]) -> Graph:
    """(*carried, *invariants, first step, number of steps, *cotangents of the active carried) -> gradients of these and of `sums`.

    The block is a counted loop; steps after the last one of the whole loop do nothing.
    """
    from graphcell.passes.autodiff import live_nodes, vjp

    types = [*repeat.input_types, _COUNT, _COUNT]
    same = graph_of("same", repeat.input_types, lambda *values: values[: loop.carried])

    def step(index: Tensor, *args: Tensor) -> Tensors:
        values, first, count = args[:-2], args[-2], args[-1]
        return apply(If(repeat, same), apply1(Less(), apply1(Add(), first, index), count), *values)

    op = For(graph_of("block.step", [_COUNT, *types], step), _block(types[: loop.carried]), loop.carried, 0)
    block = graph_of("block", types, lambda *args: apply(op, *args))
    joint = vjp(block, [*carried, *sums], carried)
    outputs = joint.outputs[loop.carried :]
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


def _put_row(stack: Tensor, slot: Tensor, value: Tensor) -> Tensor:
    """`stack` with `value` at `slot`."""
    return apply1(Select(), _is_row(stack, slot), apply1(BroadcastTo(stack.shape), value), stack)


def _row(stack: Tensor, slot: Tensor) -> Tensor:
    """The entry at `slot`. A sum in which all others are zeros."""
    here = _is_row(stack, slot)
    if stack.dtype.is_bool:
        return apply1(ReduceAny((0,)), apply1(BitwiseAnd(), here, stack))
    return apply1(ReduceSum((0,)), apply1(Select(), here, stack, _fill(stack.ir_type, 0)))
