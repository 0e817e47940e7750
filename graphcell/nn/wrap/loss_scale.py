"""A training step with a scaled loss, and what changes the scale. Half precision gradients that are too small for their dtype are 0: so
the loss is multiplied by a large number, the gradients are divided by it, and where they overflow the step is left out.
"""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ShapeError
from graphcell.nn.cell import Cell
from graphcell.nn.wrap.cell_wrapper import TrainOneStepCell
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class DynamicLossScaleUpdateCell(Cell):
    """A loss scale that is divided by `scale_factor` when a step overflows (down to 1), and multiplied by it after `scale_window` steps
    without.

    Called with (the Parameter of the scale, Bool scalar: overflow); returns the latter.

    Args:
        loss_scale_value: the first scale.
        scale_factor: what it is multiplied and divided by.
        scale_window: how many steps without overflow make it larger.
    """

    def __init__(self, loss_scale_value: float, scale_factor: int, scale_window: int):
        super().__init__()
        self.scale_window, self.scale_factor = Tensor(scale_window, dt.int32), Tensor(scale_factor, dt.float32)
        self.loss_scale_value = loss_scale_value
        self.minimum_loss_scale = Tensor(1.0, dt.float32)
        self.cur_iter = Parameter(Tensor(1, dt.int32), name="current_iterator_step")
        self.last_overflow_iter = Parameter(Tensor(0, dt.int32), name="last_overflow_iterator_step")

    def get_loss_scale(self) -> float:
        """The first scale."""
        return self.loss_scale_value

    def construct(self, loss_scale: Any, overflow: Any) -> Any:
        smaller = ops.maximum(loss_scale * ops.reciprocal(self.scale_factor), self.minimum_loss_scale)
        scale = ops.select(overflow, smaller, loss_scale)
        calm = self.scale_window <= self.cur_iter - self.last_overflow_iter
        scale = ops.select(ops.logical_and(calm, ops.logical_not(overflow)), scale * self.scale_factor, scale)
        ops.assign(self.last_overflow_iter, ops.select(ops.logical_or(overflow, calm), self.cur_iter, self.last_overflow_iter))
        ops.assign(loss_scale, scale)
        ops.assign(self.cur_iter, self.cur_iter + 1)
        return overflow


class FixedLossScaleUpdateCell(Cell):
    """A loss scale that stays. Called with (scale, overflow); returns the latter.

    Args:
        loss_scale_value: the scale.
    """

    def __init__(self, loss_scale_value: float):
        super().__init__()
        self.loss_scale_value = loss_scale_value

    def get_loss_scale(self) -> float:
        """The scale."""
        return self.loss_scale_value

    def construct(self, _: Any, overflow: Any) -> Any:
        return overflow


class TrainOneStepWithLossScaleCell(TrainOneStepCell):
    """A training step with a scaled loss; returns (loss, overflow, loss scale). Steps whose gradients overflow are left out.

    Args:
        network: a Cell whose output is the loss.
        optimizer: the optimizer of its Parameters.
        scale_sense: a Tensor of shape () or (1,): the scale, see `set_sense_scale`; or a Cell (Parameter of the scale, overflow) → overflow
            with `get_loss_scale()`, which may change it.

    Raises:
        TypeError: scale_sense is something else. ValueError: a Tensor of another shape.
    """

    def __init__(self, network: Cell, optimizer: Any, scale_sense: Any):
        super().__init__(network, optimizer, sens=None)
        self.loss_scaling_manager: Any = None
        if isinstance(scale_sense, Cell):
            self.loss_scaling_manager = scale_sense
            start: Any = scale_sense
            self.scale_sense = Parameter(Tensor(start.get_loss_scale(), dt.float32), name="scale_sense")
            return
        if not isinstance(scale_sense, Tensor):
            raise ArgumentTypeError(
                "For 'TrainOneStepWithLossScaleCell', the 'scale_sense' must be Cell or Tensor, "
                f"but got 'scale_sense' type: {type(scale_sense)}."
            )
        if scale_sense.shape not in ((), (1,)):
            raise ShapeError(
                f"For 'TrainOneStepWithLossScaleCell', the shape of 'scale_sense' must be (1,) or (), but got {scale_sense.shape}."
            )
        self.scale_sense = Parameter(scale_sense, name="scale_sense")

    def construct(self, *inputs: Any) -> Any:
        loss = self.network(*inputs)
        scale = self.scale_sense * 1.0  # as it is in this step
        status, scale = self.start_overflow_check(loss, scale)
        sens = ops.ones_like(loss) * ops.cast(scale, loss.dtype)
        grads = self.grad(self.network, self.weights)(*inputs, sens.reshape(loss.shape))
        grads = self.grad_reducer(self._unscaled(grads, scale))
        found = self.get_overflow_status(status, grads)
        overflow = self.process_loss_scale(found)
        if not overflow:
            loss = ops.depend(loss, self.optimizer(grads))
        return loss, found, scale

    def _unscaled(self, grads: Any, scale: Any) -> tuple[Any, ...]:
        inverse = ops.reciprocal(scale).reshape(())
        return tuple(g * ops.cast(inverse, g.dtype) for g in grads)

    def set_sense_scale(self, sens: Any) -> None:
        """Sets the loss scale.

        Raises:
            TypeError: sens is no Tensor.
        """
        if not isinstance(sens, Tensor):
            raise ArgumentTypeError(f"For 'TrainOneStepWithLossScaleCell', the type of 'sens' must be Tensor, but got {type(sens)}")
        self.scale_sense.set_data(sens)

    def start_overflow_check(self, pre_cond: Any, compute_input: Any) -> tuple[Any, Any]:
        """(a status to give to `get_overflow_status`, compute_input). There is nothing to clear on a CPU, where overflow is seen in the
        gradients themselves.
        """
        return Tensor([0] * 8, dt.int32), compute_input

    def get_overflow_status(self, status: Any, compute_output: Any) -> Any:
        """Whether an element of a Tensor in `compute_output` is infinite or NaN: a Bool scalar."""
        tensors = compute_output if isinstance(compute_output, (tuple, list)) else (compute_output,)
        finite = [ops.isfinite(t).all() for t in tensors]
        return ops.logical_not(ops.stack(finite).all())

    def process_loss_scale(self, overflow: Any) -> Any:
        """Lets the manager change the loss scale; gives back `overflow`."""
        if self.loss_scaling_manager is None:
            return overflow
        return self.loss_scaling_manager(self.scale_sense, overflow)
