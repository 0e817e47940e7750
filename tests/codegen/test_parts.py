"""Modules cut in parts: linked together they compute what the whole does, and errors of a part reach the caller."""

from __future__ import annotations

import ctypes
import gc as garbage
import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import graphcell as gc
from graphcell.codegen.llvm import parts, target
from graphcell.codegen.llvm.parts import cut, heads
from graphcell.codegen.llvm.target import compile_object, compile_objects, host, load_object
from graphcell.codegen.llvm.text import I64, PTR, FunctionBuilder, LType, Module, Val, i64
from graphcell.errors import CodegenError
from graphcell.locks import translating
from graphcell.runtime import translation
from tests.runtime.support import texts_begun


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LEAST_LETTERS", 100)
    monkeypatch.setattr(translation, "processors", lambda: 3)


def chain(length: int) -> Module:
    """`f0` reads a table and counts its calls in a variable, each of the others calls the one before and one by its address; `run` calls all."""
    module = Module()
    table = module.add_global("numbers", "internal constant [4 x i64] [i64 3, i64 1, i64 4, i64 1], align 64")
    calls = module.add_global("calls", "global [2 x i64] zeroinitializer, align 64")
    for k in range(length):
        b = FunctionBuilder(module, f"f{k}", [("x", I64), ("p", PTR)], I64)
        value = b.add(b.args["x"], b.load(b.gep(table, k % 4, I64), I64))
        b.store(b.add(b.load(calls, I64), i64(1)), calls)
        if k:
            value = b.add(value, b.call(f"f{k - 1}", I64, value, b.args["p"]))
            value = b.add(value, b.call_pointer(Val(f"@f{k // 2}", PTR), I64, b.args["x"], b.args["p"]) if k // 2 != k else value)
        b.finish(value)
    b = FunctionBuilder(module, "run", [("x", I64)], I64, internal=False)
    total = i64(0)
    for k in range(length):
        total = b.add(b.mul(total, i64(3)), b.call(f"f{k}", I64, b.args["x"], b.alloca(I64)))
    b.finish(b.add(b.mul(total, i64(1000)), b.load(calls, I64)))
    return module


@pytest.mark.usefixtures("small_parts")
def test_vectors_of_numbers_are_in_each_part_that_reads_them() -> None:
    module = Module(number_bytes=32)
    for k in range(4):
        b = FunctionBuilder(module, f"f{k}", [("x", PTR)], internal=k == 3)
        b.numbers_in_memory = True
        wide = LType("float", 16)
        b.store(b.mul(b.load(b.args["x"], wide), b.const(1.5 + k // 2, wide)), b.args["x"])
        b.finish()
    texts = cut(module, 2)
    assert [text.count("= internal global <8 x float>") for text in texts] == [1, 1]
    library = load_object(*compile_objects(texts, host()))
    x = np.ones(16, np.float32)
    for name in ("f0", "f1", "f2"):
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address(name))(x.ctypes.data)
    np.testing.assert_array_equal(x, np.full(16, 1.5 * 1.5 * 2.5, np.float32))


def run(objects: list[bytes], x: int) -> int:
    library = load_object(*objects)
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(library.address("run"))(x))


@pytest.mark.parametrize("most", [2, 3, 7])
@pytest.mark.usefixtures("small_parts")
def test_parts_compute_what_the_whole_does(most: int) -> None:
    text = str(chain(9))
    texts = cut(chain(9), most)
    assert 2 <= len(texts) <= most
    for x in (0, 11):
        assert run(compile_objects(texts, host()), x) == run([compile_object(text, host())], x)


@pytest.mark.usefixtures("small_parts")
def test_each_function_is_in_one_part() -> None:
    texts = cut(chain(9), 4)
    for name in [*(f"f{k}" for k in range(9)), "run"]:
        assert sum(f" @{name}(" in line for text in texts for line in text.splitlines() if line.startswith("define")) == 1
    assert sum("@calls = global" in text for text in texts) == 1


def test_small_modules_stay_whole() -> None:
    assert cut(chain(3), 8) == [str(chain(3))]


@pytest.mark.usefixtures("small_parts")
def test_variables_that_parts_could_not_share_keep_a_module_whole() -> None:
    module = chain(5)
    module.add_global("state", "internal global i64 0")
    assert cut(module, 3) == [str(module)]


@pytest.mark.usefixtures("small_parts")
def test_constants_that_name_functions_keep_a_module_whole() -> None:
    """A part that has the table would have to know all of them."""
    module = chain(9)
    table = module.add_global("functions", f"internal constant [9 x ptr] [{', '.join(f'ptr @f{k}' for k in range(9))}]")
    b = FunctionBuilder(module, "run", [("x", I64)], I64, internal=False)
    b.finish(b.call_pointer(b.load(b.gep(table, 5, PTR), PTR), I64, b.args["x"], b.alloca(I64)))
    text = str(module)
    assert run(compile_objects(cut(module, 3), host()), 7) == run([compile_object(text, host())], 7)


@pytest.mark.usefixtures("small_parts")
def test_variables_keep_what_they_begin_with() -> None:
    module = chain(9)
    module.add_global("calls", "global [2 x i64] [i64 20, i64 30], align 64")
    text = str(module)
    assert len(cut(module, 3)) == 3
    assert run(compile_objects(cut(module, 3), host()), 7) == run([compile_object(text, host())], 7)


@pytest.mark.usefixtures("small_parts")
def test_vectors_and_attributes_cross_parts() -> None:
    module, four = Module(), LType("i64", 4)
    for k in range(6):
        b = FunctionBuilder(module, f"f{k}", [("x", four), ("p", PTR), ("n", I64)], four, param_attributes={"p": "noalias align 8"})
        x = b.call(f"f{k - 1}", four, b.args["x"], b.args["p"], i64(k)) if k else b.args["x"]
        b.finish(b.add(x, b.add(b.splat(b.args["n"], 4), b.load(b.args["p"], four, 8))))
    b = FunctionBuilder(module, "run", [("x", I64)], I64, internal=False)
    place = b.alloca(four)
    b.store(b.iota(4), place)
    b.finish(b.reduce("add", b.call("f5", four, b.splat(b.args["x"], 4), place, i64(100))))
    texts = cut(module, 3)
    assert len(texts) == 3
    assert run(compile_objects(texts, host()), 7) == 4 * (7 + 1 + 2 + 3 + 4 + 5 + 100) + 6 * 6


@pytest.mark.usefixtures("small_parts")
def test_where_no_thread_can_be_started_the_caller_translates(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    texts = cut(chain(9), 3)
    expected = run(compile_objects(texts, host()), 3)
    monkeypatch.setattr(threading.Thread, "start", start)
    assert run(compile_objects(texts, host()), 3) == expected


@pytest.mark.usefixtures("small_parts")
def test_each_part_is_optimized_and_translated_by_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    run_passes, emit, at_work = target._Passes.run, target._emit, list[tuple[str, threading.Thread]]()

    def record_passes(self: Any, module: Any) -> None:
        at_work.append(("passes", threading.current_thread()))
        run_passes(self, module)

    def record_emission(module: Any, machine: Any) -> bytes:
        at_work.append(("emission", threading.current_thread()))
        return emit(module, machine)

    monkeypatch.setattr(target._Passes, "run", record_passes)
    monkeypatch.setattr(target, "_emit", record_emission)
    compile_objects(cut(chain(9), 3), host())
    assert len(at_work) == 6 and len(set(at_work)) == 6
    assert len({thread for _, thread in at_work}) == 3 and threading.current_thread() not in {thread for _, thread in at_work}


@pytest.mark.usefixtures("small_parts")
def test_interruptions_wait_until_all_parts_are_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    """What LLVM reads would be freed under it."""
    translate, interrupted, made, times = target._emit, threading.Event(), list[bytes](), list[int]()

    def emit(module: Any, machine: Any) -> bytes:
        interrupted.wait()
        made.append(translate(module, machine))
        return made[-1]

    class InterruptedLock:
        def __init__(self) -> None:
            self.lock = threading.Lock()
            self.release = self.lock.release

        def acquire(self, timeout: float = -1) -> bool:
            if timeout < 0:
                return self.lock.acquire()
            times.append(1)
            if len(times) == 3:
                interrupted.set()
            time.sleep(0.01)
            raise KeyboardInterrupt

    class InterruptedWork(target._Work):
        def __init__(self, *arguments: Any):
            super().__init__(*arguments)
            self._end: Any = InterruptedLock()

    monkeypatch.setattr(target, "_emit", emit)
    monkeypatch.setattr(target, "_Work", InterruptedWork)
    held = len(target._Parsed._contexts)
    with pytest.raises(KeyboardInterrupt):
        compile_objects(cut(chain(9), 3), host())
    assert len(made) == 3 and all(made)
    assert len(target._Parsed._contexts) == held


@pytest.mark.parametrize("method", ["__init__", "run"])
def test_an_interruption_amid_the_passes_frees_the_module(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    held = len(target._Parsed._contexts)
    monkeypatch.setattr(target._Passes, method, interrupted)
    for translate in (compile_object, target.optimized_text):
        with pytest.raises(KeyboardInterrupt):
            translate(str(chain(2)), host())
    assert len(target._Parsed._contexts) == held


@pytest.mark.slow
def test_modules_that_nobody_closed_are_freed_before_their_contexts() -> None:
    """Python frees what is found dead together in any order; LLVM would crash, so a process of its own tries it."""
    program = """
import gc
from graphcell.codegen.llvm import target
text = "define i32 @f(i32 %x) {\\n  ret i32 %x\\n}\\n"
for _ in range(200):
    cycle = [target._optimized(text, target.host(), target._machine(target.host()))]
    cycle.append(cycle)
    del cycle
    gc.collect()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.usefixtures("small_parts")
def test_a_thread_that_never_begins_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an interruption of its start."""
    texts = cut(chain(9), 3)
    expected = run(compile_objects(texts, host()), 3)
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)
    monkeypatch.setattr(target, "_PATIENCE", 0.1)
    assert run(compile_objects(texts, host()), 3) == expected


@pytest.mark.usefixtures("small_parts")
def test_parts_are_translated_where_llvmlite_s_lock_was_left_closed() -> None:
    """As an interruption may leave it, in the thread that was about to enter: that thread still can, others wait for ever."""
    texts = cut(chain(9), 3)
    expected = run(compile_objects(texts, host()), 3)
    with target.llvm.ffi.lib._lock:
        objects = compile_objects(texts, host())
    assert run(objects, 3) == expected


@pytest.mark.usefixtures("small_parts")
def test_garbage_of_llvmlite_s_is_collected_in_a_thread_while_that_lock_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """To free it takes the lock, which who waits for the thread opens meanwhile."""
    texts, emit = cut(chain(9), 3), target._emit
    expected = run(compile_objects(texts, host()), 3)
    cycle: list[Any] = [target._new_machine(host())]
    cycle.append(cycle)
    del cycle
    monkeypatch.setattr(target, "_emit", lambda *args: (garbage.collect(), emit(*args))[1])
    with target.llvm.ffi.lib._lock:
        objects = compile_objects(texts, host())
    assert run(objects, 3) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.usefixtures("small_parts")
def test_a_child_that_is_forked_off_amid_a_translation_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a signal's handler may do, in the thread that waits."""
    children, wait, translate = list[int](), target._Work._wait, target._emit

    def fork(self: Any) -> None:
        if not children:
            children.append(os.fork())
        wait(self)

    def emit(module: Any, machine: Any) -> bytes:
        while not children:
            time.sleep(0.01)
        return translate(module, machine)

    monkeypatch.setattr(target, "_emit", emit)
    monkeypatch.setattr(target._Work, "_wait", fork)
    objects = compile_objects(cut(chain(9), 3), host())
    if not children[0]:
        os._exit(0 if len(objects) == 3 and all(objects) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0


def test_looking_inside_waits_for_the_processor_description() -> None:
    """A target machine is for one thread at a time."""
    text, entered = str(chain(2)), threading.Event()

    def look() -> None:
        target.optimized_text(text, host())
        entered.set()

    thread = threading.Thread(target=look)
    with translating:
        thread.start()
        assert not entered.wait(0.3)
    thread.join()
    assert entered.is_set()


@pytest.mark.usefixtures("small_parts")
def test_an_error_in_one_part_is_raised() -> None:
    texts = cut(chain(9), 3)
    with pytest.raises(CodegenError, match="expected instruction opcode"):
        compile_objects([texts[0], texts[1].replace("  ret", "  return"), texts[2]], host())
    for thread in threading.enumerate():  # who has said that it is through may take a moment to be gone
        if thread.name == "graphcell compiler":
            thread.join(60)
            assert not thread.is_alive()
    assert len(compile_objects(texts, host())) == 3


def test_an_error_of_the_translation_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(module: Any, machine: Any) -> bytes:
        raise CodegenError("no registers left")

    monkeypatch.setattr(target, "_emit", fail)
    with pytest.raises(CodegenError, match="no registers left"):
        compile_objects([str(chain(2)), str(chain(3))], host())


@pytest.mark.usefixtures("small_parts")
def test_programs_in_parts_give_the_same_bits_and_come_back_from_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((6, 40)).astype(np.float32), rng.standard_normal((40, 24)).astype(np.float32)

    def loss(x: Any, w: Any) -> Any:
        y = gc.ops.softmax(gc.ops.tanh(gc.ops.matmul(x, w)), -1)
        return (y * gc.ops.layer_norm(y, (24,), gc.ops.ones((24,)), gc.ops.zeros((24,)))).sum()

    def gradients() -> list[np.ndarray[Any, Any]]:
        compiled = gc.jit(gc.value_and_grad(loss, (0, 1)))
        value, found = compiled(gc.Tensor(x), gc.Tensor(w))
        return [value.asnumpy(), *(g.asnumpy() for g in found)]

    begun = texts_begun(monkeypatch)
    monkeypatch.setenv("GRAPHCELL_CACHE_DIR", str(tmp_path / "a"))
    in_parts = gradients()
    assert len(begun) > 3, "some of the products, while the rest was lowered, and some of that"
    begun.clear()
    again = gradients()
    assert not begun, "found in the cache"
    monkeypatch.setattr(translation, "processors", lambda: 1)
    monkeypatch.setenv("GRAPHCELL_CACHE_DIR", str(tmp_path / "b"))
    alone = gradients()
    assert len(begun) == 1
    for one, two, three in zip(in_parts, again, alone, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


@pytest.mark.usefixtures("small_parts")
def test_a_module_may_be_given_away_in_two_texts() -> None:
    module = chain(9)
    module.finished = {name: module.functions.pop(name) for name in [f"f{k}" for k in range(6)]}
    first = Module(functions=module.finished, globals=module.globals)
    begun, ended = cut(first, 2, followed=True), cut(module, 2, heads(first))
    assert len(begun) == len(ended) == 2
    for x in (0, 11):
        assert run(compile_objects([*begun, *ended], host()), x) == run([compile_object(str(module), host())], x)


def test_small_texts_are_not_cut_but_know_each_other() -> None:
    first, rest = Module(), Module()
    b = FunctionBuilder(first, "f", [("x", I64)], I64)
    b.finish(b.add(b.args["x"], i64(2)))
    b = FunctionBuilder(rest, "run", [("x", I64)], I64, internal=False)
    b.finish(b.mul(b.call("f", I64, b.args["x"]), i64(10)))
    begun, ended = cut(first, 3, followed=True), cut(rest, 3, heads(first))
    assert len(begun) == len(ended) == 1
    assert run(compile_objects([*begun, *ended], host()), 5) == 70
