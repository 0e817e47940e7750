"""Products of vectors, matrices and batches against numpy; gradients against finite differences."""

# mypy: disable-error-code="arg-type, no-untyped-call, operator, call-overload, misc, attr-defined"
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.ir.types import TensorType
from graphcell.ops.contraction import MatMul
from graphcell.ops.dispatch import apply1
from graphcell.passes.pipeline import run_pipeline
from graphcell.tensor import Tensor
from tests.helpers import check_gradients, trace
from tests.ops.test_reduction import both, close

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(23)


def array(*shape: int) -> Array:
    return RNG.normal(size=shape)


PAIRS = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (3,)), ((3,), (5, 3, 2)),
    ((2, 3), (5, 3, 2)), ((5, 2, 3), (5, 3, 2)), ((2, 1, 2, 3), (4, 3, 2)), ((2, 2, 3), (1, 3, 1)), ((1, 2, 3), (4, 3, 2)),
    ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((2, 3), (3, 0)), ((1, 1), (1, 1)), ((0,), (0,)), ((0, 2, 3), (3, 4)), ((2, 0, 3), (2, 3, 4)),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    x, y = array(*left), array(*right)
    want = np.matmul(x, y)
    close(both(ops.matmul, Tensor(x), Tensor(y)), want)
    close(Tensor(x) @ Tensor(y), want)
    close(ops.matmul(Tensor.of_array(np.asfortranarray(x)), Tensor.of_array(np.asfortranarray(y))), want)
    check_gradients(lambda a, b: ops.matmul(a, b) ** 2, x, y)


@pytest.mark.parametrize("transpose_x", [False, True])
@pytest.mark.parametrize("transpose_y", [False, True])
def test_primitive_in_every_transposition(transpose_x: bool, transpose_y: bool) -> None:
    x, y = array(2, 3, 4), array(2, 4, 2)
    a, b = x.swapaxes(1, 2) if transpose_x else x, y.swapaxes(1, 2) if transpose_y else y
    op = MatMul(transpose_x, transpose_y)
    close(apply1(op, Tensor(a), Tensor(b)), x @ y)
    check_gradients(lambda s, t: apply1(op, s, t) ** 2, a[:1], b[:1])


@pytest.mark.parametrize("transpose_y", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_a_transposed_matrix_times_a_column_reads_the_matrix_as_it_lies(batch: tuple[int, ...], transpose_y: bool) -> None:
    a, z = array(*batch, 5, 4), array(*batch, 5, 1)
    y = z.swapaxes(-1, -2) if transpose_y else z
    fn = lambda a, y: apply1(MatMul(True, transpose_y), a, y)  # noqa: E731
    close(both(fn, Tensor(a), Tensor(y)), a.swapaxes(-1, -2) @ z)
    graph = run_pipeline(trace(fn, *(TensorType(dt.float32, v.shape) for v in (a, y))))[0]
    (product,) = (n.op for n in graph.nodes if isinstance(n.op, MatMul))
    assert product == MatMul(not transpose_y, False)


def test_batched_rows_are_one_product() -> None:
    """Weights of two dimensions are applied to all rows at once, also in `dense`."""
    x, w = TensorType(dt.float32, (8, 5, 3)), TensorType(dt.float32, (3, 4))
    assert [n.op.name for n in trace(ops.matmul, x, w).nodes] == ["reshape", "matmul", "reshape"]
    nodes = trace(ops.dense, x, w.with_shape((4, 3))).nodes
    assert [n.op for n in nodes if n.op.name == "matmul"] == [MatMul(False, True)]


def test_dtypes() -> None:
    x = np.arange(6).reshape(2, 3)
    for kind in (np.int8, np.uint8, np.int32, np.int64):
        close(ops.matmul(Tensor(x.astype(kind)), Tensor(x.T.astype(kind))), (x @ x.T).astype(kind))
    ones = np.full((1, 4096), 1.0, np.float16)
    assert float(ops.matmul(Tensor(ones), Tensor(ones.T))) == 4096.0  # accumulated in float32
    assert ops.matmul(Tensor(x).astype(dt.bfloat16), Tensor(x.T).astype(dt.bfloat16)).dtype is dt.bfloat16


CASES = [
    (ops.mm, (2, 3), (3, 4), np.matmul),
    (ops.bmm, (5, 2, 3), (5, 3, 4), np.matmul),
    (ops.mv, (2, 3), (3,), np.matmul),
    (ops.dot, (2, 3), (3, 4), np.dot),
    (ops.dot, (2, 3), (5, 3, 4), np.dot),
    (ops.dot, (3,), (3,), np.dot),
    (ops.inner, (2, 3), (4, 5, 3), np.inner),
    (ops.inner, (2, 3), (), np.inner),
    (ops.outer, (3,), (4,), np.outer),
    (ops.ger, (3,), (4,), np.outer),
    (ops.kron, (2, 3), (4,), np.kron),
    (ops.kron, (2, 1, 2), (3, 2), np.kron),
    (ops.vecdot, (2, 3), (3,), lambda x, y: (x * y).sum(-1)),
    (lambda x, y: ops.vecdot(x, y, axis=0), (2, 3), (2, 1), lambda x, y: (x * y).sum(0)),
    (lambda x, y: ops.tensor_dot(x, y, 1), (2, 3), (3, 4), lambda x, y: np.tensordot(x, y, 1)),
    (lambda x, y: ops.tensor_dot(x, y, 0), (2,), (3,), lambda x, y: np.tensordot(x, y, 0)),
    (lambda x, y: ops.tensor_dot(x, y, ((0, 2), (1, 0))), (2, 3, 4), (4, 2, 3), lambda x, y: np.tensordot(x, y, ((0, 2), (1, 0)))),
    (lambda x, y: ops.tensor_dot(x, y, (1, -1)), (2, 3), (4, 3), lambda x, y: np.tensordot(x, y, (1, -1))),
    (ops.dense, (2, 5, 3), (4, 3), lambda x, y: x @ y.T),
    (ops.dense, (3,), (4, 3), lambda x, y: y @ x),
    (ops.dense, (2, 3), (3,), lambda x, y: x @ y),
    (ops.matmul, (3, 2, 4), (2, 1, 4, 2), np.matmul),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)))
def test_against_numpy(number: int) -> None:
    function, left, right, reference = CASES[number]
    x, y = array(*left), array(*right)
    close(both(function, Tensor(x), Tensor(y)), np.asarray(reference(x, y)))
    check_gradients(lambda a, b: function(a, b) ** 2, x, y)


def test_with_addend() -> None:
    a, b, c, v = array(3, 4), array(3, 2), array(2, 4), array(4)
    close(ops.addmm(Tensor(a), Tensor(b), Tensor(c)), a + b @ c)
    close(ops.addmm(Tensor(v), Tensor(b), Tensor(c), beta=2, alpha=0.5), 2 * v + 0.5 * (b @ c))
    close(ops.addmm(Tensor(np.full(4, np.nan)), Tensor(b), Tensor(c), beta=0), b @ c)
    close(ops.addmv(Tensor(array(1) * 0 + 1), Tensor(b), Tensor(v[:2])), 1 + b @ v[:2])
    close(ops.addr(Tensor(a), Tensor(b[:, 0]), Tensor(v), alpha=3), a + 3 * np.outer(b[:, 0], v))
    x, y, z = array(5, 3, 2), array(5, 2, 4), array(3, 4)
    close(ops.baddbmm(Tensor(z), Tensor(x), Tensor(y), 2, 3), 2 * z + 3 * (x @ y))
    close(ops.addbmm(Tensor(z), Tensor(x), Tensor(y), beta=-1), -z + (x @ y).sum(0))
    close(ops.dense(Tensor(b), Tensor(c.T.copy()), Tensor(v)), b @ c + v)
    close(ops.dense(Tensor(b), Tensor(c.T.copy()), Tensor(np.float64(2.0))), b @ c + 2)
    check_gradients(lambda p, q, r: ops.addbmm(p, q, r, beta=2, alpha=0.5) ** 2, array(2, 1), array(2, 2, 2), array(2, 2, 1))
    check_gradients(lambda p, q, r: ops.dense(p, q, r) ** 2, array(2, 2), array(3, 2), array(3))


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("ij,jk", (2, 3), (3, 4)), ("ij->ji", (2, 3)),
    ("ii->i", (3, 3)), ("ii", (3, 3)), ("ij->", (2, 3)), ("i,j->ij", (2,), (3,)), ("i,i", (3,), (3,)), ("ij,ij->i", (2, 3), (2, 3)),
    ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)), ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)), ("...i->...", (2, 3)),
    ("i...,i->...", (3, 2, 2), (3,)), ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), ("ab,bc,cd,de->ea", (2, 3), (3, 4), (4, 2), (2, 3)),
    ("i,j,k->kji", (2,), (3,), (2,)), ("ijk,jil->kl", (2, 3, 4), (3, 2, 5)), ("iij,jk->ik", (2, 2, 3), (3, 2)), ("iji->j", (2, 3, 2)),
    ("a,ab,abc->abc", (2,), (2, 3), (2, 3, 4)), ("ij , jk -> k i", (2, 3), (3, 4)), ("bij,bj", (2, 3, 4), (2, 4)),
    ("...,...", (2, 3), (3,)), ("ij,ij,ij->", (2, 3), (2, 3), (2, 3)), ("ij,kl->il", (2, 3), (4, 5)),
    ("i,i,i,i->i", (3,), (3,), (3,), (3,)), ("ij,ij->j", (2, 3), (2, 3)), ("ij,ji->j", (2, 3), (3, 2)), ("ijk,kji->j", (2, 3, 4), (4, 3, 2)),
    ("aabb->ab", (2, 2, 3, 3)), ("ij,j", (2, 3), (1,)),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", EQUATIONS, ids=lambda case: case[0])
def test_einsum(case: tuple[Any, ...]) -> None:
    equation, *shapes = case
    xs = [array(*s) for s in shapes]
    want = np.einsum(equation, *xs)
    close(both(lambda *ts: ops.einsum(equation, *ts), *map(Tensor, xs)), want)
    if sum(x.size for x in xs) < 50:
        check_gradients(lambda *ts: ops.einsum(equation, *ts) ** 2, *xs)


def test_einsum_multiplies_matrices() -> None:
    """Where dimensions are summed, through the contraction primitive, and never through a larger intermediate."""
    q = TensorType(dt.float32, (2, 4, 8, 16))
    nodes = trace(lambda x, y: ops.einsum("bhqd,bhkd->bhqk", x, y), q, q).nodes
    assert [n.op.name for n in nodes].count("matmul") == 1 and max(n.results[0].type.size for n in nodes) <= q.size


def test_distances() -> None:
    x, y = array(2, 3, 4), array(2, 5, 4)
    for p in (0.0, 1.0, 2.0, 3.0, np.inf):
        want = np.stack([[[np.linalg.norm(a - b, p) for b in ys] for a in xs] for xs, ys in zip(x, y, strict=True)])
        close(ops.cdist(Tensor(x), Tensor(y), p), want)
        close(ops.dist(Tensor(x), Tensor(x[0]), p), np.linalg.norm((x - x[0]).ravel(), p))
    check_gradients(lambda a, b: ops.cdist(a, b), array(2, 2), array(2, 2))
    for axis, rest in ((0, (1, 2)), (1, (0, 2)), (-1, (0, 1))):
        norms = np.sqrt((x**2).sum(rest, keepdims=True))
        close(ops.renorm(Tensor(x), 2, axis, 2.5), np.where(norms > 2.5, x * 2.5 / (norms + 1e-7), x))
    close(ops.renorm(Tensor(np.array([3.0, -0.5])), 1, 0, 1.0), np.array([1 / (1 + 1e-7 / 3), -0.5]), 1e-7)


def test_similarity_and_distances_within_a_set() -> None:
    x, y = array(4, 3), array(4, 3)
    close(ops.cosine_similarity(Tensor(x), Tensor(y)), (x * y).sum(1) / (np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)))
    close(ops.cosine_similarity(Tensor(x), Tensor(y[0]), 0), (x * y[0]).sum(0) / (np.linalg.norm(x, axis=0) * np.abs(y[0]) * 2))
    close(ops.cosine_similarity(Tensor(np.zeros((1, 3))), Tensor(y[:1])), np.zeros(1))
    close(ops.pdist(Tensor(x)), np.array([np.linalg.norm(x[a] - x[b]) for a in range(4) for b in range(a + 1, 4)]))
    close(ops.pdist(Tensor(x[:1])), np.zeros(0))
    check_gradients(lambda a, b: ops.cosine_similarity(a, b), array(2, 3), array(2, 3))
    check_gradients(lambda a: ops.pdist(a, 3.0), array(3, 2))


def test_cross_products() -> None:
    x, y = array(2, 3), array(4, 1, 3)
    close(ops.cross(Tensor(x), Tensor(y), -1), np.cross(x, y))
    close(ops.cross(Tensor(x.T), Tensor(x.T[:, ::-1])), np.cross(x.T, x.T[:, ::-1], axis=0))
    check_gradients(lambda a, b: ops.cross(a, b, 1) ** 2, x, array(2, 3))


def test_covariance() -> None:
    x, f, a = array(3, 5), np.array([1, 2, 0, 3, 1]), np.abs(array(5))
    close(ops.cov(Tensor(x)), np.cov(x))
    close(ops.cov(Tensor(x), correction=0), np.cov(x, ddof=0))
    close(ops.cov(Tensor(x), fweights=Tensor(f)), np.cov(x, fweights=f))
    close(ops.cov(Tensor(x), fweights=Tensor(f), aweights=Tensor(a)), np.cov(x, fweights=f, aweights=a))
    close(ops.cov(Tensor(x[0]), aweights=Tensor(a), correction=0), np.cov(x[0], aweights=a, ddof=0))
    check_gradients(lambda t: ops.cov(t), array(2, 3))


def test_trapezoids_and_powers() -> None:
    y, x = array(3, 5), np.sort(array(5))
    trapezoid = getattr(np, "trapezoid", None) or np.trapz
    close(ops.trapz(Tensor(y), dx=0.5), trapezoid(y, dx=0.5))
    close(ops.trapz(Tensor(y), Tensor(x)), trapezoid(y, x))
    close(ops.trapz(Tensor(y), Tensor(x[:3]), dim=0), trapezoid(y, x[:3], axis=0))
    close(ops.vander(Tensor(x)), np.vander(x))
    close(ops.vander(Tensor(x), 3), np.vander(x, 3))
    check_gradients(lambda t: ops.vander(t, 4), array(3))


ERRORS = [
    (lambda x: ops.matmul(x, x), ValueError, r"matmul: inner sizes differ, input is \(2, 3\) and other is \(2, 3\)"),
    (lambda x: ops.matmul(x, x.T.astype(dt.float32)), TypeError, "input is Float64 and other is Float32"),
    (lambda x: ops.matmul(x, x[0, 0]), ValueError, "one dimension at least"),
    (lambda x: ops.matmul(x > 0, x.T > 0), TypeError, "must hold numbers, but are Bool"),
    (lambda x: ops.matmul(x, 3), TypeError, "other must be a Tensor, but is int"),
    (lambda x: ops.matmul(x.broadcast_to(2, 2, 3), x.T.broadcast_to(3, 3, 2)), ValueError, "cannot be broadcast together"),
    (lambda x: ops.mm(x.expand_dims(0), x), ValueError, "must have 2 dimensions"),
    (lambda x: ops.bmm(x, x), ValueError, "inner sizes differ"),
    (lambda x: ops.dense(x, x.T), ValueError, "does not fit weight"),
    (lambda x: ops.dense(x, x, x), ValueError, "a bias of shape"),
    (lambda x: ops.outer(x, x), ValueError, "must have 1 dimension, but"),
    (lambda x: ops.tensor_dot(x, x, 1), ValueError, "do not fit shapes"),
    (lambda x: ops.addmm(x, x, x.T), ValueError, "cannot be broadcast together"),
    (lambda x: ops.addbmm(x, x.expand_dims(0), x.expand_dims(0)), ValueError, "addbmm: batch1 of shape"),
    (lambda x: ops.einsum("ij,jk->ik", x), ValueError, "is for 2 operands, but 1 are given"),
    (lambda x: ops.einsum("ijk->i", x), ValueError, "does not fit an operand of 2 dimensions"),
    (lambda x: ops.einsum("ij->ik", x), ValueError, "names a letter twice, or one that no operand has"),
    (lambda x: ops.einsum("ij,jk", x, x), ValueError, "'j' in 'ij,jk' has the extents 3 and 2"),
    (lambda x: ops.einsum("i1->i", x), ValueError, "may hold letters and one '...' only"),
    (lambda x: ops.einsum(3, x), TypeError, "equation must be a str"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number: int) -> None:
    call, kind, message = ERRORS[number]
    with pytest.raises(kind, match=message):
        call(Tensor(array(2, 3)))
