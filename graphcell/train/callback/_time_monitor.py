"""`TimeMonitor`: prints how long epochs and steps take."""

from __future__ import annotations

import time

from graphcell.nn.checks import check_bool, positive_int
from graphcell.records import dataclass
from graphcell.train.callback._callback import Callback, RunContext


@dataclass
class _Clock:
    """When an epoch began, since when it waits for data, and for how long it waited before."""

    start: float
    waiting_since: float
    waited: float = 0.0


class TimeMonitor(Callback):
    """Prints `Train epoch time: 20.000 ms, per step time: 2.000 ms` after each epoch, and the same of evaluations, whose time is not part of the
    training's.

    Args:
        data_size: steps of an epoch, where the run does not say.
        data_time: print too how long a step waits for its data.

    Raises:
        TypeError: data_time is no bool.
    """

    def __init__(self, data_size: int | None = None, data_time: bool = False):
        super().__init__()
        self.data_size = data_size
        self.data_time = check_bool("TimeMonitor", "data_time", data_time)
        self._clocks: dict[str, _Clock] = {}

    def _clock(self, run_context: RunContext) -> _Clock:
        return self._clocks[_mode(run_context)]

    def epoch_begin(self, run_context: RunContext) -> None:
        """Starts the clock."""
        now = time.perf_counter()
        self._clocks[_mode(run_context)] = _Clock(now, now)

    def step_begin(self, run_context: RunContext) -> None:
        """Counts the time since the last step as waiting."""
        clock = self._clock(run_context)
        clock.waited += time.perf_counter() - clock.waiting_since

    def step_end(self, run_context: RunContext) -> None:
        """Begins to wait."""
        self._clock(run_context).waiting_since = time.perf_counter()

    def epoch_end(self, run_context: RunContext) -> None:
        """Prints the times; raises if the number of steps is known neither from the run nor from `data_size`."""
        mode, clock = _mode(run_context), self._clock(run_context)
        seconds = time.perf_counter() - clock.start
        if mode == "eval" and "train" in self._clocks:
            self._clocks["train"].start += seconds
        steps = run_context.original_args().get("batch_num")
        if not isinstance(steps, int) or steps <= 0:
            steps = positive_int("TimeMonitor", "data_size", self.data_size)
        line = f"{mode.title()} epoch time: {1000 * seconds:5.3f} ms, per step time: {1000 * seconds / steps:5.3f} ms"
        if self.data_time:
            line += f" (data time: {1000 * clock.waited / steps:5.3f} ms)"
        print(line, flush=True)


def _mode(run_context: RunContext) -> str:
    return str(run_context.original_args().get("mode", ""))
