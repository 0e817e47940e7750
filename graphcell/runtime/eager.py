"""Native kernels for the eager mode: graphs of one op, of a gradient rule, of a composition.

Enters: graphs, and functions of the library (see ops/kernels.py). Leaves: `Kernel`s, called with Tensors, and `Composite`s, called like
the function. Refuses: graphs that would call back into Python; functions whose arguments or results are of other kinds stay as they are.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from graphcell.dtype import DType
from graphcell.errors import GraphcellError, NotImplementedFeatureError, OutOfMemoryError
from graphcell.ir.graph import Graph
from graphcell.locks import whole
from graphcell.ops.control import GraphCall
from graphcell.ops.dispatch import Trace, apply, write
from graphcell.ops.kernels import Native, Work, spent
from graphcell.runtime.vectorcall import NativelyCalled, with_vectorcall
from graphcell.tensor import Tensor, state

_KEPT_SIGNATURES = 512
"""So many signatures of a composition are kept; the oldest go first."""
_KEPT_GRAPHS = 256
_RUNS_BEFORE_NATIVE = 2
_PYTHON_NANOSECONDS = 7000.0
"""What a composition takes beside its ops, about, and compiled does not."""


class Kernel(NativelyCalled):
    """A compiled graph as a function of its inputs; gives a tuple of Tensors, or NotImplemented if an operand is not contiguous."""

    def __new__(cls, graph: Graph) -> Kernel:
        return object.__new__(_KERNEL)

    def __init__(self, graph: Graph):
        with whole:
            from graphcell.runtime.binding import Binding
            from graphcell.runtime.executable import compile_graph

        executable = compile_graph(graph, keeps_denormals=True)  # as what numpy computes instead, and as MindSpore's eager mode
        self.calls_python = bool(executable.compilation.program.host_calls)
        self.binding = Binding(executable, len(graph.inputs), [])
        self._records: list[Any] = []

    def __call__(self, *operands: Tensor) -> Any:
        for t in operands:
            if t._data is not None and not t._data.flags.c_contiguous:
                return NotImplemented
        results = self.binding(operands)
        if self.binding.spaces.runs >= _RUNS_BEFORE_NATIVE:
            self._serve(operands)
        return results

    def copying(self, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The same for operands of whatever layout; those that are not contiguous are from now on."""
        return self.binding(operands)

    def _serve(self, operands: Sequence[Tensor]) -> None:
        from graphcell.runtime.binding import Record
        from graphcell.runtime.calling import ANY

        table = self.natives(always=True)
        if table is None or len(self._records) >= 2 or any(t._data is None for t in operands):
            return
        record = Record.of(table, self.binding, operands, {}, ANY, (), (), None, tuple, False, True, parameters=True)
        if record is not None:
            self._records.append(record)
            table.add(record)


_KERNEL = with_vectorcall(Kernel)


def compile_kernel(graph: Graph) -> Kernel | None:
    """The kernel of a graph; None if it would call back into Python, or cannot be compiled."""
    kernel = _compile_if_possible(graph)
    return None if kernel is None or kernel.calls_python else kernel


def _compile_if_possible(graph: Graph) -> Kernel | None:
    """The kernel of a graph; None if it cannot be compiled, with a warning if that is a fault of the compiler."""
    try:
        return Kernel(graph)
    except (NotImplementedFeatureError, OutOfMemoryError):
        return None
    except GraphcellError as e:
        warnings.warn(f"{graph.name} stays in numpy, since it could not be compiled: {e}", RuntimeWarning, stacklevel=2)
        return None


_graphs: OrderedDict[int, tuple[Graph, Kernel]] = OrderedDict()


def run_graph(graph: Graph, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Runs a graph that is an op of its own (`GraphCall`), compiled."""
    found = _graphs.get(id(graph))
    if found is None:
        found = _keep(graph, Kernel(graph))
    return _call(found[1], operands)


def _keep(graph: Graph, kernel: Kernel) -> tuple[Graph, Kernel]:
    found = _graphs[id(graph)] = (graph, kernel)
    while len(_graphs) > _KEPT_GRAPHS:
        _graphs.popitem(last=False)
    return found


def _call(kernel: Kernel, operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """What the kernel gives for operands of whatever layout."""
    results = kernel(*operands)
    return kernel.copying(operands) if results is NotImplemented else results


# -- compositions --------------------------------------------------------------------------------------------------------
_CONSTANTS = (bool, int, str, bytes, type(None))
_PLAIN_OBJECTS = (DType,)  # there is one of each


def _key(x: Any, leaves: list[Tensor]) -> Any:
    """A hashable form of an argument; appends its Tensors to `leaves`. TypeError for what a composition cannot take."""
    kind = type(x)
    if isinstance(x, Tensor):
        leaves.append(x)
        data = x._data if x._data is not None else x.array()
        return (kind, data.dtype, data.shape)
    if kind in _CONSTANTS:
        return (kind, x)
    if kind is float:
        return (kind, x.hex())
    if kind is tuple or kind is list:
        return (kind, *[_key(e, leaves) for e in x])
    if kind in _PLAIN_OBJECTS:
        return x
    raise TypeError


def _replaced(x: Any, tensors: Iterator[Tensor]) -> Any:
    if isinstance(x, Tensor):
        return next(tensors)
    return type(x)([_replaced(e, tensors) for e in x]) if type(x) in (tuple, list) else x


class _Compiled:
    """A composition for one signature, compiled: `single` if it gives one Tensor, else a tuple; `written`: (output, leaf) that it assigns."""

    def __init__(self, graph: Graph, kernel: Kernel, single: bool, results: int, written: tuple[int, ...]):
        self.call, self.kernel = GraphCall(graph), kernel
        _keep(graph, kernel)
        self.single, self.results, self.written = single, results, written

    def run(self, leaves: Sequence[Tensor], tracked: bool) -> Any:
        """What the function returns for these Tensors; `tracked`: tapes follow one of them."""
        outputs = apply(self.call, *leaves) if tracked else _call(self.kernel, leaves)
        for target, value in zip(self.written, outputs[self.results :], strict=True):
            write(leaves[target], value)
        return outputs[0] if self.single else tuple(outputs[: self.results])


class _Entry(Work):
    """A signature of a composition."""

    __slots__ = ("compiled", "records")

    def __init__(self) -> None:
        super().__init__()
        self.compiled: _Compiled | None = None
        self.records: list[Any] = []


class Composite(NativelyCalled):
    """A function of the library that is composed of ops, with a graph for each signature that was worth compiling."""

    def __new__(cls, function: Callable[..., Any]) -> Composite:
        return object.__new__(_COMPOSITE)

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self._entries: OrderedDict[Any, _Entry] = OrderedDict()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves: list[Tensor] = []
        try:
            key = (*[_key(x, leaves) for x in args], *[(name, _key(x, leaves)) for name, x in kwargs.items()])
        except (TypeError, GraphcellError):
            return self._function(*args, **kwargs)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
            while len(self._entries) > _KEPT_SIGNATURES:
                self._entries.popitem(last=False)
        if entry.compiled is not None:
            return self._run(entry, entry.compiled, leaves, args, kwargs)
        before = spent.nanoseconds
        result = self._function(*args, **kwargs)
        if entry.is_due(spent.nanoseconds - before + _PYTHON_NANOSECONDS):
            entry.compiled = self._compile(args, kwargs, leaves)
        return result

    def _run(self, entry: _Entry, compiled: _Compiled, leaves: list[Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tracked = any(tape.number(t) is not None for tape in state.tapes for t in leaves)
        result = compiled.run(leaves, tracked)
        kernel = compiled.kernel
        if not state.tapes and not entry.records and not compiled.written and kernel.binding.spaces.runs >= _RUNS_BEFORE_NATIVE:
            self._serve(entry, compiled, kernel, args, kwargs)
        return result

    def _serve(self, entry: _Entry, compiled: _Compiled, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        from graphcell.runtime.binding import Record
        from graphcell.runtime.calling import ANY

        table = self.natives()
        if table is None:
            return
        record = Record.of(
            table, kernel.binding, args, kwargs, ANY, (), (), None, tuple, compiled.single, not compiled.single, parameters=True
        )
        entry.records = [record]
        if record is not None:
            table.add(record)

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Sequence[Tensor]) -> _Compiled | None:
        """The function for arguments like these; None if it is none of its arguments alone, or cannot be compiled."""
        trace = Trace(self._function.__name__)
        symbols = [Tensor.of_value(trace.input(t.ir_type, f"x{k}")) for k, t in enumerate(leaves)]
        given = iter(symbols)
        try:
            with trace.active():
                result = self._function(*[_replaced(x, given) for x in args], **{k: _replaced(x, given) for k, x in kwargs.items()})
                parts = (result,) if isinstance(result, Tensor) else result
                if not isinstance(parts, tuple) or not all(isinstance(t, Tensor) for t in parts):
                    return None
                if any(t is symbol for t in parts for symbol in symbols):
                    return None  # callers may rely on it being the argument itself
                values = [trace.read(t) for t in parts]
                writes = trace.writes()
        except GraphcellError:
            return None
        places = {id(t): k for k, t in enumerate(symbols)}
        if trace.captured or any(id(t) not in places for t, _ in writes):
            return None
        graph = trace.finish([*values, *(v for _, v in writes)])
        kernel = _compile_if_possible(graph)
        if kernel is None:
            return None
        return _Compiled(graph, kernel, isinstance(result, Tensor), len(values), tuple(places[id(t)] for t, _ in writes))


_COMPOSITE = with_vectorcall(Composite)


def connect() -> None:
    """Makes the eager mode use all that."""
    Native.compile = staticmethod(compile_kernel)
    Native.composite = Composite
    GraphCall.runner = staticmethod(run_graph)
