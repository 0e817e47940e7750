"""Who runs which blocks: every block once, each thread on its own share first, and nothing waits for a thread that is held up."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from graphcell.codegen.llvm import target
from graphcell.codegen.llvm.text import I64, PTR, Module
from graphcell.codegen.program import ASKING
from graphcell.runtime.pool_state import POOL, PoolBuilder, PoolState, add_state, at
from graphcell.runtime.threads import Pool
from graphcell.runtime.work_sharing import emit_claims, emit_shares, emit_take_part
from tests.runtime.pool_harness import Kernels, bind, in_threads, needs_pthreads, ranges_of

pytestmark = needs_pthreads


class Shares:
    """The emitted code without a pool around it: `share(kernel, context, participants, blocks)` begins a region; `take`, `take_away`,
    `steal` and `take_part` are called by whoever likes."""

    def __init__(self) -> None:
        module = Module()
        add_state(module)
        emit_claims(module)
        emit_take_part(module)
        b = PoolBuilder(module, "share", (("kernel", PTR), ("context", PTR), ("participants", I64), ("blocks", I64)), PTR)
        b.store(b.args["kernel"], at("kernel"))
        b.store(b.args["context"], at("context"))
        emit_shares(b, b.args["participants"], b.args["blocks"])
        b.finish(POOL)
        self.code = target.load_object(target.compile_object(str(module).replace("define internal", "define"), target.host()))
        word, address = ctypes.c_int64, ctypes.c_void_p
        self._share = ctypes.CFUNCTYPE(address, address, address, word, word)(self.code.address("share"))
        self.steal = ctypes.CFUNCTYPE(word, word, word)(self.code.address("steal"))
        self.take_part = ctypes.CFUNCTYPE(None, word, word)(self.code.address("take_part"))
        self._take = ctypes.CFUNCTYPE(word, address)(self.code.address("take"))
        self._take_away = ctypes.CFUNCTYPE(word, address)(self.code.address("take_away"))

    def share(self, kernel: int, context: int, participants: int, blocks: int) -> None:
        self.state = PoolState.from_address(self._share(kernel, context, participants, blocks))

    def left(self, participants: int) -> list[tuple[int, int]]:
        """The units in the slots: begin and end."""
        return [ends(self.state.slots[8 * k]) for k in range(participants)]

    def take(self, index: int) -> tuple[int, int]:
        return ends(self._take(self._slot(index)))

    def take_away(self, index: int) -> tuple[int, int]:
        return ends(self._take_away(self._slot(index)))

    def _slot(self, index: int) -> int:
        return ctypes.addressof(self.state) + PoolState.slots.offset + 64 * index


def ends(word: int) -> tuple[int, int]:
    return word >> 32, word & 0xFFFFFFFF


@pytest.fixture(scope="module")
def shares() -> Shares:
    return Shares()


# -- without a pool --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("participants", [1, 2, 3, 7, 1024])
@pytest.mark.parametrize("blocks", [1, 2, 5, 31, 32, 1000, 12345, 2**40 + 1, 2**63 - 1])
def test_shares_are_even_and_cover_all_blocks(shares: Shares, participants: int, blocks: int) -> None:
    participants = min(participants, blocks)  # as in the pool
    shares.share(0, 0, participants, blocks)
    grain, units = shares.state.grain, shares.state.units
    assert shares.state.blocks == blocks
    assert (units - 1) * grain < blocks <= units * grain
    assert min(blocks, 16 * participants) <= units <= 32 * participants
    left = shares.left(participants)
    assert [begin for begin, _ in left] == [0, *(end for _, end in left[:-1])]
    assert left[-1][1] == units
    sizes = {end - begin for begin, end in left}
    assert max(sizes) - min(sizes) <= 1 and min(sizes) >= 1


def test_a_thread_takes_a_quarter_from_the_front_and_others_half_from_the_end(shares: Shares) -> None:
    """As far as whole units go, and one at least."""
    shares.share(0, 0, 2, 40)
    assert shares.left(2) == [(0, 20), (20, 40)]
    assert [shares.take(0) for _ in range(3)] == [(0, 5), (5, 9), (9, 12)]
    assert [shares.take_away(0) for _ in range(5)] == [(16, 20), (14, 16), (13, 14), (12, 13), (0, 0)]
    assert shares.take(0) == (0, 0)
    assert shares.left(2)[1] == (20, 40)


def test_a_thief_begins_with_the_next_and_goes_round(shares: Shares) -> None:
    shares.share(0, 0, 3, 48)
    while shares.take(1) != (0, 0):
        pass
    assert shares.steal(1, 3) == 1
    assert shares.left(3) == [(0, 16), (40, 48), (32, 40)]
    for index in (1, 2):
        while shares.take(index) != (0, 0):
            pass
    assert shares.steal(1, 3) == 1
    assert shares.left(3)[:2] == [(0, 8), (8, 16)]
    for index in (0, 1):
        while shares.take(index) != (0, 0):
            pass
    assert shares.steal(1, 3) == 0


@pytest.mark.parametrize("blocks", [3, 50, 1001])
@pytest.mark.parametrize("index", [0, 2])
def test_one_thread_does_it_all_if_nobody_else_comes(shares: Shares, kernels: Kernels, index: int, blocks: int) -> None:
    counts = np.zeros(blocks + 2, np.int64)
    shares.share(kernels.address("count"), counts.ctypes.data + 8, 3, blocks)
    shares.take_part(index, 3)
    assert counts.tolist() == [0] + [1] * blocks + [0]
    shares.take_part(1, 3)  # nothing is left
    assert counts.sum() == blocks


def test_threads_that_take_from_each_other(shares: Shares, kernels: Kernels) -> None:
    """Units are single blocks, so owners and thieves meet all the time."""
    for _ in range(200):
        counts = np.zeros(100, np.int64)
        shares.share(kernels.address("count"), counts.ctypes.data, 4, 100)
        in_threads(4, lambda k: shares.take_part(k, 4))
        assert (counts == 1).all()


# -- in the pool ----------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("blocks", [1, 2, 3, 6, 7, 8, 100, 12345])
def test_every_block_runs_exactly_once(pool: Pool, kernels: Kernels, size: int, blocks: int) -> None:
    pool.resize(size)
    counts = np.zeros(blocks + 2, np.int64)
    run = bind(pool)
    for _ in range(20):
        run(kernels.address("count"), counts.ctypes.data + 8, blocks)
    assert counts.tolist() == [0] + [20] * blocks + [0]


@pytest.mark.parametrize(("size", "blocks"), [(1, 9), (2, 9), (4, 3), (4, 4), (5, 23), (8, 64), (3, 10_007)])
def test_ranges_are_contiguous(pool: Pool, kernels: Kernels, size: int, blocks: int) -> None:
    pool.resize(size)
    for _ in range(20):
        found = ranges_of(pool, kernels, blocks)
        assert [begin for begin, _, _ in found] == [0, *(end for _, end, _ in found[:-1])]
        assert found[-1][1] == blocks
        assert len(found) <= 40 * size  # many small blocks are not asked for one by one
        assert len({thread for *_, thread in found}) <= min(size, blocks)


def test_the_largest_number_of_blocks(pool: Pool, kernels: Kernels) -> None:
    for size in (1, 2, 3):
        pool.resize(size)
        total = np.zeros(1, np.int64)
        bind(pool)(kernels.address("extent"), total.ctypes.data, 2**63 - 1)
        assert total.tolist() == [2**63 - 1]


@pytest.mark.parametrize("blocks", [2, 3, 32, 5000])
def test_others_do_what_is_left_to_a_thread_that_is_held_up(pool: Pool, kernels: Kernels, blocks: int) -> None:
    """The worker waits in its first range until all other blocks are done, so the caller must do the rest of its share."""
    pool.resize(2)
    for _ in range(5):
        held = np.zeros(3 + blocks, np.int64)
        held[0], held[2] = threading.get_ident(), blocks
        bind(pool)(kernels.address("held"), held.ctypes.data, blocks)
        assert held[1] == blocks and (held[3:] == 1).all()


# -- kernels that ask -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 100, 12345])
def test_a_kernel_that_asks_is_called_once_in_each_thread(pool: Pool, kernels: Kernels, size: int, blocks: int) -> None:
    pool.resize(size)
    for _ in range(20):
        found = np.zeros(blocks + 3, np.int64)
        bind(pool)(kernels.address("asking"), found.ctypes.data, blocks + ASKING)
        assert found[2:].tolist() == [1] * blocks + [0]
        assert 1 <= found[0] <= min(size, blocks) and found[0] <= found[1]
        assert size > 1 or found[:2].tolist() == [1, 1]


def test_threads_that_ask_take_from_each_other(shares: Shares, kernels: Kernels) -> None:
    """Each thread's call goes on as long as any has blocks left, and who comes too late is not called."""
    for _ in range(200):
        found = np.zeros(102, np.int64)
        shares.share(kernels.address("asking"), found.ctypes.data, 4, 100)
        shares.state.asks = 1
        in_threads(4, lambda k: shares.take_part(k, 4))
        shares.state.asks = 0
        assert (found[2:] == 1).all() and 1 <= found[0] <= 4 and found[1] >= 16
    alone = np.zeros(102, np.int64)
    shares.share(kernels.address("asking"), alone.ctypes.data, 4, 100)
    shares.state.asks = 1
    shares.take_part(2, 4)
    shares.take_part(1, 4)
    shares.state.asks = 0
    assert (alone[2:] == 1).all() and alone[0] == 1


def test_no_blocks_to_ask_for(pool: Pool, kernels: Kernels) -> None:
    pool.resize(2)
    found = np.zeros(3, np.int64)
    for blocks in (ASKING, ASKING - 5, -(2**63), -1, 0):
        bind(pool)(kernels.address("asking"), found.ctypes.data, blocks)
    assert not found.any()
