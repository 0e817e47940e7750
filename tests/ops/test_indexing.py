"""Indexing against numpy over many random indices; gradients against finite differences."""

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
from graphcell.ops.functional.indexing import tensor_combine, tensor_getitem, tensor_setitem
from graphcell.ops.host import CheckIndex
from graphcell.ops.indexing import Gather
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
        if len(pairs) == 1 and self.random.random() < 0.5 and not counts_as_tuple(ours[0]):
            return numpy_index[0], ours[0]
        return numpy_index, ours

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


def counts_as_tuple(index: Any) -> bool:
    """A list of lists, which alone MindSpore and older releases of numpy take for a tuple of lists."""
    return isinstance(index, list) and any(isinstance(i, list) for i in index)


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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "index", [[[0, 1], [1, 0]], [[0, 1]], [[0], [1]], [0, [1, 2]], [slice(0, 1), 0], [[True, False]], [None], [..., 0], [Tensor([0, 1]), 1]], ids=str
)
def test_a_list_of_more_than_numbers_counts_as_a_tuple(index: list[Any]) -> None:
    x = array(2, 3, 2)
    theirs = tuple(i.asnumpy() if isinstance(i, Tensor) else i for i in index)
    for call in (lambda f, *a: f(*a), in_graph):
        same(call(tensor_getitem, Tensor(x), index), x[theirs])
        changed = x.copy()
        changed[theirs] = 5.0
        same(call(lambda t: tensor_setitem(t, index, 5.0), Tensor(x)), changed)


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
    (lambda x: x[["a"]], IndexError, "not by 'a' of type str"),
    (lambda x: x[0, ["a"]], IndexError, "must hold integers or bools"),
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


def test_a_graph_of_a_dynamic_index() -> None:
    """x[i] with a scalar Tensor is a check and one gather; its gradient scatters."""
    graph = trace(lambda x, i: x[i], TensorType(dt.float32, (5, 3)), TensorType(dt.int64, ()))
    assert [n.op for n in graph.nodes] == [CheckIndex(5, "dimension 0 of a Tensor"), Gather((0,))]
    x = array(3, 2)
    check_gradients(lambda t, i: t[i] ** 2 * t[0], x, np.array(2))
    check_gradients(lambda t, i, j: tensor_setitem(t, (i, j), t[j, i] * 3.0) ** 2, array(2, 2), np.array(1), np.array(0))
