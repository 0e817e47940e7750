"""Whole programs on guarded memory: every input, output and constant, and the arena, touches a page that cannot be accessed, at its end
or at its beginning. A read or write one element outside ends the process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.codegen.llvm.target import Target, compile_object, load_object
from graphcell.codegen.llvm.text import I64, PTR, FunctionBuilder, LType
from graphcell.codegen.lower import lower
from graphcell.codegen.program import Kept
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph
from graphcell.ir.op import Array
from graphcell.ir.types import TensorType
from graphcell.ops.arithmetic import Cast
from graphcell.ops.contraction import MatMul
from graphcell.ops.dispatch import apply1
from graphcell.ops.indexing import DynamicSlice, DynamicUpdateSlice, Gather, GatherElements, Scatter, ScatterElements, ScatterStep
from graphcell.ops.linear_algebra import Cholesky, Determinant, Inverse, Solve, SolveTriangular
from graphcell.ops.movement import Bitcast, Concat, Pad, Slice, Transpose, UpdateSlice
from graphcell.ops.pooling import Windows
from graphcell.ops.reduction import ArgMax, ReduceMax
from graphcell.ops.scan import Cumulative
from graphcell.passes.pipeline import run_pipeline
from graphcell.tensor import Tensor
from tests.codegen.harness import NUMPY_TYPES
from tests.codegen.plans import TARGETS, Guarded, guarded
from tests.codegen.test_views import _Views
from tests.codegen.turn_taking import TurnTaking
from tests.helpers import trace
from tests.passes.random_graphs import random_graph

RNG = np.random.default_rng(5)


def guarded_copy(array: Array, at_end: bool) -> Guarded:
    buffer = guarded(array.shape, array.dtype, at_end=at_end)
    buffer.array[...] = array
    return buffer


def table(buffers: Sequence[Guarded]) -> Any:
    return (ctypes.c_void_p * max(1, len(buffers)))(*(b.address for b in buffers))


def run_guarded(graph: Graph, arrays: Sequence[Array], target: Target, at_end: bool, frozen: Sequence[int] = ()) -> list[Array]:
    program = lower(run_pipeline(graph)[0], (), target, frozen)
    assert all(call.rare for call in program.host_calls)
    given = [guarded_copy(x, at_end) for x in arrays]
    constants = [guarded_copy(x, at_end) for x in program.constants]
    outputs = [guarded(v.type.shape, v.type.dtype.np_type, at_end=at_end) for v in graph.outputs]
    arena = guarded((program.arena_bytes,), np.dtype(np.uint8), at_end=at_end)
    kept = guarded((0 if program.kept is None else program.kept.nbytes,), np.dtype(np.uint8), at_end=at_end)
    arena.array[...] = kept.array[...] = 0xFF
    library = load_object(compile_object(program.text, target))
    inputs, pool = table([*given, kept, *constants]), TurnTaking()
    if program.kept is not None:
        assert program.kept.slot == len(arrays)
        _prepare(library, program.kept, inputs, arena, pool.address)
    prepared = kept.array.tobytes()
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 5)(library.address("run"))
    for _ in range(2):  # short programs try one thread alone first, see codegen/tasks.py
        arena.array[...] = 0xFF
        assert entry(inputs, table(outputs), arena.address, pool.address, None) == 0
        assert not pool.failure, pool.failure
    for buffer, array in zip((*given, *constants), (*arrays, *program.constants), strict=True):
        buffer.check("an input")
        assert buffer.array.tobytes() == array.tobytes(), "an input was written"
    assert kept.array.tobytes() == prepared, "run wrote what is kept"
    for buffer in (*outputs, arena, kept):
        buffer.check("an output, the arena or what is kept")
    return [np.array(b.array) for b in outputs]


def _prepare(library: Any, kept: Kept, inputs: Any, arena: Guarded, pool: Any) -> None:
    """Runs `prepare` for all sources, and again for each alone, which must not change anything."""
    flags = guarded((len(kept.sources) + 1,), np.dtype(np.uint8), at_end=True)
    prepare = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 5)(library.address("prepare"))
    for only in (None, *range(len(kept.sources) + 1)):
        flags.array[...] = only is None
        if only is not None:
            flags.array[only] = 1
            arena.array[...] = 0xFF
        assert prepare(inputs, flags.address, arena.address, pool, None) == 0
    flags.check("the flags")


def check(graph: Graph, arrays: Sequence[Array], widths: Sequence[int] = tuple(TARGETS), frozen: Sequence[int] = ()) -> None:
    with np.errstate(all="ignore"):
        wanted = evaluate_graph(graph, arrays)
    for width in widths:
        for at_end in (True, False):
            for want, got in zip(wanted, run_guarded(graph, arrays, TARGETS[width], at_end, frozen), strict=True):
                np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=2e-3, atol=2e-3)


def sample(dtype: dt.DType, *shape: int) -> Array:
    if dtype.is_bool:
        return RNG.integers(0, 2, shape).astype(bool)
    return RNG.integers(0, 7, shape).astype(dtype.np_type)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def indices(*shape: int) -> Array:
    return RNG.integers(-200, 200, shape).astype(np.int32)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", dt.ALL, ids=str)
def test_tails_of_every_dtype(dtype: dt.DType) -> None:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = ops.maximum(x, y)
        turned = apply1(Transpose((1, 0)), y)
        backwards = apply1(Slice((x.shape[0] - 1, x.shape[1] - 1), x.shape, (-1, -1)), x)
        return (
            z,
            apply1(ReduceMax((1,)), z),
            apply1(ReduceMax((0,)), z),
            apply1(Concat(1), turned, turned),
            apply1(Cast(dt.float32), backwards),
            apply1(ReduceMax((0,)), apply1(Concat(0), x, backwards)),
            apply1(Pad((1, 0), (0, 2), (1, 1), 1 if not dtype.is_bool else True), y),
            apply1(ArgMax(1), x),
        )

    for shape in [(1, 1), (3, 5), (2, 33), (67, 3)]:
        check(trace(f, *[TensorType(dtype, shape)] * 2), [sample(dtype, *shape), sample(dtype, *shape)])


def softmax_times_tanh(axis: int) -> Callable[[Tensor], Tensor]:
    def f(x: Tensor) -> Tensor:
        y = ops.exp(x - apply1(ReduceMax((axis,), True), x).broadcast_to(x.shape))
        return y / y.sum(axis, keepdims=True) * ops.tanh(x)

    return f


Program = Callable[..., Any]
PROGRAMS: dict[str, tuple[Program, list[Array]]] = {
    "spilled_rows": (softmax_times_tanh(1), [normal(5, 37)]),
    "spilled_columns": (softmax_times_tanh(0), [normal(6, 45)]),
    "middle_axis": (lambda x: (x - x.mean(1, keep_dims=True)) * ops.rsqrt(x.var(1, keepdims=True) + 1.0), [normal(3, 7, 21)]),
    "long_rows": (lambda x: ops.relu(x * 2.0).sum(1), [normal(2, 1031)]),
    "one_long_row": (lambda x: x.sum(), [normal(16_411)]),
    "many_elements": (lambda x: ops.tanh(x) + 1.0, [normal(9001)]),
    "windows": (lambda x: apply1(Windows((1,), (3,), (2,), (2,)), x).max(2), [normal(3, 14)]),
    "broadcast": (lambda x, y: x.reshape(7, 1) * y.reshape(1, 9) + x.reshape(7, 1), [normal(7), normal(9)]),
    "strided_end": (lambda x: apply1(Slice((1, 2), (3, 5), (2, 3)), x) * 2.0, [normal(6, 15)]),
    "last_column": (lambda x: apply1(Slice((0, 14), (70, 1), (1, 1)), x) * 2.0, [normal(70, 15)]),
    "gather": (lambda x, i: apply1(Gather((0,)), x, i), [normal(5, 19), indices(37)]),
    "gather_inner": (lambda x, i: apply1(Gather((1,)), x, i), [normal(5, 19), indices(37)]),
    "gather_two": (lambda x, i, j: apply1(Gather((0, 1)), x, i, j), [normal(5, 19), indices(37), indices(37)]),
    "gather_elements": (lambda x, i: apply1(GatherElements(1), x, i), [normal(5, 19), indices(5, 21)]),
    "scatter": (lambda x, i, u: apply1(Scatter((0,), "add"), x, i, u), [normal(5, 19), indices(7), normal(7, 19)]),
    "scatter_inner": (lambda x, i, u: apply1(Scatter((1,), "max"), x, i, u), [normal(5, 19), indices(7), normal(5, 7)]),
    "scatter_elements": (lambda x, i, u: apply1(ScatterElements(0, "update"), x, i, u), [normal(5, 19), indices(3, 17), normal(3, 17)]),
    "scatter_step": (lambda x, i, u, r: apply1(ScatterStep((0,)), x, i, u, r), [normal(50, 19), indices(7), normal(7, 19), normal()]),
    "scatter_step_inner": (lambda x, i, u, r: apply1(ScatterStep((1,)), x, i, u, r), [normal(5, 19, 70), indices(7), normal(5, 7, 70), normal()]),
    "scatter_step_two": (lambda x, i, j, u, r: apply1(ScatterStep((0, 1)), x, i, j, u, r), [normal(5, 7, 3), indices(9), indices(9), normal(9, 3), normal()]),
    "scatter_step_infinite": (lambda x, i, u, r: apply1(ScatterStep((0,)), x, i, u, r), [normal(50, 19), indices(7), normal(7, 19), np.array(np.inf, np.float32)]),
    "inverse": (lambda x: apply1(Inverse(), x), [normal(7, 5, 5)]),
    "solve": (lambda x, y: apply1(Solve(), x, y), [normal(3, 4, 4), normal(3, 4, 21)]),
    "solve_triangular": (lambda x, y: apply1(SolveTriangular(True), x, y), [normal(3, 4, 4), normal(3, 4, 21)]),
    "determinant": (lambda x: apply1(Determinant(), x), [normal(7, 3, 3)]),
    "cholesky": (lambda x: apply1(Cholesky(), x), [np.eye(5, dtype=np.float32)[None] + np.zeros((3, 1, 1), np.float32)]),
    "dynamic_slice": (lambda x, i, j: apply1(DynamicSlice((2, 9)), x, i, j), [normal(5, 19), np.array(99), np.array(-99)]),
    "dynamic_update": (lambda x, u, i, j: apply1(DynamicUpdateSlice(), x, u, i, j), [normal(5, 19), normal(2, 9), np.array(-9), np.array(2**40)]),
    "update_slice": (lambda x, u: apply1(UpdateSlice((4, 18), (-2, -3)), x, u), [normal(5, 19), normal(3, 7)]),
    "padded_function": (lambda x: ops.tanh(ops.pad(x, (10, 3, 1, 2))), [normal(4, 31)]),
    "padded_integers": (lambda x: ops.cast(ops.pad(x, (28, 3, 0, 1), value=-1), dt.float32), [sample(dt.int64, 33, 3)]),
    "padded_backwards": (lambda x: ops.exp(ops.flip(ops.pad(x, (2, 35, 3, 1)), (0, 1))), [normal(6, 45)]),
    "padded_across": (lambda x: ops.sin(ops.pad(x, (2, 5, 3, 1)).T) * 2.0, [normal(37, 20)]),
    "padded_apart": (lambda x: ops.pad(x, (2, 5, 3, 1))[::2, 1::3] * 2.0, [normal(9, 50)]),
    "padded_constants": (lambda x: x + ops.pad(ops.ones((3, 20), dt.float32), (4, 9, 2, 0)), [normal(5, 33)]),
    "rolled": (lambda x: ops.concat((x[:, 20:], x[:, :20]), 1) * x, [normal(5, 37)]),
    "scan_rows": (lambda x: apply1(Cumulative(1, "add"), x), [normal(37, 5)]),
    "scan_columns_and_some": (lambda x: apply1(Cumulative(0, "add", True), x), [normal(5, 147)]),
    "scan_halves": (lambda x: apply1(Cumulative(0, "max"), x), [normal(5, 67).astype(np.float16)]),
    "scan_bytes": (lambda x: apply1(Cumulative(1, "max"), x), [indices(3, 4, 37).astype(np.int8)]),
    "scatter_wide": (lambda x, i, u: apply1(Scatter((0,), "add"), x, i, u), [normal(5, 147), indices(7), normal(7, 147)]),
    "scatter_narrow": (lambda x, i, u: apply1(Scatter((0,), "update"), x, i, u), [normal(5, 3), indices(7), normal(7, 3)]),
    "scatter_step_wide": (lambda x, i, u, r: apply1(ScatterStep((0,)), x, i, u, r), [normal(50, 147), indices(7), normal(7, 147), normal()]),
    "scan_columns": (lambda x: apply1(Cumulative(0, "max", True), x), [normal(5, 37)]),
    "bitcast": (lambda x: apply1(Bitcast(dt.int8), x), [normal(3, 5)]),
    "integer_product": (lambda x, y: apply1(MatMul(), x, y), [sample(dt.int32, 5, 9), sample(dt.int32, 9, 21)]),
    "scalars": (lambda x, y: x * y + 1.0, [normal(), normal()]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_stay_inside_their_buffers(name: str) -> None:
    fn, arrays = PROGRAMS[name]
    check(trace(fn, *(TensorType(dt.from_numpy(a.dtype), a.shape) for a in arrays)), arrays)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(700, 708))
def test_views_stay_inside_their_buffers(seed: int) -> None:
    graph, arrays = _Views(seed).run(8)
    check(graph, arrays, list(TARGETS))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(700, 708))
def test_random_graphs_stay_inside_their_buffers(seed: int) -> None:
    graph, arrays = random_graph(seed, exact=True)
    check(graph, arrays, list(TARGETS))


@pytest.mark.parametrize("width", TARGETS)
@pytest.mark.parametrize("kind", ["i8", "i16", "float", "double"])
@pytest.mark.parametrize("registers", [0.5, 1, 2, 4])
def test_lanes_that_a_mask_hides_stay_unread_when_they_change_places(kind: str, width: int, registers: float) -> None:
    """Of a masked load, a shuffle and a selection by the same mask, LLVM 22 would make one instruction that reads all lanes."""
    target, element = TARGETS[width], LType(kind)
    lanes, dtype = int(registers * width) // element.bytes, NUMPY_TYPES[kind]
    module = target.module()
    b = FunctionBuilder(module, "turn", [("source", PTR), ("to", PTR), ("count", I64)], internal=False)
    mask = b.lane_mask(b.args["count"], lanes)
    value = b.masked_load(b.args["source"], mask, element.with_lanes(lanes))
    order = np.arange(lanes) ^ 1  # neighbours
    turned = b.shuffle(value, value, order.tolist())
    b.store(b.select(mask, turned, b.const(7, turned)), b.args["to"])
    b.finish()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    library = load_object(compile_object(str(module), target))
    for count in range(1, lanes):
        source, to = guarded_copy((np.arange(count) % 100 + 1).astype(dtype), at_end=True), guarded((lanes,), dtype)
        function(library.address("turn"))(source.address, to.address, count)
        read = np.concatenate([source.array, np.zeros(lanes - count, dtype)])
        np.testing.assert_array_equal(to.array, np.where(np.arange(lanes) < count, read[order], 7))
