"""Reverse-mode differentiation as a transform of graphs.

`vjp(graph, wrt)` gives one graph that holds the forward and the backward computation, so that later passes fuse the two.
`split_vjp(graph, wrt)` gives them as two graphs with residuals between them, for what runs at two times: branches, loop bodies, calls
from eager code. The gradient rules are the ops' own, applied to symbolic Tensors; ops with regions leave residuals (`linearize`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from graphcell.errors import GraphcellError, Span
from graphcell.ir.graph import Builder, Graph, Node, Value, copy_node
from graphcell.ir.op import Op
from graphcell.ir.types import TensorType
from graphcell.ops.arithmetic import Add, StopGradient
from graphcell.ops.control import GraphCall, Linearized, RegionOp
from graphcell.ops.creation import Full, number_of
from graphcell.ops.dispatch import Trace, apply1
from graphcell.passes.attention import fuse_attention
from graphcell.passes.residuals import choose_saved
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
        effect = known is None and (node.op.has_effect or any(g.has_effect() for g in node.op.regions))
        if effect or any(v in needed for v in node.results):
            kept.append(node)
            needed.update(v for v in node.operands if v not in given)
    kept.reverse()
    return kept


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


def _differentiate(graph: Graph, wrt: Sequence[int], seeds: Sequence[int] | None) -> _Joint:
    graph = inline_calls(graph)
    graph = fuse_attention(graph, active_values(graph, wrt))
    joint = _Joint(Trace(f"{graph.name}.vjp"))
    trace = joint.trace
    low = lowest_category(graph.inputs[k].type for k in wrt)
    joint.seeds = (
        [k for k, v in enumerate(graph.outputs) if v.type.dtype.category >= low]
        if seeds is None
        else list(seeds)
    )
    active = active_values(graph, wrt)
    useful = _useful_values(graph, active, joint.seeds)
    span = state.trace.span if state.trace is not None else trace.span
    with trace.active():
        joint.inputs = [trace.input(v.type, v.name) for v in graph.inputs]
        joint.table.update(zip(graph.inputs, joint.inputs, strict=True))
        for node in graph.nodes:
            _run_forward(joint, node, active, useful)
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
                _run_backward(joint, node, useful, cotangents)
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


def _run_forward(joint: _Joint, node: Node, active: set[Value], useful: set[Value]) -> None:
    trace = joint.trace
    needed = tuple(v in useful for v in node.operands)
    seeds = tuple(v in useful for v in node.results)
    if not (isinstance(node.op, RegionOp) and any(needed) and any(seeds)):
        copy = copy_node(node, joint.table)
        trace.builder.nodes.append(copy)
        trace.own.update(copy.results)
        return
    trace.span = lambda: node.span
    try:
        parts = node.op.linearize(needed, seeds)
    except GraphcellError as e:
        e.at(node.span)
        raise
    results = emit(trace, parts.forward, [joint.table[v] for v in node.operands])
    joint.table.update(zip(node.results, results[: len(node.results)], strict=True))
    joint.linearized[node] = parts, list(results[len(node.results) :])


def _run_backward(joint: _Joint, node: Node, useful: set[Value], cotangents: dict[Value, Tensor]) -> None:
    table = joint.table
    if node in joint.linearized:
        _run_linearized(joint, node, useful, cotangents)
        return
    inputs = tuple(Tensor.of_value(table[v]) for v in node.operands)
    results = tuple(Tensor.of_value(table[v]) for v in node.results)
    given = tuple(cotangent_of(cotangents.get(v), v.type) for v in node.results)
    try:
        parts = node.op.grad(inputs, results, given)
    except GraphcellError as e:
        e.at(joint.trace.span())
        raise
    for v, part in zip(node.operands, parts, strict=True):
        if part is not None and v in useful:
            check_gradient(node.op, v.type, part)
            accumulate(cotangents, v, part)


def _run_linearized(joint: _Joint, node: Node, useful: set[Value], cotangents: dict[Value, Tensor]) -> None:
    parts, residuals = joint.linearized[node]
    table, trace = joint.table, joint.trace
    held = [table[node.operands[k]] for k in parts.operands] + [table[node.results[k]] for k in parts.results]
    seeded = [v for v in node.results if v in useful]
    given = [trace.read(cotangents[v] if v in cotangents else zeros_of_type(v.type)) for v in seeded]
    gradients = emit(trace, parts.backward, [*held, *residuals, *given])
    for v, gradient in zip((v for v in node.operands if v in useful), gradients, strict=True):
        accumulate(cotangents, v, Tensor.of_value(gradient))


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


def inline_calls(graph: Graph) -> Graph:
    """`graph` with calls replaced by what they call, so that one transform sees all."""
    if not any(isinstance(node.op, GraphCall) for node in graph.nodes):
        return graph
    b = Builder(graph.name)
    table = {v: b.input(v.type, v.name) for v in graph.inputs}
    for node in graph.nodes:
        if isinstance(node.op, GraphCall):
            results = b.inline(inline_calls(node.op.graph), [table[v] for v in node.operands])
            table.update(zip(node.results, results, strict=True))
        else:
            b.nodes.append(copy_node(node, table))
    return b.finish([table[v] for v in graph.outputs])
