"""The host's description, compilation, loading and unloading."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import subprocess
import sys
import threading
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from graphcell.codegen.llvm import processor, target
from graphcell.codegen.llvm.processor import Processor
from graphcell.codegen.llvm.target import Library, Target, compile_object, host, load_object
from graphcell.codegen.llvm.text import F32, I64, PTR, FunctionBuilder, LType, Module
from graphcell.errors import CodegenError

FILL = """
define void @fill(ptr %to, i64 %value) {
  store i64 %value, ptr %to
  ret void
}
@answer = constant i64 42
"""


def fill(address: int, value: int) -> int:
    out = (ctypes.c_int64 * 1)()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(address)(ctypes.addressof(out), value)
    return out[0]


def resident_kilobytes() -> int:
    exact = Path("/proc/self/smaps_rollup")  # the other counts pages in batches, a few for each processor
    if exact.exists():
        return int(next(line for line in exact.read_text().splitlines() if line.startswith("Rss:")).split()[1])
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


# -- the host ------------------------------------------------------------------------------------------------
def test_host_is_described_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(processor.VECTOR_BYTES_VARIABLE, raising=False)
    first = host()
    assert host() is first
    assert first.cpu == llvm.get_host_cpu_name() and first.triple == llvm.get_process_triple()
    features = llvm.get_host_cpu_features()
    assert first.vector_bytes == (64 if features.get("avx512f") else 32 if features.get("avx2") else 16)
    assert first.l1_bytes >= 8 << 10 and first.l2_bytes >= first.l1_bytes and first.l3_bytes >= 1 << 20


def test_shuffles_without_an_avx_form_are_off() -> None:
    """SSE4a has two, which wait hundreds of cycles for the upper halves of registers. LLVM would insert these two elements with one."""
    zen3 = processor.describe(Processor("x86_64-unknown-linux-gnu", "znver3", (("avx2", True), ("fma", True), ("sse4a", True))), "32")
    assert zen3.features.split(",") == ["+avx2", "+fma", "-sse4a"]
    module, numbers = Module(), LType("i8", 16)
    b = FunctionBuilder(module, "f", [("x", PTR), ("y", PTR)], internal=False)
    x, y = b.load(b.args["x"], numbers), b.load(b.args["y"], numbers)
    b.store(b.shuffle(x, y, [0, 1, 16, 17, 18, 19, 6, 7]), b.args["x"])
    b.finish()
    with_them = dataclasses.replace(zen3, features="+avx2,+fma,+sse4a")
    assert ["insertq" in target.assembly(str(module), t) for t in (zen3, with_them)] == [False, True]


def test_lanes() -> None:
    narrow = Target("", "", "", 32, 0, 0, 0)
    assert [narrow.lanes(kind) for kind in ("double", "i64", "float", "i32", "half", "i16", "i8", "i1")] == [
        4, 4, 8, 8, 16, 16, 32, 32,
    ]  # fmt: skip


@pytest.mark.parametrize("width", [16, 32, 64])
def test_width_override_limits_the_registers(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    native = host()
    monkeypatch.setenv(processor.VECTOR_BYTES_VARIABLE, str(width))
    limited = host()
    assert limited.vector_bytes == width and limited.lanes("float") == width // 4
    assert (limited.cpu, limited.triple) == (native.cpu, native.triple)
    if width > native.vector_bytes:
        pytest.skip("the rest needs a processor with wider vectors")
    module, count = Module(), limited.lanes("float")
    b = FunctionBuilder(module, "f", [("x", PTR)], internal=False)
    x = b.load(b.args["x"], LType("float", count))
    b.store(b.fma(x, x, x), b.args["x"])
    b.finish()
    code = target.assembly(str(module), limited)
    if "x86" in native.triple and "+fma," in limited.features:
        registers = ["xmm", "ymm", "zmm"]
        assert {name for name in registers if name in code} == {registers[width.bit_length() - 5]}
        assert "call" not in code
    data = np.arange(count, dtype=np.float32)
    library = load_object(compile_object(str(module), limited))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("f"))(data.ctypes.data)
    assert np.array_equal(data, np.arange(count) ** 2 + np.arange(count))


@pytest.mark.parametrize("text", ["8", "128", "wide", "-16", "16.0"])
def test_width_override_refuses_other_values(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(processor.VECTOR_BYTES_VARIABLE, text)
    with pytest.raises(ValueError, match="GRAPHCELL_VECTOR_BYTES"):
        host()


def test_cache_sizes_from_sysfs(tmp_path: Path) -> None:
    entries = {
        "index0": ("1", "Data", "48K"),
        "index1": ("1", "Instruction", "32K"),
        "index2": ("2", "Unified", "2M"),
        "index3": ("3", "Unified", "?"),
        "index4": ("3", "Unified", "1G"),
    }
    for name, values in entries.items():
        folder = tmp_path / name
        folder.mkdir()
        for file, text in zip(("level", "type", "size"), values, strict=True):
            (folder / file).write_text(text + "\n")
    (tmp_path / "index5").mkdir()  # without files
    assert [processor._sysfs_cache(level, tmp_path) for level in (1, 2, 3, 4)] == [48 << 10, 2 << 20, 1 << 30, 0]
    assert processor._sysfs_cache(1, tmp_path / "nowhere") == 0


# -- compilation ---------------------------------------------------------------------------------------------
def test_parse_error_shows_the_lines() -> None:
    text = "define void @f() {\n  %a = add i32 1, 2\n  %b = fadd float %a, 1.0\n  ret void\n}\n"
    with pytest.raises(CodegenError) as caught:
        compile_object(text, host())
    assert str(caught.value).splitlines() == [
        "LLVM cannot parse the generated module: '%a' defined with type 'i32' but expected 'float'",
        "       1 | define void @f() {",
        "       2 |   %a = add i32 1, 2",
        "       3 |   %b = fadd float %a, 1.0",
        "         |                   ^",
        "       4 |   ret void",
        "       5 | }",
    ]
    assert isinstance(caught.value, RuntimeError)


def test_parse_error_at_the_end_of_the_text() -> None:
    with pytest.raises(CodegenError, match="cannot parse"):
        compile_object("define void @f() {\n  ret void\n", host())


def test_verification_error() -> None:
    with pytest.raises(CodegenError, match=r"refuses the generated module(.|\n)*%a = add i32 %a, 2"):
        compile_object("define void @f() {\n  %a = add i32 %a, 2\n  ret void\n}\n", host())


def test_object_code_is_the_same_each_time() -> None:
    assert compile_object(FILL, host()) == compile_object(FILL, host())


def test_passes_promote_memory_and_fold() -> None:
    module = Module()
    b = FunctionBuilder(module, "f", [("x", F32)], F32, internal=False)
    slot = b.alloca(F32)
    b.store(b.args["x"], slot)
    x = b.load(slot, F32)
    b.finish(b.mul(x, b.const(1.0, x)))
    text = target.optimized_text(str(module), host())
    assert "alloca" not in text and "fmul" not in text and "ret float %x" in text
    assert target.assembly(str(module), host()).count("ret") >= 1


def test_a_function_may_be_given_back_as_text() -> None:
    """What people look at compiles to the same results."""
    text = target.optimized_text(FILL, host())
    assert fill(load_object(compile_object(text, host())).address("fill"), 7) == 7


# -- loading -------------------------------------------------------------------------------------------------
def test_threads_that_ask_for_an_address_at_one_time() -> None:
    """All get the same one, whose code stays: what a second look-up would give back frees it."""
    code = compile_object(FILL, host())
    for _ in range(20):
        library, barrier, found = load_object(code), threading.Barrier(4), list[int]()

        def ask(library: Library = library, barrier: threading.Barrier = barrier, found: list[int] = found) -> None:
            barrier.wait()
            found.append(library.address("fill"))

        asking = [threading.Thread(target=ask) for _ in range(4)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        assert len(found) == 4 and len(set(found)) == 1
        assert fill(found[0], 9) == 9


def test_addresses_of_functions_and_globals() -> None:
    library = load_object(compile_object(FILL, host()))
    assert fill(library.address("fill"), -5) == -5
    assert library.address("fill") == library.address("fill")
    assert ctypes.c_int64.from_address(library.address("answer")).value == 42


def test_missing_names_are_errors() -> None:
    library = load_object(compile_object(FILL, host()))
    with pytest.raises(CodegenError, match="nothing_of_this_name"):
        library.address("nothing_of_this_name")
    assert fill(library.address("fill"), 3) == 3


def test_internal_functions_are_not_exported() -> None:
    library = load_object(compile_object("define internal void @g() {\n ret void\n}\n" + FILL, host()))
    with pytest.raises(CodegenError):
        library.address("g")


def test_a_symbol_that_the_process_lacks_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    name = "no_such_function_anywhere"
    text = f"declare i32 @{name}()\ndefine i32 @f() {{\n %r = call i32 @{name}()\n ret i32 %r\n}}\n"
    library = load_object(compile_object(text, host()))
    with pytest.raises(CodegenError, match="cannot load f"):
        library.address("f")
    assert name in capfd.readouterr().err


def test_symbols_of_the_process_resolve() -> None:
    text = """
declare ptr @malloc(i64)
declare void @free(ptr)
declare ptr @memcpy(ptr, ptr, i64)
declare double @fmod(double, double)
declare i64 @pthread_self()
declare i32 @pthread_mutex_init(ptr, ptr)
define double @f(double %x, double %y) {
  %p = call ptr @malloc(i64 8)
  %q = call ptr @malloc(i64 8)
  store double %x, ptr %q
  %ignored = call ptr @memcpy(ptr %p, ptr %q, i64 8)
  %copy = load double, ptr %p
  call void @free(ptr %p)
  call void @free(ptr %q)
  %me = call i64 @pthread_self()
  %r = call double @fmod(double %copy, double %y)
  ret double %r
}
define i32 @g(ptr %m) {
  %r = call i32 @pthread_mutex_init(ptr %m, ptr null)
  ret i32 %r
}
"""
    library = load_object(compile_object(text, host()))
    remainder = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)(library.address("f"))
    assert remainder(7.5, 2.0) == 1.5
    mutex = ctypes.create_string_buffer(256)
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(library.address("g"))(ctypes.addressof(mutex)) == 0


def test_garbage_is_refused() -> None:
    with pytest.raises(CodegenError, match="cannot load object code"):
        load_object(b"neither ELF nor Mach-O")


def test_two_libraries_may_define_the_same_names() -> None:
    first = load_object(compile_object(FILL, host()))
    second = load_object(compile_object(FILL.replace("42", "43"), host()))
    assert [ctypes.c_int64.from_address(x.address("answer")).value for x in (first, second)] == [42, 43]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's memory statistics")
def test_a_library_gives_its_memory_back() -> None:
    table = f"@table = constant [{1 << 17} x i64] [{', '.join(['i64 1'] * (1 << 17))}]"
    code = compile_object(f"{table}\n{FILL}", host())
    assert len(code) > 1 << 20
    load_object(code).address("fill")
    gc.collect()
    before = resident_kilobytes()
    for _ in range(60):
        library = load_object(code)
        assert fill(library.address("fill"), 1) == 1
    gc.collect()
    assert resident_kilobytes() - before < 20 << 10  # of 60 MiB


def test_a_library_outlives_the_others() -> None:
    code = compile_object(FILL, host())
    kept = [load_object(code) for _ in range(8)]
    addresses = [library.address("fill") for library in kept]
    del kept[::2], addresses[::2]
    gc.collect()
    others = [load_object(code) for _ in range(8)]
    for library in others:
        library.address("fill")
    assert [fill(address, k) for k, address in enumerate(addresses)] == [0, 1, 2, 3]


def test_threads_compile_load_call_and_unload() -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for k in range(8):
                text = FILL.replace("42", str(number * 100 + k))
                library = load_object(compile_object(text, host()))
                assert fill(library.address("fill"), k) == k
                assert ctypes.c_int64.from_address(library.address("answer")).value == number * 100 + k
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_process_ends_cleanly_with_libraries_loaded() -> None:
    script = (
        "from graphcell.codegen.llvm.target import *\n"
        "import sys\n"
        f"code = compile_object({FILL!r}, host())\n"
        "sys.modules['kept'] = library = load_object(code)\n"
        "cycle = [load_object(code)]; cycle.append(cycle)\n"
        "print(library.address('fill') > 0, cycle[0].address('fill') > 0)\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True True\n", "")


def test_pointer_width_is_that_of_the_emitter() -> None:
    """The emitter's addresses are i64."""
    assert ctypes.sizeof(ctypes.c_void_p) * 8 == I64.bits
