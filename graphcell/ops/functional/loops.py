"""`scan`: a counted loop over the rows of Tensors, as one op."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphcell import dtype as dt
from graphcell.ir.fingerprint import known
from graphcell.ir.types import TensorType
from graphcell.ops.control import For
from graphcell.ops.dispatch import Trace, apply
from graphcell.tensor import Tensor, state

Tensors = tuple[Tensor, ...]
Step = Callable[[Tensor, Tensors, Tensors, Tensors], tuple[Tensors, Tensors]]


def scan(
    name: str, step: Step, carried: Sequence[Tensor], scanned: Sequence[Tensor], kept: Sequence[Tensor], backward: bool = False
) -> tuple[Tensors, Tensors]:
    """Runs `step` for each row of `scanned`; gives what is carried at the end, and the outputs of all steps, stacked.

    Args:
        step: (number of the step, carried, rows, kept) to (carried, outputs); what is carried keeps its type. It uses no Tensor from outside.
        carried: what the steps hand on.
        scanned: Tensors of as many rows as there are steps, one at least.
        kept: what all steps read.
        backward: from the last row to the first.
    """
    body = Trace(name, state.trace)

    def inputs(types: Sequence[TensorType]) -> Tensors:
        return tuple([Tensor.of_value(body.input(t)) for t in types])

    (number,) = inputs([TensorType(dt.int64, ())])
    before = inputs([t.ir_type for t in carried])
    rows = inputs([t.ir_type.with_shape(t.shape[1:]) for t in scanned])
    with body.active():
        after, outputs = step(number, before, rows, inputs([t.ir_type for t in kept]))
        graph = body.finish([body.read(t) for t in (*after, *outputs)])
    if state.trace is None:
        graph = known(graph)  # each call traces another one
    results = apply(For(graph, scanned[0].shape[0], len(carried), len(scanned), backward), *carried, *scanned, *kept)
    return results[: len(carried)], results[len(carried) :]
