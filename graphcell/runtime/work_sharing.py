"""Who runs which blocks of a region: emitted code that divides, takes and steals them.

Enters: a module with the pool's memory (pool_state.py). Leaves: functions of that module, of which native_pool.py, the
only one to use this, calls `take_part`; and the code that fills the slots before a region is announced. Refuses nothing.

Blocks are counted in units of `grain` blocks, some _UNITS_PER_THREAD for each thread that takes part. Each thread has
a contiguous share of them in its slot, one word that holds both ends; it takes a part of what is left there at a time,
and when that is used up, half of what is left in the slot of another. So threads on undisturbed processors work each on
memory of its own, and one that is slow, or held up by the system, keeps the others waiting for the ranges that it has
begun and no longer.

A unit is claimed by the one exchange of a slot's word that takes it away, so nobody runs it twice. Between that and
its run, or its way into the thief's slot, it is in no slot at all: that all slots are empty says that all blocks have
been begun or will be by a thread inside the region, not that they are done. No memory is handed on through a slot. What the
region is, a thread has seen by entering it; what its blocks wrote, it hands back by leaving (native_pool.py).

A kernel that asks does something once in each thread before its first range, such as to pack weights into memory of its own: it is called once, with
the first range and with `more`, by which it takes all others.

Reference: R. D. Blumofe, C. E. Leiserson, "Scheduling multithreaded computations by work stealing", Journal of the
ACM 46(5), 1999.
"""

from __future__ import annotations

from graphcell.codegen.llvm.text import I64, PTR, VOID, Module, Val, i64
from graphcell.runtime.pool_state import FOREVER, PoolBuilder, at

_UNITS_PER_THREAD = 16  # at least, where there are as many blocks; less than twice that
_QUARTER, _HALF = 2, 1  # parts of what a slot holds, as shifts
_END_BITS = 32  # bits of a slot that hold the end of the range; those above hold its begin. Units are few, however many blocks
_INDEX_BITS = 32  # bits that hold which thread somebody is; those above hold how many take part


def emit_shares(b: PoolBuilder, participants: Val, blocks: Val) -> None:
    """Fills the slots, in shares as even as units are. Nobody but the caller may be inside the region."""
    grain = b.binary("smax", b.div(blocks, b.mul(participants, i64(_UNITS_PER_THREAD)), signed=False), i64(1))
    units = b.add(b.div(b.sub(blocks, i64(1)), grain, signed=False), i64(1))
    for field, value in (("blocks", blocks), ("grain", grain), ("units", units)):
        b.store(value, at(field))
    share, more = b.div(units, participants, signed=False), b.rem(units, participants, signed=False)
    with b.loop(0, participants, carried=(i64(0),), at_least_once=True) as loop:
        (begin,) = loop.carried
        end = b.add(b.add(begin, share), b.cast(b.icmp("slt", loop.index, more), I64, signed=False))
        # unordered: workers see the slots as they see the rest of the region, by entering it
        b.store_atomic(_packed(b, begin, end), b.slot(loop.index), "monotonic")
        loop.carry(end)


def emit_claims(module: Module) -> None:
    """`take(ptr slot) -> i64` for a thread's own slot, `take_away(ptr slot) -> i64` for another's."""
    _emit_claim(module, "take", _QUARTER, from_end=False)
    _emit_claim(module, "take_away", _HALF, from_end=True)


def emit_take_part(module: Module) -> None:
    """`take_part(i64 index, i64 participants)`: runs what is left to this thread, then what others have left. After `emit_claims`."""
    _emit_steal(module)
    _emit_more(module)
    b = PoolBuilder(module, "take_part", (("index", I64), ("participants", I64)))
    kernel, context = b.load(at("kernel"), PTR), b.load(at("context"), PTR)
    whoami = b.or_(b.args["index"], b.shl(b.args["participants"], i64(_INDEX_BITS)))
    taken = b.alloca(I64, 2)

    def some_left() -> Val:
        return b.icmp("ne", b.call("more", I64, whoami, taken), i64(0))

    def run(*asking: Val) -> None:
        b.call_pointer(kernel, VOID, context, b.load(taken, I64), b.load(b.gep(taken, 1, I64), I64), *asking)

    def run_once() -> None:
        with b.if_then(some_left()):
            run(whoami, Val("@more", PTR))

    asks = b.icmp("ne", b.load(at("asks"), I64), i64(0))
    b.if_else(asks, run_once, lambda: b.while_loop(some_left, run))
    b.finish()


def _packed(b: PoolBuilder, begin: Val, end: Val) -> Val:
    return b.or_(b.shl(begin, i64(_END_BITS)), end)


def _unpacked(b: PoolBuilder, word: Val) -> tuple[Val, Val]:
    return b.shr(word, i64(_END_BITS)), b.and_(word, i64((1 << _END_BITS) - 1))


def _emit_claim(module: Module, name: str, shift: int, from_end: bool) -> None:
    """`name(ptr slot) -> i64`: takes 1 / 2**shift of the units out of a slot, at least one; 0 if there are none.

    A slot's word is the whole of its state, so it does no harm if it changes and comes back between the look and the
    exchange.
    """
    b = PoolBuilder(module, name, (("slot", PTR),), I64)
    slot = b.args["slot"]
    with b.loop(0, FOREVER):
        held = b.load_atomic(slot, I64, "acquire")
        begin, end = _unpacked(b, held)
        b.return_if(b.icmp("eq", begin, end), i64(0))
        count = b.shr(b.add(b.sub(end, begin), i64((1 << shift) - 1)), i64(shift))
        middle = b.sub(end, count) if from_end else b.add(begin, count)
        first, second = _packed(b, begin, middle), _packed(b, middle, end)
        claimed, left = (second, first) if from_end else (first, second)
        b.return_if(b.compare_exchange(slot, held, left, "seq_cst", "acquire"), claimed)
    b.finish(i64(0))


def _emit_more(module: Module) -> None:
    """`more(i64 whoami, ptr taken) -> i64`: takes units for a thread, of its own or of others, and writes their first block and the one behind the last to
    `taken`; 0 if none are left. `whoami`: see _INDEX_BITS.
    """
    b = PoolBuilder(module, "more", (("whoami", I64), ("taken", PTR)), I64)
    whoami, taken = b.args.values()
    index, participants = b.and_(whoami, i64((1 << _INDEX_BITS) - 1)), b.shr(whoami, i64(_INDEX_BITS))
    blocks, grain, units = (b.load(at(field), I64) for field in ("blocks", "grain", "units"))
    own = b.slot(index)
    with b.loop(0, FOREVER):
        claimed = b.call("take", I64, own)
        with b.if_then(b.icmp("ne", claimed, i64(0))):
            begin, end = _unpacked(b, claimed)
            b.store(b.mul(begin, grain), taken)
            b.store(b.select(b.icmp("eq", end, units), blocks, b.mul(end, grain)), b.gep(taken, 1, I64))
        b.return_if(b.icmp("ne", claimed, i64(0)), i64(1))
        b.return_if(b.icmp("eq", b.call("steal", I64, index, participants), i64(0)), i64(0))
    b.finish(i64(0))


def _emit_steal(module: Module) -> None:
    """`steal(i64 index, i64 participants) -> i64`: puts units of another thread into the own slot; 0 if there are none.

    The own slot is empty, and others leave an empty slot alone: a plain store fills it. The others are looked at in
    turn from the next one on, so that thieves do not all begin with the same.
    """
    b = PoolBuilder(module, "steal", (("index", I64), ("participants", I64)), I64)
    index, participants = b.args.values()
    with b.loop(1, participants) as loop:
        following = b.add(index, loop.index)
        other = b.select(b.icmp("slt", following, participants), following, b.sub(following, participants))
        claimed = b.call("take_away", I64, b.slot(other))
        found = b.icmp("ne", claimed, i64(0))
        with b.if_then(found):
            b.store_atomic(claimed, b.slot(index), "release")
        b.return_if(found, i64(1))
    b.finish(i64(0))
