"""Compositions, where MindSpore programs import them from: `from mindspore.ops import composite as C`."""

from __future__ import annotations

from typing import Any

from graphcell.missing import refuse


def __getattr__(name: str) -> Any:
    from graphcell import ops

    if not hasattr(ops, name):
        refuse(__name__, name)
    return getattr(ops, name)
