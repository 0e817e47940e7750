"""`RecomputedCall`: a call whose ops the tapes do not record; its gradients run it again.

Enters: a function of Tensors, its inputs. Leaves: an entry on each tape that follows one of its results. What the first run found in
storages that it changed (moving statistics, the state of random numbers) is there again for the second, and what the first left
in them is there afterwards. Refuses: gradients through values that left the call in another way than as its results.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from graphcell.errors import NoGradientError
from graphcell.ir.op import Array
from graphcell.ops.dispatch import Tape, recording
from graphcell.records import dataclass
from graphcell.tensor import Tensor, state

Replay = Callable[[Sequence[Tensor]], Sequence[Tensor]]
"""From the inputs to the results, as the first run had them."""


class RecomputedCall:
    """One call, for all the tapes that record in this thread but those that record nothing because they are in such a call already."""

    def __init__(self, replay: Replay, inputs: Sequence[Tensor]):
        self.replay = replay
        self.inputs = [self._kept(t) for t in inputs]
        self.starts = {tape: tape.count for tape in state.tapes if tape.block is None}
        self.storages: dict[int, tuple[weakref.ref[Tensor], Array]] = {}
        """What changed, and its value before; what does not outlive the call is let go of."""

    @staticmethod
    def _kept(tensor: Tensor) -> Tensor:
        """The Tensor as it is now."""
        if tensor.is_variable:
            return tensor
        copy = Tensor.of_array(tensor.array())
        for tape in state.tapes:
            tape.alias(copy, tensor)
        return copy

    def note(self, storage: Tensor) -> None:
        """Keeps the value of a storage that is about to change."""
        key = id(storage)
        if key not in self.storages:
            self.storages[key] = (weakref.ref(storage, lambda _: self.storages.pop(key, None)), storage.array())

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around the first run."""
        for tape in self.starts:
            tape.block = self
        try:
            yield
        finally:
            for tape in self.starts:
                tape.block = None

    def finish(self, results: Sequence[Tensor]) -> None:
        """To be called with the results of the first run."""
        for tape, start in self.starts.items():
            numbers = {n: k for k, t in enumerate(results) if (n := tape.number(t)) is not None and n > start}
            if tape.count > start:
                tape.note(_Entry(self, numbers, start, tape.count))

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """Storages hold what they held before the first run."""
        with ExitStack() as stack:
            for reference, before in tuple(self.storages.values()):
                storage = reference()
                if storage is not None:
                    stack.callback(storage.rebind, storage.array())
                    storage.rebind(before)
            yield


@dataclass(frozen=True, slots=True)
class _Entry:
    """The call on one tape: its results by number, and the numbers (after `start`, up to `stop`) that were given inside."""

    call: RecomputedCall
    results: dict[int, int]
    start: int
    stop: int

    def propagate(self, tape: Tape, table: dict[int, Tensor]) -> None:
        from graphcell.passes.autodiff import accumulate

        if any(self.start < n <= self.stop and n not in self.results for n in table):
            raise NoGradientError(
                "a value that was computed inside of a recomputed call is used outside, but is none of its results",
                hint="return it from the Cell or function that is recomputed",
            )
        given = {k: g for n, k in self.results.items() if (g := tape.hooked(n, table.pop(n, None))) is not None}
        if not given:
            return
        again = tape.successor()
        with self.call.as_before(), recording(again):
            results = self.call.replay(self.call.inputs)
        for k, cotangent in given.items():
            number = again.number(results[k])
            if number is not None:
                accumulate(table, number, cotangent)
        for entry in again.newest_first(release=True):
            entry.propagate(again, table)
        tape.count = again.count
