"""Simplification rules for If, While and For.

`sink_operands` runs before the regions are rewritten and brings what is known outside into them; the rules
run afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcell import dtype as dt
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.op import Op
from graphcell.ops.comparison import BitwiseNot
from graphcell.ops.control import For, If, While
from graphcell.ops.creation import Constant, Full, Iota
from graphcell.ops.movement import BroadcastTo, Reshape
from graphcell.passes.count_loops import counted_while
from graphcell.passes.regions import invariant_operands, with_inputs, with_outputs
from graphcell.passes.rewrite import Rewriter

Result = Sequence[Value] | None


# -- before regions are rewritten ----------------------------------------------------------------------------
def sink_operands(r: Rewriter, node: Node) -> Node:
    """Puts into the regions what they can as well make themselves, so that they can be simplified with it.

    These are constants, fills, index ramps and broadcasts (which need no memory inside), operands given
    twice, and, in a branch, the condition. Before that, carried values that do not change, and scanned ones
    that are the same throughout, become operands like others.
    """
    node = _drop_unchanged(r, node)
    node = _scan_nothing_repeated(r, node)
    slots = invariant_operands(node.op)
    if slots is None or not _has_sunk(r, node, slots[0]):
        return node
    first, shift = slots
    operands = list(node.operands[:first])
    sinks = [_Sink(g, first + shift) for g in node.op.regions]
    place: dict[Value, int] = {}  # operand -> its new position
    for p in range(first, len(node.operands)):
        v = node.operands[p]
        source = r.producers.get(v)
        if isinstance(node.op, If) and v is operands[0]:
            for sink, known in zip(sinks, (True, False), strict=True):
                sink.make(p + shift, Full(known, (), dt.bool_))
            continue
        if source is not None and isinstance(source.op, (Constant, Full, Iota)):
            for sink in sinks:
                sink.make(p + shift, source.op)
            continue
        repeated = source is not None and isinstance(source.op, BroadcastTo)
        given = source.operands[0] if repeated and source is not None else v
        for sink in sinks:
            sink.take(
                p + shift, place[given] + shift if given in place else None, source if repeated else None
            )
        if given not in place:
            place[given] = len(operands)
            operands.append(given)
    op = node.op.with_regions(tuple(s.graph() for s in sinks))
    return Node(op, tuple(operands), node.results, node.span)


def _has_sunk(r: Rewriter, node: Node, first: int) -> bool:
    given = node.operands[first:]
    if len(set(given)) < len(given) or (isinstance(node.op, If) and node.operands[0] in given):
        return True
    return any(isinstance(r.op_of(v), (Constant, Full, Iota, BroadcastTo)) for v in given)


class _Sink:
    """A region whose inputs from `first` on are decided one by one, in order."""

    def __init__(self, graph: Graph, first: int):
        self.before = graph
        self.inputs = list(graph.inputs[:first])
        self.prelude: list[Node] = []
        self.renamed: dict[Value, Value] = {}

    def make(self, position: int, op: Op) -> None:
        """The input at `position` becomes the result of `op`, which has no operands."""
        self.prelude.append(Node(op, (), (self.before.inputs[position],)))

    def take(self, position: int, known: int | None, outer: Node | None) -> None:
        """The input at `position` stays, or is the same as the one now at `known`, or is what `outer` makes
        of such an input.
        """
        v = self.before.inputs[position]
        if outer is not None:
            source = self.inputs[known] if known is not None else Value(outer.operands[0].type)
            self.prelude.append(Node(outer.op, (source,), (v,), outer.span))
            if known is None:
                self.inputs.append(source)
        elif known is not None:
            self.renamed[v] = self.inputs[known]
        else:
            self.inputs.append(v)

    def graph(self) -> Graph:
        return with_inputs(self.before, self.inputs, self.prelude, self.renamed)


def _drop_unchanged(r: Rewriter, node: Node) -> Node:
    """A loop's carried value that the body gives back as it came is an invariant operand, and its result is
    that operand.
    """
    op = node.op
    if not isinstance(op, (While, For)):
        return node
    body, shift = (op.body, 1) if isinstance(op, For) else (op.body_graph, 0)
    unchanged = [k for k in range(op.carried) if body.outputs[k] is body.inputs[k + shift]]
    if not unchanged:
        return node
    for k in unchanged:
        r.replace(node.results[k], node.operands[k])
    regions = []
    for g in op.regions:
        inputs = [v for k, v in enumerate(g.inputs) if k - shift not in unchanged]
        inputs += [g.inputs[k + shift] for k in unchanged]
        outputs = [v for k, v in enumerate(g.outputs) if k not in unchanged] if g is body else g.outputs
        regions.append(with_outputs(with_inputs(g, inputs), outputs))
    operands = [v for k, v in enumerate(node.operands) if k not in unchanged] + [
        node.operands[k] for k in unchanged
    ]
    results = tuple(v for k, v in enumerate(node.results) if k not in unchanged)
    carried = op.carried - len(unchanged)
    new: Op
    if isinstance(op, For):
        new = For(regions[0], op.trip_count, carried, op.scanned, op.reverse)
    else:
        new = While(regions[0], regions[1], carried)
    return Node(new, tuple(operands), results, node.span)


def _scan_nothing_repeated(r: Rewriter, node: Node) -> Node:
    """What is scanned but the same in each iteration becomes invariant: fills, and what was repeated along
    the leading dimension.
    """
    op = node.op
    if not isinstance(op, For):
        return node
    scanned = range(op.carried, op.carried + op.scanned)
    slices = {p: v for p in scanned if (v := _slice_of_all(r, node.operands[p])) is not None}
    if not slices:
        return node
    inputs = [v for k, v in enumerate(op.body.inputs) if k - 1 not in slices]
    prelude = []
    for p, outer in slices.items():
        v = op.body.inputs[p + 1]
        source = v if outer.type == v.type else Value(outer.type)
        inputs.append(source)
        if source is not v:
            prelude.append(Node(BroadcastTo(v.type.shape), (source,), (v,), node.span))
    operands = (*(v for p, v in enumerate(node.operands) if p not in slices), *slices.values())
    new = For(
        with_inputs(op.body, inputs, prelude), op.trip_count, op.carried, op.scanned - len(slices), op.reverse
    )
    return Node(new, operands, node.results, node.span)


def _slice_of_all(r: Rewriter, value: Value) -> Value | None:
    """What broadcasts to each slice of `value` along its first dimension, if they are known to be equal."""
    op, shape = r.op_of(value), value.type.shape
    if isinstance(op, Full):
        return r.emit(Full(op.value, shape[1:], op.dtype))[0]
    if not isinstance(op, BroadcastTo):
        return None
    inner = r.producers[value].operands[0]
    if inner.type.rank < len(shape):
        return inner
    return r.emit(Reshape(inner.type.shape[1:]), inner)[0] if inner.type.shape[0] == 1 else None


# -- rules ---------------------------------------------------------------------------------------------------
def unchanged_carried(r: Rewriter, node: Node) -> Result:
    """A carried value that turned out not to change becomes an invariant operand."""
    changed = sink_operands(r, node)
    if len(changed.results) == len(node.results):
        return None
    changed = Node(r.rewrite_regions(changed.op), changed.operands, changed.results, changed.span)
    made = r.emit(changed.op, *changed.operands)
    for old, new in zip(changed.results, made, strict=True):
        r.replace(old, new)
    return [r.replaced[v] for v in node.results]


def swap_branches(r: Rewriter, node: Node) -> Result:
    """A branch on `not c` is the branch on c with its sides swapped."""
    assert isinstance(node.op, If)
    condition = node.operands[0]
    if not isinstance(r.op_of(condition), BitwiseNot):
        return None
    swapped = If(node.op.else_graph, node.op.then_graph)
    return r.emit(swapped, r.producers[condition].operands[0], *node.operands[1:])


def equal_branches(r: Rewriter, node: Node) -> Result:
    """A result that both sides give as the same operand, or the same fill, does not depend on the branch."""
    op = node.op
    assert isinstance(op, If)
    made = [{v: n.op for n in g.nodes if isinstance(n.op, Full) for v in n.results} for g in op.regions]
    known: dict[int, Value] = {}
    for k, (x, y) in enumerate(zip(op.then_graph.outputs, op.else_graph.outputs, strict=True)):
        fills = [table.get(v) for table, v in zip(made, (x, y), strict=True)]
        if fills[0] is not None and fills[0] == fills[1]:
            known[k] = r.emit(fills[0])[0]
        elif x in op.then_graph.inputs and y in op.else_graph.inputs:
            position = op.then_graph.inputs.index(x)
            if position == op.else_graph.inputs.index(y):
                known[k] = node.operands[position + 1]
    if not known:
        return None
    rest = [k for k in range(len(node.results)) if k not in known]
    graphs = [with_outputs(g, [g.outputs[k] for k in rest]) for g in op.regions]
    others: Sequence[Value] = ()
    if rest or any(g.has_effect() for g in graphs):
        others = r.emit(If(graphs[0], graphs[1]), *node.operands)
    known.update(zip(rest, others, strict=True))
    return [known[k] for k in range(len(node.results))]


def never_entered(r: Rewriter, node: Node) -> Result:
    """A while loop whose condition is False has its operands as results."""
    assert isinstance(node.op, While)
    condition = node.op.cond_graph.outputs[0]
    for inner in node.op.cond_graph.nodes:
        if condition in inner.results:
            never = isinstance(inner.op, Full) and not inner.op.value
            return node.operands[: node.op.carried] if never else None
    return None


def unroll_short_loop(r: Rewriter, node: Node) -> Result:
    """A counted loop that runs not at all, or once, is its operands or its body."""
    op = node.op
    assert isinstance(op, For)
    if op.trip_count > 1:
        return None
    carried, last = list(node.operands[: op.carried]), op.carried + op.scanned
    stacked = node.results[op.carried :]
    if op.trip_count == 0:
        return carried + [r.full(0, v)[0] for v in stacked]
    index = r.emit(Full(0, (), dt.int64))
    slices = [r.emit(Reshape(v.type.shape[1:]), v)[0] for v in node.operands[op.carried : last]]
    outputs = r.inline(op.body, [*index, *carried, *slices, *node.operands[last:]])
    ys = [r.emit(Reshape(v.type.shape), y)[0] for v, y in zip(stacked, outputs[op.carried :], strict=True)]
    return outputs[: op.carried] + ys


CONTROL_RULES = (
    (If, swap_branches),
    (If, equal_branches),
    (While, never_entered),
    (While, counted_while),
    (For, unroll_short_loop),
    (While, unchanged_carried),
    (For, unchanged_carried),
)
