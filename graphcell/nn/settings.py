"""What is set on a Cell and steers how it runs: training or inference, precision, flags, the inputs it is compiled for."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Self

from graphcell import buffer
from graphcell import dtype as dt
from graphcell.context import GRAPH_MODE, config
from graphcell.dtype import DType
from graphcell.errors import ArgumentTypeError, ArgumentValueError, MissingAttributeError
from graphcell.nn.declared_inputs import DeclaredInputs
from graphcell.nn.devices import DeviceSettings
from graphcell.pullback import tensors_in
from graphcell.recompute import recomputation
from graphcell.tensor import StateEpoch, Tensor

_RECOMPUTE_KEYS = ("mp_comm_recompute", "parallel_optimizer_comm_recompute", "recompute_slice_activation")
_DEVICES = ("CPU", "cpu")


class MixedPrecisionType(enum.Enum):
    """The dtype that a Cell computes in, as MindSpore numbers them."""

    NOTSET = 0
    FP16 = 1
    FP32 = 2
    BF16 = 3

    def __int__(self) -> int:
        return int(self.value)


_PRECISIONS = {None: MixedPrecisionType.NOTSET, dt.float16: MixedPrecisionType.FP16, dt.float32: MixedPrecisionType.FP32, dt.bfloat16: MixedPrecisionType.BF16}


class Settings(DeviceSettings):
    """The part of a Cell that keeps settings."""

    _flags: dict[str, Any]
    _settings: dict[str, Any]
    training: bool
    requires_grad: bool
    cell_type: str | None
    construct: Callable[..., Any]
    _to_float: DType | None
    _compute_in: Callable[[DType | None], None]

    def _start_settings(self) -> None:
        self.__dict__["_settings"] = {"inputs": None, "scope": None, "prefix": "", "bprop_debug": False, "jit_config": {}, "train_flag": False}
        self.__dict__["_recompute"] = None
        self._start_device_settings()

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
        if not isinstance(value, str):
            raise ArgumentTypeError(f"For 'Cell', the property 'phase' must be string type, but got type {type(value)}.")
        self.__dict__["_phase"] = value

    def set_train(self, mode: bool = True) -> Self:
        """Switches this Cell and all inside between training (Dropout, batch statistics) and inference; returns this Cell. `phase` is
        that of this Cell alone.
        """
        training, phase = bool(mode), "train" if mode else "predict"
        if self.phase != phase:
            self.phase = phase
        seen: set[Any] = set()
        waiting: list[Any] = [self]
        while waiting:  # without the paths that cells_and_names makes: programs call this at every step
            cell = waiting.pop()
            if cell in seen:
                continue
            seen.add(cell)
            tables = cell.__dict__
            tables["_settings"]["train_flag"] = True
            if tables.get("training") is not training:
                cell.training = training
            waiting += [c for c in tables["_cells"].values() if c is not None]
        return self

    def set_grad(self, requires_grad: bool = True) -> Self:
        """Announces that gradients will be asked for: in PYNATIVE_MODE a call then keeps what its backward pass needs, until the next
        call or gradient, so that `grad(cell)(*same inputs)` does not run `construct` again. Returns this Cell.
        """
        self.requires_grad = requires_grad
        return self

    def recompute(
        self, *, use_reentrant: bool = True, output_recompute: bool = False, early_stop: bool = True,
        context_fn: Any = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        """Gradients keep nothing that this Cell computes but its inputs and its result: the rest is computed again in the backward pass.
        Less memory, the same numbers but for rounding, random ones too. A recomputed Cell may hold others.

        Args:
            use_reentrant, early_stop: MindSpore's ways to do this; here there is one, which has the limits of none.
            output_recompute: the result is not kept either, unless something else keeps it.
            context_fn: gives two context managers, for the first computation and the second; in PYNATIVE_MODE, with use_reentrant=False.
            kwargs: `mp_comm_recompute`, `parallel_optimizer_comm_recompute`, `recompute_slice_activation`: bool, for several devices.

        Raises:
            ValueError: an unknown keyword, or `context_fn` with use_reentrant=True. TypeError: a setting that is no bool.
        """
        for name, value in kwargs.items():
            if name not in _RECOMPUTE_KEYS:
                listed = ", ".join(f"'{k}'" for k in _RECOMPUTE_KEYS)
                raise ArgumentValueError(
                    f"For 'recompute', keyword '{name}' is not recognized! the key kwargs must be {listed}"
                )
            if not isinstance(value, bool):
                raise ArgumentTypeError(f"The parameter '{name}' must be <class 'bool'>, but got {type(value)}")
        StateEpoch.value += 1
        self.__dict__["_recompute"] = recomputation(use_reentrant, output_recompute, early_stop, context_fn)

    # -- precision ---------------------------------------------------------------------------------------------------
    def to_float(self, dst_type: Any) -> Self:
        """Computes in `dst_type`: float inputs of this Cell and of all inside, their trained Parameters, and the Tensors among their
        attributes are cast to it; the Parameters and Tensors themselves stay as they are. A later call on an inner Cell wins there. Returns this Cell.

        Raises:
            ValueError: for a dtype that is not float16, bfloat16 or float32.
        """
        if dst_type not in (dt.float16, dt.float32, dt.bfloat16):
            raise ArgumentValueError(
                "For 'to_float', the argument 'dst_type' must be mstype.float32, mstype.float16 or mstype.bfloat16, "
                f"but got type: {type(dst_type)} and value: {dst_type}."
            )
        flags = {"fp16": dst_type is dt.float16, "fp32": dst_type is dt.float32, "bf16": dst_type is dt.bfloat16}
        for _, cell in self._inside:
            cell._compute_in(dst_type)
            cell.add_flags(**flags)
        return self

    def get_mixed_precision_type(self) -> MixedPrecisionType:
        """What `to_float` asked for."""
        return _PRECISIONS[self._to_float]

    def set_mixed_precision_type(self, kind: MixedPrecisionType) -> None:
        """Makes this Cell, but not those inside, compute as `to_float` would.

        Raises:
            TypeError: kind is no MixedPrecisionType.
        """
        if not isinstance(kind, MixedPrecisionType):
            raise ArgumentTypeError(f"For 'set_mixed_precision_type', the argument must be a MixedPrecisionType, but got {type(kind)}.")
        self._compute_in(next(dtype for dtype, named in _PRECISIONS.items() if named is kind))

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
        """The custom attributes, and `training` once `set_train` was called."""
        return {"training": self.training, **self._flags} if self.__dict__["_settings"]["train_flag"] else self._flags

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
        """Compiles this Cell for arguments like these, without running it. If `set_inputs` declared that there may be any number of rows, all
        that calls with any number of them need is compiled, whether the arguments have rows or only describe them. For other
        dimensions of unknown size there is nothing to compile yet: they are compiled for when they come.
        """
        self._check_inputs(args, kwargs)
        declared = self.__dict__["_settings"]["inputs"]
        rows = declared.with_any_rows if declared is not None and not kwargs else ()
        shapes = [t.shape[1:] if any(t is args[k] for k in rows) else t.shape for t in tensors_in((args, kwargs))]
        if any(d < 0 for shape in shapes for d in shape):
            return
        if rows:
            self._with_any_rows().compile(*args)  # type: ignore[attr-defined]
        else:
            self._compiled.compile(*args, **kwargs)  # type: ignore[attr-defined]

    def compile_and_run(self, *args: Any, **kwargs: Any) -> Any:
        """Compiles this Cell and runs it; calling it does the same in GRAPH_MODE."""
        if self.__dict__["_settings"]["inputs"] is not None:
            return self._call_declared(args, kwargs)  # type: ignore[attr-defined]
        return self._compiled(*args, **kwargs)  # type: ignore[attr-defined]

    @property
    def compiled(self) -> bool:
        """Whether there is compiled code of this Cell."""
        function = self.__dict__["_jit"]
        return function is not None and function.is_compiled

    def get_func_graph_proto(self) -> bytes | None:
        """The graph that was compiled last, as a protocol-buffers message (its fields: graphcell/ir/proto.py); None before."""
        return self.__dict__["_jit"].proto() if self.compiled else None

    def run_construct(self, cast_inputs: Any, kwargs: dict[str, Any]) -> Any:
        """Runs `construct`; deprecated."""
        return self.construct(*cast_inputs, **kwargs)

    @property
    def jit_config_dict(self) -> dict[str, Any]:
        """The settings of the JitConfig that `set_jit_config` was given; empty before."""
        settings: dict[str, Any] = self.__dict__["_settings"]["jit_config"]
        return settings

    def set_jit_config(self, jit_config: Any) -> None:
        """Sets how this Cell is compiled in GRAPH_MODE: `jit_syntax_level='STRICT'` refuses what a graph cannot do, where it would run as
        Python else. The other settings are kept; there is one way to compile here. A second call is ignored, as by MindSpore.

        Raises:
            AttributeError: jit_config is no JitConfig.
        """
        if self.jit_config_dict or not jit_config:
            return
        settings = jit_config if isinstance(jit_config, dict) else getattr(jit_config, "jit_config_dict", None)
        if settings is None:
            raise MissingAttributeError(f"'{type(jit_config).__name__}' object has no attribute 'jit_config_dict'")
        self.__dict__["_settings"]["jit_config"] = dict(settings)
        self.__dict__["_jit"] = None

    def set_inputs(self, *inputs: Any, **kwargs: Any) -> None:
        """Declares the inputs that GRAPH_MODE compiles for, all of them by position, or some by name. A Tensor made with `shape` and `dtype`
        alone stands for any Tensor like it; None in its shape for any size. A call with other inputs is an error then.

        Where the first dimension has any size, and each row of the results depends on that row alone, the first call (or `compile`) compiles
        graphs for a few blocks of rows, which serve all sizes; `explain` of the compiled function says if not. For other dimensions of any
        size each shape is compiled.

        Raises:
            ValueError: both ways at once, or an unknown name. TypeError: another number of inputs than `construct` has.
        """
        self.__dict__["_settings"]["inputs"] = declared = DeclaredInputs.of(self.construct, inputs, kwargs)
        self.__dict__["_dynamic"] = None
        if config.mode == GRAPH_MODE:
            declared.check_count()

    def _check_inputs(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raises ValueError or TypeError if these are not the inputs declared."""
        declared = self.__dict__["_settings"]["inputs"]
        if declared is not None:
            declared.check_call(args, kwargs)

    def get_inputs(self) -> Any:
        """What `set_inputs` was given: a tuple; for inputs by name, a dict of their positions; None before."""
        declared = self.__dict__["_settings"]["inputs"]
        return None if declared is None else declared.as_given()

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
        """Gives every Cell inside a scope: that of the Cell around it (Default for this one), then /name-class."""
        scopes = {"": "Default"}
        for path, cell in self._inside[1:]:
            parent, _, name = path.rpartition(".")
            scopes[path] = cell.__dict__["_settings"]["scope"] = f"{scopes[parent]}/{name}-{type(cell).__name__}"

    def get_scope(self) -> str | None:
        """The scope, as `generate_scope` made it; None before, and for the outermost Cell."""
        scope: str | None = self.__dict__["_settings"]["scope"]
        return scope
