"""Callbacks of MindSpore's that need what is not here: MindInsight's log files, accelerators, clusters. Making one says so."""

from __future__ import annotations

from typing import Any

from graphcell.errors import NotImplementedFeatureError
from graphcell.train.callback._callback import Callback


class _Unavailable(Callback):
    reason = ""
    hint = ""

    def __init__(self, *args: Any, **kwargs: Any):
        raise NotImplementedFeatureError(f"train.{type(self).__name__} is not there: {self.reason}", hint=self.hint)


class SummaryCollector(_Unavailable):
    """Would write log files for MindInsight; raises NotImplementedError."""

    reason = "graphcell writes no MindInsight log files"
    hint = "LossMonitor, TimeMonitor and History say how a training goes"


class SummaryLandscape(_Unavailable):
    """Would write loss landscapes for MindInsight; raises NotImplementedError."""

    reason, hint = SummaryCollector.reason, SummaryCollector.hint


class FlopsUtilizationCollector(_Unavailable):
    """Would print the utilization of accelerators; raises NotImplementedError."""

    reason = "it counts the work of accelerators; there is only the CPU"


class TrainFaultTolerance(_Unavailable):
    """Would let a cluster survive faults; raises NotImplementedError."""

    reason = "it steers a cluster"
    hint = "BackupAndRestore and OnRequestExit save and restore a training"
