"""`@jit`: compiles functions, keeps what it compiled, and notices when that no longer holds.

Enters: a function, method, lambda, Cell or other callable. Leaves: a `JitFunction`, called like the original.
Tensor arguments are inputs of the compiled graph; all other arguments are constants of it, and a call with
others compiles anew. What the function reads from outside (globals, closure variables, attributes of Cells)
is guarded. A call that asks for values which a graph cannot know (numpy in `construct`) runs as Python, with a warning;
what it calls is compiled by itself. Under `fullgraph` and STRICT that is an error. Inside another compiled function a
JitFunction becomes part of that.
"""

from __future__ import annotations

import copy
import functools
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import MethodType
from typing import TYPE_CHECKING, Any

from graphcell.collection import rarely_collected
from graphcell.context import config
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ConcretizationError, ExecutionError
from graphcell.frontend import Traced, call, trace_function
from graphcell.frontend.guards import Guards, is_cell
from graphcell.frontend.signature import describe_key, differences, key_of
from graphcell.frontend.tracing import name_of
from graphcell.frontend.uncompiled import Uncompiled, give_up
from graphcell.ir.proto import graph_proto
from graphcell.locks import Lock, whole
from graphcell.ops.control import GraphCall
from graphcell.ops.dispatch import apply, write
from graphcell.ops.host import Raise
from graphcell.records import dataclass
from graphcell.runtime.eager import connect
from graphcell.runtime.vectorcall import NativelyCalled, with_vectorcall
from graphcell.tensor import Tensor, state

if TYPE_CHECKING:  # the code generator is imported when something is compiled, not with graphcell
    from graphcell.codegen.program import Program
    from graphcell.runtime.binding import Binding, Record, Table
    from graphcell.runtime.executable import Executable

_CAPTURE_MODES = ["ast", "bytecode", "trace"]
_LEVELS = ["O0", "O1"]
_ORDERS = ["bfs", "dfs"]
_KEPT = 8
"""So many compiled graphs are kept for one signature; they differ in what the function read from outside."""
_KEPT_OBJECTS = 128
"""So many signatures are kept in which an argument is known by its identity."""
_CHANGES = 3
"""A number read from outside that made so many compilations necessary becomes an input of the graph."""
_SHOWN_ELEMENTS = 64
_SHOWN_NAMES = 8
_RUNS_BEFORE_NATIVE = 2
"""From so many runs on native code calls a graph: the first is slow in any case and says little of the time that a run takes."""
_PATIENCE = 8
"""So often the comparisons of native code are made anew for calls that then need them once more."""


def jit(
    function: Any = None,
    *,
    capture_mode: str = "ast",
    jit_level: str = "O0",
    dynamic: int = 0,
    fullgraph: bool = False,
    backend: str = "",
    **options: Any,
) -> Any:
    """Compiles a function; usable as `jit(f)`, `@jit` and `@jit(...)`.

    Args:
        function: a function, method, lambda, Cell or other callable. What cannot be called is given back as it is.
        fullgraph: code that asks for the values of Tensors (numpy, `asnumpy`) is an error; by default such a call runs as Python.
        capture_mode, jit_level, dynamic, backend, options: MindSpore's. They are checked; there is one way to compile here.

    Returns:
        JitFunction, or a decorator where `function` is left out.

    Raises:
        TypeError, ValueError: an argument is of another type or out of its range.
    """
    _check_choice("capture_mode", capture_mode, _CAPTURE_MODES)
    _check_choice("jit_level", jit_level, _LEVELS)
    if not isinstance(dynamic, int) or isinstance(dynamic, bool):
        raise ArgumentTypeError(
            f"For 'jit', the 'dynamic' must be 'int',  but got '{type(dynamic).__name__}'."
        )
    if dynamic not in (0, 1):
        raise ArgumentValueError(
            f"For 'jit', the 'dynamic' must be in range of [0, 1], but got {dynamic} with type 'int'."
        )
    if not isinstance(fullgraph, bool):
        raise ArgumentTypeError(
            f"For 'jit', the 'fullgraph' must be a bool, but got {type(fullgraph).__name__}."
        )
    order = options.get("exec_order", "bfs")
    if order not in _ORDERS:
        raise ArgumentValueError(
            f"For 'exec_order', the value of 'exec_order' must be one of {_ORDERS}, but got '{order}'."
        )
    return functools.partial(_compiled, fullgraph=fullgraph) if function is None else _compiled(function, fullgraph)


def _check_choice(name: str, value: Any, choices: list[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ArgumentValueError(
            f"For 'jit', the '{name}' must be str and must be in '{choices}', but got '{value}'."
        )


def _compiled(function: Any, fullgraph: bool) -> Any:
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(_compiled(function.__func__, fullgraph))
    if not callable(function) or isinstance(function, (type, JitFunction)):
        return function
    return JitFunction(function, fullgraph)


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Entry:
    """One compiled graph.

    `binding`: runs it with the captured Tensors; None if it writes into its arguments. `record`: by which native
    code runs it, made when it was called a second time, while the guards' comparisons were the `recorded`-th;
    `patience`: how often more it may be made anew.
    """

    key: Any
    traced: Traced
    executable: Executable
    build: Callable[[Sequence[Tensor]], Any]
    binding: Binding | None
    writes_arguments: bool
    call: GraphCall
    kept: tuple[Any, ...]
    seconds: float
    record: Record | None = None
    recorded: int = -1
    patience: int = _PATIENCE

    def run(self, leaves: Sequence[Tensor]) -> Any:
        """Runs the executable on the Tensors in the arguments."""
        if self.binding is not None:
            return self.finish(self.binding(leaves))
        return self.finish(self.executable([*leaves, *self.traced.captured]))

    def finish(self, outputs: Sequence[Tensor]) -> Any:
        """What the call returns; does what else the function does in Python."""
        result = self.build(outputs)
        for effect in self.traced.effects:
            effect.apply(outputs)
        return result

    def serve(self, function: JitFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Lets native code run calls of `function` like this one, if it has not been told yet."""
        binding = self.binding
        if self.recorded == self.guards.changes or binding is None or binding.spaces.runs < _RUNS_BEFORE_NATIVE or not self.patience:
            return
        self.patience = _PATIENCE if self.record is not None and self.record.hits else self.patience - 1
        self.record, self.recorded = None, self.guards.changes
        table = function.natives()
        self.record = self.record_in(table, args, kwargs) if table is not None else None
        if table is not None and self.record is not None:
            table.add(self.record)

    def record_in(self, table: Table, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Record | None:
        """A record for `table` by which native code runs calls like this one, if there may be one."""
        from graphcell.runtime.binding import Record

        found = self.guards.comparisons()
        if found is None or self.binding is None:
            return None
        result, has_effects = self.traced.result, bool(self.traced.effects)
        return Record.of(
            table, self.binding, args, kwargs, found.epoch, found.cells, found.variables, found.check, _finisher(self),
            result.is_single and not has_effects, result.is_tuple(len(self.executable.output_types)) and not has_effects,
        )  # fmt: skip

    @property
    def guards(self) -> Guards:
        """What the function read from outside."""
        return self.traced.guards

    def changed(self) -> str:
        """What the function read from outside and is not what it was; "" if all is."""
        return self.traced.guards.failure(self.traced.captured)

    def run_recorded(self, leaves: Sequence[Tensor]) -> Any:
        """Runs as one op that the tapes see."""
        traced = self.traced
        inputs = [*leaves, *traced.captured]
        results = apply(self.call, *inputs)
        written = dict(traced.updates)
        for position, target in traced.updates:
            write(inputs[target], results[position])
        outputs = [r for k, r in enumerate(results) if k not in written]
        return self.finish(outputs)


def _finisher(entry: _Entry) -> Callable[[Sequence[Tensor]], Any]:
    """`entry.finish` for its record, without a cycle."""
    return _Entry.finish.__get__(weakref.proxy(entry))  # type: ignore[no-any-return]


class _NotCompiled(Exception):
    """Carries an error of the compilation past the frames of this file."""

    def __init__(self, error: Exception):
        super().__init__(error)
        self.error = error


class _CellEntries(weakref.WeakKeyDictionary["JitFunction", dict[Any, list[_Entry | Uncompiled]]]):
    """What methods of one Cell compiled, kept with the Cell so that both are let go of together. Copies of
    the Cell start anew.
    """

    def __deepcopy__(self, memo: Any) -> _CellEntries:
        return _CellEntries()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_CellEntries, ())


class JitFunction(NativelyCalled):
    """A compiled function.

    Attributes of the original (`__name__`, `__doc__`, …) are there; `__wrapped__` is the original. `ir`,
    `kernels`, `llvm`, `asm` and `explain` show the graph that ran last.
    """

    def __new__(cls, function: Callable[..., Any], fullgraph: bool = False) -> JitFunction:
        return object.__new__(_FUNCTION_TYPE)

    def __init__(self, function: Callable[..., Any], fullgraph: bool = False):
        functools.update_wrapper(self, function)
        self._function = function
        self._fullgraph = fullgraph
        self._entries: dict[Any, list[_Entry | Uncompiled]] = {}
        self._owners: weakref.WeakSet[Any] = weakref.WeakSet()
        self._last: _Entry | Uncompiled | None = None
        self._lock = Lock()
        self._why = "it was not called yet"
        self.remark = ""  # of one who calls it
        self.to_show: Callable[[], Any] | None = None  # compiles what there is to see, where it runs in parts that nobody wants to read
        self._changes: Counter[tuple[int, str]] = Counter()
        self._eager = os.environ.get("MS_JIT", "") == "0"

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self if owner is None else MethodType(self, owner)

    def __deepcopy__(self, memo: dict[int, Any]) -> JitFunction:
        return JitFunction(copy.deepcopy(self._function, memo), self._fullgraph)

    def __reduce__(self) -> tuple[Any, ...]:
        return (JitFunction, (self._function, self._fullgraph))

    def __repr__(self) -> str:
        return f"<compiled {self._function!r}>"

    @property
    def __traced__(self) -> Callable[..., Any]:
        """What is interpreted where this is called while a graph is being built."""
        return self._function

    # -- calling -------------------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._call(args, kwargs)
        except _NotCompiled as e:
            error = e.error
        raise _bare(error)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if state.trace is not None:
            return call(self._function, *args, **kwargs)
        if self._eager or state.automatic is not None:  # casts are no part of a graph's key
            return self._function(*args, **kwargs)
        leaves: list[Tensor] = []
        objects: list[Any] = []
        key = (key_of(args, leaves, objects), key_of(kwargs, leaves, objects))
        entry = self._find(key, leaves, objects, args, kwargs)
        self._last = entry
        if self._natives is not None:
            self._natives.forget_last()
        if isinstance(entry, Uncompiled):
            return self._function(*args, **kwargs)
        if state.tapes:
            inputs = (*leaves, *entry.traced.captured)
            changes = bool(entry.traced.updates) and any(tape.block is not None for tape in state.tapes)  # which a block must see
            if changes or any(tape.number(t) is not None for tape in state.tapes for t in inputs):
                return entry.run_recorded(leaves)
        result = entry.run(leaves)
        if not state.tapes:
            entry.serve(self, args, kwargs)
        return result

    def compile(self, *args: Any, **kwargs: Any) -> _Entry | Uncompiled:
        """Compiles for arguments like these, without running; the graph, or why there is none."""
        leaves: list[Tensor] = []
        objects: list[Any] = []
        key = (key_of(args, leaves, objects), key_of(kwargs, leaves, objects))
        try:
            self._last = self._find(key, leaves, objects, args, kwargs)
            return self._last
        except _NotCompiled as e:
            error = e.error
        raise _bare(error)

    def knows(self, *args: Any, **kwargs: Any) -> bool:
        """Whether a call with such arguments would run a graph that is there already."""
        leaves: list[Tensor] = []
        key = (key_of(args, leaves, []), key_of(kwargs, leaves, []))
        entry, _ = self._search(self._table(args), key, ())
        return isinstance(entry, _Entry)

    @property
    def is_eager(self) -> bool:
        """Whether it runs as Python always: as MindSpore's MS_JIT=0 in the environment asks for."""
        return self._eager

    @property
    def is_compiled(self) -> bool:
        """Whether there is compiled code already."""
        return isinstance(self._last, _Entry) or self.to_show is not None

    def _find(
        self,
        key: Any,
        leaves: list[Tensor],
        objects: list[Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> _Entry | Uncompiled:
        """The entry whose guards hold, or a new one."""
        repeated = len({id(t) for t in leaves}) < len(leaves)
        pattern = tuple(next(k for k, u in enumerate(leaves) if u is t) for t in leaves) if repeated else ()
        table = self._table(args)
        entry, why = self._search(table, key, pattern)
        if entry is not None:
            return entry
        with self._lock:
            entry, why = self._search(table, key, pattern)
            if entry is None:
                self._why = why or self._explain_key(table, key)
                self._count_changes(table, (key, ()))
                entry = self._compile(key, pattern, args, kwargs)
                entry.kept = tuple(objects)
                found = table.setdefault((key, pattern) if entry.writes_arguments else (key, ()), [])
                found.insert(0, entry)
                del found[_KEPT:]
                if objects:
                    self._forget_oldest(table)
        return entry

    @staticmethod
    def _forget_oldest(table: dict[Any, list[_Entry | Uncompiled]]) -> None:
        """Lets go of graphs for objects that came long ago: a program may make a new one for each call."""
        known_by_identity = [place for place, found in table.items() if found[0].kept]
        for place in known_by_identity[:-_KEPT_OBJECTS]:
            del table[place]

    @staticmethod
    def _search(
        table: dict[Any, list[_Entry | Uncompiled]], key: Any, pattern: tuple[int, ...]
    ) -> tuple[_Entry | Uncompiled | None, str]:
        why = ""
        for place in ((key, ()), (key, pattern)) if pattern else ((key, ()),):
            for entry in table.get(place, ()):
                if pattern and place[1] != pattern and entry.writes_arguments:
                    continue
                changed = entry.changed()
                if not changed:
                    return entry, ""
                why = why or f"{changed} changed"
        return None, why

    def _count_changes(self, table: dict[Any, list[_Entry | Uncompiled]], place: Any) -> None:
        """Counts the compilations that a changed number made necessary."""
        for changed in {e.guards.changed for e in table.get(place, ())}:
            if changed is not None:
                self._changes[changed] += 1

    def _table(self, args: tuple[Any, ...]) -> dict[Any, list[_Entry | Uncompiled]]:
        """Where entries are kept: with the Cell whose method this is, or here."""
        owner = args[0] if args else getattr(self._function, "__self__", None)
        if owner is None or not is_cell(owner) or isinstance(owner, type):
            return self._entries
        kept: _CellEntries | None = vars(owner).get("_compiled_methods")
        if kept is None:
            kept = vars(owner).setdefault("_compiled_methods", _CellEntries())
        table = kept.get(self)
        if table is None:
            self._owners.add(owner)
            table = kept.setdefault(self, {})
        return table

    def _trace(self, args: tuple[Any, ...], kwargs: dict[str, Any], aliased: bool) -> Traced:
        """Traces; numbers that changed often become inputs, if the function can do with that."""
        varying = frozenset(key for key, count in self._changes.items() if count >= _CHANGES)
        if varying:
            try:
                return trace_function(self._function, args, kwargs, aliased, varying)
            except Exception:  # whatever the function did with a number that it does not know; an error of its own comes again
                self._changes.clear()
        return trace_function(self._function, args, kwargs, aliased)

    @rarely_collected
    def _compile(
        self, key: Any, pattern: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> _Entry | Uncompiled:
        with whole:
            from graphcell.runtime.binding import Binding
            from graphcell.runtime.executable import compile_graph

        begin = time.perf_counter()
        try:
            traced = self._trace(args, kwargs, False)
            writes_arguments = any(position < traced.leaves for _, position in traced.updates)
            if writes_arguments and pattern:
                traced = self._trace(args, kwargs, True)
        except Exception as error:
            if isinstance(error, ConcretizationError) and not (self._fullgraph or config.is_strict()):
                return give_up(self._function, key, error)
            raise _NotCompiled(error) from None
        frozen = () if writes_arguments else range(traced.leaves, len(traced.graph.inputs))
        executable = compile_graph(traced.graph, traced.updates, name_of(self._function), frozen)
        return _Entry(
            key=key,
            traced=traced,
            executable=executable,
            build=traced.result.builder(),
            binding=None if writes_arguments else Binding(executable, traced.leaves, traced.captured),
            writes_arguments=writes_arguments,
            call=GraphCall(traced.graph),
            kept=(),
            seconds=time.perf_counter() - begin,
        )

    # -- looking inside ------------------------------------------------------------------------------------
    def _shown(self) -> _Entry:
        if self._last is None and self.to_show is not None:
            self.to_show()
        if self._last is None:
            raise ExecutionError(f"{name_of(self._function)} has not been compiled yet", hint="call it first")
        if isinstance(self._last, Uncompiled):
            raise ExecutionError(f"{name_of(self._function)} runs as Python, it has no graph: {self._last.reason}")
        if self._natives is not None and self._natives.last:
            candidates = [e for e in self._all_entries() if e.record is not None and e.record.address == self._natives.last]
            self._last = candidates[0] if candidates else self._last
        return self._last

    def ir(self, pass_name: str | None = None) -> str:
        """The graph of the last call as text.

        Args:
            pass_name: None: as traced; the name of a pass: after that pass (its last run); "optimized": after all of them.

        Raises:
            RuntimeError: nothing was compiled yet. ValueError: there is no such pass.
        """
        with whole:
            from graphcell.ir.text import print_graph
            from graphcell.passes.pipeline import PIPELINE, run_pipeline

        graph = self._shown().traced.graph
        if pass_name is not None:
            names = [name for name, _ in PIPELINE]
            if pass_name != "optimized" and pass_name not in names:
                raise ArgumentValueError(
                    f"there is no pass {pass_name!r}",
                    hint=f"passes are {', '.join(dict.fromkeys(names))}; or 'optimized'",
                )
            last = len(names) if pass_name == "optimized" else len(names) - names[::-1].index(pass_name)
            graph = run_pipeline(graph, "", PIPELINE[:last], dumps=False)[0]
        return print_graph(graph, elide_over=_SHOWN_ELEMENTS)

    def proto(self) -> bytes:
        """The graph of the last call as a protocol-buffers message (graphcell/ir/proto.py).

        Raises:
            RuntimeError: nothing was compiled yet.
        """
        return graph_proto(self._shown().traced.graph)

    def kernels(self) -> str:
        """The kernels of the last call as text."""
        return self._shown().executable.kernels()

    def llvm(self) -> str:
        """The LLVM assembly of the last call."""
        return self._shown().executable.llvm()

    def asm(self) -> str:
        """The machine code of the last call."""
        return self._shown().executable.asm()

    def profile(self) -> str:
        """The cycles of each step of the last call's graph so far, most first, one a line.

        Raises:
            RuntimeError: if it was compiled without `GRAPHCELL_PROFILE=1` in the environment.
        """
        return "\n".join(f"{cycles:>14,}  {step.title}" for step, cycles in self._shown().executable.profile())

    def explain(self) -> str:
        """What was compiled, how long that took, what it depends on, and why the last compilation was needed."""
        entry = self._shown()
        traced, compilation = entry.traced, entry.executable.compilation
        lines = [
            f"{name_of(self._function)}: {len(list(self._all_entries()))} compiled graphs",
            f"last compiled because {self._why} ({entry.seconds:.3f} s)",
            f"arguments: {describe_key(entry.key)}",
            f"graph: {len(traced.graph.inputs)} inputs ({len(traced.captured)} read from outside), "
            f"{traced.graph.count_nodes()} nodes traced, {compilation.optimized.count_nodes()} after the passes",
        ]
        lines += [
            f"  {p.name:<18}{p.seconds * 1e3:9.2f} ms  {p.nodes_before:5d} -> {p.nodes_after} nodes"
            for p in compilation.passes
        ]
        lines += [f"  {name:<18}{seconds * 1e3:9.2f} ms" for name, seconds in compilation.seconds.items()]
        lines += [f"writes {traced.graph.inputs[position].name}" for _, position in traced.updates]
        lines += _memory(compilation.program, traced)
        lines += [
            f"calls back into Python for {c.op.name}{f' ({c.where})' if c.where else ''}"
            for c in compilation.listing.program.host_calls
            if not c.rare and not isinstance(c.op, Raise)  # which is called at the end of all
        ]
        lines += [*traced.remarks, *([self.remark] if self.remark else [])]
        return "\n".join(lines)

    def _all_entries(self) -> Iterator[_Entry]:
        kept_with_cells = [vars(owner)["_compiled_methods"].get(self, {}) for owner in self._owners]
        for table in (self._entries, *kept_with_cells):
            for found in table.values():
                yield from (e for e in found if isinstance(e, _Entry))

    def _explain_key(self, table: dict[Any, list[_Entry | Uncompiled]], key: Any) -> str:
        if not table:
            return "it was the first call"
        before = self._last.key if self._last is not None else next(iter(table))[0]
        for what, old, new in differences(before, key):
            return f"{what} is {new} and was {old}"
        return "the arguments are of another structure"


_FUNCTION_TYPE = with_vectorcall(JitFunction)


def _memory(program: Program, traced: Traced) -> list[str]:
    """What the graph needs beside its inputs and outputs, but for the scratch memory of each thread."""
    lines = [f"temporaries take {program.arena_bytes:,} bytes"]
    if program.kept is not None:
        names = [traced.graph.inputs[k].name for k in program.kept.sources]
        shown = ", ".join(names[:_SHOWN_NAMES]) + (", …" if len(names) > _SHOWN_NAMES else "")
        lines.append(f"keeps {program.kept.nbytes:,} bytes that are computed once from {shown or 'constants'}")
    return lines


def _bare(error: Exception) -> Exception:
    """The error, without graphcell's own frames if it shows the user's line itself."""
    return error.with_traceback(None) if _is_placed(error) else error


def _is_placed(error: Exception) -> bool:
    """True if the error's text shows the user's line, so that graphcell's own frames would only bury it."""
    return getattr(error, "span", None) is not None or hasattr(error, "__graphcell_place__")


connect()
