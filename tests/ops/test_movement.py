"""Shapes, joining, cutting and rearranging against numpy; gradients against finite differences."""

# mypy: disable-error-code="arg-type, no-untyped-call, operator, call-overload, misc"
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, nn, ops
from graphcell import dtype as dt
from graphcell.ops.dispatch import apply1
from graphcell.ops.movement import Bitcast, Pad, Slice, UpdateSlice
from graphcell.tensor import Tensor
from tests.helpers import check_gradients, in_graph

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)


def array(*shape: int) -> Array:
    return RNG.normal(size=shape)


def same(got: Any, want: Any) -> None:
    """Asserts that Tensors equal arrays, dtype and shape included; tuples element by element."""
    if isinstance(want, (tuple, list)):
        assert isinstance(got, tuple) and len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w)
        return
    assert got.shape == want.shape and got.asnumpy().dtype == want.dtype
    np.testing.assert_array_equal(got.asnumpy(), want)


def both(function: Any, *args: Any) -> Any:
    """The eager result; that of the graph is asserted to be the same."""
    eager, traced = function(*args), in_graph(function, *args)
    same(traced, [t.asnumpy() for t in eager] if isinstance(eager, tuple) else eager.asnumpy())
    return eager


CUBE = array(2, 3, 4)
SHAPES = [(), (1,), (0, 3), (2, 3), (2, 1, 3), (2, 3, 4)]

CASES = [
    (lambda x: ops.reshape(x, (4, -1)), lambda x: x.reshape(4, -1)),
    (lambda x: x.reshape(-1), lambda x: x.reshape(-1)),
    (lambda x: x.reshape(4, 3, 2), lambda x: x.reshape(4, 3, 2)),
    (lambda x: x.view([6, 4]), lambda x: x.reshape(6, 4)),
    (lambda x: ops.transpose(x, (2, 0, -2)), lambda x: x.transpose(2, 0, 1)),
    (lambda x: x.transpose(), lambda x: x.T),
    (lambda x: x.transpose(0, 2), lambda x: x.swapaxes(0, 2)),
    (lambda x: x.transpose(1, 2, 0), lambda x: x.transpose(1, 2, 0)),
    (lambda x: x.permute((1, 2, 0)), lambda x: x.transpose(1, 2, 0)),
    (lambda x: ops.swapaxes(x, -1, 0), lambda x: x.swapaxes(-1, 0)),
    (lambda x: ops.moveaxis(x, (0, 1), (-1, 0)), lambda x: np.moveaxis(x, (0, 1), (-1, 0))),
    (lambda x: ops.movedim(x, 0, 2), lambda x: np.moveaxis(x, 0, 2)),
    (lambda x: ops.broadcast_to(x, (5, -1, 3, 4)), lambda x: np.broadcast_to(x, (5, 2, 3, 4))),
    (lambda x: x.expand_dims(-1).expand_dims(0), lambda x: x[None, ..., None]),
    (lambda x: ops.squeeze(x[:, :1, :1]), lambda x: x[:, 0, 0]),
    (lambda x: ops.squeeze(x[:1, :1], 1), lambda x: x[:1, 0]),
    (lambda x: x[:1, :, :1].squeeze(0, 2), lambda x: x[0, :, 0]),
    (lambda x: ops.flatten(x), lambda x: x.reshape(2, 12)),
    (lambda x: x.flatten(), lambda x: x.reshape(-1)),
    (lambda x: x.flatten("F"), lambda x: x.flatten("F")),
    (lambda x: x.flatten(0, 1), lambda x: x.reshape(6, 4)),
    (lambda x: ops.ravel(x), lambda x: x.ravel()),
    (lambda x: ops.concat((x, x[:1], x)), lambda x: np.concatenate((x, x[:1], x))),
    (lambda x: ops.cat([x, x], -1), lambda x: np.concatenate((x, x), -1)),
    (lambda x: ops.stack((x, x + 1), -2), lambda x: np.stack((x, x + 1), -2)),
    (lambda x: ops.unstack(x, 1), lambda x: [x[:, k] for k in range(3)]),
    (lambda x: x.unbind(2), lambda x: [x[..., k] for k in range(4)]),
    (lambda x: ops.split(x, 3, 2), lambda x: [x[..., :3], x[..., 3:]]),
    (lambda x: ops.split(x, [1, 0, 2], 1), lambda x: [x[:, :1], x[:, 1:1], x[:, 1:]]),
    (lambda x: x.split(1), lambda x: [x[:1], x[1:]]),
    (lambda x: ops.chunk(x, 2, -1), lambda x: [x[..., :2], x[..., 2:]]),
    (lambda x: ops.chunk(x, 3, -1), lambda x: [x[..., :2], x[..., 2:]]),
    (lambda x: ops.tensor_split(x, 3, 2), lambda x: np.array_split(x, 3, 2)),
    (lambda x: ops.tensor_split(x, (1, -1), 2), lambda x: np.array_split(x, (1, -1), 2)),
    (lambda x: ops.hsplit(x, 3), lambda x: np.hsplit(x, 3)),
    (lambda x: ops.vsplit(x, 2), lambda x: np.vsplit(x, 2)),
    (lambda x: ops.dsplit(x, (1, 3)), lambda x: np.dsplit(x, (1, 3))),
    (lambda x: ops.hstack((x, x)), lambda x: np.hstack((x, x))),
    (lambda x: ops.vstack((x[0, 0], x[0, 1])), lambda x: np.vstack((x[0, 0], x[0, 1]))),
    (lambda x: ops.dstack((x[0], x[1])), lambda x: np.dstack((x[0], x[1]))),
    (lambda x: ops.column_stack((x[0, 0], x[1, :].T)), lambda x: np.column_stack((x[0, 0], x[1].T))),
    (lambda x: ops.atleast_3d((x[0, 0, 0], x[0, 0], x[0])), lambda x: list(np.atleast_3d(x[0, 0, 0], x[0, 0], x[0]))),
    (lambda x: ops.narrow(x, 1, 1, 2), lambda x: x[:, 1:3]),
    (lambda x: ops.slice(x, (0, 1, 2), (2, -1, 1)), lambda x: x[:, 1:, 2:3]),
    (lambda x: ops.strided_slice(x, (1, 0, -1), (0, 3, 0), (-1, 2, -2)), lambda x: x[1:0:-1, 0:3:2, -1:0:-2]),
    (lambda x: ops.strided_slice(x, (0, 1, 9), (9, 9, 2), (1, 1, 1), begin_mask=4, end_mask=1, shrink_axis_mask=2), lambda x: x[:, 1, :2]),
    (lambda x: ops.strided_slice(x, (0, 0, 1), (0, 0, 3), (1, 1, 1), ellipsis_mask=1, new_axis_mask=2), lambda x: x[..., None, 1:3]),
    (lambda x: ops.flip(x, (0, -1)), lambda x: np.flip(x, (0, -1))),
    (lambda x: ops.fliplr(x), lambda x: np.fliplr(x)),
    (lambda x: ops.flipud(x), lambda x: np.flipud(x)),
    (lambda x: ops.roll(x, 5), lambda x: np.roll(x, 5)),
    (lambda x: ops.roll(x, (1, -2), (0, 2)), lambda x: np.roll(x, (1, -2), (0, 2))),
    (lambda x: ops.rot90(x, 1, (0, 2)), lambda x: np.rot90(x, 1, (0, 2))),
    (lambda x: ops.rot90(x, -1, [2, 1]), lambda x: np.rot90(x, -1, (2, 1))),
    (lambda x: ops.rot90(x, 2, (0, 1)), lambda x: np.rot90(x, 2, (0, 1))),
    (lambda x: ops.rot90(x, 4, (0, 1)), lambda x: x),
    (lambda x: ops.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3))),
    (lambda x: x.tile(2), lambda x: np.tile(x, 2)),
    (lambda x: ops.tile(x, (2, 1, 1, 0)), lambda x: np.tile(x, (2, 1, 1, 0))),
    (lambda x: x.repeat(2, 1, 1, 3), lambda x: np.tile(x, (2, 1, 1, 3))),
    (lambda x: ops.repeat_interleave(x, 3), lambda x: x.repeat(3)),
    (lambda x: ops.repeat_interleave(x, 2, 1), lambda x: x.repeat(2, 1)),
    (lambda x: ops.repeat_interleave(x, [1, 0, 2], 1), lambda x: x.repeat([1, 0, 2], 1)),
    (lambda x: ops.repeat_elements(x, 2, -1), lambda x: x.repeat(2, -1)),
    (lambda x: ops.pad(x, (1, 2, 0, 1)), lambda x: np.pad(x, ((0, 0), (0, 1), (1, 2)))),
    (lambda x: ops.pad(x, (-1, 2), value=7.5), lambda x: np.pad(x[..., 1:], ((0, 0), (0, 0), (0, 2)), constant_values=7.5)),
    (lambda x: ops.pad(x, (3, 1, 2, 0), "reflect"), lambda x: np.pad(x, ((0, 0), (2, 0), (3, 1)), "reflect")),
    (lambda x: ops.pad(x, (3, 1, 2, 5), "replicate"), lambda x: np.pad(x, ((0, 0), (2, 5), (3, 1)), "edge")),
    (lambda x: ops.pad(x, (4, 1, 2, 0), "circular"), lambda x: np.pad(x, ((0, 0), (2, 0), (4, 1)), "wrap")),
    (lambda x: ops.mirror_pad(x, ((1, 0), (0, 2), (3, 1)), "REFLECT"), lambda x: np.pad(x, ((1, 0), (0, 2), (3, 1)), "reflect")),
    (lambda x: ops.mirror_pad(x, ((1, 0), (0, 2), (3, 1)), "SYMMETRIC"), lambda x: np.pad(x, ((1, 0), (0, 2), (3, 1)), "symmetric")),
    (lambda x: ops.adjoint(x), lambda x: x.swapaxes(1, 2)),
    (lambda x: ops.tril(x), lambda x: np.tril(x)),
    (lambda x: ops.tril(x, -1), lambda x: np.tril(x, -1)),
    (lambda x: ops.triu(x, 2), lambda x: np.triu(x, 2)),
    (lambda x: ops.diagonal(x), lambda x: np.diagonal(x)),
    (lambda x: ops.diagonal(x, 1, 2, 1), lambda x: np.diagonal(x, 1, 2, 1)),
    (lambda x: ops.diagonal(x, -2, 1, 2), lambda x: np.diagonal(x, -2, 1, 2)),
    (lambda x: ops.diagonal(x, 9), lambda x: np.diagonal(x, 9)),
    (lambda x: ops.diagflat(x[0, :2], 1), lambda x: np.diagflat(x[0, :2], 1)),
    (lambda x: ops.diagflat(x[0, :2], -2), lambda x: np.diagflat(x[0, :2], -2)),
    (lambda x: ops.diag(x[0, 0]), lambda x: np.diag(x[0, 0])),
    (lambda x: ops.diag(x[0, :2, :2]), lambda x: np.diag(x[0, :2, :2].ravel()).reshape(2, 2, 2, 2)),
    (lambda x: ops.diag_embed(x[0]), lambda x: np.stack([np.diag(r) for r in x[0]])),
    (lambda x: ops.diag_embed(x[0], -1, 0, 2), lambda x: np.moveaxis(np.stack([np.diag(r, -1) for r in x[0]]), 0, 1)),
    (lambda x: ops.diff(x, 2), lambda x: np.diff(x, 2)),
    (lambda x: ops.diff(x, 1, 1, prepend=x[:, :1], append=x), lambda x: np.diff(x, 1, 1, prepend=x[:, :1], append=x)),
    (lambda x: ops.meshgrid(x[0, 0], x[0, :, 0]), lambda x: list(np.meshgrid(x[0, 0], x[0, :, 0]))),
    (lambda x: ops.meshgrid(x[0, 0], x[:, 0, 0], x[0, :, 0], indexing="ij"), lambda x: list(np.meshgrid(x[0, 0], x[:, 0, 0], x[0, :, 0], indexing="ij"))),
    (lambda x: ops.channel_shuffle(x.reshape(1, 6, 2, 2), 3), lambda x: x.reshape(1, 3, 2, 2, 2).swapaxes(1, 2).reshape(1, 6, 2, 2)),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CASES)))
def test_against_numpy(number: int) -> None:
    """Values of both modes, gradients to second order, and operands whose memory is not contiguous."""
    function, reference = CASES[number]
    want = reference(CUBE)
    same(both(function, Tensor(CUBE)), want)
    strided = np.asfortranarray(CUBE)
    same(function(Tensor.of_array(strided)), want)
    check_gradients(function, CUBE)


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_without_elements_or_dimensions(shape: tuple[int, ...]) -> None:
    x = RNG.normal(size=shape).astype(np.float32)
    t = Tensor(x)
    same(t.reshape(-1) if x.size else t.reshape(0), x.reshape(-1) if x.size else x.reshape(0))
    same(t.transpose(), x.T)
    same(ops.flip(t, tuple(range(x.ndim))), np.flip(x))
    same(ops.tile(t, (2, 3)), np.tile(x, (2, 3)))
    same(ops.stack((t, t)), np.stack((x, x)))
    same(ops.squeeze(t), np.squeeze(x))
    if x.ndim:
        same(ops.concat((t, t), -1), np.concatenate((x, x), -1))
        same(ops.roll(t, 1, 0), np.roll(x, 1, 0))
        same(ops.pad(t, (1, 2)), np.pad(x, [(0, 0)] * (x.ndim - 1) + [(1, 2)]))


def test_integer_and_bool_elements_move_too() -> None:
    x = np.arange(6).reshape(2, 3) % 2 == 0
    same(ops.pad(Tensor(x), (1, 1), value=1), np.pad(x, ((0, 0), (1, 1)), constant_values=True))
    same(ops.concat((Tensor(x), Tensor(x))), np.concatenate((x, x)))
    same(ops.pad(Tensor([1, 2]), (1, 0), value=1.5), np.array([1, 1, 2]))
    same(ops.tril(Tensor(x)), np.tril(x))


def test_block_diag_and_products_of_sets() -> None:
    a, b = array(2, 2), array(3)
    want = np.zeros((4, 6))
    want[:2, :2], want[2, 2:5], want[3, 5] = a, b, 4.0
    same(ops.block_diag(Tensor(a), Tensor(b), Tensor(np.float64(4.0))), want)
    same(ops.cartesian_prod(Tensor([1, 2]), Tensor([3, 4])), np.array([[1, 3], [1, 4], [2, 3], [2, 4]]))
    same(ops.combinations(Tensor([1, 2, 3])), np.array([[1, 2], [1, 3], [2, 3]]))
    same(ops.combinations(Tensor([1, 2]), 2, True), np.array([[1, 1], [1, 2], [2, 2]]))
    same(ops.tril_indices(2, 3, 1), np.stack(np.tril_indices(2, 1, 3)))
    same(ops.triu_indices(3, 2, -1, dtype=dt.int32), np.stack(np.triu_indices(3, -1, 2)).astype(np.int32))


def test_sequences() -> None:
    same(ops.sequence_mask(Tensor([[1], [3]])), np.array([[[True, False, False]], [[True, True, True]]]))
    same(both(lambda n: ops.sequence_mask(n, 2), Tensor([0, 1, 2])), np.array([[False, False], [True, False], [True, True]]))
    x = np.arange(8.0).reshape(2, 4)
    want = np.array([[1.0, 0, 2, 3], [6, 5, 4, 7]])
    same(both(lambda t, n: ops.reverse_sequence(t, n, 1), Tensor(x), Tensor([2, 3])), want)
    same(ops.reverse_sequence(Tensor(x.T.copy()), Tensor([2, 3]), 0, 1), want.T)
    check_gradients(lambda t, n: ops.reverse_sequence(t, n, 1), x, np.array([2, 3]))


def test_pixel_shuffle_is_depth_to_space() -> None:
    x = array(2, 8, 3, 2)
    want = np.zeros((2, 2, 6, 4))
    for c, i, j in np.ndindex(2, 2, 2):
        want[:, c, i::2, j::2] = x[:, 4 * c + 2 * i + j]
    same(ops.pixel_shuffle(Tensor(x), 2), want)
    same(ops.pixel_unshuffle(Tensor(want), 2), x)
    check_gradients(lambda t: ops.pixel_shuffle(t, 2), array(4, 1, 2))


def test_diagonal_scatter_and_trace() -> None:
    x, d = array(3, 4), array(3)
    want = x.copy()
    want[np.arange(3), np.arange(3) + 1] = d
    same(ops.diagonal_scatter(Tensor(x), Tensor(d), 1), want)
    cube, planes = array(2, 3, 4), array(3, 2)
    moved = cube.transpose(1, 2, 0).copy()
    moved[:, [0, 1], [0, 1]] = planes
    same(ops.diagonal_scatter(Tensor(cube), Tensor(planes), 0, 2, 0), moved.transpose(2, 0, 1))
    check_gradients(lambda t, u: ops.diagonal_scatter(t, u, -1) ** 2, array(3, 2), array(2))
    np.testing.assert_allclose(ops.trace(Tensor(x)).asnumpy(), np.trace(x))
    assert Tensor(np.ones((2, 2), np.int32)).trace().dtype is dt.int64


def test_view_as_other_type_keeps_the_bits() -> None:
    x = np.array([[1.0, -0.0], [np.inf, np.nan]], np.float32)
    same(Tensor(x).view(dt.int32), x.view(np.int32))
    strided = Tensor.of_array(x.T)
    same(strided.view(dt.uint32), np.ascontiguousarray(x.T).view(np.uint32))
    same(Tensor(x).view(dt.int64), x.view(np.int64))
    same(Tensor(x[:, :1].copy()).view(dt.uint8), x[:, :1].copy().view(np.uint8))
    with pytest.raises(ValueError, match="no whole number of Int64"):
        Tensor(x[:, :1].copy()).view(dt.int64)
    with pytest.raises(TypeError, match="both must be numbers"):
        Tensor(x).view(dt.bool_)
    assert apply1(Bitcast(dt.float16), Tensor(np.zeros(2, np.int16))).dtype is dt.float16


def test_slice_and_its_inverse_with_any_step() -> None:
    rng = np.random.default_rng(3)
    for _ in range(40):
        extent = int(rng.integers(1, 7))
        step = int(rng.choice([-3, -2, -1, 1, 2, 3]))
        start = int(rng.integers(0, extent))
        size = int(rng.integers(0, 1 + (start // -step if step < 0 else (extent - 1 - start) // step) + 1))
        cut = Slice((start,) if size else (0,), (size,), (step,))
        x, u = rng.normal(size=extent), rng.normal(size=size)
        places = start + step * np.arange(size)
        same(apply1(cut, Tensor(x)), x[places])
        want = x.copy()
        want[places] = u
        same(apply1(UpdateSlice(cut.start, cut.step), Tensor(x), Tensor(u)), want)
        check_gradients(lambda t, cut=cut: apply1(cut, t) ** 2, x)
        if size:
            check_gradients(lambda t, v, cut=cut: apply1(UpdateSlice(cut.start, cut.step), t, v) ** 2, x, u)


def test_pad_between_elements() -> None:
    x = array(2, 3)
    op = Pad((1, 0), (0, 2), (1, 2), 5.0)
    want = np.full((4, 9), 5.0)
    want[1::2, 0:7:3] = x
    same(apply1(op, Tensor(x)), want)
    check_gradients(lambda t: apply1(op, t) ** 2, x)
    same(apply1(Pad((1,), (1,), (3,), 0.0), Tensor(np.zeros(0))), np.zeros(2))


def test_a_parameter_is_never_handed_out_itself() -> None:
    """What has nothing to do still gives a plain Tensor of the present value."""

    class Weight(Tensor):
        pass

    w = Weight(array(2, 3))
    for result in (ops.reshape(w, (2, 3)), ops.transpose(w, (0, 1)), ops.squeeze(w), ops.broadcast_to(w, (2, 3)), ops.concat((w,)), ops.split(w, 2)[0]):
        assert type(result) is Tensor
        same(result, w.asnumpy())


ERRORS = [
    (lambda x: ops.reshape(x, (5, 5)), ValueError, "24 elements cannot have the shape"),
    (lambda x: ops.reshape(x, (-1, -1)), ValueError, "only one extent can be -1"),
    (lambda x: ops.reshape(x, (2, 3.0, 4)), TypeError, r"shape\[1\] must be an int"),
    (lambda x: ops.reshape(x, 24), TypeError, "tuple or list of ints"),
    (lambda x: ops.reshape(x.asnumpy(), (24,)), TypeError, "input must be a Tensor, but is ndarray"),
    (lambda x: ops.transpose(x, (0, 0, 1)), ValueError, "no permutation"),
    (lambda x: ops.transpose(x, (0, 1)), ValueError, "no permutation"),
    (lambda x: ops.transpose(x, (0, 1, 3)), ValueError, r"dims must be in \[-3, 3\), but is 3"),
    (lambda x: ops.expand_dims(x, 4), ValueError, r"axis must be in \[-4, 4\)"),
    (lambda x: ops.expand_dims(x, True), TypeError, "axis must be an int, but is bool"),
    (lambda x: ops.squeeze(x, 5), ValueError, "axis must be in"),
    (lambda x: ops.broadcast_to(x, (3, 4)), ValueError, "cannot be broadcast to"),
    (lambda x: ops.broadcast_to(x, (-1, 2, 3, 4)), ValueError, "-1 stands for an extent of the input only"),
    (lambda x: ops.flatten(x, start_dim=2, end_dim=1), ValueError, "comes after"),
    (lambda x: ops.flatten(x, "K"), ValueError, "order must be 'C' or 'F'"),
    (lambda x: ops.concat(x), TypeError, "tuple or list of Tensors, but is Tensor"),
    (lambda x: ops.concat(()), ValueError, "one Tensor at least"),
    (lambda x: ops.concat((x, x.astype(dt.int32))), TypeError, r"tensors\[0\] is Float64 and tensors\[1\] is Int32"),
    (lambda x: ops.concat((x, x[0])), ValueError, "does not fit the first"),
    (lambda x: ops.concat((x, x), 3), ValueError, "axis must be in"),
    (lambda x: ops.stack((x, x[:1])), ValueError, "must have one shape"),
    (lambda x: ops.stack((x, 1)), TypeError, r"tensors\[1\] must be a Tensor, but is int"),
    (lambda x: ops.split(x, 0), ValueError, "must be positive"),
    (lambda x: ops.split(x, (1, 2)), ValueError, "add up to 2"),
    (lambda x: ops.chunk(x, 0), ValueError, "chunks must be positive"),
    (lambda x: ops.narrow(x, 0, 1, 2), ValueError, "do not fit axis 0"),
    (lambda x: ops.slice(x, (0, 0, 3), (1, 1, 2)), ValueError, "lie outside"),
    (lambda x: ops.flip(x, (0, 0)), ValueError, "names a dimension twice"),
    (lambda x: ops.flip(x, 0), TypeError, "tuple or list of ints"),
    (lambda x: ops.roll(x, (1, 2), 0), ValueError, "must be as many"),
    (lambda x: ops.tile(x, (-1,)), ValueError, "must not be negative"),
    (lambda x: ops.repeat_interleave(x, (1, 2), 2), ValueError, "2 repeats do not fit dimension 2"),
    (lambda x: ops.pad(x, (1,)), ValueError, "one pair for each"),
    (lambda x: ops.pad(x, (4, 0), "reflect"), ValueError, "from 0 to 3"),
    (lambda x: ops.pad(x, (1, 1), "mirror"), ValueError, "mode must be"),
    (lambda x: ops.pad(x, (1, 1), "reflect", 3.0), ValueError, "takes no value"),
    (lambda x: ops.pad(x, (-3, -3)), ValueError, "cuts off more"),
    (lambda x: ops.tril(x[0, 0]), ValueError, "two dimensions at least"),
    (lambda x: ops.meshgrid(x[0, 0], x), ValueError, "must have one dimension"),
    (lambda x: x.sum(dim=0, axis=1), TypeError, "mean the same"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number: int) -> None:
    call, kind, message = ERRORS[number]
    with pytest.raises(kind, match=message):
        call(Tensor(CUBE))


def test_a_roll_that_moves_nothing_is_no_name_for_its_operand() -> None:
    class Counting(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.p = Parameter(Tensor(np.arange(4, dtype=np.float32)), name="p")

        def construct(self) -> Tensor:
            before = ops.roll(self.p, 4, 0)
            self.p = self.p * 10
            return before

    assert ms.jit(Counting())().asnumpy().tolist() == Counting().construct().asnumpy().tolist() == [0, 1, 2, 3]
