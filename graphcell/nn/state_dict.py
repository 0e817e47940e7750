"""`state_dict` and `load_state_dict` of Cells, and buffers: state that is no Parameter."""

from __future__ import annotations

import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from graphcell.common.hook_handle import HookHandle, Table, current, register
from graphcell.errors import (
    ArgumentTypeError,
    CheckpointMismatchError,
    ExecutionError,
    MissingAttributeError,
    MissingKeyError,
)
from graphcell.ops.dispatch import write
from graphcell.ops.functional.common import cast
from graphcell.tensor import StateEpoch, Tensor

_EXTRA = "_extra_state"


class _IncompatibleKeys(namedtuple("_IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What `load_state_dict` found missing and unexpected."""

    __module__ = "graphcell.nn.cell"  # what its class prints

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys!r}, unexpected_keys={self.unexpected_keys!r})"

    __str__ = __repr__


class StateDict:
    """The part of a Cell that keeps buffers, gives out its state and takes it in."""

    _parameters: OrderedDict[str, Any]
    _buffers: OrderedDict[str, Tensor | None]
    _cells: OrderedDict[str, Any]
    _non_persistent: set[str]

    def _state_hooks(self, kind: str) -> Table:
        table: Table = self.__dict__.setdefault(f"_{kind}_hooks", OrderedDict())
        return table

    # -- buffers -----------------------------------------------------------------------------------------------------
    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a Tensor that is state but no Parameter. `persistent` ones are part of `state_dict`.

        Raises:
            TypeError: if the name is no str or the value no Tensor.
            KeyError: for an empty name, one with a dot, or one that another attribute has.
        """
        if "_buffers" not in self.__dict__:
            raise MissingAttributeError("cannot assign buffer before Cell.__init__() call")
        if not isinstance(name, str):
            raise ArgumentTypeError(f"buffer name should be a string.But got this type: {type(name)}")
        if "." in name:
            raise MissingKeyError('buffer name can\'t contain "."')
        if not name:
            raise MissingKeyError('buffer name can\'t be empty string ""')
        if hasattr(self, name) and name not in self._buffers:
            raise MissingKeyError(f"attribute '{name}' already exists")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise ArgumentTypeError(
                f"cannot assign '{type(tensor)}' object to buffer '{name}' (mindspore Tensor or None required)"
            )
        StateEpoch.value += 1
        self._buffers[name] = tensor
        self._non_persistent.discard(name)
        if not persistent:
            self._non_persistent.add(name)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yields (path, buffer)."""
        seen: set[int] = set()
        cells: Any = self
        for path, cell in cells.cells_and_names(name_prefix=prefix) if recurse else ((prefix, cells),):
            for name, tensor in cell._buffers.items():
                if tensor is None or (remove_duplicate and id(tensor) in seen):
                    continue
                seen.add(id(tensor))
                yield (f"{path}.{name}" if path else name), tensor

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yields the buffers."""
        for _, tensor in self.named_buffers(recurse=recurse):
            yield tensor

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path.

        Raises:
            AttributeError: there is nothing of that name, or it is no buffer.
        """
        path, _, name = target.rpartition(".")
        cell: Any = self.get_sub_cell(path)  # type: ignore[attr-defined]
        if not hasattr(cell, name):
            raise MissingAttributeError(f"{type(cell).__name__} has no attribute `{name}`")
        if name not in cell._buffers:
            raise MissingAttributeError(f"`{name}` is not a buffer")
        buffer: Tensor = cell._buffers[name]
        return buffer

    # -- out ---------------------------------------------------------------------------------------------------------
    def get_extra_state(self) -> Any:
        """Override it to add something of your own to `state_dict`.

        Raises:
            RuntimeError: it is not overridden.
        """
        raise ExecutionError("Reached a code path in Cell.get_extra_state() that should never be called.")

    def set_extra_state(self, state: Any) -> None:
        """Override it to take in what `get_extra_state` gave.

        Raises:
            RuntimeError: it is not overridden.
        """
        raise ExecutionError("Reached a code path in Cell.set_extra_state() that should never be called.")

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Path → Parameter, persistent buffer or extra state; the Tensors themselves, not copies.

        Args:
            args: destination, prefix and keep_vars by position; deprecated.
            destination: the dict to add to.
            prefix: put before all names.
            keep_vars: accepted; Tensors hold no graph here.

        Raises:
            TypeError: destination is no dict, or prefix no str. RuntimeError: a hook returned something.
        """
        if args:
            warnings.warn("Positional args are being deprecated, use kwargs instead.", FutureWarning, stacklevel=2)
            destination = args[0] if destination is None else destination
            prefix = args[1] if len(args) > 1 and not prefix else prefix
        if destination is not None and not isinstance(destination, dict):
            raise ArgumentTypeError(f"The type of destination must be OrderedDict, but got {type(destination)}")
        if not isinstance(prefix, str):
            raise ArgumentTypeError(f"The type of prefix must be string, but got {type(prefix)}")
        state: Any = destination
        if state is None:
            state = OrderedDict()
            state._metadata = OrderedDict()
        metadata: dict[str, Any] = {}
        if hasattr(state, "_metadata"):
            state._metadata[prefix[:-1]] = metadata
        for _, (hook,) in current(self._state_hooks("state_dict_pre")):
            hook(self, prefix, keep_vars)
        for name, value in self._own_state():
            state[prefix + name] = value
        if _overrides(self, "get_extra_state"):
            state[prefix + _EXTRA] = self.get_extra_state()
        for name, cell in self._cells.items():
            if cell is not None:
                cell.state_dict(destination=state, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for _, (hook,) in current(self._state_hooks("state_dict")):
            if hook(self, state, prefix, metadata) is not None:
                raise ExecutionError("state_dict post-hook must return None")
        return state  # type: ignore[no-any-return]

    def _own_state(self) -> Iterator[tuple[str, Tensor]]:
        for name, value in (*self._parameters.items(), *self._buffers.items()):
            if value is not None and name not in self._non_persistent:
                yield name, value

    # -- in ----------------------------------------------------------------------------------------------------------
    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> _IncompatibleKeys:
        """Copies values into Parameters and persistent buffers. Nothing is copied if a value does not fit.

        Args:
            state_dict: what `state_dict` gave.
            strict: refuse missing and unexpected names.

        Returns:
            The named tuple (missing_keys, unexpected_keys).

        Raises:
            TypeError: state_dict is no mapping. RuntimeError: values do not fit, or with `strict` names are missing or unexpected.
        """
        if not isinstance(state_dict, Mapping):
            raise ArgumentTypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        loading = _Loading(strict)
        loading.visit(self, "", dict(state_dict))
        keys = _IncompatibleKeys(loading.missing, loading.unexpected)
        for cell in reversed(loading.visited):
            for _, (hook,) in current(cell._state_hooks("load_state_dict")):
                if hook(cell, keys) is not None:
                    raise ExecutionError(
                        "Hooks registered with `register_load_state_dict_post_hook` are not expected to return new values"
                    )
        errors = list(loading.errors)
        if strict:
            for what, names in (("Unexpected", keys.unexpected_keys), ("Missing", keys.missing_keys)):
                if names:
                    listed = ", ".join(f'"{n}"' for n in names)
                    errors.insert(0, f"{what} key(s) in state_dict: {listed}. ")
        if errors:
            lines = "\n\t".join(errors)
            raise CheckpointMismatchError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{lines}")
        loading.copy()
        return keys

    # -- hooks -------------------------------------------------------------------------------------------------------
    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Calls `hook(cell, prefix, keep_vars)` before `state_dict` collects this Cell's state."""
        return register(self._state_hooks("state_dict_pre"), hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Calls `hook(cell, state_dict, prefix, local_metadata)` after `state_dict` has collected this Cell's state."""
        return register(self._state_hooks("state_dict"), hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Calls `hook(cell, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)` before this Cell's state is
        taken. The dict holds what begins with `prefix`; the hook may change it.
        """
        return register(self._state_hooks("load_state_dict_pre"), hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Calls `hook(cell, incompatible_keys)` at the end; it may change the two lists, and so what `strict` refuses."""
        return register(self._state_hooks("load_state_dict"), hook)


def _overrides(cell: Any, method: str) -> bool:
    return getattr(type(cell), method) is not getattr(StateDict, method)


class _Loading:
    """One `load_state_dict`: what fits, what is missing, what is wrong."""

    def __init__(self, strict: bool):
        self.strict = strict
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.errors: list[str] = []
        self.visited: list[Any] = []
        self.pairs: list[tuple[Tensor, Tensor]] = []
        self.extras: list[tuple[Any, Any]] = []

    def visit(self, cell: Any, prefix: str, given: dict[str, Any]) -> None:
        """Takes what is in `given` for this Cell and those inside. Each has a dict of its own names, which its hooks may change."""
        self.visited.append(cell)
        for _, (hook,) in current(cell._state_hooks("load_state_dict_pre")):
            hook(cell, given, prefix, {}, self.strict, self.missing, self.unexpected, self.errors)
        own = dict(cell._own_state())
        for name, target in own.items():
            self._take(given, prefix + name, target)
        known = {*own}
        if _overrides(cell, "set_extra_state"):
            known.add(_EXTRA)
            self._take_extra(given, cell, prefix + _EXTRA)
        self._note_unexpected(given, prefix, known, cell._cells)
        for name, child in cell._cells.items():
            if child is not None:
                inside = f"{prefix}{name}."
                self.visit(child, inside, {k: v for k, v in given.items() if str(k).startswith(inside)})

    def _take(self, given: dict[str, Any], key: str, target: Tensor) -> None:
        if key not in given:
            self.missing.append(key)
            return
        value = given[key]
        if not isinstance(value, Tensor):
            self.errors.append(
                f'While copying the parameter named "{key}", expected Tensor or Tensor-like object from checkpoint '
                f"but received {type(value)}"
            )
        elif value.shape != target.shape:
            self.errors.append(
                f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, "
                f"the shape in current model is {target.shape}."
            )
        else:
            self.pairs.append((target, value))

    def _take_extra(self, given: dict[str, Any], cell: Any, key: str) -> None:
        if key in given:
            self.extras.append((cell, given[key]))
        else:
            self.missing.append(key)

    def _note_unexpected(self, given: dict[str, Any], prefix: str, own: set[str], cells: Mapping[str, Any]) -> None:
        """Notes the names that begin with `prefix` and lead neither to a state of this Cell nor into one of its Cells."""
        for key in map(str, given):
            if key.startswith(prefix):
                name, dot, _ = key[len(prefix) :].partition(".")
                if name not in (cells if dot else own):
                    self.unexpected.append(key)

    def copy(self) -> None:
        for target, value in self.pairs:
            write(target, Tensor(cast(value, target.dtype)))
        for cell, extra in self.extras:
            cell.set_extra_state(extra)
