"""Short loops whose points take turns in memory: vectors run along the other loop, and what is computed stays the same to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.codegen.turns import unroll_turns
from graphcell.ir.op import Array
from graphcell.ops.dispatch import apply1
from graphcell.ops.movement import Transpose
from tests.codegen.test_loop_shapes import check, graph_of, kernels, normal, whole

DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int8, np.bool_]


def images_last(x: Any) -> Any:
    return apply1(Transpose((0, 2, 1)), x)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turns", [2, 3, 4])
@pytest.mark.parametrize("points", [16, 37, 515])
def test_channels_go_behind_the_pixels_and_back(turns: int, points: int, dtype: Any) -> None:
    def changed(x: Any) -> Any:
        return ops.logical_not(images_last(x)) if dtype is np.bool_ else ops.neg(images_last(x))

    for shape in ((2, turns, points), (2, points, turns)):
        x = whole(dtype, *shape)
        want = np.swapaxes(x, 1, 2)
        check(changed, [x], ~want if dtype is np.bool_ else -want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("turns", [2, 3, 4])
def test_numbers_of_a_channel_and_of_a_pixel(turns: int, dtype: Any) -> None:
    x, channel, pixel = whole(dtype, 115, turns), whole(dtype, turns), whole(dtype, 115, 1)
    check(lambda x, c, p: ops.add(ops.mul(x, c), p), [x, channel, pixel], x * channel + pixel)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16, np.uint8])
@pytest.mark.parametrize("points", [9, 37, 130])
def test_other_channels_between_and_pixels_backwards(points: int, dtype: Any) -> None:
    x, y = whole(dtype, points, 4), whole(dtype, points, 3)
    one = np.ones((), dtype)
    check(lambda x: x[:, :3] + one, [x], x[:, :3] + one)
    check(lambda x: x[:, 1:] + one, [x], x[:, 1:] + one)
    check(lambda y: ops.flip(y, (0,)) + one, [y], y[::-1] + one)
    check(lambda x, y: x[:, 3:] + x[:, :3] + ops.flip(y, (0,)), [x, y], x[:, 3:] + x[:, :3] + y[::-1])


def test_several_results_take_turns() -> None:
    x, y = normal(3, 67), normal(67, 3)
    check(lambda x, y: (x.T + y, x - y.T), [x, y], [x.T + y, x - y.T])


def inner(fn: Callable[..., Any], arrays: list[Array]) -> list[int]:
    """How long the vector loops of the kernels are."""
    return [k.extents[k.vector] for k in kernels(graph_of(fn, arrays))]


def test_vectors_run_along_the_pixels() -> None:
    assert inner(lambda x: ops.neg(images_last(x)), [normal(2, 3, 500)]) == [500]
    assert inner(lambda x: ops.neg(images_last(x)), [normal(2, 500, 3)]) == [500]
    assert inner(lambda x, c: x - c, [normal(500, 3), normal(3)]) == [500]
    assert inner(lambda x: ops.exp(x[:, :3]), [normal(500, 4)]) == inner(lambda x: ops.exp(ops.flip(x, (0,))), [normal(500, 3)]) == [500]
    assert inner(lambda x, a: ops.pow(ops.pow(ops.pow(x[:, 1:], a), 2.2), a), [abs(normal(500, 3)), normal(500, 1)]) == [500]  # with much to do


def test_four_channels_beside_their_numbers_are_vectors_themselves() -> None:
    assert inner(lambda x, c: x - c, [normal(500, 4), normal(4)]) == [4]
    assert inner(lambda x, c: ops.exp(x - c), [normal(500, 4), normal(4)]) == [500]


@pytest.mark.parametrize(
    ("fn", "arrays"),
    [
        (lambda x: ops.neg(x), [normal(500, 3)]),  # one loop
        (lambda x: ops.sum(x, 1), [normal(500, 3)]),  # a reduction
        (lambda x: x.T + 1, [normal(500, 5)]),  # too many turns
        (lambda x, y: x + y[:, ::2], [normal(500, 3), normal(500, 6)]),  # y lies otherwise
    ],
)  # fmt: skip
def test_other_loops_stay(fn: Callable[..., Any], arrays: list[Array]) -> None:
    for kernel in kernels(graph_of(fn, arrays)):
        assert unroll_turns(kernel) is kernel


def test_positions_of_the_short_loop_are_no_turns() -> None:
    x = normal(64, 3)
    check(lambda x: x.T * ops.arange(3, dtype=dt.float32).reshape(3, 1), [x], x.T * np.arange(3, dtype=np.float32)[:, None])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.bool_])
@pytest.mark.parametrize("parts", [2, 3, 4])
def test_stacked_inputs_are_put_together_in_one_loop(parts: int, dtype: Any) -> None:
    arrays = [whole(dtype, 5, 37) for _ in range(parts)]
    check(lambda *x: ops.stack(x, -1), arrays, np.stack(arrays, -1))
    assert len(kernels(graph_of(lambda *x: ops.stack(x, -1), arrays))) == 1


def test_stacked_inputs_beside_what_is_computed() -> None:
    x, y = normal(6, 41), normal(6, 41)
    check(lambda x, y: ops.stack((x * 2, y), -1), [x, y], np.stack((x * 2, y), -1))
    check(lambda x, y: ops.stack((x, x, y), -1), [x, y], np.stack((x, x, y), -1))
    check(lambda x, y: (ops.stack((y, x.exp()), -1), x.exp() + y), [x, y], [np.stack((y, np.exp(x)), -1), np.exp(x) + y], 1e-6)
    check(lambda x, y: ops.stack((x.T, y.reshape(41, 6)), -1), [x, y], np.stack((x.T, y.reshape(41, 6)), -1))
    assert len(kernels(graph_of(lambda x, y: ops.stack((x * 2, y), -1), [x, y]))) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8])
@pytest.mark.parametrize("points", [8, 11, 15, 40])
def test_what_all_turns_share_may_lie_apart(points: int, dtype: Any) -> None:
    """Each number twice, side by side, of columns: the gradient of pooling pairs of pixels whose channels come last."""
    x, y = whole(dtype, 6, points, 5), whole(dtype, 6, 5, points)

    def f(x: Any, y: Any) -> Any:
        z = images_last(x) + y
        return z.reshape((6, 5, points, 1)).broadcast_to((6, 5, points, 2)).reshape((6, 5, 2 * points))

    want = np.repeat(x.swapaxes(1, 2) + y, 2, axis=2)
    check(f, [x, y], want)
    assert inner(f, [x, y]) == [points]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.bool_])
@pytest.mark.parametrize("channels", [5, 6, 7, 8, 9])
@pytest.mark.parametrize("points", [16, 37, 131])
def test_more_channels_behind_the_pixels(channels: int, points: int, dtype: Any) -> None:
    """Written where they lie, channel by channel or in tiles, and nothing between."""
    x = whole(dtype, 3, channels, points)
    check(lambda x: ops.logical_or(images_last(x), False) if dtype is np.bool_ else ops.neg(images_last(x)), [x], np.swapaxes(x if dtype is np.bool_ else -x, 1, 2))
    arrays = [whole(dtype, 3, points) for _ in range(channels)]
    check(lambda *x: ops.stack(x, -1), arrays, np.stack(arrays, -1))
    check(lambda x: ops.stack((x,) * channels, -1), arrays[:1], np.stack(arrays[:1] * channels, -1))


@pytest.mark.parametrize(("repeats", "channels"), [(2, 3), (2, 4), (3, 2), (4, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.float64])
def test_pixels_of_which_several_share_a_colour(repeats: int, channels: int, dtype: Any) -> None:
    """Colours are stored for pairs of pixels, or so: the pixels of one take turns with their channels."""

    def colours(light: Any, colour: Any) -> Any:
        near = ops.repeat_interleave(colour, repeats, 0)
        return ops.stack([light + near * (c + 1) for c in range(channels)], -1)

    light, colour = whole(dtype, 37 * repeats), whole(dtype, 37)
    near = np.repeat(colour, repeats)
    check(colours, [light, colour], np.stack([light + near * dtype(c + 1) for c in range(channels)], -1))
    assert inner(colours, [normal(500 * repeats), normal(500)])[-1] == 500
