"""The core of the interpreter: the state of one trace, and what expressions, statements and calls share.

Names bind to Python objects. Numbers, tuples, lists, dicts, strings, Cells and functions are compile-time
values and behave as in Python; Tensors are symbolic. Enters: functions and arguments. Leaves: nodes in the
graph under construction (`state.trace`), and what the functions return. Each node carries the span of the
code that made it, with the chain of calls that led there.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from graphcell.context import config
from graphcell.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    GraphcellError,
    Span,
    UnsupportedSyntaxError,
    render,
)
from graphcell.frontend.frame import Frame, call_site
from graphcell.frontend.guards import MISSING, Guards
from graphcell.frontend.libraries import is_library_file
from graphcell.frontend.numbers import WeakNumber
from graphcell.frontend.places import (
    CONTAINERS,
    AttributePlace,
    CellPlace,
    GlobalPlace,
    ItemsPlace,
    Log,
    NamePlace,
    Place,
    Speculation,
    Unbound,
)
from graphcell.frontend.signals import Chain, Done, Signal
from graphcell.frontend.source import FunctionSource
from graphcell.frontend.supported import unsupported
from graphcell.ops.functional.common import cast
from graphcell.tensor import Tensor, state

Body = Callable[[], Signal | None]


class Core:
    """One trace. `frames`: the calls being interpreted. `logs`: see `places.Log`; the first belongs to the
    whole trace.

    `conditional`: how many regions around here run only if some Tensor says so. `loops`: the loops being
    built as one op, innermost last. `remarks`: what a user may want to know of the translation (loops that
    were unrolled, and why).
    """

    def __init__(self, varying: frozenset[tuple[int, str]] = frozenset()) -> None:
        self.frames: list[Frame] = []
        self.logs: list[Log] = [Log(0)]
        self.guards = Guards(varying)
        self.conditional = 0
        self.loops: list[Any] = []
        self.remarks: list[str] = []
        self.born: dict[int, Any] = {}
        self.outside: Span | None = None

    # -- places --------------------------------------------------------------------------------------------
    def note(self, place: Place) -> bool:
        """To be called before a place changes. True if it has not changed before."""
        log = self.logs[-1]
        if isinstance(place, NamePlace):
            return place.scope.level < log.level and log.note(place)
        subject = place.container if isinstance(place, ItemsPlace) else getattr(place, "owner", None)
        return (subject is None or id(subject) not in log.births) and log.note(place)

    def assign(self, place: Place, value: Any) -> None:
        """Writes `value` into `place`."""
        is_first = self.note(place)
        try:
            place.set(value)
        except BaseException:
            if is_first:  # nothing changed, and what refuses to be set cannot be set back either
                self.logs[-1].forget(place)
            raise

    def bear(self, thing: Any) -> Any:
        """Notes that `thing` was made just now, so that changes of it concern nobody outside; returns it."""
        self.born[id(thing)] = thing
        if len(self.logs) > 1:
            self.logs[-1].births[id(thing)] = thing
        return thing

    def note_contents(self, container: Any) -> None:
        """To be called before the contents of a list, dict or set change."""
        if isinstance(container, CONTAINERS):
            self.note(ItemsPlace(container))

    @contextmanager
    def logged(self, strict: bool = False) -> Iterator[Log]:
        """A log of what changes inside; on leaving, everything has its old value again. Take `finals()`
        before.
        """
        log = Log(len(self.logs), strict or self.logs[-1].strict)
        self.logs.append(log)
        try:
            yield log
        finally:
            self.logs.pop()
            log.undo()

    # -- names ---------------------------------------------------------------------------------------------
    def load(self, name: str, frame: Frame) -> Any:
        """The value of a name, as Python finds it."""
        value = frame.find(name)
        if isinstance(value, Unbound):
            if value.error is not None or frame.is_local(name):
                raise frame.unbound_error(name, value)
            value = frame.global_value(name)
            if isinstance(value, Unbound):
                if not self.is_changed(GlobalPlace(frame.globals, name)):
                    self.guards.global_read(frame.globals, name, MISSING)
                raise frame.unbound_error(name, value)
            if (
                not frame.library
                and name in frame.globals
                and not self.is_changed(GlobalPlace(frame.globals, name))
            ):
                return self.guards.global_read(frame.globals, name, value)
            return value
        base = frame.base
        if (
            name in base.source.code.co_freevars
            and name in base.cells
            and not self.is_changed(CellPlace(base.cells[name], name))
        ):
            if id(base.cells[name]) not in self.born:
                return self.guards.closure_read(base.cells[name], name, value)
        return value

    def store(self, name: str, value: Any, frame: Frame, comprehension: bool = False) -> None:
        """Binds a name; a Tensor without a name gets it."""
        if type(value) is Tensor and value._value is not None and not value._value.name:
            value._value.name = name
        place = frame.place(name, comprehension)
        if isinstance(place, NamePlace):
            place.scope.spans[name] = frame.node
        self.assign(place, value)

    def is_changed(self, place: Place) -> bool:
        """True if the traced code has written to `place`."""
        key = place.key
        return any(key in log.entries for log in self.logs)

    # -- attributes ----------------------------------------------------------------------------------------
    def load_attribute(self, owner: Any, name: str) -> Any:
        """`owner.name`; a property of the user's is interpreted."""
        if isinstance(owner, WeakNumber):
            raise Speculation("an attribute of the loop's index is needed")
        kind = type(owner)
        described = getattr(kind, name, None) if kind is not type else None
        if (
            type(described) is property
            and isinstance(described.fget, FunctionType)
            and self.is_interpreted(described.fget, owner)
        ):
            return self.call(described.fget, (owner,), {})
        try:
            value = getattr(owner, name)
        except AttributeError:
            self._seen_attribute(owner, name, MISSING)
            raise
        if isinstance(value, Unbound):
            raise value.error() if value.error is not None else AttributeError(name)
        return self._seen_attribute(owner, name, value)

    def _seen_attribute(self, owner: Any, name: str, value: Any) -> Any:
        """What the traced code is to see of an attribute, which is noted if it comes from outside."""
        if isinstance(owner, Tensor) or id(owner) in self.born or self.is_changed(AttributePlace(owner, name)):
            return value
        return self.guards.attribute_read(owner, name, value)

    def store_attribute(self, owner: Any, name: str, value: Any) -> None:
        """`owner.name = value`."""
        if type(value) is Tensor and value._value is not None and not value._value.name:
            value._value.name = name
        self.assign(AttributePlace(owner, name), value)

    # -- truth ---------------------------------------------------------------------------------------------
    def truth(self, value: Any) -> bool | Tensor:
        """The truth of a value: a bool, or a Bool scalar of the graph."""
        if isinstance(value, Tensor):
            return self._tensor_truth(value)
        if isinstance(value, WeakNumber):
            return cast(value.tensor, "bool")
        return bool(value)

    def _tensor_truth(self, tensor: Tensor) -> bool | Tensor:
        if tensor.size != 1:
            raise ArgumentValueError(
                f"the truth value of a Tensor with {tensor.size} elements is ambiguous (shape {tensor.shape})",
                hint="use .any() or .all(), or one element",
            )
        if self.is_constant(tensor):
            return bool(tensor.array().reshape(())[()])
        scalar = tensor.reshape(()) if tensor.ndim else tensor
        return cast(scalar, "bool")

    def is_constant(self, tensor: Tensor) -> bool:
        """True for a Tensor made of numbers while tracing, and not changed since."""
        if tensor._data is None or not tensor._constant or state.trace is None:
            return False
        return all(id(tensor) not in scope.newest_values for scope in state.trace.chain())

    # -- iteration -----------------------------------------------------------------------------------------
    def iterate(self, value: Any) -> Iterator[Any]:
        """The items of a compile-time sequence, or the rows of a Tensor."""
        if isinstance(value, Tensor):
            if not value.ndim:
                raise ArgumentTypeError("iteration over a 0-d Tensor")
            return (value[k] for k in range(value.shape[0]))  # type: ignore[index]
        return iter(value)

    # -- running -------------------------------------------------------------------------------------------
    def evaluate(self, node: ast.expr, frame: Frame) -> Any:
        """The value of an expression."""
        visit = getattr(self, "visit_" + type(node).__name__, None)
        if visit is None:
            frame.node = node
            raise unsupported(node)
        return visit(node, frame)

    def run(self, chain: Chain, frame: Frame) -> Signal | None:
        """Runs statements to the end of the chain; None if they end there by falling off."""
        while True:
            statements = chain.statements
            for k in range(chain.start, len(statements)):
                statement = statements[k]
                frame.node = statement
                name = type(statement).__name__
                simple = getattr(self, "run_" + name, None)
                if simple is not None:
                    signal = simple(statement, frame)
                    if signal is not None:
                        return signal  # type: ignore[no-any-return]
                    continue
                structured = getattr(self, "run_block_" + name, None)
                if structured is None:
                    raise unsupported(statement)
                outcome = structured(
                    statement, frame, Chain(statements, k + 1, chain.then, chain.ends_function)
                )
                if isinstance(outcome, Done):
                    return outcome.signal
                chain = outcome
                break
            else:
                if chain.then is None:
                    return Signal(returned=True) if chain.ends_function else None
                chain = chain.then

    def run_function(self, source: FunctionSource, frame: Frame) -> Any:
        """Runs the body of a function whose arguments are bound; gives what it returns."""
        if len(self.frames) >= config.max_call_depth:
            raise UnsupportedSyntaxError(
                f"Exceed function call depth limit {config.max_call_depth} (function {source.name}).",
                hint="a recursion must end on a compile-time value, not on a Tensor; max_call_depth of set_context raises the limit",
            )
        self.frames.append(frame)
        try:
            signal = self.run(Chain(source.body, ends_function=True), frame)
            return signal.value if signal is not None else None
        except GraphcellError as e:
            self.locate(e)
            raise
        except Exception as e:
            self._annotate(e)
            raise
        finally:
            self.frames.pop()

    def _annotate(self, error: Exception) -> None:
        """Adds the place to an exception that is not ours, once."""
        if getattr(error, "__graphcell_place__", False):
            return
        span = self.span()
        try:
            error.__graphcell_place__ = True  # type: ignore[attr-defined]
        except AttributeError:
            return
        if span is not None:
            error.add_note(render(span))

    def span(self) -> Span | None:
        """The place of the code being interpreted: the innermost call that is not in one of graphcell's own
        layers. Where a layer itself is what is compiled, the line that called it.
        """
        for frame in reversed(self.frames):
            if not frame.library:
                return frame.span()
        if self.outside is None:
            self.outside = call_site()
        return self.outside

    def locate(self, error: GraphcellError) -> None:
        """Sets the place of an error if it has none in the user's code yet."""
        if error.span is None or is_library_file(error.span.file):
            error.span = self.span() or error.span

    # -- what the layers above define ----------------------------------------------------------------------
    def call(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Calls any callable: interpreted if it is the user's, as it is otherwise."""
        raise NotImplementedError

    def is_interpreted(self, function: FunctionType, owner: Any = None) -> bool:
        """True if `function` (a method of `owner`) is interpreted when it is called."""
        raise NotImplementedError

    def branch(self, condition: Tensor, then: Body, otherwise: Body) -> Signal | None:
        """Runs `then` where the condition holds, else `otherwise`, as regions of one op."""
        raise NotImplementedError
