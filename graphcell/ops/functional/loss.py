"""Losses."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell.errors import ArgumentValueError, DTypeError, ShapeError
from graphcell.ops.creation import Iota
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.common import as_tensor, broadcast, cast, select, zeros_like
from graphcell.ops.functional.softmax import log_softmax
from graphcell.tensor import Tensor

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "huber_loss", "kl_div", "l1_loss", "mse_loss", "nll_loss",
    "smooth_l1_loss",
]


def reduce_loss(x: Any, reduction: str, function: str) -> Tensor:
    """The mean, the sum, or each element.

    Raises:
        ValueError: for any other reduction.
    """
    if reduction == "mean":
        return x.mean()  # type: ignore[no-any-return]
    if reduction == "sum":
        return x.sum()  # type: ignore[no-any-return]
    if reduction == "none":
        return x  # type: ignore[no-any-return]
    raise ArgumentValueError(f"{function}: reduction must be 'mean', 'sum' or 'none', but got {reduction!r}")


def _same_shape(function: str, x: Tensor, y: Tensor) -> None:
    if x.shape != y.shape:
        raise ShapeError(f"{function}: the shapes must be equal, but are {x.shape} and {y.shape}")


def cross_entropy(input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0) -> Tensor:
    """Cross entropy between logits and classes, or class probabilities.

    Args:
        input: logits, (N, C) or (C,) or (N, C, d1, …); float.
        target: class numbers, integer, the input's shape without C; or probabilities, float, of the input's shape.
        weight: (C,), a weight for each class, or None.
        ignore_index: targets of this value do not count (class numbers only).
        reduction: 'mean' (over the weights that count), 'sum' or 'none'.
        label_smoothing: in [0, 1], the share of the uniform distribution mixed into the target.

    Raises:
        ValueError: shapes or settings that do not fit. TypeError: dtypes.
    """
    x, y = as_tensor(input, "input", "cross_entropy"), as_tensor(target, "target", "cross_entropy")
    axis = 0 if x.ndim == 1 else 1
    log_p = log_softmax(x, axis)
    if y.dtype.is_float:
        _same_shape("cross_entropy", x, y)
        return _probability_loss(log_p, y, axis, weight, reduction, label_smoothing)
    return _class_loss("cross_entropy", log_p, y, axis, weight, ignore_index, reduction, label_smoothing)


def _probability_loss(log_p: Any, y: Any, axis: int, weight: Any, reduction: str, smoothing: float) -> Tensor:
    classes = log_p.shape[axis]
    if smoothing:
        y = y * (1.0 - smoothing) + smoothing / classes
    terms = log_p * y
    if weight is not None:
        terms = terms * _along(weight, axis, log_p.ndim)
    loss = -terms.sum(axis)
    if reduction == "mean":
        return loss.sum() * (1.0 / max(1, log_p.size // classes))  # type: ignore[no-any-return]
    return reduce_loss(loss, reduction, "cross_entropy")


def _along(vector: Any, axis: int, rank: int) -> Any:
    return vector.reshape(tuple(-1 if k == axis else 1 for k in range(rank)))


def nll_loss(inputs: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0) -> Tensor:
    """Negative log likelihood: `inputs` are log probabilities; all else as in `cross_entropy` with class numbers."""
    x, y = as_tensor(inputs, "inputs", "nll_loss"), as_tensor(target, "target", "nll_loss")
    return _class_loss("nll_loss", x, y, 0 if x.ndim == 1 else 1, weight, ignore_index, reduction, label_smoothing)


def _class_loss(function: str, log_p: Any, target: Any, axis: int, weight: Any, ignore_index: int, reduction: str, smoothing: float) -> Tensor:
    """The class is picked by comparing with a ramp, which fuses with what comes before and after."""
    if not target.dtype.is_integer:
        raise DTypeError(f"{function}: class numbers must be integers, but are {target.dtype}")
    want = (*log_p.shape[:axis], *log_p.shape[axis + 1 :])
    if target.shape != want:
        raise ShapeError(f"{function}: the target of an input of shape {log_p.shape} must have shape {want}, but has {target.shape}")
    if not 0.0 <= smoothing <= 1.0:
        raise ArgumentValueError(f"{function}: label_smoothing must be in [0, 1], but is {smoothing}")
    y = target.expand_dims(axis)
    counted = y != ignore_index
    hit = (apply1(Iota(log_p.shape, axis, dt.int32)) == cast(y, dt.int32)) & counted  # type: ignore[operator]
    zero = zeros_like(log_p)
    picked = select(hit, log_p, zero)
    # the targets alone say how much counts, so that the gradient need not wait for a reduction over the input
    counts = cast(counted, log_p.dtype)
    if weight is not None:
        scale = cast(_along(weight, axis, log_p.ndim), log_p.dtype)
        picked, counts = picked * scale, select(hit, broadcast(scale, log_p.shape), zero)  # type: ignore[operator]
    loss = -picked.sum(axis)  # type: ignore[attr-defined]
    if smoothing:
        every = log_p if weight is None else log_p * _along(weight, axis, log_p.ndim)
        smooth = -(every * cast(counted, log_p.dtype)).sum(axis)
        loss = loss * (1.0 - smoothing) + smooth * (smoothing / log_p.shape[axis])
    if reduction == "mean":
        return loss.sum() / counts.sum()  # type: ignore[no-any-return, attr-defined]
    return reduce_loss(loss, reduction, function)


def mse_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """(input - target)², reduced; the two broadcast."""
    d = as_tensor(input, "input", "mse_loss") - as_tensor(target, "target", "mse_loss")  # type: ignore[operator]
    return reduce_loss(d * d, reduction, "mse_loss")


def l1_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """|input - target|, reduced."""
    d = as_tensor(input, "input", "l1_loss") - as_tensor(target, "target", "l1_loss")  # type: ignore[operator]
    return reduce_loss(d.abs(), reduction, "l1_loss")


def smooth_l1_loss(input: Any, target: Any, beta: float = 1.0, reduction: str = "none") -> Tensor:
    """d² / (2 beta) where d = |input - target| < beta, else d - beta / 2.

    Raises:
        ValueError: beta is not positive, or the shapes differ.
    """
    x, y = as_tensor(input, "input", "smooth_l1_loss"), as_tensor(target, "target", "smooth_l1_loss")
    _same_shape("smooth_l1_loss", x, y)
    if not beta > 0:
        raise ArgumentValueError(f"smooth_l1_loss: beta must be positive, but is {beta}")
    d = (x - y).abs()  # type: ignore[operator]
    return reduce_loss(select(d < beta, d * d * (0.5 / beta), d - 0.5 * beta), reduction, "smooth_l1_loss")


def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d² / 2 where d = |input - target| <= delta, else delta (d - delta / 2)."""
    if not delta > 0:
        raise ArgumentValueError(f"huber_loss: delta must be positive, but is {delta}")
    d = (as_tensor(input, "input", "huber_loss") - as_tensor(target, "target", "huber_loss")).abs()  # type: ignore[operator]
    return reduce_loss(select(d <= delta, d * d * 0.5, (d - 0.5 * delta) * delta), reduction, "huber_loss")


def binary_cross_entropy(logits: Any, labels: Any, weight: Any = None, reduction: str = "mean") -> Tensor:
    """-(y log p + (1 - y) log(1 - p)) of probabilities p, whose logarithms are no less than -100."""
    p, y = as_tensor(logits, "logits", "binary_cross_entropy"), as_tensor(labels, "labels", "binary_cross_entropy")
    _same_shape("binary_cross_entropy", p, y)
    one: Any = zeros_like(p) + 1.0  # type: ignore[operator]
    loss = -(y * p.log().maximum(-100.0) + (one - y) * (one - p).log().maximum(-100.0))  # type: ignore[attr-defined, operator]
    return reduce_loss(loss if weight is None else loss * weight, reduction, "binary_cross_entropy")


def binary_cross_entropy_with_logits(input: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: str = "mean") -> Tensor:
    """Binary cross entropy of sigmoid(input), computed without overflow."""
    x, y = as_tensor(input, "input", "binary_cross_entropy_with_logits"), as_tensor(target, "target", "binary_cross_entropy_with_logits")
    _same_shape("binary_cross_entropy_with_logits", x, y)
    rest = (-x.abs()).exp().log1p() + (-x).maximum(0.0)  # type: ignore[attr-defined, operator]
    if pos_weight is None:
        loss = (1.0 - y) * x + rest  # type: ignore[operator]
    else:
        loss = (1.0 - y) * x + (1.0 + (pos_weight - 1.0) * y) * rest  # type: ignore[operator]
    return reduce_loss(loss if weight is None else loss * weight, reduction, "binary_cross_entropy_with_logits")


def kl_div(logits: Any, labels: Any, reduction: str = "mean") -> Tensor:
    """labels (log labels - logits), where `logits` are log probabilities; 0 where labels are 0. 'batchmean' divides the sum by N."""
    x, y = as_tensor(logits, "logits", "kl_div"), as_tensor(labels, "labels", "kl_div")
    zero = zeros_like(y)
    positive = y > zero  # type: ignore[operator]
    safe = select(positive, y, zero + 1.0)  # type: ignore[operator]
    loss: Any = select(positive, y * (safe.log() - x), zero)  # type: ignore[attr-defined, operator]
    if reduction == "batchmean":
        return loss.sum() * (1.0 / max(1, x.shape[0]))  # type: ignore[no-any-return]
    return reduce_loss(loss, reduction, "kl_div")
