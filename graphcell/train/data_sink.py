"""`data_sink`, which needs an accelerator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphcell.errors import ArgumentValueError


def data_sink(
    fn: Callable[..., Any], dataset: Any, sink_size: int = 1, jit_config: Any = None, input_signature: Any = None
) -> Callable[[], Any]:
    """Raises ValueError: data are moved ahead to an ascend or gpu device only, and there is the CPU."""
    raise ArgumentValueError(
        "Data sinking supports ascend or gpu device target, but device target is CPU.",
        hint="call the function with each element of dataset.create_tuple_iterator()",
    )
