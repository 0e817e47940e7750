"""Transforms for `Dataset.map`."""

from graphcell.dataset.transforms.transforms import (
    Compose,
    Concatenate,
    Duplicate,
    Fill,
    Mask,
    OneHot,
    PadEnd,
    RandomApply,
    RandomChoice,
    RandomOrder,
    Relational,
    Slice,
    TypeCast,
    Unique,
)  # fmt: skip

__all__ = [
    "Compose", "Concatenate", "Duplicate", "Fill", "Mask", "OneHot", "PadEnd", "RandomApply", "RandomChoice", "RandomOrder", "Relational", "Slice",
    "TypeCast", "Unique",
]  # fmt: skip
