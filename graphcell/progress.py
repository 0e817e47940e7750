"""A progress bar for long runs: on a terminal, by tqdm; nothing otherwise, so that redirected output stays the same.

`TQDM_DISABLE=1` in the environment switches it off.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

_SECONDS_BEFORE = 3.0  # shorter runs show no bar


@contextmanager
def progress(steps: int, unit: str = "step") -> Iterator[Callable[[], object]]:
    """Shows a bar on the standard error while the context lasts; gives the function to call after each of the `steps`, counted in `unit`s."""
    if not sys.stderr.isatty():
        yield _nothing
        return
    from tqdm import tqdm  # late: most programs show no bar

    bar = tqdm(total=steps, unit=unit, file=sys.stderr, delay=_SECONDS_BEFORE, leave=False, dynamic_ncols=True)
    with bar, redirect_stdout(_AboveBar(sys.stdout, bar)):  # type: ignore[type-var]
        yield bar.update


def _nothing() -> None:
    """What a step shows without a bar."""


class _AboveBar:
    """The standard output, for whose lines the bar makes room where both are on a terminal."""

    def __init__(self, stream: Any, bar: Any):
        self._stream, self._bar = stream, bar
        self._start, self._in_line = time.monotonic(), False

    def write(self, text: str) -> int:
        if not self._in_line and self._stream.isatty() and time.monotonic() - self._start > _SECONDS_BEFORE:
            self._bar.clear()
        self._in_line = not text.endswith("\n")
        return self._stream.write(text)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
