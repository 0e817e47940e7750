"""Steps with kernels of their own, such as products: the stages of their plans, as calls, with what follows them as an epilogue.

Enters: a node, its plan and the places of its values. Leaves: calls in the entry function. `Contractions` is what a frame of lower.py inherits.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphcell.codegen.epilogue import FusedEpilogue, extra_name
from graphcell.codegen.layout import row_major
from graphcell.codegen.linear_algebra import LinearAlgebra
from graphcell.codegen.llvm.body import storage_type
from graphcell.codegen.llvm.contraction import Plan, Stage
from graphcell.codegen.llvm.text import I8, FunctionBuilder, Val
from graphcell.codegen.lowering import Calls
from graphcell.codegen.memory import aligned_size
from graphcell.codegen.native import is_mirrored_product
from graphcell.codegen.past_caches import waits_for_output
from graphcell.codegen.prepare import LETTERS, Request, own_stages, run_stages, title_of
from graphcell.codegen.reach import Matrix, Reach, reach_of_product
from graphcell.codegen.schedule import ScheduledKernel
from graphcell.codegen.units import Units
from graphcell.ir.graph import Node, Value
from graphcell.ops.contraction import MatMul


class Contractions(LinearAlgebra):
    """The contractions of a frame; `requests`: of what is prepared for them elsewhere, `epilogues`: what they hand their results to, `past`:
    what is written past the caches."""

    in_place: dict[Value, Value]
    requests: dict[Node, Request]
    epilogues: dict[Node, FusedEpilogue]
    past: frozenset[Value]

    def native_plan(self, node: Node) -> Plan | None:
        """The plan of a node's kernel, if it has one of its own."""
        raise NotImplementedError

    def writes_past_caches(self, node: Node) -> bool:
        """Whether the result of a product, or what its epilogue makes of it, is written past the caches."""
        fused = self.epilogues.get(node)
        if fused is not None:
            return bool(fused.kernel.past)
        return node.results[0] in self.past and waits_for_output(node) and not is_mirrored_product(node, has_epilogue=False)  # which reads half of it again

    def shared_bytes(self, node: Node, plan: Plan) -> int:
        """Bytes of the shared buffers that a plan fills each time."""
        known = {*self._prepared(node), *self.own_stages(node, plan)}
        return sum(aligned_size(size) for name, size in plan.shared if name not in known)

    def _prepared(self, node: Node) -> dict[str, int]:
        return self.requests[node].offsets if node in self.requests else {}

    def own_stages(self, node: Node, plan: Plan) -> dict[str, Stage]:
        """What each thread does for itself, see prepare.py."""
        return own_stages(plan, self._prepared(node), self.lowering.target.l2_bytes)

    def partial_home(self, node: Node, scheduled: ScheduledKernel) -> Value | None:
        """Which output of an epilogue may hold the contraction's partial sums meanwhile; none that is written over an input."""
        operand = self.epilogues[node].home_of_partial_sums()
        if operand is None or scheduled.buffers[operand] in self.in_place:
            return None
        return scheduled.buffers[operand]

    def emit_fused(self, b: FunctionBuilder, node: Node, scheduled: ScheduledKernel, own: Val, call: Calls) -> None:
        """A contraction with its epilogue; `own`: memory for itself."""
        fused, plan = self.epilogues[node], self.native_plan(node)
        assert plan is not None
        extra: dict[str, Val] = {}
        for k, v in enumerate(scheduled.buffers):
            if k != fused.operand:
                extra[extra_name(k)] = b.gep(self.place[v], fused.bases[k], storage_type(fused.kernel.operands[k]))
        home = self.partial_home(node, scheduled) if plan.resumes else None
        if home is not None:
            extra["c"] = self.place[home]
        else:
            extra["c"] = b.gep(own, self.shared_bytes(node, plan), I8)  # touched only if the plan resumes
        self.emit_plan(b, node, plan, own, call, extra, scheduled)

    def emit_plan(
        self,
        b: FunctionBuilder,
        node: Node,
        plan: Plan,
        own: Val,
        call: Calls,
        extra: Mapping[str, Val] | None = None,
        scheduled: ScheduledKernel | None = None,
    ) -> None:
        """The stages of a plan; of an epilogue the places of its buffers, by name, and its kernel."""
        table: dict[str, Val] = dict(extra or {})
        for letter, v in zip(LETTERS, node.operands, strict=False):
            layout = self.info.layout(v)
            table[letter] = b.gep(self.place[layout.root], layout.offset * v.type.dtype.itemsize, I8)
        if extra is None:
            for k, v in enumerate(node.results):
                table["c" if k == 0 else f"c{k}"] = self.place[v]
        request, stages = self.requests.get(node), plan.stages
        if request is not None:
            table |= request.places
            stages = tuple(s for s in stages if s not in request.what.stages)
        offset, each = 0, self.own_stages(node, plan)
        for name, size in plan.shared:
            if name not in table and name not in each:
                table[name] = b.gep(own, offset, I8)
                offset += aligned_size(size)
        note = "".join([str(plan), *(f"\n  each thread for itself: {s.function}" for s in each.values())])
        if node in self.epilogues:
            note += f"\n  epilogue {self.epilogues[node].kernel}"
        with self.lowering.step(b, title_of(node), note, sum(s.blocks for s in stages if s not in each.values())):
            run_stages(b, call, plan, stages, each, table, None if each else self._reach(node, plan, table, scheduled, call.units))
            if self.writes_past_caches(node):  # see `run_loops`
                b.order_stores()

    def _reach(self, node: Node, plan: Plan, table: Mapping[str, Val], scheduled: ScheduledKernel | None, units: Units | None) -> Reach | None:
        """What the last stage of a product of matrices touches, for a team; None if nobody asks, or for other plans."""
        if units is None or not isinstance(node.op, MatMul) or not plan.first_rows or plan.resumes:
            return None
        x, (result,) = node.operands[0], node.results
        layout = self.info.layout(x)
        left = Matrix(self.place[layout.root], layout.offset, layout.strides, x.type).turned(node.op.transpose_x)
        right = table[plan.stages[-1].buffers[1]]
        if scheduled is not None:
            fused = self.epilogues[node]
            pointers = [None if k == fused.operand else self.place[v] for k, v in enumerate(scheduled.buffers)]
            return reach_of_product(plan, left, right, None, units, fused, pointers)
        piece = self.pieces.get(result)
        strides = row_major(result.type.shape) if piece is None else piece.strides
        return reach_of_product(plan, left, right, Matrix(self.place[result], 0, strides, result.type), units)
