"""Functions of mint that MindSpore lists without a CPU: results and gradients."""

from __future__ import annotations

from typing import Any

from tests.expressions import Calls, programs_of
from tests.programs.mint import BOOL, BOOLS, CUBE, ODD, PLACES, POSITIVE, A, B, C, D, H, I, J, L

SQUARE = "T((3, 3))"
HOLES = "Tensor(np.array([[1.0, np.nan, 2.0], [np.nan, 3.0, -4.0]], np.float32))"
ROWS = "Tensor(np.array([1, 0, 1], np.int64))"
COLUMNS = "Tensor(np.array([2, 0], np.int32))"
COUNTS = "Tensor(np.array([1, 2, 1, 0, 5, 2], np.int64))"
UNSORTED = "Tensor(np.array([3, 1, 2, 1, 3, 3], np.int32))"
GRID = "Tensor(np.array([[1, 2], [3, 4], [1, 2]], np.int32))"
MATRICES, OTHERS = "T((2, 2, 3))", "T((2, 3, 4), 1.0)"
PAIRS = [(A, B), (A, C), (I, J), (I, A), (A, "2.0"), (I, "2"), (I, "2.5")]
DIMS = ["x", "x, 1", "x, dim=-1", "x, dim=1, keepdim=True"]
SPREADS = ["x", "x, 1", "x, dim=-1, keepdim=True", "x, dim=(0, 2)", "x, dim=1, correction=0", "x, correction=2"]

CALLS: Calls = [
    # arithmetic
    *[("M.mul(x, y)", [a, b]) for a, b in (*PAIRS, (BOOLS, I), (BOOLS, BOOL), ("2.5", I), (H, A), (D, A))],
    *[(f"M.div(x, y{m})", [a, b]) for m in ("", ", rounding_mode='floor'", ", rounding_mode='trunc'") for a, b in ((A, B), (I, J), (A, "2.0"), (I, "2"))],
    ("M.div(input=x, other=y)", [I, A]),
    *[("M.pow(x, y)", [a, b]) for a, b in ((POSITIVE, B), (I, "2"), (A, "2"), (A, "3.0"), ("2.0", A), ("2", I), (I, "0.5"), (POSITIVE, "0.5"), (POSITIVE, C), (H, "2"), (POSITIVE, I), (A, "0"))],
    ("M.pow(input=x, exponent=y)", [A, "2"]),
    *[("M.remainder(x, y)", [a, b]) for a, b in (*PAIRS, ("7", J), ("7.5", A))],
    *[("M.fmod(x, y)", [a, b]) for a, b in PAIRS],
    *[(f"M.clamp({m})", [a]) for m in ("x, 0.5", "x, -1, 1", "x, min=-0.5", "x, max=0.5", "x, min=0.2, max=-0.2", "x, None, 1.0") for a in (A, I)],
    ("M.clamp(x, y, z)", [A, B, C]),
    ("M.clamp(x, min=y)", [A, B]),
    ("M.clamp(x, max=y)", [A, C]),
    *[(f"M.{n}(x)", [a]) for n in ("frac", "fix") for a in (A, H)],
    *[(f"M.{n}(x)", [a]) for n in ("log2", "log10") for a in (POSITIVE, "Tensor(np.array([1, 4, 9], np.int32))")],
    *[(f"M.{n}(x, y)", [a, b]) for n in ("atan2", "arctan2") for a, b in ((A, B), (A, C), (I, J))],
    *[(f"M.{n}(x, y)", [A, B]) for n in ("logaddexp", "logaddexp2")],
    *[(f"M.addcdiv(x, y, z{m})", [A, B, POSITIVE]) for m in ("", ", value=0.5")],
    ("M.addcdiv(x, y, z, value=2)", [A, C, POSITIVE]),
    *[(f"M.{n}(x, y)", [a, b]) for n in ("bitwise_and", "bitwise_or", "bitwise_xor") for a, b in ((I, J), (I, "3"), (BOOLS, BOOL), (L, J))],
    *[("M.bitwise_not(x)", [a]) for a in (I, BOOLS)],
    *[("M.isnan(x)", [a]) for a in (ODD, I)],
    *[("M.equal(x, y)", [a, b]) for a, b in ((A, B), (A, A), (I, I), (A, C))],
    ("M.imag(x)", [A]),
    ("M.real(x)", [I]),
    ("M.clone(x)", [A]),
    # reductions
    *[(f"M.{n}({m})", [a]) for n in ("argmax", "argmin") for m in DIMS for a in (CUBE, I)],
    *[(f"M.{n}({m})", [CUBE]) for n in ("var", "std", "var_mean", "std_mean") for m in SPREADS],
    ("M.var(x)", [H]),
    *[(f"M.norm(x{m})", [CUBE]) for m in ("", ", 2", ", 1", ", p=3.0", ", float('inf')", ", float('-inf')", ", 0", ", 2, 1", ", p=1, dim=(0, 2)", ", 2, dim=-1, keepdim=True", ", dim=(0, 1)", ", 'fro', (0, 1), True", ", dtype=ms.float64")],
    ("M.norm(x, 'nuc')", [A]),
    *[(f"M.logsumexp({m})", [a]) for m in ("x, 1", "x, dim=-1, keepdim=True", "x, (0, 1)") for a in (CUBE,)],
    ("M.logsumexp(x, 0)", [I]),
    *[(f"M.median({m})", [a]) for m in ("x", "x, 1", "x, dim=-1, keepdim=True") for a in (CUBE, I)],
    *[(f"M.nansum({m})", [HOLES]) for m in ("x", "x, 1", "x, dim=(0, 1), keepdim=True", "x, dim=0, dtype=ms.float64")],
    *[(f"M.count_nonzero({m})", [a]) for m in ("x", "x, 1", "x, dim=(0, 1)") for a in (I, BOOLS, A)],
    *[(f"M.kthvalue({m})", [CUBE]) for m in ("x, 2", "x, 1, 1", "x, k=3, dim=1, keepdim=True")],
    *[(f"M.bincount(x{m})", [COUNTS]) for m in ("", ", minlength=10")],
    ("M.bincount(x, y)", [COUNTS, "Tensor(np.array([1, 2, 3, 4, 5, 6], np.int64))"]),
    *[(f"M.histc(x{m})", [CUBE]) for m in (", 4", ", bins=5, min=-1, max=1", "")],
    *[(f"M.cumsum({m})", [a]) for m in ("x, 1", "x, dim=-1", "x, 0, dtype=ms.float64") for a in (B, I, BOOLS)],
    *[(f"M.{n}({m})", [a]) for n in ("cummax", "cummin") for m in ("x, 1", "x, dim=-1", "x, 0") for a in (B, CUBE, I)],
    *[(f"M.diff(x{m})", [a]) for m in ("", ", 2", ", dim=0", ", n=1, dim=-1") for a in (CUBE, I)],
    ("M.diff(x, prepend=y)", [A, "T((2, 1))"]),
    ("M.diff(x, 1, 0, y, z)", [A, "T((1, 3))", "T((2, 3), 3.0)"]),
    ("M.trace(x)", [SQUARE]),
    ("M.trace(x)", [I]),
    # products
    ("M.mm(x, y)", [A, "T((3, 4))"]),
    ("M.mm(input=x, mat2=y)", [A, "T((3, 4))"]),
    ("M.mv(x, y)", [A, C]),
    ("M.dot(x, y)", [C, "T((3,))"]),
    ("M.outer(x, y)", [C, "T((2,))"]),
    *[(f"M.baddbmm(x, y, z{m})", ["T((2, 2, 4), 3.0)", MATRICES, OTHERS]) for m in ("", ", beta=0.5, alpha=2")],
    ("M.baddbmm(x, y, z)", ["T((4,), 3.0)", MATRICES, OTHERS]),
    *[(f"M.addbmm(x, y, z{m})", ["T((2, 4), 3.0)", MATRICES, OTHERS]) for m in ("", ", beta=0.5, alpha=2")],
    *[(f"M.addmm(x, y, z{m})", [a, A, "T((3, 4))"]) for m in ("", ", beta=0.5, alpha=2.0") for a in ("T((2, 4), 3.0)", "T((4,), 3.0)")],
    *[(f"M.addmv(x, y, z{m})", ["T((2,), 3.0)", A, C]) for m in ("", ", beta=0.5, alpha=2")],
    ("M.einsum('ij,jk->ik', x, y)", [A, "T((3, 4))"]),
    ("M.einsum('bij,bjk->bik', x, y)", [MATRICES, OTHERS]),
    ("M.einsum('ij->ji', x)", [A]),
    ("M.einsum('i,i->', x, y)", [C, "T((3,))"]),
    ("M.einsum('...ij,...jk', x, y)", [MATRICES, OTHERS]),
    ("M.einsum('ii->i', x)", [SQUARE]),
    ("M.triangular_solve(x, y)", ["T((3, 2))", "Tensor(np.triu(ramp((3, 3))) + 3 * np.eye(3, dtype=np.float32))"]),
    ("M.inverse(x)", ["Tensor(ramp((3, 3)) + 3 * np.eye(3, dtype=np.float32))"]),
    ("M.inverse(x)", ["Tensor(ramp((2, 2, 2)) + 3 * np.eye(2, dtype=np.float32))"]),
    ("M.linalg.inv(x)", ["Tensor(ramp((3, 3)) + 3 * np.eye(3, dtype=np.float32))"]),
    *[(f"M.linalg.vector_norm(x{m})", [CUBE]) for m in ("", ", 1", ", 3.0", ", float('inf')", ", 2, 1", ", ord=2, dim=(0, 1), keepdim=True", ", dtype=ms.float64")],
    *[(f"M.linalg.matrix_norm(x{m})", [CUBE]) for m in ("", ", 'fro', (0, 1)", ", 1", ", float('inf')", ", -1", ", ord='fro', dim=(0, 2), keepdim=True")],
    *[(f"M.linalg.matrix_norm(x{m})", [A]) for m in (", 2", ", 'nuc'", ", -2")],
    *[(f"M.linalg.norm(x{m})", [CUBE]) for m in ("", ", 1, (0, 1)", ", 2, 1", ", 'fro', (1, 2)", ", dim=-1, keepdim=True", ", ord=float('inf'), dim=0")],
    ("M.linalg.qr(x)", ["Tensor(ramp((3, 3)) + 3 * np.eye(3, dtype=np.float32))"]),
    # shapes
    *[(f"M.chunk(x{m})", [CUBE]) for m in (", 2", ", 2, 1", ", chunks=3, dim=-1", ", 5, 2")],
    *[(f"M.split(x{m})", [CUBE]) for m in (", 1", ", 2, 1", ", split_size_or_sections=3, dim=-1", ", (1, 3), 2", ", [1, 1, 1], dim=1")],
    ("M.split(x, 2)[0]", [CUBE]),
    *[(f"M.transpose(x{m})", [CUBE]) for m in (", 0, 1", ", dim0=0, dim1=-1", ", -1, -2")],
    ("M.swapaxes(x, 0, 2)", [CUBE]),
    ("M.swapaxes(x, axis0=1, axis1=-1)", [CUBE]),
    *[("M.t(x)", [a]) for a in (A, C)],
    *[(f"M.reshape(x, {s})", [CUBE]) for s in ("(6, 4)", "(-1,)", "(3, -1, 2)", "[4, 6]")],
    ("M.reshape(input=x, shape=(4, 6))", [CUBE]),
    *[(f"M.flatten(x{m})", [CUBE]) for m in ("", ", 1", ", start_dim=0, end_dim=1", ", 1, -1")],
    *[(f"M.squeeze(x{m})", ["T((2, 1, 3, 1))"]) for m in ("", ", 1", ", -1", ", dim=(1, 3)", ", 0")],
    *[(f"M.unsqueeze(x, {d})", [A]) for d in (0, 1, -1)],
    ("M.unsqueeze(input=x, dim=2)", [A]),
    *[(f"M.stack((x, y){m})", [A, B]) for m in ("", ", 1", ", dim=-1")],
    ("M.stack(tensors=[x, y])", [I, J]),
    *[(f"M.unbind(x{m})", [CUBE]) for m in ("", ", 1", ", dim=-1")],
    *[(f"M.broadcast_to(x, {s})", [C]) for s in ("(2, 3)", "(4, 2, -1)", "(3,)")],
    *[(f"M.narrow(x{m})", [CUBE]) for m in (", 1, 1, 2", ", 0, 0, 1", ", dim=-1, start=1, length=2")],
    *[(f"M.select(x{m})", [CUBE]) for m in (", 0, 1", ", dim=2, index=-1")],
    *[(f"M.roll(x{m})", [CUBE]) for m in (", 1, 0", ", shifts=(1, -1), dims=(0, 2)", ", 2", ", -1, 1")],
    *[(f"M.repeat_interleave(x{m})", [A]) for m in (", 2", ", 2, 1", ", repeats=2, dim=0")],
    ("M.repeat_interleave(x, y, 0)", [A, "Tensor(np.array([2, 1], np.int64))"]),
    *[(f"M.tril(x{m})", [a]) for m in ("", ", 1", ", diagonal=-1") for a in (A, CUBE, I)],
    *[(f"M.diag(x{m})", [a]) for m in ("", ", 1", ", diagonal=-1") for a in (C, SQUARE)],
    # choosing
    *[(f"M.index_select(x{m}, y)", [CUBE, r]) for m, r in ((", 0", ROWS), (", 2", COLUMNS), (", -1", COLUMNS))],
    ("M.index_select(input=x, dim=1, index=y)", [A, COLUMNS]),
    ("M.index_add(x, 0, y, z)", [A, "Tensor(np.array([1, 0, 1], np.int32))", "T((3, 3), 1.0)"]),
    ("M.index_add(x, dim=1, index=y, source=z)", [A, COLUMNS, "T((2, 2), 1.0)"]),
    ("M.index_add(x, 1, y, z, alpha=2)", [A, COLUMNS, "T((2, 2), 1.0)"]),
    ("M.scatter_add(x, 0, y, z)", [A, PLACES, B]),
    ("M.scatter_add(input=x, dim=1, index=y, src=z)", [A, "Tensor(np.array([[0, 2], [1, 1]], np.int64))", "T((2, 2), 3.0)"]),
    ("M.take(x, y)", [A, "Tensor(np.array([[5, 0], [2, 2]], np.int64))"]),
    *[(f"M.topk(x{m})", [CUBE]) for m in (", 2", ", 2, 1", ", k=1, dim=0, largest=False", ", 3, -1, True, True")],
    *[(f"M.sort(x{m})", [a]) for m in ("", ", dim=1", ", descending=True", ", dim=0, stable=True") for a in (CUBE, I)],
    *[(f"M.argsort(x{m})", [CUBE]) for m in ("", ", 1", ", dim=0, descending=True", ", dim=-1, stable=True")],
    *[(f"M.unique(x{m})", [UNSORTED]) for m in ("", ", True, True", ", return_inverse=True, return_counts=True", ", return_counts=True", ", sorted=False")],
    ("M.unique(x, dim=0)", [GRID]),
    ("M.unique(x, True, True, True, 0)", [GRID]),
    ("M.unique(x)", [I]),
    # softmax
    *[(f"M.softmax(x{m})", [CUBE]) for m in (", 1", ", dim=-1", ", 0, dtype=ms.float64")],
    *[(f"M.special.log_softmax(x{m})", [CUBE]) for m in (", 1", ", dim=-1", ", 0, dtype=ms.float64")],
    # creation
    *[(f"M.arange({m})", []) for m in ("5", "1, 5", "0, 1, 0.25", "start=2, end=9, step=3", "4.0", "3, dtype=ms.float32", "5, 1, -2")],
    *[(f"M.linspace({m})", []) for m in ("0, 1, 5", "start=-1, end=2, steps=4", "0, 1, 4, dtype=ms.float64", "0, 10, 3, dtype=ms.int64", "1.5, 1.5, 1")],
    *[(f"M.full_like(x, {m})", [a]) for m in ("2", "1.5", "fill_value=3, dtype=ms.float16") for a in (A, I)],
    *[(f"M.{m}.{n}", []) for m in ("rand(2, 3)", "rand((2, 3))", "randn(4)", "randn(2, 3, dtype=ms.float64)", "randint(5, (2, 3))", "randint(1, 5, (3,), dtype=ms.int32)", "randperm(5)", "randperm(4, dtype=ms.int32)", "normal(0.0, 1.0, (2, 3))") for n in ("shape", "dtype")],
    *[(f"M.{m}.{n}", [A]) for m in ("rand_like(x)", "randn_like(x)", "rand_like(x, dtype=ms.float64)", "randint_like(x, 5)", "randint_like(x, 1, 5, dtype=ms.int64)", "normal(x)", "normal(x, 2.0)", "normal(0.0, M.abs(x))", "bernoulli(M.sigmoid(x))", "multinomial(M.sigmoid(x), 2)", "multinomial(M.sigmoid(x), 5, True)") for n in ("shape", "dtype")],
    *[(f"M.{m}", []) for m in ("randint(3, 4, (2,))", "normal(2.0, 0.0, (3,))")],
    ("M.bernoulli(x)", ["Tensor(np.array([0.0, 1.0, 1.0], np.float32))"]),
    ("M.conv2d(x, y)", ["T((1, 2, 4, 4))", "T((3, 2, 3, 3))"]),
]  # fmt: skip


MISTAKEN = ("M.index_add(",)
"""MindSpore's kernel adds to its operand itself, once more with each use of the result."""


def programs() -> dict[str, Any]:
    return programs_of(CALLS)
