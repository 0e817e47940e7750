"""Source spans, the error classes, and the only renderer of carets.

Enters: a message in the user's terms, perhaps a hint, perhaps a `Span`. Leaves: an exception whose text is at most a dozen lines:
message, place, source line with a caret, call sites, hint. Every class also inherits the builtin that a MindSpore user would catch.
"""

from __future__ import annotations

import linecache
from dataclasses import replace
from typing import Any

from graphcell.records import dataclass

_CALL_SITES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of source text. Lines count from 1, columns from 0 in characters (not bytes); `end_column` is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    function: str = ""
    caller: Span | None = None
    gradient: bool = False  # stands for "gradient of" this place

    @property
    def source(self) -> str:
        """The text of the first line, without its line end; empty where the file is not there."""
        return linecache.getline(self.file, self.line).rstrip("\n")

    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column + 1}"

    def in_any_call(self) -> Span:
        """This without the call in which the code was compiled: for what is said when it runs, in calls from wherever."""
        if self.caller is None:
            return self
        return replace(self, caller=None if self.caller.caller is None else self.caller.in_any_call())

    def as_gradient(self) -> Span:
        if self.gradient:
            return self
        return Span(self.file, self.line, self.column, self.end_line, self.end_column, self.function, self.caller, True)


def render(span: Span) -> str:
    """The place of `span` with its source line, a caret under it, and the chain of calls that led there."""
    inside = f" in {span.function}" if span.function else ""
    lines = [f"  --> {'gradient of ' if span.gradient else ''}{span.place()}{inside}"]
    if span.source:
        number = str(span.line)
        end = span.end_column if span.end_line == span.line else len(span.source)
        carets = "^" * max(1, end - span.column)
        lines.append(f"   {number} | {span.source}")
        lines.append(f"   {' ' * len(number)} | {' ' * span.column}{carets}")
    site = span.caller
    for _ in range(_CALL_SITES_SHOWN):
        if site is None:
            break
        inside = f" in {site.function}" if site.function else ""
        lines.append(f"  called from {site.place()}{inside}:  {site.source.strip()}")
        site = site.caller
    return "\n".join(lines)


class GraphcellError(Exception):
    """Base of all errors of graphcell. `code` is stable; `span` is filled in where the source is known."""

    code = "GC000"

    def __init__(self, message: str, *, hint: str = "", span: Span | None = None):
        super().__init__(message)
        self.message, self.hint, self.span = message, hint, span

    def at(self, span: Span | None) -> GraphcellError:
        """Sets the place if none is known yet (the innermost one wins)."""
        if self.span is None:
            self.span = span
        return self

    def __str__(self) -> str:
        if self.span is None:
            return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message
        parts = [f"{self.message} [{self.code}]", render(self.span)]
        if self.hint:
            parts.append(f"  hint: {self.hint}")
        return "\n".join(parts)


class UnsupportedSyntaxError(GraphcellError, RuntimeError):
    """GC101: a statement or expression that a graph cannot hold. Way out: rewrite it, or run that part outside `@jit`."""

    code = "GC101"


class SourceNotFoundError(GraphcellError, RuntimeError):
    """GC102: a function without Python source (typed into `exec`, built in C) cannot be compiled. Way out: put it in a file."""

    code = "GC102"


class UndefinedNameError(GraphcellError, NameError):
    """GC103: a name with no value at this point, perhaps set in one branch only."""

    code = "GC103"


class UnboundNameError(GraphcellError, UnboundLocalError):
    """GC104: a local variable that only one of two branches assigns is read afterwards."""

    code = "GC104"


class ConcretizationError(GraphcellError, RuntimeError):
    """GC105: the value of a Tensor is asked for while its graph is being built (`bool`, `item`, `asnumpy`, `int`).

    `guards`: what the code up to there depends on (graphcell.frontend.guards.Guards), once the trace has ended.
    """

    code = "GC105"
    guards: Any = None


class BranchTypeError(GraphcellError, TypeError):
    """GC106: two branches, or two iterations of a loop, give one variable different types."""

    code = "GC106"


class DataDependentTypeError(BranchTypeError, ConcretizationError):
    """GC106 where what differs is a shape, a length, a constant, or None: Python, which knows the values, would go on."""


class DTypeError(GraphcellError, TypeError):
    """GC201: an operand's dtype is not one that the op takes."""

    code = "GC201"


class ArgumentTypeError(GraphcellError, TypeError):
    """GC202: an argument is not of the kind that the function takes."""

    code = "GC202"


class ShapeError(GraphcellError, ValueError):
    """GC203: the operands' shapes do not fit each other or the op."""

    code = "GC203"


class ContractionShapeError(ShapeError, RuntimeError):
    """GC203 as well: the operands of a matrix product or a convolution do not fit each other; RuntimeError is what MindSpore raises then."""


class ArgumentValueError(GraphcellError, ValueError):
    """GC204: an argument's value is outside of what the function takes."""

    code = "GC204"


class GradientCountError(ArgumentValueError, RuntimeError):
    """GC204 as well: an optimizer has another number of Parameters than it is given gradients; RuntimeError is what MindSpore raises then."""


class IndexRangeError(GraphcellError, IndexError):
    """GC205: an index is outside of its dimension."""

    code = "GC205"


class PositionError(IndexRangeError, RuntimeError):
    """GC205 as well: a call has no argument at a position to differentiate; IndexError is what MindSpore's GRAPH_MODE raises then, RuntimeError
    what its PYNATIVE_MODE does."""


class DataIndexError(IndexRangeError, RuntimeError):
    """GC209: an index that a Tensor holds is outside of its dimension; RuntimeError is what MindSpore raises then. In a compiled
    function it is found while that runs."""

    code = "GC209"


class MissingAttributeError(GraphcellError, AttributeError):
    """GC206: an object has no attribute of that name."""

    code = "GC206"


class MissingKeyError(GraphcellError, KeyError):
    """GC207: a name is not in the mapping, or may not be used there. Where only the name or message is known it prints as KeyErrors do, quoted."""

    code = "GC207"

    def __str__(self) -> str:
        return KeyError.__str__(self) if self.span is None and not self.hint else super().__str__()


class ArityError(GraphcellError, TypeError):
    """GC208: a function is called with too few, too many or unknown arguments."""

    code = "GC208"


class MappedAxisError(GraphcellError, RuntimeError):
    """GC210: the axes given to `vmap` do not fit its arguments or results."""

    code = "GC210"


class NoGradientError(GraphcellError, RuntimeError):
    """GC301: an op on the way from the outputs to a differentiated input has no gradient rule."""

    code = "GC301"


class VerificationError(GraphcellError, RuntimeError):
    """GC401: a Graph breaks a rule of the IR (a pass or an edited dump is wrong)."""

    code = "GC401"


class ParseError(GraphcellError, ValueError):
    """GC402: text that is not IR. The message gives line and column in the text."""

    code = "GC402"


class CodegenError(GraphcellError, RuntimeError):
    """GC501: LLVM refused the generated code (a fault of graphcell, never of the user's program)."""

    code = "GC501"


class OutOfMemoryError(GraphcellError, MemoryError):
    """GC502: the buffers of a graph do not fit into memory. The message gives the bytes asked for."""

    code = "GC502"


class ExecutionError(GraphcellError, RuntimeError):
    """GC503: something failed while an executable ran (a check in the graph, a host call that raised)."""

    code = "GC503"


class CheckpointError(GraphcellError, ValueError):
    """GC601: a file is missing, truncated, corrupt or not a checkpoint."""

    code = "GC601"


class CheckpointMismatchError(GraphcellError, RuntimeError):
    """GC602: a checkpoint's parameter does not fit the network's (shape, or dtype under strict loading)."""

    code = "GC602"


class DatasetError(GraphcellError, RuntimeError):
    """GC701: a data pipeline cannot go on: user code in it raised, or rows do not fit its columns, each other, or the file format."""

    code = "GC701"


class NotImplementedFeatureError(GraphcellError, NotImplementedError):
    """GC901: MindSpore has this, graphcell does not yet. The message says what exactly."""

    code = "GC901"
