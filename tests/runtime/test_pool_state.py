"""The memory of the worker pool: where fields lie, and that Python and emitted code mean the same ones."""

from __future__ import annotations

import ctypes
import itertools
import platform

import pytest

from graphcell.codegen.llvm import target
from graphcell.codegen.llvm.text import I64, PTR, Module
from graphcell.runtime.pool_state import MAX_THREADS, POOL, SYSTEM_FUNCTIONS, PoolBuilder, PoolState, add_state
from tests.runtime.pool_harness import needs_pthreads

WRITERS = (  # fields that different threads write
    {"busy"}, {"word", "kernel", "context", "blocks", "grain", "units", "team_kernel"}, {"entry"}, {"sleepers", "waiting"},
    {"attendees", "team_size", "missed"}, {"wanted", "shaped", "started", "first_word", "spin_limit", "processors", *SYSTEM_FUNCTIONS}, {"mutex"}, {"wake"}, {"done"},
)  # fmt: skip


def lines_of(field: str) -> set[int]:
    """The 128 bytes on which a field lies."""
    place = getattr(PoolState, field)
    return set(range(place.offset // 128, (place.offset + place.size - 1) // 128 + 1))


def test_what_different_threads_write_is_apart() -> None:
    lines = [set().union(*map(lines_of, fields)) for fields in WRITERS]
    assert all(not one & other for one, other in itertools.combinations(lines, 2))
    assert PoolState.slots.offset % 64 == 0
    assert PoolState.slots.size == 64 * MAX_THREADS


@needs_pthreads
def test_emitted_code_finds_the_fields_of_python() -> None:
    """The last thread's slot, too, with nothing behind it."""
    module = Module()
    add_state(module)
    b = PoolBuilder(module, "touch", (("index", I64),), PTR, internal=False)
    b.set("wanted", b.add(b.get("started"), b.args["index"]))
    b.set("shaped", b.fetch_add("sleepers", 5))
    b.store(b.args["index"], b.slot(b.args["index"]))
    b.finish(POOL)
    code = target.load_object(target.compile_object(str(module), target.host()))
    touch = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(code.address("touch"))
    state = PoolState.from_address(touch(0))
    assert (state.wanted, state.shaped, state.sleepers) == (0, 0, 5)
    state.started = 70
    touch(MAX_THREADS - 1)
    assert (state.wanted, state.shaped, state.sleepers) == (70 + MAX_THREADS - 1, 5, 10)
    assert state.slots[len(state.slots) - 8] == MAX_THREADS - 1
    assert [k for k, word in enumerate(state.slots) if word] == [len(state.slots) - 8]


@pytest.mark.parametrize(("machine", "instruction"), [("x86_64", "x86.sse2.pause"), ("arm64", "aarch64.hint"), ("riscv64", "")])
def test_the_pause_of_each_processor(monkeypatch: pytest.MonkeyPatch, machine: str, instruction: str) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    module = Module()
    b = PoolBuilder(module, "wait", ())
    b.pause()
    b.finish()
    assert [name.removeprefix("llvm.") for name in module.declarations] == [instruction] * bool(instruction)
