"""Enumerations of image transforms."""

from __future__ import annotations

from enum import Enum, IntEnum


class Inter(IntEnum):
    """How values between pixels are found. Resizing here knows NEAREST and LINEAR (BILINEAR)."""

    NEAREST = 0
    ANTIALIAS = 1
    BILINEAR = LINEAR = 2
    BICUBIC = CUBIC = 3
    AREA = 4
    PILCUBIC = 5


class Border(str, Enum):  # noqa: UP042 - prints as MindSpore's does
    """What stands around an image: a constant, its edge, or its mirror image without (REFLECT) or with (SYMMETRIC) the edge itself."""

    CONSTANT = "constant"
    EDGE = "edge"
    REFLECT = "reflect"
    SYMMETRIC = "symmetric"
