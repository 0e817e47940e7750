"""Log files for MindInsight, which graphcell does not write."""

from __future__ import annotations

from typing import Any

from graphcell.errors import NotImplementedFeatureError


class SummaryRecord:
    """Would write log files for MindInsight; raises NotImplementedError."""

    def __init__(self, *args: Any, **kwargs: Any):
        raise NotImplementedFeatureError(
            "train.SummaryRecord is not there: graphcell writes no MindInsight log files", hint="LossMonitor, TimeMonitor and History say how a training goes"
        )
