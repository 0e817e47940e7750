"""`python -m graphcell run script.py [arguments]`: runs a MindSpore script with `mindspore` resolved to graphcell."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

from graphcell import alias
from graphcell.version import __version__


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m graphcell", description=__doc__)
    parser.add_argument("--version", action="version", version=f"graphcell {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a MindSpore script; `import mindspore` gives graphcell")
    run.add_argument("script", type=Path)
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script gets in sys.argv")
    options = parser.parse_args(arguments)
    if not options.script.is_file():
        print(f"python -m graphcell run: there is no file {options.script}", file=sys.stderr)
        return 2
    alias.install()
    sys.argv = [str(options.script), *options.arguments]
    sys.path[:0] = [str(options.script.resolve().parent), str(Path(__file__).parent / "spawned")]
    runpy.run_path(str(options.script), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
