"""`Cell`: the building block of networks. Holds Parameters, buffers and other Cells, and computes in `construct`.

Calling a Cell runs `construct` eagerly in PYNATIVE_MODE, compiles it in GRAPH_MODE, and becomes part of the graph while one is being
built. Every change of an attribute is counted, so that a compiled function notices it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from graphcell import dtype as dt
from graphcell.context import GRAPH_MODE, config
from graphcell.dtype import DType
from graphcell.errors import ArgumentTypeError, ArgumentValueError, MissingAttributeError, MissingKeyError
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.tensor import StateEpoch, Tensor, state

C = TypeVar("C", bound="Cell")


class Cell:
    """Base class of all layers and networks.

    Subclasses call ``super().__init__()``, assign Parameters and Cells as attributes, and define ``construct``.

    Args:
        auto_prefix: give the Parameters of sub-Cells the attribute's name as a prefix. Default True.
        flags: custom attributes, see `add_flags`.
    """

    def __init__(self, auto_prefix: bool = True, flags: dict[str, Any] | None = None):
        object.__setattr__(self, "_parameters", OrderedDict())
        object.__setattr__(self, "_cells", OrderedDict())
        object.__setattr__(self, "_buffers", OrderedDict())
        object.__setattr__(self, "_non_persistent", set())
        object.__setattr__(self, "_flags", {})
        object.__setattr__(self, "_jit", None)
        self._auto_prefix = auto_prefix
        self._phase = "train"
        self.training = False
        self.requires_grad = False
        self._to_float: DType | None = None
        self._scope: str | None = None
        self.cell_type = ""
        if flags:
            self.add_flags(**flags)

    # -- attributes --------------------------------------------------------------------------------------------------
    def __setattr__(self, name: str, value: Any) -> None:
        tables = self.__dict__
        if "_cells" not in tables:
            if isinstance(value, (Cell, Parameter)):
                raise MissingAttributeError(f"{type(self).__name__}: call super().__init__() before assigning Parameters or Cells")
            object.__setattr__(self, name, value)
            return
        StateEpoch.value += 1
        if isinstance(value, Parameter):
            self._forget(name)
            self.insert_param_to_cell(name, value)
        elif isinstance(value, Cell):
            self._forget(name)
            self._hold_cell(name, value)
        elif isinstance(value, ParameterTuple):
            self._forget(name)
            for p in value:
                self._parameters[p.name] = p
            object.__setattr__(self, name, value)
        elif name in self._parameters and value is not None:
            self._assign_to_parameter(name, value)
        elif name in self._cells and value is not None:
            raise ArgumentTypeError(f"cannot assign {type(value).__name__} as the Cell '{name}'; a Cell or None is expected")
        elif name in self._buffers:
            self._set_buffer(name, value)
        elif value is None and name in self._parameters:
            self._parameters[name] = None
        elif value is None and name in self._cells:
            self._cells[name] = None
        else:
            object.__setattr__(self, name, value)

    def _assign_to_parameter(self, name: str, value: Any) -> None:
        if not isinstance(value, Tensor):
            raise ArgumentTypeError(f"cannot assign {type(value).__name__} as the Parameter '{name}'; a Parameter or Tensor is expected")
        if state.trace is not None:
            from graphcell.ops import assign

            assign(self._parameters[name], value)
        else:
            self._parameters[name].set_data(value)

    def _set_buffer(self, name: str, value: Any) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise ArgumentTypeError(f"cannot assign {type(value).__name__} as the buffer '{name}'; a Tensor or None is expected")
        current = self._buffers[name]
        if state.trace is not None and current is not None and value is not None:
            state.trace.write(current, state.trace.read(value))
        else:
            self._buffers[name] = value

    def _forget(self, name: str) -> None:
        for table in (self._parameters, self._cells, self._buffers, self.__dict__):
            table.pop(name, None)

    def _hold_cell(self, name: str, cell: Cell) -> None:
        if self._auto_prefix:
            cell.update_parameters_name(name + ".")
        self._cells[name] = cell

    def __getattr__(self, name: str) -> Any:
        tables = self.__dict__
        for table in ("_parameters", "_cells", "_buffers"):
            if table in tables and name in tables[table]:
                return tables[table][name]
        if "_flags" in tables and name in tables["_flags"]:
            return tables["_flags"][name]
        raise MissingAttributeError(f"The '{type(self).__name__}' object has no attribute '{name}'.")

    def __delattr__(self, name: str) -> None:
        StateEpoch.value += 1
        for table in (self._parameters, self._cells, self._buffers):
            if name in table:
                del table[name]
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._cells, *self._buffers})

    # -- computation -------------------------------------------------------------------------------------------------
    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """The computation. Must be overridden.

        Raises:
            AttributeError: if a subclass does not define it.
        """
        raise MissingAttributeError("For 'Cell', the method 'construct' is not defined.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if state.trace is None and config.mode == GRAPH_MODE:
            return self._compiled(*args, **kwargs)
        return self._run(*args, **kwargs)

    @property
    def _compiled(self) -> Callable[..., Any]:
        if self._jit is None:
            from graphcell.jit import jit

            object.__setattr__(self, "_jit", jit(self._run))
        return self._jit  # type: ignore[no-any-return]

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if self._to_float is not None:
            args, kwargs = _cast_floats(args, self._to_float), _cast_floats(kwargs, self._to_float)
        if state.trace is not None:
            from graphcell.frontend import call

            return call(self.construct, *args, **kwargs)
        return self.construct(*args, **kwargs)

    # -- Parameters --------------------------------------------------------------------------------------------------
    def insert_param_to_cell(self, param_name: str, param: Parameter | None, check_name_contain_dot: bool = True) -> None:
        """Adds a Parameter under the attribute `param_name`.

        Raises:
            KeyError: for an empty name, one with a dot, or one that is taken by something else.
            TypeError: if `param` is no Parameter.
        """
        if not param_name:
            raise MissingKeyError("For 'insert_param_to_cell', the argument 'param_name' should not be None.")
        if check_name_contain_dot and "." in param_name:
            raise MissingKeyError("For 'insert_param_to_cell', the argument 'param_name' should not contain '.'")
        if hasattr(type(self), param_name) or (param_name in self.__dict__ and param_name not in self._parameters):
            raise MissingKeyError(f"For 'insert_param_to_cell', the {param_name} parameter already exists in the network. Cannot insert another parameter with the same name.")
        if param is not None and not isinstance(param, Parameter):
            raise ArgumentTypeError(f"For 'insert_param_to_cell', the argument 'param' must be 'Parameter', but got {type(param)}.")
        if param is not None and param.name == "Parameter":
            param.name = param_name
        StateEpoch.value += 1
        self._parameters[param_name] = param

    def parameters_and_names(self, name_prefix: str = "", expand: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Yields (name, Parameter) of this Cell and, with `expand`, of all Cells inside; names are attribute paths."""
        seen: set[int] = set()
        cells: Iterable[tuple[str, Cell]] = self.cells_and_names(name_prefix=name_prefix) if expand else ((name_prefix, self),)
        for path, cell in cells:
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
        """Names every Parameter `prefix` plus its attribute path."""
        if not isinstance(prefix, str):
            raise ArgumentTypeError(f"For 'update_parameters_name', the argument 'prefix' must be str, but got {type(prefix).__name__}.")
        for name, param in self.parameters_and_names(expand=recurse):
            if prefix:
                param.name = prefix + name

    def check_names(self) -> None:
        """Raises ValueError if two Parameters have one name."""
        names: set[str] = set()
        for name, param in self.parameters_and_names():
            if param.name in names:
                raise ArgumentValueError(
                    f"The value of {name} is {param}, its name '{param.name}' already exists. Please set a unique name for the parameter."
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
        """Adds a Cell under the attribute `child_name`.

        Raises:
            TypeError: if the name is no str or the child no Cell.
            KeyError: for an empty name, one with a dot, or one that another attribute has.
        """
        if not isinstance(child_name, str):
            raise ArgumentTypeError(f"For 'insert_child_to_cell', the type of parameter 'child_name' must be str, but got {type(child_name)}.")
        if not child_name or "." in child_name:
            raise MissingKeyError(f"For 'insert_child_to_cell', the parameter 'child_name' cannot be empty or contain '.', but got {child_name!r}.")
        if hasattr(self, child_name) and child_name not in self._cells:
            raise MissingKeyError(f"For 'insert_child_to_cell', the {child_name} child cell already exists in the network. Cannot insert another child cell with the same name.")
        if child_cell is not None and not isinstance(child_cell, Cell):
            raise ArgumentTypeError(f"For 'insert_child_to_cell', the argument 'child_cell' must be 'Cell', but got {type(child_cell)}.")
        StateEpoch.value += 1
        if child_cell is None:
            self._cells[child_name] = None
        else:
            self._hold_cell(child_name, child_cell)

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
        if self in seen:
            return
        seen.add(self)
        yield name_prefix, self
        for name, cell in self._cells.items():
            if cell is not None:
                yield from cell.cells_and_names(seen, f"{name_prefix}.{name}" if name_prefix else name)

    def get_sub_cell(self, target: str) -> Cell:
        """The Cell at a dotted path; '' is this Cell.

        Raises:
            AttributeError: if there is none.
        """
        cell: Any = self
        for name in target.split(".") if target else ():
            if not isinstance(cell, Cell) or not hasattr(cell, name):
                raise MissingAttributeError(f"{type(cell).__name__} has no attribute `{name}`")
            cell = getattr(cell, name)
            if not isinstance(cell, Cell):
                raise MissingAttributeError(f"`{name}` is not a Cell")
        return cell  # type: ignore[no-any-return]

    def apply(self: C, fn: Callable[[Cell], Any]) -> C:
        """Calls `fn` on every Cell inside, children first, then on this one; returns this Cell."""
        for cell in self.cells():
            cell.apply(fn)
        fn(self)
        return self

    # -- state -------------------------------------------------------------------------------------------------------
    @property
    def phase(self) -> str:
        """'train' or 'predict', as set by `set_train`."""
        return self._phase

    def set_train(self: C, mode: bool = True) -> C:
        """Switches this Cell and all inside between training (Dropout, batch statistics) and inference; returns this Cell."""
        for _, cell in self.cells_and_names():
            cell.training = bool(mode)
            cell._phase = "train" if mode else "predict"
        return self

    def set_grad(self: C, requires_grad: bool = True) -> C:
        """Announces that gradients will be asked for; returns this Cell."""
        self.requires_grad = requires_grad
        return self

    def add_flags(self: C, **flags: Any) -> C:
        """Adds custom attributes."""
        StateEpoch.value += 1
        self._flags.update(flags)
        for name, value in flags.items():
            object.__setattr__(self, name, value)
        return self

    def add_flags_recursive(self: C, **flags: Any) -> C:
        """Adds custom attributes to this Cell and all inside."""
        for _, cell in self.cells_and_names():
            cell.add_flags(**flags)
        return self

    def get_flags(self) -> dict[str, Any]:
        """The custom attributes."""
        return dict(self._flags)

    def to_float(self: C, dst_type: Any) -> C:
        """Casts float inputs of this Cell and all inside to `dst_type` before computing; a later call on an inner Cell wins there.

        Raises:
            ValueError: for a dtype that is not float16, bfloat16 or float32.
        """
        if dst_type not in (dt.float16, dt.float32, dt.bfloat16):
            raise ArgumentValueError(
                "For 'to_float', the argument 'dst_type' must be mstype.float32, mstype.float16 or mstype.bfloat16, "
                f"but got type: {type(dst_type)} and value: {dst_type}."
            )
        for _, cell in self.cells_and_names():
            cell._to_float = dst_type
        return self

    # -- buffers -----------------------------------------------------------------------------------------------------
    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a Tensor that is state but no Parameter.

        Raises:
            TypeError: if the name is no str or the value no Tensor.
            KeyError: for an empty name, one with a dot, or one that another attribute has.
        """
        if not isinstance(name, str):
            raise ArgumentTypeError(f"buffer name should be a string. But got this type: {type(name).__name__}")
        if "." in name:
            raise MissingKeyError('buffer name can\'t contain "."')
        if not name:
            raise MissingKeyError('buffer name can\'t be empty string ""')
        if hasattr(self, name) and name not in self._buffers:
            raise MissingKeyError(f"attribute '{name}' already exists")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise ArgumentTypeError(f"cannot assign {type(tensor).__name__} as the buffer '{name}'; a Tensor or None is expected")
        StateEpoch.value += 1
        self._buffers[name] = tensor
        self._non_persistent.discard(name)
        if not persistent:
            self._non_persistent.add(name)

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Yields (path, buffer)."""
        seen: set[int] = set()
        for path, cell in self.cells_and_names(name_prefix=prefix) if recurse else ((prefix, self),):
            for name, tensor in cell._buffers.items():
                if tensor is None or (remove_duplicate and id(tensor) in seen):
                    continue
                seen.add(id(tensor))
                yield (f"{path}.{name}" if path else name), tensor

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yields the buffers."""
        for _, tensor in self.named_buffers(recurse=recurse):
            yield tensor

    # -- printing ----------------------------------------------------------------------------------------------------
    def extend_repr(self) -> str:
        """Text for the printed description; override it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extend_repr()
        children = [f"({name}): {_indent(repr(cell))}" for name, cell in self._cells.items() if cell is not None]
        if not children:
            return f"{type(self).__name__}({extra})" if extra else f"{type(self).__name__}()"
        inside = "\n  ".join([*([extra] if extra else []), *children])
        return f"{type(self).__name__}(\n  {inside}\n)"

    __hash__ = object.__hash__


def _indent(text: str) -> str:
    return text.replace("\n", "\n  ")


def _cast_floats(x: Any, dtype: DType) -> Any:
    """Float Tensors anywhere in `x` cast to `dtype`."""
    if isinstance(x, Tensor):
        return x.astype(dtype) if x.dtype.is_float and x.dtype is not dtype else x  # type: ignore[attr-defined]
    if isinstance(x, dict):
        return {k: _cast_floats(v, dtype) for k, v in x.items()}
    if isinstance(x, (tuple, list)):
        return type(x)(_cast_floats(v, dtype) for v in x)
    return x
