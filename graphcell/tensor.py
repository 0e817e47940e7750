"""`Tensor`: a buffer, or an SSA value of the graph under construction.

One class in both modes. Enters: numbers, nested lists, numpy arrays, other Tensors. Operators and most methods are attached by
graphcell/ops/methods.py, which sits above this file. Refuses: asking a symbolic Tensor for its data.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from graphcell import buffer
from graphcell import dtype as dt
from graphcell.buffer import RetiredBuffers
from graphcell.dtype import DType
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ConcretizationError, ExecutionError
from graphcell.ir.graph import Value
from graphcell.ir.types import TensorType

if TYPE_CHECKING:
    from graphcell.ops.dispatch import Tape, Trace

Array = np.ndarray[Any, Any]
_OWN = ("gradient_hooks", "hooks_in_graph", "written_through")  # what a copy does not have
_NO_HOOKS: dict[int, Callable[[Any], Any]] = {}


StorageEpoch = ctypes.c_int64(0)
"""Counts every access from Python to the buffer of a Tensor that executables update in place, and every change of a Tensor's buffer.

An executable that sees the count unchanged since its last call knows that its table of addresses still holds. Native code reads
it where it is; so it does the other counts.
"""

ContentsEpoch = ctypes.c_int64(0)
"""Counts the runs of executables that update Tensors in place; with `StorageEpoch`, every change of what a Parameter holds."""

StateEpoch = ctypes.c_int64(0)
"""Counts every change of an attribute of a Cell, and of the type of a Tensor; a compiled function that sees it unchanged need not check what it read."""

Activity = ctypes.c_int64(0)
"""How many threads build a graph, record a tape or cast automatically; while there are none, a call of a compiled function just runs it."""


class ThreadState(threading.local):
    """What this thread is doing: the graph it builds (or None), the tapes it records (innermost last), what packs and unpacks the
    Tensors that these keep (or None), and the half precision dtype of automatic casts (ops/automatic.py; None: there are none).
    """

    trace: Trace | None
    tapes: tuple[Tape, ...]
    packing: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None
    automatic: DType | None

    def __init__(self) -> None:
        self.__dict__.update(trace=None, tapes=(), packing=None, automatic=None)

    def __setattr__(self, name: str, value: Any) -> None:
        here = self.__dict__
        before = here["trace"] is not None or here["automatic"] is not None or bool(here["tapes"])
        here[name] = value
        after = here["trace"] is not None or here["automatic"] is not None or bool(here["tapes"])
        if after is not before:
            with _counting:
                Activity.value += 1 if after else -1


_counting = threading.RLock()  # a handler of signals may come here in between
state = ThreadState()


def _forget_other_threads() -> None:
    """After a fork there is this thread only."""
    global _counting
    _counting = threading.RLock()
    Activity.value = int(state.trace is not None or bool(state.tapes))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)


class Tensor:
    """A multi-dimensional array of one dtype.

    Args:
        input_data: number, nested list or tuple of numbers, numpy array, or Tensor. Its values are copied.
        dtype: element type; default: that of the data (Python int gives Int64, float gives Float32, numpy arrays keep theirs).
        shape, init: a Tensor without data yet, filled by `init` (an Initializer, its name, or a number) when `init_data()` is called. Without
            `init` it describes an input (see `Cell.set_inputs`): None in its shape becomes -1, any size; without a shape that is (-2,), any rank.
        const_arg: accepted for MindSpore's sake; every Tensor argument is a variable.
        device: "CPU", or "meta" for a Tensor that has a shape and a dtype, but no values; asking for them raises RuntimeError.

    Raises:
        TypeError: for data that are no numbers, a ragged list, what is no dtype (its name is none), or no initializer.
        ValueError: for numbers out of range, `init` without `shape` and `dtype` or with an open shape, an unknown initializer or device.
    """

    __module__ = "graphcell.common.tensor"  # where programs import it from, and what its class prints
    __slots__ = ("__dict__", "__weakref__", "_address", "_constant", "_data", "_persistent", "_value", "init")
    __array_priority__ = 1000  # numpy leaves `array + tensor` to us
    is_variable = False  # True for Parameters: what is written into one does not become part of what is differentiated
    mark: object = None  # another object whenever the buffer was given out or replaced, for what is kept of its values
    is_updated = False  # True once an executable updates it in place
    gradient_hooks: Mapping[int, Callable[[Any], Any]] = _NO_HOOKS  # what `register_hook` was given
    _exposed = False  # True once its address was given away
    _meta = False  # True if it was made without values
    given_array: Array | None = None  # of `from_numpy` and `init_data`; as long as it is the buffer, `repr` shows it as numpy does

    if TYPE_CHECKING:  # what graphcell/ops/methods.py and methods_movement.py attach

        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __rfloordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __rmod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __rmatmul__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __xor__(self, other: Any) -> Tensor: ...
        def __lshift__(self, other: Any) -> Tensor: ...
        def __rshift__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __pos__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __eq__(self, other: object) -> Any: ...
        def __ne__(self, other: object) -> Any: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __getitem__(self, index: Any) -> Tensor: ...
        def __setitem__(self, index: Any, value: Any) -> None: ...
        def __iter__(self) -> Iterator[Tensor]: ...
        def __contains__(self, element: Any) -> bool: ...
        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, input_data: Any = None, dtype: Any = None, shape: Any = None, init: Any = None, const_arg: bool = False, device: Any = None):
        if device not in (None, "CPU", "meta"):
            raise ArgumentValueError(f"Only ('CPU', 'meta') is supported for device, but got {device}.")
        self._value: Value | None = None
        self._address: int | None = None
        self._persistent = False
        self._constant = state.trace is not None
        self.init = init
        self._data: Array | None = None
        self._fill(input_data, None if dtype is None else _checked_dtype(dtype), shape)
        if device == "meta":
            self.__dict__["_declared"], self._meta = self.ir_type, True
            self._data = self._value = None

    def _fill(self, input_data: Any, dtype: DType | None, shape: Any) -> None:
        if self.init is not None:
            if shape is None or dtype is None:
                raise ArgumentValueError("init, dtype and shape must have values at the same time.")
            if input_data is not None:
                raise ArgumentValueError(f"When initializing a tensor with 'input_data', 'shape' should be set to None.But got shape: {shape}.")
            _initializer(self.init)
            self._declare(shape, dtype)
            if any(d < 0 for d in self.shape):
                raise ArgumentValueError("If setting dynamic shape, dtype must not be None, init must be None")
        elif isinstance(input_data, Tensor):
            self._init_from_tensor(input_data, dtype)
        elif input_data is not None:
            self._data = to_array(input_data, dtype)
            if shape is not None and tuple(shape) != self._data.shape:
                raise ArgumentValueError(f"Tensor: shape {tuple(shape)} is not that of the data, {self._data.shape}")
        elif dtype is not None:
            self._declare((-2,) if shape is None else shape, dtype)
        else:
            raise ArgumentTypeError("Tensor needs input_data, or init together with shape and dtype")

    def _declare(self, shape: Any, dtype: DType) -> None:
        if not isinstance(shape, (int, tuple, list)):
            raise ArgumentTypeError(f"For 'Tensor', the 'shape' should be one of [list, tuple], but got '{type(shape)}'.")
        dims = (shape,) if isinstance(shape, int) else tuple(shape)
        self.__dict__["_declared"] = TensorType(dtype, tuple(-1 if d is None else d for d in dims))

    def _init_from_tensor(self, source: Tensor, dtype: DType | None) -> None:
        if source.is_meta:
            self._declare(source.shape, dtype or source.dtype)
            self._meta = True
            return
        if source._data is None:
            self._value, self._constant = source._value, False
            if source._value is None:
                raise ArgumentValueError("Tensor: the source is not initialised; call init_data() on it first")
            if state.trace is not None:
                self._value = state.trace.read(source)
            if dtype is not None and dtype is not self.dtype:
                from graphcell.ops import cast

                self._value = cast(self, dtype)._value
            return
        self._data = to_array(source.array(), dtype)

    # -- payload -----------------------------------------------------------------------------------------------------
    @staticmethod
    def of_array(data: Array) -> Tensor:
        """A Tensor around an array of a supported dtype, without a copy."""
        t = Tensor.__new__(Tensor)
        t._data, t._value, t._address, t._persistent, t._constant, t.init = data, None, None, False, state.trace is not None, None
        return t

    @staticmethod
    def of_buffer(data: Array, address: int) -> Tensor:
        """A Tensor around a C-contiguous array whose address is known."""
        t = Tensor.of_array(data)
        t._address = address
        return t

    @staticmethod
    def of_value(value: Value) -> Tensor:
        """The symbolic Tensor of an SSA value."""
        t = Tensor.__new__(Tensor)
        t._data, t._value, t._address, t._persistent, t._constant, t.init = None, value, None, False, False, None
        return t

    @property
    def is_symbolic(self) -> bool:
        """True while this stands for a value of a graph under construction."""
        return self._value is not None

    def array(self) -> Array:
        """The numpy array behind this Tensor (no copy). Marks the buffer as shared."""
        if self._data is None:
            return self._materialise()
        if self._persistent:
            StorageEpoch.value += 1
            self.mark = object()
        return self._data

    def _materialise(self) -> Array:
        if self._value is not None:
            raise ConcretizationError(
                "the value of a Tensor is not known while its graph is being built",
                hint="compute with Tensor ops instead, or do this part outside of the compiled function",
            )
        if self.init is None and self._meta:
            raise ExecutionError(
                "Not support copy between src:meta and dst:CPU: a Tensor made with device='meta' has no values", hint="make it without device='meta'"
            )
        if self.init is None:
            raise ConcretizationError("this Tensor has a shape and a dtype but no data", hint="give it data, or an initializer")
        self.init_data()
        assert self._data is not None
        return self._data

    def address(self) -> int:
        """Address of the first element of the C-contiguous buffer, for native code."""
        if self._address is None:
            data = self._data if self._data is not None else self._materialise()
            if not data.flags.c_contiguous or buffer.address(data) % data.dtype.itemsize:
                data = self._data = buffer.copy(data)
            self._address = buffer.address(data)
        return self._address

    def rebind(self, data: Array) -> None:
        """Makes `data` the buffer of this Tensor; arrays and views taken before keep the old values."""
        before = self._data
        if before is None or before.dtype != data.dtype or before.shape != data.shape:
            StateEpoch.value += 1  # compiled functions that read this Tensor were made for its type
        self._data, self._address, self.init = data, None, None
        self._forget_given()
        self.mark = object()
        StorageEpoch.value += 1
        RetiredBuffers.retire(before)

    def own_buffer(self, keep: bool) -> int:
        """Address of a writable buffer that nothing else can see, for an in-place update; `keep` says if its values are still read."""
        self._persistent = self.is_updated = True
        alone = self._is_alone()
        data = self._data
        assert data is not None
        if not (alone and data.flags.c_contiguous and data.flags.writeable):
            self._data = buffer.copy(data) if keep else buffer.empty(data.shape, data.dtype)
            self._address = None
            self._forget_given()
            StorageEpoch.value += 1
            RetiredBuffers.retire(data)
        return self.address()

    def _forget_given(self) -> None:
        """Lets an array go that only tells how this Tensor was made."""
        if self.given_array is not None:
            self.given_array = None

    def _is_alone(self) -> bool:
        """True if nothing but this Tensor can see its buffer."""
        data = self._data if self._data is not None else self._materialise()
        base = data.base if data.base is not None else data
        # seen from here: the owner is held by `data.base` and the local `base` (or by `_data`, `data`, `base` if it owns itself)
        alone = sys.getrefcount(base) <= (3 if base is not data else 4) and sys.getrefcount(data) <= 3 + (base is data)
        return alone and type(base) is np.ndarray and base.flags.owndata  # else the memory is another library's, which may share it unseen

    def watch(self) -> None:
        """From now on every access to the buffer is counted and marked (`mark`): something is kept that was made of its values."""
        self._persistent = True

    def is_seen_elsewhere(self) -> bool:
        """True if its values may be changed without a mark: by a holder of an array that shares its memory, or of its address."""
        return self._exposed or not self._is_alone()

    def expose(self) -> int:
        """Its address, for somebody who may write there unseen."""
        self._exposed = True
        StorageEpoch.value += 1
        return self.address()

    @property
    def ir_type(self) -> TensorType:
        """The IR type: dtype and shape."""
        if self._value is not None:
            return (state.trace.newest(self) if state.trace is not None else self._value).type
        if self._data is not None:
            return TensorType(dt.from_numpy(self._data.dtype), self._data.shape)
        declared: TensorType = self.__dict__["_declared"]
        return declared

    # -- attributes --------------------------------------------------------------------------------------------------
    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.ir_type.dtype if self._data is None else dt.from_numpy(self._data.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, outermost first."""
        return self.ir_type.shape if self._data is None else self._data.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.ir_type.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.ir_type.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next in each dimension."""
        return self.array().strides

    @property
    def is_meta(self) -> bool:
        """True for a Tensor of the device 'meta', which has no values."""
        return self._meta and self._data is None

    @property
    def device(self) -> str:
        """Where the values are: 'CPU', or 'meta' for those that are nowhere."""
        return "meta" if self.is_meta else "CPU"

    @property
    def has_init(self) -> bool:
        """True while the data are still to be made by an initializer."""
        return self.init is not None and self._data is None

    # -- out ---------------------------------------------------------------------------------------------------------
    def asnumpy(self) -> Array:
        """The values as a numpy array that shares memory with this Tensor until the next in-place update.

        Raises:
            RuntimeError: while a graph is being built.
        """
        return self.array()

    def numpy(self) -> Array:
        """The same as `asnumpy`."""
        return self.array()

    def item(self, index: Any = None) -> bool | int | float:
        """The element at `index` (an int or tuple; default: the only one) as a Python number.

        Raises:
            ValueError: without index, for a Tensor of more than one element.
            IndexError: for an index out of range.
        """
        data = self.array()
        if index is None:
            if data.size != 1:
                raise ArgumentValueError(f"item: a Tensor of shape {data.shape} has {data.size} elements, not one; give an index")
            value = data.reshape(())[()]
        else:
            value = data.flat[index] if isinstance(index, int) else data[index]
        number: bool | int | float = value.item() if data.dtype.kind in "biuf" else float(value)
        return number

    def tolist(self) -> Any:
        """The values as nested Python lists."""
        data = self.array()
        return data.astype(np.float32).tolist() if self.dtype is dt.bfloat16 else data.tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        data = self.array()
        if dtype is not None and np.dtype(dtype) != data.dtype:
            return data.astype(dtype)
        return data.copy() if copy else data

    def __dlpack__(self, **options: Any) -> Any:
        return self.array().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array().__dlpack_device__()

    @staticmethod
    def from_numpy(array: Array) -> Tensor:
        """A Tensor that shares memory with `array` (copied if it is not contiguous).

        Raises:
            TypeError: if `array` is not a numpy array.
        """
        if not isinstance(array, np.ndarray):
            raise ArgumentTypeError(f"from_numpy: expected a numpy array, but got {type(array).__name__}")
        dt.from_numpy(array.dtype)
        tensor = Tensor.of_array(np.ascontiguousarray(array) if array.ndim else array)
        tensor.given_array = tensor._data
        return tensor

    def init_data(self, slice_index: Any = None, shape: Any = None, opt_shard_group: Any = None) -> Tensor:
        """Fills a Tensor that was made with `init`, once. The arguments are accepted for MindSpore's sake.

        Raises:
            TypeError: if there is no initializer, or the data were made already.
        """
        if self.init is None:
            raise ArgumentTypeError("init_data must be set Tensor.init, init can't be None")
        declared: TensorType = self.__dict__["_declared"]
        data = buffer.empty(declared.shape, declared.dtype.np_type)
        _initializer(self.init)(data)
        self.rebind(data)
        self.given_array = data
        return self

    # -- Python protocol ---------------------------------------------------------------------------------------------
    def __repr__(self) -> str:
        from graphcell.formatting import tensor_repr

        return tensor_repr(self)

    def __str__(self) -> str:
        from graphcell.formatting import tensor_str

        return tensor_str(self)

    __hash__ = object.__hash__

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentTypeError("len() of a 0-d tensor")
        return self.shape[0]

    def _scalar(self, what: str) -> Any:
        trace = state.trace
        varies = trace is not None and (not self._constant or any(id(self) in scope.newest_values for scope in trace.chain()))
        if self.is_symbolic or varies:  # a Tensor from outside is an input of the graph: its value now is not that of later calls
            raise ConcretizationError(
                f"{what} of a Tensor is not known while its graph is being built",
                hint=f"use Tensor ops (ops.select, ops.where, a Tensor condition in `if`), or take {what} outside of the compiled function",
            )
        data = self.array()
        if data.size != 1:
            message = f"{what} of a Tensor with {data.size} elements is ambiguous (shape {data.shape})"
            raise ArgumentValueError(message, hint="use .any() or .all(), or one element")
        return data.reshape(())[()]

    def __bool__(self) -> bool:
        return bool(self._scalar("the truth value"))

    def __int__(self) -> int:
        return int(self._scalar("the int value"))

    def __float__(self) -> float:
        return float(self._scalar("the float value"))

    def __index__(self) -> int:
        if not (self.dtype.is_integer or self.dtype.is_bool):
            raise ArgumentTypeError(f"only integer Tensors can be used as an index, not {self.dtype}")
        return int(self._scalar("the int value"))

    def __deepcopy__(self, memo: Any) -> Self:
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        new.__dict__.update({k: v for k, v in self.__dict__.items() if k not in _OWN})
        new._value, new._address, new._persistent, new._constant, new.init = self._value, None, False, False, self.init
        new._data = None if self._data is None else buffer.copy(self._data)
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        if self._data is None and self._value is None:
            return (Tensor, (None, self.dtype, self.shape, self.init, False, self.device))
        return (_unpickle, (np.array(self.array()),))


def _unpickle(data: Array) -> Tensor:
    return Tensor(data)


def _checked_dtype(dtype: Any) -> DType:
    if not isinstance(dtype, DType):
        known = ", ".join(map(repr, dt.ALL))
        given = dtype.__name__ if isinstance(dtype, type) else repr(dtype)
        raise ArgumentTypeError(f"For 'Tensor', the 'dtype' should be one of [{known}], but got '{given}'.")
    return dtype


def _initializer(init: Any) -> Callable[[Array], None]:
    """What fills an array: `init` itself, or the Initializer that it names.

    Raises:
        TypeError: it is none. ValueError: an unknown name.
    """
    if callable(init):
        return init  # type: ignore[no-any-return]
    from graphcell.common.initializer import as_initializer

    return as_initializer(init)


def to_array(data: Any, dtype: DType | None) -> Array:
    """Numbers, nested sequences or arrays as a fresh aligned array.

    Raises:
        TypeError: data that are no numbers, or ragged sequences. ValueError: a number out of range.
    """
    if isinstance(data, (np.ndarray, np.generic)) or (hasattr(data, "__array__") and not isinstance(data, Tensor)):
        source = np.asarray(data)
        target = dtype or dt.from_numpy(source.dtype)
    elif isinstance(data, (bool, int, float, list, tuple, range)):
        source = _of_numbers(_plain(data))
        target = dtype or _default_dtype(source)
    else:
        raise ArgumentTypeError(f"Tensor: input_data must be a Tensor, number, list, tuple or numpy array, but got {type(data).__name__}")
    result = buffer.empty(source.shape, target.np_type)
    with np.errstate(invalid="ignore", over="ignore"):
        result[...] = source
    return result


def _plain(data: Any) -> Any:
    """Tensors in nested sequences as arrays."""
    if isinstance(data, (list, tuple)):
        return [_plain(x) for x in data]
    return data.array() if isinstance(data, Tensor) else data


def _of_numbers(data: Any) -> Array:
    try:
        source = np.array(data)
    except ValueError as e:
        raise ArgumentTypeError(f"Tensor: the nested sequence is ragged ({e})") from None
    if source.dtype.kind == "O" and _all_numbers(data):
        raise ArgumentValueError("Tensor: a number does not fit into 64 bits")
    if source.dtype.kind not in "biuf" and source.dtype != dt.bfloat16.np_type:
        raise ArgumentTypeError(f"Tensor: input_data must hold numbers only, but holds {source.dtype}")
    return source


def _all_numbers(data: Any) -> bool:
    return all(map(_all_numbers, data)) if isinstance(data, (list, tuple)) else isinstance(data, (int, float))


def _default_dtype(source: Array) -> DType:
    """Numbers and sequences count as Python's, whatever their width: integers make Int64, floats (and nothing) Float32."""
    if source.size and source.dtype.kind in "biu":
        return dt.bool_ if source.dtype.kind == "b" else dt.uint64 if source.dtype == np.uint64 else dt.int64
    return dt.float32
