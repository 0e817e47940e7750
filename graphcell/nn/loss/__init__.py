"""Losses; all are names of `nn` too."""

from graphcell.nn.loss.loss import *  # noqa: F403
