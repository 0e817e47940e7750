"""Programs on disk: a second compilation loads what the first kept, gives the same bits, and nothing else is ever loaded for it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import graphcell as ms
from graphcell import dtype as dt
from graphcell import ops, version
from graphcell.codegen import program as programs
from graphcell.codegen.program import HostCall, Program
from graphcell.context import config
from graphcell.errors import Span
from graphcell.ir.fingerprint import fingerprint
from graphcell.ir.graph import Builder, Graph, structural_key
from graphcell.ir.op import Array, Op
from graphcell.ir.text import parse, print_graph
from graphcell.ir.types import TensorType
from graphcell.ops.arithmetic import Add, Mul
from graphcell.ops.control import For
from graphcell.ops.creation import Constant, Full, Literal
from graphcell.ops.dispatch import apply1
from graphcell.ops.host import CheckIndex, Print
from graphcell.runtime import storable
from graphcell.runtime.cache import DIRECTORY_VARIABLE, SWITCH_VARIABLE, ObjectCache
from graphcell.runtime.executable import Executable, compile_graph
from graphcell.runtime.program_cache import load_program, program_key, source_state
from graphcell.tensor import Tensor
from tests.helpers import trace
from tests.passes.cases import as_gradient

ROOT = Path(__file__).resolve().parents[2]
T = TensorType(dt.float32, (33,))
X = np.linspace(-2, 2, 33, dtype=np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test alone, with graphs not verified (a graph that is verified is compiled), sources that stand still."""
    config.verify = False
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv(SWITCH_VARIABLE, "1")
    monkeypatch.setattr(version, "IMPORTED", time.time_ns() + 10**12)
    return tmp_path / "cache"


def scaled(factor: float = 2.0, table: Array | None = None) -> Graph:
    """x * factor + a constant table."""
    b = Builder("scaled")
    x = b.input(T, "x")
    (c,) = b.append(Full(factor, (33,), dt.float32), ())
    (y,) = b.append(Mul(), (x, c))
    (k,) = b.append(Constant(Literal(np.arange(33, dtype=np.float32) if table is None else table), dt.float32), ())
    return b.finish(b.append(Add(), (y, k)))


def run(executable: Executable, *arrays: Array) -> Array:
    return executable([Tensor(a) for a in arrays])[0].asnumpy()


def is_loaded(executable: Executable) -> bool:
    """True if no pass ran and nothing was lowered."""
    return executable.compilation._listing is None


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_second_compilation_is_loaded_and_equal() -> None:
    first, second = compile_graph(scaled()), compile_graph(scaled())
    assert not is_loaded(first) and is_loaded(second)
    assert second.compilation.from_cache and second.arena_bytes == first.arena_bytes
    expected = X * np.float32(2) + np.arange(33, dtype=np.float32)
    for executable in (first, second):
        np.testing.assert_array_equal(run(executable, X), expected)


def test_looking_inside_a_loaded_program_lowers_it() -> None:
    first, second = compile_graph(scaled()), compile_graph(scaled())
    assert second.kernels() == first.kernels() and second.llvm() == first.llvm()
    assert structural_key(second.compilation.optimized) == structural_key(first.compilation.optimized)
    assert [p.name for p in second.compilation.passes] == [p.name for p in first.compilation.passes]


@pytest.mark.parametrize(
    "other",
    [
        scaled(np.nextafter(2.0, 3.0)),
        scaled(-2.0),
        scaled(2.0, np.arange(33, dtype=np.float32) + np.float32(1e-7)),
        scaled(2.0, np.concatenate([[-0.0], np.arange(1, 33)]).astype(np.float32)),
    ],
    ids=["constant by a bit", "sign", "array", "negative zero"],
)
def test_another_constant_is_another_program(other: Graph) -> None:
    compile_graph(scaled())
    executable = compile_graph(other)
    assert not is_loaded(executable)
    assert fingerprint(other) != fingerprint(scaled())


def two_inputs(shape: tuple[int, ...], dtype: dt.DType = dt.float32, swap: bool = False, both: bool = False) -> Graph:
    b = Builder("f")
    t = TensorType(dtype, shape)
    x, y = b.input(t), b.input(t)
    (z,) = b.append(Add(), (x, y))
    (w,) = b.append(Mul(), (z, x if swap else y))
    return b.finish([z, w] if both else [w])


def test_fingerprints_differ_where_graphs_do() -> None:
    graphs = [
        two_inputs((3, 4)), two_inputs((4, 3)), two_inputs((12,)), two_inputs((3, 4), dt.float64), two_inputs((3, 4), swap=True),
        two_inputs((3, 4), both=True), scaled(), scaled(0.0), scaled(-0.0), scaled(float("nan")), scaled(1),
    ]  # fmt: skip
    assert len({fingerprint(g) for g in graphs}) == len(graphs)


def test_fingerprints_see_what_belongs_to_a_gradient() -> None:
    """Its sums may be added up in another order."""
    assert fingerprint(scaled()) != fingerprint(as_gradient(scaled()))
    bodies = [trace(lambda i, x: ops.sub(x, 1.0), TensorType(dt.int64, ()), T) for _ in range(2)]
    one, other = (trace(lambda x, op=op: apply1(op, x), T) for op in (For(bodies[0], 3, 1, 0), For(as_gradient(bodies[1]), 3, 1, 0)))
    assert fingerprint(one) != fingerprint(other)


def test_fingerprints_do_not_see_names_and_places() -> None:
    graph = two_inputs((3, 4))
    again = parse(print_graph(graph).replace("@f", "@g").replace("%arg", "%other"))
    assert fingerprint(again) == fingerprint(graph)


def test_updates_are_part_of_the_key() -> None:
    graph = two_inputs((33,), both=True)
    compile_graph(graph, ((1, 0),))
    plain = compile_graph(graph)
    assert not is_loaded(plain)
    x = Tensor(X)
    z, w = plain([x, x])
    np.testing.assert_array_equal(x.asnumpy(), X)
    np.testing.assert_array_equal(w.asnumpy(), (X + X) * X)
    state = Tensor(X)
    updating = compile_graph(graph, ((1, 0),))
    assert is_loaded(updating)
    (z,) = updating([state, Tensor(X)])
    np.testing.assert_array_equal(state.asnumpy(), (X + X) * X)
    np.testing.assert_array_equal(z.asnumpy(), X + X)


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "foreign"])
def test_damaged_entries_are_replaced(folder: Path, damage: str) -> None:
    compile_graph(scaled())
    assert len(files(folder)) == 2
    for path in files(folder):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes({"truncate": bytes(data[: len(data) // 2]), "flip": bytes(data), "empty": b"", "foreign": b"\x7fELF" * 40}[damage])
    executable = compile_graph(scaled())
    assert not is_loaded(executable)
    np.testing.assert_array_equal(run(executable, X), X * np.float32(2) + np.arange(33, dtype=np.float32))
    assert is_loaded(compile_graph(scaled()))


def test_an_entry_under_another_key_is_not_taken(folder: Path) -> None:
    """Two programs whose files are exchanged: the key is part of the checksum."""
    a, b = scaled(3.0), scaled(4.0)
    compile_graph(a)
    (old,) = [p for p in files(folder) if p.stat().st_size == min(q.stat().st_size for q in files(folder))]
    before = set(files(folder))
    compile_graph(b)
    (new,) = sorted(set(files(folder)) - before, key=lambda p: p.stat().st_size)[:1]
    os.replace(old, new)
    executable = compile_graph(b)
    assert not is_loaded(executable)
    np.testing.assert_array_equal(run(executable, X), X * np.float32(4) + np.arange(33, dtype=np.float32))


def test_missing_code_is_compiled_again(folder: Path) -> None:
    compile_graph(scaled())
    max(files(folder), key=lambda p: p.stat().st_size).unlink()
    executable = compile_graph(scaled())
    np.testing.assert_array_equal(run(executable, X), X * np.float32(2) + np.arange(33, dtype=np.float32))
    assert not is_loaded(executable)


def change_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "__version__", "0.0.other")


def change_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "__version__", "0.other")


def change_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_VECTOR_BYTES", "16")


def change_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCELL_SOMETHING_NEW", "1")


@pytest.mark.parametrize("change", [change_version, change_numpy, change_target, change_variable])
def test_another_version_or_processor_is_another_key(monkeypatch: pytest.MonkeyPatch, change: Callable[[pytest.MonkeyPatch], None]) -> None:
    compile_graph(scaled())
    change(monkeypatch)
    executable = compile_graph(scaled())
    assert not is_loaded(executable)
    np.testing.assert_array_equal(run(executable, X), X * np.float32(2) + np.arange(33, dtype=np.float32))


def test_threads_and_the_folder_are_not_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphcell.codegen.llvm.target import host

    key = program_key(scaled(), (), host())
    monkeypatch.setenv("GRAPHCELL_NUM_THREADS", "1")
    monkeypatch.setenv(DIRECTORY_VARIABLE, "/elsewhere")
    assert key is not None and program_key(scaled(), (), host()) == key


def test_sources(tmp_path: Path) -> None:
    now = time.time_ns() + 10**9
    (tmp_path / "inner").mkdir()
    one, two = tmp_path / "one.py", tmp_path / "inner" / "two.py"
    one.write_text("a = 1\n")
    two.write_text("b = 1\n")
    first = source_state(tmp_path, now)
    assert first is not None and source_state(tmp_path, now) == first
    (tmp_path / "inner" / "notes.txt").write_text("not code")
    assert source_state(tmp_path, now) == first
    os.utime(two, ns=(1, 1))
    assert source_state(tmp_path, now) not in (first, None)
    two.write_text("b = 10\n")
    assert source_state(tmp_path, now) not in (first, None)
    assert source_state(tmp_path, one.stat().st_mtime_ns - 10**9) is None, "changed after the import"
    assert source_state(tmp_path / "nothing", now) is None


def test_nothing_is_loaded_where_passes_shall_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_graph(scaled())
    config.verify = True
    assert not is_loaded(compile_graph(scaled()))
    config.verify = False
    config.save_graphs, config.save_graphs_path = 1, str(tmp_path / "dumps")
    assert not is_loaded(compile_graph(scaled())) and list((tmp_path / "dumps").iterdir())
    config.save_graphs = 0
    monkeypatch.setenv("GRAPHCELL_PROFILE", "1")
    profiled = compile_graph(scaled())
    run(profiled, X)
    assert profiled.profile()
    monkeypatch.delenv("GRAPHCELL_PROFILE")
    assert is_loaded(compile_graph(scaled()))


@dataclass(frozen=True)
class Doubling(Op):
    """An op whose code no version of graphcell's tells."""

    name = "doubling_for_test_program_cache"

    def infer(self, x: TensorType) -> TensorType:  # type: ignore[override]
        return x

    def eval(self, x: Array) -> Array:  # type: ignore[override]
        return np.asarray(2 * x)


def test_ops_of_the_user_are_compiled_each_time() -> None:
    b = Builder("f")
    graph = b.finish(b.append(Doubling(), (b.input(T),)))
    assert fingerprint(graph) is None
    for _ in range(2):
        executable = compile_graph(graph)
        assert not is_loaded(executable)
        np.testing.assert_array_equal(run(executable, X), 2 * X)


def test_host_calls_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    def build() -> Graph:
        b = Builder("f")
        x = b.input(T)
        b.append(Print(("first is ", (0, "s"), '\n"end" — мир\n')), (b.append(Full(7, (), dt.int32), ())[0],))
        return b.finish([x])

    outputs = []
    for _ in range(2):
        executable = compile_graph(build())
        run(executable, X)
        outputs.append(capsys.readouterr().out)
    assert is_loaded(executable) and outputs[0] == outputs[1] == 'first is 7\n"end" — мир\n'


def test_checks_raise_from_a_loaded_program() -> None:
    b = Builder("f")
    i = b.input(TensorType(dt.int32, (3,)))
    b.append(CheckIndex(5, "f"), (i,))
    graph = b.finish([i])
    for _ in range(2):
        executable = compile_graph(graph)
        with pytest.raises(IndexError, match="dimension of 5"):
            executable([Tensor(np.array([0, 9, 1], np.int32))])
    assert is_loaded(executable)


def test_errors_name_the_line_of_the_program_that_runs() -> None:
    from graphcell.codegen.llvm.target import host

    def checked(file: str) -> Graph:
        b = Builder("checked")
        index = b.input(TensorType(dt.int32, (2,)), "index")
        b.append(CheckIndex(3, "labels"), (index,), Span(file, 7, 4, 7, 12))
        return b.finish([index])

    for file in ("one.py", "two.py"):
        with pytest.raises(IndexError, match=f"{file}:7"):
            run(compile_graph(checked(file)), np.array([0, 5], np.int32))
    assert program_key(checked("one.py"), (), host()) == program_key(checked("one.py"), (), host()) is not None


def test_storable_values_come_back() -> None:
    classes = storable.classes_of(programs)
    call = HostCall(CheckIndex(5, "a\nb"), (TensorType(dt.bfloat16, (2, 0)),), (), "file.py:1")
    arrays = [np.arange(6, dtype=np.int8).reshape(2, 3), np.array(1.5, dt.bfloat16.np_type), np.zeros((0, 2)), np.array([np.nan, -0.0, np.inf], np.float16)]
    value = Program("text", 1 << 40, arrays, [call])
    back = storable.load(*storable.dump(value, classes), classes)
    assert (back.text, back.arena_bytes, back.host_calls) == (value.text, value.arena_bytes, value.host_calls)
    for a, b in zip(back.constants, arrays, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    plain = {"a": (1, 2.5, None, True), 3: [float("inf"), "x", dt.float16]}
    assert storable.load(*storable.dump(plain, {}), {}) == plain


def test_what_is_not_stored() -> None:
    for value in (object(), print, {1, 2}, HostCall(Doubling(), (), ())):
        with pytest.raises(storable.NotStorable):
            storable.dump(value, storable.classes_of(programs))


@pytest.mark.parametrize("tree", [["object", "Path", {}], ["op", "system", {}], ["call", "print"], ["object", "Program", {"x": 1}], ["array", "float32", [9], 0]])
def test_trees_of_another_kind_are_a_miss(folder: Path, tree: object) -> None:
    """Even with a right checksum, only known classes are made."""
    cache = ObjectCache(folder)
    cache.put("a" * 64, {"program": tree, "object": "b" * 64}, b"")
    assert load_program(cache, "a" * 64) is None


@pytest.mark.skipif(os.name != "posix", reason="owners and modes")
def test_folder_that_cannot_be_written(folder: Path) -> None:
    compile_graph(scaled())
    folder.chmod(0o500)
    with contextlib.suppress(PermissionError):
        (folder / "another").write_bytes(b"")
        pytest.skip("root writes everywhere")
    try:
        assert is_loaded(compile_graph(scaled()))
        with pytest.warns(RuntimeWarning, match="not kept"):
            run(compile_graph(scaled(5.0)), X)
    finally:
        folder.chmod(0o700)


def test_writing_that_fails_is_only_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_graph(scaled())

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("graphcell.runtime.cache.tempfile.mkstemp", refuse)
    assert is_loaded(compile_graph(scaled()))
    with pytest.warns(RuntimeWarning, match="Read-only"):
        executable = compile_graph(scaled(5.0))
    np.testing.assert_array_equal(run(executable, X), X * np.float32(5) + np.arange(33, dtype=np.float32))


# -- functions, seen from outside ------------------------------------------------------------------------------------
STEP = """
import sys
import numpy as np
import graphcell as ms
from graphcell import nn, ops
from graphcell.runtime import executable
kept = []
inner = executable.compile_program
executable.compile_program = lambda *a, **k: kept.append(inner(*a, **k)) or kept[-1]
width, factor = int(sys.argv[1]), float(sys.argv[2])
ms.set_seed(3)
net = nn.SequentialCell(nn.Dense(12, width, activation="relu"), nn.Dense(width, 4))
optimizer = nn.Adam(net.trainable_params(), 0.05)
loss_fn = nn.CrossEntropyLoss()
gradient = ms.value_and_grad(lambda x, y: loss_fn(net(x), y) * factor, None, optimizer.parameters)
@ms.jit
def step(x, y):
    loss, gradients = gradient(x, y)
    return ops.depend(loss, optimizer(gradients))
x = ms.Tensor(np.sin(np.arange(96, dtype=np.float32)).reshape(8, 12))
y = ms.Tensor(np.arange(8, dtype=np.int32) % 4)
losses = [float(step(x, y).asnumpy()).hex() for _ in range(4)]
print(kept[0][0]._listing is None, *losses, *[p.asnumpy().tobytes().hex()[:64] for p in net.trainable_params()])
"""


def start(script: Path, width: int, factor: float) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRAPHCELL_VERIFY": ""}
    return subprocess.Popen([sys.executable, str(script), str(width), str(factor)], stdout=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> tuple[bool, list[str]]:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    loaded, *rest = output.split()
    return loaded == "True", rest


@pytest.mark.slow
def test_processes(tmp_path: Path) -> None:
    """A training step in two processes at once, then in others: the same bits; another width or constant compiles anew."""
    script = tmp_path / "step.py"
    script.write_text(STEP)
    both = [start(script, 16, 1.0) for _ in range(2)]
    (_, first), (_, second) = (finish(p) for p in both)
    loaded, third = finish(start(script, 16, 1.0))
    assert loaded and first == second == third
    wider, factored = start(script, 17, 1.0), start(script, 16, 0.5)
    for process in (wider, factored):
        loaded, other = finish(process)
        assert not loaded and other[0] != first[0]


@pytest.mark.slow
def test_closures_that_change() -> None:
    """Numbers in closures are constants of the graph: each value has a program of its own, found again by the next function."""

    def make(factor: float) -> object:
        @ms.jit
        def f(x: Tensor) -> Tensor:
            return ops.exp(x * factor) - factor

        return f

    config.mode = ms.GRAPH_MODE
    for factor in (0.5, 0.25, 0.5):
        f = make(factor)
        y = f(Tensor(X)).asnumpy()  # type: ignore[operator]
        np.testing.assert_allclose(y, np.exp(X.astype(np.float64) * factor) - factor, rtol=1e-6, atol=1e-6)
    assert is_loaded(f._last.executable)  # type: ignore[attr-defined]
    assert "loading" in f.explain() and "after the passes" in f.explain()  # type: ignore[attr-defined]
