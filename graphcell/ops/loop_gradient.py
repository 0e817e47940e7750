"""The gradient of a counted loop: the loop that leaves residuals, and the loop that runs back over them.

Enters: a `For`, which operands need gradients, which results have cotangents. Leaves: `Linearized`. Gradients of loop invariants that are
products of per-step matrices are taken out of the loop: one product over all steps costs less than a sum of small ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphcell.errors import Span
from graphcell.ir.graph import Builder, Graph, Value
from graphcell.ops.arithmetic import Add
from graphcell.ops.control import For, GraphCall, Linearized, Mask, positions, zeros
from graphcell.ops.loop_sums import LoopSums
from graphcell.records import dataclass

if TYPE_CHECKING:
    from graphcell.passes.autodiff import Split


@dataclass(frozen=True)
class _Plan:
    """Who is who. Positions count: carried values from 0, xs from 0, invariants from 0; body inputs are (index, carried, xs, invariants)."""

    loop: For
    split: Split
    carried: tuple[int, ...]
    """The carried values whose cotangents run backward."""
    xs: tuple[int, ...]
    invariants: tuple[int, ...]
    """Those of which gradients are wanted."""
    seeded: tuple[int, ...]
    """The results (of op and body) that have cotangents; among the body's carried, those that are active."""

    @property
    def first(self) -> int:
        return 1 + self.loop.carried

    @property
    def last(self) -> int:
        return self.first + self.loop.scanned

    def kept(self, low: int, high: int) -> list[int]:
        """Body inputs between two positions that the backward body reads."""
        return [k for k in self.split.inputs if low <= k < high]

    @property
    def stacked_carried(self) -> list[int]:
        """Body inputs that are carried values to be saved in each step."""
        return self.kept(1, self.first)

    @property
    def stacked_outputs(self) -> list[int]:
        """Body outputs that are carried values to be saved in each step."""
        return [k for k in self.split.outputs if k < self.loop.carried]

    @property
    def kept_ys(self) -> list[int]:
        """Body outputs that are saved as results of the loop anyway."""
        return [k for k in self.split.outputs if k >= self.loop.carried]


def linearize_for(loop: For, needed: Mask, seeds: Mask) -> Linearized:
    """Forward and backward op of `loop`; see `RegionOp.linearize`."""
    from graphcell.passes.autodiff import split_vjp

    active = loop.active_results(needed)
    carried = tuple(positions(active[: loop.carried]))
    xs = tuple(positions(needed[loop.carried : loop.carried + loop.scanned]))
    invariants = tuple(positions(needed[loop.carried + loop.scanned :]))
    seeded = (*carried, *(k for k in positions(seeds) if k >= loop.carried))
    first, last = 1 + loop.carried, 1 + loop.carried + loop.scanned
    wrt = [1 + k for k in carried] + [first + k for k in xs] + [last + k for k in invariants]
    plan = _Plan(loop, split_vjp(loop.body, wrt, seeded), carried, xs, invariants, seeded)
    operands = [k - 1 for k in (*plan.kept(first, last), *plan.kept(last, len(loop.body.inputs)))]
    return Linearized(
        _forward(plan), GraphCall(_backward(plan, needed, seeds)), tuple(operands), tuple(plan.kept_ys)
    )


def _forward(plan: _Plan) -> For:
    """The loop with one more stacked result for each residual of the body."""
    b = Builder(plan.split.forward.name)
    arguments = [b.input(v.type, v.name) for v in plan.split.forward.inputs]
    results = b.inline(plan.split.forward, arguments)
    count = len(plan.loop.body.outputs)
    saved = [arguments[k] for k in plan.stacked_carried] + [results[k] for k in plan.stacked_outputs]
    body = b.finish([*results[:count], *saved, *results[count:]])
    return For(body, plan.loop.trip_count, plan.loop.carried, plan.loop.scanned, plan.loop.reverse)


def _backward(plan: _Plan, needed: Mask, seeds: Mask) -> Graph:
    """A graph of (*kept xs, *kept invariants, *kept ys, *residuals, *cotangents) that runs the loop back."""
    loop, body = plan.loop, plan.loop.body
    b = Builder(f"{body.name}.reversed")

    def stack(v: Value) -> Value:
        return b.input(v.type.with_shape((loop.trip_count, *v.type.shape)), v.name)

    xs = [stack(body.inputs[k]) for k in plan.kept(plan.first, plan.last)]
    invariants = [
        b.input(body.inputs[k].type, body.inputs[k].name) for k in plan.kept(plan.last, len(body.inputs))
    ]
    ys = [stack(body.outputs[k]) for k in plan.kept_ys]
    saved = [stack(body.inputs[k]) for k in plan.stacked_carried] + [
        stack(body.outputs[k]) for k in plan.stacked_outputs
    ]
    residuals = [stack(v) for v in plan.split.residuals]
    cotangents = {
        k: b.input(body.outputs[k].type) if k < loop.carried else stack(body.outputs[k])
        for k in positions(seeds)
    }

    scanned = [*xs, *ys, *saved, *residuals, *(cotangents[k] for k in plan.seeded if k >= loop.carried)]
    step = _BackwardBody(plan)
    start = [cotangents[k] if k in cotangents else zeros(b, body.outputs[k].type) for k in plan.carried]
    start += [zeros(b, v.type) for v in step.sums.totals]
    op = For(step.graph, loop.trip_count, len(start), len(scanned), not loop.reverse)
    results = b.append(op, [*start, *scanned, *invariants], step.span)
    n, last = len(plan.carried), len(start) + len(plan.xs)
    stacks = dict(zip(step.scanned, scanned, strict=True)) | dict(
        zip(step.stacked, results[last:], strict=True)
    )
    sums = [
        finish(b, results[n : len(start)], [stacks[v] for v in step.sums.stacks]) for finish in step.finishes
    ]
    gradients = dict(zip(plan.carried, results[:n], strict=True))
    return b.finish(
        [*(gradients[k] for k in positions(needed[: loop.carried])), *results[len(start) : last], *sums]
    )


class _BackwardBody:
    """One step back: (index, *cotangents of carried, *totals, *slices of what was scanned, *invariants) -> (*cotangents, *totals,
    *gradients of xs, *values to stack for the sums over steps)."""

    def __init__(self, plan: _Plan):
        from graphcell.passes.autodiff import live_nodes

        loop, body, split = plan.loop, plan.loop.body, plan.split
        b = Builder(split.backward.name)

        def take(v: Value) -> Value:
            return b.input(v.type, v.name)

        held = {0: take(body.inputs[0])}
        flowing = {k: take(body.outputs[k]) for k in plan.carried}
        front = len(b.inputs)
        held |= {k: take(body.inputs[k]) for k in plan.kept(plan.first, plan.last)}
        outputs = {k: take(body.outputs[k]) for k in plan.kept_ys}
        held |= {k: take(body.inputs[k]) for k in plan.stacked_carried}
        outputs |= {k: take(body.outputs[k]) for k in plan.stacked_outputs}
        residuals = [take(v) for v in split.residuals]
        cotangents = {k: take(body.outputs[k]) for k in plan.seeded if k >= loop.carried}
        self.scanned = b.inputs[front:]
        held |= {k: take(body.inputs[k]) for k in plan.kept(plan.last, len(body.inputs))}

        given = [flowing[k] if k < loop.carried else cotangents[k] for k in plan.seeded]
        own = [held[k] for k in split.inputs] + [outputs[k] for k in split.outputs] + [*residuals, *given]
        gradients = b.inline(split.backward, own)
        n, m = len(plan.carried), len(plan.carried) + len(plan.xs)
        producers = {v: node for node in b.nodes for v in node.results}
        draft = LoopSums(loop.trip_count, producers, set(self.scanned), b)
        for g in gradients[m:]:
            draft.plan(g)
        self.sums = LoopSums(loop.trip_count, producers, set(self.scanned), b, stacks=draft.stacks)  # a stack for one sum serves others
        self.finishes = [self.sums.plan(g) for g in gradients[m:]]
        self.stacked = [v for v in self.sums.stacks if v not in self.sums.given]
        self.span: Span | None = next((node.span for node in b.nodes if node.span is not None), None)
        before = [Value(v.type) for v in self.sums.totals]
        totals = [b.append(Add(), pair, self.span)[0] for pair in zip(before, self.sums.totals, strict=True)]
        b.inputs[front:front] = before
        results = [*gradients[:n], *totals, *gradients[n:m], *self.stacked]
        self.graph = Graph(b.name, b.inputs, live_nodes(b.nodes, results), results)
