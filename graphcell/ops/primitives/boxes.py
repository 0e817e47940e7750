"""Primitive classes of boxes in images: (left, top, right, bottom) in pixels, whose last row and column count."""

from __future__ import annotations

import math
from typing import Any

from graphcell import dtype as dt
from graphcell import ops as F
from graphcell.errors import ArgumentTypeError, ArgumentValueError, DTypeError, MissingKeyError, ShapeError
from graphcell.ops.functional.loops import Tensors, scan
from graphcell.ops.primitive import Configured
from graphcell.ops.primitives.checks import check_choice, check_tensors, check_type
from graphcell.tensor import Tensor

__all__ = ["IOU", "BoundingBoxDecode", "BoundingBoxEncode", "CropAndResize", "NMSWithMask"]


def _sides(owner: str, boxes: Any) -> list[Any]:
    """The columns of (N, 4)."""
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ShapeError(f"For '{owner}', boxes must have the shape (N, 4), but have {boxes.shape}")
    if not boxes.dtype.is_float:
        raise DTypeError(f"For '{owner}', boxes must be floats, but are {boxes.dtype}")
    return [boxes[:, k] for k in range(4)]


class IOU(Configured):
    """For all gt_boxes (M, 4) and anchor_boxes (N, 4) the part (M, N) that they share, of both ('iou') or of the gt_box ('iof').

    Called with (anchor_boxes, gt_boxes).
    """

    def __init__(self, mode: str = "iou"):
        if mode not in ("iou", "iof"):
            raise MissingKeyError(f"For 'IOU', only 'iou' or 'iof' are supported, but got 'mode': {mode}.")
        super().__init__(mode=mode)

    def __call__(self, anchor_boxes: Any, gt_boxes: Any) -> Any:
        check_tensors("IOU", anchor_boxes=anchor_boxes, gt_boxes=gt_boxes)
        anchors = [side.reshape(1, -1) for side in _sides("IOU", anchor_boxes)]
        truths = [side.reshape(-1, 1) for side in _sides("IOU", gt_boxes)]
        width = F.clamp(F.minimum(anchors[2], truths[2]) - F.maximum(anchors[0], truths[0]) + 1, min=0)
        height = F.clamp(F.minimum(anchors[3], truths[3]) - F.maximum(anchors[1], truths[1]) + 1, min=0)
        shared = width * height
        areas = [(x2 - x1 + 1) * (y2 - y1 + 1) for x1, y1, x2, y2 in (anchors, truths)]
        whole = areas[1] + F.zeros_like(shared) if self.mode == "iof" else areas[0] + areas[1] - shared
        return shared / whole


class _Deltas(Configured):
    def _four(self, name: str, value: Any) -> tuple[float, ...]:
        owner = type(self).__name__
        check_type(owner, name, value, tuple, list)
        if len(value) != 4:
            raise ArgumentValueError(f"For '{owner}', the '{name}' must hold 4 floats, but got {value}")
        return tuple(float(check_type(owner, name, v, float)) for v in value)


class BoundingBoxEncode(_Deltas):
    """What moves anchor boxes onto true ones, (N, 4): called with (anchor_box, groundtruth_box)."""

    def __init__(self, means: Any = (0.0, 0.0, 0.0, 0.0), stds: Any = (1.0, 1.0, 1.0, 1.0)):
        super().__init__(means=self._four("means", means), stds=self._four("stds", stds))

    def __call__(self, anchor_box: Any, groundtruth_box: Any) -> Any:
        check_tensors("BoundingBoxEncode", anchor_box=anchor_box, groundtruth_box=groundtruth_box)
        (ax, ay, aw, ah), (gx, gy, gw, gh) = (_middle(_sides("BoundingBoxEncode", b)) for b in (anchor_box, groundtruth_box))
        deltas = (gx - ax) / aw, (gy - ay) / ah, F.log(gw / aw), F.log(gh / ah)
        return F.stack([(d - mean) / std for d, mean, std in zip(deltas, self.means, self.stds)], 1)


class BoundingBoxDecode(_Deltas):
    """Anchor boxes moved by deltas, kept within images of `max_shape` (height, width): called with (anchor_box, deltas).

    Args:
        wh_ratio_clip: the least and (inverted) largest factor of a width or height.
    """

    def __init__(self, max_shape: Any, means: Any = (0.0, 0.0, 0.0, 0.0), stds: Any = (1.0, 1.0, 1.0, 1.0), wh_ratio_clip: float = 0.016):
        check_type("BoundingBoxDecode", "wh_ratio_clip", wh_ratio_clip, float)
        if not isinstance(max_shape, (tuple, list)) or any(isinstance(n, bool) or not isinstance(n, int) for n in max_shape):
            raise ArgumentTypeError(f"For 'BoundingBoxDecode', the 'max_shape' must be a tuple of ints, but got {max_shape!r}")
        if len(max_shape) != 2:
            raise ArgumentValueError(f"For 'BoundingBoxDecode', the 'max_shape' must hold 2 ints, but got {max_shape}")
        super().__init__(
            max_shape=tuple(max_shape), means=self._four("means", means), stds=self._four("stds", stds), wh_ratio_clip=wh_ratio_clip
        )

    def __call__(self, anchor_box: Any, deltas: Any) -> Any:
        check_tensors("BoundingBoxDecode", anchor_box=anchor_box, deltas=deltas)
        ax, ay, aw, ah = _middle(_sides("BoundingBoxDecode", anchor_box))
        dx, dy, dw, dh = (d * std + mean for d, mean, std in zip(_sides("BoundingBoxDecode", deltas), self.means, self.stds))
        most = abs(math.log(self.wh_ratio_clip))
        width, height = aw * F.exp(F.clamp(dw, -most, most)), ah * F.exp(F.clamp(dh, -most, most))
        x, y = ax + aw * dx, ay + ah * dy
        right, bottom = self.max_shape[1] - 1, self.max_shape[0] - 1
        return F.stack(
            [
                F.clamp(x - (width - 1) * 0.5, 0, right), F.clamp(y - (height - 1) * 0.5, 0, bottom),
                F.clamp(x + (width - 1) * 0.5, 0, right), F.clamp(y + (height - 1) * 0.5, 0, bottom),
            ],
            1,
        )  # fmt: skip


def _middle(sides: list[Any]) -> tuple[Any, Any, Any, Any]:
    x1, y1, x2, y2 = sides
    return (x1 + x2) * 0.5, (y1 + y2) * 0.5, x2 - x1 + 1, y2 - y1 + 1


class NMSWithMask(Configured):
    """Boxes of which those that overlap a better one by more than `iou_threshold` are crossed out: called with bboxes (N, 5), the last column scores.

    Outputs: the boxes, best first; 0 to N - 1 (Int32); which are left (Bool).
    """

    def __init__(self, iou_threshold: float = 0.5):
        super().__init__(iou_threshold=check_type("NMSWithMask", "iou_threshold", iou_threshold, float))

    def __call__(self, bboxes: Any) -> tuple[Any, Any, Any]:
        check_tensors("NMSWithMask", bboxes=bboxes)
        if bboxes.ndim != 2 or bboxes.shape[1] != 5 or bboxes.shape[0] == 0:
            raise ShapeError(f"For 'NMSWithMask', the bboxes must have the shape (N, 5) with N > 0, but have {bboxes.shape}")
        count = bboxes.shape[0]
        boxes: Any = F.stop_gradient(F.gather(bboxes, F.argsort(bboxes[:, 4], descending=True), 0))
        x1, y1, x2, y2 = (boxes[:, k] for k in range(4))
        areas = F.relu(x2 - x1) * F.relu(y2 - y1)
        width = F.relu(F.minimum(x2.reshape(-1, 1), x2) - F.maximum(x1.reshape(-1, 1), x1))
        height = F.relu(F.minimum(y2.reshape(-1, 1), y2) - F.maximum(y1.reshape(-1, 1), y1))
        shared: Any = width * height
        overlaps = shared > (areas.reshape(-1, 1) + areas - shared) * self.iou_threshold
        (left,), _ = scan("nms_step", _cross_out, [F.ones((count,), dt.bool_)], [overlaps], [])
        return boxes, F.arange(count).astype(dt.int32), left


def _cross_out(number: Tensor, carried: Tensors, rows: Tensors, kept: Tensors) -> tuple[Tensors, Tensors]:
    (left,), (overlaps,) = carried, rows
    is_left = F.broadcast_to(F.gather(left, F.expand_dims(number, 0), 0), left.shape)
    is_worse: Any = F.arange(left.shape[0]) > number
    crossed = F.logical_and(F.logical_and(is_left, is_worse), overlaps)
    return (F.logical_and(left, F.logical_not(crossed)),), ()


class CropAndResize(Configured):
    """Parts of images, resized: called with (x (N, H, W, C), boxes (M, 4), box_index (M,), crop_size), which gives (M, *crop_size, C).

    Boxes are (top, left, bottom, right) as parts of height - 1 and width - 1; what lies outside of an image is `extrapolation_value`.

    Args:
        method: 'bilinear' or 'nearest'; MindSpore's 'bilinear_v2' is not there.
    """

    def __init__(self, method: str = "bilinear", extrapolation_value: float = 0.0):
        check_choice("CropAndResize", "method", method, "bilinear", "nearest")
        super().__init__(method=method, extrapolation_value=float(check_type("CropAndResize", "extrapolation_value", extrapolation_value, float)))

    def __call__(self, x: Any, boxes: Any, box_index: Any, crop_size: Any) -> Any:
        check_tensors("CropAndResize", x=x, boxes=boxes, box_index=box_index)
        if x.ndim != 4 or box_index.shape != boxes.shape[:1] or 0 in x.shape:
            raise ShapeError(f"For 'CropAndResize', the shapes do not fit: {x.shape}, {boxes.shape}, {box_index.shape}")
        top, left, bottom, right = _sides("CropAndResize", boxes)
        count, height, width, channels = x.shape
        rows, near_rows = self._samples(top, bottom, crop_size[0], height)
        columns, near_columns = self._samples(left, right, crop_size[1], width)
        flat = F.cast(x, dt.float32).reshape(count * height * width, channels)
        image = F.cast(box_index, dt.int64).reshape(-1, 1, 1)
        total: Any = 0.0
        for y, of_y in rows:
            for z, of_z in columns:
                index = (image * height + y.expand_dims(2)) * width + z.expand_dims(1)
                total = total + F.gather(flat, index, 0) * (of_y.expand_dims(2) * of_z.expand_dims(1)).expand_dims(3)
        is_near = F.logical_and(near_rows.expand_dims(2), near_columns.expand_dims(1)).expand_dims(3)
        return F.select(F.broadcast_to(is_near, total.shape), total, F.full_like(total, self.extrapolation_value))

    def _samples(self, start: Any, end: Any, count: int, extent: int) -> tuple[list[tuple[Any, Any]], Any]:
        """For all samples (M, count) along a dimension: the places that they are made of, with their weights; and which are inside."""
        start, end = F.cast(start, dt.float32).expand_dims(1), F.cast(end, dt.float32).expand_dims(1)
        if count > 1:
            step = (end - start) * (float(extent - 1) / (count - 1))
            at = start * float(extent - 1) + step * F.cast(F.arange(count), dt.float32).expand_dims(0)
        else:
            at = (start + end) * (0.5 * (extent - 1))
        is_inside = F.logical_and(at >= 0, at <= float(extent - 1))
        at = F.clamp(at, 0.0, float(extent - 1))
        if self.method == "nearest":
            return [(F.cast(F.floor(at + 0.5), dt.int64), F.ones_like(at))], is_inside
        low = F.floor(at)
        places = [F.cast(F.clamp(low + k, 0.0, float(extent - 1)), dt.int64) for k in (0, 1)]
        return [(places[0], 1 - (at - low)), (places[1], at - low)], is_inside
