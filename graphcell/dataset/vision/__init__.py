"""Transforms of images."""

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

__all__ = [
    "HWC2CHW", "Border", "CenterCrop", "Crop", "CutOut", "HorizontalFlip", "Inter", "Invert", "Normalize", "Pad", "RandomCrop", "RandomHorizontalFlip",
    "RandomResizedCrop", "RandomVerticalFlip", "Rescale", "Resize", "ToTensor", "ToType", "VerticalFlip",
]  # fmt: skip
