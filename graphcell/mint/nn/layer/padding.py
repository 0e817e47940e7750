"""Layers that pad with zeros, for those that `nn` does not have."""

from __future__ import annotations

from typing import Any

from graphcell.nn import ConstantPad1d, ConstantPad3d


class ZeroPad1d(ConstantPad1d):
    """Pads the last dimension with zeros; negative padding cuts off."""

    def __init__(self, padding: Any):
        super().__init__(padding, 0)


class ZeroPad3d(ConstantPad3d):
    """Pads the last three dimensions with zeros; negative padding cuts off."""

    def __init__(self, padding: Any):
        super().__init__(padding, 0)
