"""Gradient rules of single ops for the tape: what an op must keep, and how its gradients are computed from that.

Enters: an op, its operand types, which operands need gradients. Leaves: a `Rule`. The op's own `grad` is traced once a signature, which
shows which operands and results it reads (only those are kept alive), drops what nobody needs, and saves running its Python code again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from graphcell.errors import ConcretizationError, NoGradientError
from graphcell.ir.graph import Graph, Node, Value
from graphcell.ir.op import Op, evaluate, infer_types
from graphcell.ir.types import TensorType
from graphcell.ops.base import View
from graphcell.ops.control import RegionOp, positions
from graphcell.ops.dispatch import Trace, apply
from graphcell.ops.kernels import Native, Work, spent
from graphcell.passes.autodiff import check_gradient, cotangent_of, live_nodes, lowest_category
from graphcell.records import dataclass
from graphcell.tensor import Tensor, state

Array = np.ndarray[Any, Any]
Gradients = Sequence[Tensor | None]
_FOLD_BYTES = 1 << 12
"""Fills and constants up to this size are computed once."""


@dataclass(frozen=True)
class Rule:
    """How the gradients of one recorded op are computed.

    `operands` and `results` are the positions of what must be kept; `seeds` those of the results that have cotangents. `backward`
    takes what was kept (operands, results, and for region ops residuals) and the cotangents, all of them there; it gives one gradient,
    or None, for each operand that needs one.
    """

    operands: tuple[int, ...]
    results: tuple[int, ...]
    seeds: tuple[int, ...]
    backward: Callable[[Sequence[Tensor], Sequence[Tensor]], Gradients]


@lru_cache(maxsize=4096)
def rule_of(op: Op, types: tuple[TensorType, ...], needed: tuple[bool, ...]) -> Rule:
    """The rule of an op without regions."""
    results = infer_types(op, types)
    trace = Trace(op.name)
    inputs = [trace.input(t) for t in types]
    outputs = [trace.input(t) for t in results]
    low = lowest_category(t for t, flag in zip(types, needed, strict=True) if flag)
    seeds = tuple(k for k, t in enumerate(results) if t.dtype.category >= low)
    if not seeds:
        return Rule((), (), (), lambda kept, cotangents: [None] * sum(needed))
    cotangents = {k: trace.input(results[k]) for k in seeds}
    symbols, made = tuple(map(Tensor.of_value, inputs)), tuple(map(Tensor.of_value, outputs))
    given = tuple(Tensor.of_value(cotangents[k]) if k in cotangents else None for k in range(len(results)))
    try:
        with trace.active():
            parts = op.grad(symbols, made, given)
            wanted = [parts[k] for k in positions(needed)]
            values = [None if part is None else trace.read(part) for part in wanted]
    except NoGradientError as e:
        return Rule((), (), seeds, _raiser(e))
    except ConcretizationError:
        values = []
    if trace.captured or len(values) < sum(needed):
        return _direct_rule(op, results, seeds, needed)
    for k, part in zip(positions(needed), wanted, strict=True):
        if part is not None:
            check_gradient(op, types[k], part)
    found = [v for v in values if v is not None]
    nodes = live_nodes(trace.builder.nodes, found)
    read = {v for node in nodes for v in node.operands} | set(found)
    kept, left = positions([v in read for v in inputs]), positions([v in read for v in outputs])
    held = [*(inputs[k] for k in kept), *(outputs[k] for k in left), *cotangents.values()]
    return Rule(tuple(kept), tuple(left), seeds, _Plan(Graph(f"{op.name}.grad", held, nodes, found), values))


@lru_cache(maxsize=1024)
def region_rule(op: RegionOp, needed: tuple[bool, ...]) -> tuple[Op, Rule | None]:
    """The op to run instead of `op`, which leaves residuals, and the rule for its gradients; None: no result depends on these operands so that
    there are any."""
    seeds = op.active_results(needed) if any(needed) else ()
    if not any(seeds):
        return op, None
    try:
        parts = op.linearize(needed, seeds)
    except NoGradientError as e:
        return op, Rule((), (), tuple(positions(seeds)), _raiser(e))
    return parts.forward, Rule(
        parts.operands, parts.results, tuple(positions(seeds)), lambda kept, cotangents: apply(parts.backward, *kept, *cotangents)
    )


class _Plan:
    """The traced rule, ready to run: eagerly on arrays, or op by op where another tape or graph must see it."""

    def __init__(self, graph: Graph, values: Sequence[Value | None]):
        self.graph = graph
        self.values = values
        self.constants: dict[Value, Array] = {}
        self.nodes: list[Node] = []
        self.work = Work()
        self._each = 0.0
        for node in graph.nodes:
            if not node.operands and node.results[0].type.nbytes <= _FOLD_BYTES:
                self.constants[node.results[0]] = evaluate(node.op, ())[0]
            else:
                self.nodes.append(node)
                self._each += node.eval_nanoseconds

    def __call__(self, kept: Sequence[Tensor], cotangents: Sequence[Tensor]) -> Gradients:
        if state.tapes or state.trace is not None:
            return self._apply((*kept, *cotangents))
        if self.work.kernel is not None:
            results = self.work.run_natively((*kept, *cotangents), self._each)
            if results is not NotImplemented:
                found = iter(results)
                return [None if v is None else next(found) for v in self.values]
        table = dict(self.constants)
        table.update(zip(self.graph.inputs, [t.array() for t in (*kept, *cotangents)], strict=True))
        for node in self.nodes:
            table.update(
                zip(node.results, evaluate(node.op, tuple([table[v] for v in node.operands])), strict=True)
            )
        spent.nanoseconds += self._each
        if self.work.is_due(self._each) and not all(isinstance(n.op, View) for n in self.nodes):
            self.work.kernel = Native.compile(self.graph)
        return [None if v is None else Tensor.of_array(table[v]) for v in self.values]

    def _apply(self, tensors: Sequence[Tensor]) -> Gradients:
        table = dict(zip(self.graph.inputs, tensors, strict=True))
        for node in self.graph.nodes:
            table.update(zip(node.results, apply(node.op, *[table[v] for v in node.operands]), strict=True))
        return [None if v is None else table[v] for v in self.values]


def _direct_rule(
    op: Op, results: tuple[TensorType, ...], seeds: tuple[int, ...], needed: tuple[bool, ...]
) -> Rule:
    """The op's `grad` called with all its operands and results each time: for rules that look at values."""
    count = len(needed)

    def backward(kept: Sequence[Tensor], cotangents: Sequence[Tensor]) -> Gradients:
        table = dict(zip(seeds, cotangents, strict=True))
        given = tuple(cotangent_of(table.get(k), t) for k, t in enumerate(results))
        parts = op.grad(tuple(kept[:count]), tuple(kept[count:]), given)
        return [parts[k] for k in positions(needed)]

    return Rule(tuple(range(count)), tuple(range(len(results))), seeds, backward)


def _raiser(error: NoGradientError) -> Callable[[Sequence[Tensor], Sequence[Tensor]], Gradients]:
    def backward(kept: Sequence[Tensor], cotangents: Sequence[Tensor]) -> Gradients:
        raise NoGradientError(error.message, hint=error.hint)

    return backward
