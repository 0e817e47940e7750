"""Connectionist temporal classification (Graves et al., 2006): the loss of sequences of labels that are not aligned with the steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ir.types import Shape
from graphcell.ops.arithmetic import StopGradient
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.arithmetic import maximum
from graphcell.ops.functional.common import as_tensor, broadcast, cast, constant, full, full_like, select, zeros_like
from graphcell.ops.functional.gathering import gather_elements
from graphcell.ops.functional.indexing import check_range
from graphcell.ops.functional.loops import Tensors, scan
from graphcell.ops.functional.loss import reduce_loss
from graphcell.ops.functional.mathematics import exp, log
from graphcell.ops.functional.movement import cut, joined, permuted, reshaped
from graphcell.ops.kernels import composite
from graphcell.tensor import Tensor

__all__ = ["ctc_loss"]

_NEVER = -1e30
"""The logarithm of a chance of 0 on the way: finite, so that gradients are too."""


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
) -> tuple[Tensor, Tensor]:
    """-log of the chance that a sequence of steps, without its blanks and repetitions, is the sequence of labels.

    Args:
        log_probs: (T, N, C), float32 or float64: logarithms of chances, as of `log_softmax`. The gradient is that for logits in their place.
        targets: (N, S), int32 or int64: labels.
        input_lengths, target_lengths: (N,): how many steps and labels count; Tensors, or tuples of ints.
        blank: the class that is no label.
        reduction: 'mean' (of what each sequence costs for each of its labels), 'sum' or 'none'.
        zero_infinity: what is impossible costs 0 instead of infinity.

    Returns:
        The loss, and (N, T, 2 S + 1): the logarithms of the chances of all beginnings, with blanks between the labels.

    Raises:
        TypeError: other dtypes. ValueError: shapes, a blank or a reduction that do not fit. RuntimeError: more steps or labels than there are.
    """
    for name, x in (("log_probs", log_probs), ("targets", targets)):
        if not isinstance(x, Tensor):
            raise ArgumentTypeError(f"For 'ctc_loss', the '{name}' must be a Tensor, but got {type(x).__name__}")
    if log_probs.dtype not in (dt.float32, dt.float64):
        raise DTypeError(f"For 'ctc_loss', the 'log_probs' must be Float32 or Float64, but are {log_probs.dtype}")
    if log_probs.ndim != 3 or targets.ndim != 2 or targets.shape[0] != log_probs.shape[1]:
        raise ShapeError(f"For 'ctc_loss', targets of shape {targets.shape} do not fit log_probs of shape {log_probs.shape}")
    if not 0 <= blank < log_probs.shape[2]:
        raise ArgumentValueError(f"For 'ctc_loss', the blank must be in [0,{log_probs.shape[2]}), but got {blank}.")
    integers = []
    for name, x in (("targets", targets), ("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        t = as_tensor(x, name, "ctc_loss")
        if t.dtype not in (dt.int32, dt.int64):
            raise DTypeError(f"For 'ctc_loss', the '{name}' must be Int32 or Int64, but are {t.dtype}")
        if name != "targets" and t.shape != (log_probs.shape[1],):
            raise ShapeError(f"For 'ctc_loss', the '{name}' must have shape ({log_probs.shape[1]},), but got {t.shape}")
        integers.append(cast(t, dt.int64))
    path, steps, labels = integers
    check_range(steps, log_probs.shape[0] + 1, "ctc_loss: input_lengths")
    check_range(labels, path.shape[1] + 1, "ctc_loss: target_lengths")
    losses, beginnings = _losses(log_probs, path, steps, labels, blank, bool(zero_infinity))
    if reduction == "mean":
        per_label: Any = cast(maximum(labels, full_like(labels, 1)), losses.dtype)
        losses = losses / per_label  # type: ignore[operator]
    return reduce_loss(losses, reduction, "ctc_loss"), beginnings


@composite
def _losses(log_probs: Tensor, targets: Tensor, steps: Tensor, labels: Tensor, blank: int, zero_infinity: bool) -> tuple[Tensor, Tensor]:
    """What each sequence costs, (N,), and its beginnings."""
    count, batch = log_probs.shape[:2]
    places = 2 * targets.shape[1] + 1
    blanks = full((batch, targets.shape[1], 1), blank, dt.int64)
    between = reshaped(joined((blanks, reshaped(targets, (batch, targets.shape[1], 1))), 2), (batch, places - 1))
    path = joined((between, full((batch, 1), blank, dt.int64)), 1)
    rows = gather_elements(log_probs, 2, broadcast(reshaped(path, (1, batch, places)), (count, batch, places)))
    start = np.full((batch, places), _NEVER, log_probs.dtype.np_type)
    start[:, 0] = 0
    (end,), (beginnings,) = scan("ctc_step", _step, [constant(start)], [rows], [_skips(path), steps])
    last = reshaped(labels, (batch, 1)) * 2  # type: ignore[operator]
    on_label: Any = gather_elements(end, 1, maximum(last - 1, zeros_like(last)))
    on_label = select(last > 0, on_label, full_like(on_label, _NEVER))
    losses: Any = -reshaped(_log_sum([gather_elements(end, 1, last), on_label]), (batch,))  # type: ignore[operator]
    number = constant(np.arange(count).reshape(-1, 1, 1))
    counts = broadcast(number, (count, batch, 1)) < reshaped(steps, (1, batch, 1))  # type: ignore[operator]
    chances: Any = select(broadcast(counts, log_probs.shape), exp(log_probs), zeros_like(log_probs))
    losses = losses + (chances - apply1(StopGradient(), chances)).sum((0, 2))  # nothing, but for the gradient
    losses = select(losses < -_NEVER / 10, losses, full_like(losses, 0 if zero_infinity else math.inf))
    beginnings = permuted(beginnings, (1, 0, 2))
    return losses, select(beginnings > _NEVER / 10, beginnings, full_like(beginnings, -math.inf))  # type: ignore[operator]


def _step(number: Tensor, carried: Tensors, rows: Tensors, kept: Tensors) -> tuple[Tensors, Tensors]:
    """One step on: at each place of the path one may stay, come from the place before, or skip a blank between two different labels."""
    (before,), (row,), (skips, steps) = carried, rows, kept
    skipped = _shifted(before, 2)
    after: Any = _log_sum([before, _shifted(before, 1), select(skips, skipped, full_like(skipped, _NEVER))]) + row  # type: ignore[operator]
    runs = broadcast(reshaped(number < steps, (row.shape[0], 1)), row.shape)  # type: ignore[operator, arg-type]
    return (select(runs, after, before),), (select(runs, after, full_like(after, _NEVER)),)


def _skips(path: Tensor) -> Tensor:
    """Where the place two before holds another label than this one; not on blanks, whose neighbour but one is a blank too."""
    shape: Shape = (path.shape[0], min(2, path.shape[1]))
    if path.shape[1] <= 2:
        return full(path.shape, False, dt.bool_)
    differs: Any = cut(path, 1, 2, path.shape[1] - 2) != cut(path, 1, 0, path.shape[1] - 2)
    return joined((full(shape, False, dt.bool_), differs), 1)


def _shifted(x: Tensor, by: int) -> Tensor:
    """The entries `by` places before; what comes in never happens."""
    width = x.shape[1]
    if width <= by:
        return full_like(x, _NEVER)
    return joined((full((x.shape[0], by), _NEVER, x.dtype), cut(x, 1, 0, width - by)), 1)


def _log_sum(parts: list[Any]) -> Any:
    """log(exp(a) + exp(b) + …)."""
    peak = parts[0]
    for part in parts[1:]:
        peak = maximum(peak, part)
    peak = apply1(StopGradient(), peak)
    total: Any = sum([exp(part - peak) for part in parts[1:]], start=exp(parts[0] - peak))
    return log(total) + peak
