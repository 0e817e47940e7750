"""`Cell`: the building block of networks. Holds Parameters, buffers and other Cells, and computes in `construct`.

Calling a Cell runs `construct` eagerly in PYNATIVE_MODE, compiles it in GRAPH_MODE, and becomes part of the graph while one is being
built. Every change of an attribute is counted, so that a compiled function notices it. Hooks live in hooks.py, `state_dict` in
state_dict.py, flags and settings in settings.py.
"""

from __future__ import annotations

import inspect
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from graphcell.bprop import call_with_bprop
from graphcell.context import GRAPH_MODE, config
from graphcell.dtype import DType
from graphcell.errors import ArgumentTypeError, ArgumentValueError, MissingAttributeError, MissingKeyError
from graphcell.nn.hooks import Hooks, run_with_hooks
from graphcell.nn.settings import Settings
from graphcell.nn.state_dict import StateDict
from graphcell.ops.automatic import automatic
from graphcell.ops.dispatch import packing
from graphcell.ops.functional.common import cast
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.pullback import invoke, keep_forward
from graphcell.recompute import call_recomputed
from graphcell.tensor import StateEpoch, Tensor, state

if TYPE_CHECKING:
    from graphcell.dynamic import DynamicRows
    from graphcell.jit import JitFunction

C = TypeVar("C", bound="Cell")
_PREFIX = re.compile(r"^\w*[0-9a-zA-Z\_\.\-]*$", re.ASCII)


class _Run:
    """A run of the `construct` of a Cell with a `to_float` dtype, and the Parameters and Tensors that it has read in that dtype."""

    def __init__(self, cell: Cell, around: _Run | None):
        self.cell, self.around = cell, around
        self.narrow: dict[int, tuple[Any, Any, Tensor]] = {}  # id(tensor) -> trace, value, the same in that dtype

    def of(self, cell: Cell) -> _Run | None:
        """The innermost run of `cell`."""
        run: _Run | None = self
        while run is not None and run.cell is not cell:
            run = run.around
        return run

    def read(self, tensor: Tensor, dtype: DType) -> Tensor:
        """`tensor` in `dtype`: cast once, as long as it is not written to."""
        trace = state.trace
        value: Any = tensor.array() if trace is None else trace.newest(tensor)
        known = self.narrow.get(id(tensor))
        if known is None or known[0] is not trace or known[1] is not value:
            known = self.narrow[id(tensor)] = (trace, value, cast(tensor, dtype))
            known[2].__dict__["written_through"] = tensor
            if isinstance(tensor, Parameter):
                known[2].__dict__["name"] = tensor.name
        return known[2]


class _Running(threading.local):
    """The innermost such run in this thread."""

    innermost: _Run | None = None


_running = _Running()


class Cell(Hooks, StateDict, Settings):
    """Base class of all layers and networks.

    Subclasses call ``super().__init__()``, assign Parameters and Cells as attributes, and define ``construct``. A method
    ``bprop(self, *inputs, out, dout)`` replaces the gradient of `construct`.

    Args:
        auto_prefix: give the Parameters of sub-Cells the attribute's name as a prefix. Default True.
        flags: custom attributes, see `add_flags`.
    """

    _in_full_precision: ClassVar[frozenset[str]] = frozenset()
    """The Parameters that `to_float` leaves as they are."""

    def __init__(self, auto_prefix: bool = True, flags: dict[str, Any] | None = None):
        tables: dict[str, Any] = self.__dict__
        tables.update(_parameters=OrderedDict(), _cells=OrderedDict(), _buffers=OrderedDict(), _non_persistent=set(), _tensors={})
        tables.update(_flags={}, _jit=None, _auto_prefix=auto_prefix, _to_float=None, _auto_to=None, _phase="train", cell_type=None)
        tables.update(training=False, requires_grad=False, _next_number=1)
        self._start_hooks()
        self._start_settings()
        if flags:
            self.add_flags(**flags)

    # -- attributes --------------------------------------------------------------------------------------------------
    def __setattr__(self, name: str, value: Any) -> None:
        tables = self.__dict__
        if "_cells" not in tables:
            if isinstance(value, (Cell, Parameter)):
                raise MissingAttributeError(
                    f"{type(self).__name__}: call super().__init__() before assigning Parameters or Cells"
                )
            object.__setattr__(self, name, value)
            return
        if name in tables and tables[name] is value and not hasattr(type(self), name):
            return  # nothing changes; a property of the class may do more
        StateEpoch.value += 1
        if isinstance(value, Parameter):
            tables.pop(name, None)
            self.insert_param_to_cell(name, value)
        elif isinstance(value, Cell):
            self._hold_cell(name, value)
            self._forget(name, self._cells)
        elif isinstance(value, ParameterTuple):
            for param in value:
                self._hold_in_tuple(param)
            self._forget(name, self._parameters if any(p.name == name for p in value) else None)
            object.__setattr__(self, name, value)
        elif name in self._parameters:
            self._assign_to_parameter(name, value)
        elif name in self._cells:
            if value is not None:
                raise ArgumentTypeError(
                    f"Sub cell '{name}' already exists in network, can not assign this type: '{type(value)}' as a cell."
                )
            self._cells[name] = None
        elif name in self._buffers:
            self._assign_to_buffer(name, value)
        elif type(value) is Tensor and tables["_to_float"] is not None and not hasattr(type(self), name):
            tables.pop(name, None)
            tables["_tensors"][name] = self._as_kept(tables["_tensors"].get(name), value)
        else:
            tables["_tensors"].pop(name, None)
            object.__setattr__(self, name, value)

    def _compute_in(self, dtype: DType | None) -> None:
        """Sets the dtype of `to_float`. From then on the Tensors among the attributes are in a table of their own, so that reading them
        comes by `__getattr__`."""
        self._to_float = dtype
        for name in [name for name, value in self.__dict__.items() if type(value) is Tensor]:
            self._tensors[name] = self.__dict__.pop(name)

    def _as_kept(self, before: Tensor | None, value: Tensor) -> Tensor:
        """What `construct` stores in place of the Tensor `before`, in the dtype of that: the state of a Cell stays as it is."""
        if before is None or not before.dtype.is_float or not value.dtype.is_float or _running.innermost is None:
            return value
        return value if _running.innermost.of(self) is None else cast(value, before.dtype)

    def _assign_to_parameter(self, name: str, value: Any) -> None:
        if value is None:
            self._parameters[name] = None
            return
        if not isinstance(value, Tensor):
            raise ArgumentTypeError(
                f"Parameter '{name}' already exists in network, can not assign this type: '{type(value)}' as a parameter."
            )
        if state.trace is None:
            self._parameters[name].set_data(value)
            return
        from graphcell.ops import assign

        assign(self._parameters[name], value)

    def _assign_to_buffer(self, name: str, value: Any) -> None:
        if value is not None:
            raise ArgumentTypeError(
                f"Buffer '{name}' already exists in network, can not assign this type: '{type(value)}' as a buffer.",
                hint=f"write into it with ops.assign(self.{name}, value), or replace it with register_buffer",
            )
        self._buffers[name] = None

    def _forget(self, name: str, keep: Any) -> None:
        """Lets go of an attribute, but for what the table `keep` has of that name, so that it keeps its place there."""
        for table in (self._parameters, self._cells, self._buffers, self._tensors, self.__dict__):
            if table is not keep:
                table.pop(name, None)

    def _hold_in_tuple(self, param: Parameter) -> None:
        """Holds a Parameter of a ParameterTuple, under its own name. One without a name gets one that is the same in each run of a program."""
        if param.__dict__["has_default_name"]:
            param.name = f"Parameter${self.__dict__['_next_number']}"
            self.__dict__["_next_number"] += 1
        self.insert_param_to_cell(param.name, param, check_name_contain_dot=False)

    def _hold_cell(self, name: str, cell: Cell) -> None:
        if hasattr(type(self), name) or name in self._parameters or name in self._buffers:
            raise MissingKeyError(
                f"For 'insert_child_to_cell', the {name} child cell already exists in the network."
                "Cannot insert another child cell with the same name."
            )
        if self._auto_prefix:
            cell.update_parameters_name(name + ".")
        self._cells[name] = cell

    def __getattr__(self, name: str) -> Any:
        tables = self.__dict__
        if name in tables.get("_parameters", ()):
            param = tables["_parameters"][name]
            shown = param if tables["_to_float"] is None else self._as_computed(name, param)
            return shown if state.trace is None or name not in tables["_parameter_hooks"] else self._hooked(name, param, shown)
        for table in ("_buffers", "_tensors"):
            if name in tables.get(table, ()):
                return self._as_computed(name, tables[table][name])
        for table in ("_cells", "_flags"):
            if name in tables.get(table, ()):
                return tables[table][name]
        raise MissingAttributeError(f"The '{type(self).__name__}' object has no attribute '{name}'.")

    def _as_computed(self, name: str, held: Tensor | None) -> Tensor | None:
        """While `construct` runs: a Parameter or Tensor in the dtype of `to_float`. What is written into it goes to what is `held`."""
        dtype = self._to_float
        if held is None or dtype is None or not held.dtype.is_float or held.dtype is dtype or name in self._in_full_precision:
            return held
        run = _running.innermost.of(self) if _running.innermost is not None else None
        return held if run is None else run.read(held, dtype)

    def _hooked(self, name: str, param: Parameter, shown: Any) -> Any:
        """In a graph: what the forward hook of a Parameter makes of it. What is written into that goes to the Parameter."""
        new = invoke(self._parameter_hooks[name], (shown,), {})
        if isinstance(new, Tensor) and new is not shown:
            new.__dict__.update(name=param.name, written_through=param)
        return new

    @property
    def _params(self) -> OrderedDict[str, Parameter | None]:
        """The Parameters of this Cell alone, by MindSpore's name of the table, to which hooks may add."""
        return self._parameters  # type: ignore[no-any-return]

    def __delattr__(self, name: str) -> None:
        StateEpoch.value += 1
        for table in (self._parameters, self._cells, self._buffers, self._tensors):
            if name in table:
                del table[name]
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._cells, *self._buffers, *self._tensors})

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_jit", "_dynamic", "_compiled_methods", "_forward")}

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        self.__dict__.update(attributes, _jit=None)

    # -- computation -------------------------------------------------------------------------------------------------
    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """The computation. Must be overridden.

        Raises:
            AttributeError: if a subclass does not define it.
        """
        raise MissingAttributeError("For 'Cell', the method 'construct' is not defined.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if state.trace is None:
            if config.mode == GRAPH_MODE:
                return self._compiled(*args, **kwargs) if self._settings["inputs"] is None else self._call_declared(args, kwargs)
        if self.requires_grad and (state.trace is not None or not state.tapes):
            return keep_forward(self, self._run, args, kwargs)
        return self._run(*args, **kwargs)

    @property
    def _compiled(self) -> JitFunction:
        if self._jit is None:
            from graphcell.jit import jit

            self.__dict__["_jit"] = jit(self._run, fullgraph=self.jit_config_dict.get("jit_syntax_level") == "STRICT")
        return self._jit  # type: ignore[no-any-return]

    def _call_declared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a Cell whose inputs were declared, perhaps for any number of rows."""
        dynamic = self.__dict__.get("_dynamic")
        if dynamic is None or dynamic.function is not self._jit:
            dynamic = self._with_any_rows()
        if dynamic is not None and not kwargs:
            return dynamic(*args)  # which checks them
        self._check_inputs(args, kwargs)
        return self._compiled(*args, **kwargs)

    def _with_any_rows(self) -> DynamicRows | None:
        """What runs this Cell for any number of rows, if its inputs were declared so."""
        dynamic: DynamicRows | None = self.__dict__.get("_dynamic")
        if dynamic is not None and dynamic.function is self._jit:
            return dynamic
        rows = self._settings["inputs"].with_any_rows
        if not rows:
            return None
        from graphcell.dynamic import DynamicRows

        dynamic = self.__dict__["_dynamic"] = DynamicRows(self._compiled, rows, self._check_inputs)  # type: ignore[arg-type]
        return dynamic

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if self._to_float is not None:
            args, kwargs = cast_floats(args, self._to_float), cast_floats(kwargs, self._to_float)
        compute = run_with_hooks if self._has_hooks() else Cell._compute
        if self._saved_tensors_hooks is None or state.trace is not None:
            return compute(self, args, kwargs)
        with packing(self._saved_tensors_hooks):
            return compute(self, args, kwargs)

    def _compute(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`construct` alone, without hooks."""
        how = self.__dict__["_recompute"]
        if how is None:
            plain = self._to_float is None and self._auto_to is None
            return self._call_construct(args, kwargs) if plain else self._construct(*args, **kwargs)
        return call_recomputed(self._construct, args, kwargs, how)

    def _construct(self, *args: Any, **kwargs: Any) -> Any:
        """`construct`, in the dtype of `to_float`, or with automatic casts."""
        if self._auto_to is not None:
            with automatic(self._auto_to):
                return self._in_its_dtype(args, kwargs)
        return self._in_its_dtype(args, kwargs)

    def _in_its_dtype(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._to_float is None:
            return self._call_construct(args, kwargs)
        before = _running.innermost
        _running.innermost = _Run(self, before)
        try:
            return self._call_construct(args, kwargs)
        finally:
            _running.innermost = before

    def _call_construct(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        bprop = getattr(type(self), "bprop", None)
        if bprop is not None:
            given = inspect.signature(self.construct).bind(*args, **kwargs)
            given.apply_defaults()  # `bprop` gets every input
            return call_with_bprop(self.construct, self.bprop, *given.args, **given.kwargs)
        if state.trace is None:
            return self.construct(*args, **kwargs)
        from graphcell.frontend import call

        return call(self.construct, *args, **kwargs)

    # -- Parameters --------------------------------------------------------------------------------------------------
    def insert_param_to_cell(
        self, param_name: str, param: Parameter | None, check_name_contain_dot: bool = True
    ) -> None:
        """Adds a Parameter under the attribute `param_name`.

        Raises:
            KeyError: for an empty name, one with a dot, or one that is taken by something else.
            TypeError: if `param` is no Parameter.
        """
        owner = "For 'insert_param_to_cell'"
        if not param_name:
            raise MissingKeyError(f"{owner}, the argument 'param_name' should not be None.")
        if check_name_contain_dot and "." in param_name:
            raise MissingKeyError(f"{owner}, the argument 'param_name' should not contain'.' ")
        if param_name not in self._parameters and hasattr(self, param_name):
            raise MissingKeyError(
                f"{owner}, the {param_name} parameter already exists in the network.Cannot insert another parameter "
                "with the same name."
            )
        if param is not None and not isinstance(param, Parameter):
            raise ArgumentTypeError(f"{owner}, the argument 'param' must be 'Parameter' if not None, but got {type(param)}.")
        if param is not None and param.__dict__["has_default_name"]:
            param.name = param_name
        StateEpoch.value += 1
        self._parameters[param_name] = param

    def parameters_and_names(self, name_prefix: str = "", expand: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Yields (name, Parameter) of this Cell and, with `expand`, of all Cells inside; names are attribute paths."""
        seen: set[int] = set()
        cells: Iterable[tuple[str, Cell]] = ((name_prefix, self),)
        for path, cell in self.cells_and_names(name_prefix=name_prefix) if expand else cells:
            for name, param in cell._parameters.items():
                if param is not None and id(param) not in seen:
                    seen.add(id(param))
                    yield (f"{path}.{name}" if path else name), param

    def get_parameters(self, expand: bool = True) -> Iterator[Parameter]:
        """Yields the Parameters, of all Cells inside too with `expand`."""
        for _, param in self.parameters_and_names(expand=expand):
            yield param

    def trainable_params(self, recurse: bool = True) -> list[Parameter]:
        """The Parameters with `requires_grad`."""
        return [p for p in self.get_parameters(recurse) if p.requires_grad]

    def untrainable_params(self, recurse: bool = True) -> list[Parameter]:
        """The Parameters without `requires_grad`."""
        return [p for p in self.get_parameters(recurse) if not p.requires_grad]

    def parameters_dict(self, recurse: bool = True) -> OrderedDict[str, Parameter]:
        """Name → Parameter."""
        return OrderedDict((p.name, p) for p in self.get_parameters(recurse))

    def update_parameters_name(self, prefix: str = "", recurse: bool = True) -> None:
        """Names every Parameter `prefix` plus its attribute path.

        Raises:
            TypeError: the prefix is no str. ValueError: it holds other characters than letters, digits, `_`, `.` and `-`.
        """
        if not isinstance(prefix, str):
            raise ArgumentTypeError(
                f"For 'update_parameters_name', the argument 'prefix' must be str, but got {type(prefix).__name__}."
            )
        if not _PREFIX.match(prefix):
            raise ArgumentValueError(f"The '{prefix}' is illegal, it must be match regular'{_PREFIX.pattern}' by flags're.ASCII.'")
        for name, param in self.parameters_and_names(expand=recurse):
            param.name = prefix + name

    def check_names(self) -> None:
        """Raises ValueError if two Parameters have one name."""
        names: set[str] = set()
        for name, param in self.parameters_and_names():
            if param.name in names:
                raise ArgumentValueError(
                    f"The value of {name} is {param}, its name '{param.name}' already exists. "
                    "Please set a unique name for the parameter."
                )
            names.add(param.name)

    def init_parameters_data(self, auto_parallel_mode: bool = False) -> dict[Parameter, Parameter]:
        """Fills the Parameters that still wait for their initializer; returns them, old → new."""
        changed: dict[Parameter, Parameter] = {}
        for param in self.get_parameters():
            if param.has_init:
                param.init_data()
            changed[param] = param
        return changed

    # -- Cells -------------------------------------------------------------------------------------------------------
    def insert_child_to_cell(self, child_name: str, child_cell: Cell | None) -> None:
        """Adds a Cell under the attribute `child_name`. Unlike an assignment this leaves the names of its Parameters as they are.

        Raises:
            TypeError: if the name is no str or the child no Cell.
            KeyError: for an empty name, one with a dot, or one that another attribute has.
        """
        owner = "For 'insert_child_to_cell'"
        if not isinstance(child_name, str):
            raise ArgumentTypeError(
                f"{owner}, the type of parameter 'child_name' must be str, but got {type(child_name)}."
            )
        if not child_name or "." in child_name:
            raise MissingKeyError(f"{owner}, the parameter 'child_name' can not be None and can not contain '.' ")
        if hasattr(self, child_name) and child_name not in self._cells:
            raise MissingKeyError(
                f"{owner}, the {child_name} child cell already exists in the network."
                "Cannot insert another child cell with the same name."
            )
        if child_cell is not None and not isinstance(child_cell, Cell):
            raise ArgumentTypeError(
                f"{owner}, the argument 'child_cell' must be 'Cell' if not None, but got type {type(child_cell)}."
            )
        StateEpoch.value += 1
        self._cells[child_name] = child_cell

    def cells(self) -> Iterable[Cell]:
        """The Cells held directly."""
        return self.name_cells().values()

    def name_cells(self) -> OrderedDict[str, Cell]:
        """Name → Cell of those held directly."""
        found: OrderedDict[str, Cell] = OrderedDict()
        seen: set[int] = set()
        for name, cell in self._cells.items():
            if cell is not None and id(cell) not in seen:
                seen.add(id(cell))
                found[name] = cell
        return found

    def cells_and_names(self, cells: set[Cell] | None = None, name_prefix: str = "") -> Iterator[tuple[str, Cell]]:
        """Yields (path, Cell): this Cell first, then those inside, depth first, each once."""
        seen = cells if cells is not None else set()
        waiting = [(name_prefix, self)]
        while waiting:
            path, cell = waiting.pop()
            if cell in seen:
                continue
            seen.add(cell)
            yield path, cell
            inside = [(f"{path}.{name}" if path else name, c) for name, c in cell.__dict__["_cells"].items() if c is not None]
            waiting += reversed(inside)

    def get_sub_cell(self, target: str) -> Cell:
        """The Cell at a dotted path; '' is this Cell.

        Raises:
            AttributeError: if there is none.
        """
        cell: Any = self
        for name in target.split(".") if target else ():
            if not hasattr(cell, name):
                raise MissingAttributeError(f"{type(cell).__name__} has no attribute `{name}`")
            cell = getattr(cell, name)
            if not isinstance(cell, Cell):
                raise MissingAttributeError(f"`{name}` is not an nn.Cell")
        return cell  # type: ignore[no-any-return]

    def apply(self: C, fn: Callable[[Cell], Any]) -> C:
        """Calls `fn` on every Cell inside, children first, then on this one; returns this Cell."""
        for cell in self.cells():
            cell.apply(fn)
        fn(self)
        return self

    # -- printing ----------------------------------------------------------------------------------------------------
    @property
    def cls_name(self) -> str:
        """The name of the class."""
        return type(self).__name__

    def extend_repr(self) -> str:
        """Text for the printed description; override it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extend_repr() or ""
        lines = [*extra.split("\n")] if extra else []
        if len(lines) < 2 and not self._cells:
            return f"{type(self).__name__}({extra})"
        lines += [f"({name}): {_indented(repr(cell))}" for name, cell in self._cells.items()]
        inside = "\n  ".join(lines)
        return f"{type(self).__name__}(\n  {inside}\n)"

    __hash__ = object.__hash__


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def cast_floats(x: Any, dtype: DType) -> Any:
    """The structure `x` with its float Tensors cast to `dtype`."""
    if isinstance(x, Tensor):
        return cast(x, dtype) if x.dtype.is_float else x
    if isinstance(x, dict):
        return {k: cast_floats(v, dtype) for k, v in x.items()}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(cast_floats(v, dtype) for v in x))
    if isinstance(x, (tuple, list)):
        return type(x)(cast_floats(v, dtype) for v in x)
    return x
