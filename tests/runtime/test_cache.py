"""The object cache: what was put comes back, and nothing else does, whatever stands on the disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import stat
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.runtime import cache as module
from graphcell.runtime.cache import (
    DEFAULT_LIMIT,
    ObjectCache,
    cache_directory,
    cache_limit,
    make_key,
    open_cache,
)

ROOT = Path(__file__).resolve().parents[2]
posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes")
METADATA = {"symbols": ["kernel_0", "мир"], "bytes": 12, "nested": {"x": [1.5, None, True]}}
OBJECT = bytes(range(256)) * 3
KEY = make_key("some IR", "some CPU")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "objects"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of the person who runs this, and a home of its own."""
    for name in (module.SWITCH_VARIABLE, module.DIRECTORY_VARIABLE, module.LIMIT_VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture(autouse=True)
def _no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # not what the collector says of other tests' files
        yield


def stored(folder: Path) -> Path:
    """A cache with one entry; its file."""
    ObjectCache(folder).put(KEY, METADATA, OBJECT)
    entry, = folder.iterdir()
    return entry


def checksummed(prefix: bytes, body: bytes, key: str = KEY) -> bytes:
    """The file of an entry, put together by hand after the module's description."""
    named = struct.pack("<Q", len(key)) + key.encode()
    return prefix + hashlib.blake2b(named + prefix + body, digest_size=32).digest() + body


# -- what was put comes back ---------------------------------------------------------------------------------
@pytest.mark.parametrize("metadata", [{}, METADATA])
@pytest.mark.parametrize("code", [b"", b"\0", OBJECT, random.Random(1).randbytes(1_000_001)])
def test_round_trip(folder: Path, metadata: dict[str, Any], code: bytes) -> None:
    cache = ObjectCache(folder)
    assert cache.get(KEY) is None
    cache.put(KEY, metadata, code)
    assert cache.get(KEY) == ObjectCache(folder).get(KEY) == (metadata, code)
    assert cache.get(make_key("another")) is None


def test_the_newest_entry_counts(folder: Path) -> None:
    cache = ObjectCache(folder)
    cache.put(KEY, {"n": 1}, b"old and longer")
    cache.put(KEY, {"n": 2}, b"new")
    assert cache.get(KEY) == ({"n": 2}, b"new")
    assert len(list(folder.iterdir())) == 1


def test_another_process_reads_it(folder: Path) -> None:
    stored(folder)
    script = f"from graphcell.runtime.cache import *; print(ObjectCache({str(folder)!r}).get({KEY!r}))"
    done = subprocess.run([sys.executable, "-X", "utf8", "-c", script], capture_output=True, encoding="utf-8",
                          timeout=600, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.stdout == f"{(METADATA, OBJECT)}\n"


@posix
def test_modes(folder: Path) -> None:
    before = os.umask(0)
    try:
        entry = stored(folder)
    finally:
        os.umask(before)
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_file_is_as_described(folder: Path) -> None:
    body = json.dumps(METADATA, separators=(",", ":")).encode() + OBJECT
    prefix = struct.pack("<8sIIQ", b"graphcel", 1, len(body) - len(OBJECT), len(OBJECT))
    assert stored(folder).read_bytes() == checksummed(prefix, body)


def test_nothing_but_json(folder: Path) -> None:
    cyclic: dict[str, Any] = {}
    cyclic["self"] = cyclic
    wrong: list[Any] = [{"x": b"bytes"}, {"x": object()}, {(1, 2): 3}, cyclic]
    for metadata in wrong:
        with pytest.raises(ArgumentTypeError, match="JSON"):
            ObjectCache(folder).put(KEY, metadata, b"")


@pytest.mark.parametrize("key", [
    "", ".", "..", "a/b", "../../etc/passwd", "a\0b", "a b", "é", "x" * 129, "x\n",
])
def test_keys_are_plain_names(folder: Path, key: str) -> None:
    for cache in (ObjectCache(folder), ObjectCache(None)):
        with pytest.raises(ArgumentValueError, match="cache key"):
            cache.get(key)
        with pytest.raises(ArgumentValueError, match="cache key"):
            cache.put(key, {}, b"")
    assert not folder.exists()


def test_make_key() -> None:
    parts: list[tuple[str | bytes, ...]] = [
        (), ("",), ("", ""), ("ab",), ("a", "b"), ("b", "a"), (b"ab",), (b"a", "b"), ("a", b"b"), ("ab", ""),
        ("\ud800",), ("a\0b",), ("a" * 1000,), ("é",), ("é".encode(),)]
    keys = [make_key(*p) for p in parts]
    assert len(set(keys)) == len(parts)
    assert keys == [make_key(*p) for p in parts]
    assert all(len(key) == 64 and module._KEY.fullmatch(key) for key in keys)


# -- nothing else does ---------------------------------------------------------------------------------------
def refused(folder: Path, entry: Path, content: bytes) -> None:
    """With `content` in the entry's file a get is a miss, silently, the file goes, and a put makes good."""
    entry.write_bytes(content)
    cache = ObjectCache(folder)
    assert cache.get(KEY) is None
    assert not entry.exists()
    cache.put(KEY, METADATA, OBJECT)
    assert cache.get(KEY) == (METADATA, OBJECT)


def test_each_byte_counts(folder: Path) -> None:
    """Every single byte of the file, changed in one bit or replaced."""
    entry = stored(folder)
    good = entry.read_bytes()
    cache = ObjectCache(folder)
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1 << at % 8
        entry.write_bytes(bad)
        assert cache.get(KEY) is None, at
        assert not entry.exists()
    entry.write_bytes(good)
    assert cache.get(KEY) == (METADATA, OBJECT)


def test_each_truncation(folder: Path) -> None:
    entry = stored(folder)
    good = entry.read_bytes()
    cache = ObjectCache(folder)
    for length in range(len(good)):
        entry.write_bytes(good[:length])
        assert cache.get(KEY) is None, length
        assert not entry.exists()


def test_bytes_behind_the_end(folder: Path) -> None:
    entry = stored(folder)
    good = entry.read_bytes()
    for more in (b"\0", b"x" * 5000, good):
        refused(folder, entry, good + more)


@pytest.mark.parametrize("content", [
    b"", b"\x7fELF" + bytes(200), b"\x80\x04K\x01.", b"graphcel", bytes(56), b"{}" * 100,
])
def test_foreign_files(folder: Path, content: bytes) -> None:
    refused(folder, stored(folder), content)


def test_an_entry_under_another_name(folder: Path) -> None:
    entry = stored(folder)
    other = make_key("another program")
    entry.rename(entry.with_stem(other))
    assert ObjectCache(folder).get(other) is None


@pytest.mark.parametrize(("version", "metadata", "code_bytes"), [
    (0, b"{}", 3), (2, b"{}", 3), (1, b"{", 3), (1, b"[]", 3), (1, b"\xff\xfe", 3), (1, b"", 3),
    (1, b"[" * 100_000, 3), (1, b"{}", 2**63), (1, b"{}", 2**64 - 1), (1, b"{}", 4),
])
def test_valid_checksum_around_nonsense(folder: Path, version: int, metadata: bytes, code_bytes: int) -> None:
    entry = stored(folder)
    prefix = struct.pack("<8sIIQ", b"graphcel", version, len(metadata), code_bytes)
    refused(folder, entry, checksummed(prefix, metadata + b"abc"))


@posix
def test_no_links_pipes_or_folders(folder: Path, tmp_path: Path) -> None:
    """None of them is followed or waited for."""
    entry = stored(folder)
    elsewhere = tmp_path / "elsewhere"
    entry.rename(elsewhere)
    cache = ObjectCache(folder)
    entry.symlink_to(elsewhere)
    assert cache.get(KEY) is None and elsewhere.exists()
    os.mkfifo(entry)
    assert cache.get(KEY) is None
    entry.mkdir()
    assert cache.get(KEY) is None


@posix
def test_an_entry_that_others_can_write(folder: Path) -> None:
    entry = stored(folder)
    for mode in (0o620, 0o602, 0o666):
        entry.chmod(mode)
        assert ObjectCache(folder).get(KEY) is None
        assert not entry.exists()
        stored(folder)


def test_an_entry_larger_than_the_limit(folder: Path) -> None:
    stored(folder)
    assert ObjectCache(folder, limit=100).get(KEY) is None


@posix
def test_an_unreadable_entry(folder: Path) -> None:
    entry = stored(folder)
    entry.chmod(0)
    with contextlib.suppress(PermissionError):
        entry.read_bytes()
        pytest.skip("root reads everything")
    assert ObjectCache(folder).get(KEY) is None
    assert not entry.exists()


def test_an_entry_that_cannot_be_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like the test before, for root and for failing disks."""
    entry = stored(folder)

    def fail(*args: Any) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fail)
        assert ObjectCache(folder).get(KEY) is None
    assert not entry.exists()


# -- folders -------------------------------------------------------------------------------------------------
def told(caught: pytest.WarningsRecorder) -> int:
    """How many of the warnings are the cache's; the collector may add some about other tests' files."""
    return sum(w.category is RuntimeWarning for w in caught)


def unused(cache: ObjectCache, complaint: str) -> None:
    """The cache keeps nothing and says why, once."""
    with pytest.warns(RuntimeWarning, match=complaint) as caught:
        for n in range(3):
            cache.put(make_key(str(n)), {}, b"code")
            assert cache.get(make_key(str(n))) is None
    assert told(caught) == 1


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_a_folder_that_others_can_write(folder: Path, mode: int) -> None:
    stored(folder)
    folder.chmod(mode)
    unused(ObjectCache(folder), "other users can write to it")
    assert len(list(folder.iterdir())) == 1
    with pytest.warns(RuntimeWarning, match="mode 0700"):
        assert ObjectCache(folder).get(KEY) is None
    folder.chmod(0o700)
    assert ObjectCache(folder).get(KEY) == (METADATA, OBJECT)


@posix
def test_a_folder_of_somebody_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(folder)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    unused(ObjectCache(folder), "belongs to another user")


@posix
def test_an_entry_of_somebody_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(folder)
    monkeypatch.setattr(module, "_complaint", lambda status: "")
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert ObjectCache(folder).get(KEY) is None


def test_a_file_where_the_folder_should_be(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("")
    unused(ObjectCache(folder), "")
    folder.unlink()
    folder.parent.rmdir()
    folder.parent.write_text("")
    unused(ObjectCache(folder), "")


@posix
def test_a_read_only_folder(folder: Path) -> None:
    stored(folder)
    folder.chmod(0o500)
    with contextlib.suppress(PermissionError):
        (folder / "another").write_bytes(b"")
        pytest.skip("root writes everywhere")
    cache = ObjectCache(folder)
    try:
        assert cache.get(KEY) == (METADATA, OBJECT)
        unused(cache, "Permission denied")
        assert cache.get(KEY) == (METADATA, OBJECT)
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize("step", ["mkstemp", "write", "replace", "makedirs"])
def test_a_disk_that_is_full_or_read_only(folder: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Whichever step fails: one warning, nothing left behind, and what is there can still be read."""
    if step != "makedirs":
        stored(folder)

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise OSError(28, "No space left on device")

    class FullFile:
        def __init__(self, descriptor: int, mode: str):
            os.close(descriptor)

        def __enter__(self) -> FullFile:
            return self

        def __exit__(self, *exc: object) -> None:
            return None

        write = fail

    owner, name = {"mkstemp": (tempfile, "mkstemp"), "write": (os, "fdopen"), "replace": (os, "replace"),
                   "makedirs": (os, "makedirs")}[step]
    cache = ObjectCache(folder)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, FullFile if step == "write" else fail)
        with pytest.warns(RuntimeWarning, match="No space left on device") as caught:
            for n in range(3):
                cache.put(make_key(str(n)), {}, b"code")
    assert told(caught) == 1
    if step != "makedirs":
        assert [path.suffix for path in folder.iterdir()] == [".gco"]
        assert cache.get(KEY) == (METADATA, OBJECT)


def test_a_folder_that_disappears(folder: Path) -> None:
    entry = stored(folder)
    cache = ObjectCache(folder)
    assert cache.get(KEY)
    entry.unlink()
    folder.rmdir()
    assert cache.get(KEY) is None
    cache.sweep()
    unused(cache, "No such file")


# -- size ----------------------------------------------------------------------------------------------------
def fill(cache: ObjectCache, count: int, size: int) -> list[str]:
    """Entries of `size` bytes each, put and used one a second."""
    keys = [make_key("entry", str(n)) for n in range(count)]
    overhead = len(module._pack(keys[0], {}, b""))
    for n, key in enumerate(keys):
        cache.put(key, {}, bytes(size - overhead))
        assert cache.directory is not None
        os.utime(cache.directory / f"{key}.gco", (1_000_000_000 + n, 1_000_000_000 + n))
    return keys


def kept(cache: ObjectCache) -> set[str]:
    assert cache.directory is not None
    return {path.stem for path in cache.directory.glob("*.gco")}


def test_the_least_recently_used_goes_first(folder: Path) -> None:
    keys = fill(ObjectCache(folder), 10, 1000)
    cache = ObjectCache(folder, limit=10_000)
    cache.sweep()
    assert kept(cache) == set(keys)
    assert cache.get(keys[0]) and cache.get(keys[3])
    ObjectCache(folder, limit=9_999).sweep()
    assert kept(cache) == set(keys) - {keys[1], keys[2], keys[4]}  # down to 80 per cent
    ObjectCache(folder, limit=0).sweep()
    assert not kept(cache)


def test_a_hit_renews_the_time(folder: Path) -> None:
    entry = stored(folder)
    os.utime(entry, (1, 1))
    before = time.time()
    assert ObjectCache(folder).get(KEY)
    assert entry.stat().st_mtime > before - 10


def test_puts_keep_the_folder_below_the_limit(folder: Path) -> None:
    limit, size = 200_000, 2_000
    cache = ObjectCache(folder, limit)
    for n in range(1000):
        cache.put(make_key(str(n)), {}, bytes(size))
        assert sum(path.stat().st_size for path in folder.iterdir()) < 1.5 * limit
    assert len(kept(cache)) > 50


def test_sweeps_are_rare_and_as_often_as_needed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once in limit/64 bytes on average, though no cache object lives longer than one put."""
    sweeps: list[int] = []
    monkeypatch.setattr(ObjectCache, "sweep", lambda self: sweeps.append(1))
    for n in range(2000):
        ObjectCache(folder, limit=64 * 100_000).put(make_key(str(n)), {}, bytes(1000))
    expected = 2000 * 1000 / 100_000
    assert 0.3 * expected < len(sweeps) < 3 * expected


def test_an_object_beyond_the_limit_is_not_kept(folder: Path) -> None:
    cache = ObjectCache(folder, limit=1000)
    cache.put(KEY, {}, bytes(1000))
    assert not folder.exists() and cache.get(KEY) is None


def test_sweeping_leaves_other_files_alone(folder: Path) -> None:
    entry = stored(folder)
    old, new, other = folder / "died.tmp", folder / "busy.tmp", folder / "notes.txt"
    for path in (old, new, other):
        path.write_text("text")
        os.utime(path, (1, 1))
    os.utime(new)
    ObjectCache(folder, limit=0).sweep()
    assert not entry.exists() and not old.exists() and new.exists() and other.exists()


# -- many at once --------------------------------------------------------------------------------------------
WRITER = """
import random, sys
from graphcell.runtime.cache import ObjectCache, make_key
who, folder, limit = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
cache, draw, hits = ObjectCache(folder, limit), random.Random(who), 0
for turn in range(400):
    key = make_key(str(draw.randrange(4)))
    cache.put(key, {"who": who, "turn": turn}, bytes([who]) * (1000 + 997 * turn % 50_000))
    found = cache.get(make_key(str(draw.randrange(4))))
    if found is not None:
        metadata, code = found
        assert code == bytes([metadata["who"]]) * (1000 + 997 * metadata["turn"] % 50_000)
        hits += 1
print(hits)
"""


@pytest.mark.slow
@pytest.mark.parametrize("limit", [DEFAULT_LIMIT, 120_000])
def test_processes_that_write_the_same_keys(folder: Path, limit: int) -> None:
    """Every entry read is one that some process wrote as a whole; with the small limit they also sweep all
    the time."""
    running = [
        subprocess.Popen([sys.executable, "-W", "error", "-c", WRITER, str(who), str(folder), str(limit)],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env={**os.environ, "PYTHONPATH": str(ROOT)})
        for who in (1, 2, 3)]
    for process in running:
        out, err = process.communicate(timeout=600)
        assert (process.returncode, err) == (0, "")
        assert int(out) > 0  # how many depends on who sweeps when
    assert all(path.suffix == ".gco" for path in folder.iterdir())


# -- the environment -----------------------------------------------------------------------------------------
def test_no_folder_no_cache() -> None:
    cache = ObjectCache(None)
    cache.put(KEY, {}, b"code")
    cache.sweep()
    assert cache.get(KEY) is None


def test_switched_off(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv(module.DIRECTORY_VARIABLE, str(folder))
    monkeypatch.setenv(module.SWITCH_VARIABLE, "0")
    assert cache_directory() is None
    open_cache().put(KEY, {}, b"code")
    assert open_cache().get(KEY) is None and not folder.exists()
    monkeypatch.setenv(module.SWITCH_VARIABLE, "1")
    assert open_cache().directory == folder
    monkeypatch.setenv(module.SWITCH_VARIABLE, "perhaps")
    with pytest.raises(ArgumentValueError, match="GRAPHCELL_CACHE must be 0"):
        cache_directory()


@pytest.mark.parametrize(("platform", "variables", "expected"), [
    ("linux", {}, "{home}/.cache/graphcell"),
    ("linux", {"XDG_CACHE_HOME": "/xdg"}, "/xdg/graphcell"),
    ("linux", {"XDG_CACHE_HOME": "relative"}, "{home}/.cache/graphcell"),
    ("linux", {"XDG_CACHE_HOME": "/xdg", "GRAPHCELL_CACHE_DIR": "/mine"}, "/mine"),
    ("linux", {"GRAPHCELL_CACHE_DIR": "~/mine"}, "{home}/mine"),
    ("darwin", {"XDG_CACHE_HOME": "/xdg"}, "{home}/Library/Caches/graphcell"),
    ("win32", {"LOCALAPPDATA": "/local"}, "/local/graphcell"),
    ("win32", {}, "{home}/AppData/Local/graphcell"),
])
@posix
def test_where_it_lies(
        monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], expected: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_directory() == Path(expected.format(home=os.environ["HOME"]))


def test_a_relative_folder_stays_where_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(module.DIRECTORY_VARIABLE, "objects")
    cache = open_cache()
    monkeypatch.chdir("/")
    cache.put(KEY, {}, b"code")
    assert (tmp_path / "objects" / f"{KEY}.gco").exists()


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_limit() == 512 * 1024 * 1024
    monkeypatch.setenv(module.LIMIT_VARIABLE, "3")
    assert open_cache().limit == 3 * 1024 * 1024
    for wrong in ("-1", "1.5", "many", "²"):
        monkeypatch.setenv(module.LIMIT_VARIABLE, wrong)
        with pytest.raises(ArgumentValueError, match=module.LIMIT_VARIABLE):
            cache_limit()
