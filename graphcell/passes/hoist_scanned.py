"""Products in a counted loop of rows that are known before it, or that are only collected, are done for all steps at once.

Enters: a Graph. In the body of a `For`, a product of few rows with a matrix that stays the same reads the whole matrix to do little with
it. Where its rows depend on scanned rows and invariants alone (the input projection of a recurrent layer), it moves before the loop, as
one product of trip_count times as many rows, whose result is scanned; so does what the rows are made of, if that is elementwise, a
reduction within the step, or a view. Where its result is only stacked (the gradient of that layer's input), its rows are stacked
instead, and the product follows the loop. Leaves: an equal Graph. Products of many rows stay where they are: they are as quick there,
and what moves needs memory for all steps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from graphcell.ir.graph import Graph, Node, Value, copy_node
from graphcell.ir.op import Op, infer_types
from graphcell.ops.base import Elementwise, Reduction
from graphcell.ops.contraction import MatMul
from graphcell.ops.control import For
from graphcell.ops.movement import BroadcastTo, Reshape, Slice, Transpose

MOST_ROWS = 16
"""Products of more rows a step are as quick in the loop."""
LEAST_WEIGHTS = 1024
"""Elements of a matrix that is worth the trouble."""
MOST_BYTES = 64 << 20
"""What moves may take so much memory."""


def hoist_scanned(graph: Graph) -> Graph:
    """Moves such products out of all loops, innermost first."""
    return _visit(graph, {})


def _visit(graph: Graph, done: dict[Graph, Graph]) -> Graph:
    found = done.get(graph)
    if found is not None:
        return found
    nodes: list[Node] = []
    changed = False
    for before in graph.nodes:
        node = before
        if node.op.regions:
            regions = tuple([_visit(g, done) for g in node.op.regions])
            if any(a is not b for a, b in zip(regions, node.op.regions, strict=True)):
                node = Node(node.op.with_regions(regions), node.operands, node.results, node.span)
            if isinstance(node.op, For) and node.op.trip_count > 1:
                after: list[Node] = []
                node = _stack_rows(_move_before(node, nodes), after)
                nodes += [node, *after]
                changed = changed or node is not before
                continue
        changed = changed or node is not before
        nodes.append(node)
    result = done[graph] = Graph(graph.name, graph.inputs, nodes, graph.outputs) if changed else graph
    return result


def _parts(op: For, items: Sequence[Value], shift: int = 0) -> tuple[Sequence[Value], Sequence[Value], Sequence[Value]]:
    """Carried, scanned and invariant ones among operands, or among inputs of the body (`shift` 1)."""
    first, last = op.carried + shift, op.carried + op.scanned + shift
    return items[shift:first], items[first:last], items[last:]


# -- before the loop -----------------------------------------------------------------------------------------------------
def _move_before(node: Node, nodes: list[Node]) -> Node:
    """The loop less the products whose rows are known before it; `nodes` gains what computes them for all steps."""
    op = node.op
    assert isinstance(op, For)
    plan = _Steps(node)
    products = [n for n in op.body.nodes if n.results and n.results[0] in plan.all_steps and _is_product(n, plan.invariant)]
    needed = list(plan.needed(products))
    if not products or op.trip_count * sum(v.type.nbytes for n in needed for v in n.results) > MOST_BYTES:
        return node
    for n in needed:
        nodes.extend(plan.for_all_steps(n))
    carried, scanned, invariant = _parts(op, node.operands)
    inputs = _parts(op, op.body.inputs, 1)
    values = [n.results[0] for n in products]
    gone = {id(n) for n in products}
    body = Graph(
        op.body.name,
        (op.body.inputs[0], *inputs[0], *inputs[1], *values, *inputs[2]),
        [n for n in op.body.nodes if id(n) not in gone],
        op.body.outputs,
    )
    operands = (*carried, *scanned, *(plan.outer[v] for v in values), *invariant)
    loop = For(body, op.trip_count, op.carried, op.scanned + len(values), op.reverse)
    return Node(loop, operands, node.results, node.span)


class _Steps:
    """What of a loop's body depends on scanned rows and invariants alone, and how that is computed for all steps."""

    def __init__(self, node: Node):
        assert isinstance(node.op, For)
        op = self.op = node.op
        _, rows, kept = _parts(op, op.body.inputs, 1)
        _, scanned, invariant = _parts(op, node.operands)
        self.outer: dict[Value, Value] = dict(zip((*rows, *kept), (*scanned, *invariant), strict=True))
        self.invariant = set(kept)
        self.all_steps = set(rows)
        self.producers: dict[Value, Node] = {}
        for n in op.body.nodes:
            known = [v in self.invariant for v in n.operands]
            if all(known) and not n.op.has_effect and not n.op.regions:
                self.invariant.update(n.results)
            elif all(k or v in self.all_steps for k, v in zip(known, n.operands, strict=True)) and self._can_batch(n):
                self.all_steps.update(n.results)
            else:
                continue
            self.producers.update(dict.fromkeys(n.results, n))

    def _can_batch(self, n: Node) -> bool:
        if n.op.has_effect or not n.operands:
            return False
        if isinstance(n.op, MatMul):
            return _is_product(n, self.invariant)
        if isinstance(n.op, Reduction):
            return type(n.op).infer is Reduction.infer
        return isinstance(n.op, (Elementwise, Reshape, Transpose, BroadcastTo, Slice))

    def needed(self, products: Sequence[Node]) -> Iterator[Node]:
        """The products and all that they need, in order."""
        wanted: set[int] = set()
        stack = list(products)
        while stack:
            n = stack.pop()
            if id(n) not in wanted:
                wanted.add(id(n))
                stack += [self.producers[v] for v in n.operands if v in self.producers]
        return (n for n in self.op.body.nodes if id(n) in wanted)

    def for_all_steps(self, n: Node) -> Iterator[Node]:
        """Nodes outside of the loop that compute `n` for all steps (as it is, if it is the same in all)."""
        if all(v in self.invariant for v in n.operands):
            yield copy_node(n, self.outer)
            return
        made: list[Node] = []

        def emit(op: Op, *operands: Value) -> Value:
            made.append(Node(op, operands, tuple(map(Value, infer_types(op, tuple(v.type for v in operands)))), n.span))
            return made[-1].results[0]

        count, operands, op = self.op.trip_count, [self.outer[v] for v in n.operands], n.op
        result = n.results[0].type.shape
        if isinstance(op, MatMul):
            x, y = operands
            rows, inner = n.operands[0].type.shape
            product = emit(op, emit(Reshape((count * rows, inner)), x), y)
            self.outer[n.results[0]] = emit(Reshape((count, *result)), product)
        elif isinstance(op, Elementwise):
            shape = (count, *n.operands[0].type.shape)
            alike = [emit(BroadcastTo(shape), x) if v in self.invariant else x for v, x in zip(n.operands, operands, strict=True)]
            self.outer[n.results[0]] = emit(op, *alike)
        elif isinstance(op, BroadcastTo):
            own = n.operands[0].type.shape
            spread = emit(Reshape((count, *(1,) * (len(op.shape) - len(own)), *own)), operands[0])
            self.outer[n.results[0]] = emit(BroadcastTo((count, *op.shape)), spread)
        else:
            self.outer[n.results[0]] = emit(_with_step_dimension(op, count), operands[0])
        yield from made


def _with_step_dimension(op: Op, count: int) -> Op:
    """The op on operands with one more dimension in front."""
    if isinstance(op, Reshape):
        return Reshape((count, *op.shape))
    if isinstance(op, Transpose):
        return Transpose((0, *(p + 1 for p in op.perm)))
    if isinstance(op, Slice):
        return Slice((0, *op.start), (count, *op.size), (1, *op.step))
    assert isinstance(op, Reduction)
    return dataclasses.replace(op, axis=tuple(a + 1 for a in op.axis))  # type: ignore[type-var]


# -- after the loop ------------------------------------------------------------------------------------------------------
def _stack_rows(node: Node, after: list[Node]) -> Node:
    """The loop less the products whose results are only stacked; their rows are stacked instead, and `after` gains the products."""
    op = node.op
    assert isinstance(op, For)
    makers, plan = op.body.producers(), _Steps(node)
    uses: dict[Value, int] = {}
    for v in (*op.body.outputs, *(v for n in op.body.nodes for v in n.operands)):
        uses[v] = uses.get(v, 0) + 1
    outputs, results = list(op.body.outputs), list(node.results)
    for k in range(op.carried, len(outputs)):
        n = makers.get(outputs[k])
        if n is None or uses[outputs[k]] > 1 or not _is_product(n, plan.invariant):
            continue
        rows, product = n.operands[0], results[k]
        if op.trip_count * rows.type.nbytes > MOST_BYTES:
            continue
        stacked = Value(rows.type.with_shape((op.trip_count, *rows.type.shape)), rows.name)
        if rows in outputs[op.carried :]:
            stacked = results[outputs.index(rows, op.carried)]
        for m in plan.needed([plan.producers[v] for v in n.operands[1:] if v not in plan.outer]):
            if m.results[0] not in plan.outer:
                after += plan.for_all_steps(m)
        after += _product_of_all(n, stacked, plan.outer[n.operands[1]], product, op.trip_count)
        outputs[k], results[k] = rows, stacked
    if results == list(node.results):
        return node
    places = [k for k in range(len(outputs)) if k < op.carried or results.index(results[k]) == k]
    body = Graph(op.body.name, op.body.inputs, op.body.nodes, [outputs[k] for k in places])
    return Node(op.with_regions((body,)), node.operands, tuple(results[k] for k in places), node.span)


def _product_of_all(n: Node, rows: Value, matrix: Value, result: Value, count: int) -> list[Node]:
    """Nodes that multiply the stacked rows of all steps with the matrix; they make the value `result`."""
    assert isinstance(n.op, MatMul)
    height, inner = n.operands[0].type.shape
    width = result.type.shape[-1]
    flat = Value(rows.type.with_shape((count * height, inner)))
    product = Value(result.type.with_shape((count * height, width)))
    return [
        Node(Reshape(flat.type.shape), (rows,), (flat,), n.span),
        Node(n.op, (flat, matrix), (product,), n.span),
        Node(Reshape(result.type.shape), (product,), (result,), n.span),
    ]


def _is_product(n: Node, invariant: set[Value]) -> bool:
    """Whether `n` multiplies few rows of a step with a matrix that stays the same, and moving it pays."""
    if not isinstance(n.op, MatMul) or n.op.transpose_x:
        return False
    x, y = n.operands
    if x in invariant or y not in invariant or x.type.rank != 2:
        return False
    return x.type.shape[0] <= MOST_ROWS and math.prod(y.type.shape) >= LEAST_WEIGHTS
