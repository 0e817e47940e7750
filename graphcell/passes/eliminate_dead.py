"""Dead code elimination: what no output and no effect depends on goes.

Enters: a Graph. Leaves: one without unused nodes, without unused results and carried values of If, While and
For, and without region inputs that the regions do not read. Ops with effects stay, whether their results are
used or not.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.op import Op
from graphcell.ops.control import For, If, While
from graphcell.passes.regions import with_inputs, with_outputs


def eliminate_dead(graph: Graph) -> Graph:
    """Removes dead nodes, in regions too. Inputs and outputs of `graph` itself stay."""
    return _Elimination({}).run(graph)


class _Elimination:
    """`effects` remembers which graphs have effects."""

    def __init__(self, effects: dict[Graph, bool]):
        self.effects = effects

    def run(self, graph: Graph) -> Graph:
        live = set(graph.outputs)
        nodes: list[Node] = []
        changed = False
        for node in reversed(graph.nodes):
            if live.isdisjoint(node.results) and not self.has_effect(node.op):
                changed = True
                continue
            if node.op.regions:
                smaller = self.shrink(node, live)
                changed = changed or smaller is not node
                node = smaller
            nodes.append(node)
            live.update(node.operands)
        if not changed:
            return graph
        nodes.reverse()
        return Graph(graph.name, graph.inputs, nodes, graph.outputs)

    def has_effect(self, op: Op) -> bool:
        return op.has_effect or any(map(self.graph_has_effect, op.regions))

    def graph_has_effect(self, graph: Graph) -> bool:
        found = self.effects.get(graph)
        if found is None:
            found = self.effects[graph] = any(self.has_effect(n.op) for n in graph.nodes)
        return found

    # -- regions ---------------------------------------------------------------------------------------------
    def shrink(self, node: Node, live: set[Value]) -> Node:
        """`node` with only the results, operands and inner nodes that are needed; the same object if all are.

        What a loop's inner loops and branches no longer read may free more of what it carries: then it is
        looked at again.
        """
        smaller = self.shrink_once(node, [v in live for v in node.results])
        inner = isinstance(node.op, (While, For)) and any(
            n.op.regions for g in smaller.op.regions for n in g.nodes
        )
        return self.shrink(smaller, live) if inner and smaller is not node else smaller

    def shrink_once(self, node: Node, used: list[bool]) -> Node:
        if isinstance(node.op, If):
            return self.shrink_branch(node, node.op, used)
        if isinstance(node.op, For):
            return self.shrink_for(node, node.op, used)
        if isinstance(node.op, While):
            return self.shrink_while(node, node.op, used)
        regions = tuple(map(self.run, node.op.regions))
        return self.rebuilt(node, node.op.with_regions(regions), node.operands, node.results, regions)

    def shrink_branch(self, node: Node, op: If, used: list[bool]) -> Node:
        graphs = [self.run(_keep_outputs(g, used)) for g in op.regions]
        read = [_reads(g) for g in graphs]
        needed = [
            any(g.inputs[k] in seen for g, seen in zip(graphs, read, strict=True))
            for k in range(len(node.operands) - 1)
        ]
        graphs = [_keep_inputs(g, needed) for g in graphs]
        operands = (node.operands[0], *_kept(node.operands[1:], needed))
        return self.rebuilt(node, If(*graphs), operands, _kept(node.results, used), tuple(graphs))

    def shrink_while(self, node: Node, op: While, used: list[bool]) -> Node:
        cond = self.run(op.cond_graph)
        asked = _reads(cond)
        wanted = [u or v in asked for u, v in zip(used, cond.inputs[: op.carried], strict=True)]
        keep = self.carried_closure(op.body_graph, wanted, op.carried, 0)
        body = self.run(_keep_outputs(op.body_graph, keep))
        read = _reads(body)
        needed = keep + [
            c in asked or b in read
            for c, b in zip(cond.inputs[op.carried :], body.inputs[op.carried :], strict=True)
        ]
        graphs = (_keep_inputs(cond, needed), _keep_inputs(body, needed))
        new = While(*graphs, sum(keep))
        return self.rebuilt(node, new, _kept(node.operands, needed), _kept(node.results, keep), graphs)

    def shrink_for(self, node: Node, op: For, used: list[bool]) -> Node:
        carried, last = op.carried, op.carried + op.scanned
        keep = self.carried_closure(op.body, used, carried, 1)
        body = self.run(_keep_outputs(op.body, keep))
        read = _reads(body)
        needed = keep[:carried] + [v in read for v in body.inputs[carried + 1 :]]
        body = _keep_inputs(body, [True, *needed])
        new = For(body, op.trip_count, sum(needed[:carried]), sum(needed[carried:last]), op.reverse)
        return self.rebuilt(node, new, _kept(node.operands, needed), _kept(node.results, keep), (body,))

    def carried_closure(self, body: Graph, used: list[bool], carried: int, shift: int) -> list[bool]:
        """Which outputs of a loop body are needed: those `used`, and the carried ones that they, or effects,
        depend on.

        The first outputs are the `carried` values' next ones; the inputs for them begin at `shift`.
        """
        keep = list(used)
        liveness = _Liveness(body)
        for n in body.nodes:
            if self.has_effect(n.op):
                liveness.mark(n.operands)
        liveness.mark(v for v, k in zip(body.outputs, keep, strict=True) if k)
        place = {v: k - shift for k, v in enumerate(body.inputs)}
        while liveness.inputs:
            k = place[liveness.inputs.pop()]
            if 0 <= k < carried and not keep[k]:
                keep[k] = True
                liveness.mark((body.outputs[k],))
        return keep

    def rebuilt(
        self,
        node: Node,
        op: Op,
        operands: tuple[Value, ...],
        results: tuple[Value, ...],
        regions: tuple[Graph, ...],
    ) -> Node:
        same = len(operands) == len(node.operands) and len(results) == len(node.results)
        if same and all(a is b for a, b in zip(regions, node.op.regions, strict=True)):
            return node
        return Node(op, operands, results, node.span)


class _Liveness:
    """Marks, bit by bit, what values depend on. `inputs` collects the graph's inputs newly reached."""

    def __init__(self, graph: Graph):
        self.producers = graph.producers()
        self.seen: set[Value] = set()
        self.inputs: list[Value] = []

    def mark(self, values: Iterable[Value]) -> None:
        stack = list(values)
        while stack:
            v = stack.pop()
            if v in self.seen:
                continue
            self.seen.add(v)
            producer = self.producers.get(v)
            if producer is None:
                self.inputs.append(v)
            else:
                stack.extend(producer.operands)


def _reads(graph: Graph) -> set[Value]:
    """Values that nodes or outputs of `graph` read."""
    read = set(graph.outputs)
    for node in graph.nodes:
        read.update(node.operands)
    return read


def _kept(values: Iterable[Value], mask: list[bool]) -> tuple[Value, ...]:
    return tuple(v for v, keep in zip(values, mask, strict=True) if keep)


def _keep_outputs(graph: Graph, mask: list[bool]) -> Graph:
    return graph if all(mask) else with_outputs(graph, _kept(graph.outputs, mask))


def _keep_inputs(graph: Graph, mask: list[bool]) -> Graph:
    return graph if all(mask) else with_inputs(graph, _kept(graph.inputs, mask))
