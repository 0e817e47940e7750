"""Gradients of what all steps of a loop share, added up over rows in parts: against numpy in float64, and what the loop carries."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, ops
from graphcell.jit import jit
from graphcell.ops.loop_sums import always_stacked

STEPS = 40


def run(x: Any, scale: Any, shift: Any) -> Any:
    for _ in range(STEPS):
        x = ops.tanh(x * scale + shift)
    return (x * x).sum()


def wanted(x: Any, scale: Any, shift: Any) -> tuple[Any, ...]:
    """The gradients in x, scale and shift, which are the same in all of the leading dimensions that they lack."""
    states = [x]
    for _ in range(STEPS):
        states.append(np.tanh(states[-1] * scale + shift))
    g, found = 2 * states[-1], [np.zeros_like(scale), np.zeros_like(shift)]
    for before, after in zip(states[-2::-1], states[:0:-1], strict=True):
        inside = g * (1 - after * after)
        for k, term in enumerate((inside * before, inside)):
            shape = found[k].shape
            lead = tuple(range(term.ndim - len(shape)))
            kept = tuple(d + len(lead) for d, n in enumerate(shape) if n == 1 < term.shape[d + len(lead)])
            found[k] = found[k] + term.sum(lead + kept).reshape(shape)
        g = inside * scale
    return g, *found


def parts_of(step: Any, whole: int) -> int:
    """Of the sums that the backward loop carries; 0 if they are whole and have `whole` dimensions."""
    (carried,) = re.findall(r"for\[trip_count=40, carried=(?:3|2), .*reverse=True\].* : (.*) \{", step.ir())
    one, other = [re.findall(r"\d+", text) for text in re.findall(r"\[(.*?)\]", carried)][-2:]
    assert one == other and len(one) in (whole, whole + 1)
    return int(one[0]) if len(one) > whole else 0


@pytest.mark.parametrize(
    ("shape", "parameter", "parts"),
    [
        ((8, 5), (5,), 4),
        ((6, 5), (5,), 2),
        ((9, 5), (5,), 9),
        ((7, 5), (5,), 7),
        ((7, 3, 5), (5,), 7),
        ((7, 3, 5), (3, 1), 7),
        ((9, 1000), (1000,), 3),  # much for an odd number
        ((7, 1000), (1000,), 0),
        ((1, 5), (5,), 0),
        ((4, 5), (5,), 2),
        ((3, 5), (5,), 3),
        ((8, 5), (1, 5), 4),
        ((8, 3, 5), (5,), 4),
        ((8, 3, 5), (3, 1), 4),
        ((5, 8), (5, 1), 0),
    ],
    ids=str,
)
def test_gradients(shape: tuple[int, ...], parameter: tuple[int, ...], parts: int) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    random = np.random.default_rng(list(shape))
    arrays = [random.standard_normal(s) for s in (shape, parameter, parameter)]
    step = jit(ms.grad(run, (0, 1, 2)))
    got = step(*map(Tensor, arrays))
    for g, w in zip(got, wanted(*arrays), strict=True):
        np.testing.assert_allclose(g.asnumpy(), w, rtol=1e-12, atol=1e-12)
    assert parts_of(step, sum(extent > 1 for extent in parameter)) == parts


def test_in_one_part_where_graphs_must_not_depend_on_rows() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    x, scale, shift = (Tensor(np.random.default_rng(0).standard_normal(s)) for s in ((8, 5), (5,), (5,)))
    with always_stacked():
        step = jit(ms.grad(run, (0, 1, 2)))
        step(x, scale, shift)
    assert parts_of(step, 1) == 0
