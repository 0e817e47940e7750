"""Gathers and scatters: the primitives, and the public functions made of them, against numpy; gradients against finite differences."""

# mypy: disable-error-code="arg-type, no-untyped-call, operator, call-overload, misc"
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import dtype as dt
from graphcell import ops
from graphcell.ir.types import TensorType
from graphcell.ops.dispatch import Tape, apply1, recording
from graphcell.ops.indexing import DynamicSlice, DynamicUpdateSlice, Gather, GatherElements, Scatter, ScatterElements
from graphcell.tensor import Tensor
from tests.helpers import check_gradients, in_graph
from tests.ops.test_movement import same

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(12)


def array(*shape: int) -> Array:
    return RNG.normal(size=shape)


# -- primitives ---------------------------------------------------------------------------------------------------------------
def test_indices_out_of_range_take_the_nearest_end() -> None:
    """The primitives leave no buffer, whatever indices hold; negative ones count from the end."""
    x = np.arange(5.0)
    for kind in (np.int8, np.int32, np.int64):
        index = np.array([-9, -6, -5, -1, 0, 4, 5, 100], kind)
        same(apply1(Gather((0,)), Tensor(x), Tensor(index)), np.array([0.0, 0, 0, 4, 0, 4, 4, 4]))
        same(apply1(GatherElements(0), Tensor(x), Tensor(index)), np.array([0.0, 0, 0, 4, 0, 4, 4, 4]))
        counts = apply1(Scatter((0,), "add"), Tensor(np.zeros(5)), Tensor(index), Tensor(np.ones(8)))
        same(counts, np.array([4.0, 0, 0, 0, 4]))
        same(apply1(ScatterElements(0, "add"), Tensor(np.zeros(5)), Tensor(index), Tensor(np.ones(8))), np.array([4.0, 0, 0, 0, 4]))
    same(apply1(Gather((0,)), Tensor(x), Tensor(np.array([0, 4, 255], np.uint8))), np.array([0.0, 4, 4]))
    big = np.array([2**63 + 1, 1], np.uint64)
    same(apply1(Gather((0,)), Tensor(x), Tensor(big)), np.array([4.0, 1]))
    for start in (-3, 0, 2, 7):
        at = min(max(start, 0), 2)
        same(apply1(DynamicSlice((3,)), Tensor(x), Tensor(start)), x[at : at + 3])
        want = x.copy()
        want[at : at + 3] = 9.0
        same(apply1(DynamicUpdateSlice(), Tensor(x), Tensor(np.full(3, 9.0)), Tensor(start)), want)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
def test_gather_and_scatter_along_any_axes(axes: tuple[int, ...]) -> None:
    x = array(3, 4, 2)
    index = [RNG.integers(0, x.shape[k], (2, 3)) for k in axes]
    moved = np.moveaxis(x, axes, range(len(axes)))[tuple(index)]  # the indices' dimensions first
    want = np.moveaxis(moved, (0, 1), (axes[0], axes[0] + 1))
    tensors = [Tensor(i) for i in index]
    same(apply1(Gather(axes), Tensor(x), *tensors), want)
    u = RNG.normal(size=want.shape)
    for kind, combine in (("add", np.add), ("mul", np.multiply), ("max", np.maximum), ("min", np.minimum)):
        out = np.moveaxis(x.copy(), axes, range(len(axes))).copy()
        combine.at(out, tuple(index), np.moveaxis(u, (axes[0], axes[0] + 1), (0, 1)))
        got = apply1(Scatter(axes, kind), Tensor(x), *tensors, Tensor(u))
        np.testing.assert_allclose(got.asnumpy(), np.moveaxis(out, range(len(axes)), axes), rtol=1e-13)
    check_gradients(lambda t, *i: apply1(Gather(axes), t, *i) ** 2, x, *index)


@pytest.mark.parametrize("kind", ["add", "update", "mul", "min", "max"])
@pytest.mark.parametrize("unique", [False, True])
def test_gradients_of_scatter(kind: str, unique: bool) -> None:
    """Also where updates meet in one place."""
    index = np.array([2, 0]) if unique else np.array([2, 0, 2, 2])
    x, u = array(3, 2), array(len(index), 2)
    check_gradients(lambda t, i, v: apply1(Scatter((0,), kind, unique), t, i, v) ** 2, x, index, u)
    grid = np.array([[0, 2], [1, 0]]) if unique else np.array([[0, 0, 2, 0], [1, 0, 1, 1]])
    v = RNG.normal(size=grid.shape)
    check_gradients(lambda t, i, w: apply1(ScatterElements(1, kind, unique), t, i, w) ** 2, array(2, 3), grid, v)


def test_gradient_of_products_with_zeros() -> None:
    """The product of the other updates of a place is right where one or several are zero."""
    index = np.array([0, 0, 0, 1, 1, 2])
    u = np.array([0.0, 2.0, 3.0, 0.0, 0.0, 0.0])
    check_gradients(lambda t, i, v: apply1(Scatter((0,), "mul"), t, i, v), array(3), index, u, order=1)


def test_gradients_of_dynamic_slices() -> None:
    x, u = array(3, 4), array(2, 2)
    start = (np.array(1), np.array(1))
    check_gradients(lambda t, i, j: apply1(DynamicSlice((2, 2)), t, i, j) ** 2, x, *start)
    check_gradients(lambda t, v, i, j: apply1(DynamicUpdateSlice(), t, v, i, j) ** 2, x, u, *start)


def test_types_of_primitives() -> None:
    f, i = TensorType(dt.float32, (3, 4)), TensorType(dt.int32, (2,))
    assert Gather((1,)).infer(f, i).shape == (3, 2)
    for op, types, error in (
        (Gather((0,)), (f, f), TypeError),
        (Gather((2,)), (f, i), ValueError),
        (Gather((1, 0)), (f, i, i), ValueError),
        (Gather((0, 1)), (f, i, i.with_shape((3,))), ValueError),
        (Gather((0,)), (f.with_shape((0, 4)), i), IndexError),
        (GatherElements(0), (f, i), ValueError),
        (GatherElements(0), (f, i.with_shape((2, 5))), ValueError),
        (Scatter((0,), "add"), (f, i, f), ValueError),
        (Scatter((0,), "add"), (f, i, TensorType(dt.float64, (2, 4))), TypeError),
        (Scatter((0,), "sub"), (f, i, f.with_shape((2, 4))), ValueError),
        (DynamicSlice((4, 1)), (f, i.with_shape(()), i.with_shape(())), ValueError),
        (DynamicSlice((1, 1)), (f, i, i), TypeError),
        (DynamicUpdateSlice(), (f, i, i, i), ValueError),
    ):
        with pytest.raises(error):
            op.infer(*types)


# -- public functions ------------------------------------------------------------------------------------------------------------
def test_gather() -> None:
    x, i = array(3, 4, 2), np.array([[1, -1], [0, 2]])
    same(ops.gather(Tensor(x), Tensor(i), 1), np.take(x, i, 1))
    same(Tensor(x).gather(Tensor(i), -2), np.take(x, i, 1))
    rows = RNG.integers(0, 2, (3, 4, 5))
    want = np.take_along_axis(x, rows, 2)
    same(ops.gather(Tensor(x), Tensor(rows), 2, 2), want)
    batch = RNG.integers(0, 2, (3, 5))
    same(ops.gather(Tensor(x), Tensor(batch), 2, 1), np.stack([x[b][:, batch[b]] for b in range(3)]))
    check_gradients(lambda t, k: ops.gather(t, k, 2, 1) ** 2, x, batch)
    same(ops.gather(Tensor(x), Tensor(2), 0), x[2])
    with pytest.raises(ValueError, match="batch_dims 2 does not fit"):
        ops.gather(Tensor(x), Tensor(batch), 1, 2)
    with pytest.raises(IndexError, match="index 3 is out of range"):
        ops.gather(Tensor(x), Tensor([3]), 0)
    with pytest.raises(TypeError, match="input_indices must hold integers"):
        ops.gather(Tensor(x), Tensor([1.0]), 0)


def test_embedding() -> None:
    w, i = array(5, 3), np.array([[1, 4], [1, 0]])
    same(ops.embedding(Tensor(i), Tensor(w)), w[i])
    same(ops.embedding(Tensor(i), Tensor(w), padding_idx=-1), w[i])
    scaled = Tensor(w)
    limited = w.copy()
    for row in (0, 1, 4):
        limited[row] *= min(1.0, 0.5 / np.abs(w[row]).sum())
    np.testing.assert_allclose(ops.embedding(Tensor(i), scaled, max_norm=0.5, norm_type=1.0).asnumpy(), limited[i], rtol=1e-6)
    np.testing.assert_allclose(scaled.asnumpy(), limited, rtol=1e-6)
    check_gradients(lambda t, k: ops.embedding(k, t) ** 2, w, i)
    weight, g = Tensor(w), array(2, 2, 3)
    for options, factors in (({"padding_idx": 4}, [1, 1, 0, 0, 0]), ({"scale_grad_by_freq": True}, [1, 0.5, 0, 0, 1])):
        tape = Tape()
        tape.watch(weight)
        with recording(tape):
            y = ops.embedding(Tensor(i), weight, **options)
        (got,) = tape.gradients([y], [Tensor(g)], [weight])
        want = np.zeros((5, 3))
        np.add.at(want, i, g)
        assert got is not None
        np.testing.assert_allclose(got.asnumpy(), want * np.array(factors)[:, None], rtol=1e-12)
    with pytest.raises(IndexError, match="index 5 is out of range"):
        ops.embedding(Tensor([5]), Tensor(w))


def test_gather_elements_and_nd() -> None:
    x = array(3, 4)
    i = np.array([[0, -1], [3, 1]])
    same(ops.gather_elements(Tensor(x), 1, Tensor(i)), np.take_along_axis(x[:2], i, 1))
    same(ops.gather_d(Tensor(x), 0, Tensor(i[:, :1] % 3)), np.take_along_axis(x[:, :1], i[:, :1] % 3, 0))
    check_gradients(lambda t, k: ops.gather_elements(t, 1, k) ** 2, x, i)
    same(ops.gather_nd(Tensor(x), Tensor([[0, 1], [2, 3]])), x[[0, 2], [1, 3]])
    same(ops.gather_nd(Tensor(x), Tensor([[[1]], [[0]]])), x[[[1], [0]]])
    same(ops.index_select(Tensor(x), 1, Tensor([2, 2, 0])), x[:, [2, 2, 0]])
    for call in (lambda: ops.gather_elements(Tensor(x), 1, Tensor([[4]])), lambda: ops.gather_nd(Tensor(x), Tensor([[0, 4]]))):
        with pytest.raises(IndexError, match="index 4 is out of range"):
            call()
    with pytest.raises(ValueError, match="last extent of indices"):
        ops.gather_nd(Tensor(x), Tensor([[0, 1, 2]]))


def test_scatter_functions() -> None:
    x, i, u = array(2, 3), np.array([[0, 1], [1, 1], [0, 1]]), np.array([2.0, 3.0, 4.0])
    t, at, v = Tensor(x), Tensor(i), Tensor(u)
    index = (i[:, 0], i[:, 1])
    for name, combine in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide), ("max", np.maximum), ("min", np.minimum)):
        want = x.copy()
        combine.at(want, index, u)
        np.testing.assert_allclose(getattr(ops, f"tensor_scatter_{name}")(t, at, v).asnumpy(), want, rtol=1e-13)
        target = Tensor(x)
        assert getattr(ops, f"scatter_nd_{name}")(target, at, v) is target
        np.testing.assert_allclose(target.asnumpy(), want, rtol=1e-13)
        rows = x.copy()
        updates = array(3, 3)
        combine.at(rows, [1, 0, 1], updates)
        target = Tensor(x)
        assert getattr(ops, f"scatter_{name}")(target, Tensor([1, 0, 1]), Tensor(updates)) is target
        np.testing.assert_allclose(target.asnumpy(), rows, rtol=1e-12)
        check_gradients(lambda a, k, b, name=name: getattr(ops, f"tensor_scatter_{name}")(a, k, b) ** 2, x, i, u)
    same(t, x)
    want = x.copy()
    want[index] = u
    same(ops.tensor_scatter_update(t, at, v), want)
    same(ops.scatter_nd(at, v, (2, 3)), np.array([[0.0, 6, 0], [0, 3, 0]]))
    integers = Tensor([7, -7])
    same(ops.tensor_scatter_div(integers, Tensor([[0], [1]]), Tensor([2, 2])), np.array([3, -3]))


@pytest.mark.parametrize("dtype", dt.ALL, ids=str)
def test_every_dtype(dtype: dt.DType) -> None:
    """Small integers, which every dtype but Bool holds exactly."""
    x, at = np.array([1, 2, 3]).astype(dtype.np_type), [0, 2, 0]
    u = np.array([1, 2, 2]).astype(dtype.np_type)
    same(Tensor(x)[at], x[at])
    same(ops.gather_elements(Tensor(x), 0, Tensor(at)), x[at])
    index = Tensor(np.array(at)[:, None])
    for kind, want in (("update", [2, 2, 2]), ("add", [4, 2, 5]), ("mul", [2, 2, 6]), ("max", [2, 2, 3]), ("min", [1, 2, 2])):
        expected = np.array(want).astype(dtype.np_type)
        same(getattr(ops, f"tensor_scatter_{kind}")(Tensor(x), index, Tensor(u)), expected)
        same(in_graph(getattr(ops, f"tensor_scatter_{kind}"), Tensor(x), index, Tensor(u)), expected)
    changed = Tensor(x)
    changed[1:] = Tensor(u[:1])
    same(changed, np.array([1, 1, 1]).astype(dtype.np_type))


def test_scatter_along_an_axis() -> None:
    x, i, u = array(2, 3), np.array([[0, 0], [2, 1]]), array(2, 2)
    want = x.copy()
    np.put_along_axis(want, i, u, 1)
    same(ops.tensor_scatter_elements(Tensor(x), Tensor(i), Tensor(u), 1), want)
    same(ops.scatter(Tensor(x), 1, Tensor(i), Tensor(u)), want)
    same(Tensor(x).scatter(1, Tensor(i), 9.0), np.where(want == x, x, 9.0))
    added = x.copy()
    np.add.at(added, (np.array([[0], [1]]), i), u)
    np.testing.assert_allclose(ops.tensor_scatter_elements(Tensor(x), Tensor(i), Tensor(u), 1, "add").asnumpy(), added, rtol=1e-13)
    np.testing.assert_allclose(Tensor(x).scatter_add(1, Tensor(i), Tensor(u)).asnumpy(), added, rtol=1e-13)
    with pytest.raises(ValueError, match="'none' or 'add'"):
        ops.tensor_scatter_elements(Tensor(x), Tensor(i), Tensor(u), 1, "mul")
    with pytest.raises(TypeError, match="must have the dtype of the first operand, Float64"):
        ops.scatter(Tensor(x), 1, Tensor(i), Tensor(u.astype(np.float32)))


def test_index_functions() -> None:
    x = array(3, 4)
    filled = x.copy()
    filled[:, [0, 2]] = 9.0
    same(ops.index_fill(Tensor(x), 1, Tensor([0, 2]), 9), filled)
    target, y = Tensor(x), array(3, 2)
    added = x.copy()
    np.add.at(added, (slice(None), [1, 1]), y)
    assert ops.index_add(target, Tensor([1, 1]), Tensor(y), 1) is target
    np.testing.assert_allclose(target.asnumpy(), added, rtol=1e-13)
    want = x.copy()
    want[:, 2] = y[:, 0]
    same(ops.select_scatter(Tensor(x), Tensor(y[:, 0]), 1, -2), want)
    want = x.copy()
    want[:, 0:3:2] = y
    same(ops.slice_scatter(Tensor(x), Tensor(y), 1, 0, 3, 2), want)
    want = x.copy()
    np.add.at(want, ([0, 0, 1], [1, 1, 2]), [1.0, 2.0, 3.0])
    at = (Tensor([0, 0, 1]), Tensor([1, 1, 2]))
    same(Tensor(x).index_put(at, Tensor(np.array([1.0, 2.0, 3.0])), True), want)
    want = x.copy()
    want[[0, 0, 1], [1, 1, 2]] = [1.0, 2.0, 3.0]
    same(Tensor(x).index_put(at, Tensor(np.array([1.0, 2.0, 3.0]))), want)


def test_take() -> None:
    x, i = array(2, 3), np.array([[0, 7], [-1, 2]])
    same(Tensor(x).take(Tensor(i)), x.ravel()[[[0, 5], [-1, 2]]])
    same(Tensor(x).take(Tensor(i), 1, "wrap"), np.take(x, i, 1, mode="wrap"))
    same(in_graph(lambda t, k: t.take(k, 1), Tensor(x), Tensor(i)), x[:, [[0, 2], [-1, 2]]])
    with pytest.raises(IndexError, match="index 7 is out of range"):
        Tensor(x).take(Tensor(i), mode="raise")


def test_masks() -> None:
    x, m = array(2, 3), np.array([[True, False, True], [False, True, True]])
    same(ops.masked_fill(Tensor(x), Tensor(m), 2), np.where(m, 2.0, x))
    same(ops.masked_fill(Tensor(x[0]), Tensor(m), Tensor(np.float64(2.0))), np.where(m, 2.0, x[0]))
    same(ops.masked_select(Tensor(x), Tensor(m)), x[m])
    same(ops.masked_select(Tensor(x[0]), Tensor(m)), np.broadcast_to(x[0], (2, 3))[m])
    check_eager = Tensor(x)
    tape = Tape()
    tape.watch(check_eager)
    with recording(tape):
        y = ops.masked_select(check_eager, Tensor(m))
    (g,) = tape.gradients([y], [Tensor(np.arange(4.0))], [check_eager])
    assert g is not None
    same(g, np.array([[0.0, 0, 1], [0, 2, 3]]))
    source = array(5)
    want = x.copy()
    want[m] = source[:4]
    same(Tensor(x).masked_scatter(Tensor(m), Tensor(source)), want)
    same(in_graph(lambda a, k, s: a.masked_scatter(k, s), Tensor(x), Tensor(m), Tensor(source)), want)
    with pytest.raises(ValueError, match="source has 3 elements, the mask takes 4"):
        Tensor(x).masked_scatter(Tensor(m), Tensor(source[:3]))
    for bad, error in ((Tensor([1, 0, 1]), "mask must be Bool"), (m, "mask must be a Tensor")):
        with pytest.raises(TypeError, match=error):
            ops.masked_fill(Tensor(x), bad, 0)
    with pytest.raises(TypeError, match="a Tensor of Int64 cannot hold a value of Float32"):
        ops.masked_fill(Tensor([1, 2]), Tensor([True, False]), 0.5)
    same(ops.nonzero(Tensor(m)), np.argwhere(m))
    same(ops.nonzero(Tensor(m), as_tuple=True), np.nonzero(m))
    same(ops.argwhere(Tensor(np.float32(3.0))), np.argwhere(np.float32(3.0)))
    same(ops.nonzero(Tensor(np.zeros((0, 2)))), np.zeros((0, 2), np.int64))


def test_one_hot() -> None:
    i = np.array([0, 2, 5, -1], np.int32)
    want = np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
    same(ops.one_hot(Tensor(i), 3), want)
    same(ops.one_hot(Tensor(i), 3, 1.0, 0.0), want.astype(np.float32))
    same(ops.one_hot(Tensor(i), 3, Tensor(np.float16(5)), Tensor(np.float16(2)), 0), (want * 3 + 2).T.astype(np.float16))
    same(ops.one_hot(Tensor(i.reshape(2, 2)), 3, axis=1), want.reshape(2, 2, 3).swapaxes(1, 2))
    same(in_graph(lambda t: ops.one_hot(t, 3), Tensor(i)), want)
    with pytest.raises(TypeError, match="indices must hold integers"):
        ops.one_hot(Tensor([0.0]), 3)


def test_segments() -> None:
    x, ids = array(4, 2), np.array([2, 0, 2, -1], np.int32)
    want = np.stack([x[1], np.zeros(2), x[0] + x[2]])
    np.testing.assert_allclose(ops.unsorted_segment_sum(Tensor(x), Tensor(ids), 3).asnumpy(), want, rtol=1e-14)
    traced = in_graph(lambda t, k: ops.unsorted_segment_sum(t, k, 3), Tensor(x), Tensor(ids))
    np.testing.assert_allclose(traced.asnumpy(), want, rtol=1e-14)
    limit = np.finfo(np.float64).max
    same(ops.unsorted_segment_max(Tensor(x), Tensor(ids), 3), np.stack([x[1], [-limit] * 2, np.maximum(x[0], x[2])]))
    same(ops.unsorted_segment_min(Tensor(x), Tensor(ids), 3), np.stack([x[1], [limit] * 2, np.minimum(x[0], x[2])]))
    np.testing.assert_allclose(ops.unsorted_segment_prod(Tensor(x), Tensor(ids), 3).asnumpy(), np.stack([x[1], np.ones(2), x[0] * x[2]]), rtol=1e-14)
    grid = np.array([[0, 1], [1, 1], [2, 0], [0, 0]])
    sums = np.zeros(3)
    np.add.at(sums, grid, x)
    np.testing.assert_allclose(ops.unsorted_segment_sum(Tensor(x), Tensor(grid), 3).asnumpy(), sums, rtol=1e-13)
    for function in (ops.unsorted_segment_sum, ops.unsorted_segment_prod, ops.unsorted_segment_max):
        # the segment in the middle is empty: its bound would drown the finite differences
        check_gradients(lambda t, k, f=function: f(t, k, 3)[::2] ** 2, x, ids)
    with pytest.raises(IndexError, match="a segment id is 2, but there are 2 segments"):
        ops.unsorted_segment_sum(Tensor(x), Tensor(ids), 2)
    with pytest.raises(ValueError, match="must be the leading dimensions"):
        ops.unsorted_segment_sum(Tensor(x), Tensor(ids[:2]), 3)


def test_in_place_methods_write_into_a_graphs_storage() -> None:
    def change(x: Tensor) -> Tensor:
        x.masked_fill_(x > 1.0, 0.0)
        x.index_add_(0, Tensor([0]), x[1:2])
        x.index_fill_(1, Tensor([0]), 5.0)
        return x * 1.0

    data = np.array([[0.5, 2.0], [0.25, 1.0]])
    want = np.array([[5.0, 1.0], [5.0, 1.0]])
    same(in_graph(change, Tensor(data)), want)
    eager = Tensor(data)
    change(eager)
    same(eager, want)


@pytest.mark.parametrize(("shape", "axis"), [((50, 129), 0), ((50, 8), 0), ((50, 3), 0), ((4, 30, 33), 1), ((7, 20), 1), ((20, 1), 0)], ids=str)
@pytest.mark.parametrize("threads", [1, 3])
def test_elements_side_by_side_are_scattered_in_order(shape: tuple[int, ...], axis: int, threads: int) -> None:
    """Of several updates of one place the last one stays, or all are added, however threads share the columns."""
    ms.set_context(runtime_num_threads=threads)
    rng = np.random.default_rng(11)
    x = rng.standard_normal(shape).astype(np.float32)
    i, u = rng.integers(0, shape[axis], shape).astype(np.int32), rng.standard_normal(shape).astype(np.float32)
    last, added = x.copy(), x.astype(np.float64)
    for at in np.ndindex(*shape):
        to = (*at[:axis], int(i[at]), *at[axis + 1 :])
        last[to] = u[at]
        added[to] += u[at]
    got = ms.jit(lambda x, i, u: (ops.tensor_scatter_elements(x, i, u, axis), ops.tensor_scatter_elements(x, i, u, axis, "add")))(Tensor(x), Tensor(i), Tensor(u))
    np.testing.assert_array_equal(got[0].asnumpy(), last)
    np.testing.assert_allclose(got[1].asnumpy(), added, rtol=1e-5, atol=1e-5)
