"""Local rewriting in one forward walk: what the passes `inline`, `fold` and `simplify` share.

Enters: a Graph and rules, each for a class of ops. Leaves: a Graph in which no rule applies to a node any
more given its (already rewritten) operands; the same object if no rule applied anywhere. Nodes that no rule
touches are kept as they are, not copied. Regions are rewritten first. Replaced nodes stay behind without
users: `eliminate_dead` removes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from graphcell.errors import Span, VerificationError
from graphcell.ir.graph import Graph, Node, Value, copy_node
from graphcell.ir.op import Op, infer_types
from graphcell.ops.creation import Full, number_of
from graphcell.ops.movement import Slice

T = TypeVar("T")
Rule = Callable[["Rewriter", Node], "Sequence[Value] | None"]
"""Given a node whose operands are rewritten: the values to stand for its results, or None if the rule does
not apply.

A rule makes new nodes through `Rewriter.emit`. Whatever it does must bring the graph closer to an end (fewer
or cheaper nodes, or a form that no rule turns back), since the rules are applied to what it emits, too.
"""


Preparation = Callable[["Rewriter", Node], Node]
"""Given a node with regions that are not rewritten yet: the node to go on with. It may `replace` results that
the new node lacks.
"""


class Rules:
    """A tuple of (class of ops, rule), looked up by the class of a node's op; earlier rules go first.

    `prepare` sees each node with regions before these are rewritten, so that it can bring knowledge from
    outside into them.
    """

    def __init__(self, *pairs: tuple[type[Op], Rule], prepare: Preparation | None = None):
        self.pairs = pairs
        self.prepare = prepare
        self._by_class: dict[type[Op], tuple[Rule, ...]] = {}

    def of(self, cls: type[Op]) -> tuple[Rule, ...]:
        found = self._by_class.get(cls)
        if found is None:
            found = self._by_class[cls] = tuple(rule for base, rule in self.pairs if issubclass(cls, base))
        return found


_DEEPEST = 40
"""Rules within rules, each some four Python calls, of which an ordinary stack holds a thousand."""


def rewrite(graph: Graph, rules: Rules) -> Graph:
    """`graph` with `rules` applied, in its regions too."""
    return _rewrite(graph, rules, {})


def _rewrite(graph: Graph, rules: Rules, done: dict[Graph, Graph]) -> Graph:
    """`done` holds the graphs rewritten so far, for regions that several ops share."""
    result = done.get(graph)
    if result is None:
        result = done[graph] = Rewriter(graph, rules, done).run()
    return result


class Rewriter:
    """One graph being rewritten. Rules use `emit`, `inline` and the questions at the end."""

    def __init__(self, graph: Graph, rules: Rules, done: dict[Graph, Graph]):
        self.graph = graph
        self.rules = rules
        self.done = done
        self.nodes: list[Node] = []
        self.producers: dict[Value, Node] = {}
        self.replaced: dict[Value, Value] = {}
        self.span: Span | None = None
        self.changed = False
        self._uses: dict[Value, int] | None = None
        self._columns: set[Value] | None = None
        self._answers: dict[Callable[[Graph], object], Any] = {}
        self._slices: dict[tuple[Op, tuple[Value, ...]], tuple[Value, ...]] = {}
        self._depth = 0

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self.visit(node)
        if not self.changed:
            return self.graph
        outputs = [self.replaced.get(v, v) for v in self.graph.outputs]
        return Graph(self.graph.name, self.graph.inputs, self.nodes, outputs)

    def visit(self, node: Node) -> None:
        """Brings `node` over: with rewritten operands and regions, or replaced by what a rule gives."""
        operands = node.operands
        if self.replaced:
            operands = tuple([self.replaced.get(v, v) for v in operands])
            if operands != node.operands:
                node = Node(node.op, operands, node.results, node.span)
                self.changed = True
        self.span = node.span
        if node.op.regions:
            node = self._visit_regions(node)
        replacement = self._apply_rules(node)
        if replacement is None:
            self._append(node)
            return
        self.changed = True
        _check_types(node, replacement)
        for old, new in zip(node.results, replacement, strict=True):
            self.replace(old, new)

    def _visit_regions(self, node: Node) -> Node:
        before = node
        if self.rules.prepare is not None:
            node = self.rules.prepare(self, node)
        op = self.rewrite_regions(node.op)
        if op is not node.op:
            node = Node(op, node.operands, node.results, node.span)
        self.changed = self.changed or node is not before
        return node

    def rewrite_regions(self, op: Op) -> Op:
        """`op` around rewritten regions."""
        before = op.regions
        after = tuple([_rewrite(g, self.rules, self.done) for g in before])
        unchanged = all(a is b for a, b in zip(before, after, strict=True))
        return op if unchanged else op.with_regions(after)

    def _apply_rules(self, node: Node) -> Sequence[Value] | None:
        for rule in self.rules.of(type(node.op)):
            replacement = rule(self, node)
            if replacement is not None:
                return replacement
        return None

    def _append(self, node: Node) -> None:
        self.nodes.append(node)
        for v in node.results:
            self.producers[v] = node

    def replace(self, old: Value, new: Value) -> None:
        """Lets `new` stand for `old` in all that follows."""
        self.replaced[old] = new
        if self._uses is not None:
            self._uses[new] = self._uses.get(new, 0) + self._uses.get(old, 0)

    # -- for rules: making nodes -----------------------------------------------------------------------------
    def emit(self, op: Op, *operands: Value) -> tuple[Value, ...]:
        """The results of `op`, to whose node the rules are applied at once, but where rules that emit are in each other already too deep: there the
        next pass goes on. It gets the span of the node being rewritten. A slice is emitted once: rules that move it to where its elements come from meet
        the same one by many ways.
        """
        known = self._slices.get((op, operands)) if isinstance(op, Slice) else None
        if known is not None:
            return known
        types = infer_types(op, tuple([v.type for v in operands]))
        node = Node(op, operands, tuple(map(Value, types)), self.span)
        self._depth += 1
        replacement = self._apply_rules(node) if self._depth <= _DEEPEST else None
        self._depth -= 1
        if replacement is not None:
            _check_types(node, replacement)
        else:
            self._append(node)
        results = node.results if replacement is None else tuple(replacement)
        if isinstance(op, Slice):
            self._slices[op, operands] = results
        return results

    def full(self, value: bool | int | float, like: Value) -> tuple[Value, ...]:
        """`value` in every element, of the type of `like`."""
        return self.emit(Full(number_of(value, like.type.dtype), like.type.shape, like.type.dtype))

    def inline(self, graph: Graph, arguments: Sequence[Value]) -> list[Value]:
        """Copies `graph`'s nodes here, rewriting them; returns its outputs."""
        span = self.span
        table: dict[Value, Value] = dict(zip(graph.inputs, arguments, strict=True))
        for node in graph.nodes:
            self.visit(copy_node(node, table))
        self.span = span
        return [self.replaced.get(v, v) for v in (table[o] for o in graph.outputs)]

    # -- for rules: questions --------------------------------------------------------------------------------
    def op_of(self, value: Value) -> Op | None:
        """The op that makes `value`; None for an input."""
        node = self.producers.get(value)
        return None if node is None else node.op

    def number(self, value: Value) -> bool | int | float | None:
        """The number that every element of `value` is, if that is known."""
        node = self.producers.get(value)
        return node.op.value if node is not None and isinstance(node.op, Full) else None

    def once(self, question: Callable[[Graph], T]) -> T:
        """What `question` says of the graph as it was, asked once."""
        if question not in self._answers:
            self._answers[question] = question(self.graph)
        answer: T = self._answers[question]
        return answer

    def used_once(self, value: Value) -> bool:
        """True if the graph reads `value` in one place only."""
        return self.uses(value) <= 1

    def uses(self, value: Value) -> int:
        """In how many places the graph reads `value`."""
        if self._uses is None:
            self._uses = _count_uses(self.graph)
            for old, new in self.replaced.items():
                self._uses[new] = self._uses.get(new, 0) + self._uses.get(old, 0)
        return self._uses.get(value, 1)

    def used_by_slices(self, value: Value) -> float:
        """How many elements all slices of `value` have that the graph reads; infinity where something else reads it."""
        return self.once(_count_sliced).get(value, math.inf)

    def read_by_columns(self, value: Value) -> bool:
        """True if the graph reads `value` by slices of one place of the last dimension, among others."""
        if self._columns is None:
            cuts = (n for n in self.graph.nodes if isinstance(n.op, Slice) and n.op.size and n.op.size[-1] == 1)
            self._columns = {self.replaced.get(v, v) for n in cuts for v in n.operands if v.type.shape[-1] > 1}
        return value in self._columns


def _count_uses(graph: Graph) -> dict[Value, int]:
    uses: dict[Value, int] = {}
    for node in graph.nodes:
        for v in node.operands:
            uses[v] = uses.get(v, 0) + 1
    for v in graph.outputs:
        uses[v] = uses.get(v, 0) + 1
    return uses


def _count_sliced(graph: Graph) -> dict[Value, float]:
    """Elements of all slices of each value, of values that are read by nothing else."""
    sliced: dict[Value, float] = dict.fromkeys(graph.outputs, math.inf)
    for node in graph.nodes:
        elements = node.results[0].type.size if isinstance(node.op, Slice) else math.inf
        for v in node.operands:
            sliced[v] = sliced.get(v, 0) + elements
    return sliced


def _check_types(node: Node, replacement: Sequence[Value]) -> None:
    if len(replacement) != len(node.results) or any(
        a.type != b.type for a, b in zip(node.results, replacement, strict=True)
    ):
        got, want = ", ".join(str(v.type) for v in replacement), ", ".join(str(v.type) for v in node.results)
        raise VerificationError(f"a rewrite of {node.op} gives ({got}) instead of ({want})", span=node.span)
