"""Reverse-mode differentiation as a transform of graphs.

`vjp(graph, wrt)` gives one graph that holds the forward and the backward computation, so that later passes fuse the two.
`split_vjp(graph, wrt)` gives them as two graphs with residuals between them, for what runs at two times: branches, loop bodies, calls
from eager code. The gradient rules are the ops' own, applied to symbolic Tensors; ops with regions leave residuals (`linearize`).
Gradients inside of a `recomputed` graph read copies of its values, made when the backward computation gets there (`_Block`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import field
from typing import Any, TypeVar

from graphcell.errors import GraphcellError, Span
from graphcell.ir.graph import Builder, Graph, Node, Value, copy_node
from graphcell.ir.op import Op
from graphcell.ir.types import TensorType
from graphcell.ops.arithmetic import Add, StopGradient
from graphcell.ops.control import GraphCall, Linearized, Recomputed, RegionOp
from graphcell.ops.creation import Full, number_of
from graphcell.ops.dispatch import Trace, apply1
from graphcell.ops.movement import Fence
from graphcell.passes.attention import fuse_attention
from graphcell.passes.residuals import choose_saved
from graphcell.records import dataclass
from graphcell.tensor import Tensor, state

K = TypeVar("K", bound=Hashable)


def accumulate(table: dict[K, Tensor], key: K, cotangent: Tensor) -> None:
    """Adds a cotangent to what is already in the table."""
    before = table.get(key)
    table[key] = cotangent if before is None else apply1(Add(), before, cotangent)


def zeros_of(tensor: Tensor) -> Tensor:
    """Zeros of the dtype and shape of `tensor`."""
    return zeros_of_type(tensor.ir_type)


def zeros_of_type(type: TensorType) -> Tensor:
    """A Tensor of zeros."""
    return apply1(Full(number_of(0, type.dtype), type.shape, type.dtype))


def ones_of_type(type: TensorType) -> Tensor:
    """A Tensor of ones."""
    return apply1(Full(number_of(1, type.dtype), type.shape, type.dtype))


def vjp(graph: Graph, wrt: Sequence[int], seeds: Sequence[int] | None = None) -> Graph:
    """The vector-Jacobian product of `graph` with respect to the inputs at positions `wrt`.

    Returns a Graph with inputs (*graph.inputs, one cotangent for each output at `seeds`, by default the float outputs in order) and
    outputs (*graph.outputs, one gradient for each of `wrt`). Gradients of inputs that the outputs do not depend on are zeros, as are
    those of Bool inputs. An integer input has an integer gradient, and makes integers on the way differentiable, as in MindSpore.

    Raises:
        NoGradientError: at the line of an op without gradient rule on the way.
    """
    joint = _differentiate(graph, wrt, seeds)
    nodes = live_nodes((*joint.early, *joint.late), (*joint.outputs, *joint.gradients))
    return Graph(
        f"{graph.name}.vjp", (*joint.inputs, *joint.cotangents), nodes, (*joint.outputs, *joint.gradients)
    )


@dataclass(frozen=True)
class Split:
    """A graph differentiated in two steps.

    `forward` takes the graph's inputs and gives (*outputs, *residuals). `backward` takes (*inputs[k] for k in `inputs`,
    *outputs[k] for k in `outputs`, *residuals, *cotangents) and gives one gradient for each position of `wrt`.
    `cotangents` are the outputs that have one.
    """

    forward: Graph
    backward: Graph
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    residuals: tuple[Value, ...]
    cotangents: tuple[Value, ...]

    @property
    def residual_types(self) -> tuple[TensorType, ...]:
        return tuple(v.type for v in self.residuals)


def split_vjp(graph: Graph, wrt: Sequence[int], seeds: Sequence[int] | None = None) -> Split:
    """`vjp` cut in two. What the backward graph needs of the forward one is an input, an output or a residual, or it is recomputed
    from these where `choose_saved` finds that cheaper.

    Raises:
        NoGradientError: at the line of an op without gradient rule on the way.
    """
    joint = _differentiate(graph, wrt, seeds)
    late = live_nodes(joint.late, joint.gradients)
    made_late = {v for node in late for v in node.results} | set(joint.cotangents)
    reads = [v for node in late for v in node.operands] + joint.gradients
    crossing = [v for v in dict.fromkeys(reads) if v not in made_late]
    saved = choose_saved(joint.inputs, joint.early, joint.outputs, crossing)
    recomputed = live_nodes(joint.early, crossing, saved)
    used = {v for node in recomputed for v in node.operands} | set(crossing)
    inputs = tuple(k for k, v in enumerate(joint.inputs) if v in used)
    place = {v: k for k, v in enumerate(joint.outputs)}  # the last place, where a value is several outputs
    outputs = tuple(sorted(place[v] for v in saved if v in place))
    residuals = tuple(v for node in joint.early for v in node.results if v in saved and v not in place)
    forward = Graph(
        f"{graph.name}.forward",
        joint.inputs,
        live_nodes(joint.early, (*joint.outputs, *residuals)),
        (*joint.outputs, *residuals),
    )
    held = (
        [joint.inputs[k] for k in inputs]
        + [joint.outputs[k] for k in outputs]
        + [*residuals, *joint.cotangents]
    )
    backward = _rebuild(f"{graph.name}.backward", held, (*recomputed, *late), joint.gradients)
    return Split(forward, backward, inputs, outputs, residuals, tuple(joint.outputs[k] for k in joint.seeds))


def _rebuild(name: str, inputs: Sequence[Value], nodes: Sequence[Node], outputs: Sequence[Value]) -> Graph:
    """A graph of new values around `nodes`."""
    b = Builder(name)
    table = {v: b.input(v.type, v.name) for v in inputs}
    b.nodes.extend(copy_node(node, table) for node in nodes)
    return b.finish([table[v] for v in outputs])


def live_nodes(
    nodes: Sequence[Node], outputs: Sequence[Value], known: set[Value] | None = None
) -> list[Node]:
    """The nodes that `outputs` depend on, and those with effects. With `known`: only those needed to compute `outputs` from these."""
    given: set[Value] = known or set()
    needed = {v for v in outputs if v not in given}
    kept: list[Node] = []
    for node in reversed(nodes):
        if (known is None and _has_effect(node)) or any(v in needed for v in node.results):
            kept.append(node)
            needed.update(v for v in node.operands if v not in given)
    kept.reverse()
    return kept


def _has_effect(node: Node) -> bool:
    return node.op.has_effect or any(g.has_effect() for g in node.op.regions)


# -- activity ------------------------------------------------------------------------------------------------------------
def active_values(graph: Graph, wrt: Sequence[int]) -> set[Value]:
    """The values that depend differentiably on the inputs at `wrt`: floats, and integers where one of these inputs is an integer."""
    low = lowest_category(graph.inputs[k].type for k in wrt)
    active = {graph.inputs[k] for k in wrt if graph.inputs[k].type.dtype.category >= low}
    for node in graph.nodes:
        mask = tuple(v in active for v in node.operands)
        if any(mask):
            active.update(
                v
                for v, flag in zip(node.results, _active_results(node, mask), strict=True)
                if flag and v.type.dtype.category >= low
            )
    return active


def lowest_category(types: Iterable[TensorType]) -> int:
    """The lowest category of dtypes (see `DType`) that has gradients, if those of `types` are asked for: 1 if one is an integer, else 2."""
    return 1 if any(t.dtype.is_integer for t in types) else 2


def active_outputs(graph: Graph, active_inputs: Sequence[bool]) -> tuple[bool, ...]:
    """Which outputs depend differentiably on the inputs flagged."""
    active = active_values(graph, [k for k, flag in enumerate(active_inputs) if flag])
    return tuple(v in active for v in graph.outputs)


def _active_results(node: Node, mask: tuple[bool, ...]) -> tuple[bool, ...]:
    if isinstance(node.op, RegionOp):
        return node.op.active_results(mask)
    return (not isinstance(node.op, StopGradient),) * len(node.results)


def _useful_values(graph: Graph, active: set[Value], seeds: Sequence[int]) -> set[Value]:
    """The active values that the outputs at `seeds` depend on."""
    useful = {graph.outputs[k] for k in seeds} & active
    for node in reversed(graph.nodes):
        if any(v in useful for v in node.results):
            useful.update(v for v in node.operands if v in active)
    return useful


# -- the transform -------------------------------------------------------------------------------------------------------
@dataclass(eq=False)
class _Block:
    """The nodes of a recomputed graph. `kept` are those of its results that are not computed again. `copies` has what is, once the backward
    computation has come there.
    """

    nodes: list[Node] = field(default_factory=list)
    kept: set[Value] = field(default_factory=set)
    copies: dict[Value, Value] | None = None


@dataclass
class _Joint:
    """A graph with its backward computation: `early` nodes first, then `late` ones."""

    trace: Trace
    inputs: list[Value] = field(default_factory=list)
    cotangents: list[Value] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    gradients: list[Value] = field(default_factory=list)
    early: list[Node] = field(default_factory=list)
    late: list[Node] = field(default_factory=list)
    linearized: dict[Node, tuple[Linearized, list[Value]]] = field(default_factory=dict)  # with residuals
    table: dict[Value, Value] = field(default_factory=dict)  # the graph's values to ours
    block_of: dict[Node, _Block] = field(default_factory=dict)  # the innermost recomputed graph that a node is in
    again: dict[Value, _Block] = field(default_factory=dict)  # the values that are computed again, and where
    useful: set[Value] = field(default_factory=set)


def _differentiate(graph: Graph, wrt: Sequence[int], seeds: Sequence[int] | None) -> _Joint:
    joint = _Joint(Trace(f"{graph.name}.vjp"))
    trace = joint.trace
    graph = inline_calls(graph)
    graph = _open_blocks(joint, fuse_attention(graph, active_values(graph, wrt)), wrt)
    low = lowest_category(graph.inputs[k].type for k in wrt)
    joint.seeds = (
        [k for k, v in enumerate(graph.outputs) if v.type.dtype.category >= low]
        if seeds is None
        else list(seeds)
    )
    joint.useful = useful = _useful_values(graph, active_values(graph, wrt), joint.seeds)
    span = state.trace.span if state.trace is not None else trace.span
    with trace.active():
        joint.inputs = [trace.input(v.type, v.name) for v in graph.inputs]
        joint.table.update(zip(graph.inputs, joint.inputs, strict=True))
        for node in graph.nodes:
            _run_forward(joint, node, joint.table, node not in joint.block_of)
        joint.outputs = [joint.table[v] for v in graph.outputs]
        joint.early, trace.builder.nodes = trace.builder.nodes, []
        joint.cotangents = [
            trace.input(v.type, f"d_{v.name}" if v.name else "")
            for v in (joint.outputs[k] for k in joint.seeds)
        ]
        cotangents: dict[Value, Tensor] = {}
        for k, v in zip(joint.seeds, joint.cotangents, strict=True):
            if graph.outputs[k] in useful:
                accumulate(cotangents, graph.outputs[k], Tensor.of_value(v))
        for node in reversed(graph.nodes):
            if any(v in cotangents for v in node.results) and any(v in useful for v in node.operands):
                trace.span = span if node.span is None else _constant(node.span.as_gradient())
                _run_backward(joint, node, cotangents)
        trace.span = span
        inputs = [graph.inputs[k] for k in wrt]
        joint.gradients = [
            trace.read(cotangents[v] if v in cotangents else zeros_of_type(v.type)) for v in inputs
        ]
    joint.late = trace.builder.nodes
    if trace.captured:
        raise GraphcellError("a gradient rule used a Tensor that is no operand or result of its op")
    return joint


def _constant(span: Span) -> Callable[[], Span | None]:
    return lambda: span


def _run_forward(joint: _Joint, node: Node, table: dict[Value, Value], leave_residuals: bool) -> None:
    """Appends `node` with operands mapped through `table`, which gains the results."""
    trace = joint.trace
    needed = tuple(v in joint.useful for v in node.operands)
    seeds = tuple(v in joint.useful for v in node.results)
    if not (leave_residuals and isinstance(node.op, RegionOp) and any(needed) and any(seeds)):
        copy = copy_node(node, table)
        trace.builder.nodes.append(copy)
        trace.own.update(copy.results)
        return
    trace.span = lambda: node.span
    try:
        parts = node.op.linearize(needed, seeds)
    except GraphcellError as e:
        e.at(node.span)
        raise
    results = emit(trace, parts.forward, [table[v] for v in node.operands])
    table.update(zip(node.results, results[: len(node.results)], strict=True))
    joint.linearized[node] = parts, list(results[len(node.results) :])


def _run_backward(joint: _Joint, node: Node, cotangents: dict[Value, Tensor]) -> None:
    block = joint.block_of.get(node)
    if block is not None:
        _computed_again(joint, block)
    if node in joint.linearized:
        _run_linearized(joint, node, cotangents)
        return
    inputs = tuple(Tensor.of_value(_late(joint, v)) for v in node.operands)
    results = tuple(Tensor.of_value(_late(joint, v)) for v in node.results)
    given = tuple(cotangent_of(cotangents.get(v), v.type) for v in node.results)
    try:
        parts = node.op.grad(inputs, results, given)
    except GraphcellError as e:
        e.at(joint.trace.span())
        raise
    for v, part in zip(node.operands, parts, strict=True):
        if part is not None and v in joint.useful:
            check_gradient(node.op, v.type, part)
            accumulate(cotangents, v, part)


def _run_linearized(joint: _Joint, node: Node, cotangents: dict[Value, Tensor]) -> None:
    parts, residuals = joint.linearized[node]
    trace, useful = joint.trace, joint.useful
    held = [_late(joint, node.operands[k]) for k in parts.operands] + [_late(joint, node.results[k]) for k in parts.results]
    seeded = [v for v in node.results if v in useful]
    given = [trace.read(cotangents[v] if v in cotangents else zeros_of_type(v.type)) for v in seeded]
    gradients = emit(trace, parts.backward, [*held, *residuals, *given])
    for v, gradient in zip((v for v in node.operands if v in useful), gradients, strict=True):
        accumulate(cotangents, v, Tensor.of_value(gradient))


# -- recomputed graphs ---------------------------------------------------------------------------------------------------
def _open_blocks(joint: _Joint, graph: Graph, wrt: Sequence[int]) -> Graph:
    """`graph` with what `recomputed` nodes hold in their places, and noted in `joint` what belongs to them."""
    if not any(isinstance(node.op, Recomputed) for node in graph.nodes):
        return graph
    nodes: list[Node] = []
    table: dict[Value, Value] = {v: v for v in graph.inputs}
    _open_into(joint, graph, active_values(graph, wrt), table, nodes, ())
    return Graph(graph.name, graph.inputs, nodes, [table[v] for v in graph.outputs])


def _open_into(
    joint: _Joint, graph: Graph, active: set[Value], table: dict[Value, Value], nodes: list[Node], around: tuple[_Block, ...]
) -> None:
    """Copies the nodes of `graph` into `nodes` and into the blocks `around` them, innermost last."""
    for node in graph.nodes:
        if isinstance(node.op, Recomputed):
            _open_block(joint, node, active, table, nodes, around)
            continue
        copy = copy_node(node, table)
        nodes.append(copy)
        if not around or _has_effect(node):  # what has an effect runs once
            continue
        for block in around:
            block.nodes.append(copy)
        joint.block_of[copy] = around[-1]
        joint.again.update(dict.fromkeys(copy.results, around[-1]))


def _open_block(
    joint: _Joint, node: Node, active: set[Value], table: dict[Value, Value], nodes: list[Node], around: tuple[_Block, ...]
) -> None:
    assert isinstance(node.op, Recomputed)
    wrt = [k for k, v in enumerate(node.operands) if v in active]
    graph = inline_calls(node.op.graph)
    graph = fuse_attention(graph, active_values(graph, wrt))
    inner = dict(zip(graph.inputs, (table[v] for v in node.operands), strict=True))
    block = _Block()
    _open_into(joint, graph, active_values(graph, wrt), inner, nodes, (*around, block))
    for old, new in zip(node.results, graph.outputs, strict=True):
        v = table[old] = inner[new]
        if joint.again.get(v) is not block or node.op.outputs:
            continue
        block.kept.add(v)
        if around:
            joint.again[v] = around[-1]
        else:
            del joint.again[v]


def _late(joint: _Joint, v: Value) -> Value:
    """What gradients read for the graph's value `v`: itself, or as it is computed again."""
    block = joint.again.get(v)
    return joint.table[v] if block is None else _computed_again(joint, block)[v]


def _computed_again(joint: _Joint, block: _Block) -> dict[Value, Value]:
    """The copies of the block's values. They are made of operands behind fences, so that nothing is merged with the first computation."""
    if block.copies is not None:
        return block.copies
    copies = block.copies = {}
    trace, span = joint.trace, joint.trace.span
    for node in block.nodes:
        for v in node.operands:
            if v not in copies:
                copies[v] = trace.append_values(Fence(), (_late(joint, v),))[0]
        _run_forward(joint, node, copies, joint.block_of[node] is block)
        for v in block.kept.intersection(node.results):
            del copies[v]
    trace.span = span
    return copies


def emit(trace: Trace, op: Op, operands: Sequence[Value]) -> tuple[Value, ...]:
    """Appends `op`; a call is inlined."""
    return (
        trace.inline(op.graph, operands) if isinstance(op, GraphCall) else trace.append_values(op, operands)
    )


def cotangent_of(cotangent: Tensor | None, type: TensorType) -> Tensor | None:
    """What a gradient rule is given for a result: where nothing flows, zeros if it is float, else None."""
    return zeros_of_type(type) if cotangent is None and type.dtype.is_float else cotangent


def check_gradient(op: Op, type: TensorType, gradient: Any) -> None:
    """Raises GraphcellError if a rule gave a gradient of another type than its operand's (a fault of the rule)."""
    if gradient.ir_type != type:
        raise GraphcellError(f"the gradient rule of {op.name} gives {gradient.ir_type} for an operand of {type}")


def _is_call(op: Op) -> bool:
    return isinstance(op, GraphCall) and not isinstance(op, Recomputed)


def inline_calls(graph: Graph) -> Graph:
    """`graph` with calls replaced by what they call, so that one transform sees all."""
    if not any(_is_call(node.op) for node in graph.nodes):
        return graph
    b = Builder(graph.name)
    table = {v: b.input(v.type, v.name) for v in graph.inputs}
    for node in graph.nodes:
        if isinstance(node.op, GraphCall) and _is_call(node.op):
            results = b.inline(inline_calls(node.op.graph), [table[v] for v in node.operands])
            table.update(zip(node.results, results, strict=True))
        else:
            b.nodes.append(copy_node(node, table))
    return b.finish([table[v] for v in graph.outputs])
