"""The order in which the steps of a program run, such that memory is given back early.

Enters: steps in an order that is possible. Leaves: the same steps in another one. A step that leaves no more memory in use than before
(it is the last reader of as many bytes as it writes) runs as soon as it can; else the given order holds. So the update of a parameter
follows its gradient at once, and the product that makes a weight's gradient runs while its operands are there, instead of both keeping
theirs until the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from heapq import heappop, heappush
from typing import Generic, TypeVar

from graphcell.ir.graph import Value
from graphcell.records import dataclass

U = TypeVar("U")


@dataclass
class Step(Generic[U]):
    """A step, the buffers that it reads and writes, and whether it has effects: what follows it then stays behind it, since it may have
    checked an index that is used there, or raise before anything is updated."""

    unit: U
    reads: Collection[Value]
    writes: Collection[Value]
    has_effect: bool = False
    after: list[int] = field(default_factory=list)
    """Steps that wait for this one."""
    waits: int = 0


def order(steps: Sequence[Step[U]], given: Collection[Value], overwritten: Iterable[tuple[Value, Value]]) -> list[U]:
    """The units in a better order.

    Args:
        given: values whose buffers exist anyway (inputs, outputs): they take no memory and give none back.
        overwritten: (output, input): the step that makes the output may write it over the input, and must then follow its readers.
    """
    readers = _link(steps, overwritten)
    left = {v: len(found) for v, found in readers.items()}
    ready: list[int] = []
    free: list[int] = []
    done: list[U] = []

    def grows(k: int) -> bool:
        made = sum(v.type.nbytes for v in steps[k].writes if v not in given)
        return made > sum(v.type.nbytes for v in set(steps[k].reads) if v not in given and left[v] == 1)

    for k, step in enumerate(steps):
        if not step.waits:
            heappush(ready, k)
    while ready or free:
        if not free:  # what has become the last reader of something since
            free = sorted(k for k in ready if not grows(k))  # a sorted list is a heap; part of a heap is none
            if free:
                ready = sorted(set(ready).difference(free))
        k = heappop(free or ready)
        done.append(steps[k].unit)
        for v in set(steps[k].reads):
            left[v] -= 1
        for later in steps[k].after:
            steps[later].waits -= 1
            if not steps[later].waits:
                heappush(ready, later)
    assert len(done) == len(steps), "the steps depend on each other"
    return done


def _link(steps: Sequence[Step[U]], overwritten: Iterable[tuple[Value, Value]]) -> dict[Value, list[int]]:
    """Fills in what waits for what; the steps that read each value."""
    readers: dict[Value, list[int]] = {}
    writer: dict[Value, int] = {}
    edges: set[tuple[int, int]] = set()
    last_effect: int | None = None
    for k, step in enumerate(steps):
        for v in dict.fromkeys(step.reads):
            readers.setdefault(v, []).append(k)
            if v in writer:
                edges.add((writer[v], k))
        writer.update(dict.fromkeys(step.writes, k))
        if last_effect is not None:
            edges.add((last_effect, k))
        if step.has_effect:
            last_effect = k
    for output, target in overwritten:
        if output in writer:
            edges.update((reader, writer[output]) for reader in readers.get(target, ()) if reader < writer[output])
    for before, after in sorted(edges):
        if before != after:
            steps[before].after.append(after)
            steps[after].waits += 1
    return readers

