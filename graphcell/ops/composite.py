"""Compositions, where MindSpore programs import them from: `from mindspore.ops import composite as C`."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from graphcell import ops

    try:
        return getattr(ops, name)
    except AttributeError:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'") from None
