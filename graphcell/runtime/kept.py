"""What an executable computed once from its frozen inputs, and whether that still holds.

Enters: the Tensors that are frozen inputs, and the address of the program's function `prepare`. Leaves: a block of memory that is up to
date whenever `run` reads it.

How a change is noticed. Everything that gives out or replaces the buffer of a Parameter counts `StorageEpoch` up and marks the Tensor
(`Tensor.mark`); every run of an executable that updates Tensors counts `ContentsEpoch` up, and it marked those Tensors for good
when it took their buffers. So while both counts stand still nothing changed, unless somebody holds an array that shares memory with one
of the Tensors, or its bare address: then what depends on that Tensor is computed at each call until the array is gone, and once more.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphcell import buffer
from graphcell.buffer import RetiredBuffers
from graphcell.codegen.program import Kept
from graphcell.errors import OutOfMemoryError
from graphcell.ir.op import Array
from graphcell.locks import Lock
from graphcell.tensor import ContentsEpoch, StorageEpoch, Tensor

PREPARE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
"""The type of `prepare` (see codegen/frozen.py)."""
_NEVER = -2
"""No count has this value."""


class _Source:
    """An input that kept memory depends on, as it was when it was last looked at."""

    def __init__(self) -> None:
        self.tensor: Tensor | None = None
        self.mark: object = None
        self.contents = -1
        self.shared = True

    def look(self, tensor: Tensor) -> bool:
        """True if the values of the input, which is `tensor` now, may have changed since the last look."""
        if tensor is not self.tensor:
            tensor.watch()
            self.tensor, self.shared = tensor, True
        mark, contents, shared = tensor.mark, ContentsEpoch.value, tensor.is_seen_elsewhere()
        changed = self.shared or shared or mark is not self.mark or (tensor.is_updated and contents != self.contents)
        self.mark, self.contents, self.shared = mark, contents, shared
        return changed


class KeptMemory:
    """The memory that `prepare` fills.

    Args:
        kept: what the program says of it.
        prepare: the program's function.
        name: of the executable, for errors.
    """

    def __init__(self, kept: Kept, prepare: Callable[..., int], name: str):
        self.kept, self.name = kept, name
        self._prepare = prepare
        self._sources = [_Source() for _ in kept.sources]
        self._flags = (ctypes.c_uint8 * (len(kept.sources) + 1))()
        self._storage = self._contents = _NEVER
        self._data: Array | None = None
        self._address = 0
        self._lock = Lock()

    @property
    def contents(self) -> int:
        """The value of `ContentsEpoch` for which the memory holds as long as `StorageEpoch` stands; no value that there is, if for none."""
        return self._contents

    @property
    def holds(self) -> bool:
        """True if nothing can have changed since the last call of `refresh`, if that was with the same Tensors."""
        return self._storage == StorageEpoch.value and self._contents == ContentsEpoch.value

    def bind(self, inputs: Any) -> None:
        """Puts the memory's address into a table of inputs."""
        inputs[self.kept.slot] = self._address

    def refresh(self, tensors: Sequence[Tensor], first: int, inputs: Any, arena: int, pool: int, callback: int) -> bool:
        """Brings the memory up to date for a call with this table of inputs, in which its address is put.

        Args:
            tensors: the graph's inputs from number `first` on.

        Returns:
            False if a host call failed: the callback has the error.

        Raises:
            MemoryError: there is no memory.
        """
        with self._lock:
            storage, contents = StorageEpoch.value, ContentsEpoch.value
            changed = [s.look(tensors[k - first]) for s, k in zip(self._sources, self.kept.sources, strict=True)]
            in_use = RetiredBuffers.calls() > 1  # this call is one
            new = self._data is None or (any(changed) and in_use)
            if new:
                self._allocate()
            self.bind(inputs)
            if new or any(changed):
                for k, c in enumerate([*changed, False]):
                    self._flags[k] = new or c
                if self._prepare(ctypes.addressof(inputs), ctypes.addressof(self._flags), arena, pool, callback):
                    self._forget()
                    return False
            watchful = any(source.shared for source in self._sources)
            self._storage, self._contents = (_NEVER, _NEVER) if watchful else (storage, contents)
            return True

    def _allocate(self) -> None:
        """A new block; the one before may still be read by a run that is under way."""
        self._forget()
        try:
            self._data = buffer.empty((self.kept.nbytes,), np.dtype(np.uint8))
        except OutOfMemoryError as e:
            raise OutOfMemoryError(f"{self.name}: what it computes once from its weights needs {self.kept.nbytes:,} bytes") from e
        self._address = buffer.address(self._data)

    def _forget(self) -> None:
        """Lets go of the block, if there is one, so that everything is computed again."""
        before, self._data = self._data, None
        self._storage = self._contents = _NEVER
        if before is not None:
            StorageEpoch.value += 1  # other workspaces know its address
            RetiredBuffers.retire(before)
