"""AdamW under the name of its fused kernel."""

from __future__ import annotations

from graphcell.mint.optim.adamw import AdamW


class FusedAdamW(AdamW):
    """`AdamW`: the update of a Parameter is one sweep over it for all optimizers here, and the numbers are AdamW's.

    Args, state by name and errors: as of `AdamW`.
    """
