"""What the benchmarks beside PyTorch share: the shortest time of a turn, ours and that of a PyTorch process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

_LOOP = """
import json, sys, time, torch
torch.set_num_threads(1)
{source}
for line in sys.stdin:
    case = json.loads(line)
    with torch.inference_mode(not case.get("gradients", False)):
        run = program(case)
        answer = run()
        if case["seconds"] is None:
            answer = summary(answer)
        else:
            answer, stop = 1e9, time.perf_counter() + case["seconds"]
            while time.perf_counter() < stop:
                start = time.perf_counter()
                run()
                answer = min(answer, time.perf_counter() - start)
    print(json.dumps(answer), flush=True)
"""


def shortest(run: Callable[[], object], seconds: float) -> float:
    """Seconds of the fastest call in a turn of so many seconds, after one that does not count."""
    run()
    best, stop = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < stop:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


class Torch:
    """PyTorch in the interpreter `python`, on one thread, for as long as the `with` statement lasts.

    `source` defines `program(case)`: the function to time for a case, which is what `time` is given, as JSON. A true
    "gradients" in it says that the function differentiates. For `summary` it also defines `summary(result)`, which gives JSON.
    """

    def __init__(self, python: str | Path, source: str):
        command = [str(Path(python).expanduser()), "-c", _LOOP.format(source=source)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def time(self, case: dict[str, Any], seconds: float) -> float:
        """As `shortest`, there."""
        return float(self._answer(case | {"seconds": seconds}))

    def summary(self, case: dict[str, Any]) -> Any:
        """What the source's `summary` makes of the result of one call."""
        return self._answer(case | {"seconds": None})

    def _answer(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        if not (line := self._process.stdout.readline()):
            sys.exit(f"PyTorch's process has ended, at {request}")
        return json.loads(line)

    def __enter__(self) -> Torch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate()
