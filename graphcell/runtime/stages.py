"""Runs of functions that were cut into stages: some for blocks of rows, some for what has no rows.

Enters: the parts of a function (passes/row_stages.py), each bound to native code, and which values each reads and gives. Leaves: `StagedBinding`,
called like a `Binding`. Refuses nothing. Values are known by numbers, their places in a list.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphcell import buffer
from graphcell.buffer import Writers
from graphcell.tensor import Tensor


@dataclass(frozen=True)
class Step:
    """One part: called with the values in the places `reads`, it gives those for the places `gives`. `done`: places that nothing reads afterwards."""

    run: Callable[[Sequence[Tensor]], tuple[Tensor, ...]]
    reads: tuple[int, ...]
    gives: tuple[int, ...]
    done: tuple[int, ...] = ()


class StagedBinding:
    """All parts of a function, for some number of rows.

    Args:
        steps: in order.
        given: what is there before the first step, None for what steps give; the arguments of a call come first.
        results: the places of what a call returns. What is there before the first step is returned as a copy of what it was then.
        writes: whether the last step writes into Parameters.
        nbytes: what the buffers of all values may take.
    """

    def __init__(self, steps: Sequence[Step], given: Sequence[Tensor | None], results: Sequence[int], writes: bool, nbytes: int):
        self._steps, self._given, self._results, self._writes = freed_early(steps, results), list(given), tuple(results), writes
        self.nbytes = nbytes
        made = {k for step in self._steps for k in step.gives}
        self._copied = sorted(set(results) - made)

    def __call__(self, leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Runs; returns the outputs that are not written back."""
        values: list[Tensor | None] = [*leaves, *self._given[len(leaves) :]]
        with Writers.alone() if self._writes else contextlib.nullcontext():
            copies = {k: Tensor.of_array(buffer.copy(values[k].array())) for k in self._copied}  # type: ignore[union-attr]
            for step in self._steps:
                results = step.run([values[k] for k in step.reads])  # type: ignore[misc]
                for k, x in zip(step.gives, results, strict=True):
                    values[k] = x
                for k in step.done:
                    values[k] = None
        return tuple(copies[k] if k in copies else values[k] for k in self._results)  # type: ignore[misc]


def freed_early(steps: Sequence[Step], results: Sequence[int]) -> tuple[Step, ...]:
    """The steps with `done` filled in."""
    needed = set(results)
    after: list[Step] = []
    for step in reversed(steps):
        done = {*step.reads, *step.gives} - needed
        needed |= set(step.reads)
        after.append(Step(step.run, step.reads, step.gives, tuple(sorted(done))))
    return tuple(reversed(after))
