"""What is set on a Cell and steers how it runs: training or inference, precision, flags; and MindSpore's settings for several devices,
which are checked and kept, and change nothing on one CPU.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Self

from graphcell import buffer
from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.errors import ArgumentTypeError, ArgumentValueError, MissingAttributeError
from graphcell.tensor import StateEpoch, Tensor

_RECOMPUTE_KEYS = ("mp_comm_recompute", "parallel_optimizer_comm_recompute", "recompute_slice_activation")
_DEVICES = ("CPU", "cpu")


class Settings:
    """The part of a Cell that keeps settings."""

    _flags: dict[str, Any]
    training: bool
    requires_grad: bool
    cell_type: str
    construct: Callable[..., Any]

    def _start_settings(self) -> None:
        settings = {"inputs": None, "scope": None, "prefix": "", "bprop_debug": False, "broadcast": False}
        self.__dict__["_settings"] = settings | {"recompute": None, "jit_config": None, "layout": {}}

    @property
    def _inside(self) -> list[tuple[str, Any]]:
        return list(self.cells_and_names())  # type: ignore[attr-defined]

    # -- training ----------------------------------------------------------------------------------------------------
    @property
    def phase(self) -> str:
        """'train' or 'predict', as set by `set_train`."""
        phase: str = self.__dict__["_phase"]
        return phase

    @phase.setter
    def phase(self, value: str) -> None:
        self.__dict__["_phase"] = value

    def set_train(self, mode: bool = True) -> Self:
        """Switches this Cell and all inside between training (Dropout, batch statistics) and inference; returns this Cell."""
        training, phase = bool(mode), "train" if mode else "predict"
        seen: set[Any] = set()
        waiting: list[Any] = [self]
        while waiting:  # without the paths that cells_and_names makes: programs call this at every step
            cell = waiting.pop()
            if cell in seen:
                continue
            seen.add(cell)
            tables = cell.__dict__
            if tables.get("training") is not training or tables.get("_phase") != phase:
                cell.training, cell.phase = training, phase
            waiting += [c for c in tables["_cells"].values() if c is not None]
        return self

    def set_grad(self, requires_grad: bool = True) -> Self:
        """Announces that gradients will be asked for; returns this Cell."""
        self.requires_grad = requires_grad
        return self

    def recompute(
        self, *, use_reentrant: bool = True, output_recompute: bool = False, early_stop: bool = True,
        context_fn: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """Asks that this Cell's intermediate results be computed again in the backward pass instead of being kept. Values do not change.

        Raises:
            ValueError: an unknown keyword. TypeError: a setting that is no bool.
        """
        for name, value in kwargs.items():
            if name not in _RECOMPUTE_KEYS:
                listed = ", ".join(f"'{k}'" for k in _RECOMPUTE_KEYS)
                raise ArgumentValueError(
                    f"For 'recompute', keyword '{name}' is not recognized! the key kwargs must be {listed}"
                )
            if not isinstance(value, bool):
                raise ArgumentTypeError(f"The parameter '{name}' must be <class 'bool'>, but got {type(value)}")
        self.__dict__["_settings"]["recompute"] = {"output_recompute": output_recompute, **kwargs}

    # -- precision ---------------------------------------------------------------------------------------------------
    def to_float(self, dst_type: Any) -> Self:
        """Computes in `dst_type`: float inputs of this Cell and of all inside, and their trained Parameters, are cast to it; the
        Parameters themselves stay as they are. A later call on an inner Cell wins there. Returns this Cell.

        Raises:
            ValueError: for a dtype that is not float16, bfloat16 or float32.
        """
        if dst_type not in (dt.float16, dt.float32, dt.bfloat16):
            raise ArgumentValueError(
                "For 'to_float', the argument 'dst_type' must be mstype.float32, mstype.float16 or mstype.bfloat16, "
                f"but got type: {type(dst_type)} and value: {dst_type}."
            )
        for _, cell in self._inside:
            cell._to_float = dst_type
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Casts the float Parameters and buffers of this Cell and all inside: `to(dtype)`, `to(tensor)`, `to(device=…, dtype=…)`.

        Raises:
            TypeError: dtype is no float type, or the arguments are something else. ValueError: a device that is not the CPU.
        """
        dtype = self._target_dtype(args, dict(kwargs))
        if dtype is None:
            return self
        for _, cell in self._inside:
            for param in cell._parameters.values():
                if param is not None and param.dtype.is_float:
                    param.rebind(buffer.copy(param.array().astype(dtype.np_type)))
            for name, tensor in cell._buffers.items():
                if tensor is not None and tensor.dtype.is_float:
                    cell._buffers[name] = Tensor(tensor, dtype)
        StateEpoch.value += 1
        return self

    @staticmethod
    def _target_dtype(args: tuple[Any, ...], kwargs: dict[str, Any]) -> DType | None:
        kwargs.pop("non_blocking", None)
        device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
        for x in args:
            if isinstance(x, Tensor):
                dtype = x.dtype
            elif isinstance(x, DType):
                dtype = x
            elif isinstance(x, str):
                device = x
            elif x is not None and not isinstance(x, bool):
                raise ArgumentTypeError(f"Cell.to takes a dtype, a Tensor or a device, but got {type(x).__name__}")
        if kwargs:
            raise ArgumentTypeError(f"Cell.to has no argument {sorted(kwargs)}")
        if device is not None and device not in _DEVICES:
            raise ArgumentValueError(f"Cell.to: the only device is 'CPU', but got {device!r}")
        if dtype is not None and not dt.as_dtype(dtype).is_float:
            raise ArgumentTypeError(
                f"Cell.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
            )
        return None if dtype is None else dt.as_dtype(dtype)

    def to_empty(self, *, device: str | None = None, recurse: bool = True) -> Self:
        """Gives the Parameters and buffers fresh memory; their values are undefined afterwards."""
        cells: list[tuple[str, Any]] = list(self._inside) if recurse else [("", self)]
        for _, cell in cells:
            tensors = [*cell._parameters.values(), *cell._buffers.values()]
            for tensor in tensors:
                if tensor is not None:
                    tensor.rebind(buffer.empty(tensor.shape, tensor.dtype.np_type))
        return self

    def cast_inputs(self, inputs: Any, dst_type: Any) -> None:
        """Does nothing; MindSpore is about to remove it."""

    # -- flags -------------------------------------------------------------------------------------------------------
    def add_flags(self, **flags: Any) -> Self:
        """Adds custom attributes; returns this Cell."""
        StateEpoch.value += 1
        self._flags.update(flags)
        for name, value in flags.items():
            object.__setattr__(self, name, value)
        return self

    def add_flags_recursive(self, **flags: Any) -> Self:
        """Adds custom attributes to this Cell and all inside; returns this Cell."""
        for _, cell in self._inside:
            cell.add_flags(**flags)
        return self

    def get_flags(self) -> dict[str, Any]:
        """The custom attributes."""
        return self._flags

    def update_cell_type(self, cell_type: str) -> None:
        """Sets `cell_type`."""
        self.cell_type = cell_type

    @property
    def bprop_debug(self) -> bool:
        """Kept for MindSpore's sake; a `bprop` method is always used here.

        Raises:
            TypeError: set to something that is no bool.
        """
        return bool(self.__dict__["_settings"]["bprop_debug"])

    @bprop_debug.setter
    def bprop_debug(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise ArgumentTypeError(
                f"For 'Cell', the property 'bprop_debug' must be bool type, but got type {type(value)}."
            )
        self.__dict__["_settings"]["bprop_debug"] = value

    # -- compiling ---------------------------------------------------------------------------------------------------
    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compiles this Cell for arguments like these, without running it."""
        self._compiled.compile(*args, **kwargs)  # type: ignore[attr-defined]

    def compile_and_run(self, *args: Any, **kwargs: Any) -> Any:
        """Compiles this Cell and runs it; calling it does the same in GRAPH_MODE."""
        return self._compiled(*args, **kwargs)  # type: ignore[attr-defined]

    @property
    def compiled(self) -> bool:
        """Whether there is compiled code of this Cell."""
        function = self.__dict__["_jit"]
        return function is not None and function.is_compiled

    def get_func_graph_proto(self) -> bytes | None:
        """The graph that was compiled last, as text in bytes; None before."""
        return self.__dict__["_jit"].ir().encode() if self.compiled else None

    def run_construct(self, cast_inputs: Any, kwargs: dict[str, Any]) -> Any:
        """Runs `construct`; deprecated."""
        return self.construct(*cast_inputs, **kwargs)

    def set_jit_config(self, jit_config: Any) -> None:
        """Keeps a JitConfig; there is one way to compile here."""
        self.__dict__["_settings"]["jit_config"] = jit_config

    def set_inputs(self, *inputs: Any, **kwargs: Any) -> None:
        """Declares the inputs, by position or by name; every shape is compiled for itself here.

        Raises:
            ValueError: both ways at once, or an unknown name.
        """
        if inputs and kwargs:
            raise ArgumentValueError(
                f"For Cell, set_inputs should only set inputs or kwargs(inputs: {inputs}, kwargs: {kwargs})!"
            )
        names = list(inspect.signature(self.construct).parameters)
        unknown = [n for n in kwargs if n not in names]
        if unknown:
            raise ArgumentValueError(f"For dict mode, valid key is {names}, but got {unknown[0]}!")
        self.__dict__["_settings"]["inputs"] = (inputs or tuple(kwargs.values())) or None

    def get_inputs(self) -> tuple[Any, ...] | None:
        """What `set_inputs` was given; None before."""
        given: tuple[Any, ...] | None = self.__dict__["_settings"]["inputs"]
        return given

    # -- names and scopes --------------------------------------------------------------------------------------------
    @property
    def param_prefix(self) -> str:
        """The path of this Cell, as `update_cell_prefix` found it."""
        prefix: str = self.__dict__["_settings"]["prefix"]
        return prefix

    def update_cell_prefix(self) -> None:
        """Sets `param_prefix` of all Cells inside."""
        for path, cell in self._inside:
            cell.__dict__["_settings"]["prefix"] = path

    def generate_scope(self) -> None:
        """Gives every Cell inside a scope: Default/path-class."""
        for path, cell in self._inside[1:]:
            cell.__dict__["_settings"]["scope"] = f"Default/{path.replace('.', '/')}-{type(cell).__name__}"

    def get_scope(self) -> str | None:
        """The scope, as `generate_scope` made it; None before, and for the outermost Cell."""
        scope: str | None = self.__dict__["_settings"]["scope"]
        return scope

    # -- several devices: checked and kept ---------------------------------------------------------------------------
    @property
    def pipeline_stage(self) -> int:
        """The stage set. AttributeError if none was."""
        return self._once_set("pipeline_stage")

    @pipeline_stage.setter
    def pipeline_stage(self, value: int) -> None:
        self._set_number("pipeline_stage", value)

    @property
    def pipeline_segment(self) -> int:
        """The segment set. AttributeError if none was."""
        return self._once_set("pipeline_segment")

    @pipeline_segment.setter
    def pipeline_segment(self, value: int) -> None:
        self._set_number("pipeline_segment", value)

    def _once_set(self, name: str) -> int:
        settings = self.__dict__["_settings"]
        if name not in settings:
            raise MissingAttributeError(f"The '{type(self).__name__}' object has no attribute '{name}'.")
        value: int = settings[name]
        return value

    def _set_number(self, name: str, value: Any) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ArgumentTypeError(
                f"For 'Cell', the property '{name}' must be int type, but got type : {type(value)}"
            )
        if value < 0:
            raise ArgumentValueError(f"For 'Cell', the property '{name}' can not be less than 0, but got {value}")
        self.__dict__["_settings"][name] = value

    @property
    def parameter_layout_dict(self) -> dict[str, Any]:
        """Empty: nothing is split over devices."""
        layout: dict[str, Any] = self.__dict__["_settings"]["layout"]
        return layout

    def parameters_broadcast_dict(self, recurse: bool = True) -> OrderedDict[str, Any] | None:
        """Name → Parameter of those that `set_broadcast_flag` marked; None if none are."""
        if not self.__dict__["_settings"]["broadcast"]:
            return None
        return OrderedDict((p.name, p) for p in self.get_parameters(recurse))  # type: ignore[attr-defined]

    def set_broadcast_flag(self, mode: bool = True) -> Self:
        """Marks the Parameters for a broadcast between devices; returns this Cell."""
        self.__dict__["_settings"]["broadcast"] = bool(mode)
        return self

    def set_comm_fusion(self, fusion_type: int, recurse: bool = True) -> Self:
        """Sets `comm_fusion` of the trained Parameters; returns this Cell.

        Raises:
            TypeError: fusion_type is no int. ValueError: it is negative.
        """
        if not isinstance(fusion_type, int) or isinstance(fusion_type, bool):
            raise ArgumentTypeError(f"The input value must be int, but got '{type(fusion_type).__name__}'")
        if fusion_type < 0:
            raise ArgumentValueError(
                f"The input value must be int and must >= 0, but got '{fusion_type}' with type 'int'."
            )
        for param in self.trainable_params(recurse):  # type: ignore[attr-defined]
            param.comm_fusion = fusion_type
        return self

    def set_boost(self, boost_type: str) -> Self:
        """Names an algorithm of MindSpore's boost library, of which there is none here; returns this Cell.

        Raises:
            ValueError: boost_type is not 'less_bn'.
        """
        if boost_type != "less_bn":
            raise ArgumentValueError(
                f"For 'set_boost', the argument 'boost_type' must be 'less_bn', but got {boost_type}."
            )
        return self

    def set_data_parallel(self) -> None:
        """Does nothing on one device."""

    def shard(self, in_strategy: Any, out_strategy: Any = None, parameter_plan: Any = None) -> None:
        """Does nothing on one device."""

    def offload(self, backward_prefetch: str | int = "Auto") -> None:
        """Does nothing on a CPU.

        Raises:
            ValueError: backward_prefetch is neither 'Auto' nor a non-negative int.
        """
        valid = backward_prefetch == "Auto" if isinstance(backward_prefetch, str) else backward_prefetch >= 0
        if not valid:
            raise ArgumentValueError(
                f"For '{type(self).__name__}', the 'backward_prefetch' must be 'Auto' or an int of at least 0, "
                f"but got {backward_prefetch!r}."
            )

    def remove_redundant_parameters(self) -> None:
        """Does nothing on one device; deprecated."""
