"""Teams: threads of the pool that go through a kernel side by side, and their barrier."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from graphcell.codegen.llvm import target
from graphcell.codegen.llvm.text import I64, PTR, VOID, FunctionBuilder, Module, Val, i64
from graphcell.ir.op import Array
from graphcell.runtime.pool_state import MOST_IN_TEAM, TURN_WORDS, PoolState
from graphcell.runtime.threads import Pool
from tests.runtime.pool_harness import Kernels, bind, in_threads, needs_pthreads, ranges_of, usleep

pytestmark = needs_pthreads
ROUNDS = 50
_TEAM = (("context", PTR), ("index", I64), ("size", I64), ("barrier", PTR))
_LINE = 8


def _meet(b: FunctionBuilder) -> None:
    with b.if_then(b.icmp("ne", b.args["size"], i64(1))):
        b.call_pointer(b.args["barrier"], VOID, b.args["index"])


def _emit_roll(module: Module) -> None:
    """roll: adds 1 to [index], keeps the size at [8 + index] and the thread at [16 + index]."""
    b = FunctionBuilder(module, "roll", _TEAM, internal=False)
    for start, value in ((0, None), (8, b.args["size"]), (16, b.call("pthread_self", I64))):
        place = b.gep(b.args["context"], b.add(b.args["index"], i64(start)), I64)
        if value is None:
            b.add_atomic(place, i64(1), "seq_cst")
        else:
            b.store(value, place)
    b.finish()


def _emit_rounds(module: Module) -> None:
    """rounds: in each of ROUNDS rounds writes the round to [8 + 8 * index], meets, adds to [0] how many others have another there, meets."""
    b = FunctionBuilder(module, "rounds", _TEAM, internal=False)
    words = b.gep(b.args["context"], _LINE, I64)
    with b.loop(1, ROUNDS + 1) as turn:
        b.store(turn.index, b.gep(words, b.mul(b.args["index"], i64(_LINE)), I64))
        _meet(b)
        with b.loop(0, b.args["size"]) as other:
            found = b.load(b.gep(words, b.mul(other.index, i64(_LINE)), I64), I64)
            b.add_atomic(b.args["context"], b.cast(b.icmp("ne", found, turn.index), I64, signed=False), "monotonic")
        _meet(b)
    b.finish()


def _emit_slow(module: Module) -> None:
    """slow: as `roll`, but takes 20 ms before."""
    b = FunctionBuilder(module, "slow", _TEAM, internal=False)
    usleep(b, 20_000)
    b.call("roll", VOID, *b.args.values())
    b.finish()


def _emit_nest(module: Module) -> None:
    """nest_team: has a team of four run `roll` by the parallel_for at [0], on the context at [32 * (1 + index)]."""
    b = FunctionBuilder(module, "nest_team", _TEAM, internal=False)
    inner = b.gep(b.args["context"], b.mul(b.add(b.args["index"], i64(1)), i64(32)), I64)
    b.call_pointer(b.load(b.args["context"], PTR), VOID, Val("@roll", PTR), inner, i64(-4))
    b.finish()


class TeamKernels:
    def __init__(self) -> None:
        module = Module()
        module.declare("pthread_self", I64, ())
        from graphcell.codegen.llvm.text import I32

        module.declare("usleep", I32, (I32,))
        for emit in (_emit_roll, _emit_rounds, _emit_slow, _emit_nest):
            emit(module)
        self.code = target.load_object(target.compile_object(str(module), target.host()))

    def address(self, name: str) -> int:
        return int(self.code.address(name))


@pytest.fixture(scope="module")
def teams() -> TeamKernels:
    return TeamKernels()


@pytest.fixture
def many(pool: Pool) -> Iterator[Pool]:
    """The pool as if there were a processor for each thread; the first one waits for all others, some seconds, however busy the machine is."""
    state, before = pool._state, (pool._state.processors, pool._state.spin_limit)
    state.processors, state.spin_limit = 64, before[1] * 100_000
    yield pool
    state.processors, state.spin_limit = before
    end_workers(pool)


def end_workers(pool: Pool) -> None:
    """They would go on looking for a region as often as was set when they began to."""
    assert pool._quiesce()
    pool._release()


def run(pool: Pool, teams: TeamKernels, name: str, most: int, words: int = 256) -> Array:
    context = np.zeros(words, np.int64)
    bind(pool)(teams.address(name), context.ctypes.data, -most)
    return context


def resize(pool: Pool, size: int) -> None:
    processors = pool._state.processors
    pool.resize(size)
    pool._state.processors = processors


@pytest.mark.parametrize(("size", "most"), [(1, 4), (2, 4), (3, 3), (3, 2), (7, 8), (8, 5), (12, 8)])
def test_each_thread_of_a_team_comes_once(many: Pool, teams: TeamKernels, size: int, most: int) -> None:
    resize(many, size)
    for _ in range(20):
        found = run(many, teams, "roll", most)
        came = min(size, most)
        assert found[:8].tolist() == [1] * came + [0] * (8 - came)
        assert set(found[8 : 8 + came].tolist()) == {came}
        assert len(set(found[16 : 16 + came].tolist())) == came


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_nobody_goes_on_before_all_are_there(many: Pool, teams: TeamKernels, size: int) -> None:
    resize(many, size)
    for _ in range(5):
        assert run(many, teams, "rounds", 8)[0] == 0


def test_a_team_has_no_more_threads_than_there_are_processors(pool: Pool, teams: TeamKernels) -> None:
    pool.resize(6)
    for processors, largest in ((1, 1), (2, 2), (4, 4)):
        pool._state.processors = processors
        sizes = {int(run(pool, teams, "roll", 8)[8]) for _ in range(30)}
        assert sizes <= set(range(1, largest + 1))
    pool.resize(6)


def test_who_comes_late_is_not_waited_for(pool: Pool, kernels: Kernels, teams: TeamKernels) -> None:
    """pthread_create says yes, but nobody is there: a team of one."""
    pool.resize(1)
    ranges_of(pool, kernels, 2)
    create, pool._state.create = pool._state.create, kernels.address("pretend")
    try:
        pool.resize(4)
        pool._state.processors = 4
        found = run(pool, teams, "rounds", 4)
        assert found[0] == 0
        assert run(pool, teams, "roll", 4)[:18].tolist()[:10] == [1, 0, 0, 0, 0, 0, 0, 0, 1, 0]
    finally:
        pool._state.create = create
        pool._state.started, pool._state.shaped = 1, 0  # there is nobody to join


def test_sleepers_are_waited_for_the_second_time(pool: Pool, teams: TeamKernels) -> None:
    """Threads sleep after a look or two; the first team goes without them, and the next one has waited until they are awake."""
    state, before = pool._state, pool._state.spin_limit
    pool.resize(2)
    state.processors = 2
    try:
        for _ in range(5):
            state.spin_limit = 1
            run(pool, teams, "roll", 2)
            time.sleep(0.01)
            state.missed = 0
            came = int(run(pool, teams, "roll", 2)[8])
            assert state.missed == (came == 1)
            if came == 1:
                state.spin_limit = 1 << 40
                assert int(run(pool, teams, "roll", 2)[8]) == 2 and state.missed == 0
    finally:
        state.spin_limit = before
        end_workers(pool)


def test_a_caller_that_finds_the_pool_busy_is_a_team_of_one(many: Pool, teams: TeamKernels) -> None:
    resize(many, 3)
    sizes: list[int] = []
    lock = threading.Lock()

    def work(k: int) -> None:
        for _ in range(3):
            found = run(many, teams, "slow", 4)
            with lock:
                sizes.append(int(found[8]))

    in_threads(4, work)
    assert len(sizes) == 12
    assert 1 in sizes and 3 in sizes


def test_a_team_in_a_team_is_one_thread(many: Pool, teams: TeamKernels) -> None:
    resize(many, 3)
    context = np.zeros(256, np.int64)
    context[0] = many.address
    bind(many)(teams.address("nest_team"), context.ctypes.data, -3)
    for index in range(3):
        inner = context[32 * (1 + index) :]
        assert inner[:2].tolist() == [1, 0] and inner[8] == 1


def test_blocks_and_teams_by_turns(many: Pool, kernels: Kernels, teams: TeamKernels) -> None:
    for size in (2, 4, 3):
        resize(many, size)
        for _ in range(30):
            assert run(many, teams, "rounds", 4)[0] == 0
            counts = np.zeros(100, np.int64)
            bind(many)(kernels.address("count"), counts.ctypes.data, 100)
            assert (counts == 1).all()


@pytest.mark.parametrize("blocks", [-1, -MOST_IN_TEAM - 1, -(2**62)])
def test_other_numbers_are_no_team(pool: Pool, blocks: int) -> None:
    bind(pool)(0, 0, blocks)  # calling the null kernel would crash


def test_turns_are_apart() -> None:
    assert PoolState.turns.offset % 128 == 0
    assert PoolState.turns.size == MOST_IN_TEAM * TURN_WORDS * 8 and TURN_WORDS * 8 >= 128
