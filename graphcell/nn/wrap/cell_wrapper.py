"""Cells around a network: its loss, its gradients, its training step, its evaluation, a mini-batch in parts."""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType, MethodType
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.auto_parallel_context import get_auto_parallel_context, require_one_device
from graphcell.errors import ArgumentTypeError, ArgumentValueError, MissingKeyError, NotImplementedFeatureError, ShapeError
from graphcell.grad import GradOperation
from graphcell.nn.cell import Cell, cast_floats
from graphcell.nn.checks import is_int
from graphcell.nn.layer.basic import Identity
from graphcell.nn.wrap.grad_reducer import DistributedGradReducer
from graphcell.parameter import Parameter, ParameterTuple


class WithLossCell(Cell):
    """loss_fn(backbone(data), label).

    Args:
        backbone: the network.
        loss_fn: the loss: a Cell, or a function.
    """

    def __init__(self, backbone: Any, loss_fn: Any):
        super().__init__(auto_prefix=False)
        self._backbone, self._loss_fn = backbone, loss_fn

    @property
    def backbone_network(self) -> Any:
        """The network without the loss."""
        return self._backbone

    def construct(self, data: Any, label: Any) -> Any:
        return self._loss_fn(self._backbone(data), label)


class WithGradCell(Cell):
    """The gradients of the trained Parameters of a network, as a tuple.

    Args:
        network: the network, of one output; it is switched to training.
        loss_fn: its loss, then the Cell takes (data, label). None: the network's output is the loss.
        sens: the gradient with respect to the output. None: ones.
    """

    def __init__(self, network: Cell, loss_fn: Any = None, sens: Any = None):
        super().__init__(auto_prefix=False)
        self.network, self.loss_fn, self.sens = network, loss_fn, sens
        self.weights = ParameterTuple(network.trainable_params())
        self.grad = GradOperation(get_by_list=True, sens_param=sens is not None)
        self.network_with_loss = network if loss_fn is None else WithLossCell(network, loss_fn)
        self.network_with_loss.set_train()

    def construct(self, *inputs: Any) -> Any:
        given = inputs if self.sens is None else (*inputs, self.sens)
        return self.grad(self.network_with_loss, self.weights)(*given)


class WithEvalCell(Cell):
    """(loss, outputs, label) of a network, for metrics.

    Args:
        network: the network.
        loss_fn: the loss.
        add_cast_fp32: cast the outputs, and a float label, to float32 before the loss.

    Raises:
        TypeError: add_cast_fp32 is no bool.
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
            outputs, label = cast_floats((outputs, label), dt.float32)
        return self._loss_fn(outputs, label), outputs, label


class ForwardValueAndGrad(Cell):
    """(outputs, gradients) of a network.

    Args:
        network: a Cell, function or method.
        weights: the Parameters to differentiate, with `get_by_list`.
        get_all: gradients of all inputs.
        get_by_list: gradients of `weights`; with `get_all`, (inputs, weights). With neither: the gradient of the first input.
        sens_param: the last argument is the gradient with respect to the outputs.

    Raises:
        TypeError: network is none of these, a flag is no bool, or there are no weights with `get_by_list`.
    """

    def __init__(
        self, network: Any, weights: Any = None, get_all: bool = False, get_by_list: bool = False, sens_param: bool = False
    ):
        super().__init__(auto_prefix=False)
        owner = "For 'ForwardValueAndGrad'"
        if not isinstance(network, (Cell, FunctionType, MethodType)):
            raise ArgumentTypeError(
                f"{owner}, the argument 'network' must be cell, function type or method type, but got '{type(network)}'"
            )
        for name, flag in (("get_all", get_all), ("get_by_list", get_by_list), ("sens_param", sens_param)):
            if not isinstance(flag, bool):
                raise ArgumentTypeError(f"{owner}, the type of '{name}' must be bool, but got '{type(flag)}'")
        if get_by_list and not isinstance(weights, (tuple, list)):
            raise ArgumentTypeError(
                f"{owner}, when 'get_by_list' is set to True, the argument 'weights' must be Parameters array, but got '{type(weights)}'"
            )
        if isinstance(network, Cell):
            network.set_grad()
        self.network, self.weights = network, weights
        self.get_all, self.get_by_list, self.sens_param = get_all, get_by_list, sens_param
        self.grad = GradOperation(get_all, get_by_list, sens_param)

    def construct(self, *inputs: Any) -> Any:
        loss = self.network(*(inputs[:-1] if self.sens_param else inputs))
        return loss, self.grad(self.network, self.weights if self.get_by_list else None)(*inputs)


class TrainOneStepCell(Cell):
    """One training step: runs `network` (which gives the loss), and the optimizer on the gradients; returns the loss.

    Subclasses may have a `construct` of their own that uses `grad`, `network`, `weights`, `grad_reducer` and `optimizer`. A network that is
    called, and whose gradient is then asked for with the same inputs, runs once.

    Args:
        network: a Cell whose output is the loss.
        optimizer: the optimizer of its Parameters.
        sens: what the gradient of the loss starts with. Default 1.
        return_grad: also return the gradients, as a dict name → Tensor.

    Raises:
        ValueError: sens is 0. TypeError: `network` is no Cell, `optimizer` no optimizer.
        NotImplementedError: `set_auto_parallel_context` asks for several devices.
    """

    def __init__(self, network: Cell, optimizer: Any, sens: Any = None, return_grad: bool = False):
        super().__init__(auto_prefix=False)
        if not isinstance(network, Cell):
            raise ArgumentTypeError(f"For '{type(self).__name__}', the argument 'network' must be a Cell, but got {type(network)}.")
        if not hasattr(optimizer, "parameters"):
            raise ArgumentTypeError(f"For '{type(self).__name__}', the argument 'optimizer' must be an Optimizer, but got {type(optimizer)}.")
        network.set_grad()
        self.network, self.optimizer = network, optimizer
        self.weights = optimizer.parameters
        self.grad = GradOperation(get_by_list=True, sens_param=True)
        self.grad_no_sens = GradOperation(get_by_list=True)
        if sens is not None and sens == 0:
            raise ArgumentValueError("The input argument of 'sens' can not be 0.")
        self.sense_flag = sens is not None
        self.sens = 1.0 if sens is None else sens
        self.return_grad = return_grad
        if return_grad:
            self.weights_name = [p.name for p in self.weights]
        require_one_device(type(self).__name__)
        self.parallel_mode = get_auto_parallel_context("parallel_mode")
        self.reducer_flag = self.parallel_mode in ("data_parallel", "hybrid_parallel")
        self.grad_reducer: Any = DistributedGradReducer(self.weights) if self.reducer_flag else Identity()

    def construct(self, *inputs: Any) -> Any:
        loss = self.network(*inputs)
        if self.sense_flag:
            grads = self.grad(self.network, self.weights)(*inputs, ops.fill(loss.dtype, loss.shape, self.sens))
        else:
            grads = self.grad_no_sens(self.network, self.weights)(*inputs)
        grads = self.grad_reducer(grads)
        loss = ops.depend(loss, self.optimizer(grads))
        if self.return_grad:
            return loss, dict(zip(self.weights_name, grads))
        return loss


class ParameterUpdate(Cell):
    """Makes its input the value of a Parameter, and returns it.

    Raises:
        TypeError: param is no Parameter.
    """

    def __init__(self, param: Parameter):
        super().__init__(auto_prefix=False)
        if not isinstance(param, Parameter):
            raise ArgumentTypeError(f"For 'ParameterUpdate', 'param' must be 'Parameter', but got {type(param)}.")
        self._param = param

    def construct(self, x: Any) -> Any:
        ops.assign(self._param, x)
        return x


class GetNextSingleOp(Cell):
    """What takes the next data out of a queue on the device.

    Raises:
        NotImplementedError: when called: data come from the iterators of a dataset here.
    """

    def __init__(self, dataset_types: Any, dataset_shapes: Any, queue_name: str):
        super().__init__()
        self.dataset_types, self.dataset_shapes, self.queue_name = dataset_types, dataset_shapes, queue_name

    def construct(self) -> Any:
        raise NotImplementedFeatureError(
            "GetNextSingleOp: there is no queue on the device, which is the CPU", hint="iterate over the dataset, or use Model.train"
        )


class VirtualDatasetCellTriple(Cell):
    """`backbone(a, b, c)`: on one device the data are not split.

    Args:
        backbone: a network of three inputs.
    """

    def __init__(self, backbone: Any):
        super().__init__(auto_prefix=False)
        self._backbone = backbone

    def construct(self, a: Any, b: Any, c: Any) -> Any:
        return self._backbone(a, b, c)


class _InParts(Cell):
    """A network that gets the mini-batch in `count` parts, cut along the first dimension; the outputs are added up.

    Raises:
        TypeError: network is no Cell, or the count no int. ValueError: the count is not positive; when called, if it does not divide
        the batch.
    """

    def __init__(self, network: Cell, count: int, name: str):
        super().__init__(auto_prefix=False)
        owner = f"For '{type(self).__name__}'"
        if not isinstance(network, Cell):
            raise ArgumentTypeError(f"{owner}, the argument 'network' must cell type, but got the type : {type(network)}.")
        if not is_int(count):
            raise ArgumentTypeError(f"{owner}, the argument '{name}' must be integer, but got the type : {type(count)}.")
        if count <= 0:
            raise ArgumentValueError(f"{owner}, the argument '{name}' must be large than 0, but got {count}.")
        self.network, self._count = network, count

    def construct(self, *inputs: Any) -> Any:
        total = self.network(*self._part(0, inputs))
        for k in range(1, self._count):
            total = total + self.network(*self._part(k, inputs))
        return total

    def _part(self, k: int, inputs: Sequence[Any]) -> tuple[Any, ...]:
        rows = {x.shape[0] for x in inputs}
        for n in rows:
            if n % self._count:
                raise ShapeError(
                    f"For micro batch initialization, the 0th dimension shape of input({n}) must be divided by micro size({self._count})"
                )
        return tuple(x[x.shape[0] // self._count * k : x.shape[0] // self._count * (k + 1)] for x in inputs)


class MicroBatchInterleaved(_InParts):
    """A network that gets the mini-batch in `interleave_num` parts; the outputs are added up."""

    def __init__(self, network: Cell, interleave_num: int = 2):
        super().__init__(network, interleave_num, "interleave_num")
        self.interleave_num = interleave_num


class GradAccumulationCell(_InParts):
    """A network that gets the mini-batch in `micro_size` parts; the outputs, and so the gradients, are added up."""

    def __init__(self, network: Cell, micro_size: int):
        super().__init__(network, micro_size, "micro_size")
        self.micro_size = micro_size


class PipelineCell(_InParts):
    """A network that gets the mini-batch in `micro_size` parts; the outputs are added up. There is one stage.

    Args:
        stage_config: name of a Cell inside → the stage to note on it. segment_config: the same for segments.

    Raises:
        KeyError: there is no Cell of that name.
    """

    def __init__(
        self, network: Cell, micro_size: int, stage_config: dict[str, int] | None = None, segment_config: dict[str, int] | None = None
    ):
        super().__init__(network, micro_size, "micro_size")
        self.micro_size = micro_size
        for name, settings in (("stage", stage_config), ("segment", segment_config)):
            self._note(name, settings or {})

    def _note(self, what: str, settings: dict[str, int]) -> None:
        cells = dict(self.network.cells_and_names())
        missing = {name: number for name, number in settings.items() if name not in cells}
        if missing:
            raise MissingKeyError(f"For 'PipelineCell', the argument '{what}_config' : {missing} is not found in 'network' : {self.network}")
        for name, number in settings.items():
            setattr(cells[name], f"pipeline_{what}", number)

    def shard(self, in_strategy: Any, out_strategy: Any = None, parameter_plan: Any = None, device: str = "Ascend", level: int = 0) -> Any:
        """Refused.

        Raises:
            ValueError: always.
        """
        raise ArgumentValueError("For 'PipelineCell', no 'shard' on 'PipelineCell' is allowed.")
