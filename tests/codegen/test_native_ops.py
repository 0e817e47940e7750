"""Ops with loops of their own or made of others (scans, updates, bit casts, places of extrema, integer products) against `eval`."""

from __future__ import annotations

import numpy as np
import pytest

import graphcell
from graphcell import dtype as dt
from graphcell.codegen.native import native_kernel
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.op import Array, Op
from graphcell.ir.types import TensorType
from graphcell.ops.base import Elementwise, Reduction, View
from graphcell.ops.contraction import MatMul
from graphcell.ops.dispatch import apply1
from graphcell.ops.indexing import Scatter
from graphcell.ops.movement import Bitcast, Slice, Transpose, UpdateSlice
from graphcell.ops.reduction import ArgMax, ArgMin
from graphcell.ops.scan import Cumulative
from graphcell.runtime.executable import compile_graph
from graphcell.tensor import Tensor
from tests.helpers import trace
from tests.passes.cases import same_bits

NUMBERS = [d for d in dt.ALL if not d.is_bool]
FLOATS = [d for d in dt.ALL if d.is_float]
RNG = np.random.default_rng(3)


def runs(op: Op, *arrays: Array) -> tuple[Array, Array]:
    """What `eval` and what native code give; nothing may go back to the host."""
    graph = trace(lambda *xs: apply1(op, *xs), *(TensorType(dt.from_numpy(a.dtype), a.shape) for a in arrays))
    executable = compile_graph(graph)
    assert not executable.compilation.program.host_calls
    with np.errstate(all="ignore"):
        (want,) = evaluate_graph(graph, list(arrays))
    (got,) = executable([Tensor(a) for a in arrays])
    return want, got.asnumpy()


def sample(dtype: dt.DType, shape: tuple[int, ...], special: bool = False) -> Array:
    if dtype.is_bool:
        return RNG.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        limits = np.iinfo(dtype.np_type)
        return RNG.integers(limits.min, limits.max, shape, endpoint=True, dtype=dtype.np_type)
    x = np.round(RNG.standard_normal(shape) * 2)
    if special:
        x = np.where(RNG.random(shape) < 0.1, RNG.choice([np.nan, np.inf, -np.inf, -0.0], shape), x)
    return np.asarray(x).astype(dtype.np_type)


# -- scans ---------------------------------------------------------------------------------------------------------------
SCANS = [((5,), 0), ((1,), 0), ((3, 7), 1), ((3, 7), 0), ((70, 9), 1), ((2, 5, 67), 1), ((4, 3, 1), 0), ((0, 3), 0), ((3, 0), 1), ((33, 2, 3), 1),
         ((37, 41), 1), ((16, 16), 1), ((17, 33), 1), ((3, 11, 30), 2), ((9, 261), 1)]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("width", ["16", "32", ""])
@pytest.mark.parametrize("kind", ["add", "mul", "max", "min"])
def test_scans(kind: str, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_VECTOR_BYTES", width)
    for dtype in NUMBERS if not width else (dt.float32, dt.int64, dt.float16):
        for number, (shape, axis) in enumerate(SCANS):
            x = sample(dtype, shape, special=dtype.is_float)
            want, got = runs(Cumulative(axis, kind, bool(number % 2)), x)
            assert got.dtype == want.dtype and got.shape == want.shape
            wide = np.float64 if dtype.is_float else dtype.np_type  # numpy compares bfloat16's NaN by its bits
            np.testing.assert_array_equal(got.astype(wide), want.astype(wide), err_msg=f"{dtype} {shape} {axis}")


def test_scans_are_shared_by_threads_and_keep_their_bits() -> None:
    for shape, axis in [((300, 500), 0), ((300, 500), 1)]:
        x = RNG.standard_normal(shape).astype(np.float32)
        want, got = runs(Cumulative(axis, "add"), x)
        assert same_bits(want, got)


# -- scatters ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("columns", [1, 17, 33, 49, 64, 65, 100])
def test_scatters_write_no_more_than_their_rows(columns: int, dtype: dt.DType) -> None:
    for kind in ("add", "max"):
        x, updates = sample(dtype, (12, columns)), sample(dtype, (5, columns))
        want, got = runs(Scatter((0,), kind, True), x, np.array([1, 2, 3, 5, 6]), updates)
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


# -- places of extrema ---------------------------------------------------------------------------------------------------
def first_place(x: Array, axis: int, largest: bool) -> Array:
    """The first index of the extremum in Python: NaN before all, then equality."""
    moved = np.moveaxis(x.astype(object), axis, -1)
    out = np.empty(moved.shape[:-1], np.int64)
    for row in np.ndindex(*out.shape):
        values = list(moved[row])
        nan = [k for k, v in enumerate(values) if v != v]
        out[row] = nan[0] if nan else values.index(max(values) if largest else min(values))
    return out


@pytest.mark.slow
@pytest.mark.parametrize("dtype", dt.ALL, ids=str)
def test_places_of_extrema(dtype: dt.DType) -> None:
    for shape, axis in [((7,), 0), ((1,), 0), ((4, 37), 1), ((4, 37), 0), ((3, 5, 70), 1), ((130, 3), 0), ((0, 3), 1), ((2, 1, 3), 1)]:
        for special in (False, True):
            x = sample(dtype, shape, special)
            for op in (ArgMax(axis), ArgMin(axis)):
                _, got = runs(op, x)
                assert got.dtype == np.int64
                np.testing.assert_array_equal(got, first_place(x, axis, isinstance(op, ArgMax)), err_msg=f"{op} {shape}")


def test_the_place_of_an_extremum_of_a_long_row() -> None:
    x = RNG.standard_normal(40_000).astype(np.float32)
    x[[123, 39_000]] = 9.0
    assert runs(ArgMax(0), x)[1] == 123
    x[[30_001, 30_002]] = np.nan
    assert runs(ArgMin(0), x)[1] == 30_001


def test_an_extremum_and_its_place_are_one_kernel() -> None:
    graph = trace(lambda x: apply1(ArgMax(1), x * 2.0), TensorType(dt.float32, (50, 40)))
    assert len(compile_graph(graph).compilation.program.steps) == 1


# -- updates, bits, integer products -------------------------------------------------------------------------------------
@pytest.mark.parametrize("start, step, size", [
    ((1, 2), (1, 1), (3, 4)), ((0, 9), (2, -3), (4, 4)), ((7, 0), (-1, 1), (8, 10)), ((0, 0), (1, 1), (8, 10)),
    ((3, 3), (1, 1), (0, 2)), ((7, 9), (-7, -9), (2, 2)),
])
def test_updates_of_slices(start: tuple[int, ...], step: tuple[int, ...], size: tuple[int, ...]) -> None:
    for dtype in (dt.float32, dt.int8, dt.bool_, dt.bfloat16):
        want, got = runs(UpdateSlice(start, step), sample(dtype, (8, 10)), sample(dtype, size))
        assert same_bits(want, got)


def test_updates_read_views() -> None:
    cut = UpdateSlice((1, 0), (2, 1))
    arrays = [sample(dt.float32, s) for s in ((6, 8), (9, 4))]
    graph = trace(
        lambda x, y: apply1(cut, apply1(Transpose((1, 0)), x), apply1(Transpose((1, 0)), apply1(Slice((8, 0), (6, 4), (-1, 1)), y))),
        *(TensorType(dt.float32, a.shape) for a in arrays),
    )
    (got,) = compile_graph(graph)([Tensor(a) for a in arrays])
    want = arrays[0].T.copy()
    want[1:8:2] = arrays[1][8:2:-1].T
    np.testing.assert_array_equal(got.asnumpy(), want)


@pytest.mark.parametrize("source", NUMBERS, ids=str)
def test_bits_read_as_another_dtype(source: dt.DType) -> None:
    for target in NUMBERS:
        want, got = runs(Bitcast(target), sample(source, (3, 8)))
        assert got.dtype == want.dtype and got.tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", [d for d in dt.ALL if d.is_integer], ids=str)
def test_matrix_products_of_integers_wrap(dtype: dt.DType) -> None:
    for m, k, n, batch in [(3, 5, 4, ()), (1, 1, 1, ()), (17, 40, 33, ()), (4, 7, 9, (2, 3)), (1, 300, 1, ()), (3, 0, 2, ())]:
        for flip_x in (False, True):
            for flip_y in (False, True):
                x = sample(dtype, (*batch, k, m) if flip_x else (*batch, m, k))
                y = sample(dtype, (*batch, n, k) if flip_y else (*batch, k, n))
                a, b = (x.swapaxes(-1, -2) if flip_x else x), (y.swapaxes(-1, -2) if flip_y else y)
                exact = (a.astype(object) @ b.astype(object)) if k else np.zeros((*batch, m, n), object)
                _, got = runs(MatMul(flip_x, flip_y), x, y)
                np.testing.assert_array_equal(got.astype(object) % 2**dtype.bits, exact % 2**dtype.bits)


# -- what still goes to the host -----------------------------------------------------------------------------------------
HOST = {
    "print", "assert", "raise",  # they act on the world outside
    "bessel", "betainc", "gcd", "igamma", "igamma_by_a", "nextafter", "polygamma", "zeta",
    "geqrf", "qr", "svd",  # LAPACK's
    "draw_classes", "random_gamma", "random_poisson",  # of rejected and accepted draws
}
"""Ops that native code calls back for. Keep this list true: taking one out of it means giving the op native code."""
DISSOLVED = {"call", "custom_gradient", "recomputed", "fold", "argmax", "argmin", "check_index", "moments"}
"""Ops that the passes leave none of."""
IN_LOWER = {
    "constant", "full", "iota", "if", "while", "for", "concat", "pad", "update_slice", "bitcast", "cumulative", "gather", "gather_elements",
    "scatter", "scatter_elements", "scatter_step", "dynamic_slice", "dynamic_update_slice",
    "cholesky", "determinant", "inverse", "slogdet", "solve", "solve_triangular",
}
"""Ops that codegen/lower.py emits; large matrices go to LAPACK."""


def test_every_op_without_native_code_is_listed() -> None:
    assert graphcell
    own = {name: cls for name, cls in Op.table.items() if cls.__module__.startswith("graphcell.ops")}
    native = {name for name, cls in own.items() if issubclass(cls, (Elementwise, Reduction, View)) or native_kernel(cls) is not None}
    assert set(own) - native - DISSOLVED - IN_LOWER == HOST
    assert not native & HOST


def test_calls_back_into_python_are_explained() -> None:
    @graphcell.jit
    def halved(x: Tensor) -> Tensor:
        return graphcell.ops.inverse(x)

    assert float(halved(Tensor(2 * np.eye(70, dtype=np.float32)))[3, 3]) == 0.5
    assert "calls back into Python for inverse (" in halved.explain()
