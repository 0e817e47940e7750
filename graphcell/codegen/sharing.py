"""Which steps of a program threads share: those that gain more by it than it costs to announce them and to move what they read and write.

Enters: the steps in the order in which they run, each with its work and the memory that it reads and writes. Leaves: which of them one thread does
alone. A step that is shared leaves its results in the caches of all processors; one thread alone finds half of them in another's cache, and the other
way round. Small programs, whose data never leave the caches, lose more by that than threads gain.

The choice makes a sum small: of the times of the steps and, for each step that reads what another wrote, of the time to move that, if one of the two is
shared and the other not, and caches still hold it. Groups of a few steps change sides as long as the sum becomes less, once from all shared, once from
none. Two threads are assumed: with more, gains and moves grow alike. Branches count as if they ran one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from graphcell.codegen.kernel import LoopKernel
from graphcell.codegen.llvm.contraction import Plan, Stage
from graphcell.codegen.llvm.loops import block_count, cost
from graphcell.codegen.llvm.processor import Target
from graphcell.codegen.lowering import PARALLEL_FROM
from graphcell.ir.graph import Node, Value
from graphcell.locks import cached_property
from graphcell.ops.contraction import MatMul
from graphcell.ops.convolution import Conv, ConvInputGrad
from graphcell.records import dataclass

TURNS = 8
"""Of a loop of which nobody knows how often it turns."""
ANNOUNCED, GATHERED, MET = 4000, 4000, 250
"""Cycles by which two threads come short of half the time: until a step has begun and ended everywhere, and for unequal halves; until a team has gone
through a loop (team.py), and for each step of it that threads meet for: twice what a barrier takes on a Zen 4. The others, and the next two, as measured
on Emerald Rapids."""
_CYCLES_A_BYTE = 0.2
"""To fetch what lies in another processor's cache."""
_BEYOND_L1 = 0.05
"""Cycles for each byte that a step touches beyond four times an L1 cache."""
LONG = 80_000
"""Cycles of one thread from which a step is shared in any case: rough times decide where little is at stake."""
_RUNS = (1, 2, 4, 8)
"""Neighbours that change sides together."""
_MOST_ROUNDS = 8

Touched = tuple[tuple[Value, int], ...]
"""Memory, named by a value that lies there, and how many bytes of it are read or written."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a step takes.

    Attributes:
        cycles: of one thread, roughly.
        may_be_shared: whether there is more than one block, and enough to do.
        read_by_all: bytes that each thread reads, however the step is divided.
        undivided: what each of several threads does of the cycles.
    """

    cycles: float
    may_be_shared: bool = False
    read_by_all: int = 0
    undivided: float = 0.0


@dataclass(frozen=True, slots=True)
class Task:
    """A step that runs `times` times; `toll`: cycles that it takes to share it."""

    work: Work
    times: int
    reads: Touched
    writes: Touched
    toll: float = ANNOUNCED

    @property
    def by_units(self) -> bool:
        """Whether the threads of a team divide it as they do the steps around it."""
        return not self.toll

    @property
    def gain(self) -> float:
        """Cycles that two threads save wherever operands lie."""
        return self.times * ((self.work.cycles - self.work.undivided) / 2 - self.toll - _CYCLES_A_BYTE * self.work.read_by_all / 2)


def work_of_plan(node: Node, plan: Plan, nbytes: int, target: Target, shared_from: int = PARALLEL_FROM, own: Collection[Stage] = ()) -> Work:
    """The work of a contraction that touches `nbytes`; `shared_from`: see `Calls`, `own`: stages that each thread runs."""
    lanes = target.vector_bytes // max(4, node.results[0].type.dtype.itemsize)
    cycles = plan.flops / (3.5 * lanes) + _from_memory(nbytes, target)
    sizes = [v.type.nbytes for v in node.operands[:2]]
    of_sums = any(name == "partial" for name, _ in plan.shared)
    if of_sums or not isinstance(node.op, (MatMul, Conv, ConvInputGrad)) or (isinstance(node.op, MatMul) and len(node.results[0].type.shape) > 2):
        read_by_all = 0  # each thread has terms, matrices, sequences or heads of its own
    elif isinstance(node.op, MatMul) and node.op.transpose_x:  # the rows that are added up come from all threads
        read_by_all = sum(sizes)
    else:
        read_by_all = min(sizes)
    undivided = sum(s.blocks * s.flops for s in own) / (3.5 * lanes)
    return Work(cycles, any(s.blocks > 1 and s.blocks * s.flops >= shared_from for s in plan.stages if s not in own), read_by_all, undivided)


def work_of_loops(kernel: LoopKernel, nbytes: int, target: Target, shared_from: int = PARALLEL_FROM) -> Work:
    """The work of a loop nest that touches `nbytes`."""
    lanes = target.vector_bytes // max(4, *(d.itemsize for d in kernel.operands))
    instructions = cost(kernel)
    return Work(instructions / (1.25 * lanes) + _from_memory(nbytes, target), instructions >= shared_from and block_count(kernel, target) > 1)


def _from_memory(nbytes: int, target: Target) -> float:
    return _BEYOND_L1 * max(0, nbytes - 4 * target.l1_bytes)


def done_alone(tasks: Sequence[Task], cache_bytes: int) -> set[int]:
    """The numbers of the tasks that one thread does alone, of those that may be shared; `cache_bytes`: of a processor's own cache."""
    return _Choice(tasks, cache_bytes).alone() if any(t.work.may_be_shared for t in tasks) else set()


@dataclass(frozen=True, slots=True)
class _Edge:
    """What one step wrote and another reads: cycles to move half of it."""

    writer: int
    reader: int
    cycles: float


class _Choice:
    """Finds the tasks to be shared. Sets of tasks are sets of their numbers."""

    def __init__(self, tasks: Sequence[Task], cache_bytes: int):
        self.tasks, self.cache_bytes = tasks, cache_bytes
        self.long = {k for k, t in enumerate(tasks) if t.work.may_be_shared and t.work.cycles >= LONG}
        self.undecided = [k for k, t in enumerate(tasks) if t.work.may_be_shared and k not in self.long]
        self.gains = {k: tasks[k].gain for k in self.undecided}

    def alone(self) -> set[int]:
        starts = ({*self.long, *self.undecided}, self.long)
        best = max(map(self._settled, starts), key=self._saved)
        return set(self.undecided) - best

    @cached_property
    def edges(self) -> list[list[_Edge]]:
        """Those of each task."""
        found: list[list[_Edge]] = [[] for _ in self.tasks]
        for edge in self._find_edges():
            found[edge.writer].append(edge)
            found[edge.reader].append(edge)
        return found

    def _find_edges(self) -> Iterator[_Edge]:
        """For everything that a task reads and another wrote last, perhaps in the turn or the call before; not where so much was touched since that no
        cache holds it. Of a loop, the way round is taken to be as long as the way forth.
        """
        tasks = self.tasks
        touched = [0]
        for t in tasks:
            touched.append(touched[-1] + sum(nbytes for _, nbytes in (*t.reads, *t.writes)))
        last = {memory: k - len(tasks) for k, t in enumerate(tasks) for memory, _ in t.writes}
        for k, t in enumerate(tasks):
            for memory, nbytes in dict(t.reads).items():
                at = last.get(memory)
                if at is None or at % len(tasks) == k:
                    continue
                writer = tasks[at % len(tasks)]
                since = touched[k] - touched[at % len(tasks)] + (touched[-1] if at < 0 else 0)
                if at < 0 and writer.times == t.times > 1:
                    since = abs(touched[k] - touched[at % len(tasks)])
                if since < self.cache_bytes:
                    size = nbytes if writer.times == t.times else max(nbytes, dict(writer.writes)[memory])
                    yield _Edge(at % len(tasks), k, min(t.times, writer.times) * size / 2 * _CYCLES_A_BYTE)
            last.update((memory, k) for memory, _ in t.writes)

    @cached_property
    def groups(self) -> list[set[int]]:
        """What may change sides together: runs of neighbours, and whoever wrote something with whoever reads it."""
        free = self.undecided
        runs = [set(free[k : k + n]) for n in _RUNS for k in range(0, len(free) - n + 1, max(1, n // 2))]
        pairs = {(e.writer, e.reader) for found in self.edges for e in found}
        return [*runs, *(set(pair) for pair in sorted(pairs) if self.gains.keys() >= set(pair))]

    def _settled(self, start: set[int]) -> set[int]:
        """What is shared, beginning with `start`, when no group changes sides any more."""
        shared = set(start)
        for _ in range(_MOST_ROUNDS):
            before = set(shared)
            for group in self.groups:
                for moved in (group - shared, group & shared):
                    if moved and self._change(moved, shared) > 0:
                        shared ^= moved
            if shared == before:
                break
        return shared

    def _change(self, moved: set[int], shared: set[int]) -> float:
        """Cycles saved if `moved` change sides, all of which are in `shared` or none."""
        saved = 0.0
        for k in moved:
            leaves = k in shared
            saved += -self.gains[k] if leaves else self.gains[k]
            for e in self.edges[k]:
                other = e.reader if e.writer == k else e.writer
                if other not in moved:
                    saved += e.cycles if (other in shared) != leaves else -e.cycles
        return saved

    def _saved(self, shared: set[int]) -> float:
        """Cycles saved in all."""
        moves = sum(e.cycles for found in self.edges for e in found if (e.writer in shared) != (e.reader in shared)) / 2
        return sum(gain for k, gain in self.gains.items() if k in shared) - moves
