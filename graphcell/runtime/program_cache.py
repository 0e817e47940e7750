"""Compiled programs on disk, known by the graph before any pass: a second process neither optimises nor lowers it.

Enters: a traced graph, what else `lower` is told, and the processor; or a Program and the keys of its object code. Leaves: the Program
without what is only for looking at (its text, its steps), and those keys. An entry of the object cache holds a program as plain data (storable.py) and names
the entries of its code, which programs of the same text share.

A key holds all that the code generator looks at: the graph's fingerprint, the places in the user's source that its errors name, updates
and frozen inputs, the processor, the versions of Python, numpy and LLVM, graphcell's version and the times and sizes of its source files
(as Python itself knows bytecode that is stale), and the GRAPHCELL_ variables of the environment. There is none, and so nothing is read or
kept, where passes shall be seen (verified or dumped), where a program counts its cycles, and where a source changed since graphcell was
imported.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llvmlite
import ml_dtypes
import numpy as np

from graphcell import version
from graphcell.codegen import program as programs
from graphcell.codegen.llvm.processor import NOT_RUN, PASSES, Target
from graphcell.codegen.program import Program
from graphcell.context import config
from graphcell.ir.fingerprint import fingerprint
from graphcell.ir.graph import Graph
from graphcell.runtime import storable
from graphcell.runtime.cache import DIRECTORY_VARIABLE, LIMIT_VARIABLE, SWITCH_VARIABLE, ObjectCache, make_key
from graphcell.runtime.threads import SIZE_VARIABLE

FORMAT = 2
"""Of the entries; another number makes all of them misses."""
MAX_CONSTANT_BYTES = 64 << 20
"""A program with more constants is not kept."""
_NO_INFLUENCE = frozenset({DIRECTORY_VARIABLE, LIMIT_VARIABLE, SWITCH_VARIABLE, SIZE_VARIABLE, "GRAPHCELL_VERIFY"})
_PROFILE = "GRAPHCELL_PROFILE"
_CLOCK_GRAIN = 50_000_000
"""Nanoseconds by which the times of files may lag behind the clock."""


def program_key(graph: Graph, options: tuple[object, ...], target: Target) -> str | None:
    """The key of the program that compiling makes of `graph`; None where it must be compiled. `options`: all else that `lower` is told."""
    if config.verify or config.graph_dump_level() > 0 or os.environ.get(_PROFILE, "0") not in ("", "0"):
        return None
    sources = source_state(Path(version.__file__).parent, version.IMPORTED)
    digest = fingerprint(graph) if sources is not None else None
    if sources is None or digest is None:
        return None
    libraries = (llvmlite.__version__, np.__version__, ml_dtypes.__version__, sys.version)
    variables = sorted((k, v) for k, v in os.environ.items() if k.startswith("GRAPHCELL_") and k not in _NO_INFLUENCE)
    machine = (repr(target), repr((PASSES, NOT_RUN)), repr(libraries))
    return make_key("program", str(FORMAT), digest, repr(list(_named_places(graph))), repr(options), *machine, version.__version__, sources, repr(variables))


def _named_places(graph: Graph) -> Iterator[str]:
    """Of the ops with effects: what they raise or print names the line of the program that compiled them, which another program must not see."""
    for node in graph.nodes:
        if node.op.has_effect and node.span is not None:
            yield node.span.place()
        for region in node.op.regions:
            yield from _named_places(region)


def source_state(package: Path, imported: int) -> str | None:
    """Places, times and sizes of all source files below `package`; None if there are none, or if one changed after the time `imported`
    (in nanoseconds), so that what is loaded may be older than what lies on the disk.
    """
    rows: list[tuple[str, int, int]] = []
    try:
        newest = _collect_sources(str(package), rows)
    except OSError:
        return None
    if not rows or newest > imported - _CLOCK_GRAIN:
        return None
    return repr(sorted(rows))


def _collect_sources(folder: str, rows: list[tuple[str, int, int]]) -> int:
    """Adds the source files of `folder` and those inside it; the latest time of a change, be it of contents or of name."""
    newest = 0
    with os.scandir(folder) as listing:
        for item in listing:
            if item.name.endswith(".py"):
                status = item.stat()
                newest = max(newest, status.st_mtime_ns, status.st_ctime_ns)
                rows.append((item.path, status.st_mtime_ns, status.st_size))
            elif item.name != "__pycache__" and item.is_dir(follow_symlinks=False):
                newest = max(newest, _collect_sources(item.path, rows))
    return newest


def load_program(cache: ObjectCache, key: str) -> tuple[Program, list[str]] | None:
    """The program kept under `key`, and the keys of its object code."""
    found = cache.get(key)
    if found is None:
        return None
    metadata, block = found
    try:
        program, objects = storable.load(metadata["program"], block, storable.classes_of(programs)), metadata["objects"]
    except (LookupError, TypeError, ValueError):
        return None
    if not isinstance(program, Program) or not isinstance(objects, list) or not all(isinstance(x, str) for x in objects):
        return None
    return program, objects


def keep_program(cache: ObjectCache, key: str, program: Program, objects: list[str]) -> bool:
    """Keeps a program; False if it holds what is not kept (an op of the user's, very large constants)."""
    if sum(a.nbytes for a in program.constants) > MAX_CONSTANT_BYTES:
        return False
    run: Any = dataclasses.replace(program, text="", steps=[])
    try:
        tree, block = storable.dump(run, storable.classes_of(programs))
    except storable.NotStorable:
        return False
    cache.put(key, {"program": tree, "objects": objects}, block)
    return True
