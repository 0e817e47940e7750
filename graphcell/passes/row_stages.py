"""How a function whose rows meet, in sums over all of them, is cut into stages, each of which treats rows one by one.

Enters: the graphs of one function for two numbers of rows. Leaves: `Stages`, parts in the order in which they run. A `RowPart` is a graph for
a block of rows, which adds what it finds to sums over the rows; a `WholePart` is a graph of what has no rows: weights, finished sums, numbers
that depend on how many rows there are. Refuses (`NotRowWise`, with the reason): what is no sum, product or extremum over rows.

    x ─┬─ rows 0: y = x W, sum of y ─── whole 1: mean ─┬─ rows 1: y - mean, sums for the gradient of W ─── whole 2: new W
       └──────────────────── y ────────────────────────┘

A value is known by that of the first graph, so that parts for blocks of any size, and for all rows, go together.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

from graphcell import dtype as dt
from graphcell.ir.graph import Graph, Node, Value, structural_key
from graphcell.ir.op import exact_key
from graphcell.ir.types import TensorType
from graphcell.ops.arithmetic import Add, Minimum, Mul, Select, Sub
from graphcell.ops.base import Elementwise, Reduction, View
from graphcell.ops.comparison import Equal
from graphcell.ops.contraction import MatMul
from graphcell.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from graphcell.ops.creation import Constant, Full, Iota
from graphcell.ops.host import CheckIndex
from graphcell.ops.movement import BroadcastTo, Reshape, Slice, Transpose
from graphcell.passes.costs import READ, WRITE, cost_again
from graphcell.passes.eliminate_dead import eliminate_dead
from graphcell.passes.factor_sums import factor_sums
from graphcell.passes.inline import inline
from graphcell.passes.layout import channels_last
from graphcell.passes.merge_common import merge_common
from graphcell.passes.row_sums import OpsBuilder, Sum, sum_of
from graphcell.passes.row_wise import Analysis, NotRowWise, RowAxes
from graphcell.records import dataclass

_LIGHT = (Elementwise, View, Full, Constant, Iota, Reduction)
_AGAIN = (Elementwise, View, Full, Constant, Iota)
_FROM_MEMORY = (Conv, ConvInputGrad, ConvWeightGrad, MatMul)
SPAN = TensorType(dt.int64, (2,))
"""What a part of rows is told of its block: the number of rows before it, and how many of its own are there. Those after them are as the last."""


def prepared(graph: Graph) -> Graph:
    """A traced graph as stages are made of: calls inlined, images laid out as all parts have them, no more sums than needed, nothing computed
    twice or in vain.
    """
    return eliminate_dead(merge_common(factor_sums(channels_last(eliminate_dead(inline(graph))))))


class Staging(Analysis):
    """Which stage each value of the first graph belongs to, found by comparing it with another.

    Attributes:
        stage: of a value with rows: the part of rows that makes it; of a whole one: the first that can read it.
        sums: what the nodes do at which rows meet.
        numbers: results of creation ops whose values depend on the number of rows.
        nodes: of the other graph, by those of the first.
    """

    refused = ()

    def __init__(self, graph: Graph, other: Graph, inputs: Sequence[int | None], counts: tuple[int, int]):
        self.graph = graph
        self.maker = graph.producers()
        self.stage: dict[Value, int] = dict.fromkeys(graph.inputs, 0)
        self.sums: dict[Node, Sum] = {}
        self.numbers: dict[Value, None] = {}
        self.nodes: dict[Node, Node] = {}
        super().__init__([RowAxes(a) for a in inputs], graph, other, counts)

    def of_itself(self) -> Staging:
        """The same with the first graph as the other, too."""
        found = copy.copy(self)
        found.twin, found.nodes = {v: v for v in self.twin}, {node: node for node in self.nodes}
        return found

    def is_whole(self, v: Value) -> bool:
        """Whether a value has nothing to do with how many rows there are, but for its elements."""
        return not self.scaled(v)

    def has_rows(self, v: Value) -> bool:
        """Whether its elements are of different rows."""
        return self.rows[v].axis is not None

    def _visit(self, node: Node, other: Node) -> None:
        self.nodes[node] = other
        if (node.op.has_effect and not isinstance(node.op, CheckIndex)) or any(g.has_effect() for g in node.op.regions):
            raise NotRowWise(f"{node.op.name} has effects")
        super()._visit(node, other)
        stage = max((self.stage[v] for v in node.operands), default=0)
        self.stage.update(dict.fromkeys(node.results, stage + (node in self.sums)))

    def _results(self, node: Node, other: Node, operands: list[RowAxes]) -> list[RowAxes]:
        if isinstance(node.op, (Full, Constant)) and self._is_number(node, other):
            return [RowAxes(None, frozenset(range(node.results[0].type.rank if isinstance(node.op, Full) else 0)))]
        is_whole = not any(v.type != w.type for v, w in self._pairs(node, other))
        if is_whole:
            return self._whole(node, other, operands)
        if isinstance(node.op, Iota) and node.results[0].type.shape[node.op.axis] != other.results[0].type.shape[node.op.axis]:
            return [RowAxes(node.op.axis, frozenset(range(node.results[0].type.rank)) - {node.op.axis})]
        try:
            return super()._results(node, other, operands)
        except NotRowWise:
            if any(v.type != w.type for v, w in zip(node.results, other.results, strict=True)):
                raise
        self.sums[node] = sum_of(node, operands, [self.scaled(v) for v in node.operands])
        return [RowAxes(None)] * len(node.results)

    def _is_number(self, node: Node, other: Node) -> bool:
        """Whether a creation op makes another number for another number of rows."""
        one, two = node.op, other.op
        if isinstance(one, Full) and isinstance(two, Full):
            differs = exact_key(Full(one.value, (), one.dtype)) != exact_key(Full(two.value, (), two.dtype))
        else:
            differs = exact_key(one) != exact_key(two) and node.results[0].type == other.results[0].type
        if differs:
            self.numbers[node.results[0]] = None
        return differs

    def _pairs(self, node: Node, other: Node) -> Iterable[tuple[Value, Value]]:
        return [*zip(node.operands, other.operands, strict=True), *zip(node.results, other.results, strict=True)]

    def _whole(self, node: Node, other: Node, operands: list[RowAxes]) -> list[RowAxes]:
        """Of what has no rows, where all ops are allowed that are the same."""
        regions = zip(node.op.regions, other.op.regions, strict=True)
        if exact_key(node.op) != exact_key(other.op) or any(structural_key(a) != structural_key(b) for a, b in regions):
            raise NotRowWise(f"{node.op.name} depends on the number of rows")
        if node.op.regions:
            return [RowAxes(None)] * len(node.results)
        try:
            return super()._results(node, other, operands)
        except NotRowWise:
            return [RowAxes(None)] * len(node.results)


@dataclass(frozen=True, eq=False)
class Part:
    """Common to all parts. Values of the first graph.

    Attributes:
        reads: values that it is given, whole ones; `captured`: inputs of the function that are bound to it, by position; `nodes`: what it does.
        gives: values that it makes for others; `updates`: of the last part, the function's, (value, position among the inputs); `sums`: where rows meet.
    """

    nodes: tuple[Node, ...]
    reads: tuple[Value, ...]
    captured: tuple[int, ...]
    gives: tuple[Value, ...]
    sums: tuple[Node, ...] = ()
    updates: tuple[tuple[Value, int], ...] = ()


@dataclass(frozen=True, eq=False)
class RowPart(Part):
    """For a block of rows. Its graph's inputs are: `rows`, of which it is given those of its block; `reads`; `SPAN`; what each of `sums`
    came to so far; `captured`. Its outputs: `gives`; the new sums; `updates`. Rows that meet elsewhere than in `sums` must all be in this block.
    """

    rows: tuple[Value, ...] = ()


@dataclass(frozen=True, eq=False)
class WholePart(Part):
    """Its graph's inputs are: `reads`; what each of `sums` came to; `captured`. Its outputs: `gives`; `updates`."""


class Stages:
    """The parts of a function.

    Args:
        staging: of the first graph and any other.
        leaves: so many inputs are arguments; the others are captured.
        updates: (output, input): that output is written into that input. None other has these places.

    Attributes:
        parts: in order; `results`: the values of the outputs that are not written anywhere.
        together: all of them as one, for a single block of all rows: nothing is handed on, and what a sum is read for is done while it is in the cache.
    """

    def __init__(self, staging: Staging, leaves: int, updates: Sequence[tuple[int, int]]):
        self.staging, self.leaves = staging, leaves
        self.graph = staging.graph
        self.numbers = frozenset(staging.numbers)
        self._place = {v: k for k, v in enumerate(self.graph.inputs)}
        self._order = {node: k for k, node in enumerate(self.graph.nodes)}
        self._users = self.graph.users()
        outputs, written = self.graph.outputs, dict(updates)
        self.results = [v for k, v in enumerate(outputs) if k not in written]
        self._updates = [(outputs[k], target) for k, target in updates]
        if any(not staging.is_whole(v) or target < leaves for v, target in self._updates):
            raise NotRowWise("rows are written into a Parameter, or something into an argument")
        for v in self.results:
            staging.axis_of_output(v)
        self.parts = self._cut()
        self.together = self._uncut()

    def _uncut(self) -> RowPart:
        inputs = self.graph.inputs
        reads = (*(v for v in inputs[: self.leaves] if not self.staging.has_rows(v)), *self.staging.numbers)
        rows = tuple(v for v in inputs[: self.leaves] if self.staging.has_rows(v))
        gives = tuple(dict.fromkeys(v for v in self.results if v not in self._place))
        captured = tuple(range(self.leaves, len(inputs)))
        return RowPart(tuple(self.graph.nodes), reads, captured, gives, updates=tuple(self._updates), rows=rows)

    def _cut(self) -> list[Part]:
        rows = self._row_needs()
        wholes = self._whole_needs(rows)
        parts: list[Part] = []
        for stage, whole in enumerate(wholes):
            if whole.nodes or whole.updates:
                parts.append(whole.part())
            if stage in rows:
                parts.append(rows[stage].part())
        return parts

    def _row_needs(self) -> dict[int, _Needs]:
        """What each part of rows does. A sum that may wait does so until what it adds up is computed for another, or it is needed."""
        staging = self.staging
        waiting = [n for n in self.graph.nodes if n in staging.sums or (n.op.has_effect and not all(map(staging.is_whole, n.operands)))]
        early = {n: max(staging.stage[v] for v in n.operands) for n in waiting}
        results = [v for v in self.results if not staging.is_whole(v) and v not in self._place]
        last = max([*early.values(), *(staging.stage[v] for v in results)], default=-1)
        late = self._latest(last)
        made: dict[Value, _Needs] = {}
        found: dict[int, _Needs] = {}
        for stage in range(last + 1):
            needs = _Needs(self, stage, made)
            needs.collect([n for n in waiting if late[n] == stage])
            behind = self._behind(waiting)
            for n in waiting:
                if n not in behind and needs.is_little_more(n):
                    needs.collect([n])
            if stage == last:
                needs.collect([], [v for v in results if v not in made])
                needs.gives.update(dict.fromkeys(v for v in results if v not in made))
            waiting = [n for n in waiting if n not in needs.nodes]
            made.update({v: needs for n in needs.nodes for v in n.results if staging.has_rows(v) and v not in made})
            if needs.nodes:
                found[stage] = needs
        for v in results:
            if v in made:
                made[v].give(v)
        return found

    def _behind(self, waiting: Iterable[Node]) -> set[Node]:
        """What cannot be done before the sums among these nodes are known."""
        sums = {n for n in waiting if n in self.staging.sums}
        unknown = {v for n in sums for v in n.results}
        found: set[Node] = set()
        for node in self.graph.nodes:
            if not unknown.isdisjoint(node.operands):
                found.add(node)
                unknown.update(node.results)
        return found

    def _latest(self, last: int) -> dict[Node, int]:
        """The last part of rows in which each node may be done; for those without rows, the last before which they may."""
        late: dict[Node, int] = {}
        for node in reversed(self.graph.nodes):
            uses = [late[user] for v in node.results for user in self._users.get(v, ())]
            is_sum = node in self.staging.sums
            is_whole = all(map(self.staging.is_whole, (*node.operands, *node.results)))
            late[node] = min([last + is_whole, *(use - is_sum for use in uses)])
        return late

    def _whole_needs(self, rows: dict[int, _Needs]) -> list[_Needs]:
        """What is done for no rows before each of these parts, and after the last."""
        staging = self.staging
        last = max(rows, default=-1) + 1
        checks = [n for n in self.graph.nodes if n.op.has_effect and all(map(staging.is_whole, n.operands))]
        wholes: list[_Needs] = []
        made: dict[Value, _Needs] = {}
        for stage in range(last + 1):
            needs = _Needs(self, -1, made)
            wholes.append(needs)
            is_last = stage == last
            wanted = [v for v in rows[stage].reads if v not in self.numbers] if stage in rows else []
            if is_last:
                wanted += [v for v in self.results if staging.is_whole(v)]
                needs.updates = [(v, target) for v, target in self._updates]
            wanted = [v for v in wanted if v not in self._place]
            behind = self._behind([n for k, part in rows.items() if k >= stage for n in part.sums]) if checks else set()
            due = [n for n in checks if n not in behind]
            checks = [n for n in checks if n not in due]
            makers = [staging.maker[v] for v in wanted if v not in made and v not in self.numbers]
            needs.collect([*due, *makers], [*(v for v in wanted if v in self.numbers), *(v for v, _ in needs.updates)])
            for v in [*(v for v in needs.reads if v not in self.numbers), *wanted]:
                if v in made:
                    made[v].give(v)
            for node in needs.nodes:
                made.update(dict.fromkeys(node.results, needs))
            for v in wanted:
                made[v].give(v)
        return wholes

    def is_stored(self, v: Value) -> bool:
        """Whether a value lies in memory wherever it is made: products and convolutions read it."""
        if isinstance(self.staging.maker[v].op, View) and not isinstance(self.staging.maker[v].op, Transpose):
            return False

        def is_read(v: Value) -> bool:
            return any(isinstance(n.op, _FROM_MEMORY) or (isinstance(n.op, Reshape) and is_read(n.results[0])) for n in self._users.get(v, ()))

        return is_read(v)

    def is_light(self, v: Value) -> bool:
        """Whether a whole value is had anew wherever it is needed: moved inputs, constants."""
        if v in self._place or v in self.numbers:
            return True
        op = self.staging.maker[v].op
        return isinstance(op, (Full, Constant, Iota, View)) and all(map(self.is_light, self.staging.maker[v].operands))


class _Needs:
    """What one part does and reads, as it is found out.

    `stage`: of rows; -1 where there are none. `made`: which other part makes a value.
    """

    def __init__(self, stages: Stages, stage: int, made: dict[Value, _Needs]):
        self.stages, self.stage, self.made = stages, stage, made
        self.nodes: dict[Node, None] = {}
        self.rows: dict[Value, None] = {}
        self.reads: dict[Value, None] = {}
        self.captured: dict[int, None] = {}
        self.sums: dict[Node, None] = {}
        self.gives: dict[Value, None] = {}
        self.updates: list[tuple[Value, int]] = []

    def give(self, v: Value) -> None:
        """Makes a value that is made here one for others."""
        self.gives[v] = None

    def is_little_more(self, root: Node) -> bool:
        """Whether what a node needs is there, but for light ops."""
        seen, waiting = {root}, [root]
        while waiting:
            node = waiting.pop()
            if node in self.nodes:
                continue
            if node is not root and not isinstance(node.op, _LIGHT):
                return False
            for v in node.operands:
                maker = self.stages.staging.maker.get(v)
                if maker is not None and maker not in seen and v not in self.made and not self.stages.staging.is_whole(v):
                    seen.add(maker)
                    waiting.append(maker)
        return True

    def collect(self, roots: Sequence[Node], values: Sequence[Value] = ()) -> None:
        """Takes in these nodes, what makes these values, and all that they need and is not made elsewhere."""
        waiting = [*roots]
        for v in values:
            waiting += self._ask(v)
        while waiting:
            node = waiting.pop()
            if node in self.nodes:
                continue
            self.nodes[node] = None
            operands = node.operands
            if node in self.stages.staging.sums:
                self.sums[node] = None
                added = self.stages.staging.sums[node]
                operands = operands[added.kept if self.stage < 0 else added.used]
            for v in operands:
                waiting += self._ask(v)

    def _ask(self, v: Value) -> list[Node]:
        """Notes that a value is needed; the node to take in for it, if it is to be made here."""
        stages, staging = self.stages, self.stages.staging
        place = stages._place.get(v)
        if v in stages.numbers:
            self.reads[v] = None
            return [] if place is not None else [staging.maker[v]]
        if place is not None:
            if staging.has_rows(v):
                self.rows[v] = None
            elif place < stages.leaves:
                self.reads[v] = None
            else:
                self.captured[place] = None
            return []
        if staging.is_whole(v):
            if self.stage < 0:
                if v in self.made:
                    self.reads[v] = None
                    return []
            elif not stages.is_light(v):
                self.reads[v] = None
                return []
        elif v in self.made and (stages.is_stored(v) or not (isinstance(staging.maker[v].op, View) or self._is_cheaper_again(v))):
            self.rows[v] = None
            self.made[v].give(v)
            return []
        return [staging.maker[v]]

    def _is_cheaper_again(self, root: Value) -> bool:
        """Whether to compute a value with rows, which another part makes, takes less time than to store and read it: by elementwise ops
        from what is stored anyway.
        """
        stages, staging = self.stages, self.stages.staging
        left = (READ if root in self.made[root].gives else READ + WRITE) * root.type.nbytes
        seen, waiting = {root}, [root]
        while waiting:
            v = waiting.pop()
            if staging.is_whole(v) or v in stages._place or (v is not root and v in self.rows):
                continue
            if v is not root and v in self.made and v in self.made[v].gives:
                left -= READ * v.type.nbytes
                continue
            node = staging.maker[v]
            if not isinstance(node.op, _AGAIN):
                return False
            left -= cost_again(node)
            if left < 0:
                return False
            waiting += [w for w in node.operands if w not in seen]
            seen.update(node.operands)
        return True

    def part(self) -> Part:
        """The part as it is by now."""
        for _, target in self.updates:
            self.captured[target] = None
        nodes = tuple(sorted(self.nodes, key=self.stages._order.__getitem__))
        reads, captured, gives, sums = tuple(self.reads), tuple(sorted(self.captured)), tuple(self.gives), tuple(self.sums)
        if self.stage < 0:
            return WholePart(nodes, reads, captured, gives, sums, tuple(self.updates))
        return RowPart(nodes, reads, captured, gives, sums, rows=tuple(self.rows))


# -- graphs of parts ---------------------------------------------------------------------------------------------------------------------
def whole_graph(part: WholePart, staging: Staging, name: str) -> Graph:
    """The graph of a part without rows, which is the same for any number of rows."""
    b = OpsBuilder(name)
    table = _inputs(b, part.reads, staging)
    sums = {node: [b.input(type) for type, _ in staging.sums[node].begin()] for node in part.sums}
    _captured(b, part, staging, table)
    for node in part.nodes:
        if node in sums:
            added = staging.sums[node]
            results = added.finish(b, sums[node], [table[v] for v in node.operands[added.kept]])
            table.update(zip(node.results, results, strict=True))
        else:
            _append(b, node, node, table, staging)
    return b.finish([*(table[v] for v in part.gives), *(table[v] for v, _ in part.updates)])


def rows_graph(part: RowPart, staging: Staging, rows: int, name: str, in_part: bool = False) -> Graph:
    """The graph of a part for a block of so many rows: those of the second graph of `staging`. `in_part`: not all of these rows may be there."""
    b = OpsBuilder(name)
    table: dict[Value, Value] = {v: b.input(staging.twin[v].type, v.name) for v in part.rows}
    table |= _inputs(b, part.reads, staging)
    span = b.input(SPAN)
    start, count = (b.one(Slice((k,), (1,), (1,)), span) for k in range(2))
    before = {node: [b.input(type) for type, _ in staging.sums[node].begin()] for node in part.sums}
    _captured(b, part, staging, table)
    after: dict[Node, list[Value]] = {}

    for node in part.nodes:
        other = staging.nodes[node]
        if node in staging.sums:
            added = staging.sums[node]
            operands = [table.get(v, v) for v in node.operands]  # those that are not used are not there
            if in_part:
                operands = added.of_first(b, operands, rows, count)
            if node not in before:
                table.update(zip(node.results, b.append(other.op, operands, other.span), strict=True))
                continue
            sums = zip(before[node], added.begin(), strict=True)
            so_far = [v if added.is_filled else _so_far(b, start, v, begin) for v, (_, begin) in sums]
            after[node] = added.step(b, other.op, operands, so_far)
        elif isinstance(other.op, Iota) and not staging.is_whole(node.results[0]) and staging.rows[node.results[0]].axis == other.op.axis:
            table[node.results[0]] = _index(b, other.op, start, rows, count if in_part else None)
        else:
            _append(b, node, other, table, staging)
    return b.finish([*(table[v] for v in part.gives), *(v for node in part.sums for v in after[node]), *(table[v] for v, _ in part.updates)])


def _inputs(b: OpsBuilder, values: Sequence[Value], staging: Staging) -> dict[Value, Value]:
    return {v: b.input(number_type(v, staging), v.name) for v in values}


def number_type(v: Value, staging: Staging) -> TensorType:
    """The type of a whole value as parts are given it: of numbers that depend on how many rows there are, one instead of a fill."""
    is_fill = v in staging.numbers and isinstance(staging.maker[v].op, Full)
    return TensorType(v.type.dtype, ()) if is_fill else v.type


def _captured(b: OpsBuilder, part: Part, staging: Staging, table: dict[Value, Value]) -> None:
    inputs = staging.graph.inputs
    table.update({inputs[k]: b.input(inputs[k].type, inputs[k].name) for k in part.captured})


def _append(b: OpsBuilder, node: Node, other: Node, table: dict[Value, Value], staging: Staging) -> None:
    """Copies a node, as it is in the other graph."""
    v = next(iter(node.results), None)
    if v in staging.numbers:
        if isinstance(other.op, Full):
            table[v] = b.one(BroadcastTo(other.op.shape), table[v]) if other.op.shape else table[v]
        return
    results = b.append(other.op, [table[w] for w in node.operands], other.span)
    for w, result in zip(node.results, results, strict=True):
        result.name = w.name
        table[w] = result


def _so_far(b: OpsBuilder, start: Value, sum: Value, begin: bool | int | float) -> Value:
    """A sum before a block; that of the first block is `begin`, whatever its memory holds."""
    type = sum.type
    is_first = b.one(Equal(), start, b.full(start.type, 0))
    return b.one(Select(), b.one(BroadcastTo(type.shape), b.one(Reshape((1,) * type.rank), is_first)), b.full(type, begin), sum)


def _index(b: OpsBuilder, op: Iota, start: Value, rows: int, count: Value | None) -> Value:
    """Numbers of rows that go on where the block before ended; with `count` those of rows after so many are as that of the last."""
    shape, axis = op.shape, op.axis
    inner = shape[axis] // rows

    def row_by_row(v: Value) -> Value:
        """A number for each row, as that of each element."""
        one_each = b.one(Reshape(tuple(rows if k == axis else 1 for k in range(len(shape) + 1))), v)
        return b.one(Reshape(shape), b.one(BroadcastTo((*shape[:axis], rows, inner, *shape[axis + 1 :])), one_each))

    row = b.one(Iota((rows,), 0, start.type.dtype))
    if count is not None:
        last = b.one(Sub(), count, b.full(count.type, 1))
        row = b.one(Minimum(), row, b.one(BroadcastTo((rows,)), last))
    row = b.one(Add(), row, b.one(BroadcastTo((rows,)), start))
    first = b.one(Mul(), row, b.full(row.type, inner))
    within = b.one(Iota((*shape[:axis], rows, inner, *shape[axis + 1 :]), axis + 1, op.dtype))
    return b.one(Add(), b.one(Reshape(shape), within), row_by_row(b.cast(first, op.dtype)))
