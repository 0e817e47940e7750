"""Logarithms of a softmax are differences: of the exponents and the logarithm of the row's sum. Powers of a log softmax are quotients: of the powers that were
summed and their sum.

Enters: a Graph. Leaves: a Graph in which log(p), asked for where p = softmax(x) is above zero, takes no logarithm of each number, but of each row alone, as
a log softmax does. Kullback-Leibler divergences from a softmax, as in distillation, ask so. It is as exact: an exponent's error is the power's, relatively.
And in which exp(log_softmax(x)), as focal losses and entropies have it, takes no second power of each number. That is more exact: no rounding of an exponent
becomes an error of the power. The maximum must be that of what is summed: else all powers of a row may vanish, which their quotients do not.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcell.ir.graph import Graph, Node, Value
from graphcell.ops.arithmetic import Div, Select, Sub
from graphcell.ops.comparison import Greater
from graphcell.ops.mathematics import Exp, Log
from graphcell.ops.movement import BroadcastTo
from graphcell.ops.reduction import ReduceMax, ReduceSum
from graphcell.passes.rewrite import Rewriter, Rules, rewrite


def log_of_softmax(graph: Graph) -> Graph:
    """The graph without such logarithms, in its regions too."""
    return rewrite(graph, _RULES)


def _difference(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """log(select(p > 0, p, 1)) is select(p > 0, log p, 0)."""
    chosen = _made(r, node.operands[0], Select)
    if chosen is None or node.results[0].type.dtype.bits < 32:
        return None
    condition, p, other = chosen.operands
    above = _made(r, condition, Greater)
    if above is None or above.operands[0] is not p or r.number(above.operands[1]) != 0 or r.number(other) != 1:
        return None
    exponent = _logarithm(r, p)
    return None if exponent is None else r.emit(Select(), condition, exponent, *r.full(0.0, exponent))


def _quotient(r: Rewriter, node: Node) -> Sequence[Value] | None:
    """exp(d - log(sum(exp(d)))) is exp(d) / sum(exp(d)), where d is x - max(x)."""
    (exponent,) = node.operands
    sums = _sums_of_log_softmax(r, exponent) if exponent.type.dtype.bits >= 32 else None
    if sums is None:
        return None
    broadcast, reduction = sums
    return r.emit(Div(), reduction.operands[0], *r.emit(broadcast.op, *reduction.results))


def _logarithm(r: Rewriter, p: Value) -> Value | None:
    """log p, where p is a softmax or a power of a log softmax."""
    power = _made(r, p, Exp)
    if power is not None:
        return power.operands[0] if _is_log_softmax(r, power.operands[0]) else None
    quotient = _made(r, p, Div)
    if quotient is None:
        return None
    power, sums = _made(r, quotient.operands[0], Exp), _made(r, quotient.operands[1], BroadcastTo)
    if power is None or sums is None or _maximum_below(r, power.operands[0]) is None:
        return None
    (logarithm,) = r.emit(Log(), sums.operands[0])
    return r.emit(Sub(), power.operands[0], *r.emit(sums.op, logarithm))[0]


def _is_log_softmax(r: Rewriter, x: Value) -> bool:
    return _sums_of_log_softmax(r, x) is not None


def _sums_of_log_softmax(r: Rewriter, x: Value) -> tuple[Node, Node] | None:
    """The BroadcastTo and the ReduceSum in x = d - broadcast(log(sum(exp(d)))), where d is y - max(y), along the same axes."""
    difference = _made(r, x, Sub)
    maximum = _maximum_below(r, difference.operands[0]) if difference is not None else None
    if difference is None or maximum is None:
        return None
    source, nodes = difference.operands[1], []
    for kind in (BroadcastTo, Log, ReduceSum, Exp):
        made = _made(r, source, kind)
        if made is None:
            return None
        nodes.append(made)
        (source,) = made.operands
    total = nodes[2].op
    alike = isinstance(total, ReduceSum) and total.axis == maximum.axis
    return (nodes[0], nodes[2]) if alike and source is difference.operands[0] else None


def _maximum_below(r: Rewriter, x: Value) -> ReduceMax | None:
    """The maximum in x = y - max(y), of which no power is above 1."""
    difference = _made(r, x, Sub)
    largest = _made(r, difference.operands[1], BroadcastTo) if difference is not None else None
    reduction = _made(r, largest.operands[0], ReduceMax) if largest is not None else None
    if difference is None or reduction is None or reduction.operands[0] is not difference.operands[0]:
        return None
    assert isinstance(reduction.op, ReduceMax)
    return reduction.op


def _made(r: Rewriter, v: Value, kind: type) -> Node | None:
    """The node that makes v, if its op is of that kind."""
    made = r.producers.get(v)
    return made if made is not None and isinstance(made.op, kind) else None


_RULES = Rules((Exp, _quotient), (Log, _difference))
