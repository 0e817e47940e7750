"""Short loops whose points take turns in memory, red, green and blue of one pixel after the other: unrolled, so that vectors run along the pixels.

Enters: a kernel whose loops are in order, before its vector loop is chosen. Leaves: an equal kernel that has the iterations of such a loop side by side
in its body. What they read and write together are then whole vectors of memory, which `kernel.interleaved` finds; vectors of three channels would be
a fourth empty, and each would cost as much as a long one.
"""

from __future__ import annotations

from dataclasses import replace

from graphcell.codegen.kernel import Access, GatherLoad, Index, Load, LoopKernel, Statement, Store, interleaved, with_loops
from graphcell.passes.costs import SMALL_STRIDE

_FEWEST_TURNS = 8
"""From which it pays. Measured on Zen 4: gradients of pooling pairs of pixels, of lines of 8 to 15 pixels, take 0.70 to 0.78 of the time."""
_SHORT_VECTOR = 4
"""Lanes that are a vector on their own: quick unless something else lies side by side along the other loop, or functions take a whole one as long."""
_MOST_INSTRUCTIONS = 400
"""Rough instructions of a point, of all turns, that a loop may have. Measured on Zen 3: three channels of three powers each, 183 of them, take a third of the
time, and as long to compile."""


def unroll_turns(kernel: LoopKernel) -> LoopKernel:
    """The kernel without its loop over turns, if it has one."""
    for d in range(len(kernel.extents)):
        if _takes_turns(kernel, d):
            return _unrolled(kernel, d)
    return kernel


def _takes_turns(kernel: LoopKernel, d: int) -> bool:
    """Whether loop d is short and there is another along which everything lies side by side, in memory or by turns of loop d; but for what all turns share."""
    extent = kernel.extents[d]
    if not 1 < extent <= SMALL_STRIDE or kernel.reduces or sum(s.instructions for s in kernel.body) * extent > _MOST_INSTRUCTIONS:
        return False
    if any(_depends_on_place(s, d) for s in kernel.body) or not all(s.access.strides[d] for s in kernel.stores):
        return False
    stores, loads = [s.access for s in kernel.stores], [s.what.access for s in kernel.body if isinstance(s.what, Load)]
    found = [e for e in range(len(kernel.extents)) if e != d and kernel.extents[e] >= _FEWEST_TURNS and _lies_by_turns(stores, loads, d, e, extent)]
    accesses = stores + loads
    if extent == _SHORT_VECTOR and not any(s.is_slow for s in kernel.body):
        return any(a.strides[e] == 1 for a in accesses for e in found)
    return bool(found)


def _depends_on_place(s: Statement, d: int) -> bool:
    """Whether a statement takes more than another element in another turn."""
    what = s.what
    if isinstance(what, Load):
        return any(g.strides[d] for g in what.guards)
    return isinstance(what, (Index, GatherLoad)) and bool(s.loops >> d & 1)


def _lies_by_turns(stores: list[Access], loads: list[Access], d: int, e: int, extent: int) -> bool:
    """Whether something lies so, and all else side by side or where loop d does not matter. Of what is read, other elements may lie between, as of pixels
    with more channels, or it lies backwards."""
    turns = _by_turns(stores, d, e, extent) + _by_turns(loads, d, e, extent)
    apart = [a for a in stores if a.strides[e] not in (0, 1)] + [a for a in loads if abs(a.strides[e]) > SMALL_STRIDE]
    return bool(turns) and all(a in turns or not a.strides[d] for a in apart)


def _by_turns(accesses: list[Access], d: int, e: int, extent: int) -> list[Access]:
    """Those that touch every element along loop e, if the turns of loop d are taken one after the other."""
    moved = {access: [_moved(access, d, turn) for turn in range(extent)] for access in accesses if access.strides[d]}
    together = {access for group in interleaved([m for each in moved.values() for m in each], e) if len(group) > 1 for access in group}
    return [access for access, each in moved.items() if together.issuperset(each)]


def _unrolled(kernel: LoopKernel, d: int) -> LoopKernel:
    extent = kernel.extents[d]
    body: list[Statement] = []
    places: dict[tuple[int, int], int] = {}
    for n, s in enumerate(kernel.body):
        for turn in range(extent):
            if turn and not s.loops >> d & 1:
                places[n, turn] = places[n, 0]
                continue
            places[n, turn] = len(body)
            what = replace(s.what, access=_moved(s.what.access, d, turn)) if isinstance(s.what, Load) else s.what
            body.append(Statement(what, tuple(places[a, turn] for a in s.args), s.dtype, s.loops, s.stage))
    stores = tuple(Store(places[s.local, turn], _moved(s.access, d, turn), s.adds) for s in kernel.stores for turn in range(extent))
    longer = LoopKernel(kernel.extents, kernel.outer, -1, tuple(body), stores, kernel.operands, summed=kernel.summed)
    kept = [e for e in range(len(kernel.extents)) if e != d]

    def without(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(values[e] for e in kept)

    outer = kernel.outer - (d < kernel.outer)
    return with_loops(longer, without(kernel.extents), outer, without, lambda mask: sum(1 << new for new, old in enumerate(kept) if mask >> old & 1))


def _moved(access: Access, d: int, turn: int) -> Access:
    return Access(access.operand, access.strides, access.offset + turn * access.strides[d])
