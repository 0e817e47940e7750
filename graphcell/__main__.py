"""`python -m graphcell run script.py [arguments]`: runs a MindSpore script with `mindspore` resolved to graphcell."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from graphcell import alias
from graphcell.version import __version__

Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m graphcell", description=__doc__)
    parser.add_argument("--version", action="version", version=f"graphcell {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a MindSpore script; `import mindspore` gives graphcell")
    run.add_argument("script", type=Path)
    rest = run.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script gets in sys.argv")
    rest.required = False  # else the error of a missing script asks for them too
    options = parser.parse_args(arguments)
    if not options.script.is_file():
        print(f"python -m graphcell run: there is no file {options.script}", file=sys.stderr)
        return 2
    alias.install()
    sys.argv = [str(options.script), *options.arguments]
    sys.path[:0] = [str(options.script.resolve().parent), str(Path(__file__).parent / "spawned")]
    sys.excepthook = _from_script(str(options.script), sys.excepthook)
    runpy.run_path(str(options.script), run_name="__main__")
    return 0


def _from_script(script: str, shown: Hook) -> Hook:
    """An excepthook that shows a traceback as `python script.py` would: from the script's own frame on."""

    def show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        inner = traceback
        while inner is not None and inner.tb_frame.f_code.co_filename != script:
            inner = inner.tb_next
        if inner is not None or (isinstance(error, SyntaxError) and error.filename == script):
            traceback = inner
            error.__traceback__ = inner
        shown(kind, error, traceback)

    return show


if __name__ == "__main__":
    sys.exit(main())
