"""Callbacks of `Dataset.map`."""

from graphcell.dataset.callback.ds_callback import DSCallback

__all__ = ["DSCallback"]
