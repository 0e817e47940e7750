"""Gradients summed over devices, of which there is one."""

from __future__ import annotations

from typing import Any

from graphcell.nn.cell import Cell


class DistributedGradReducer(Cell):
    """The gradients as they are: there is nothing to sum on one device.

    Args:
        parameters: the Parameters that the gradients belong to.
        mean: divide by `degree`, where there are several devices.
        degree: how many devices there are.
        fusion_type: how to put communication together.
        group: the devices.
    """

    def __init__(
        self, parameters: Any, mean: bool | None = None, degree: int | None = None, fusion_type: int = 1, group: str = "hccl_world_group"
    ):
        super().__init__(auto_prefix=False)
        self.mean, self.degree = bool(mean), 1 if degree is None else degree

    def construct(self, grads: Any) -> Any:
        return grads


class PipelineGradReducer(DistributedGradReducer):
    """The gradients as they are: there is one stage.

    Args:
        parameters: the Parameters that the gradients belong to.
        scale_sense: the gradients are divided by it.
        opt_shard: whether the optimizer is split over devices.
    """

    def __init__(self, parameters: Any, scale_sense: float = 1.0, opt_shard: bool | None = None):
        super().__init__(parameters)
        self.scale_sense, self.opt_shard = scale_sense, opt_shard

    def construct(self, grads: Any) -> Any:
        return tuple(g / self.scale_sense for g in grads)
