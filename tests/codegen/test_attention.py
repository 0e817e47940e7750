"""Attention kernels against float64 numpy: sizes, masks, dtypes, strides, guarded memory, any number of threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell.codegen.llvm import attention
from graphcell.codegen.llvm.attention import emit_attention
from graphcell.codegen.llvm.attention_products import AttentionSpec
from graphcell.codegen.llvm.matmul_spec import Operand
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.llvm.text import Module
from graphcell.codegen.lower import lower
from graphcell.ir.graph import Builder, Graph
from graphcell.ir.op import Array
from graphcell.ir.types import TensorType
from graphcell.ops.attention import Attention, AttentionGrad
from graphcell.ops.movement import BroadcastTo, Reshape, Slice, Transpose
from graphcell.passes.attention import LONGEST_KEPT
from graphcell.passes.pipeline import run_pipeline
from graphcell.runtime.executable import compile_graph
from graphcell.tensor import Tensor
from tests.codegen.plans import TARGETS, compile_plan, with_chunks
from tests.codegen.test_guards import run_guarded

RNG = np.random.default_rng(11)


def reference(q: Array, k: Array, v: Array, g: Array, mask: Array | None, scale: float, fill: float, drop: Array | float = 1.0) -> list[Array]:
    """Output and gradients of q, k and v, in float64, from the definitions."""
    q, k, v, g = (x.astype(np.float64) for x in (q, k, v, g))
    with np.errstate(all="ignore"):
        s = np.einsum("...md,...nd->...mn", q, k) * scale
        keep = np.ones(s.shape, bool)
        if mask is not None and mask.dtype == np.bool_:
            keep = np.broadcast_to(mask, s.shape)
            s = np.where(keep, s, fill)
        elif mask is not None:
            s = s + mask.astype(np.float64)
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        dp = np.einsum("...me,...ne->...mn", g, v) * drop
        ds = np.where(keep, p * (dp - (p * dp).sum(-1, keepdims=True)), 0.0) * scale
        return [(p * drop) @ v, ds @ k, np.einsum("...mn,...md->...nd", ds, q), np.einsum("...mn,...me->...ne", p * drop, g)]


def type_of(x: Array) -> TensorType:
    return TensorType(dt.from_numpy(x.dtype), x.shape)


def attention_graph(types: Sequence[TensorType], g: TensorType, op: Attention) -> Graph:
    """Inputs q, k, v, [mask], g; outputs: the output and the three gradients."""
    b = Builder("attention")
    q, k, v, *mask = [b.input(t) for t in types]
    out, peak, total, *powers = b.append(op, [q, k, v, *mask])
    cotangent = b.input(g)
    gradient = AttentionGrad(op.scale, op.fill, op.sequence_first, op.dropout, op.powers)
    gradients = b.append(gradient, [q, k, v, out, peak, total, cotangent, *powers, *mask])
    return b.finish([out, *gradients])


def call(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    return [t.asnumpy() for t in compile_graph(graph, (), graph.name)([Tensor.of_array(x) for x in arrays])]


def close(got: Sequence[Array], want: Sequence[Array], tolerance: float) -> None:
    for x, y in zip(got, want, strict=True):
        nan = np.isnan(y)
        assert (np.isnan(x.astype(np.float64)) == nan).all()
        if not nan.all():
            assert np.abs(x.astype(np.float64) - y)[~nan].max() <= tolerance * max(1.0, np.abs(y[~nan]).max())


def operands(batch: tuple[int, ...], m: int, n: int, d: int, e: int, dtype: Any = np.float32) -> list[Array]:
    return [RNG.standard_normal((*batch, *s)).astype(dtype) for s in ((m, d), (n, d), (n, e), (m, e))]


def check(batch: tuple[int, ...], m: int, n: int, d: int, e: int, mask: Array | None = None, scale: float | None = None, fill: float = -1e9, tolerance: float = 3e-6) -> None:
    q, k, v, g = operands(batch, m, n, d, e)
    scale = 1 / math.sqrt(d) if scale is None else scale
    masks = [] if mask is None else [mask]
    for powers in (False, True)[: 1 + (n <= LONGEST_KEPT)]:
        op = Attention(scale, fill, powers=powers)
        graph = attention_graph([type_of(x) for x in (q, k, v, *masks)], type_of(g), op)
        close(call(graph, [q, k, v, *masks, g]), reference(q, k, v, g, mask, scale, fill), tolerance)


SIZES = [(1, 1, 1, 1), (7, 7, 3, 5), (130, 130, 80, 80), (130, 77, 17, 33), (5, 700, 64, 64), (270, 1100, 64, 48), (1025, 33, 16, 8), (16, 2049, 8, 8)]


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n", "d", "e"), SIZES)
def test_sizes(m: int, n: int, d: int, e: int) -> None:
    check((1, 2), m, n, d, e)
    if m * n < 20_000:
        check((3,), m, n, d, e, scale=-0.3)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n"), [(1, 1), (7, 7), (130, 130), (70, 900)])
def test_masks(m: int, n: int) -> None:
    for shape in [(2, 1, 1, n), (1, 3, m, 1), (2, 3, m, n)][: 1 if n > 200 else 3]:
        check((2, 3), m, n, 24, 16, RNG.standard_normal(shape).astype(np.float32) * 3)
        check((2, 3), m, n, 24, 16, RNG.random(shape) < 0.6)
    causal = np.tril(np.ones((1, 1, m, n), bool))
    check((2, 3), m, n, 24, 16, causal, fill=-math.inf)
    check((2, 3), m, n, 24, 16, np.where(causal, 0, -1e9).astype(np.float32))


def hiding_masks(m: int, n: int) -> dict[str, Array]:
    """Masks of which parts hide all scores of many queries and keys; True is kept."""
    rows, keys = np.arange(m)[:, None], np.arange(n)[None, :]
    blocks = np.random.default_rng(5).random((-(-m // 100), -(-n // 100))) < 0.4
    return {
        "causal": keys <= rows,
        "the other way round": keys >= rows,
        "window": abs(keys - rows) < 40,
        "padding": (keys < n // 3) & (rows >= 0),
        "padding before": (keys >= n - n // 3) & (rows >= 0),
        "rows without any": (keys <= rows) & (rows % 7 != 3) & (rows > m // 2),
        "blocks": np.kron(blocks, np.ones((100, 100)))[:m, :n] > 0,
    }


@pytest.mark.slow
@pytest.mark.parametrize("fill", [-1e9, -50.0, 3.0, -math.inf])
@pytest.mark.parametrize(("m", "n"), [(300, 300), (70, 900), (520, 130), (257, 641)])
def test_masks_that_hide_chunks(m: int, n: int, fill: float) -> None:
    for mask in hiding_masks(m, n).values():
        check((2,), m, n, 12, 20, mask[None], fill=fill)


@pytest.mark.slow
@pytest.mark.parametrize("low", [-math.inf, -1e9, -10000.0, -60.0, 5.0])
@pytest.mark.parametrize(("m", "n"), [(300, 300), (70, 900), (520, 130)])
def test_added_masks_that_hide_chunks(m: int, n: int, low: float) -> None:
    for mask in hiding_masks(m, n).values():
        if mask.any(1).all() or low > -100 or low == -math.inf:  # else rows consist of scores that the sum has rounded away
            check((2,), m, n, 12, 20, np.where(mask, 0.0, low).astype(np.float32)[None])


@pytest.mark.parametrize("size", [30.0, 1e3, 1e10, 1e25])
def test_added_masks_beside_large_scores(size: float) -> None:
    """Scores that are larger than what is added are not hidden; those that overflow become NaN with minus infinity."""
    m = 300
    for low in (-10000.0, -1e9):
        mask = np.where(hiding_masks(m, m)["causal"], 0.0, low).astype(np.float32)[None]
        q, k, v, g = operands((1,), m, m, 12, 20)
        q *= np.float32(size)
        graph = attention_graph([type_of(x) for x in (q, k, v, mask)], type_of(g), Attention(1.0))
        got, want = call(graph, [q, k, v, mask, g]), reference(q, k, v, g, mask, 1.0, 0.0)
        if size < 1e4:
            close(got[:1], want[:1], 1e-4 * size)
        assert np.isfinite(got[0]).all() == np.isfinite(want[0]).all()


@pytest.mark.slow
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("number", [math.inf, math.nan])
@pytest.mark.parametrize("where", ["q", "k", "v", "g"])
def test_hidden_chunks_of_numbers_that_are_not_finite(where: str, number: float, added: bool) -> None:
    """0 times infinity is NaN: where a masked score meets such a number, its chunk counts."""
    m = 400
    causal = hiding_masks(m, m)["causal"][None]
    if added:
        causal = np.where(causal, 0.0, -math.inf).astype(np.float32)
    for at in (5, 350):
        arrays = operands((1,), m, m, 12, 20)
        arrays["qkvg".index(where)][0, at, 3] = number
        q, k, v, g = arrays
        types = [type_of(x) for x in (q, k, v, causal)]
        graph = attention_graph(types, type_of(g), Attention(0.3, -1e9))
        for got, want in zip(call(graph, [q, k, v, causal, g]), reference(q, k, v, g, causal, 0.3, -1e9), strict=True):
            finite = np.isfinite(want)
            assert (np.isfinite(got) == finite).all()
            if finite.any():
                close([got[finite]], [want[finite]], 3e-6)


@pytest.mark.parametrize("powers", [False, True])
def test_a_mask_whose_columns_are_apart(powers: bool) -> None:
    """Its rows are no whole vectors."""
    q, k, v, g = operands((2,), 21, 19, 8, 8)
    b = Builder("attention")
    left, right, values, turned, cotangent = (b.input(TensorType(dt.from_numpy(x.dtype), x.shape)) for x in (q, k, v, np.zeros((1, 19, 21), bool), g))
    (mask,) = b.append(Transpose((0, 2, 1)), [turned])
    op = Attention(0.3, -5.0, powers=powers)
    out, peak, total, *kept = b.append(op, [left, right, values, mask])
    gradient = AttentionGrad(op.scale, op.fill, powers=powers)
    graph = b.finish([out, *b.append(gradient, [left, right, values, out, peak, total, cotangent, *kept, mask])])
    on = RNG.random((1, 21, 19)) < 0.7
    got = call(graph, [q, k, v, np.ascontiguousarray(on.transpose(0, 2, 1)), g])
    close(got, reference(q, k, v, g, on, 0.3, -5.0), 3e-6)


@pytest.mark.parametrize("n", [9, 1300])
def test_a_row_without_any_score_is_nan_and_others_are_not(n: int) -> None:
    mask = np.ones((1, 1, 6, n), bool)
    mask[..., 2, :] = False
    mask[..., 4, : n - 1] = False  # nothing in the first chunks
    check((1, 1), 6, n, 8, 8, mask, fill=-math.inf)
    check((1, 1), 6, n, 8, 8, np.where(mask, 0, -math.inf).astype(np.float32))
    check((1, 1), 6, n, 8, 8, mask, fill=-1e9)  # equal weights


@pytest.mark.parametrize(("m", "n", "powers"), [(7, 7, False), (130, 130, False), (70, 900, False), (7, 7, True), (130, 130, True), (40, 500, True)])
def test_dropout(m: int, n: int, powers: bool) -> None:
    q, k, v, g = operands((2, 2), m, n, 20, 12)
    for shape, masks in [((2, 2, m, n), []), ((1, 2, m, 1), [RNG.random((2, 1, 1, n)) < 0.8]), ((2, 2, m, n), [RNG.standard_normal((1, 1, m, n)).astype(np.float32)])]:
        keep = RNG.random(shape) < 0.7
        graph = attention_graph([type_of(x) for x in (q, k, v, *masks, keep)], type_of(g), Attention(0.3, -1e9, dropout=1.25, powers=powers))
        close(call(graph, [q, k, v, *masks, keep, g]), reference(q, k, v, g, masks[0] if masks else None, 0.3, -1e9, keep * 1.25), 3e-6)


@pytest.mark.parametrize("n", [40, 1100])
def test_large_and_special_scores(n: int) -> None:
    q, k, v, g = operands((2,), 20, n, 16, 16)
    for factor in (1e4, 1e8, 1e16):  # the softmax is that of a maximum
        huge = [q * np.float32(factor), k * np.float32(factor)]
        graph = attention_graph([type_of(y) for y in (*huge, v)], type_of(g), Attention(0.3))
        close(call(graph, [*huge, v, g])[:1], reference(*huge, v, g, None, 0.3, 0.0)[:1], 1e-5)
    for x, scale in ((q * 100, 1.0), (q, 300.0)):
        graph = attention_graph([type_of(y) for y in (x, k, v)], type_of(g), Attention(scale))
        got, want = call(graph, [x, k, v, g]), reference(x, k, v, g, None, scale, 0.0)
        wrong = [np.abs(a - b).max() / max(1.0, np.abs(b).max()) for a, b in zip(got, want, strict=True)]
        assert max(wrong) < 3e-3  # scores of thousands carry an error of 1e-4 themselves
    q[0, 3, 2], k[1, 5, 1] = np.nan, np.inf
    graph = attention_graph([type_of(x) for x in (q, k, v)], type_of(g), Attention(0.25))
    got, want = call(graph, [q, k, v, g])[0], reference(q, k, v, g, None, 0.25, 0.0)[0]
    assert (np.isnan(got) == np.isnan(want)).all()
    assert np.isnan(got[0, 3]).all() and not np.isnan(got[0, :3]).any()


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)])
def test_other_floats(dtype: Any, tolerance: float) -> None:
    for m, n, d, e in [(33, 20, 16, 16), (150, 600, 40, 24)]:
        q, k, v, g = operands((2, 2), m, n, d, e, dtype)
        mask = (RNG.random((1, 2, m, n)) < 0.7) if m == 33 else RNG.standard_normal((2, 1, 1, n)).astype(dtype)
        graph = attention_graph([type_of(x) for x in (q, k, v, mask)], type_of(g), Attention(0.2, -1e4))
        close(call(graph, [q, k, v, mask, g]), reference(q, k, v, g, mask, 0.2, -1e4), tolerance)


def test_strided_operands_are_read_where_they_lie() -> None:
    """q, k and v are parts of one projection, heads in the middle; k comes transposed; g and the mask are broadcasts."""
    batch, s, heads, d = 2, 37, 3, 20
    projection = RNG.standard_normal((batch, s, 3 * heads * d)).astype(np.float32)
    column, row = RNG.standard_normal((heads, 1, 1)).astype(np.float32), RNG.standard_normal((1, s, 1, 1)).astype(np.float32)
    b = Builder("strided")
    x, c, r = (b.input(type_of(a)) for a in (projection, column, row))
    parts = []
    for k in range(3):
        (y,) = b.append(Slice((0, 0, k * heads * d), (batch, s, heads * d), (1, 1, 1)), [x])
        (y,) = b.append(Reshape((batch, s, heads, d)), [y])
        parts.append(b.append(Transpose((0, 2, 1, 3)), [y])[0])
    (bias,) = b.append(BroadcastTo((1, heads, 1, s)), [c])
    op = Attention(0.3, 0.0, (True, True, True, True))
    out, peak, total = b.append(op, [*parts, bias])
    (g,) = b.append(BroadcastTo((batch, s, heads, d)), [r])
    graph = b.finish([out, *b.append(AttentionGrad(op.scale, op.fill, op.sequence_first), [*parts, out, peak, total, g, bias])])
    q, k, v = (projection[..., j * heads * d : (j + 1) * heads * d].reshape(batch, s, heads, d).swapaxes(1, 2) for j in range(3))
    wanted_g = np.broadcast_to(row, (batch, s, heads, d)).swapaxes(1, 2)
    want = [x.swapaxes(1, 2) for x in reference(q, k, v, wanted_g, np.broadcast_to(column, (1, heads, 1, s)), 0.3, 0.0)]
    close(call(graph, [projection, column, row]), want, 3e-6)
    program = lower(run_pipeline(graph)[0], (), TARGETS[max(TARGETS)])
    assert [step.title.split("[")[0] for step in program.steps] == ["attention", "attention_grad"]  # no copies


@pytest.mark.slow
@pytest.mark.parametrize("turned", ["", "k", "v", "kv"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 3e-6), (np.float64, 1e-13), (np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)])
@pytest.mark.parametrize("width", list(TARGETS))
def test_few_queries_read_keys_and_values_where_they_lie(width: int, dtype: Any, tolerance: float, turned: str) -> None:
    """They lie as they are or transposed; both are the ends of longer rows, beside memory that must not be read."""
    for m, n, d, e in [(1, 9, 5, 3), (4, 530, 40, 33), (9, 67, 64, 64), (9, 700, 16, 33)]:
        q, k, v, _ = operands((2,), m, n, d, e, dtype)
        kept = [x.swapaxes(-2, -1).copy() if name in turned else x for name, x in (("k", k), ("v", v))]
        rows = [np.concatenate([np.full((*x.shape[:-1], 6), np.nan, x.dtype), x], -1) for x in kept]
        b = Builder("few")
        left, *long = (b.input(type_of(x)) for x in (q, *rows))
        keys, values = (b.append(Slice((0, 0, 6), x.shape, (1, 1, 1)), [y])[0] for x, y in zip(kept, long, strict=True))
        if "k" in turned:
            (keys,) = b.append(Transpose((0, 2, 1)), [keys])
        if "v" in turned:
            (values,) = b.append(Transpose((0, 2, 1)), [values])
        graph = b.finish([b.append(Attention(0.2), [left, keys, values])[0]])
        want = reference(q, k, v, np.zeros((2, m, e)), None, 0.2, 0.0)[:1]
        for at_end in (True, False):
            close(run_guarded(run_pipeline(graph)[0], [q, *rows], TARGETS[width], at_end), want, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("powers", [False, True])
@pytest.mark.parametrize("width", list(TARGETS))
def test_no_access_outside_of_buffers(width: int, powers: bool) -> None:
    for m, n, d, e in [(5, 19, 3, 7), (37, 70, 20, 33)]:
        q, k, v, g = operands((2,), m, n, d, e)
        for mask in ([RNG.random((1, 1, n)) < 0.8], [RNG.standard_normal((2, m, n)).astype(np.float32)]):
            graph = attention_graph([type_of(x) for x in (q, k, v, *mask)], type_of(g), Attention(0.5, -1e9, powers=powers))
            for at_end in (True, False):
                got = run_guarded(graph, [q, k, v, *mask, g], TARGETS[width], at_end)
                close(got, reference(q, k, v, g, mask[0] if mask else None, 0.5, -1e9), 3e-6)


def test_results_do_not_depend_on_the_split_into_blocks() -> None:
    """The guarded runs execute the second half of the blocks first; the executable runs them in order, perhaps on several threads."""
    q, k, v, g = operands((2,), 150, 530, 16, 16)
    graph = attention_graph([type_of(x) for x in (q, k, v)], type_of(g), Attention(0.25))
    target = TARGETS[max(TARGETS)]
    one, other = run_guarded(graph, [q, k, v, g], target, True), run_guarded(graph, [q, k, v, g], target, False)
    again = call(graph, [q, k, v, g])
    for x, y, z in zip(one, other, again, strict=True):
        assert x.tobytes() == y.tobytes()
        np.testing.assert_allclose(x, z, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("width", list(TARGETS))
@pytest.mark.parametrize("form", ["no mask", "causal", "padded", "later"])
def test_blocks_find_the_panels_of_those_before(form: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits as from blocks that pack their own."""
    m, n, d, e = 300, 530, 20, 24
    q, k, v, g = operands((2,), m, n, d, e)
    keys, queries = np.arange(n)[None, None], np.arange(m)[None, :, None]
    hide = {"no mask": [], "causal": [keys <= queries], "padded": [keys < np.array([40, 530])[:, None, None]], "later": [keys > queries + 100]}[form]
    masks = [np.ascontiguousarray(np.broadcast_to(x, (len(x), m, n))) for x in hide]
    graph = attention_graph([type_of(x) for x in (q, k, v, *masks)], type_of(g), Attention(0.3, -1e9))
    kept = run_guarded(graph, [q, k, v, *masks, g], TARGETS[width], at_end=True)
    assert kept[0].tobytes() == run_guarded(graph, [q, k, v, *masks, g], TARGETS[width], at_end=False)[0].tobytes()
    monkeypatch.setattr("graphcell.codegen.llvm.attention._MOST_KEPT_BYTES", 0)
    packed = run_guarded(graph, [q, k, v, *masks, g], TARGETS[width], at_end=True)
    for x, y in zip(kept, packed, strict=True):
        assert x.tobytes() == y.tobytes()
    close(kept, reference(q, k, v, g, masks[0] if masks else None, 0.3, -1e9), 3e-6)


class Forward:
    """A compiled forward plan on its own: scratch memory has guards and begins as NaN for each range of blocks."""

    def __init__(self, m: int, n: int, d: int, e: int, target: Target, turned: bool = False, mask: Array | None = None, batch: int = 3):
        self.q, self.k, self.v, self.g = operands((batch,), m, n, d, e)
        self.mask, self.shape = mask, (batch, m, e)
        keys = Operand("float", 1, n, (d * n,)) if turned else Operand("float", d, 1, (d * n,))
        across = None if mask is None else Operand("i1", n, 1, (0,))
        lies = Operand("float", d, 1, (m * d,)), keys, Operand("float", e, 1, (n * e,)), Operand("float", e, 1, (m * e,))
        spec = AttentionSpec(m, n, d, e, (batch,), 0.3, *lies, across, -1e9)
        runner = compile_plan(lambda module, target: emit_attention(module, "attention", spec, target), target)
        self.runner = replace(runner, plan=replace(runner.plan, shared=(("c1", batch * m * 4), ("c2", batch * m * 4))))
        self.inputs = {"a": self.q, "b": np.ascontiguousarray(self.k.swapaxes(1, 2)) if turned else self.k, "d": self.v}
        if mask is not None:
            self.inputs["e"] = mask

    @property
    def blocks(self) -> int:
        return self.runner.plan.stages[0].blocks

    def __call__(self, *cuts: float) -> Array:
        runner = with_chunks(self.runner, *cuts) if cuts else self.runner
        return runner(self.inputs, "c", self.shape, np.dtype(np.float32))

    def check(self) -> None:
        """Right, and the same bits from blocks in one range, in ranges that begin amid a batch entry, and one by one."""
        whole = self()
        close([whole], reference(self.q, self.k, self.v, self.g, self.mask, 0.3, -1e9)[:1], 3e-6)
        for cuts in ([0.2, 0.55, 0.8], [(k + 0.5) / self.blocks for k in range(1, self.blocks)]):
            assert self(*cuts).tobytes() == whole.tobytes()


@pytest.mark.parametrize("width", list(TARGETS))
@pytest.mark.parametrize("form", ["no mask", "causal", "later"])
def test_ranges_of_blocks_may_begin_anywhere(form: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_ROWS", 40)
    monkeypatch.setattr(attention, "_KEYS", 64)
    m, n = 100, 150
    keys, queries = np.arange(n)[None], np.arange(m)[:, None]
    mask = {"no mask": None, "causal": keys <= queries, "later": keys > queries + 60}[form]
    run = Forward(m, n, 20, 24, TARGETS[width], mask=mask)
    assert run.blocks == 12
    run.check()


@pytest.mark.slow
@pytest.mark.parametrize("width", list(TARGETS))
@pytest.mark.parametrize(("m", "n", "d", "e"), [(45, 635, 31, 16), (45, 733, 60, 8), (44, 570, 9, 229), (24, 596, 10, 105), (336, 626, 8, 28)], ids=str)
def test_a_rest_of_the_keys_has_room_where_others_are_read_where_they_lie(m: int, n: int, d: int, e: int, width: int) -> None:
    """A chunk of fewer keys may have more tiles of rows, for which its keys are packed."""
    for l2_bytes in (1 << 16, 2 << 20):
        Forward(m, n, d, e, replace(TARGETS[width], l2_bytes=l2_bytes), turned=True, batch=2).check()


def test_scratch_memory_grows_with_the_cache() -> None:
    x = Operand("float", 64, 1, (4096 * 64,))
    spec = AttentionSpec(4096, 4096, 64, 64, (1,), 0.25, x, x, x, x)
    notes = [emit_attention(Module(), "attention", spec, replace(TARGETS[max(TARGETS)], l2_bytes=size)).note for size in (1 << 19, 1 << 20, 2 << 20)]
    assert notes[0] == notes[1] != notes[2] and "chunks of 512 keys" in notes[2]


def test_panels_of_many_keys_are_packed_by_each_block() -> None:
    """Scratch memory has room for those of all keys, if that is not too much."""
    target, sizes = replace(TARGETS[max(TARGETS)], l2_bytes=2 << 20), {}
    for n in (512, 4096, 40960):
        x = Operand("float", 64, 1, (n * 64,))
        plan = emit_attention(Module(), "attention", AttentionSpec(1024, n, 64, 64, (2,), 0.25, x, x, x, x), target)
        sizes[n] = plan.scratch_bytes
    assert sizes[4096] - sizes[512] >= (4096 - 512) * 128 * 4 and sizes[40960] < sizes[4096]


def test_memory_does_not_grow_with_the_square_of_the_sequence() -> None:
    q, k, v, g = (TensorType(dt.float32, (1, 2, 4096, 32)) for _ in range(4))
    program = lower(attention_graph([q, k, v], g, Attention(0.2)), (), TARGETS[max(TARGETS)])
    assert program.arena_bytes <= 8 * q.nbytes


def test_empty_operands() -> None:
    for batch, m, n in [((0, 2), 3, 4), ((1, 1), 0, 4)]:
        q, k, v, g = operands(batch, m, n, 2, 2)
        got = call(attention_graph([type_of(x) for x in (q, k, v)], type_of(g), Attention(1.0)), [q, k, v, g])
        close(got, [np.zeros(x.shape) for x in (q, q, k, v)], 0.0)
