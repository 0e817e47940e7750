"""From Python functions to Graphs: an interpreter of their AST.

`call` is for code of graphcell that calls back what the user wrote; `trace_function` is what `@jit` starts
with.
"""

from graphcell.frontend.interpreter import active, call
from graphcell.frontend.tracing import Traced, trace_function

__all__ = ["Traced", "active", "call", "trace_function"]
