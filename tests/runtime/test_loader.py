"""Object code brought into memory without LLVM, and what a process keeps of its processor."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphcell.codegen.llvm import target
from graphcell.errors import CodegenError
from graphcell.runtime import elf, loader

pytestmark = pytest.mark.skipif(not elf.is_handled(), reason="objects of another kind")

CONSTANTS = """
define double @f(double %x) {
  %y = fmul double %x, 2.5
  %z = fadd double %y, 0.125
  ret double %z
}
define void @v(ptr %p) {
  %x = load <4 x float>, ptr %p
  %y = fadd <4 x float> %x, <float 1.0, float 2.0, float 3.0, float 4.0>
  store <4 x float> %y, ptr %p
  ret void
}
"""
OUTSIDE = """
declare double @fmod(double, double)
declare ptr @memcpy(ptr, ptr, i64)
define double @remainder_of(double %x, double %y) {
  %z = call double @fmod(double %x, double %y)
  ret double %z
}
define ptr @copy(ptr %to, ptr %from, i64 %n) {
  %r = call ptr @memcpy(ptr %to, ptr %from, i64 %n)
  ret ptr %r
}
define ptr @address_of_fmod() {
  ret ptr @fmod
}
"""
VARIABLES = """
@count = internal global i64 40
@cleared = global [3 x i64] zeroinitializer
define i64 @next() {
  %x = load i64, ptr @count
  %y = add i64 %x, 1
  store i64 %y, ptr @count
  store i64 %y, ptr getelementptr ([3 x i64], ptr @cleared, i64 0, i64 2)
  ret i64 %y
}
"""
FIRST = """
declare i64 @second(i64)
define i64 @first(i64 %x) {
  %y = call i64 @second(i64 %x)
  %z = add i64 %y, 1
  ret i64 %z
}
define i64 @back(i64 %x) {
  ret i64 %x
}
define ptr @address_of_second() {
  ret ptr @second
}
"""
SECOND = """
declare i64 @back(i64)
define i64 @second(i64 %x) {
  %y = mul i64 %x, 10
  %z = call i64 @back(i64 %y)
  ret i64 %z
}
"""


def objects_of(*texts: str) -> list[bytes]:
    return [target.compile_object(text, target.host()) for text in texts]


def function(library: Any, name: str, result: Any, *arguments: Any) -> Any:
    found = ctypes.CFUNCTYPE(result, *arguments)(library.address(name))
    found.library = library  # whose memory is gone when it dies
    return found


def test_constants_lie_beside_the_code() -> None:
    mapping = elf.load(objects_of(CONSTANTS))
    assert function(mapping, "f", ctypes.c_double, ctypes.c_double)(3.0) == 7.625
    x = np.arange(4, dtype=np.float32)
    function(mapping, "v", None, ctypes.c_void_p)(x.ctypes.data)
    assert x.tolist() == [1.0, 3.0, 5.0, 7.0]


def test_functions_of_the_process_are_reached_however_far_away() -> None:
    mapping = elf.load(objects_of(OUTSIDE))
    assert function(mapping, "remainder_of", ctypes.c_double, ctypes.c_double, ctypes.c_double)(7.5, 2.0) == 1.5
    source, to = np.arange(100, dtype=np.uint8), np.zeros(100, np.uint8)
    assert function(mapping, "copy", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(to.ctypes.data, source.ctypes.data, 100) == to.ctypes.data
    assert np.array_equal(source, to)
    outside = ctypes.cast(ctypes.CDLL(None).fmod, ctypes.c_void_p).value
    assert function(mapping, "address_of_fmod", ctypes.c_void_p)() == outside


def test_variables_can_be_written_and_each_mapping_has_its_own() -> None:
    code = objects_of(VARIABLES)
    one, other = elf.load(code), elf.load(code)
    following = function(one, "next", ctypes.c_int64)
    assert [following(), following()] == [41, 42] and function(other, "next", ctypes.c_int64)() == 41
    assert (ctypes.c_int64 * 3).from_address(one.address("cleared"))[:] == [0, 0, 42]


def test_objects_of_one_program_call_each_other() -> None:
    mapping = elf.load(objects_of(FIRST, SECOND))
    assert function(mapping, "first", ctypes.c_int64, ctypes.c_int64)(7) == 71
    assert function(mapping, "address_of_second", ctypes.c_void_p)() == mapping.address("second")


def test_code_cannot_be_written() -> None:
    mapping = elf.load(objects_of(CONSTANTS))
    start = mapping.address("f")
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(x, 16) for x in line.split()[0].split("-"))
        if low <= start < high:
            assert line.split()[1] == "r-xp"
            return
    pytest.fail("the code is nowhere")


@pytest.mark.slow
def test_memory_is_given_back() -> None:
    code = objects_of("@large = global [1048576 x i64] zeroinitializer\ndefine ptr @f() {\n  ret ptr @large\n}")

    def pages() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[0])

    kept = [elf.load(code) for _ in range(10)]
    many = pages()
    kept.clear()
    assert many - pages() > 9 * (8 << 20) // mmap.PAGESIZE


def test_several_threads_load_at_once() -> None:
    code = objects_of(CONSTANTS, VARIABLES)

    def counts(_: int) -> list[int]:
        return [function(elf.load(code), "next", ctypes.c_int64)() for _ in range(50)]

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(counts, range(6))) == [[41] * 50] * 6


# -- what is not loaded ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        "@x = thread_local global i32 5\ndefine ptr @f() {\n  ret ptr @x\n}",
        "@f = ifunc void (), ptr @pick\ndefine ptr @pick() {\n  ret ptr null\n}",
        "@table = constant [1 x ptr] [ptr @f]\ndefine void @f() {\n  ret void\n}",
        "@far = external global i32\ndefine i32 @f() {\n  %x = load i32, ptr @far\n  ret i32 %x\n}",
        "declare void @no_such_function_anywhere()\ndefine void @f() {\n  call void @no_such_function_anywhere()\n  ret void\n}",
    ],
    ids=["thread local", "chosen at load time", "absolute address", "variable outside", "missing"],
)
def test_what_is_not_known_is_left_to_llvm(text: str) -> None:
    with pytest.raises(elf.NotLoadable):
        elf.load(objects_of(text))


def test_a_symbol_that_two_objects_define_is_an_error() -> None:
    one, other = objects_of("define i64 @f() {\n  ret i64 1\n}", "define i64 @f() {\n  ret i64 2\n}")
    with pytest.raises(elf.NotLoadable, match="defined twice"):
        elf.load([one, other])
    with pytest.raises(CodegenError, match=r"[Dd]uplicate"):
        loader.load_object(one, other)


def test_a_system_that_lets_nothing_become_code_is_an_error() -> None:
    """In a process of its own, which Linux can be told to treat so (prctl PR_SET_MDWE)."""
    program = f"""
import ctypes
from graphcell.errors import CodegenError
from graphcell.runtime import loader
code = bytes.fromhex({objects_of(CONSTANTS)[0].hex()!r})
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
    print("not to be had here")
else:
    try:
        loader.load_object(code)
    except CodegenError as error:
        print(error)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(elf.__file__).parents[2])}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=environment)
    assert run.returncode == 0, run.stderr
    if "not to be had" in run.stdout:
        pytest.skip("this kernel cannot be told to refuse")
    assert "does not let memory become code" in run.stdout


def test_llvm_loads_what_is_left_to_it() -> None:
    library = loader.load_object(*objects_of("@table = constant [1 x ptr] [ptr @f]\ndefine i64 @f() {\n  ret i64 5\n}"))
    assert isinstance(library, target.Library)
    assert function(library, "f", ctypes.c_int64)() == 5


def test_what_lacks_a_symbol_is_an_error() -> None:
    with pytest.raises(CodegenError, match="cannot load f"):
        loader.load_object(*objects_of("declare void @no_such_function_anywhere()\ndefine void @f() {\n  call void @no_such_function_anywhere()\n  ret void\n}")).address("f")
    with pytest.raises(CodegenError, match="cannot load g"):
        loader.load_object(*objects_of(CONSTANTS)).address("g")
    with pytest.raises(CodegenError):
        loader.load_object(b"no object at all")


@pytest.mark.parametrize("seed", range(8))
def test_a_corrupt_object_is_an_error_or_loads_and_never_ends_the_process(seed: int) -> None:
    rng = np.random.default_rng(seed)
    code = objects_of(CONSTANTS, OUTSIDE, VARIABLES)
    for _ in range(150):
        data = bytearray(code[int(rng.integers(len(code)))])
        for _ in range(int(rng.integers(1, 6))):
            data[int(rng.integers(len(data)))] = int(rng.integers(256))
        cut = len(data) if rng.random() < 0.8 else int(rng.integers(len(data)))
        with contextlib.suppress(elf.NotLoadable):
            elf.load([bytes(data[:cut])])


# -- the processor ---------------------------------------------------------------------------------------------------------
def test_the_kept_description_of_the_processor_is_that_of_llvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_CACHE_DIR", str(tmp_path))
    fresh = loader._host_processor.__wrapped__
    first = fresh()
    monkeypatch.setattr(target, "host_processor", lambda: pytest.fail("asked again"))
    assert fresh() == first == loader._host_processor()
    assert loader.host() == target.describe(first)


def test_another_processor_is_asked_for_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_CACHE_DIR", str(tmp_path))
    loader._host_processor.__wrapped__()
    described = loader._system_description()
    assert "flags" in described and "MHz" not in described
    monkeypatch.setattr(loader, "_system_description", lambda: described + " amx")
    asked = []
    monkeypatch.setattr(target, "host_processor", lambda: asked.append(1) or loader._host_processor())
    loader._host_processor.__wrapped__()
    assert asked


@pytest.mark.parametrize("text", [None, "", "processor : 0\nBogoMIPS : 50\n\n", "model : 1", "\n\n"])
def test_systems_that_do_not_tell_are_asked_by_llvm(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert loader._system_description(tmp_path / "cpuinfo") == ""


def test_the_description_is_that_of_the_first_processor(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor : 0\nflags : avx\nmodel : 1\ncpu MHz : 7\n\nprocessor : 1\nmodel : 2\nflags : sse")
    assert loader._system_description(tmp_path / "cpuinfo") == "flags : avx\nmodel : 1"


PROGRAM = """
import sys
import numpy as np
import graphcell as ms

@ms.jit
def f(x):
    return ms.ops.tanh(x) * 2

assert np.allclose(f(ms.Tensor(np.ones(5, np.float32))).asnumpy(), 2 * np.tanh(1.0))
print("llvmlite.binding" in sys.modules)
"""


def test_a_program_that_is_found_compiled_runs_without_llvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("GRAPHCELL_VERIFY", raising=False)  # else the passes run in any case
    monkeypatch.setenv("PYTHONPATH", str(Path(elf.__file__).parents[2]))
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    runs = [subprocess.run([sys.executable, file], capture_output=True, text=True, check=True, timeout=120).stdout.strip() for _ in range(2)]
    assert runs == ["True", "False"]
