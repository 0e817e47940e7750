"""What the tests of the seed list share: both modes, and programs run as files under the name mindspore."""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import graphcell as ms
from graphcell import alias
from graphcell.__main__ import main


@pytest.fixture(params=[ms.PYNATIVE_MODE, ms.GRAPH_MODE], ids=["pynative", "graph"])
def mode(request: pytest.FixtureRequest) -> int:
    """Each of the two modes, set."""
    ms.set_context(mode=request.param)
    return int(request.param)


@pytest.fixture
def output_of(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """What a program that imports mindspore prints when it is run as a file, in a directory of its own."""
    numbers = itertools.count()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(program: str) -> str:
        path = tmp_path / f"program{next(numbers)}.py"
        path.write_text(textwrap.dedent(program), encoding="utf-8")
        capsys.readouterr()
        try:
            main(["run", str(path)])
        finally:
            alias.uninstall()
        return capsys.readouterr().out

    return run
