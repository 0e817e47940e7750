"""Indexing, gathers and scatters against numpy over many random indices; gradients against finite differences."""

# mypy: disable-error-code="arg-type, no-untyped-call, operator, call-overload, misc"
from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.ir.types import TensorType
from graphcell.ops.dispatch import Tape, apply1, recording
from graphcell.ops.functional.indexing import tensor_combine, tensor_getitem, tensor_setitem
from graphcell.ops.host import CheckIndex
from graphcell.ops.indexing import DynamicSlice, DynamicUpdateSlice, Gather, GatherElements, Scatter, ScatterElements
from graphcell.tensor import Tensor
from tests.helpers import check_gradients, in_graph, trace
from tests.ops.test_movement import same

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)


def array(*shape: int) -> Array:
    return RNG.normal(size=shape)


# -- random indices ------------------------------------------------------------------------------------------------------------
class Draw:
    """Random indices: each as numpy takes it, and as one of the forms that we take."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)

    def shape(self) -> tuple[int, ...]:
        return tuple(self.random.randint(0 if self.random.random() < 0.1 else 1, 4) for _ in range(self.random.randint(0, 4)))

    def index(self, shape: tuple[int, ...]) -> tuple[Any, Any]:
        pairs: list[tuple[Any, Any]] = []
        common = self.random.choice([(2,), (3,), (2, 2), (1,), ()])
        k, ellipsis = 0, False
        while True:
            dice = self.random.random()
            if dice < 0.12:
                pairs.append((None, None))
            elif dice < 0.2 and not ellipsis:
                pairs.append((Ellipsis, Ellipsis))
                ellipsis = True
                k += self.random.randint(0, len(shape) - k)
            elif dice < 0.23:
                pairs.append((True, self.random.choice([True, np.True_, Tensor(True)])))
            elif k >= len(shape) or self.random.random() < 0.15:
                break
            else:
                k += self.dimension(shape[k:], common, pairs)
        numpy_index, ours = tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
        return (numpy_index[0], ours[0]) if len(pairs) == 1 and self.random.random() < 0.5 else (numpy_index, ours)

    def dimension(self, rest: tuple[int, ...], common: tuple[int, ...], pairs: list[tuple[Any, Any]]) -> int:
        extent, dice = rest[0], self.random.random()
        if dice < 0.25 and extent:
            place = self.random.randint(-extent, extent - 1)
            pairs.append((place, self.random.choice([place, np.int32(place), Tensor(place)])))
            return 1
        if dice < 0.85 and extent and dice >= 0.6:
            shape = common if self.random.random() < 0.7 else tuple(self.random.choice([1, n]) for n in common)
            values = [self.random.randint(-extent, extent - 1) for _ in range(int(np.prod(shape)))]
            data = np.array(values, self.random.choice([np.int32, np.int64])).reshape(shape)
            pairs.append((data, self.random.choice([Tensor(data), data.tolist() if data.ndim else Tensor(data), data])))
            return 1
        if dice < 0.85:
            bounds = [self.random.choice([None, self.random.randint(-extent - 2, extent + 2)]) for _ in range(2)]
            cut = slice(*bounds, self.random.choice([None, 1, 2, -1, -2, 3]))
            pairs.append((cut, cut))
            return 1
        rank = self.random.randint(1, min(2, len(rest)))
        mask = np.array([self.random.random() < 0.5 for _ in range(int(np.prod(rest[:rank])))], bool).reshape(rest[:rank])
        pairs.append((mask, self.random.choice([Tensor(mask), mask])))
        return rank

    def value(self, shape: tuple[int, ...]) -> Array:
        """Something that broadcasts to `shape`."""
        tail = shape[self.random.randint(0, len(shape)) :]
        return np.asarray(RNG.normal(size=tuple(self.random.choice([1, n, n]) for n in tail)), np.float32)


def outcome(action: Any) -> Any:
    """What `action` returns, or the IndexError or ValueError that it raises."""
    try:
        return action()
    except (IndexError, ValueError) as e:
        return e


def empty_mask(index: Any) -> bool:
    """numpy lets a Bool array without elements stand for dimensions of any extent."""
    items = index if isinstance(index, tuple) else (index,)
    return any(isinstance(i, np.ndarray) and i.dtype == bool and i.size == 0 for i in items)


@pytest.mark.parametrize("seed", range(10))
def test_random_indices_take_and_write_what_numpy_does(seed: int) -> None:
    draw = Draw(seed)
    errors = 0
    for _ in range(300):
        shape = draw.shape()
        x = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
        theirs, ours = draw.index(shape)
        if empty_mask(theirs):
            continue
        want, got = outcome(lambda x=x, i=theirs: x[i]), outcome(lambda x=x, i=ours: tensor_getitem(Tensor(x), i))
        assert isinstance(want, Exception) == isinstance(got, Exception), (shape, theirs, want, got)
        if isinstance(want, Exception):
            errors += 1
            continue
        assert got.shape == want.shape, (shape, theirs)
        np.testing.assert_array_equal(got.asnumpy(), want)
        value = draw.value(want.shape)
        changed = x.copy()
        changed[theirs] = value
        np.testing.assert_array_equal(tensor_setitem(Tensor(x), ours, Tensor(value)).asnumpy(), changed, err_msg=str((shape, theirs, value.shape)))
        added = x.copy()
        np.add.at(added, theirs, np.broadcast_to(value, want.shape))
        np.testing.assert_allclose(
            tensor_combine(Tensor(x), ours, Tensor(value), "add").asnumpy(), added, rtol=1e-5, atol=1e-5, err_msg=str((shape, theirs, value))
        )
    assert errors < 60


@pytest.mark.parametrize("seed", range(4))
def test_random_indices_in_a_graph(seed: int) -> None:
    """Index Tensors of integers become operands of the graph; masks are kept out, since a graph refuses to take by them."""
    draw = Draw(100 + seed)
    checked = 0
    for _ in range(150):
        shape = draw.shape()
        x = RNG.normal(size=shape)
        theirs, ours = draw.index(shape)
        items = ours if isinstance(ours, tuple) else (ours,)
        if any(isinstance(i, Tensor) and i.dtype.is_bool for i in items) or isinstance(outcome(lambda x=x, i=theirs: x[i]), Exception):
            continue
        same(in_graph(tensor_getitem, Tensor(x), ours), np.asarray(x[theirs]))
        value = draw.value(np.asarray(x[theirs]).shape).astype(np.float64)
        changed = x.copy()
        changed[theirs] = value
        same(in_graph(tensor_setitem, Tensor(x), ours, Tensor(value)), changed)
        checked += 1
    assert checked > 60


@pytest.mark.parametrize("seed", range(4))
def test_gradients_of_random_indices(seed: int) -> None:
    draw = Draw(200 + seed)
    checked = 0
    while checked < 12:
        shape = draw.shape()
        x = RNG.normal(size=shape)
        theirs, ours = draw.index(shape)
        taken = outcome(lambda x=x, i=theirs: np.asarray(x[i]))
        items = ours if isinstance(ours, tuple) else (ours,)
        if isinstance(taken, Exception) or taken.size == 0 or x.size > 12 or any(isinstance(i, (Tensor, np.ndarray)) for i in items):
            continue
        check_gradients(lambda t, i=ours: tensor_getitem(t, i) ** 2, x)
        value = draw.value(taken.shape).astype(np.float64)
        if value.size <= 6:
            check_gradients(lambda t, v, i=ours: tensor_setitem(t, i, v) ** 2, x, value)
        checked += 1


# -- indexing, case by case --------------------------------------------------------------------------------------------------------
def test_writes_through_parts() -> None:
    """As in numpy, a basic index gives a part of the Tensor; what is written into it reaches the whole."""
    x = Tensor(np.zeros((2, 3, 4)))
    x[0][1][2:] = 5.0
    row = x[1, :, None]
    row[2, 0, 0] = 7.0
    want = np.zeros((2, 3, 4))
    want[0, 1, 2:], want[1, 2, 0] = 5.0, 7.0
    same(x, want)
    same(row, want[1, :, None])
    copied = copy.deepcopy(row)
    copied[:] = 1.0
    gathered = x[[0]]
    gathered[0] = 9.0
    same(x, want)


def test_writes_through_parts_in_a_graph() -> None:
    def change(x: Tensor, i: Tensor) -> Tensor:
        x[i][1:] = 3.0
        x[i, 0] += 1.0
        return x

    want = np.zeros((2, 3))
    want[1] = [1.0, 3.0, 3.0]
    same(in_graph(change, Tensor(np.zeros((2, 3))), Tensor(1)), want)


def test_a_tape_follows_writes() -> None:
    def double_first(x: Tensor) -> Tensor:
        y = x * 1.0
        y[0] = y[1] * y[0]
        y[1:][0] = 3.0 * y[0]
        return y

    check_gradients(double_first, array(3))


def test_the_value_keeps_its_memory() -> None:
    x, v = Tensor(np.zeros((2, 2))), Tensor(np.ones((2, 2)))
    x[:] = v
    v.asnumpy()[0, 0] = 7.0
    same(x, np.ones((2, 2)))
    check_gradients(lambda t, u: tensor_setitem(t, ..., u) * t, array(2), array(1))


def test_values_are_converted() -> None:
    x = Tensor(np.zeros((2, 3), np.int32))
    x[0] = 2.7
    x[1] = [1, 2, 3]
    x[1, Tensor([0])] = Tensor(np.array([9.9]))
    same(x, np.array([[2, 2, 2], [9, 2, 3]], np.int32))
    for bad in ("a", None):
        with pytest.raises(TypeError, match="value must be a number, Tensor, list or tuple"):
            x[0] = bad
    with pytest.raises(ValueError, match=r"a value of shape \(2,\) cannot be broadcast to the shape \(3,\)"):
        x[0] = Tensor([1, 2])


def test_masks_in_a_graph() -> None:
    x, m = array(2, 3), np.array([[True, False, True], [False, False, True]])

    def fill(t: Tensor, mask: Tensor) -> Tensor:
        t[mask] = 0.5
        return t

    def fill_columns(t: Tensor, mask: Tensor, v: Tensor) -> Tensor:
        t[:, mask] = v
        return t

    def fill_if(t: Tensor, condition: Tensor) -> Tensor:
        t[condition] = -1.0
        return t

    same(in_graph(fill, Tensor(x), Tensor(m)), np.where(m, 0.5, x))
    want = x.copy()
    want[:, m[0]] = [[1.0], [2.0]]
    same(in_graph(fill_columns, Tensor(x), Tensor(m[0]), Tensor(np.array([[1.0], [2.0]]))), want)
    same(in_graph(fill_if, Tensor(x), Tensor(False)), x)
    same(in_graph(fill_if, Tensor(x), Tensor(True)), np.full((2, 3), -1.0))
    for action in (lambda t, k: t[k], lambda t, k: fill_columns(t, k[0], t[:, :2]), ops.masked_select, lambda t, k: ops.nonzero(t)):
        with pytest.raises(RuntimeError, match="while the graph is being built"):
            in_graph(action, Tensor(x), Tensor(m))
    check_gradients(lambda t, v: tensor_setitem(t, Tensor(m), v) ** 2, x, np.array(2.0))


INDEX_ERRORS = [
    (lambda x: x[2], IndexError, "index 2 is out of range for dimension 0 of shape"),
    (lambda x: x[0, -4], IndexError, "index -4 is out of range for dimension 1"),
    (lambda x: x[0, 0, 0], IndexError, "too many indices: 3 for a Tensor of shape"),
    (lambda x: x[..., ...], IndexError, "one `...` only"),
    (lambda x: x[1.0], IndexError, "not by 1.0 of type float"),
    (lambda x: x["a"], IndexError, "not by 'a' of type str"),
    (lambda x: x[Tensor([1.0])], IndexError, "not by a Tensor of Float32"),
    (lambda x: x[["a"]], IndexError, "must hold integers or bools"),
    (lambda x: x[[0, 2]], IndexError, "index 2 is out of range for a dimension of 2 elements"),
    (lambda x: x[:, Tensor([-4])], IndexError, "index -4 is out of range"),
    (lambda x: x[[0, 1], [0, 1, 2]], IndexError, "cannot be broadcast together"),
    (lambda x: x[Tensor([True, False, True])], ValueError, r"a Bool index of shape \(3,\) does not fit the dimensions \(2,\)"),
    (lambda x: x[::0], ValueError, "step must not be 0"),
    (lambda x: x[:1.5], TypeError, "stop must be an int"),
    (lambda x: x[:0][Tensor([0])], IndexError, "out of range"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(INDEX_ERRORS)))
def test_index_errors(number: int) -> None:
    call, kind, message = INDEX_ERRORS[number]
    x = Tensor(np.zeros((2, 3)))
    with pytest.raises(kind, match=message):
        call(x)
    with pytest.raises(kind, match=message):  # known while the graph is being built, too
        in_graph(call, x)


def test_iteration_and_membership() -> None:
    x = array(3, 2)
    same(tuple(Tensor(x)), tuple(x))
    assert [int(v) for v in Tensor([4, 5])] == [4, 5]
    assert x[1, 1] in Tensor(x) and 77.0 not in Tensor(x)


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


def test_a_graph_of_a_dynamic_index() -> None:
    """x[i] with a scalar Tensor is a check and one gather; its gradient scatters."""
    graph = trace(lambda x, i: x[i], TensorType(dt.float32, (5, 3)), TensorType(dt.int64, ()))
    assert [n.op for n in graph.nodes] == [CheckIndex(5, "a Tensor of shape (5, 3)"), Gather((0,))]
    x = array(3, 2)
    check_gradients(lambda t, i: t[i] ** 2 * t[0], x, np.array(2))
    check_gradients(lambda t, i, j: tensor_setitem(t, (i, j), t[j, i] * 3.0) ** 2, array(2, 2), np.array(1), np.array(0))
