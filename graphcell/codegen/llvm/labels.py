"""Rows in which one element differs from the others: the one at a label, as in the gradient of a cross entropy.

Enters: a kernel whose rows lie along the vectors. Leaves: which of its comparisons hold at one element of a row at most, and that element, which is
computed for itself before the row's loop and stored over what that stored there. The loop does not compare.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence

from graphcell.codegen.kernel import Index, LoopKernel, Store
from graphcell.codegen.llvm.points import PointEmitter, Scope
from graphcell.codegen.llvm.text import I64, LType, Val, const, constant_mask, i64
from graphcell.ops.comparison import Equal
from graphcell.records import dataclass

_FEWEST_VECTORS = 32
"""Of a row. Comparing takes some four instructions a vector, an element for itself about twenty and what its own functions take."""


@dataclass(frozen=True)
class Label:
    """Comparisons (`hits`) of a label with an index along the vector loop, which is `first` where that loop begins. The former two are numbers of locals."""

    hits: frozenset[int]
    label: int
    first: int

    def stores_apart(self, kernel: LoopKernel, stores: Sequence[int], inner: Collection[int], others: Collection[int]) -> list[Store]:
        """Those of a stage's stores that depend on the comparisons; none if one of them cannot be written element by element, or if something else depends
        on them, one of `others`. `inner`: the locals that the stage computes.
        """
        asking = set(self.hits)
        for n in sorted(inner):
            if not kernel.body[n].is_reduction and not asking.isdisjoint(kernel.body[n].args):
                asking.add(n)
        found = [store for n in stores if (store := kernel.stores[n]).local in asking]
        apart = all(s.access.strides[kernel.vector] == 1 and not s.adds and s.access.operand not in kernel.past for s in found)
        return found if apart and asking.isdisjoint(others) and self.hits <= set(inner) else []


def label_of_row(kernel: LoopKernel, lanes: int) -> Label | None:
    """The label of a kernel's rows, if they have one, are the innermost loop and are long enough. `lanes`: of a register."""
    vector, body, rank = kernel.vector, kernel.body, len(kernel.extents)
    if list(range(kernel.outer, rank)) != [vector] or kernel.tile >= 0 or kernel.extents[vector] < _FEWEST_VECTORS * lanes:
        return None
    along = tuple(int(d == vector) for d in range(rank))
    found: dict[tuple[int, int], set[int]] = {}
    for n, s in enumerate(body):
        for index, label in (s.args, s.args[::-1]) if isinstance(s.what, Equal) else ():
            what, dtype = body[index].what, body[label].dtype
            if not isinstance(what, Index) or what.strides != along or not (dtype.is_integer and dtype.signed) or body[label].loops >> vector & 1:
                continue
            if -(1 << dtype.bits - 1) <= what.offset <= (1 << dtype.bits - 1) - kernel.extents[vector]:  # else it wraps, and may be the label twice
                found.setdefault((label, what.offset), set()).add(n)
    if len(found) != 1:
        return None
    (((label, first), hits),) = found.items()
    return Label(frozenset(hits), label, first)


@contextlib.contextmanager
def element_at_label(emitter: PointEmitter, row: Scope, label: Label, stores: Sequence[Store]) -> Iterator[None]:
    """What is emitted meanwhile, the row's loop, takes none of its elements for the one at the label. What `stores` write there is known before, since a store
    may go over what another one needs, and written afterwards. Where the label is no index of the row it is the first or the last element, compared as ever.
    """
    b, last = emitter.b, emitter.kernel.extents[emitter.kernel.vector] - 1
    at = b.sub(b.cast(emitter._value(label.label, row), I64), i64(label.first))
    at = b.binary("smin", b.binary("smax", at, i64(0)), i64(last))
    with _first_lane_at(emitter, at):
        scope = Scope({}, row)
        values = [emitter._value(store.local, scope) for store in stores]
    row.known.update((n, const(False, LType("i1", emitter.lanes))) for n in label.hits)
    yield
    for n in label.hits:
        del row.known[n]
    with _first_lane_at(emitter, at):
        for store, value in zip(stores, values, strict=True):
            emitter._store_vector(store.access, value)


@contextlib.contextmanager
def _first_lane_at(emitter: PointEmitter, at: Val) -> Iterator[None]:
    """The first lane alone, at an index of the vector loop."""
    vector = emitter.kernel.vector
    before, emitter.slot = emitter.index[vector], 0
    emitter.index[vector], emitter.mask = at, constant_mask(1, emitter.lanes)
    yield
    emitter.index[vector], emitter.mask = before, None
