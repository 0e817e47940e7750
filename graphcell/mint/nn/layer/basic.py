"""Dropout, shapes, resizing and embedding as layers, with PyTorch's arguments."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import nn, ops
from graphcell.common.initializer import Normal, initializer
from graphcell.errors import ArgumentValueError, ShapeError
from graphcell.mint.nn import functional as F
from graphcell.nn.checks import check_bool, check_number, is_int, positive_int
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class DropoutExt(nn.Cell):
    """In training, zeros with probability p and scales the rest by 1 / (1 - p); else the input as it is.

    Args:
        p: the probability of dropping, in [0, 1].
        inplace: write the result into the input, and return that.

    Raises:
        TypeError, ValueError: a probability that is none.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0 <= check_number("Dropout", "p", p) <= 1:
            raise ArgumentValueError(f"For 'Dropout', the 'p' must be a number in range [0, 1], but got {p}.")
        self.p, self.inplace = p, check_bool("Dropout", "inplace", inplace)

    def construct(self, x: Any) -> Any:
        return F.dropout(x, self.p, self.training, self.inplace)


class Dropout2dExt(DropoutExt):
    """Drops whole channels of (N, C, …) in training."""

    def construct(self, x: Any) -> Any:
        return F.dropout2d(x, self.p, self.training, self.inplace)


class UnfoldExt(nn.Cell):
    """The windows of (N, C, H, W) as columns; see `ops.unfold`."""

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
        super().__init__()
        self.settings = kernel_size, dilation, padding, stride

    def construct(self, input: Any) -> Any:
        return ops.unfold(input, *self.settings)


class Fold(nn.Cell):
    """Columns (N, C * kernel, L) added up where they came from in (N, C, *output_size); see `ops.fold`."""

    def __init__(self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
        super().__init__()
        self.settings = output_size, kernel_size, dilation, padding, stride

    def construct(self, input: Any) -> Any:
        return ops.fold(input, *self.settings)


class UpsampleExt(nn.Cell):
    """Resizes (N, C, spatial…); see `mint.nn.functional.interpolate`."""

    def __init__(
        self, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ):  # fmt: skip
        super().__init__()
        self.settings = size, scale_factor, mode, align_corners, recompute_scale_factor

    def construct(self, input: Any) -> Any:
        return F.interpolate(input, *self.settings)


class UpsamplingNearest2d(UpsampleExt):
    """Resizes (N, C, H, W) to `size`, or by `scale_factor`; each element is the nearest one."""

    def __init__(self, size: Any = None, scale_factor: Any = None):
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(UpsampleExt):
    """Resizes (N, C, H, W) to `size`, or by `scale_factor`, linearly; the corner elements fall together."""

    def __init__(self, size: Any = None, scale_factor: Any = None):
        super().__init__(size, scale_factor, "bilinear", True)


class EmbeddingExt(nn.Cell):
    """Rows of a trained table, looked up by number.

    Args:
        num_embeddings, embedding_dim: extents of the table.
        padding_idx: this row starts as zeros, and no gradient flows to it; counted from the end if negative.
        max_norm, norm_type, scale_grad_by_freq: see `ops.embedding`.
        sparse: must be False.
        _weight: the table, a Tensor; default: normal numbers of mean 0 and deviation 1.
        _freeze: the table is not trained.
        dtype: of the table, by default float32.

    Inputs: input, integers of any shape. Outputs: (*input.shape, embedding_dim).

    Raises:
        TypeError, ValueError: settings that do not fit.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Any = None, _freeze: bool = False, dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        self.num_embeddings = positive_int("Embedding", "num_embeddings", num_embeddings)
        self.embedding_dim = positive_int("Embedding", "embedding_dim", embedding_dim)
        if check_bool("Embedding", "sparse", sparse):
            raise ArgumentValueError("For 'Embedding', 'sparse' must be False: gradients of tables are dense.")
        self.padding_idx = None if padding_idx is None else self._row(padding_idx)
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.dtype = dt.float32 if dtype is None else dt.as_dtype(dtype)
        self.weight = Parameter(self._table(_weight), name="weight", requires_grad=not check_bool("Embedding", "_freeze", _freeze))

    def _row(self, place: Any) -> int:
        if not is_int(place) or not -self.num_embeddings <= place < self.num_embeddings:
            raise ArgumentValueError(f"For 'Embedding', the 'padding_idx' must be an int within {self.num_embeddings} rows, but got {place!r}.")
        return int(place) % self.num_embeddings

    def _table(self, given: Any) -> Tensor:
        shape = (self.num_embeddings, self.embedding_dim)
        if given is not None:
            if given.shape != shape:
                raise ShapeError(f"For 'Embedding', the shape of '_weight' must be {shape}, but got {given.shape}.")
            return given  # type: ignore[no-any-return]
        table = initializer(Normal(1.0), shape, self.dtype)
        if self.padding_idx is None:
            return table
        table.init_data()
        data = table.array().copy()
        data[self.padding_idx] = 0
        return Tensor(data)

    def construct(self, input: Any) -> Any:
        return ops.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)

    def extend_repr(self) -> str:
        return (
            f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}, padding_idx={self.padding_idx}, max_norm={self.max_norm}, "
            f"norm_type={self.norm_type}, scale_grad_by_freq={self.scale_grad_by_freq}, dtype={self.dtype}"
        )


# The names of mint, which print as the classes do in MindSpore.
Dropout = DropoutExt
Dropout2d = Dropout2dExt
Embedding = EmbeddingExt
Unfold = UnfoldExt
Upsample = UpsampleExt
