"""Constant folding: nodes whose operands are all known run now, through their `eval`.

Enters: a Graph. Leaves: a Graph in which their results are constants. Results above 64 KiB are left to run
time, and so is a broadcast of a constant, which costs nothing there. Fills stay fills whatever their size:
they need no memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphcell.errors import GraphcellError
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.op import Array, Op, evaluate
from graphcell.ops.arithmetic import Select
from graphcell.ops.base import Elementwise, View
from graphcell.ops.creation import Constant, Full, Iota, constant_op
from graphcell.ops.movement import BroadcastTo
from graphcell.passes.rewrite import Rewriter, Rules, rewrite

RESULT_LIMIT = 64 * 1024
"""Bytes of results that are kept in the graph."""
OPERAND_LIMIT = 16 * RESULT_LIMIT
"""Bytes of operands that are worked on while compiling."""


def fold(graph: Graph) -> Graph:
    """Folds constants, in regions too."""
    return rewrite(graph, _RULES)


def fold_empty(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """What has no elements need not be computed."""
    for v in node.results:
        if 0 not in v.type.shape:
            return None
    if not node.operands or node.op.regions or node.op.has_effect:
        return None
    return [r.full(0, v)[0] for v in node.results]


def fold_fills(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """An elementwise op on fills is a fill; so is a view of a fill."""
    fills = []
    for v in node.operands:
        op = r.op_of(v)
        if not isinstance(op, Full):
            return None
        fills.append(op)
    result = node.results[0]
    if isinstance(node.op, View):
        return r.full(fills[0].value, result)
    one = [np.full((1,), f.value, f.dtype.np_type) for f in fills]
    array = _evaluated(node.op, one)
    return None if array is None else r.full(_element(array[0]), result)


def fold_choice(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """An elementwise op on a choice between two numbers, and on numbers, is a choice between two numbers: so are one-hot rows in another dtype, scaled
    or taken from one."""
    choices = [v for v in dict.fromkeys(node.operands) if isinstance(r.op_of(v), Select)]
    if len(choices) != 1 or node.op.has_effect or len(node.results) != 1:
        return None
    condition, *either = r.producers[choices[0]].operands
    found: list[Value] = []
    for chosen in either:
        fills = [r.op_of(chosen if v is choices[0] else v) for v in node.operands]
        one = [np.full((1,), f.value, f.dtype.np_type) for f in fills if isinstance(f, Full)]
        array = _evaluated(node.op, one) if len(one) == len(fills) else None
        if array is None:
            return None
        found += r.full(_element(array[0]), node.results[0])
    return r.emit(Select(), condition, *found)


def fold_constants(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """An op on constants of moderate size gives constants."""
    op = node.op
    if not node.operands or op.regions or op.has_effect:
        return None
    known = []
    for v in node.operands:
        source = r.op_of(v)
        if not isinstance(source, (Constant, Full, Iota)):
            return None
        known.append(source)
    size = sum(v.type.nbytes for v in node.results)
    given = sum(v.type.nbytes for v in node.operands)
    if size > RESULT_LIMIT or given > OPERAND_LIMIT or (isinstance(op, BroadcastTo) and size > given):
        return None
    arrays = _evaluated(op, [evaluate(source, ())[0] for source in known])
    return None if arrays is None else [r.emit(constant_op(a))[0] for a in arrays]


def _evaluated(op: Op, arrays: Sequence[Array]) -> tuple[Array, ...] | None:
    """None where the op refuses its operands: then it shall do so at run time, in its place."""
    try:
        with np.errstate(all="ignore"):
            return evaluate(op, tuple(arrays))
    except GraphcellError:
        return None


def _element(array: Array) -> bool | int | float:
    value: bool | int | float = (
        array.reshape(-1)[0].item() if array.dtype.kind in "biuf" else float(array.reshape(-1)[0])
    )
    return value


EMPTY_RULES = ((Op, fold_empty),)
"""These go first: other rules need not think of results without elements."""
FOLD_RULES = (
    (Elementwise, fold_fills),
    (Elementwise, fold_choice),
    (View, fold_fills),
    (Op, fold_constants),
)
_RULES = Rules(*EMPTY_RULES, *FOLD_RULES)
