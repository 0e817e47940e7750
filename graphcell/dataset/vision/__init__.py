"""Transforms of images."""

from typing import TYPE_CHECKING

from graphcell.dataset.vision.transforms import (
    HWC2CHW,
    CenterCrop,
    Crop,
    CutOut,
    HorizontalFlip,
    Invert,
    Normalize,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Rescale,
    Resize,
    ToTensor,
    ToType,
    VerticalFlip,
)  # fmt: skip
from graphcell.dataset.vision.utils import Border, Inter
from graphcell.missing import getattr_of as _getattr_of

__all__ = [
    "HWC2CHW", "Border", "CenterCrop", "Crop", "CutOut", "HorizontalFlip", "Inter", "Invert", "Normalize", "Pad", "RandomCrop", "RandomHorizontalFlip",
    "RandomResizedCrop", "RandomVerticalFlip", "Rescale", "Resize", "ToTensor", "ToType", "VerticalFlip",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know all names that there are
    __getattr__ = _getattr_of(__name__)
