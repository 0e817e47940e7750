"""What a second thread brings to the training steps of benchmarks/peers, and how much of it a virtual machine took away meanwhile.

    python benchmarks/second_thread.py                       # all training steps, five rounds
    python benchmarks/second_thread.py lstm_train --rounds 9

One and two threads take turns. Time that the host gave to others counts as "stolen" in /proc/stat (Linux): of a step in two halves both
wait while one half's processor is away. The medians are those of the rounds in which less than `--limit` per cent were stolen, if there are
any; else the line says so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

PROGRAMS = Path(__file__).resolve().parent / "peers" / "workloads_ms.py"
TRAINING = ("mlp_train", "lenet_train", "resnet18_train", "transformer_train", "lstm_train")


class Round(NamedTuple):
    """Median of the milliseconds a step, and the share of the processors' time that was stolen meanwhile."""

    step: float
    stolen: float


def stolen_seconds() -> float:
    """Of all processors since the machine started; 0 where that is not known."""
    try:
        return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def measure(name: str, threads: int, seconds: float) -> Round:
    """One process that runs the program for so many seconds on as many processors as threads."""
    environment = {**os.environ, "MOD": "graphcell", "GRAPHCELL_NUM_THREADS": str(threads)}
    pinned = ["taskset", "-c", ",".join(map(str, range(threads)))]
    before, start = stolen_seconds(), time.perf_counter()
    run = subprocess.run(
        [*pinned, sys.executable, str(PROGRAMS), name, "--seconds", str(seconds)], env=environment, capture_output=True, text=True, check=True
    )
    share = (stolen_seconds() - before) / ((time.perf_counter() - start) * threads)
    return Round(json.loads(run.stdout.splitlines()[-1])["step_ms"], share)


def median(rounds: list[Round], limit: float) -> Round:
    """Of the undisturbed rounds, or of all."""
    quiet = [r for r in rounds if r.stolen < limit] or rounds
    return Round(statistics.median(r.step for r in quiet), statistics.median(r.stolen for r in quiet))


def main() -> None:
    """Prints a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="programs; all training steps by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each process")
    parser.add_argument("--limit", type=float, default=2.0, help="per cent stolen from which on a round does not count")
    options = parser.parse_args()
    print(f"{'program':20} {'one thread':>11} {'two':>9} {'gain':>6}   {'stolen':>13}   rounds that count")
    for name in options.names or TRAINING:
        found: dict[int, list[Round]] = {1: [], 2: []}
        for _ in range(options.rounds):
            for threads, rounds in found.items():
                rounds.append(measure(name, threads, options.seconds))
        one, two = (median(rounds, options.limit / 100) for rounds in found.values())
        counting = " and ".join(str(sum(r.stolen < options.limit / 100 for r in rounds)) for rounds in found.values())
        print(f"{name:20} {one.step:8.3g} ms {two.step:6.3g} ms {one.step / two.step:6.2f}   {one.stolen:5.1%} {two.stolen:6.1%}   {counting}", flush=True)


if __name__ == "__main__":
    main()
