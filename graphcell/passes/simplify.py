"""Simplification: local rules that make a graph smaller or cheaper without changing a bit of its results.

Enters: a differentiated Graph (stop_gradient and calls are dissolved). Leaves: an equal Graph. The rules are
functions, one each, in simplify_elementwise.py, simplify_movement.py, simplify_control.py, inline.py and
fold.py; constants are folded in the same walk, since either opens the way for the other. No rule reorders
float sums or products, or assumes that a float is not NaN or infinite.
"""

from __future__ import annotations

from graphcell.ir.graph import Graph
from graphcell.passes.fold import EMPTY_RULES, FOLD_RULES
from graphcell.passes.inline import INLINE_RULES
from graphcell.passes.rewrite import Rules, rewrite
from graphcell.passes.simplify_control import CONTROL_RULES, sink_operands
from graphcell.passes.simplify_elementwise import ELEMENTWISE_RULES
from graphcell.passes.simplify_movement import MOVEMENT_RULES

RULES = Rules(
    *EMPTY_RULES,
    *INLINE_RULES,
    *ELEMENTWISE_RULES,
    *MOVEMENT_RULES,
    *CONTROL_RULES,
    *FOLD_RULES,
    prepare=sink_operands,
)


def simplify(graph: Graph) -> Graph:
    """Applies all rules until none applies, regions included."""
    return rewrite(graph, RULES)
