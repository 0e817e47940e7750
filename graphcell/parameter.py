"""`Parameter`: a Tensor that is trained: it has a name, and executables update it in place. `ParameterTuple`: several of them.

Enters: a Tensor (perhaps not initialised yet), a number, a list or a numpy array; the values are copied. A Parameter met while a graph is
being built becomes an input of it; what is assigned to it there is written back when the graph has run.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np

from graphcell import buffer
from graphcell import dtype as dt
from graphcell.common.checks import not_negative_int
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError, UnsupportedSyntaxError
from graphcell.ops.dispatch import write
from graphcell.ops.functional.common import cast, full
from graphcell.tensor import StateEpoch, Tensor, state, to_array

_NAME_LIMIT = 1024
_PREFIX = re.compile(r"^\w+[0-9a-zA-Z\_\.]*$", re.ASCII)
_numbers = itertools.count(2)  # as in MindSpore, which makes one for itself


class _Kept:
    """An attribute that is checked and kept for MindSpore's sake: on one device it changes nothing."""

    def __init__(self, check: Callable[[str, Any], Any]):
        self._check = check

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, parameter: Any, owner: type | None = None) -> Any:
        return self if parameter is None else parameter.__dict__[self._name]

    def __set__(self, parameter: Any, value: Any) -> None:
        parameter.__dict__[self._name] = self._check(self._name, value)


def _bool(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ArgumentTypeError(f"The argument `{name}` must be bool type.")
    return value


def _int(name: str, value: Any) -> int:
    if not isinstance(value, int):
        raise ArgumentTypeError(f"The argument `{name}` must be int type.")
    return value


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, (tuple, list)):
        raise ArgumentTypeError(f"The argument `{name}` must be tuple or list type.")
    return list(value)


class Parameter(Tensor):
    """A trained Tensor.

    Args:
        default_input: Tensor, number (int gives Int32, float Float32), list or numpy array.
        name: None or "" for a running one, until a Cell names it after its attribute.
        requires_grad: False for one that is not trained.
        layerwise_parallel, parallel_optimizer, storage_format, device: kept or accepted for MindSpore's sake.

    Raises:
        TypeError: default_input holds no numbers, or a flag is no bool. ValueError: default_input is a bool, or the name is no string.
    """

    __module__ = "graphcell.common.parameter"  # where programs import it from, and what its class prints
    is_variable = True

    def __init__(
        self, default_input: Any, name: str | None = None, requires_grad: bool = True, layerwise_parallel: bool = False,
        parallel_optimizer: bool = True, storage_format: str = "", device: Any = None,
    ):  # fmt: skip
        self._value = self._address = self.init = None
        self._constant = False  # while tracing: an input, never a constant
        self._data = _initial(default_input)
        self._persistent = True
        self.name = name
        self.requires_grad = requires_grad
        self.layerwise_parallel = layerwise_parallel
        self.parallel_optimizer = parallel_optimizer
        self.parallel_optimizer_comm_recompute = False
        self.comm_fusion = 1
        self.storage_format = storage_format
        self.sliced = self.unique = self.cache_enable = self.is_init = self.is_in_parallel = False
        self.cache_shape = []
        self.key = -1

    # -- name and flags ----------------------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        """The name: unique in a Cell, where it begins with the names of the Cells around it."""
        name: str = self.__dict__["_name"]
        return name

    @name.setter
    def name(self, value: str | None) -> None:
        if value is not None and not isinstance(value, str):
            raise ArgumentValueError(f"The type of the Parameter's name should be 'string' or 'None', but got {type(value)}.")
        name = (value or "").strip()
        if len(name) > _NAME_LIMIT:
            raise ArgumentValueError(f"The length of the '{name}' name should be less than {_NAME_LIMIT}.")
        self.__dict__["has_default_name"] = not name
        self.__dict__["_name"] = name or f"Parameter#{next(_numbers)}"

    @property
    def requires_grad(self) -> bool:
        """Whether it is trained. A compiled function notices when this changes."""
        value: bool = self.__dict__["_requires_grad"]
        if state.trace is not None:
            state.trace.note(self, "requires_grad", value)
        return value

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise ArgumentTypeError("The argument `requires_grad` must be bool type")
        if self.__dict__.get("_requires_grad") is not value:
            StateEpoch.value += 1
        self.__dict__["_requires_grad"] = value

    layerwise_parallel = _Kept(_bool)
    parallel_optimizer = _Kept(_bool)
    parallel_optimizer_comm_recompute = _Kept(_bool)
    cache_enable = _Kept(_bool)
    sliced = _Kept(lambda _, value: value)
    comm_fusion = _Kept(lambda _, value: not_negative_int(value))
    cache_shape = _Kept(_list)
    key = _Kept(_int)

    @property
    def param_info(self) -> Parameter:
        """What describes the Parameter: itself."""
        return self

    @property
    def inited_param(self) -> None:
        """None: `init_data` gives the Parameter itself."""
        return None

    # -- data --------------------------------------------------------------------------------------------------------
    @property
    def data(self) -> Tensor:
        """The values as a Tensor that is no Parameter. What is written into that in place is written into the Parameter too; it does not
        see later changes of the Parameter. What is assigned to this attribute is set as by `set_data`.
        """
        shown = self.value()
        shown.__dict__["written_through"] = self
        return shown

    @data.setter
    def data(self, value: Any) -> None:
        self.set_data(value)

    def value(self) -> Tensor:
        """The values now, as a Tensor that is no Parameter."""
        from graphcell.ops.functional.creation import identity

        result: Tensor = identity(self)
        return result

    def copy(self) -> Parameter:
        """Another Parameter of the same name, values and attributes."""
        return self.clone()

    def init_data(self, layout: Any = None, set_sliced: bool = False) -> Parameter:  # type: ignore[override]
        """The Parameter itself: its data are there from the beginning."""
        return self

    def set_data(self, data: Any, slice_shape: bool = False) -> Parameter:
        """Makes `data` (a Tensor or a number) the values, converted to the Parameter's dtype; returns the Parameter.

        Args:
            slice_shape: allow another shape.

        Raises:
            TypeError: data is something else, or a float number for a Parameter of whole numbers. ValueError: it has another shape.
            RuntimeError: in `construct` of a compiled Cell, or a function with `@jit`.
        """
        if state.trace is not None:
            raise UnsupportedSyntaxError(
                "Failed to compile in GRAPH_MODE because the 'Parameter' object's method 'set_data' is not supported in 'construct' or function "
                "with @jit decorator. Try to use the 'Parameter.set_data' externally such as initialized in the method '__init__' before assigning.",
                hint="ops.assign(parameter, value) changes a Parameter while a graph runs",
            )
        if isinstance(data, float) and not self.dtype.is_float:
            raise ArgumentTypeError(
                "Incoming Parameter dtype can not be converted to current dtype implicitly. "
                f"Current dtype is {self.dtype}, and incoming is Float. Use .set_dtype(xxx) to change the dtype."
            )
        if isinstance(data, (bool, int, float)):
            data = full((), data, dt.scalar_dtype(data))
        if not isinstance(data, Tensor):
            raise ArgumentTypeError(
                f"Parameter data must be [`Tensor`, `int`, `float`] or a kind of `Tensor` (like `Tensor`). But with type {type(data)}."
            )
        if data.shape != self.shape and not slice_shape:
            hint = "give slice_shape=True to change the shape"
            raise ShapeError(f"Parameter.set_data: {self.name} has shape {self.shape}, but data has {data.shape}", hint=hint)
        write(self, cast(data, self.dtype))
        return self

    def clone(self, init: Any = "same") -> Parameter:
        """Another Parameter of the same name, dtype, shape and flags.

        Args:
            init: "same" for the same values, or what `initializer` takes: a Tensor, a name, an Initializer, or a number.

        Raises:
            ValueError: an unknown name.
        """
        from graphcell.common.initializer import initializer

        start = self.value() if isinstance(init, str) and init == "same" else initializer(init, self.shape, self.dtype)
        new = Parameter(cast(start, self.dtype) if start._data is not None else start, self.name)
        new.__dict__.update(_attributes(self))
        return new

    def register_hook(self, hook_fn: Callable[[Any], Any]) -> Any:
        """See `Tensor.register_hook`."""
        return Tensor.register_hook(self, hook_fn)  # type: ignore[attr-defined]

    # -- Python protocol ---------------------------------------------------------------------------------------------
    def __repr__(self) -> str:
        return f"Parameter (name={self.name}, shape={self.shape}, dtype={self.dtype}, requires_grad={self.requires_grad})"

    __str__ = __repr__

    def __deepcopy__(self, memo: Any) -> Parameter:
        new = Parameter.__new__(type(self))
        memo[id(self)] = new
        _restore(new, buffer.copy(self.array()), _attributes(self))
        return new

    def __copy__(self) -> Parameter:
        return self.__deepcopy__({})

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickle, (np.array(self.array()), _attributes(self)))


def _attributes(parameter: Parameter) -> dict[str, Any]:
    """What a copy has too: all but the hooks on the gradient."""
    return {k: v for k, v in parameter.__dict__.items() if k != "gradient_hooks"}


def _restore(new: Parameter, data: Any, attributes: dict[str, Any]) -> None:
    new._value, new._address, new.init, new._constant, new._persistent, new._data = None, None, None, False, True, data
    new.__dict__.update(attributes)


def _unpickle(data: Any, attributes: dict[str, Any]) -> Parameter:
    new = Parameter.__new__(Parameter)
    _restore(new, buffer.copy(data), attributes)
    return new


def _initial(default_input: Any) -> Any:
    """The buffer of a new Parameter."""
    if isinstance(default_input, bool):
        raise ArgumentValueError("Parameter data can not be `bool`", hint="give a Tensor")
    if isinstance(default_input, Tensor):
        if default_input.has_init:
            return Tensor(shape=default_input.shape, dtype=default_input.dtype, init=default_input.init).init_data().array()
        return buffer.copy(default_input.array())
    if isinstance(default_input, (int, float, np.number)):
        return to_array(default_input, dt.int32 if isinstance(default_input, (int, np.integer)) else dt.float32)
    if isinstance(default_input, (list, np.ndarray)):
        return to_array(default_input, None)
    raise ArgumentTypeError(
        "The type of the argument 'default_input' must be in ['Tensor', 'int', 'float', 'numpy.ndarray', 'list']. "
        f"But got type {type(default_input)}."
    )


class ParameterTuple(tuple[Parameter, ...]):
    """A tuple of Parameters of different names.

    Raises:
        TypeError: an element is no Parameter. ValueError: two different ones have one name.
    """

    __module__ = "graphcell.common.parameter"

    def __new__(cls, iterable: Iterable[Parameter]) -> Self:
        if isinstance(iterable, Tensor) or not isinstance(iterable, Iterable):
            raise ArgumentTypeError(
                f"For ParameterTuple initialization, ParameterTuple input should be 'Parameter' collection, but got a {type(iterable)}. "
            )
        parameters = tuple(iterable)
        named: dict[str, Parameter] = {}
        for p in parameters:
            if not isinstance(p, Parameter):
                raise ArgumentTypeError(
                    f"For ParameterTuple initialization, ParameterTuple input should be 'Parameter' collection, but got a {type(iterable)}. "
                )
            if named.setdefault(p.name, p) is not p:
                raise ArgumentValueError(f"The value {p} , its name '{p.name}' already exists. Please set a unique name for the parameter.")
        return tuple.__new__(cls, parameters)

    def clone(self, prefix: str, init: Any = "same") -> ParameterTuple:
        """Clones of all Parameters (see `Parameter.clone`), with `prefix` and a dot before their names.

        Raises:
            TypeError: prefix is no string. ValueError: it is empty, or holds other characters than letters, digits, `_` and `.`.
        """
        if not isinstance(prefix, str):
            raise ArgumentTypeError(f"ParameterTuple.clone: prefix must be a string, but is {type(prefix).__name__}")
        if not _PREFIX.match(prefix):
            raise ArgumentValueError(f"The '{prefix}' is illegal, it must be match regular'{_PREFIX.pattern}' by flags're.ASCII.'")
        clones = []
        for p in self:
            new = p.clone(init)
            new.name = f"{prefix}.{p.name}"
            clones.append(new)
        return ParameterTuple(clones)


__all__ = ["Parameter", "ParameterTuple"]
