"""Loop-invariant code motion: what a loop computes anew in each iteration from values that do not change
moves before it.

Enters: a Graph. Leaves: one in which bodies of While and For (and While's conditions) get such values as
operands. What costs nothing or next to nothing inside stays there, because as an operand it would have to be
stored: constants, views, and cheap elementwise ops whose result is larger than what they read. All ops are
total, so that running them before a loop of zero iterations does no harm; a While, which may never end, stays
in its loop.
"""

from __future__ import annotations

from graphcell.ir.graph import Graph, Node, Value, copy_node
from graphcell.ir.op import Op
from graphcell.ops.base import Elementwise, View
from graphcell.ops.control import For, While
from graphcell.passes.regions import invariant_operands


def hoist_invariant(graph: Graph) -> Graph:
    """Moves invariant computations out of all loops, innermost first."""
    return _hoist(graph, {})


def _hoist(graph: Graph, done: dict[Graph, Graph]) -> Graph:
    found = done.get(graph)
    if found is not None:
        return found
    nodes: list[Node] = []
    changed = False
    for before in graph.nodes:
        node = before
        if node.op.regions:
            node = _with_hoisted_regions(node, done)
            if isinstance(node.op, (While, For)):
                node = _move_out(node, nodes)
        changed = changed or node is not before
        nodes.append(node)
    result = done[graph] = Graph(graph.name, graph.inputs, nodes, graph.outputs) if changed else graph
    return result


def _with_hoisted_regions(node: Node, done: dict[Graph, Graph]) -> Node:
    regions = tuple([_hoist(g, done) for g in node.op.regions])
    if all(a is b for a, b in zip(regions, node.op.regions, strict=True)):
        return node
    return Node(node.op.with_regions(regions), node.operands, node.results, node.span)


def _move_out(node: Node, nodes: list[Node]) -> Node:
    """The loop `node` without its invariant computations, which are appended to `nodes`."""
    slots = invariant_operands(node.op)
    assert slots is not None
    first, shift = slots
    moved = [_invariant_nodes(g, first + shift) for g in node.op.regions]
    if not any(anchors for anchors, _ in moved):
        return node
    operands = list(node.operands)
    added: list[list[Value]] = []  # by region: values that become inputs
    for graph, (anchors, needed) in zip(node.op.regions, moved, strict=True):
        table = dict(zip(graph.inputs[first + shift :], node.operands[first:], strict=True))
        nodes += [copy_node(n, table) for n in graph.nodes if id(n) in needed]
        read = _reads(graph, anchors)
        values = [v for n in graph.nodes if id(n) in anchors for v in n.results if v in read]
        operands += [table[v] for v in values]
        added.append(values)
    regions = tuple(
        _with_added(g, anchors, added, k)
        for k, (g, (anchors, _)) in enumerate(zip(node.op.regions, moved, strict=True))
    )
    return Node(node.op.with_regions(regions), tuple(operands), node.results, node.span)


def _invariant_nodes(graph: Graph, first_invariant: int) -> tuple[set[int], set[int]]:
    """Nodes (by id) that leave `graph`, and those with all that they need, of which a copy must stand
    outside.
    """
    invariant = set(graph.inputs[first_invariant:])
    producers: dict[Value, Node] = {}
    anchors: dict[int, Node] = {}
    for node in graph.nodes:
        if node.op.has_effect or not all(v in invariant for v in node.operands) or _may_not_end(node.op):
            continue
        invariant.update(node.results)
        producers.update(dict.fromkeys(node.results, node))
        if _is_worth_it(node, producers):
            anchors[id(node)] = node
    needed: set[int] = set()
    stack = list(anchors.values())
    while stack:
        node = stack.pop()
        if id(node) not in needed:
            needed.add(id(node))
            stack += [producers[v] for v in node.operands if v in producers]
    return set(anchors), needed


def _may_not_end(op: Op) -> bool:
    return any(
        isinstance(n.op, While) or n.op.has_effect for g in op.regions for n in g.walk()
    ) or isinstance(op, While)


def _is_worth_it(node: Node, producers: dict[Value, Node]) -> bool:
    if not node.operands or isinstance(node.op, View):
        return False
    if not isinstance(node.op, Elementwise) or not node.op.fast:
        return True
    read = sum(_seen_through_views(v, producers).type.nbytes for v in set(node.operands))
    return sum(v.type.nbytes for v in node.results) <= read


def _seen_through_views(value: Value, producers: dict[Value, Node]) -> Value:
    node = producers.get(value)
    while node is not None and isinstance(node.op, View):
        value = node.operands[0]
        node = producers.get(value)
    return value


def _reads(graph: Graph, without: set[int]) -> set[Value]:
    """What outputs and nodes other than `without` read."""
    read = set(graph.outputs)
    for node in graph.nodes:
        if id(node) not in without:
            read.update(node.operands)
    return read


def _with_added(graph: Graph, without: set[int], added: list[list[Value]], own: int) -> Graph:
    """`graph` less the nodes `without`; the values of all regions in `added` become inputs (of other regions:
    unread ones).
    """
    inputs = [*graph.inputs]
    for k, values in enumerate(added):
        inputs += values if k == own else [Value(v.type) for v in values]
    return Graph(graph.name, inputs, [n for n in graph.nodes if id(n) not in without], graph.outputs)
