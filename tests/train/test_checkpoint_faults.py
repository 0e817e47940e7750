"""Checkpoints in trouble: damaged and hostile files, killed processes, full disks, threads."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import graphcell as ms
from graphcell import Tensor, nn
from graphcell.errors import CheckpointError
from graphcell.train import checkpoint_format, safetensors_format
from graphcell.wire import bytes_field as field
from tests.train.checkpoint_files import APPENDED, DENSE, EVERY, SAFE, dense, listed

# -- damage ----------------------------------------------------------------------------------------------------------------
BOTH: Any = [(checkpoint_format.decode, APPENDED), (checkpoint_format.decode, EVERY), (safetensors_format.decode, SAFE)]


@pytest.mark.parametrize(("decode", "text"), BOTH)
def test_every_truncation_is_noticed(decode: Any, text: str) -> None:
    data = bytes.fromhex(text)
    whole = len(decode(data))
    for size in range(len(data)):
        try:
            assert len(decode(data[:size])) < whole  # cut between two entries
        except CheckpointError:
            continue


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_files_are_errors_or_other_values(data: st.DataObject) -> None:
    decode, text = data.draw(st.sampled_from(BOTH))
    content = bytearray(bytes.fromhex(text))
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["change", "cut", "insert", "repeat"]))
        at = data.draw(st.integers(0, len(content) - 1))
        if kind == "change":
            content[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del content[at : at + data.draw(st.integers(1, 9))]
        elif kind == "insert":
            content[at:at] = data.draw(st.binary(min_size=1, max_size=9))
        else:
            content[at:at] = content[at : at + data.draw(st.integers(1, 30))]
        if not content:
            return
    check_decoding(decode, bytes(content))


def check_decoding(decode: Any, data: bytes) -> None:
    """Gives entries whose data are all there, or a CheckpointError; nothing else."""
    try:
        found = decode(data)
    except CheckpointError:
        return
    for name, value in found:
        assert isinstance(name, str)
        assert isinstance(value, str) or (value.nbytes <= len(data) and value.tobytes() == value.copy().tobytes())


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([checkpoint_format.decode, safetensors_format.decode]))
@example(bytes.fromhex("0a140a017812 0f 0800 08ffffffffffffffff7f 1204496e7438 1a00".replace(" ", "")), checkpoint_format.decode)
@example(b"\x0a" + b"\xff" * 9 + b"\x01", checkpoint_format.decode)
@example((2**63).to_bytes(8, "little") + b"{}", safetensors_format.decode)
def test_any_bytes_are_errors_or_values(data: bytes, decode: Any) -> None:
    check_decoding(decode, data)


def entry(dims: list[bytes], kind: bytes, content: bytes) -> bytes:
    tensor = b"".join(b"\x08" + d for d in dims) + field(2, kind) + field(3, content)
    return field(1, field(1, b"x") + field(2, tensor))


HUGE = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"


@pytest.mark.parametrize(
    "data",
    [
        entry([HUGE, HUGE], b"Float32", b""),
        entry([b"\x00", HUGE], b"Float32", b""),
        entry([b"\x00"] + [b"\x01"] * 90, b"Int8", b""),
        entry([b"\x01"] * 70, b"Int8", b"\x01"),
        entry([b"\xff" * 9 + b"\x01"], b"Float32", b"\0\0\0\0"),
        entry([b"\x01"], b"Complex64", b"\0" * 8),
        entry([b"\x02"], b"Float32", b"\0" * 4),
        entry([b"\x01"], b"Int8", b"\x01") * 2,  # two parts of an array that one would fill
        entry([b"\x02"], b"Int8", b"\x01") + entry([b"\x02"], b"UInt8", b"\x01"),
        entry([b"\x01"], b"Int8", b"\x01") + field(1, field(1, b"y") + field(2, field(2, b"Int8") + field(3, b"\x01"))) + entry([b"\x01"], b"Int8", b"\x01"),
        entry([], b"str", b"\xff\xff\xff\xff"),
        entry([], b"\xff", b""),
        field(1, field(1, b"x")),
        field(1, field(2, b"")),
        field(1, b"\x08\x01"),
        b"\x0b",
        entry([b"\x01"], b"Int8", b"\x01") + field(2, b"y"),
        entry([b"\x01"], b"Int8", b"\x01") + b"\x08\x01",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    ],
)
def test_hostile_files_are_errors(data: bytes) -> None:
    with pytest.raises(CheckpointError):
        checkpoint_format.decode(data)


@pytest.mark.parametrize(
    "header",
    [
        b"[]", b"3", b"{", b"[" * 5000, b'{"a":' + b"9" * 5000 + b"}", b"\xff", b'{"a":3}', b'{"a":{"dtype":"F32"}}', b'{"a":{"dtype":"X","shape":[],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', b'{"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}', b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,400]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}', b'{"a":{"dtype":"F32","shape":[true],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',  # overlapping
        b'{"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}}',
        b'{"a":{"dtype":"F32","shape":[9223372036854775807,0],"data_offsets":[0,0]}}', b'{"a":{"dtype":["F32"],"shape":[],"data_offsets":[0,4]}}',
    ],
)  # fmt: skip
def test_hostile_safetensors_are_errors(header: bytes) -> None:
    with pytest.raises(CheckpointError):
        safetensors_format.decode(len(header).to_bytes(8, "little") + header + b"\0" * 8)


def test_bools_are_bools_whatever_the_byte() -> None:
    (_, value), *_ = checkpoint_format.decode(entry([b"\x03"], b"Bool", b"\x00\x02\xff"))
    assert value.tolist() == [False, True, True] and value.view(np.uint8).tolist() == [0, 1, 1]  # type: ignore[union-attr]


@pytest.mark.parametrize("content", [b"", b"garbage!!", bytes.fromhex(DENSE)[:-3]])
def test_broken_files_say_so(folder: Path, content: bytes) -> None:
    Path("a.ckpt").write_bytes(content)
    with pytest.raises(ValueError, match=r"Failed to read|empty after filter"):
        ms.load_checkpoint("a.ckpt")


def test_files_that_cannot_be_read_say_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    ms.save_checkpoint(dense(), "a.ckpt")
    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(ValueError, match=r"May not have permission to read it.*Permission denied"):
        ms.load_checkpoint("a.ckpt")


# -- crashes ---------------------------------------------------------------------------------------------------------------
SAVER = """
import sys, numpy as np, graphcell as ms
values = [ms.Tensor(np.full((500, 500), float(k), np.float32)) for k in range(2)]
ms.save_checkpoint([{"name": "x", "data": values[0]}], sys.argv[1])
print("ready", flush=True)
k = 0
while True:
    k += 1
    ms.save_checkpoint([{"name": "x", "data": values[k % 2]}, {"name": "y", "data": values[k % 2]}], sys.argv[1])
"""


@pytest.mark.parametrize("delay", [0.003, 0.017, 0.041])
def test_a_killed_process_leaves_a_whole_file(tmp_path: Path, delay: float) -> None:
    target = tmp_path / "x.ckpt"
    process = subprocess.Popen([sys.executable, "-c", SAVER, str(target)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    found = ms.load_checkpoint(str(target))
    values = {float(v) for p in found.values() for v in np.unique(p.asnumpy())}
    assert len(values) == 1 and all(p.shape == (500, 500) for p in found.values())


def test_what_a_killed_process_left_is_removed(folder: Path) -> None:
    old, locked, young, other = (Path(f".x.ckpt.{n}.tmp") for n in "abcd")
    other = Path(".y.ckpt.d.tmp")
    for file in (old, locked, young, other):
        file.write_bytes(b"half a file")
    for file in (old, locked, other):
        os.utime(file, (0, 0))
    with locked.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ms.save_checkpoint(dense(), "x.ckpt")
    assert listed(folder) == sorted(["x.ckpt", locked.name, young.name, other.name])


def test_file_systems_without_locks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    left = Path(".x.ckpt.a.tmp")
    left.write_bytes(b"half a file")
    os.utime(left, (0, 0))
    monkeypatch.setattr(fcntl, "flock", fail)
    ms.save_checkpoint(dense(), "x.ckpt")
    assert listed(folder) == [left.name, "x.ckpt"]


@contextmanager
def small_files() -> Iterator[None]:
    """No file can grow over 2000 bytes, as if the disk were full. It binds the whole process, a redirected report of the tests too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("format", ["ckpt", "safetensors"])
def test_a_full_disk_leaves_the_old_file(folder: Path, format: str) -> None:
    ms.save_checkpoint(dense(), "x", format=format)
    before = Path(f"x.{format}").read_bytes()
    layer = nn.Dense(100, 100)
    with small_files(), pytest.raises(OSError) as caught:
        ms.save_checkpoint(layer, "x", format=format)
    assert caught.value.errno == errno.EFBIG and caught.value.filename == str(folder / f"x.{format}")
    assert Path(f"x.{format}").read_bytes() == before and listed(folder) == [f"x.{format}"]


def test_a_missing_folder_is_an_error_that_names_the_file(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=re.escape(f"'{folder}/none/x.ckpt'")):
        ms.save_checkpoint(dense(), "none/x")


@pytest.mark.parametrize("step", ["fsync", "chmod", "replace"])
def test_a_failure_at_any_step_leaves_the_old_file(folder: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    ms.save_checkpoint(dense(), "x.ckpt")

    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space"):
        ms.save_checkpoint(nn.Dense(3, 3), "x.ckpt")
    assert Path("x.ckpt").read_bytes().hex() == DENSE and listed(folder) == ["x.ckpt"]


# -- in the background -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", [True, "thread", "process"])
def test_saving_in_the_background(folder: Path, how: Any) -> None:
    net = dense()
    for k in range(3):
        ms.save_checkpoint(net, f"{k}.ckpt", async_save=how)
        net.weight.set_data(Tensor(np.full((1, 2), k, np.float32)))  # the values are those of the call
    assert ms.load_checkpoint("2.ckpt")["weight"].asnumpy().tolist() == [[1.0, 1.0]]
    assert not ms.async_ckpt_thread_status()
    assert Path("0.ckpt").read_bytes().hex() == DENSE and listed(folder) == ["0.ckpt", "1.ckpt", "2.ckpt"]


def test_threads_that_save_and_load_at_the_same_time(folder: Path) -> None:
    errors: list[BaseException] = []

    def work(name: str, value: float) -> None:
        try:
            for k in range(12):
                ms.save_checkpoint([{"name": "x", "data": Tensor(np.full((50, 50), value, np.float32))}], name, async_save=k % 2 == 0)
                found = ms.load_checkpoint(name)["x"].asnumpy()
                assert (found == found[0, 0]).all() and found[0, 0] in (1.0, 2.0, 3.0)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=arguments) for arguments in (("a.ckpt", 1.0), ("a.ckpt", 2.0), ("b.ckpt", 3.0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and listed(folder) == ["a.ckpt", "b.ckpt"]


def test_the_end_of_the_process_waits_for_the_background(folder: Path) -> None:
    program = "import graphcell as ms, numpy as np; ms.save_checkpoint([{'name': 'x', 'data': ms.Tensor(np.ones((2000, 2000)))}], 'x', async_save=True)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)
    assert ms.load_checkpoint("x.ckpt")["x"].shape == (2000, 2000)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_in_the_background_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_value))
    ms.save_checkpoint(dense(), "missing/x.ckpt", async_save=True)
    ms.save_checkpoint(dense(), "y.ckpt")
    assert listed(folder) == ["y.ckpt"] and len(told) == 1
    assert isinstance(told[0], CheckpointError) and "missing/x.ckpt could not be saved" in str(told[0])


def test_loading_in_the_background(folder: Path) -> None:
    net = nn.Dense(2, 1)
    ms.save_checkpoint(dense(), "x.ckpt")
    ms.save_checkpoint(dense(), "x", format="safetensors")
    for name in ("x.ckpt", "x.safetensors"):
        found = ms.load_checkpoint_async(name, net, choice_func=lambda n: n == "weight").result()
        assert list(found) == ["weight"] and net.weight.asnumpy().tolist() == [[1.5, -2.0]]
    failing = ms.load_checkpoint_async("missing.ckpt")
    for _ in range(2):
        with pytest.raises(ValueError, match="does not exist"):
            failing.result()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody may write to")
def test_a_folder_that_cannot_be_written_is_an_os_error() -> None:
    with pytest.raises(OSError):
        ms.save_checkpoint(dense(), "/proc/self/x.ckpt")
