"""Cells around a network: its loss, its gradients, its training step, its evaluation; loss scaling."""

from __future__ import annotations

from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.grad import value_and_grad
from graphcell.nn.cell import Cell
from graphcell.nn.checks import is_int
from graphcell.nn.layer.basic import Identity
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.tensor import Tensor


def _check_cell(owner: str, name: str, value: Any) -> None:
    if not isinstance(value, Cell):
        raise ArgumentTypeError(f"For '{owner}', the argument '{name}' must be a Cell, but got {type(value)}.")


class WithLossCell(Cell):
    """loss_fn(backbone(data), label).

    Raises:
        TypeError: `backbone` is no Cell.
    """

    def __init__(self, backbone: Cell, loss_fn: Any):
        super().__init__(auto_prefix=False)
        _check_cell("WithLossCell", "backbone", backbone)
        self._backbone, self._loss_fn = backbone, loss_fn

    @property
    def backbone_network(self) -> Cell:
        """The network without the loss."""
        return self._backbone

    def construct(self, data: Any, label: Any) -> Any:
        return self._loss_fn(self._backbone(data), label)


class WithEvalCell(Cell):
    """(loss, outputs, label) of a network, for metrics.

    Args:
        add_cast_fp32: cast the outputs to float32 before the loss.
    """

    def __init__(self, network: Cell, loss_fn: Any, add_cast_fp32: bool = False):
        super().__init__(auto_prefix=False)
        if not isinstance(add_cast_fp32, bool):
            raise ArgumentTypeError(
                "For 'WithEvalCell', the type of 'add_cast_fp32' should be 'bool', "
                f"but got type '{type(add_cast_fp32).__name__}'."
            )
        self._network, self._loss_fn, self.add_cast_fp32 = network, loss_fn, add_cast_fp32

    def construct(self, data: Any, label: Any) -> Any:
        outputs = self._network(data)
        if self.add_cast_fp32:
            outputs, label = ops.cast(outputs, dt.float32), ops.cast(label, dt.float32)
        return self._loss_fn(outputs, label), outputs, label


class ForwardValueAndGrad(Cell):
    """(outputs, gradients) of a network.

    Args:
        network: a Cell or function.
        weights: the Parameters to differentiate, with `get_by_list`.
        get_all: gradients of all inputs; else of the first one.
        get_by_list: gradients of `weights`; with `get_all`, (inputs, weights).
        sens_param: the last argument is the gradient with respect to the outputs.

    Raises:
        TypeError: network is neither, or a flag is no bool.
    """

    def __init__(
        self, network: Any, weights: Any = None, get_all: bool = False, get_by_list: bool = False, sens_param: bool = False
    ):
        super().__init__(auto_prefix=False)
        if not callable(network):
            raise ArgumentTypeError(
                "For 'ForwardValueAndGrad', the argument 'network' must be cell, function type or method type, "
                f"but got '{type(network)}'"
            )
        for name, flag in (("get_all", get_all), ("get_by_list", get_by_list), ("sens_param", sens_param)):
            if not isinstance(flag, bool):
                raise ArgumentTypeError(
                    f"For 'ForwardValueAndGrad', the argument '{name}' must be bool type, but got '{type(flag)}'"
                )
        if get_by_list and not isinstance(weights, (ParameterTuple, tuple, list, Parameter)):
            raise ArgumentTypeError(
                "For 'ForwardValueAndGrad', the argument 'weights' must be Parameters when 'get_by_list' is set, "
                f"but got '{type(weights)}'"
            )
        self.network, self.weights = network, weights
        self.get_all, self.get_by_list, self.sens_param = get_all, get_by_list, sens_param

    def construct(self, *inputs: Any) -> Any:
        count = len(inputs) - (1 if self.sens_param else 0)
        positions: Any = tuple(range(count)) if self.get_all else None if self.get_by_list else 0
        weights = self.weights if self.get_by_list else None
        return value_and_grad(self.network, positions, weights, sens_param=self.sens_param)(*inputs)


class ParameterUpdate(Cell):
    """Makes its input the value of a Parameter, and returns it.

    Raises:
        TypeError: param is no Parameter.
    """

    def __init__(self, param: Parameter):
        super().__init__(auto_prefix=False)
        if not isinstance(param, Parameter):
            raise ArgumentTypeError(
                f"For 'ParameterUpdate', 'param' must be 'Parameter', but got {type(param).__name__}."
            )
        self._param = param

    def construct(self, x: Any) -> Any:
        ops.assign(self._param, x)
        return x


class TrainOneStepCell(Cell):
    """One training step: runs `network` (which gives the loss), and the optimizer on the gradients; returns the loss.

    Args:
        network: a Cell whose output is the loss.
        optimizer: the optimizer of its Parameters.
        sens: what the gradient of the loss starts with. Default 1.
        return_grad: also return the gradients, as a dict name → Tensor.

    Raises:
        TypeError: `network` or `optimizer` is no Cell.
    """

    def __init__(self, network: Cell, optimizer: Any, sens: Any = None, return_grad: bool = False):
        super().__init__(auto_prefix=False)
        _check_cell("TrainOneStepCell", "network", network)
        _check_cell("TrainOneStepCell", "optimizer", optimizer)
        network.set_grad()
        self.network, self.optimizer = network, optimizer
        self.weights = ParameterTuple(optimizer.parameters)
        self.grad_reducer = Identity()
        self.sens = 1.0 if sens is None else sens
        self.return_grad = return_grad
        self.grad = value_and_grad(network, None, self.weights, sens_param=True)

    def construct(self, *inputs: Any) -> Any:
        loss, grads = self.grad(*inputs, self.sens)
        grads = self.grad_reducer(grads)
        loss = ops.depend(loss, self.optimizer(grads))
        if self.return_grad:
            return loss, {w.name: g for w, g in zip(self.weights, grads)}
        return loss


class TrainOneStepWithLossScaleCell(TrainOneStepCell):
    """A training step with a scaled loss; returns (loss, overflow, loss scale). Steps whose gradients overflow are left out.

    Args:
        scale_sense: a Tensor of shape () or (1,): the scale, constant; or a Cell (loss scale Parameter, overflow) → overflow with
            `get_loss_scale()`, which may change it.

    Raises:
        TypeError: scale_sense is something else. ValueError: a Tensor of another shape.
    """

    def __init__(self, network: Cell, optimizer: Any, scale_sense: Any):
        super().__init__(network, optimizer)
        self.loss_scaling_manager: Any = None
        if isinstance(scale_sense, Cell):
            self.loss_scaling_manager = scale_sense
            start = Tensor(scale_sense.get_loss_scale(), dt.float32)
            self.scale_sense = Parameter(start, name="scale_sense")
        elif isinstance(scale_sense, Tensor):
            if scale_sense.shape not in ((), (1,)):
                raise ShapeError(
                    "For 'TrainOneStepWithLossScaleCell', the shape of 'scale_sense' must be (1,) or (), "
                    f"but got {scale_sense.shape}"
                )
            self.scale_sense = Parameter(scale_sense, name="scale_sense")
        else:
            raise ArgumentTypeError(
                "For 'TrainOneStepWithLossScaleCell', the 'scale_sense' must be Cell or Tensor, "
                f"but got 'scale_sense' type: {type(scale_sense)}."
            )

    def set_sense_scale(self, sens: Any) -> None:
        """Sets the loss scale.

        Raises:
            TypeError: sens is no Tensor.
        """
        if not isinstance(sens, Tensor):
            raise ArgumentTypeError(
                f"For 'TrainOneStepWithLossScaleCell', the 'sens' must be Tensor, but got type: {type(sens)}"
            )
        self.scale_sense.set_data(sens)

    def start_overflow_check(self, pre_cond: Any, compute_input: Any) -> tuple[bool, Any]:
        """(False, compute_input): overflow is seen in the gradients."""
        return False, compute_input

    def get_overflow_status(self, status: Any, compute_output: Any) -> Any:
        """Whether a gradient is not finite, a Bool scalar."""
        finite: Any = None
        for g in compute_output:
            part = ops.isfinite(g).all()
            finite = part if finite is None else ops.logical_and(finite, part)
        return ops.logical_not(finite)

    def process_loss_scale(self, overflow: Any) -> Any:
        """Lets the manager change the loss scale; gives back `overflow`."""
        if self.loss_scaling_manager is None:
            return overflow
        return self.loss_scaling_manager(self.scale_sense, overflow)

    def construct(self, *inputs: Any) -> Any:
        scale = self.scale_sense + 0.0
        loss, grads = self.grad(*inputs, scale.reshape(()))
        inverse = 1.0 / scale.reshape(())
        grads = self.grad_reducer(tuple(g * ops.cast(inverse, g.dtype) for g in grads))
        overflow = self.process_loss_scale(self.get_overflow_status(False, grads))
        if not overflow:
            self.optimizer(grads)
        return loss, overflow, scale


class FixedLossScaleUpdateCell(Cell):
    """A loss scale that stays.

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


class DynamicLossScaleUpdateCell(Cell):
    """A loss scale that is divided by `scale_factor` when a step overflows (down to 1), and multiplied by it after `scale_window`
    steps without.

    Raises:
        TypeError: the factor or the window is no int. ValueError: the scale is not positive.
    """

    def __init__(self, loss_scale_value: float, scale_factor: int, scale_window: int):
        super().__init__()
        for name, value in (("scale_factor", scale_factor), ("scale_window", scale_window)):
            if not is_int(value):
                raise ArgumentTypeError(
                    f"For 'DynamicLossScaleUpdateCell', the '{name}' must be int, but got '{type(value).__name__}'"
                )
            if value < 1:
                raise ArgumentValueError(f"For 'DynamicLossScaleUpdateCell', the '{name}' must be > 0, but got {value}.")
        if loss_scale_value <= 0:
            raise ArgumentValueError(
                f"For 'DynamicLossScaleUpdateCell', the 'loss_scale_value' must be > 0, but got {loss_scale_value}."
            )
        self.loss_scale_value, self.scale_factor, self.scale_window = loss_scale_value, scale_factor, scale_window
        self.cur_iter = Parameter(Tensor(1, dt.int32), name="current_iterator_step")
        self.last_overflow_iter = Parameter(Tensor(0, dt.int32), name="last_overflow_iterator_step")

    def get_loss_scale(self) -> float:
        """The first scale."""
        return self.loss_scale_value

    def construct(self, loss_scale: Any, overflow: Any) -> Any:
        step = self.cur_iter + 0
        smaller = ops.maximum(loss_scale / self.scale_factor, 1.0)
        calm = (step - self.last_overflow_iter) % self.scale_window == 0
        larger = ops.select(calm, loss_scale * self.scale_factor, loss_scale + 0.0)
        ops.assign(loss_scale, ops.select(overflow, smaller, larger))
        ops.assign(self.last_overflow_iter, ops.select(overflow, step, self.last_overflow_iter + 0))
        ops.assign(self.cur_iter, step + 1)
        return overflow
