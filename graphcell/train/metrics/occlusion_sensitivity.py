"""How much a prediction depends on each place of an image."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcell.errors import ArgumentTypeError, ArgumentValueError, ExecutionError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_float, check_int
from graphcell.tensor import Tensor
from graphcell.train.metrics.metric import Array, Metric, check_count, check_updated, rearrange_inputs


class OcclusionSensitivity(Metric):
    """The prediction for a class less the prediction with the surroundings of a place covered, for each place of one image.

    Args:
        pad_val: what covers. Default 0.0.
        margin: how far the cover reaches to either side.
        n_batch: images that are predicted at once. Default 128.
        b_box: [first, last] of each dimension behind the batch: the places of interest. Default None: all.

    Raises:
        TypeError: an argument of the wrong kind.
    """

    def __init__(self, pad_val: float = 0.0, margin: Any = 2, n_batch: int = 128, b_box: list[int] | None = None):
        super().__init__()
        self.pad_val = check_float("OcclusionSensitivity", "pad_val", pad_val)
        for name, value, kinds in (("margin", margin, (int, list)), ("b_box", b_box, (list, type(None)))):
            if not isinstance(value, kinds):
                raise ArgumentTypeError(f"For 'OcclusionSensitivity', the type of '{name}' should be a list, but got type '{type(value).__name__}'.")
        self.margin, self.b_box = margin, b_box
        self.n_batch = check_int("OcclusionSensitivity", "n_batch", n_batch)
        self.clear()

    def clear(self) -> None:
        """Forgets what was collected."""
        self._baseline = 0.0
        self._covered: Any = 0
        self._is_update = False

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Takes a Cell that predicts classes (1, C), one image (1, …), and the number of the class.

        Raises:
            ValueError: a number of inputs, or a box, that does not fit. RuntimeError: more than one image or label.
            TypeError: the first input is no Cell.
        """
        check_count(self, inputs, 3, "classification model, predicted value, label")
        model, image = inputs[0], self._convert_data(inputs[1])
        label = np.asarray(inputs[2]) if isinstance(inputs[2], int) else self._convert_data(inputs[2])
        if not isinstance(model, Cell):
            raise ArgumentTypeError(f"For 'OcclusionSensitivity', the type of 'model' should be 'Cell', but got type '{type(model).__name__}'.")
        if image.shape[0] > 1:
            raise ExecutionError(
                f"For 'OcclusionSensitivity.update', the shape at index 0 of the predicted value (input[1]) must be 1, but got {image.shape[0]}."
            )
        if label.size != image.shape[0]:
            raise ExecutionError(
                "For 'OcclusionSensitivity.update', the number of the label (input[2]) must be same as the batches, "
                f"but got the label number {label.size}, and batches {image.shape[0]}."
            )
        chosen = int(label.reshape(-1)[0])
        first, extent = self._box(image.shape[1:])
        self._baseline = float(model(Tensor(image)).asnumpy()[0, chosen])
        places = [first + np.array(place) for place in np.ndindex(*extent)]
        scores: list[Array] = []
        for start in range(0, len(places), self.n_batch):
            batch = np.concatenate([self._cover(image, place) for place in places[start : start + self.n_batch]])
            scores.append(model(Tensor(batch)).asnumpy()[:, chosen])
        self._covered = np.concatenate(scores).reshape(extent)
        self._is_update = True

    def _box(self, shape: tuple[int, ...]) -> tuple[Array, tuple[int, ...]]:
        """The first place of interest and how many there are along each dimension."""
        if self.b_box is None:
            return np.zeros(len(shape), int), shape
        owner = "For 'OcclusionSensitivity',"
        if len(self.b_box) != 2 * len(shape):
            raise ArgumentValueError(
                f"{owner} the bounding box must contain upper and lower for all dimensions (except batch number), and the length of 'b_box' must be "
                f"twice as long as predicted value's (except batch number), but got 'b_box' length {len(self.b_box)}, "
                f"predicted value length (except batch number) {len(shape)}."
            )
        first, last = np.maximum(self.b_box[::2], 0), np.array(self.b_box[1::2])
        last = np.where(last < 0, np.array(shape) - 1, last)
        if (last >= shape).any():
            raise ArgumentValueError(f"{owner} maximum bounding box must be smaller than image size for all values.")
        if (first > last).any():
            raise ArgumentValueError(f"{owner} minimum bounding box must be smaller than maximum bounding box for all values.")
        return first, tuple(int(n) for n in last - first + 1)

    def _cover(self, image: Array, place: Array) -> Array:
        covered = image.copy()
        around = np.broadcast_to(self.margin, place.shape)
        covered[(slice(None), *(slice(max(0, p - m), p + m) for p, m in zip(place, around)))] = self.pad_val
        return covered

    def eval(self) -> Array:
        """The loss of prediction at each place, an array without the dimensions of extent 1; raises RuntimeError before `update`."""
        check_updated(self._is_update)
        return np.asarray(self._baseline - np.squeeze(self._covered))
