"""Tables of vectors, looked up by number."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.common.initializer import initializer
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_bool, check_choice, check_float, check_int, is_int, positive_int
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class Embedding(Cell):
    """Rows of a trained table, looked up by number.

    Args:
        vocab_size, embedding_size: extents of the table.
        use_one_hot: look up by a product with one-hot vectors.
        embedding_table: initializer of the table, float32, default 'normal'.
        dtype: kept.
        padding_idx: this row starts as zeros.

    Inputs: x, integers of any shape. Outputs: (*x.shape, embedding_size).

    Raises:
        TypeError, ValueError: settings that do not fit.
    """

    def __init__(
        self, vocab_size: int, embedding_size: int, use_one_hot: bool = False, embedding_table: Any = "normal",
        dtype: Any = dt.float32, padding_idx: int | None = None,
    ):  # fmt: skip
        super().__init__()
        self.vocab_size = check_int("Embedding", "vocab_size", vocab_size)
        self.embedding_size = check_int("Embedding", "embedding_size", embedding_size)
        if not isinstance(use_one_hot, bool):
            raise ArgumentTypeError(
                f"For 'Embedding', the type of 'use_one_hot' should be 'bool', but got type '{type(use_one_hot).__name__}'."
            )
        self.use_one_hot, self.dtype, self.padding_idx = use_one_hot, dt.as_dtype(dtype), padding_idx
        table = initializer(embedding_table, (vocab_size, embedding_size))
        if padding_idx is not None:
            self._check_padding(padding_idx)
            if table.has_init:
                table.init_data()
            data = table.array().copy()
            data[padding_idx] = 0
            table = Tensor(data)
        self.embedding_table = Parameter(table, name="embedding_table")

    def _check_padding(self, row: Any) -> None:
        if not is_int(row):
            raise ArgumentTypeError(f"For 'Embedding', the 'padding_idx' must be 'int',  but got '{type(row).__name__}'.")
        if not 0 <= row < self.vocab_size:
            raise ArgumentValueError(
                f"For 'Embedding', the 'padding_idx' must be in range of [0, {self.vocab_size}), "
                f"but got {row} with type 'int'."
            )

    def construct(self, ids: Any) -> Any:
        table = self.embedding_table
        if self.use_one_hot:
            hot = ops.one_hot(ids, self.vocab_size)
            return ops.matmul(hot.astype(table.dtype), table)
        return ops.gather(table, ids, 0)

    def extend_repr(self) -> str:
        return (
            f"vocab_size={self.vocab_size}, embedding_size={self.embedding_size}, use_one_hot={self.use_one_hot}, "
            f"embedding_table={self.embedding_table}, dtype={self.dtype}, padding_idx={self.padding_idx}"
        )


class EmbeddingLookup(Cell):
    """Rows of a trained table, looked up by number.

    Args:
        vocab_size, embedding_size: extents of the table.
        param_init: initializer of the table, default 'normal'.
        target: 'CPU' (default) or 'DEVICE': the same here.
        slice_mode, manual_shapes: how the table is cut over several devices; kept.
        max_norm: rows of a larger Euclidean norm are scaled down to it.
        sparse: True (default), as the target 'CPU' demands; the gradient is dense here.

    Inputs: indices, integers of any shape. Outputs: (*indices.shape, embedding_size).

    Raises:
        TypeError, ValueError: settings that do not fit.
    """

    def __init__(
        self, vocab_size: int, embedding_size: int, param_init: Any = "normal", target: str = "CPU", slice_mode: str = "batch_slice",
        manual_shapes: Any = None, max_norm: float | None = None, sparse: bool = True, dtype: Any = dt.float32,
    ):  # fmt: skip
        super().__init__()
        self.vocab_size = positive_int("EmbeddingLookup", "vocab_size", vocab_size)
        self.embedding_size = positive_int("EmbeddingLookup", "embedding_size", embedding_size)
        self.target = check_choice("EmbeddingLookup", "target", target, ("CPU", "DEVICE"))
        self.sparse = check_bool("EmbeddingLookup", "sparse", sparse)
        if target == "CPU" and not sparse:
            raise ArgumentValueError(
                "For 'EmbeddingLookup', 'sparse' must be True when 'target' is \"CPU\", but got 'sparse': False and 'target': CPU"
            )
        if max_norm is not None and check_float("EmbeddingLookup", "max_norm", max_norm) <= 0:
            raise ArgumentValueError(f"For 'EmbeddingLookup', the 'max_norm' must be float and must > 0, but got '{max_norm}' with type 'float'.")
        self.max_norm, self.slice_mode, self.manual_shapes = max_norm, slice_mode, manual_shapes
        self.embedding_table = Parameter(initializer(param_init, (vocab_size, embedding_size), dtype), name="embedding_table")

    def construct(self, indices: Any) -> Any:
        rows = ops.gather(self.embedding_table, indices, 0)
        if self.max_norm is None:
            return rows
        squares = (rows * rows).sum(-1, keepdims=True)
        return rows * ops.select(squares > self.max_norm**2, self.max_norm * ops.rsqrt(ops.maximum(squares, self.max_norm**2)), ops.ones_like(squares))
