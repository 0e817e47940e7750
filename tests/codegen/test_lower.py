"""Native code against the ops' `eval`: random graphs, every elementwise op, movement, gathers and scatters, control flow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Builder, Graph
from graphcell.ir.op import Array, Op
from graphcell.ir.text import parse
from graphcell.ir.types import TensorType
from graphcell.ops.arithmetic import Cast, Mul
from graphcell.ops.base import Elementwise, Reduction
from graphcell.ops.convolution import Conv, ConvInputGrad, ConvWeightGrad
from graphcell.ops.dispatch import apply1
from graphcell.ops.indexing import DynamicSlice, DynamicUpdateSlice, Gather, GatherElements, Scatter, ScatterElements
from graphcell.ops.movement import Concat, Pad, Slice
from graphcell.ops.pooling import Fold, ReduceMaxFirst, Windows
from graphcell.passes.autodiff import vjp
from graphcell.runtime.executable import compile_graph
from graphcell.tensor import Tensor
from tests.helpers import trace
from tests.ops.test_elementwise_matrix import CASES
from tests.passes.cases import same_bits
from tests.passes.random_graphs import random_graph

WIDTHS = ["16", "32", ""]
RNG = np.random.default_rng(0)


def native(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """What the compiled graph gives. No op may go back to the host."""
    executable = compile_graph(graph)
    return [t.asnumpy() for t in executable([Tensor(x) for x in inputs])]


def types(*arrays: Array) -> list[TensorType]:
    return [TensorType(dt.from_numpy(a.dtype), a.shape) for a in arrays]


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def agree(fn, *arrays: Array, rtol: float = 1e-5, atol: float = 1e-5, gradient: bool = True) -> Graph:
    """Asserts that native code agrees with `eval`, for `fn` and for its gradient; returns the graph."""
    graph = trace(fn, *types(*arrays))
    graphs = [(graph, list(arrays))]
    if gradient:
        wrt = [k for k, a in enumerate(arrays) if a.dtype.kind == "f"]
        seeds = [np.ones(v.type.shape, v.type.dtype.np_type) for v in graph.outputs if v.type.dtype.is_float]
        graphs.append((vjp(graph, wrt), [*arrays, *seeds]))
    for g, inputs in graphs:
        for want, got in zip(evaluate_graph(g, inputs), native(g, inputs), strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol)
    return graph


# -- random graphs -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_of_exact_numbers_agree_to_the_bit(seed: int, width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_VECTOR_BYTES", width)
    graph, inputs = random_graph(seed, exact=True)
    for want, got in zip(evaluate_graph(graph, inputs), native(graph, inputs), strict=True):
        assert same_bits(want, got)


@pytest.mark.parametrize("seed", range(12, 30))
def test_random_graphs_with_special_values_agree(seed: int) -> None:
    graph, inputs = random_graph(seed, exact=False)
    with np.errstate(all="ignore"):
        wanted = evaluate_graph(graph, inputs)
        for want, got in zip(wanted, native(graph, inputs), strict=True):
            tolerance = 1e-2 if want.dtype.itemsize == 2 else 1e-4
            assert got.dtype == want.dtype and got.shape == want.shape
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=1e-3, equal_nan=True)


# -- every elementwise op ------------------------------------------------------------------------------------------------
SHAPES = [(), (0, 3), (1,), (7,), (3, 37)]


def sample(dtype: dt.DType, shape: tuple[int, ...], low: float, high: float, rng: np.random.Generator) -> Array:
    if dtype.is_bool:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        limits = np.iinfo(dtype.np_type)
        wide = rng.integers(max(-100, limits.min), 100, shape)
        return np.asarray(wide).astype(dtype.np_type)
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype.np_type)


def accepted(op: Op, dtype: dt.DType, shape: tuple[int, ...], count: int) -> list[TensorType] | None:
    """Operand types that the op takes with `dtype` as its main dtype, or None."""
    for kinds in ([dtype] * count, [dt.bool_, *[dtype] * (count - 1)], [dt.int64] * count):
        operands = [TensorType(k, shape) for k in kinds]
        try:
            op.infer(*operands)
            return operands
        except Exception:
            continue
    return None


def elementwise_ops() -> list[type[Elementwise]]:
    return sorted((c for c in Op.table.values() if issubclass(c, Elementwise) and c.__module__.startswith("graphcell.ops")), key=lambda c: c.name)


@pytest.mark.slow
@pytest.mark.parametrize("cls", elementwise_ops(), ids=lambda c: c.name)
def test_every_elementwise_op_agrees_with_its_eval(cls: type[Elementwise]) -> None:
    import inspect

    from graphcell.ir.graph import Builder

    count = len(inspect.signature(cls.eval).parameters) - 1
    case = CASES.get(cls.name) or CASES.get(cls)
    instances = case.instances if case is not None else tuple(cls(d) for d in (dt.float32, dt.float64))  # type: ignore[call-arg]
    low, high = (case.low, case.high) if case is not None else (-2.0, 2.0)
    rng = np.random.default_rng(1)
    builder, inputs, outputs, tolerances = Builder(cls.name), [], [], []
    for op in instances:
        for dtype in dt.ALL:
            for shape in SHAPES:
                operands = accepted(op, dtype, shape, count)
                if operands is None:
                    continue
                arrays = [sample(t.dtype, shape, low, high, rng) for t in operands]
                inputs += arrays
                outputs += builder.append(op, [builder.input(t) for t in operands])
                tolerances.append(dtype)
    assert outputs, f"no operands found for {cls.name}"
    graph = builder.finish(outputs)
    executable = compile_graph(graph)
    assert not executable.compilation.program.host_calls
    with np.errstate(all="ignore"):
        wanted = evaluate_graph(graph, inputs)
    results = executable([Tensor(x) for x in inputs])
    for want, tensor, dtype in zip(wanted, results, tolerances, strict=True):
        got = tensor.asnumpy()
        assert got.dtype == want.dtype and got.shape == want.shape
        if want.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want)
        else:
            eps = float(dt.finfo(dt.from_numpy(want.dtype)).eps)
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=8 * eps, atol=8 * eps, err_msg=str(dtype))


@pytest.mark.parametrize("cls", [c for c in Op.table.values() if issubclass(c, Reduction)], ids=lambda c: c.name)
def test_every_reduction_agrees_with_its_eval(cls: type[Reduction]) -> None:
    for shape, axis in [((5, 37), (1,)), ((5, 37), (0,)), ((40, 3, 21), (0, 2)), ((40, 3, 21), (1,)), ((1, 9), (0,)), ((300, 70), (0, 1)), ((6,), (0,))]:
        for dtype in dt.ALL:
            op = cls(axis, True)  # type: ignore[call-arg]
            try:
                op.infer(TensorType(dtype, shape))
            except TypeError:
                continue
            x = sample(dtype, shape, -1.1, 1.1, RNG)
            graph = trace(lambda t, op=op: apply1(op, t), TensorType(dtype, shape))
            (want,), (got,) = evaluate_graph(graph, [x]), native(graph, [x])
            wide = dtype.is_float
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=2e-2 if dtype.bits == 16 and wide else 1e-4, atol=1e-2 if wide else 0)


# -- what fuses ----------------------------------------------------------------------------------------------------------
def layer_norm(x, g, b):
    return ops.layer_norm(x, (x.shape[-1],), g, b)


@pytest.mark.parametrize("fn, arrays", [
    (lambda x: ops.softmax(x), [normal(20, 77)]),
    (layer_norm, [normal(33, 70), normal(70), normal(70)]),
    (lambda x: ops.relu(x * 2.0 + 1.0), [normal(8, 9, 10)]),
    (lambda x: (x.reshape((20, 1)) * x.reshape((1, 20))), [normal(20)]),
], ids=["softmax", "layer_norm", "chain", "outer_product"])
def test_one_kernel(fn, arrays: list[Array]) -> None:
    graph = agree(fn, *arrays)
    assert len(compile_graph(graph).compilation.program.steps) == 1


def test_batch_norm_and_its_gradient_are_one_pass_over_memory() -> None:
    def norm(x, g, b):
        mean = x.mean((0, 2, 3), keep_dims=True)
        var = ((x - mean) * (x - mean)).mean((0, 2, 3), keep_dims=True)
        return ops.tanh((x - mean) * (var + 1e-5).rsqrt() * g.reshape((1, -1, 1, 1)) + b.reshape((1, -1, 1, 1)))

    graph = agree(norm, normal(4, 6, 5, 7), normal(6), normal(6))
    assert len(compile_graph(graph).compilation.program.steps) == 1


@pytest.mark.parametrize("fn, arrays", [
    (lambda x: x.T.reshape((-1,)) * 2.0, [normal(10, 20)]),
    (lambda x: x.transpose(2, 0, 1).reshape((6, -1)).sum(0), [normal(4, 5, 6)]),
    (lambda x, y: ops.matmul(x.reshape((2, 3, 4, 5)).transpose(0, 2, 1, 3), y.reshape((2, 3, 4, 5)).transpose(0, 2, 3, 1)), [normal(6, 20), normal(6, 20)]),
    (lambda x: apply1(Concat(1), x * 2.0, x, apply1(Slice((0, 2), (10, 3), (1, 5)), x)), [normal(10, 20)]),
    (lambda x: apply1(Pad((1, 0), (2, 3), (1, 0), 0.5), x), [normal(10, 20)]),
    (lambda x: x.broadcast_to((3, 4, 5)).sum(1), [normal(4, 5)]),
    (lambda x: ops.logsumexp(x, 0), [normal(40, 5)]),
    (lambda x: x.sum(), [np.zeros((0, 3), np.float32)]),
    (lambda x: (x, x, x.reshape((3, 1)), x.reshape((3, 1)).broadcast_to((3, 5))), [normal(3)]),
], ids=["transpose_reshape", "permute", "heads", "concat", "pad", "broadcast", "logsumexp", "empty", "same_output_twice"])
def test_movement(fn, arrays: list[Array]) -> None:
    agree(fn, *arrays, rtol=1e-4, atol=1e-4)


# -- convolution and pooling ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("stride, pads, dilation, groups", [(1, 0, 1, 1), (2, 1, 1, 1), (1, 1, 2, 1), (1, 1, 1, 4), (3, 2, 1, 2)])
def test_convolutions_run_natively(stride: int, pads: int, dilation: int, groups: int) -> None:
    op = Conv((stride,) * 2, ((pads, pads),) * 2, (dilation,) * 2, groups)
    graph = agree(lambda x, w: ops.relu(apply1(op, x, w)), normal(2, 4, 11, 10), normal(8, 4 // groups, 3, 3), rtol=1e-4, atol=1e-4)
    assert not compile_graph(graph).compilation.program.host_calls


def test_convolution_gradients_are_differentiable() -> None:
    geometry = ((2, 1), ((1, 0), (0, 2)), (1, 1), 1)
    agree(lambda w, g: apply1(ConvInputGrad(*geometry, spatial_shape=(7, 6)), w, g), normal(5, 3, 2, 3), normal(2, 5, 4, 6), rtol=1e-4, atol=1e-4)
    agree(lambda x, g: apply1(ConvWeightGrad(*geometry, kernel=(2, 3)), x, g), normal(2, 3, 7, 6), normal(2, 5, 4, 6), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size, stride", [(2, 2), (3, 2), (2, 3), (3, 1)])
def test_windows(size: int, stride: int) -> None:
    windows = Windows((2, 3), (size, size), (stride, stride), (1, 1))
    agree(lambda x: apply1(ReduceMaxFirst((4, 5)), apply1(windows, x)), normal(2, 3, 9, 8))
    agree(lambda x: apply1(windows, x).sum((4, 5)), normal(2, 3, 9, 8))
    fold = Fold((2, 3), (size, size), (stride, stride), (1, 1), (2, 3, 9, 8))
    graph = trace(lambda x: apply1(windows, x), *types(normal(2, 3, 9, 8)))
    agree(lambda x: apply1(fold, x), normal(*graph.outputs[0].type.shape))


# -- indexing ------------------------------------------------------------------------------------------------------------
def indices(limit: int, *shape: int, dtype: type = np.int32) -> Array:
    return RNG.integers(-limit, limit, shape).astype(dtype)


@pytest.mark.parametrize("fn, arrays", [
    (lambda x, i: apply1(Gather((0,)), x, i), [normal(10, 33), indices(13, 7)]),
    (lambda x, i: apply1(Gather((1,)), x, i), [normal(10, 33, 5), indices(40, 7, 3, dtype=np.int64)]),
    (lambda x, i, j: apply1(Gather((0, 2)), x, i, j), [normal(10, 3, 8), indices(40, 7), indices(40, 7)]),
    (lambda x, i: apply1(GatherElements(1), x, i), [normal(10, 33), indices(40, 10, 7)]),
    (lambda x, i: apply1(GatherElements(0), x, i), [normal(10, 33), np.array([[0, 255], [3, 200]], np.uint8)]),
    (lambda x, i, j: apply1(DynamicSlice((3, 4)), x, i, j), [normal(10, 33), np.array(3, np.int32), np.array(100, np.int32)]),
    (lambda x, u, i, j: apply1(DynamicUpdateSlice(), x, u, i, j), [normal(10, 33), normal(3, 4), np.array(-3), np.array(11)]),
], ids=["gather", "gather_inner", "gather_two", "elements", "elements_unsigned", "slice", "update"])
def test_gathers_clamp_and_agree(fn, arrays: list[Array]) -> None:
    agree(fn, *arrays)


@pytest.mark.parametrize("kind", ["add", "update", "mul", "min", "max"])
def test_scatters_agree(kind: str) -> None:
    agree(lambda x, i, u: apply1(Scatter((0,), kind), x, i, u), normal(10, 33), indices(13, 70), normal(70, 33), gradient=False)
    agree(lambda x, i, u: apply1(Scatter((1,), kind), x, i, u), normal(10, 33), indices(13, 70), normal(10, 70), gradient=False)
    agree(lambda x, i, j, u: apply1(Scatter((0, 2), kind), x, i, j, u), normal(10, 3, 8), indices(40, 7), indices(40, 7), normal(7, 3), gradient=False)
    agree(lambda x, i, u: apply1(ScatterElements(1, kind), x, i, u), normal(10, 33), indices(13, 10, 7), normal(10, 7), gradient=False)


def test_large_scratch_memory_comes_from_the_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A padded copy of many channels is larger than a thread's stack."""
    monkeypatch.setenv("GRAPHCELL_WINOGRAD", "0")
    text = """graph @f(%x: f16[1, 20, 20, 3000], %w: f16[2, 3000, 5, 5]) {
      %y = conv[stride=(1, 1), padding=((2, 2), (2, 2)), dilation=(1, 1), groups=1, channels_last=True] %x, %w
      return %y
    }"""
    graph = parse(text)
    executable = compile_graph(graph, ())
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((1, 20, 20, 3000), (2, 3000, 5, 5)))
    (y,) = executable([Tensor(x), Tensor(w)])
    assert "@malloc" in executable.compilation.program.text
    padded = np.pad(x[0].astype(np.float64), ((2, 2), (2, 2), (0, 0)))
    for i, j, k in ((0, 0, 0), (7, 19, 1), (19, 19, 0)):
        want = np.einsum("ijc,cij->", padded[i : i + 5, j : j + 5], w[k].astype(np.float64))
        assert abs(y.asnumpy()[0, i, j, k] - want) <= 1e-3 * np.abs(y.asnumpy()).max()


@pytest.mark.parametrize("half", [dt.float16, dt.bfloat16])
@pytest.mark.parametrize("wide", [dt.float32, dt.float64, dt.int32, dt.bool_])
def test_half_precision_is_rounded_before_it_becomes_something_else(half: dt.DType, wide: dt.DType) -> None:
    """Within one kernel, too, where it is computed in float."""
    b = Builder("f")
    x, y = (b.input(TensorType(half, (37,))) for _ in range(2))
    (product,) = b.append(Mul(), (x, y))
    graph = b.finish(b.append(Cast(wide), (product,)))
    rng = np.random.default_rng(4)
    arrays = [rng.uniform(0.9, 9.0, 37).astype(half.np_type), np.full(37, 1 - 2.0**-6, half.np_type)]
    rounded = (arrays[0].astype(np.float32) * arrays[1].astype(np.float32)).astype(half.np_type)
    np.testing.assert_array_equal(compile_graph(graph)(list(map(Tensor, arrays)))[0].asnumpy(), rounded.astype(wide.np_type))


def test_a_long_program_s_entry_is_translated_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM's passes leave it alone, and the result is as in float64."""

    def fn(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(60):
            x = ops.softmax(ops.matmul(x, w), -1)
        return x

    monkeypatch.setattr("graphcell.codegen.lowering.LONG_ENTRY", 100)
    x, w = RNG.standard_normal((6, 5)).astype(np.float32), RNG.standard_normal((5, 5)).astype(np.float32)
    executable = compile_graph(trace(fn, TensorType(dt.float32, x.shape), TensorType(dt.float32, w.shape)))
    (head,) = [line for line in executable.llvm().splitlines() if line.startswith("define") and "@run(" in line]
    groups = dict(line.removeprefix("attributes ").split(" = ", 1) for line in executable.llvm().splitlines() if line.startswith("attributes "))
    assert "optnone" in groups[head[head.rindex("#") :].split()[0]]
    wanted = x.astype(np.float64)
    for _ in range(60):
        wanted = np.exp(wanted @ w)
        wanted /= wanted.sum(-1, keepdims=True)
    np.testing.assert_allclose(executable([Tensor(x), Tensor(w)])[0].asnumpy(), wanted, rtol=1e-4)


CENTRED = """graph @f(%x: f32[{shape}]) {{
  %m = reduce_max[axis={axis}, keep_dims=True] %x
  %b = broadcast_to[shape=({shape})] %m
  %d = sub %x, %b
  %q = exp %d
  %r = reshape[shape=({size},)] %q
  %s = reduce_sum[axis=(0,), keep_dims=False] %r
  return %s
}}"""


@pytest.mark.parametrize(("shape", "axis"), [((200, 300), (1,)), ((200, 300), (0,)), ((40, 60, 20), (1, 2)), ((40, 60, 20), (0, 2)), ((70000, 3), (1,))])
def test_sums_of_everything_add_the_rows_that_they_come_from(shape: tuple[int, ...], axis: tuple[int, ...]) -> None:
    """The kernel that finds something of each row sums the row, too; nothing of the size of x is stored."""
    text = CENTRED.format(shape=", ".join(map(str, shape)), axis=axis if len(axis) > 1 else f"({axis[0]},)", size=np.prod(shape))
    executable = compile_graph(parse(text))
    x = RNG.standard_normal(shape).astype(np.float32)
    (got,) = executable([Tensor(x)])
    np.testing.assert_allclose(float(got), np.exp(x.astype(np.float64) - x.max(axis, keepdims=True)).sum(), rtol=1e-6)
    assert executable.compilation.program.arena_bytes <= x.nbytes // 2


@pytest.mark.parametrize(("axis", "width"), [((0,), "16"), ((0,), ""), ((1,), ""), ((0, 1), "")])
def test_sums_of_one_value_are_found_in_one_pass(axis: tuple[int, ...], width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_VECTOR_BYTES", width)
    graph = trace(lambda x, y: (ops.sum(x, axis), ops.sum(x * y, axis), ops.amax(ops.abs(y), axis)), *[TensorType(dt.float32, (150, 300))] * 2)
    x, y = (np.round(RNG.standard_normal((150, 300)) * 4).astype(np.float32) for _ in range(2))  # whole numbers: sums are exact
    executable = compile_graph(graph)
    for got, want in zip(executable([Tensor(x), Tensor(y)]), (x.sum(axis), (x * y).sum(axis), np.abs(y).max(axis)), strict=True):
        np.testing.assert_array_equal(got.asnumpy(), want)
    loads = [line for line in executable.kernels().splitlines() if "load" in line and ("150" in line or "300" in line)]
    assert len(loads) <= 2 or axis == (0, 1)


def test_sums_that_wait_for_each_other_stay_apart() -> None:
    """The second sum needs the first one, elementwise and whole."""
    graph = trace(lambda x: ops.sum(x * ops.sum(x, 0).sum(), 0), TensorType(dt.float32, (150, 300)))
    x = np.round(RNG.standard_normal((150, 300))).astype(np.float32)
    (got,) = native(graph, [x])
    np.testing.assert_array_equal(got, (x.astype(np.float64) * x.sum()).sum(0))
