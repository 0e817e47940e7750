"""`einsum`: sums of products written as an equation.

Enters: an equation such as "bij,bjk->bik" and its operands. Leaves: the result, computed two operands at a time, as a matrix product where
dimensions are summed, else as a product of elements. So is a sum, but along rows, to which no operand brings a dimension of its own. Refuses: equations
that do not fit the operands.
"""

from __future__ import annotations

import math
import string
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError
from graphcell.ops.automatic import listed
from graphcell.ops.contraction import MatMul
from graphcell.ops.dispatch import apply1
from graphcell.ops.functional.arithmetic import mul
from graphcell.ops.functional.axes import tensor_of
from graphcell.ops.functional.common import broadcast
from graphcell.ops.functional.diagonals import diagonal
from graphcell.ops.functional.movement import permuted, reshaped
from graphcell.ops.functional.reductions import total
from graphcell.tensor import Tensor

__all__ = ["einsum"]

Labels = tuple[str, ...]
Sizes = dict[str, int]


@listed
def einsum(equation: str, *operands: Any) -> Tensor:
    """The sum of products of the operands' elements that `equation` describes.

    Each operand has a group of letters, one for each dimension; `...` stands for dimensions that broadcast. Letters that the result, after
    "->", does not have are summed. Without "->" the result has the letters that occur once, in alphabetical order.

    Raises:
        TypeError: equation is no str, operands are no Tensors of one dtype. ValueError: the equation does not fit the operands.
    """
    if not isinstance(equation, str):
        raise ArgumentTypeError(f"einsum: equation must be a str, but is {type(equation).__name__}")
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else operands
    xs = [tensor_of(x, "einsum", f"operand {k}") for k, x in enumerate(given)]
    if any(x.dtype is not xs[0].dtype for x in xs):
        raise DTypeError(f"einsum: all operands must have one dtype, but have {', '.join(str(x.dtype) for x in xs)}")
    groups, result = _parse(equation, xs)
    sizes = _sizes(equation, groups, xs)
    terms = [_without_repeats(x, labels, sizes) for x, labels in zip(xs, groups, strict=True)]
    for picked in _path(groups, result, sizes):
        first, second = terms[picked[0]], terms[picked[1]]
        rest = [t for k, t in enumerate(terms) if k not in picked]
        needed = set(result).union(*(labels for _, labels in rest))
        terms = [*rest, _multiply(first, second, needed, sizes)]
    x, labels = _summed(terms[0], set(result))
    return permuted(x, tuple(labels.index(c) for c in result))


# -- the equation --------------------------------------------------------------------------------------------------------------
def _parse(equation: str, xs: list[Tensor]) -> tuple[list[Labels], Labels]:
    """The labels of each operand and of the result; the dimensions of `...` get labels of their own, "0", "1", … from the last backwards."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    groups = left.split(",")
    if not xs or len(groups) != len(xs):
        raise ArgumentValueError(f"einsum: {equation!r} is for {len(groups)} operands, but {len(xs)} are given")
    labels = [_labels(equation, g, x.ndim) for g, x in zip(groups, xs, strict=True)]
    hidden = max((sum(c.isdigit() for c in group) for group in labels), default=0)
    dots = tuple(str(k) for k in reversed(range(hidden)))
    if arrow:
        if right.count("...") > 1:
            raise ArgumentValueError(f"einsum: more than one '...' in the result of {equation!r}")
        head, found, tail = right.partition("...")
        result = (*head, *(dots if found else ()), *tail)
    else:
        counts = [c for group in labels for c in group]
        result = (*dots, *sorted(c for c in set(counts) if counts.count(c) == 1 and not c.isdigit()))
    known = {c for group in labels for c in group}
    if len(set(result)) != len(result) or not set(result) <= known:
        raise ArgumentValueError(f"einsum: the result of {equation!r} names a letter twice, or one that no operand has")
    return labels, result


def _labels(equation: str, group: str, rank: int) -> Labels:
    head, found, tail = group.partition("...")
    letters = head + tail
    if any(c not in string.ascii_letters for c in letters):
        raise ArgumentValueError(f"einsum: {group!r} in {equation!r} may hold letters and one '...' only")
    hidden = rank - len(letters)
    if hidden < 0 or (hidden and not found):
        raise ArgumentValueError(f"einsum: {group!r} in {equation!r} does not fit an operand of {rank} dimensions")
    return (*head, *(str(k) for k in reversed(range(hidden))), *tail)


def _sizes(equation: str, groups: list[Labels], xs: list[Tensor]) -> Sizes:
    sizes: Sizes = {}
    for labels, x in zip(groups, xs, strict=True):
        for c, extent in zip(labels, x.shape, strict=True):
            known = sizes.get(c, 1)
            if known != extent and 1 not in (known, extent):
                raise ArgumentValueError(f"einsum: {c!r} in {equation!r} has the extents {known} and {extent}")
            sizes[c] = extent if known == 1 else known
    return sizes


def _path(groups: list[Labels], result: Labels, sizes: Sizes) -> list[tuple[int, int]]:
    """Which two terms to multiply next, until one is left; the product goes to the end."""
    if len(groups) < 3:
        return [(0, 1)] * (len(groups) - 1)
    letters = dict(zip(sizes, string.ascii_letters, strict=False))
    equation = ",".join("".join(letters[c] for c in dict.fromkeys(g)) for g in groups) + "->" + "".join(letters[c] for c in result)
    dummies = [np.broadcast_to(np.float32(0), tuple(sizes[c] for c in dict.fromkeys(g))) for g in groups]
    steps = np.einsum_path(equation, *dummies, optimize="greedy")[0][1:]
    pairs: list[tuple[int, int]] = []
    for step in steps:  # numpy may join more than two at once
        pairs.append((step[0], step[1]))
        pairs += _joined_with_last(len(groups) - len(pairs), step[2:], step[:2])
    return pairs


def _joined_with_last(count: int, others: tuple[int, ...], done: tuple[int, ...]) -> list[tuple[int, int]]:
    """After two of a step's terms were multiplied: its `others` joined to the product, which is the last of `count` terms."""
    pairs = []
    removed = list(done)
    for k in others:
        pairs.append((k - sum(r < k for r in removed), count - 1))
        removed.append(k)
        count -= 1
    return pairs


# -- two terms at a time ---------------------------------------------------------------------------------------------------------
def _without_repeats(x: Tensor, labels: Labels, sizes: Sizes) -> tuple[Tensor, Labels]:
    """Dimensions of extent 1 broadcast to their letter's size; of a letter that occurs twice the diagonal is taken."""
    x = broadcast(x, tuple(sizes[c] for c in labels))
    while len(set(labels)) < len(labels):
        c = next(c for c in labels if labels.count(c) > 1)
        first = labels.index(c)
        second = labels.index(c, first + 1)
        x = diagonal(x, 0, first, second)
        labels = (*(d for k, d in enumerate(labels) if k not in (first, second)), c)
    return x, labels


def _summed(term: tuple[Tensor, Labels], needed: set[str]) -> tuple[Tensor, Labels]:
    x, labels = term
    axes = tuple(k for k, c in enumerate(labels) if c not in needed)
    return total(x, axes), tuple(c for c in labels if c in needed)


def _multiply(first: tuple[Tensor, Labels], second: tuple[Tensor, Labels], needed: set[str], sizes: Sizes) -> tuple[Tensor, Labels]:
    x, x_labels = _summed(first, needed | set(second[1]))
    y, y_labels = _summed(second, needed | set(first[1]))
    both = [c for c in x_labels if c in y_labels]
    batch, inner = tuple(c for c in both if c in needed), tuple(c for c in both if c not in needed)
    left, right = tuple(c for c in x_labels if c not in both), tuple(c for c in y_labels if c not in both)
    labels = batch + left + right
    by_rows = x_labels == y_labels == batch + inner
    if inner and not left and not right and not by_rows and x.dtype in (dt.float32, dt.float64):  # products of half precision would be rounded
        y = permuted(y, tuple(y_labels.index(c) for c in x_labels))
        return _summed((mul(x, y), x_labels), needed)

    def extents(group: Labels) -> tuple[int, ...]:
        return tuple(sizes[c] for c in group)

    a = permuted(x, tuple(x_labels.index(c) for c in batch + left + inner))
    if not inner:
        a = reshaped(a, extents(batch + left) + (1,) * len(right))
        b = permuted(y, tuple(y_labels.index(c) for c in batch + right))
        return mul(a, reshaped(b, extents(batch) + (1,) * len(left) + extents(right))), labels
    b = permuted(y, tuple(y_labels.index(c) for c in batch + inner + right))
    m, k, n = (math.prod(extents(g)) for g in (left, inner, right))
    z = apply1(MatMul(), reshaped(a, (*extents(batch), m, k)), reshaped(b, (*extents(batch), k, n)))
    return reshaped(z, extents(labels)), labels
