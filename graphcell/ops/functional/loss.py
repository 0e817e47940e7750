"""Losses: a scalar, or one number for each sample or element, of what a network gives and what it should give.

Composed of primitives; each is written so that neither its value nor its gradient overflows where the loss itself does not.
"""

from __future__ import annotations

import math
from typing import Any

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, ShapeError
from graphcell.ops.creation import Iota
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.common import broadcast, cast, ones_like, select, zeros_like
from graphcell.ops.functional.creation import stop_gradient
from graphcell.ops.functional.indexing import check_range
from graphcell.ops.functional.reductions import wide
from graphcell.ops.functional.softmax import log_softmax
from graphcell.ops.kernels import composite
from graphcell.ops.mathematics import Softplus
from graphcell.tensor import Tensor

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy", "gaussian_nll_loss",
    "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss", "multi_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss", "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss",
]  # fmt: skip


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


def _tensors(function: str, **operands: Any) -> list[Any]:
    """Operands that must be Tensors.

    Raises:
        TypeError: one is not, but a tuple of Tensors or a number, say.
    """
    for name, x in operands.items():
        if not isinstance(x, Tensor):
            raise ArgumentTypeError(f"{function}: {name} must be a Tensor, but is {type(x).__name__}")
    return list(operands.values())


def _floats(function: str, **operands: Any) -> list[Any]:
    """Operands that must be Tensors of floats.

    Raises:
        TypeError: one is not.
    """
    for name, x in zip(operands, _tensors(function, **operands), strict=True):
        if not x.dtype.is_float:
            raise DTypeError(f"{function}: {name} must be a Tensor of floats, but is {x.dtype}")
    return list(operands.values())


def _as_floats(function: str, **operands: Any) -> list[Any]:
    """Operands that must be Tensors of numbers; integers and bools become floats, of the dtype of the first that is one, else float32.

    Raises:
        TypeError: one is no Tensor.
    """
    _tensors(function, **operands)
    dtype = next((x.dtype for x in operands.values() if x.dtype.is_float), dt.float32)
    return [x if x.dtype.is_float else x.astype(dtype) for x in operands.values()]


_CAST_LABELS = "cast them with labels.astype(mindspore.int32), or in the data pipeline with transforms.TypeCast(mindspore.int32)"


@composite
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
    (x,) = _floats("cross_entropy", input=input)
    (y,) = _tensors("cross_entropy", target=target)
    if x.ndim == 0:
        raise ShapeError("cross_entropy: the input must have a dimension of classes, but is a scalar")
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentValueError(f"cross_entropy: label_smoothing must be in [0, 1], but is {label_smoothing}")
    axis = 0 if x.ndim == 1 else 1
    log_p = log_softmax(x, axis)
    if y.dtype.is_float:
        if y.shape == x.shape[:axis] + x.shape[axis + 1 :]:
            raise DTypeError(f"cross_entropy: targets of shape {y.shape} are class numbers, which must be integers, but are {y.dtype}", hint=_CAST_LABELS)
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
        return cast(wide(loss).sum() * (1.0 / max(1, log_p.size // classes)), loss.dtype)
    return reduce_loss(loss, reduction, "cross_entropy")


def _along(vector: Any, axis: int, rank: int) -> Any:
    return vector.reshape(tuple(-1 if k == axis else 1 for k in range(rank)))


@composite
def nll_loss(inputs: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0) -> Tensor:
    """Negative log likelihood: `inputs` are log probabilities; all else as in `cross_entropy` with class numbers."""
    x, y = _tensors("nll_loss", inputs=inputs, target=target)
    return _class_loss("nll_loss", x, y, 0 if x.ndim == 1 else 1, weight, ignore_index, reduction, label_smoothing)


def _class_loss(function: str, log_p: Any, target: Any, axis: int, weight: Any, ignore_index: int, reduction: str, smoothing: float) -> Tensor:
    """The class is picked by comparing with a ramp, which fuses with what comes before and after. Negative numbers count from the end."""
    if not target.dtype.is_integer:
        raise DTypeError(f"{function}: class numbers must be integers, but are {target.dtype}")
    want = (*log_p.shape[:axis], *log_p.shape[axis + 1 :])
    if target.shape != want:
        raise ShapeError(f"{function}: the target of an input of shape {log_p.shape} must have shape {want}, but has {target.shape}")
    if not 0.0 <= smoothing <= 1.0:
        raise ArgumentValueError(f"{function}: label_smoothing must be in [0, 1], but is {smoothing}")
    y = target.expand_dims(axis)
    counted = y != ignore_index
    classes = log_p.shape[axis]
    place = select(counted, y, zeros_like(y))
    check_range(place, classes, f"{function}: target")
    place = cast(select(place < 0, place + classes, place), dt.int32)
    hit = (apply1(Iota(log_p.shape, axis, dt.int32)) == place) & counted
    zero = zeros_like(log_p)
    loss = select(hit, -log_p, zero).sum(axis)
    # the targets alone say how much counts, so that the gradient need not wait for a reduction over the input
    counts = cast(counted, log_p.dtype)
    if weight is not None:
        counts = select(hit, broadcast(cast(_along(weight, axis, log_p.ndim), log_p.dtype), log_p.shape), zero).sum(axis)
        loss = loss * counts
    if smoothing:
        every = log_p if weight is None else log_p * _along(weight, axis, log_p.ndim)
        smooth = -select(counted, every, zero).sum(axis)  # what is ignored may be infinite
        loss = loss * (1.0 - smoothing) + smooth * (smoothing / classes)
    if reduction == "mean":
        return cast(wide(loss).sum() / wide(counts).sum(), loss.dtype)
    return reduce_loss(loss, reduction, function)


@composite
def mse_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """(input - target)², reduced; the two broadcast. Integers become float32."""
    x, y = _tensors("mse_loss", input=input, target=target)
    d = x - y
    d = d if d.dtype.is_float else cast(d, dt.float32)
    return reduce_loss(d * d, reduction, "mse_loss")


@composite
def l1_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """|input - target|, reduced."""
    x, y = _tensors("l1_loss", input=input, target=target)
    d = x - y
    return reduce_loss(d.abs(), reduction, "l1_loss")


@composite
def smooth_l1_loss(input: Any, target: Any, beta: float = 1.0, reduction: str = "none") -> Tensor:
    """d² / (2 beta) where d = |input - target| < beta, else d - beta / 2.

    Raises:
        ValueError: beta is not positive, or the shapes differ.
    """
    x, y = _tensors("smooth_l1_loss", input=input, target=target)
    _same_shape("smooth_l1_loss", x, y)
    if not beta > 0:
        raise ArgumentValueError(f"smooth_l1_loss: beta must be positive, but is {beta}")
    d = (x - y).abs()
    return reduce_loss(select(d < beta, d * d * (0.5 / beta), d - 0.5 * beta), reduction, "smooth_l1_loss")


@composite
def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d² / 2 where d = |input - target| <= delta, else delta (d - delta / 2)."""
    if not delta > 0:
        raise ArgumentValueError(f"huber_loss: delta must be positive, but is {delta}")
    x, y = _tensors("huber_loss", input=input, target=target)
    d = (x - y).abs()
    return reduce_loss(select(d <= delta, d * d * 0.5, (d - 0.5 * delta) * delta), reduction, "huber_loss")


@composite
def binary_cross_entropy(logits: Any, labels: Any, weight: Any = None, reduction: str = "mean") -> Tensor:
    """-(y log p + (1 - y) log(1 - p)) of probabilities p. Logarithms are taken of 1e-12 at least.

    Args:
        logits: the probabilities, in [0, 1].
        labels: of their shape.
        weight: a Tensor that broadcasts, or None.

    Raises:
        TypeError: no Tensors of floats. ValueError: shapes that differ.
    """
    p, y = _floats("binary_cross_entropy", logits=logits, labels=labels)
    _same_shape("binary_cross_entropy", p, y)
    one: Any = ones_like(p)
    loss: Any = -(y * _log_clipped(p) + (one - y) * _log_clipped(one - p))
    return reduce_loss(loss if weight is None else loss * weight, reduction, "binary_cross_entropy")


def _log_clipped(x: Any) -> Any:
    """log(max(x, 1e-12)), whose gradient does not vanish where x is cut off."""
    return (x + stop_gradient(x.maximum(1e-12) - x)).log()


@composite
def binary_cross_entropy_with_logits(input: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: str = "mean") -> Tensor:
    """Binary cross entropy of sigmoid(input), computed without overflow.

    Args:
        weight: a Tensor that broadcasts, a factor of each element, or None.
        pos_weight: a Tensor that broadcasts, a factor of the part of y = 1, or None.

    Raises:
        TypeError: no Tensors of floats. ValueError: shapes that differ.
    """
    x, y = _floats("binary_cross_entropy_with_logits", input=input, target=target)
    _same_shape("binary_cross_entropy_with_logits", x, y)
    rest = apply1(Softplus(), -x)
    loss: Any = (1.0 - y) * x + (rest if pos_weight is None else (1.0 + (pos_weight - 1.0) * y) * rest)
    return reduce_loss(loss if weight is None else loss * weight, reduction, "binary_cross_entropy_with_logits")


@composite
def kl_div(logits: Any, labels: Any, reduction: str = "mean") -> Tensor:
    """labels (log labels - logits), where `logits` are log probabilities; 0 where labels are 0. No gradient flows to the labels.

    Args:
        reduction: 'mean', 'sum', 'none', or 'batchmean': the sum divided by N.

    Raises:
        TypeError: no Tensors of floats. ValueError: another reduction.
    """
    x, y = _floats("kl_div", logits=logits, labels=labels)
    y = stop_gradient(y)
    zero = zeros_like(y)
    positive = y > zero
    safe = select(positive, y, ones_like(y))
    loss: Any = select(positive, y * (safe.log() - x), zero)
    if reduction == "batchmean":
        return cast(wide(loss).sum() * (1.0 / max(1, x.shape[0])), loss.dtype)
    return reduce_loss(loss, reduction, "kl_div")


@composite
def cosine_embedding_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """1 - cos(input1, input2) where the target is 1, max(0, cos - margin) where it is -1; cosines over dimension 1.

    Raises:
        TypeError: no Tensors of floats, or a margin that is no float. ValueError: shapes that differ, a margin outside of [-1, 1].
    """
    x, y = _floats("cosine_embedding_loss", input1=input1, input2=input2)
    _same_shape("cosine_embedding_loss", x, y)
    check_margin("cosine_embedding_loss", margin)
    if not -1.0 <= margin <= 1.0:
        raise ArgumentValueError(f"cosine_embedding_loss: margin must be in [-1, 1], but is {margin}")
    cosine = (x * y).sum(1) / ((x * x).sum(1) * (y * y).sum(1)).sqrt()
    zero = zeros_like(cosine)
    alike = select(target == 1, 1.0 - cosine, zero)
    apart = select(target == -1, (cosine - margin).maximum(0.0), zero)
    return reduce_loss(alike + apart, reduction, "cosine_embedding_loss")


def check_margin(function: str, margin: Any) -> None:
    """Raises TypeError for a margin that is no float."""
    if not isinstance(margin, float):
        raise ArgumentTypeError(
            f"For '{function}', the type of 'margin' should be 'float', but got type '{type(margin).__name__}'."
        )


@composite
def margin_ranking_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """max(0, margin - target (input1 - input2)): with target 1 the first should be larger, with -1 the second.

    Raises:
        TypeError: no Tensors, or a margin that is no float. ValueError: shapes that differ.
    """
    check_margin("margin_ranking_loss", margin)
    x, y, t = _floats("margin_ranking_loss", input1=input1, input2=input2, target=target)
    _same_shape("margin_ranking_loss", x, y)
    return reduce_loss((margin - t * (x - y)).maximum(0.0), reduction, "margin_ranking_loss")


@composite
def hinge_embedding_loss(inputs: Any, targets: Any, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """inputs where the target is 1, max(0, margin - inputs) where it is -1, else 0.

    Raises:
        TypeError: no Tensor of floats, or a margin that is no number. ValueError: another reduction.
    """
    (x,) = _floats("hinge_embedding_loss", inputs=inputs)
    if not isinstance(margin, (int, float)) or isinstance(margin, bool):
        raise ArgumentTypeError(f"hinge_embedding_loss: margin must be a number, but is {type(margin).__name__}")
    zero = zeros_like(x)
    loss: Any = select(targets == 1, x, zero) + select(targets == -1, (margin - x).maximum(0.0), zero)
    return reduce_loss(loss, reduction, "hinge_embedding_loss")


@composite
def gaussian_nll_loss(
    x: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """(log var + (x - target)² / var) / 2 for a variance of eps at least (below, var has no gradient); `full` adds log(2 pi) / 2.

    Operands of integers count as floats.

    Raises:
        TypeError: no Tensors. ValueError: eps is not positive.
    """
    if not isinstance(eps, float):
        raise ArgumentTypeError(f"gaussian_nll_loss: eps must be a float, but is {type(eps).__name__}")
    if eps <= 0:
        raise ArgumentValueError(f"gaussian_nll_loss: eps must be positive, but is {eps}")
    mean, y, v = _as_floats("gaussian_nll_loss", x=x, target=target, var=var)
    v = v.maximum(eps)
    d = mean - y
    loss = (v.log() + d * d / v) * 0.5
    return reduce_loss(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction, "gaussian_nll_loss")


@composite
def poisson_nll_loss(
    input: Any, target: Any, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
) -> Tensor:
    """exp(input) - target input, or with `log_input` False input - target log(input + eps); `full` adds Stirling's formula for
    log(target!) where the target is above 1. The loss has the dtype of `input`, which the target is cast to.

    Raises:
        TypeError: no Tensors, or an input of integers. ValueError: another reduction.
    """
    (x,) = _floats("poisson_nll_loss", input=input)
    (y,) = _as_floats("poisson_nll_loss", target=target)
    y = cast(y, x.dtype)
    loss = x.exp() - y * x if log_input else x - y * (x + eps).log()
    if full:
        many = y > 1
        safe = select(many, y, ones_like(y))
        stirling: Any = safe * safe.log() - safe + 0.5 * (2 * math.pi * safe).log()
        loss = loss + select(many, stirling, zeros_like(stirling))
    return reduce_loss(loss, reduction, "poisson_nll_loss")


@composite
def soft_margin_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target input)), for targets 1 and -1.

    Raises:
        TypeError: no Tensors of floats. ValueError: shapes that differ.
    """
    x, y = _floats("soft_margin_loss", input=input, target=target)
    _same_shape("soft_margin_loss", x, y)
    z = -y * x
    return reduce_loss(apply1(Softplus(), z), reduction, "soft_margin_loss")


@composite
def multilabel_soft_margin_loss(input: Any, target: Any, weight: Any = None, reduction: str = "mean") -> Tensor:
    """Binary cross entropy of sigmoid(input), averaged over the classes, which are the last dimension. The target may be of integers or bools.

    Raises:
        TypeError: no Tensors, or an input of integers. ValueError: shapes that differ.
    """
    (x,) = _floats("multilabel_soft_margin_loss", input=input)
    x, y = _as_floats("multilabel_soft_margin_loss", input=x, target=target)
    loss: Any = binary_cross_entropy_with_logits(x, y, weight, None, "none")
    return reduce_loss(loss.mean(-1), reduction, "multilabel_soft_margin_loss")


@composite
def multi_margin_loss(
    input: Any, target: Any, p: int = 1, margin: float = 1, weight: Any = None, reduction: str = "mean"
) -> Tensor:
    """Sum over the classes but the target of max(0, margin - input[target] + input) ** p, divided by the number of classes.

    Args:
        input: (N, C), float. target: (N,), class numbers.
        p: 1 or 2.
        weight: (C,), a factor for each class, or None.

    Raises:
        TypeError: dtypes. ValueError: shapes that do not fit, another p. IndexError: a class number below 0 or from C on.
    """
    (x,) = _floats("multi_margin_loss", input=input)
    if p not in (1, 2):
        raise ArgumentValueError(f"multi_margin_loss: p must be 1 or 2, but is {p}")
    if not isinstance(target, Tensor) or not target.dtype.is_integer:
        raise DTypeError("multi_margin_loss: the target must be a Tensor of integers")
    if x.ndim != 2 or target.shape != x.shape[:1]:
        raise ShapeError(f"multi_margin_loss: input must be (N, C) and target (N,), but are {x.shape} and {target.shape}")
    classes = x.shape[1]
    check_range(select(target < 0, ones_like(target) * classes, target), classes, "multi_margin_loss: target")
    hit = apply1(Iota(x.shape, 1, dt.int32)) == cast(target.expand_dims(1), dt.int32)
    zero = zeros_like(x)
    chosen: Any = select(hit, x, zero).sum(1, keepdims=True)
    gap = (margin - chosen + x).maximum(0.0)
    gap = gap * gap if p == 2 else gap
    if weight is not None:
        gap = gap * select(hit, _along(weight, 1, 2), zero).sum(1, keepdims=True)
    return reduce_loss(select(hit, zero, gap).sum(1) / x.shape[1], reduction, "multi_margin_loss")


@composite
def triplet_margin_loss(
    anchor: Any, positive: Any, negative: Any, margin: Any = 1.0, p: int = 2, eps: float = 1e-6, swap: bool = False,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), where d is the p-norm over the last dimension of the difference
    plus eps; with `swap` the smaller of d(anchor, negative) and d(positive, negative) counts.

    Raises:
        TypeError: no Tensors of floats. ValueError: shapes that differ.
    """
    a, b, c = _floats("triplet_margin_loss", anchor=anchor, positive=positive, negative=negative)

    def distance(x: Any, y: Any) -> Any:
        return ((x - y + eps).abs() ** p).sum(-1) ** (1.0 / p)

    far = distance(a, c)
    if swap:
        far = far.minimum(distance(b, c))
    return reduce_loss((distance(a, b) - far + margin).maximum(0.0), reduction, "triplet_margin_loss")
