"""Executables: in-place updates, buffers given out again, host calls that fail, calls from several threads."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell.codegen.memory import Interval, plan_arena
from graphcell.context import set_context
from graphcell.errors import OutOfMemoryError
from graphcell.ir.graph import Builder
from graphcell.ir.op import Array, Op
from graphcell.ir.types import TensorType
from graphcell.ops.arithmetic import Add, Mul
from graphcell.ops.creation import Full
from graphcell.ops.movement import Transpose
from graphcell.runtime.executable import Executable, compile_graph
from graphcell.runtime.threads import pool
from graphcell.tensor import Tensor


@dataclass(frozen=True)
class Raising(Op):
    """Refuses negative numbers, on the host."""

    name = "raising_for_tests"
    has_effect = True

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        return x

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        if (x < 0).any():
            raise ArithmeticError("negative")
        return x + 1


def updating() -> tuple[Executable, Tensor]:
    """state = state + x, and the result 2 * the new state."""
    b = Builder("update")
    t = TensorType(dt.float32, (40,))
    x, state = b.input(t), b.input(t)
    (new,) = b.append(Add(), (state, x))
    (two,) = b.append(Full(2.0, (40,), dt.float32), ())
    (twice,) = b.append(Mul(), (new, two))
    return compile_graph(b.finish([twice, new]), ((1, 1),)), Tensor(np.zeros(40, np.float32))


def test_update_in_place() -> None:
    run, state = updating()
    x = Tensor(np.ones(40, np.float32))
    run([x, state])
    address = state.address()
    (y,) = run([x, state])
    np.testing.assert_array_equal(state.asnumpy(), np.full(40, 2.0))
    np.testing.assert_array_equal(y.asnumpy(), np.full(40, 4.0))
    assert state.address() == address


def test_arrays_taken_before_an_update_keep_their_values() -> None:
    run, state = updating()
    x = Tensor(np.ones(40, np.float32))
    run([x, state])
    before, part = state.asnumpy(), state.asnumpy()[3:5]
    run([x, state])
    np.testing.assert_array_equal(before, np.full(40, 1.0))
    np.testing.assert_array_equal(part, np.full(2, 1.0))
    np.testing.assert_array_equal(state.asnumpy(), np.full(40, 2.0))


def test_results_stay_as_long_as_they_are_held() -> None:
    run, state = updating()
    results = [run([Tensor(np.full(40, k, np.float32)), state])[0] for k in range(6)]
    totals = np.cumsum(range(6))
    for total, y in zip(totals, results, strict=True):
        np.testing.assert_array_equal(y.asnumpy(), np.full(40, 2.0 * total))


def test_an_update_that_reads_elsewhere_goes_through_a_copy() -> None:
    b = Builder("transposed")
    x = b.input(TensorType(dt.float32, (9, 9)))
    (y,) = b.append(Transpose((1, 0)), (x,))
    (z,) = b.append(Add(), (x, y))
    run = compile_graph(b.finish([z]), ((0, 0),))
    a = np.random.default_rng(0).standard_normal((9, 9)).astype(np.float32)
    state = Tensor(a)
    assert run([state]) == ()
    np.testing.assert_array_equal(state.asnumpy(), a + a.T)


def test_a_host_call_that_raises_leaves_everything_usable() -> None:
    b = Builder("host")
    x = b.input(TensorType(dt.float32, (3,)))
    (y,) = b.append(Raising(), (x,))
    (z,) = b.append(Add(), (y, y))
    run = compile_graph(b.finish([z]))
    with pytest.raises(ArithmeticError, match="negative"):
        run([Tensor([1.0, -1.0, 0.0])])
    (z,) = run([Tensor([1.0, 2.0, 0.0])])
    np.testing.assert_array_equal(z.asnumpy(), [4.0, 6.0, 2.0])


def test_calls_from_several_threads() -> None:
    b = Builder("threads")
    t = TensorType(dt.float32, (64, 64))
    x = b.input(t)
    y = x
    for _ in range(4):
        (y,) = b.append(Transpose((1, 0)), (y,))
        (y,) = b.append(Add(), (y, x))
    run = compile_graph(b.finish([y]))
    failures: list[str] = []

    def work(seed: int) -> None:
        a = np.random.default_rng(seed).integers(-9, 9, (64, 64)).astype(np.float32)
        want = a
        for _ in range(4):
            want = want.T + a
        for _ in range(50):
            (got,) = run([Tensor(a)])
            if not np.array_equal(got.asnumpy(), want):
                failures.append(f"seed {seed}")

    threads = [threading.Thread(target=work, args=(s,)) for s in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_set_context_sets_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHCELL_NUM_THREADS", raising=False)
    run, state = updating()
    before = pool().threads
    try:
        set_context(runtime_num_threads=3)
        run([Tensor(np.ones(40, np.float32)), state])
        assert pool().threads == 3
    finally:
        pool().resize(before)


def test_too_much_memory_is_an_error_that_says_so() -> None:
    b = Builder("huge")
    (x,) = b.append(Full(1.0, (1 << 46,), dt.float32), ())
    run = compile_graph(b.finish([x]))
    with pytest.raises(OutOfMemoryError, match="bytes"):
        run([])


def test_arena_intervals_that_live_together_do_not_overlap() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        items = []
        for _ in range(40):
            first = int(rng.integers(0, 30))
            items.append(Interval(int(rng.integers(1, 5000)), first, first + int(rng.integers(0, 8))))
        total = plan_arena(items)
        for k, a in enumerate(items):
            assert a.offset >= 0 and a.offset % 64 == 0 and a.offset + a.size <= total
            for other in items[:k]:
                if a.first <= other.last and other.first <= a.last:
                    assert a.offset + a.size <= other.offset or other.offset + other.size <= a.offset
        assert total <= sum(-(-i.size // 64) * 64 for i in items)
