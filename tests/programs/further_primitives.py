"""Further primitive classes of ops, and layers around them: results and gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.recording import caught, gradients, module_first, scope

A, B, C = "T((2, 3))", "T((2, 3), 1.0)", "T((3,), 2.0)"
POSITIVE = "Tensor(np.abs(ramp((2, 3))) + 0.5)"
UNIT = "Tensor(ramp((2, 3)) * 0.4)"
I = "Tensor(np.array([[1, -2, 3], [4, 5, -6]], np.int32))"
J = "Tensor(np.array([[2, 2, 2], [3, 3, 4]], np.int32))"
BOOLS = "Tensor(np.array([[True, False, True], [False, False, True]]))"
SQUARE = "Tensor(ramp((2, 3, 3)) + 3 * np.eye(3, dtype=np.float32))"
DEFINITE = "Tensor(np.array([[4, 1, 0.5], [1, 3, 0.2], [0.5, 0.2, 2]], np.float32))"
LOWER, UPPER = f"{DEFINITE}.tril()", f"{DEFINITE}.triu()"
IMAGE = "T((2, 3, 5, 4))"
VOLUME = "T((1, 2, 3, 4, 3))"

NOT_DIFFERENTIATED = (
    "Rint", "Heaviside", "Cummax", "Cummin", "Histogram", "Bincount", "FillDiagonal", "Cholesky(", "Lstsq", "Qr", "LogSpace", "ChannelShuffle",
    "BoundingBox", "NMSWithMask", "MatrixInverse(adjoint", "CholeskyInverse", "CholeskySolve", "CTCGreedy", "Inplace", "EmbeddingLookup", "CropAndResize", "IOU", "NextAfter", "MultiMarginLoss(2",
)  # fmt: skip
"""Calls of which MindSpore differentiates nothing, or only a part, or wrongly."""

# expression of a callable, its inputs
CALLS: list[tuple[str, list[str]]] = [
    # -- element by element
    *[(f"ops.{n}()", [POSITIVE]) for n in ("Lgamma", "Digamma")],
    *[(f"ops.{n}()", [A]) for n in ("Rint", "L2Loss", "Sinc", "CeLU", "HShrink", "SoftShrink")],
    ("ops.CeLU(0.7)", [A]),
    ("ops.HShrink(1.0)", [A]),
    ("ops.SoftShrink(lambd=0.25)", [A]),
    ("ops.Erfinv()", [UNIT]),
    ("ops.GLU()", ["T((2, 4))"]),
    ("ops.GLU(axis=0)", ["T((2, 4))"]),
    ("ops.Logit()", ["Tensor(np.array([0.1, 0.5, 0.8], np.float32))"]),
    ("ops.Logit(eps=0.2)", ["Tensor(np.array([0.1, 0.5, 0.8], np.float32))"]),
    ("ops.NanToNum()", ["Tensor(np.array([np.nan, np.inf, -np.inf, 1], np.float32))"]),
    ("ops.NanToNum(1.0, 2.0, 3.0)", ["Tensor(np.array([np.nan, np.inf, -np.inf, 1], np.float32))"]),
    ("ops.Mvlgamma(2)", ["Tensor(np.abs(ramp((2, 3))) + 1.5)"]),
    ("ops.PopulationCount()", ["Tensor(np.array([1, -2, 255, 0], np.int16))"]),
    ("ops.Polygamma()", ["Tensor(np.array(2, np.int32))", POSITIVE]),
    *[(f"ops.{n}()", [A, B]) for n in ("DivNoNan", "MulNoNan", "Xdivy", "Fmax", "Hypot", "SquaredDifference", "SquareSumAll", "IsClose", "Heaviside", "NextAfter")],
    *[(f"ops.{n}()", [A, C]) for n in ("DivNoNan", "Xdivy", "SquaredDifference", "Hypot")],
    ("ops.DivNoNan()", [A, "ops.zeros_like(T((2, 3)))"]),
    ("ops.SquaredDifference()", [A, "2.0"]),
    ("ops.IsClose(0.1, 0.5)", [A, B]),
    *[(f"ops.{n}()", [I, J]) for n in ("Gcd", "Lcm", "LeftShift", "RightShift", "SquaredDifference", "EqualCount")],
    ("ops.Addcdiv()", [A, B, POSITIVE, "Tensor([0.5])"]),
    ("ops.Addcmul()", [A, B, C, "Tensor([0.5])"]),
    ("ops.Lerp()", [A, B, "Tensor(0.3)"]),
    ("ops.Lerp()", [A, B, "0.3"]),
    ("ops.Lerp()", [A, B, C]),
    ("ops.Cross()", [A, B]),
    ("ops.Cross(dim=0)", ["T((3, 2))", "T((3, 2), 1.0)"]),
    # -- reductions and scans
    ("ops.Cdist()", ["T((3, 2))", "T((4, 2), 1.0)"]),
    ("ops.Cdist(p=1.0)", ["T((2, 3, 2))", "T((2, 4, 2), 1.0)"]),
    ("ops.Cdist(3.0)", ["T((3, 2))", "T((4, 2), 1.0)"]),
    ("ops.Pdist()", ["T((4, 3))"]),
    ("ops.Pdist(p=1.0)", ["T((4, 3))"]),
    ("ops.Renorm(2, 0, 1.0)", [A]),
    ("ops.Renorm(p=1, dim=1, maxnorm=0.5)", [A]),
    ("ops.ReduceStd()", [A]),
    ("ops.ReduceStd(axis=1)", [A]),
    ("ops.ReduceStd((0, 1), False, True)", [A]),
    ("ops.Cummax(1)", [A]),
    ("ops.Cummin(axis=0)", [A]),
    ("ops.CumulativeLogsumexp()", [A, "Tensor(1)"]),
    ("ops.CumulativeLogsumexp(True, True)", [A, "Tensor(1)"]),
    ("ops.Median()", [A]),
    ("lambda x: ops.Median(global_median=True)(x)[0]", [A]),
    ("ops.Median(axis=1, keep_dims=True)", [A]),
    ("ops.Trace()", ["T((3, 3))"]),
    ("ops.Trace()", [A]),
    ("ops.Ger()", ["T((3,))", "T((2,))"]),
    ("ops.Dense()", [A, "T((4, 3))", "T((4,))"]),
    ("ops.Histogram(4, -2.0, 2.0)", [A]),
    ("ops.Bincount()", ["Tensor([1, 3, 1], ms.int32)", "Tensor(5, ms.int32)", "Tensor([0.5, 1.0, 2.0])"]),
    ("ops.Bucketize([-1.0, 0.0, 1.0])", [A]),
    ("ops.SearchSorted()", ["Tensor([0.0, 1.0, 1.0, 3.0])", "Tensor([0.5, 1.0, 4.0])"]),
    # -- matrices
    ("ops.Tril()", [SQUARE]),
    ("ops.Tril(diagonal=-1)", [SQUARE]),
    ("ops.Triu()", [SQUARE]),
    ("ops.Triu(1)", [SQUARE]),
    ("ops.Tril()", ["Tensor(np.arange(9).reshape(3, 3))"]),
    ("ops.TrilIndices(3, 4)", []),
    ("ops.TrilIndices(3, 4, 1, ms.int64)", []),
    ("ops.TriuIndices(3, 4, offset=-1)", []),
    ("ops.Diag()", [C]),
    ("ops.Diag()", [A]),
    ("ops.DiagPart()", ["T((3, 3))"]),
    ("ops.DiagPart()", ["T((2, 3, 2, 3))"]),
    ("ops.FillDiagonal(9.0)", ["T((3, 3))"]),
    ("ops.FillDiagonal(9.0, True)", ["T((7, 3))"]),
    ("ops.MatrixInverse()", [SQUARE]),
    ("ops.MatrixInverse(adjoint=True)", [SQUARE]),
    ("ops.MatrixDeterminant()", [SQUARE]),
    ("ops.LogMatrixDeterminant()", [SQUARE]),
    ("ops.MatrixPower(2)", [SQUARE]),
    ("ops.MatrixPower(n=-1)", [SQUARE]),
    ("ops.MatrixSolve()", [SQUARE, "T((2, 3, 2))"]),
    ("ops.MatrixSolve(adjoint=True)", [SQUARE, "T((2, 3, 2))"]),
    ("ops.MatrixTriangularSolve()", [SQUARE, "T((2, 3, 2))"]),
    ("ops.MatrixTriangularSolve(lower=False, adjoint=True)", [SQUARE, "T((2, 3, 2))"]),
    ("ops.Cholesky()", [DEFINITE]),
    ("ops.Cholesky(upper=True)", [DEFINITE]),
    ("ops.CholeskyInverse()", [LOWER]),
    ("ops.CholeskyInverse(True)", [UPPER]),
    ("ops.CholeskySolve()", ["T((3, 2))", LOWER]),
    ("ops.CholeskySolve(upper=True)", ["T((3, 2))", UPPER]),
    ("ops.Lstsq()", ["T((4, 2))", "T((4, 3), 1.0)"]),
    ("ops.Svd(compute_uv=False)", [A]),
    ("lambda x: [ops.abs(y) for y in ops.Svd()(x)]", [A]),
    ("lambda x: [ops.abs(y) for y in ops.Qr()(x)]", [A]),
    ("lambda x: [ops.abs(y) for y in ops.Qr(True)(x)]", ["T((3, 2))"]),
    ("lambda x: ops.MatrixDiagV3()(x, INT(1), INT(4), INT(4), Tensor(0.5))", [A]),
    ("lambda x: ops.MatrixDiagV3(align='LEFT_RIGHT')(x, INT([-1, 0]), INT(3), INT(3), Tensor(0.0))", [A]),
    ("lambda x: ops.MatrixDiagV3(align='RIGHT_RIGHT')(x, INT([-1, 1]), INT(3), INT(-1), Tensor(0.25))", ["T((2, 3, 3))"]),
    ("lambda x: ops.MatrixDiagV3()(x, INT(-1), INT(-1), INT(-1), Tensor(0.25))", ["T((2, 3))"]),
    ("lambda x: ops.MatrixDiagV3()(x, INT(2), INT(-1), INT(-1), Tensor(0.25))", ["T((2, 3))"]),
    ("lambda x: ops.MatrixDiagV3()(x, INT(2), INT(-1), INT(6), Tensor(0.25))", ["T((2, 3))"]),
    ("lambda x: ops.MatrixDiagV3()(x, INT(-2), INT(7), INT(-1), Tensor(0.25))", ["T((2, 3))"]),
    ("lambda x: ops.MatrixDiagPartV3()(x, INT(1), Tensor(0.0))", ["T((3, 4))"]),
    ("lambda x: ops.MatrixDiagPartV3()(x, INT([-1, 1]), Tensor(9.0))", ["T((2, 3, 4))"]),
    ("lambda x: ops.MatrixDiagPartV3(align='LEFT_RIGHT')(x, INT([-2, 2]), Tensor(9.0))", ["T((2, 3, 4))"]),
    # -- selecting, indexing
    ("ops.NonZero()", [I]),
    ("ops.NonZero()", [BOOLS]),
    ("ops.Unique()", ["Tensor(np.array([3, 1, 3, 2, 1], np.int32))"]),
    ("ops.Unique()", ["Tensor(np.array([[0.5, -1.0], [0.5, 2.0]], np.float32))"]),
    ("lambda x: ops.UniqueConsecutive()(x)[0]", ["Tensor([1, 1, 2, 2, 1], ms.int32)"]),
    ("ops.UniqueConsecutive(True, True, 0)", ["Tensor([[1, 2], [1, 2], [3, 4]], ms.int32)"]),
    ("ops.MaskedSelect()", [A, BOOLS]),
    ("ops.MaskedSelect()", [A, "Tensor([True, False, True])"]),
    ("ops.MaskedScatter()", [A, BOOLS, "T((6,), 3.0)"]),
    ("ops.IndexAdd(axis=1)", ["P((2, 3))", "Tensor([0, 2], ms.int32)", "T((2, 2), 1.0)"]),
    ("lambda x: ops.IndexFill()(x, INT(1), INT([0, 2]), Tensor(5.0))", [A]),
    ("ops.InplaceAdd(indices=(0, 1))", ["T((3, 2))", "T((2, 2), 1.0)"]),
    ("ops.InplaceSub((0, 2))", ["T((3, 2))", "T((2, 2), 1.0)"]),
    ("ops.InplaceSub(1)", ["T((3, 2))", "T((1, 2), 1.0)"]),
    ("ops.InplaceUpdateV2()", ["T((3, 2))", "(0, 1)", "T((2, 2), 1.0)"]),
    ("ops.InplaceIndexAdd(0)", ["P((3, 2))", "Tensor([0, 2], ms.int32)", "T((2, 2), 1.0)"]),
    ("ops.InvertPermutation()", ["(2, 0, 1)"]),
    ("ops.IndexPut()", ["T((3, 2))", "Tensor([5.0, 6.0])", "[Tensor([0, 2], ms.int32), Tensor([1, 1], ms.int32)]"]),
    ("ops.IndexPut(accumulate=1)", ["T((3, 2))", "Tensor([5.0, 6.0])", "[Tensor([0, 0], ms.int32), Tensor([1, 1], ms.int32)]"]),
    ("ops.TensorScatterElements()", ["T((3, 3))", "Tensor([[1, 0, 2], [0, 2, 1]], ms.int32)", A]),
    ("ops.TensorScatterElements(1, 'add')", ["T((2, 4))", "Tensor([[1, 0, 1], [0, 3, 1]], ms.int32)", A]),
    ("ops.UnravelIndex()", ["Tensor([3, 5], ms.int32)", "Tensor([2, 3], ms.int32)"]),
    *[(f"ops.UnsortedSegment{n}()", ["T((4, 2))", "Tensor([0, 2, 0, 2], ms.int32)", "3"]) for n in ("Max", "Min", "Prod")],
    ("ops.EmbeddingLookup()", ["T((4, 2))", "Tensor([[5, 2], [8, 3]], ms.int32)", "2"]),
    ("ops.ReverseSequence(seq_dim=1)", [A, "Tensor([2, 3])"]),
    ("ops.ReverseSequence(0, 1)", ["T((4, 2, 2))", "Tensor([2, 3], ms.int64)"]),
    ("ops.Meshgrid()", ["(T((2,)), T((3,)))"]),
    ("ops.Meshgrid(indexing='ij')", ["(T((2,)), T((3,)), T((2,)))"]),
    ("ops.LinSpace()", ["Tensor(1.0)", "Tensor(3.0)", "5"]),
    ("ops.LogSpace(steps=4, base=2)", ["Tensor(1.0)", "Tensor(3.0)"]),
    *[(f"ops.{n}Window({s})", ["Tensor(5, ms.int64)"]) for n in ("Bartlett", "Blackman") for s in ("", "False")],
    *[(f"ops.HammingWindow({s})", ["Tensor([5], ms.int64)"]) for s in ("", "False", "True, 0.6, 0.4")],
    ("ops.SparseToDense()", ["Tensor([[0, 1], [1, 2]], ms.int32)", "Tensor([5.0, 6.0])", "(2, 3)"]),
    ("ops.IdentityN()", [f"({A}, {B})"]),
    ("ops.ScalarToTensor()", ["3"]),
    ("ops.ScalarToTensor()", ["3", "ms.int32"]),
    ("ops.TensorShape()", [A]),
    ("ops.TupleToArray()", ["(1, 2, 3)"]),
    ("ops.TensorToTuple()", ["Tensor([1, 2, 3])"]),
    # -- padding, blocks
    ("ops.PadV3()", ["T((1, 2, 3))", "[1, 0, 0, 2]", "Tensor(1.5)"]),
    ("ops.PadV3()", ["T((2, 3))", "Tensor([1, 1], ms.int32)", "Tensor(0.0)"]),
    ("ops.PadV3('reflect')", ["T((1, 2, 4))", "[1, 2]"]),
    ("ops.PadV3('edge')", ["T((1, 2, 4))", "(1, 2)"]),
    ("ops.PadV3(mode='circular')", ["T((1, 2, 4))", "[1, 2]"]),
    ("ops.PadV3(paddings_contiguous=False)", ["T((1, 2, 3))", "[1, 3, 0, 2]", "Tensor(1.5)"]),
    ("ops.MirrorPad()", ["T((3, 4))", "Tensor([[1, 2], [2, 1]])"]),
    ("ops.MirrorPad(mode='SYMMETRIC')", ["T((3, 4))", "Tensor([[1, 2], [2, 1]])"]),
    ("ops.SpaceToDepth(2)", ["T((1, 2, 4, 2))"]),
    ("ops.DepthToSpace(2)", ["T((1, 8, 2, 1))"]),
    ("ops.SpaceToBatchND([2, 2], [[0, 0], [1, 1]])", ["T((1, 2, 2, 4))"]),
    ("ops.SpaceToBatchND(2, [[0, 0], [1, 1]])", ["T((1, 2, 2, 4))"]),
    ("ops.ChannelShuffle(2)", ["T((1, 4, 2, 2))"]),
    ("ops.Im2Col(2)", [IMAGE]),
    ("ops.Im2Col(ksizes=[2, 3], strides=1, pads=1, dilations=[1, 1])", [IMAGE]),
    ("ops.Col2Im(kernel_size=[2, 2], dilation=[1, 1], padding=[0, 0], stride=[1, 1])", ["T((1, 3, 4, 12))", "Tensor([5, 4], ms.int32)"]),
    # -- networks
    ("ops.AdaptiveMaxPool2D((2, 3))", [IMAGE]),
    ("ops.AdaptiveMaxPool3D()", [VOLUME, "Tensor([2, 2, 2], ms.int32)"]),
    ("ops.AdaptiveAvgPool3D((2, 3, None))", [VOLUME]),
    ("ops.MaxPoolWithArgmaxV2(2)", [IMAGE]),
    ("ops.MaxPoolWithArgmaxV2(3, 2, 1, (1, 1), True, ms.int32)", [IMAGE]),
    ("ops.MaxPool3DWithArgmax(2, 1, 0)", [VOLUME]),
    ("ops.MaxUnpool2D(2)", ["T((1, 1, 2, 2))", "Tensor(np.array([[[[0, 3], [9, 15]]]]))"]),
    ("ops.MaxUnpool3D(2)", ["T((1, 1, 1, 1, 2))", "Tensor(np.array([[[[[0, 3]]]]]))"]),
    ("ops.LRN()", [IMAGE]),
    ("ops.LRN(2, 0.5, 2.0, 0.75)", [IMAGE]),
    ("ops.GridSampler2D()", [IMAGE, "Tensor(ramp((2, 2, 3, 2), 4.0) * 0.6)"]),
    ("ops.GridSampler2D('nearest', 'border', True)", [IMAGE, "Tensor(ramp((2, 2, 3, 2), 4.0) * 0.6)"]),
    ("ops.GridSampler3D(padding_mode='reflection')", [VOLUME, "Tensor(ramp((1, 2, 3, 2, 3), 4.0) * 0.6)"]),
    ("ops.AffineGrid()", ["T((1, 2, 3))", "(1, 2, 2, 3)"]),
    ("ops.AffineGrid(align_corners=True)", ["T((1, 2, 3))", "(1, 2, 2, 3)"]),
    ("ops.UpsampleNearest3D()", [VOLUME, "[4, 5, 6]"]),
    ("ops.UpsampleNearest3D()", [VOLUME, "None", "[2.0, 1.5, 2.0]"]),
    ("ops.UpsampleTrilinear3D()", [VOLUME, "[4, 5, 6]"]),
    ("ops.UpsampleTrilinear3D(True)", [VOLUME, "None", "[2.0, 1.5, 2.0]"]),
    ("ops.ResizeLinear1D()", ["T((1, 2, 5))", "Tensor([8], ms.int32)"]),
    ("ops.ResizeLinear1D('half_pixel')", ["T((1, 2, 5))", "Tensor([8], ms.int32)"]),
    ("ops.ResizeNearestNeighborV2()", [IMAGE, "(3, 7)"]),
    ("ops.ResizeNearestNeighborV2(True)", [IMAGE, "(3, 7)"]),
    ("ops.ResizeNearestNeighborV2(False, True)", [IMAGE, "(3, 7)"]),
    ("ops.ResizeBicubic()", [IMAGE, "(3, 7)"]),
    ("ops.ResizeBicubic(align_corners=True)", [IMAGE, "(3, 7)"]),
    ("ops.ResizeBicubic(half_pixel_centers=True)", [IMAGE, "(3, 7)"]),
    ("ops.CropAndResize()", ["T((2, 5, 4, 3))", "Tensor(np.array([[0.1, 0.2, 0.8, 0.9], [0, 0, 1.2, 1]], np.float32))", "Tensor([1, 0], ms.int32)", "(2, 3)"]),
    ("ops.CropAndResize('nearest', 0.5)", ["T((2, 5, 4, 3))", "Tensor(np.array([[0.1, 0.2, 0.8, 0.9], [0, 0, 1.2, 1]], np.float32))", "Tensor([1, 0], ms.int32)", "(2, 3)"]),
    ("ops.Conv3DTranspose(2, 3, (2, 2, 2))", ["T((1, 2, 3, 3, 2))", "T((2, 3, 2, 2, 2))"]),
    ("ops.Conv3DTranspose(2, 3, 2, pad_mode='pad', pad=1, stride=2)", ["T((1, 2, 3, 3, 2))", "T((2, 3, 2, 2, 2))"]),
    ("ops.IOU()", ["Tensor(np.array([[0, 0, 10, 10], [5, 5, 12, 12]], np.float32))", "Tensor(np.array([[1, 1, 8, 9], [20, 20, 30, 30], [4, 4, 12, 12]], np.float32))"]),
    ("ops.IOU(mode='iof')", ["Tensor(np.array([[0, 0, 10, 10], [5, 5, 12, 12]], np.float32))", "Tensor(np.array([[1, 1, 8, 9], [20, 20, 30, 30], [4, 4, 12, 12]], np.float32))"]),
    ("ops.BoundingBoxEncode((0.0, 0.1, 0.0, 0.0), (0.5, 1.0, 1.0, 2.0))", ["Tensor(np.array([[2, 2, 9, 5], [0, 0, 10, 10]], np.float32))", "Tensor(np.array([[1, 1, 8, 9], [4, 4, 12, 12]], np.float32))"]),
    ("ops.BoundingBoxDecode((768, 1280), (0.0, 0.1, 0.0, 0.0), (0.5, 1.0, 1.0, 2.0), 0.016)", ["Tensor(np.array([[2, 2, 9, 5], [0, 0, 10, 10]], np.float32))", "Tensor(np.array([[0.1, 0.2, 0.3, 0.4], [0.5, -1, 2, 9]], np.float32))"]),
    ("lambda x: ops.NMSWithMask(0.3)(x)", ["Tensor(np.array([[10, 10, 30, 30, 0.9], [12, 11, 31, 29, 0.8], [50, 50, 70, 80, 0.95], [11, 30, 30, 40, 0.1], [49, 52, 70, 80, 0.5]], np.float32))"]),
    ("lambda x: ops.NMSWithMask(0.6)(Tensor(np.abs(x.asnumpy()) * [10, 10, 25, 25, 1], ms.float32))[2]", ["T((12, 5))"]),
    ("ops.MultiMarginLoss()", ["T((3, 4))", "Tensor([1, 0, 3])"]),
    ("ops.MultiMarginLoss(2, 0.5, 'sum')", ["T((3, 4))", "Tensor([1, 0, 3])", "T((4,))"]),
    ("ops.conv3d_transpose", ["T((1, 2, 3, 3, 2))", "T((2, 3, 2, 2, 2))"]),
    ("ops.conv3d_transpose", ["T((1, 2, 3, 3, 2))", "T((2, 3, 2, 3, 2))", "'pad'", "1", "2", "1", "1", "1"]),
    ("ops.conv3d_transpose", ["T((1, 2, 3, 3, 2))", "T((2, 2, 2, 3, 2))", "'same'", "0", "2"]),
    ("ops.fftshift", ["T((2, 3))"]),
    ("ops.fftshift", ["T((5, 4))", "0"]),
    ("ops.ifftshift", ["T((5, 3))"]),
    ("ops.ifftshift", ["T((5, 3))", "(1,)"]),
    ("lambda: [ops.fftfreq(5), ops.fftfreq(6, 0.5), ops.rfftfreq(6), ops.rfftfreq(5, 2.0, dtype=ms.float64)]", []),
    # -- sequences
    ("lambda *x: ops.CTCLoss()(*x)[0]", ["T((4, 2, 5))", "Tensor(np.array([[0, 0], [0, 1], [1, 0]], np.int64))", "Tensor([1, 2, 3], ms.int32)", "Tensor([4, 4], ms.int32)"]),
    ("lambda *x: ops.stop_gradient(ops.CTCLoss()(*x)[1])", ["T((4, 2, 5))", "Tensor(np.array([[0, 0], [0, 1], [1, 0]], np.int64))", "Tensor([1, 2, 3], ms.int32)", "Tensor([4, 4], ms.int32)"]),
    ("lambda *x: ops.CTCLoss()(*x)[0]", ["T((4, 2, 5))", "Tensor(np.array([[0, 0], [0, 1], [1, 0]], np.int64))", "Tensor([1, 1, 3], ms.int32)", "Tensor([4, 4], ms.int32)"]),
    ("lambda *x: ops.stop_gradient(ops.CTCLoss()(*x)[1])", ["T((4, 2, 5))", "Tensor(np.array([[0, 0], [0, 1], [1, 0]], np.int64))", "Tensor([1, 1, 3], ms.int32)", "Tensor([4, 4], ms.int32)"]),
    ("lambda *x: ops.CTCLossV2()(*x)[0]", ["ops.log_softmax(T((4, 2, 5)))", "Tensor([[1, 2], [3, 0]], ms.int32)", "Tensor([4, 3], ms.int32)", "Tensor([2, 1], ms.int32)"]),
    ("lambda *x: ops.CTCLossV2()(*x)[1] > -100", ["ops.log_softmax(T((4, 2, 5)))", "INT([[1, 2], [3, 0]])", "INT([4, 3])", "INT([2, 1])"]),
    ("ops.CTCGreedyDecoder()", ["T((4, 2, 5))", "Tensor([4, 3], ms.int32)"]),
    ("lambda *x: ops.LSTM(3, 2, 1, True, False, 0.0)(*x)[:3]", ["T((4, 2, 3))", "T((1, 2, 2), 1.0)", "T((1, 2, 2), 2.0)", "T((48, 1, 1), 3.0)"]),
    ("lambda *x: ops.LSTM(3, 2, 1, False, False, 0.0)(*x)[:3]", ["T((4, 2, 3))", "T((1, 2, 2), 1.0)", "T((1, 2, 2), 2.0)", "T((40, 1, 1), 3.0)"]),
    # -- layers
    ("nn.Moments()", [IMAGE]),
    ("nn.Moments(axis=(2, 3), keep_dims=True)", [IMAGE]),
    ("lambda: nn.Range(1, 8, 2)()", []),
    ("lambda: nn.Range(1.5, 4)()", []),
    ("lambda: nn.Range(5)()", []),
    ("nn.Tril()", ["T((3, 4))", "1"]),
    ("nn.Triu()", ["T((3, 4))"]),
    ("nn.Norm()", [A]),
    ("nn.Norm(axis=1, keep_dims=True)", [A]),
    ("lambda: nn.OneHot(depth=4, axis=-1)(Tensor([[1, 3], [0, 2]], ms.int32))", []),
]

# what primitives do to Parameters
UPDATES: list[tuple[str, list[str]]] = [
    ("ops.ApplyAdaMax()", ["P((2, 3))", "P((2, 3), 1.0)", "P((2, 3), 2.0, True)", "0.9", "0.01", "0.9", "0.99", "1e-8", B]),
    ("ops.ApplyAdadelta()", ["P((2, 3))", "P((2, 3), 1.0, True)", "P((2, 3), 2.0, True)", "0.01", "0.9", "1e-6", B]),
    ("ops.ApplyAdamWithAmsgrad()", ["P((2, 3))", "P((2, 3), 1.0)", "P((2, 3), 2.0, True)", "P((2, 3), 3.0, True)", "Tensor(0.9)", "Tensor(0.99)", "Tensor(0.01)", B]),
    ("ops.ApplyAdamWithAmsgradV2()", ["P((2, 3))", "P((2, 3), 1.0)", "P((2, 3), 2.0, True)", "P((2, 3), 3.0, True)", "Tensor(0.9)", "Tensor(0.99)", "Tensor(0.01)", "Tensor(0.9)", "Tensor(0.99)", "Tensor(1e-8)", B]),
    ("ops.ApplyCenteredRMSProp()", ["P((2, 3))", "P((2, 3), 1.0)", "ms.Parameter(T((2, 3)) + 9.0)", "P((2, 3), 3.0)", B, "0.01", "0.9", "0.5", "0.05"]),
    ("ops.ApplyGradientDescent()", ["P((2, 3))", "0.01", B]),
    ("ops.AdamWeightDecay()", ["P((2, 3))", "P((2, 3), 1.0)", "P((2, 3), 2.0, True)", "0.01", "0.9", "0.99", "1e-8", "0.1", B]),
]

ERRORS = [
    "ops.Tril('x')",
    "ops.Tril()(T((3,)))",
    "ops.Triu()(T((3,)))",
    "ops.Diag()(Tensor(1.0))",
    "ops.NonZero()(3)",
    "ops.Unique()(3)",
    "ops.MaskedSelect()(T((2, 3)), Tensor([True, False]))",
    "ops.LinSpace()(Tensor(1.0), Tensor(2.0), 0)",
    "ops.LinSpace()(Tensor(1, ms.int32), Tensor(2, ms.int32), 3)",
    "ops.LinSpace()(Tensor(1.0), Tensor(2.0), 2.5)",
    "ops.Cross()(T((2, 2)), T((2, 2)))",
    "ops.Cdist()(T((3, 2)), T((4, 3)))",
    "ops.Meshgrid(indexing='x')",
    "ops.Meshgrid(3)",
    "ops.Meshgrid()(T((3,)))",
    "ops.Meshgrid()((T((3, 2)), T((3,))))",
    "ops.Erfinv()(Tensor([0, 0], ms.int32))",
    "ops.MatrixInverse(adjoint=3)",
    "ops.MatrixInverse()(T((2, 3)))",
    "ops.MatrixInverse()(T((2,)))",
    "ops.PadV3('x')",
    "ops.PadV3(paddings_contiguous=1)",
    "ops.PadV3('reflect')(T((2, 3)), [1, 1], 1)",
    "ops.PadV3()(T((2, 3)), [1, 1, 1], 0)",
    "ops.PadV3('reflect')(T((1, 2, 3)), [3, 1])",
    "ops.MirrorPad('x')",
    "ops.MirrorPad()(T((2, 3)), Tensor([[2, 1], [1, 1]]))",
    "ops.MirrorPad()(T((2, 3)), Tensor([[1, 1]]))",
    "ops.ReverseSequence('x')",
    "ops.ReverseSequence(1)(T((2, 3)), Tensor([2, 4]))",
    "ops.ReverseSequence(1)(T((2, 3)), Tensor([2, 3, 1]))",
    "ops.ReverseSequence(0, 0)(T((2, 3)), Tensor([2, 1]))",
    "ops.LRN(-1)",
    "ops.LRN('x')",
    "ops.LRN(bias='x')",
    "ops.LRN(norm_region='x')",
    "ops.LRN()(T((2, 3)))",
    "ops.CTCLoss(3)",
    "ops.CTCLoss()(T((4, 2)), Tensor([[0, 0]]), Tensor([1], ms.int32), Tensor([4, 3], ms.int32))",
    "ops.CTCLoss()(T((4, 1, 3)), Tensor([[0, 0]]), Tensor([1], ms.int32), Tensor([5], ms.int32))",
    "ops.CTCLoss()(T((1, 1, 5)), Tensor([[0, 0], [0, 1]]), Tensor([1, 2], ms.int32), Tensor([1], ms.int32))",
    "ops.AdaptiveMaxPool2D('x')",
    "ops.AdaptiveMaxPool2D(0)",
    "ops.AdaptiveMaxPool2D(2)(T((2, 3)))",
    "ops.Lerp()(T((2, 3)), T((2, 3)), 'x')",
    "ops.Lerp()(Tensor([1, 2]), Tensor([1, 2]), 0.5)",
    "ops.Cholesky()(T((2, 3)))",
    "ops.MatrixPower('x')",
    "ops.MatrixDeterminant()(T((2, 3)))",
    "ops.TensorScatterElements(0, 'x')",
    "ops.GLU()(T((2, 3)))",
    "ops.HShrink('x')",
    "ops.Renorm(2.0, 0.5, 1.0)",
    "ops.SpaceToDepth(1)",
    "ops.DepthToSpace(1)",
    "ops.DepthToSpace(2)(T((1, 3, 2, 2)))",
    "ops.SpaceToDepth(2)(T((1, 3, 3, 2)))",
    "ops.IOU('x')",
    "ops.GridSampler2D('x')",
    "ops.LSTM(3, 2, 0, True, False, 0.0)",
    "ops.LSTM(3, 2, 1, 1, False, 0.0)",
    "ops.LSTM(3, 2, 1, True, False, 2.0)",
    "ops.fftfreq(0)",
    "ops.fftfreq('x')",
    "ops.fftshift(T((2, 3)), 2)",
    "nn.Range(1, 5, 'x')",
    "nn.Moments(axis='x')",
    "nn.Moments(keep_dims=3)",
    "nn.Moments()(Tensor([1, 2]))",
]


def names_of(ms: Any) -> dict[str, Any]:
    return {**scope(ms), "INT": partial(ms.Tensor, dtype=ms.int32)}


def call(ms: Any, function: str, inputs: list[str]) -> dict[str, Any]:
    """The result, and the gradients with respect to float Tensors if all inputs are Tensors and a result is a float one."""
    names = names_of(ms)
    target = eval(function, names)
    values = [eval(x, names) for x in inputs]
    result = target(*values) if inputs or function.startswith("lambda") else target()
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    if any(isinstance(x, ms.Parameter) for x in values):
        return {"result": result, "parameters": [x.value() for x in values if isinstance(x, ms.Parameter)]}
    if any(name in function for name in NOT_DIFFERENTIATED):
        return {"result": result}
    has_floats = any(isinstance(x, ms.Tensor) and "Float" in str(x.dtype) for x in values)
    if not has_floats or not any(isinstance(y, ms.Tensor) and "Float" in str(y.dtype) for y in outputs):
        return {"result": result}
    return {"result": result, "gradients": caught(lambda: gradients(ms, target, values)["inputs"])}


def update(ms: Any, function: str, inputs: list[str]) -> dict[str, Any]:
    names = names_of(ms)
    values = [eval(x, names) for x in inputs]
    eval(function, names)(*values)
    return {"after": [x.value() for x in values if isinstance(x, ms.Parameter)]}


def programs() -> dict[str, Any]:
    found: dict[str, Any] = {f"{f} of {', '.join(x)}": partial(module_first, call, f, x) for f, x in CALLS}
    found |= {f"{f} of {', '.join(x)}": partial(module_first, update, f, x) for f, x in UPDATES}
    found |= {f"error {e}": partial(module_first, error, e) for e in ERRORS}
    return found


def error(ms: Any, expression: str) -> Any:
    return eval(expression, names_of(ms))
