"""Programs that are translated while the rest of them is lowered."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcell as gc
from graphcell.codegen.llvm import parts, target
from graphcell.codegen.lowering import Lowering
from graphcell.errors import CodegenError
from graphcell.locks import translating, whole
from graphcell.runtime import translation
from graphcell.runtime.cache import DIRECTORY_VARIABLE, open_cache
from graphcell.runtime.translation import kept_objects
from tests.runtime.support import texts_begun


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Parts of a few lines, and a cache that has nothing."""
    monkeypatch.setattr(parts, "LEAST_LETTERS", 100)
    monkeypatch.setattr(translation, "processors", lambda: 2)
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))


def images(seed: int) -> tuple[np.ndarray[Any, Any], ...]:
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in ((2, 8, 12, 12), (16, 8, 3, 3), (8, 16, 3, 3)))


def loss(x: Any, v: Any, w: Any) -> Any:
    y = gc.ops.relu(gc.ops.conv2d(x, v, padding=1, pad_mode="pad"))
    return gc.ops.softmax(gc.ops.conv2d(y, w, padding=1, pad_mode="pad"), 1).square().sum()


def gradients(seed: int = 1) -> list[np.ndarray[Any, Any]]:
    value, found = gc.jit(gc.value_and_grad(loss, (0, 1, 2)))(*map(gc.Tensor, images(seed)))
    return [value.asnumpy(), *(g.asnumpy() for g in found)]


def no_thread_is_left() -> bool:
    """Who has said that it is through may take a moment to be gone."""
    threads = [thread for thread in threading.enumerate() if thread.name == "graphcell compiler"]
    for thread in threads:
        thread.join(60)
    return not any(thread.is_alive() for thread in threads)


def test_what_is_handed_over_is_translated_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    finish = Lowering.finish

    def count(self: Lowering) -> str:
        begun.append(sum(thread.name == "graphcell compiler" for thread in threading.enumerate()))
        emitting.set()
        return finish(self)

    emit, emitting = target._emit, threading.Event()

    def wait_and_emit(module: Any, machine: Any) -> bytes:
        emitting.wait(60)
        return emit(module, machine)

    monkeypatch.setattr(Lowering, "finish", count)
    monkeypatch.setattr(target, "_emit", wait_and_emit)
    together = gradients()
    assert begun[0] >= 2
    monkeypatch.setattr(translation, "processors", lambda: 1)
    monkeypatch.setenv(DIRECTORY_VARIABLE, os.environ[DIRECTORY_VARIABLE] + ".alone")
    for one, two in zip(together, gradients(), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("processors", [1, 2])
def test_calls_have_as_many_arguments_as_functions_take(processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM does not check it, and processors do not notice what is too much."""
    monkeypatch.setattr(translation, "processors", lambda: processors)
    compiled = gc.jit(gc.value_and_grad(loss, (0, 1, 2)))
    begun = texts_begun(monkeypatch)
    compiled(*map(gc.Tensor, images(5)))
    text = "\n".join(begun)
    takes = {m[1]: arguments(m[2]) for m in re.finditer(r"^define [^@]*@([\w.]+)\((.*)\)[^()]*\{$", text, re.MULTILINE)}
    calls = [(m[1], arguments(m[2])) for m in re.finditer(r"call \w+ @([\w.]+)\(([^()]*)\)", text) if m[1] in takes]
    assert len(calls) > 20 and all(takes[name] == count for name, count in calls)


def arguments(text: str) -> int:
    return text.count(",") + 1 if text else 0


def test_a_program_is_listed_as_a_whole() -> None:
    compiled = gc.jit(gc.value_and_grad(loss, (0, 1, 2)))
    compiled(*map(gc.Tensor, images(2)))
    text = compiled._last.executable.compilation.listing.program.text
    names = [line.partition("@")[2].partition("(")[0] for line in text.splitlines() if line.startswith("define")]
    assert "run" in names and len(set(names)) == len(names)
    assert any(name.startswith("conv") for name in names) and any(name.startswith("loops") for name in names)
    assert compiled._last.executable.llvm().count("\ndefine") == len(names) - text.startswith("define")


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, CodegenError])
def test_what_ends_the_lowering_ends_the_threads(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    held = len(target._Parsed._contexts)
    finish = Lowering.finish

    def fail(self: Lowering) -> str:
        raise error("enough")

    monkeypatch.setattr(Lowering, "finish", fail)
    with pytest.raises(error, match="enough"):
        gradients(3)
    assert no_thread_is_left() and len(target._Parsed._contexts) == held
    assert translating.acquire(blocking=False)
    translating.release()
    monkeypatch.setattr(Lowering, "finish", finish)
    assert np.isfinite(gradients(3)[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_forks_wait_for_a_thread_that_lowers(monkeypatch: pytest.MonkeyPatch) -> None:
    """That thread imports while what it handed over is translated."""
    hand_over, lowering, forking = Lowering.hand_over, threading.Event(), threading.Event()

    def import_meanwhile(self: Lowering) -> None:
        hand_over(self)
        lowering.set()
        forking.wait(1)
        with whole:
            pass

    monkeypatch.setattr(Lowering, "hand_over", import_meanwhile)
    thread = threading.Thread(target=gradients, daemon=True)
    thread.start()
    assert lowering.wait(60)
    child = os.fork()
    if not child:
        os._exit(0)
    thread.join(60)
    assert not thread.is_alive()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_forked_off_amid_the_first_import_of_the_compiler_compiles(tmp_path: Path) -> None:
    program = """
import os, sys, threading, time
import numpy as np
import graphcell as gc
x = gc.Tensor(np.ones(3, np.float32))
factor = float(sys.argv[1])
thread = threading.Thread(target=lambda: gc.jit(lambda x: x * factor)(x))
thread.start()
while thread.is_alive() and "graphcell.codegen.llvm.target" not in sys.modules:
    time.sleep(0.0005)
child = os.fork()
if not child:
    done = []
    work = threading.Thread(target=lambda: done.append(gc.jit(lambda x: x + factor)(x)), daemon=True)
    work.start()
    work.join(60)
    os._exit(0 if done else 1)
thread.join()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    for factor in range(3):  # at first the processor and what the runtime needs are not known yet, which takes the import to another place
        environment = {**os.environ, DIRECTORY_VARIABLE: str(tmp_path / "cache")}
        subprocess.run([sys.executable, str(path), str(factor + 2)], check=True, timeout=200, env=environment)


def test_parts_are_found_one_by_one() -> None:
    cache = open_cache()
    cache.put("a", {}, b"1")
    cache.put("b", {}, b"2")
    assert kept_objects(cache, ["b", "a"]) == [b"2", b"1"]
    assert kept_objects(cache, ["a", "c"]) is None


def test_a_part_that_was_lost_is_made_again(tmp_path: Path) -> None:
    expected = gradients(4)
    for entry in sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_size)[-2:]:
        entry.unlink()
    for one, two in zip(expected, gradients(4), strict=True):
        np.testing.assert_array_equal(one, two)


def test_the_runtime_s_own_code_is_made_beside_the_first_program(tmp_path: Path) -> None:
    program = """
import numpy as np
import graphcell as gc
from graphcell.codegen.llvm import target
alone, texts, begin = [], [], target.Translator.begin

def noted(self, text, apart=True):
    texts.append(text)
    begin(self, text, apart)

target.Translator.begin = noted
target.compile_object = lambda *arguments: alone.append(arguments)
y = gc.jit(lambda x: x * 2)(gc.Tensor(np.ones(3, np.float32)))
assert y.asnumpy().tolist() == [2, 2, 2]
assert not alone and len(texts) == 3, (alone, len(texts))
y = gc.jit(lambda x: x * 3)(gc.Tensor(np.ones(3, np.float32)))
assert not alone and len(texts) == 4 and y.asnumpy().tolist() == [3, 3, 3]
"""
    path = tmp_path / "program.py"
    path.write_text(program)
    subprocess.run([sys.executable, str(path)], check=True, timeout=120, env={**os.environ, DIRECTORY_VARIABLE: str(tmp_path / "cache")})
