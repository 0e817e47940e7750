"""Metrics under their older path: those of `graphcell.train.metrics`, which stands above this room and is imported when one is asked for."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    from graphcell.train import metrics

    return getattr(metrics, name)
