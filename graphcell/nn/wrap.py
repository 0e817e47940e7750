"""Cells around a network: its loss, its training step, its evaluation."""

from __future__ import annotations

from typing import Any

from graphcell import ops
from graphcell.errors import ArgumentTypeError
from graphcell.grad import value_and_grad
from graphcell.nn.cell import Cell
from graphcell.parameter import ParameterTuple


class WithLossCell(Cell):
    """loss_fn(backbone(data), label).

    Raises:
        TypeError: `backbone` is no Cell.
    """

    def __init__(self, backbone: Cell, loss_fn: Any):
        super().__init__(auto_prefix=False)
        if not isinstance(backbone, Cell):
            raise ArgumentTypeError(f"For 'WithLossCell', the argument 'backbone' must be a Cell, but got {type(backbone)}.")
        self._backbone, self._loss_fn = backbone, loss_fn

    @property
    def backbone_network(self) -> Cell:
        """The network without the loss."""
        return self._backbone

    def construct(self, data: Any, label: Any) -> Any:
        return self._loss_fn(self._backbone(data), label)


class WithEvalCell(Cell):
    """(loss, outputs, label) of a network, for metrics."""

    def __init__(self, network: Cell, loss_fn: Any, add_cast_fp32: bool = False):
        super().__init__(auto_prefix=False)
        self._network, self._loss_fn, self.add_cast_fp32 = network, loss_fn, add_cast_fp32

    def construct(self, data: Any, label: Any) -> Any:
        outputs = self._network(data)
        if self.add_cast_fp32:
            outputs = ops.cast(outputs, "float32")
        return self._loss_fn(outputs, label), outputs, label


class TrainOneStepCell(Cell):
    """One training step: runs `network` (which gives the loss), and the optimizer on the gradients; returns the loss.

    Args:
        network: a Cell whose output is the loss.
        optimizer: the optimizer of its Parameters.
        sens: what the gradient of the loss starts with. Default 1.
        return_grad: also return the gradients, as a dict name → Tensor.
    """

    def __init__(self, network: Cell, optimizer: Any, sens: Any = None, return_grad: bool = False):
        super().__init__(auto_prefix=False)
        if not isinstance(network, Cell):
            raise ArgumentTypeError(f"For 'TrainOneStepCell', the argument 'network' must be a Cell, but got {type(network)}.")
        self.network, self.optimizer = network, optimizer
        self.weights = ParameterTuple(optimizer.parameters)
        self.sens = 1.0 if sens is None else sens
        self.return_grad = return_grad
        self.network.set_grad()
        self._step = value_and_grad(network, None, self.weights)

    def construct(self, *inputs: Any) -> Any:
        loss, grads = self._step(*inputs)
        if self.sens != 1.0:
            grads = tuple(g * self.sens for g in grads)
        loss = ops.depend(loss, self.optimizer(grads))
        if self.return_grad:
            return loss, {w.name: g for w, g in zip(self.weights, grads)}
        return loss
