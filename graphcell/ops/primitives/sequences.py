"""Primitive classes of sequences: connectionist temporal classification, and the LSTM."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphcell import dtype as dt
from graphcell import ops as F
from graphcell.errors import ArgumentValueError, DTypeError, ExecutionError, NotImplementedFeatureError, ShapeError
from graphcell.ops.functional.common import constant
from graphcell.ops.functional.loops import Tensors, scan
from graphcell.ops.primitive import Configured
from graphcell.ops.primitives.checks import check_choice, check_positive, check_tensors, check_type
from graphcell.tensor import Tensor

__all__ = ["LSTM", "CTCGreedyDecoder", "CTCLoss", "CTCLossV2"]


class CTCLoss(Configured):
    """-log of the chance of sequences of labels, and its gradient: called with (x, labels_indices, labels_values, sequence_length).

    Inputs: x (T, N, C): logits, of which class C - 1 is the blank; labels_indices (count, 2), Int64: the sequence and the place in it of each
    label; labels_values (count,), Int32; sequence_length (N,), Int32. Outputs: (N,), and the gradient of the sum with respect to x.

    Args:
        preprocess_collapse_repeated, ctc_merge_repeated: the defaults alone are there.
        ignore_longer_outputs_than_inputs: labels for which there are too few steps cost 0 instead of raising RuntimeError.
    """

    def __init__(
        self, preprocess_collapse_repeated: bool = False, ctc_merge_repeated: bool = True, ignore_longer_outputs_than_inputs: bool = False
    ):
        settings = {
            "preprocess_collapse_repeated": preprocess_collapse_repeated,
            "ctc_merge_repeated": ctc_merge_repeated,
            "ignore_longer_outputs_than_inputs": ignore_longer_outputs_than_inputs,
        }
        for name, value in settings.items():
            check_type("CTCLoss", name, value, bool)
        super().__init__(**settings)
        if preprocess_collapse_repeated or not ctc_merge_repeated:
            raise NotImplementedFeatureError("CTCLoss: labels that repeat are merged after the steps, and not before; other settings are not there")

    def __call__(self, x: Any, labels_indices: Any, labels_values: Any, sequence_length: Any) -> tuple[Any, Any]:
        check_tensors("CTCLoss", x=x, labels_indices=labels_indices, labels_values=labels_values, sequence_length=sequence_length)
        if x.ndim != 3:
            raise ShapeError(f"For 'CTCLoss', x must have the shape (T, N, C), but has {x.shape}")
        if labels_indices.ndim != 2 or labels_indices.shape[1] != 2 or labels_values.shape != labels_indices.shape[:1]:
            raise ShapeError(f"For 'CTCLoss', the labels have shapes that do not fit: {labels_indices.shape} and {labels_values.shape}")
        if sequence_length.shape != x.shape[1:2]:
            raise ShapeError(f"For 'CTCLoss', the sequence_length must have the shape {x.shape[1:2]}, but has {sequence_length.shape}")
        steps, batch, classes = x.shape
        if not sequence_length.is_symbolic and any(not 0 <= n <= steps for n in sequence_length.tolist()):
            raise ExecutionError(f"For 'CTCLoss', the sequence_length must be in [0, {steps}], but is {sequence_length.tolist()}")
        places, values = F.cast(labels_indices, dt.int64), F.cast(labels_values, dt.int64)
        longest = values.shape[0]
        targets = F.tensor_scatter_update(F.zeros((batch, longest), dt.int64), places, values)
        lengths = F.unsorted_segment_sum(F.ones_like(values), places[:, 0], batch)
        log_p: Any = F.log_softmax(F.cast(x, dt.float32) if x.dtype is dt.float16 else x, -1)
        ignores = self.ignore_longer_outputs_than_inputs
        losses, _ = F.ctc_loss(log_p, targets, sequence_length, lengths, classes - 1, "none", ignores)
        if not ignores and not losses.is_symbolic and bool(F.isinf(losses).any()):
            raise ExecutionError("For 'CTCLoss', a sequence has fewer steps than its labels need", hint="ignore_longer_outputs_than_inputs=True")
        gradient = _gradient(log_p, targets, F.cast(sequence_length, dt.int64), lengths, classes - 1)
        return F.cast(losses, x.dtype), F.stop_gradient(F.cast(gradient, x.dtype))


def _gradient(log_p: Any, targets: Any, steps: Any, lengths: Any, blank: int) -> Any:
    """The gradient of the sum of the losses with respect to the logits: chances, less those of each class given the labels."""
    log_p = F.stop_gradient(log_p)
    count, batch, classes = log_p.shape
    losses, before = F.ctc_loss(log_p, targets, steps, lengths, blank, "none")
    backwards = F.reverse_sequence(log_p, steps, 0, 1), F.reverse_sequence(targets, lengths, 1, 0)
    _, after = F.ctc_loss(*backwards, steps, lengths, blank, "none")
    after = F.reverse_sequence(F.reverse_sequence(after, steps, 1, 0), lengths * 2 + 1, 2, 0)  # (N, T, places)
    between = F.stack((F.full_like(targets, blank), targets), -1).reshape(batch, -1)
    path = F.concat((between, F.full((batch, 1), blank, dtype=dt.int64)), 1)
    own = F.gather_elements(log_p.transpose(1, 0, 2), 2, F.broadcast_to(path.expand_dims(1), before.shape))
    given = before + after - own + losses.reshape(-1, 1, 1)  # logarithms of the chances of places, given the labels
    is_on_path = constant(np.arange(given.shape[2]).reshape(1, 1, -1)) < lengths.reshape(-1, 1, 1) * 2 + 1
    given = F.select(F.logical_and(F.isfinite(given), is_on_path), given, F.full_like(given, -1e30))
    hot = F.cast(F.one_hot(path, classes), log_p.dtype)
    posterior = F.matmul(F.exp(given), hot).transpose(1, 0, 2)
    number = constant(np.arange(count).reshape(-1, 1))
    is_used = F.logical_and(number < steps.reshape(1, -1), F.isfinite(losses).reshape(1, -1)).expand_dims(-1)
    gradient = F.exp(log_p) - posterior
    return F.select(F.broadcast_to(is_used, gradient.shape), gradient, F.zeros_like(gradient))


class CTCLossV2(Configured):
    """(-log of the chance of each sequence, logarithms of the chances of all beginnings), as `ops.ctc_loss` without reduction.

    Called with (log_probs (T, N, C), targets (N, S), input_lengths (N,), target_lengths (N,)).
    """

    def __init__(self, blank: int = 0, reduction: str = "none", zero_infinity: bool = False):
        check_type("CTCLossV2", "blank", blank, int)
        check_choice("CTCLossV2", "reduction", reduction, "none")
        super().__init__(blank=blank, reduction=reduction, zero_infinity=check_type("CTCLossV2", "zero_infinity", zero_infinity, bool))

    def __call__(self, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any) -> tuple[Any, Any]:
        losses, beginnings = F.ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank, "none", self.zero_infinity)
        place = constant(np.arange(beginnings.shape[2]).reshape(1, 1, -1))
        is_on_path = F.broadcast_to(place < F.cast(target_lengths, dt.int64).reshape(-1, 1, 1) * 2 + 1, beginnings.shape)
        return losses, F.stop_gradient(F.select(is_on_path, beginnings, F.full_like(beginnings, -math.inf)))


class CTCGreedyDecoder(Configured):
    """The likeliest class of each step, without blanks (class C - 1) and, if `merge_repeated`, without repetitions.

    Inputs: x (T, N, C): logits; sequence_length (N,), Int32. Outputs: places (count, 2): sequence and place in it; classes (count,); the shape
    of a matrix that holds them (2,), all Int64; minus the sums of the largest logits (N, 1).
    """

    def __init__(self, merge_repeated: bool = True):
        super().__init__(merge_repeated=check_type("CTCGreedyDecoder", "merge_repeated", merge_repeated, bool))

    def __call__(self, inputs: Any, sequence_length: Any) -> tuple[Any, Any, Any, Any]:
        check_tensors("CTCGreedyDecoder", inputs=inputs, sequence_length=sequence_length)
        if inputs.ndim != 3 or sequence_length.shape != inputs.shape[1:2]:
            raise ShapeError(f"For 'CTCGreedyDecoder', the shapes do not fit: {inputs.shape} and {sequence_length.shape}")
        logits, lengths = inputs.asnumpy(), sequence_length.asnumpy()
        steps, batch, classes = logits.shape
        if lengths.size and not 0 <= lengths.min() <= lengths.max() <= steps:
            raise ExecutionError(f"For 'CTCGreedyDecoder', the sequence_length must be in [0, {steps}], but is {lengths.tolist()}")
        best, places, values, longest = logits.argmax(-1), [], [], 0
        for n in range(batch):
            line = best[: lengths[n], n].tolist()
            is_new = [k == 0 or not self.merge_repeated or line[k - 1] != c for k, c in enumerate(line)]
            kept = [c for c, new in zip(line, is_new) if new and c != classes - 1]
            places += [[n, k] for k in range(len(kept))]
            values += kept
            longest = max(longest, len(kept))
        is_used = np.arange(steps)[:, None] < lengths
        total = -(logits.max(-1) * is_used).sum(0, dtype=logits.dtype).reshape(-1, 1)
        found = np.array(places, np.int64).reshape(-1, 2), np.array(values, np.int64), np.array([batch, longest], np.int64)
        return Tensor(found[0]), Tensor(found[1]), Tensor(found[2]), Tensor(total)


class LSTM(Configured):
    """One layer of an LSTM in one direction: called with (input (T, N, input_size), h (1, N, hidden_size), c (1, N, hidden_size), w).

    w (size, 1, 1) holds the weights of the input (4 hidden_size, input_size), those of the state (4 hidden_size, hidden_size) and, with
    `has_bias`, the bias (4 hidden_size,), one after the other; gates are in the order input, forget, cell, output. Outputs: all states (T, N,
    hidden_size), the last state and cell (1, N, hidden_size), and two scalars of zeros in place of MindSpore's working memory.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int, has_bias: bool, bidirectional: bool, dropout: float, proj_size: int = 0
    ):
        for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            check_positive("LSTM", name, value)
        check_type("LSTM", "has_bias", has_bias, bool)
        check_type("LSTM", "bidirectional", bidirectional, bool)
        if not 0 <= check_type("LSTM", "dropout", dropout, float) <= 1:
            raise ArgumentValueError(f"For 'LSTM', the 'dropout' must be in range of [0, 1], but got {dropout} with type 'float'.")
        super().__init__(
            input_size=input_size, hidden_size=hidden_size, num_layers=num_layers, has_bias=has_bias, bidirectional=bidirectional,
            dropout=dropout, proj_size=proj_size,
        )  # fmt: skip
        if num_layers > 1 or bidirectional or proj_size:
            raise NotImplementedFeatureError("ops.LSTM: one layer, one direction and no projection", hint="nn.LSTM has several layers and two directions")

    def __call__(self, input: Any, h: Any, c: Any, w: Any) -> tuple[Any, ...]:
        check_tensors("LSTM", input=input, h=h, c=c, w=w)
        wide, inner = 4 * self.hidden_size, self.hidden_size
        if input.ndim != 3 or input.shape[2] != self.input_size or input.shape[0] == 0:
            raise ShapeError(f"For 'LSTM', the input must have the shape (T, N, {self.input_size}), but has {input.shape}")
        if h.shape != (1, input.shape[1], inner) or c.shape != h.shape:
            raise ShapeError(f"For 'LSTM', h and c must have the shape {(1, input.shape[1], inner)}, but have {h.shape} and {c.shape}")
        if any(t.dtype is not input.dtype for t in (h, c, w)) or not input.dtype.is_float:
            raise DTypeError(f"For 'LSTM', expected floats of one dtype, but got {input.dtype}, {h.dtype}, {c.dtype} and {w.dtype}")
        sizes = [wide * self.input_size, wide * inner, wide if self.has_bias else 0]
        if w.size != sum(sizes):
            raise ShapeError(f"For 'LSTM', w must hold {sum(sizes)} elements, but has the shape {w.shape}")
        flat = w.reshape(-1)
        of_input = flat[: sizes[0]].reshape(wide, self.input_size)
        of_state = flat[sizes[0] : sizes[0] + sizes[1]].reshape(wide, inner)
        rows: Any = F.matmul(input, of_input.transpose(1, 0))
        if self.has_bias:
            rows = rows + flat[sizes[0] + sizes[1] :]
        (state, cell), (states,) = scan("lstm_step", _lstm_step, [h[0], c[0]], [rows], [of_state.transpose(1, 0)])
        nothing = F.zeros((1, 1), input.dtype)
        return states, F.expand_dims(state, 0), F.expand_dims(cell, 0), nothing, nothing


def _lstm_step(number: Tensor, carried: Tensors, rows: Tensors, kept: Tensors) -> tuple[Tensors, Tensors]:
    (state, cell), (row,), (weight,) = carried, rows, kept
    gates: Any = row + F.matmul(state, weight)  # type: ignore[operator]
    i, f, g, o = F.chunk(gates, 4, 1)
    cell = F.sigmoid(f) * cell + F.sigmoid(i) * F.tanh(g)  # type: ignore[operator]
    state = F.sigmoid(o) * F.tanh(cell)  # type: ignore[operator]
    return (state, cell), (state,)
