"""Cells around networks, loss scaling, mixed precision: what trains, in which dtype, with which numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.recording import caught, fill, parameters, ramp

Program = Callable[[Any], Any]


def network(ms: Any) -> Any:
    """Dense, BatchNorm and a primitive in one network."""

    class Net(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.fc = ms.nn.Dense(4, 3, activation="relu")
            self.bn = ms.nn.BatchNorm1d(3)
            self.weight = ms.Parameter(ms.Tensor(ramp((3, 3), 2.0)), name="weight")
            self.matmul = ms.ops.MatMul()
            self.last = ms.nn.SequentialCell(ms.nn.Dense(3, 3), ms.nn.BatchNorm1d(3), ms.nn.Tanh())

        def construct(self, x: Any) -> Any:
            return self.last(self.matmul(self.bn(self.fc(x)), self.weight))

    net = Net()
    fill(ms, net)
    return net


def data(ms: Any) -> tuple[Any, Any]:
    return ms.Tensor(ramp((6, 4))), ms.Tensor(ramp((6, 3), 3.0))


def own_step(ms: Any) -> Any:
    """A training step as programs write them."""

    class Step(ms.nn.TrainOneStepCell):
        def __init__(self, network: Any, optimizer: Any, sens: float = 1.0):
            super().__init__(network, optimizer, sens)
            self.grad = ms.ops.GradOperation(get_by_list=True, sens_param=True)
            self.clip = 0.5

        def construct(self, *inputs: Any) -> Any:
            loss = self.network(*inputs)
            sens = ms.ops.fill(loss.dtype, loss.shape, self.sens)
            grads = self.grad(self.network, self.weights)(*inputs, sens)
            grads = tuple(ms.ops.clip_by_value(g, -self.clip, self.clip) for g in self.grad_reducer(grads))
            return ms.ops.depend(loss, self.optimizer(grads))

    return Step


def trained(step: Any, net: Any, inputs: tuple[Any, ...]) -> Any:
    """The losses of three steps, and all Parameters afterwards."""
    losses = [step(*inputs) for _ in range(3)]
    return [losses, {p.name: p.value() if hasattr(p, "value") else p for p in net.get_parameters()}]


def steps(ms: Any) -> Any:
    found = []
    for kind in (ms.nn.TrainOneStepCell, own_step(ms)):
        for sens in (None, 4.0):
            net = network(ms)
            optimizer = ms.nn.Momentum(net.trainable_params(), 0.05, 0.9, loss_scale=4.0 if sens else 1.0)
            wrapped = ms.nn.WithLossCell(net, ms.nn.MSELoss())
            step = kind(wrapped, optimizer) if sens is None and kind is ms.nn.TrainOneStepCell else kind(wrapped, optimizer, sens or 1.0)
            step.set_train()
            found.append([trained(step, net, data(ms)), parameters(step)])
    return found


def gradients_returned(ms: Any) -> Any:
    net = network(ms)
    step = ms.nn.TrainOneStepCell(ms.nn.WithLossCell(net, ms.nn.MSELoss()), ms.nn.SGD(net.trainable_params(), 0.1), return_grad=True)
    return [step(*data(ms)), step.sens, step.sense_flag, step.reducer_flag, step.return_grad, step.weights_name]


def forward_value_and_grad(ms: Any) -> Any:
    found = []
    for get_all, get_by_list, sens in [(a, b, c) for a in (False, True) for b in (False, True) for c in (False, True)]:
        net = ms.nn.WithLossCell(network(ms), ms.nn.MSELoss())
        weights = ms.ParameterTuple(net.trainable_params()) if get_by_list else None
        cell = ms.nn.ForwardValueAndGrad(net, weights, get_all, get_by_list, sens)
        found.append(cell(*data(ms), *((ms.Tensor(3.0, ms.float32),) if sens else ())))
    return found


def other_wrappers(ms: Any) -> Any:
    net, loss = network(ms), ms.nn.MSELoss()
    x, y = data(ms)
    p = ms.Parameter(ms.Tensor([1.0, 2.0]), name="p")
    update = ms.nn.ParameterUpdate(p)
    return [
        ms.nn.WithGradCell(net, loss)(x, y),
        ms.nn.WithGradCell(net, sens=y)(x),
        ms.nn.WithEvalCell(net, loss)(x, y),
        ms.nn.WithEvalCell(ms.nn.ReLU(), loss, True)(x.astype(ms.float16), x.astype(ms.float16)),
        ms.nn.WithLossCell(net, loss).backbone_network is net,
        [update(ms.Tensor([3.0, 4.0])), p],
        str(ms.nn.WithLossCell(ms.nn.Dense(1, 1), loss)),
    ]


def wrong_wrappers(ms: Any) -> Any:
    net = network(ms)
    optimizer = ms.nn.SGD(net.trainable_params(), 0.1)
    return [
        caught(lambda: ms.nn.TrainOneStepCell(net, optimizer, 0)),
        caught(lambda: ms.nn.WithEvalCell(net, net, 1)),
        caught(lambda: ms.nn.ParameterUpdate(3)),
        caught(lambda: ms.nn.ForwardValueAndGrad(3)),
        caught(lambda: ms.nn.ForwardValueAndGrad(net, get_by_list=True)),
        caught(lambda: ms.nn.ForwardValueAndGrad(net, get_all=1)),
        caught(lambda: ms.nn.TrainOneStepWithLossScaleCell(net, optimizer, 3)),
        caught(lambda: ms.nn.TrainOneStepWithLossScaleCell(net, optimizer, ms.Tensor([1.0, 2.0]))),
    ]


def update_cells(ms: Any) -> Any:
    """The scales that a DynamicLossScaleUpdateCell sets, step by step."""
    cell = ms.nn.DynamicLossScaleUpdateCell(8.0, 2, 2)
    scale = ms.Parameter(ms.Tensor(cell.get_loss_scale(), ms.float32), name="scale")
    found = []
    for overflow in (False, False, False, True, True, False, False, False, True, True, True, True):
        given = cell(scale, ms.Tensor(overflow))
        found.append([given, scale.value(), cell.cur_iter.value(), cell.last_overflow_iter.value()])
    fixed = ms.nn.FixedLossScaleUpdateCell(4.0)
    return [found, fixed.get_loss_scale(), fixed(scale, ms.Tensor(True)), parameters(cell), parameters(fixed)]


# -- scalers ---------------------------------------------------------------------------------------------------------------
def scalers(ms: Any) -> Any:
    amp = ms.amp
    fixed, moving = amp.StaticLossScaler(2**10), amp.DynamicLossScaler(2**10, 2, 2)
    sequence = []
    for finite in (True, True, True, False, False, True, True, *(False,) * 12):
        sequence.append([moving.adjust(ms.Tensor(finite)), moving.scale_value.value(), moving.counter.value()])
    return [
        [fixed.scale(ms.Tensor([1.0, 2.0], ms.float16)), fixed.unscale((ms.Tensor([1.5, 1.0], ms.float16), ms.Tensor([1.2])))],
        [fixed.adjust(ms.Tensor(True)), str(fixed.scale_value), str(moving.counter), sequence],
        [moving.scale([ms.Tensor(2.0), ms.Tensor([3.0])]), moving.unscale(ms.Tensor(2.0))],
        [amp.all_finite(x) for x in ((ms.Tensor([1.0]), ms.Tensor([float("inf")])), [ms.Tensor([1.0])], (ms.Tensor([float("nan")], ms.float16),))],
    ]


def managers(ms: Any) -> Any:
    amp = ms.amp
    moving, sequence = amp.DynamicLossScaleManager(8, 2, 2), []
    for overflow in (False, False, True, False, False, True, *(True,) * 6):
        moving.update_loss_scale(overflow)
        sequence.append([moving.get_loss_scale(), moving.cur_iter, moving.last_overflow_iter, moving.bad_step])
    fixed = amp.FixedLossScaleManager()
    kinds = [type(m.get_update_cell()).__name__ for m in (moving, fixed, amp.FixedLossScaleManager(4, False))]
    return [
        sequence, kinds, [moving.get_drop_overflow_update(), fixed.get_drop_overflow_update(), fixed.get_loss_scale(), fixed.update_loss_scale(True)],
        [amp.LossScaleManager().get_loss_scale(), amp.DynamicLossScaleManager().get_loss_scale(), amp.DynamicLossScaleManager().get_update_cell().get_loss_scale()],
    ]  # fmt: skip


def wrong_scalers(ms: Any) -> Any:
    amp = ms.amp
    return [
        caught(action)
        for action in (
            lambda: amp.StaticLossScaler(0.5), lambda: amp.StaticLossScaler("a"), lambda: amp.DynamicLossScaler(4, 0, 2),
            lambda: amp.DynamicLossScaler(4, 2, 2.5), lambda: amp.DynamicLossScaler(True, 2, 2), lambda: amp.LossScaler(),
            lambda: amp.FixedLossScaleManager(0.5), lambda: amp.FixedLossScaleManager("a"), lambda: amp.DynamicLossScaleManager(0.5),
            lambda: amp.DynamicLossScaleManager(scale_factor=0), lambda: amp.DynamicLossScaleManager(scale_window=0),
            lambda: amp.DynamicLossScaleManager(scale_window=1.5), lambda: amp.all_finite(()), lambda: amp.all_finite(ms.Tensor([1, 2])),
        )
    ]  # fmt: skip


# -- levels ----------------------------------------------------------------------------------------------------------------
def level(name: str) -> Program:
    def run(ms: Any) -> Any:
        net = ms.amp.auto_mixed_precision(network(ms), name)
        net.set_train(False)
        x, _ = data(ms)
        out = net(x)
        net.set_train()
        return [out, net(x), parameters(net)]

    return run


def wrong_levels(ms: Any) -> Any:
    amp, net = ms.amp, network(ms)
    optimizer = ms.nn.Momentum(net.trainable_params(), 0.01, 0.9)
    return [
        caught(action)
        for action in (
            lambda: amp.auto_mixed_precision(3), lambda: amp.auto_mixed_precision(net, "O4"), lambda: amp.auto_mixed_precision(net, "O1", ms.float32),
            lambda: amp.auto_mixed_precision(3, "auto"), lambda: amp.custom_mixed_precision(net), lambda: amp.custom_mixed_precision(3),
            lambda: amp.custom_mixed_precision(net, white_list=[], black_list=[]), lambda: amp.custom_mixed_precision(net, white_list=3),
            lambda: amp.custom_mixed_precision(net, white_list=[3]), lambda: amp.custom_mixed_precision(net, white_list=[int]),
            lambda: amp.custom_mixed_precision(net, black_list=[ms.ops.MatMul]),
            lambda: amp.custom_mixed_precision(net, white_list=[ms.nn.Dense], dtype=ms.float32), lambda: amp.build_train_network(net, 3),
            lambda: amp.build_train_network(net, optimizer, 3), lambda: amp.build_train_network(net, optimizer, level="O4"),
            lambda: amp.build_train_network(net, optimizer, level=3), lambda: amp.build_train_network(net, optimizer, foo=1),
            lambda: amp.build_train_network(net, optimizer, cast_model_type=ms.int32),
            lambda: amp.build_train_network(net, optimizer, keep_batchnorm_fp32=1),
            lambda: amp.build_train_network(net, optimizer, loss_scale_manager=3), lambda: amp.build_train_network(net, optimizer, boost_level="O5"),
        )
    ]  # fmt: skip


TRAINED: dict[str, Callable[[Any], dict[str, Any]]] = {
    "O0": lambda ms: {"level": "O0"},
    "O2 unscaled": lambda ms: {"level": "O2", "loss_scale_manager": None},
    "O2 fixed": lambda ms: {"level": "O2", "loss_scale_manager": ms.amp.FixedLossScaleManager(64.0, False)},
    "O3": lambda ms: {"level": "O3"},
    "O3 wide batch norm": lambda ms: {"level": "O3", "keep_batchnorm_fp32": True},
    "O0 narrow": lambda ms: {"cast_model_type": ms.float16},
    "O2 wide": lambda ms: {"level": "O2", "cast_model_type": ms.float32, "loss_scale_manager": None},
}


def training(key: str) -> Program:
    def run(ms: Any) -> Any:
        net = network(ms)
        scale = 64.0 if key == "O2 fixed" else 1.0
        optimizer = ms.nn.Momentum(net.trainable_params(), 0.02, 0.9, loss_scale=scale)
        step = ms.amp.build_train_network(net, optimizer, ms.nn.MSELoss(), **TRAINED[key](ms))
        kinds = [type(step).__name__, type(step.network).__name__, step.training]
        return [kinds, [step(*data(ms)) for _ in range(3)], [str(p.dtype) for p in net.get_parameters()]]

    return run


def programs() -> dict[str, Program]:
    plain = (
        steps, gradients_returned, forward_value_and_grad, other_wrappers, wrong_wrappers, update_cells, scalers, managers, wrong_scalers, wrong_levels,
    )  # fmt: skip
    return {
        **{program.__name__: program for program in plain},
        **{f"level {name}": level(name) for name in ("O0", "O2", "O3")},
        **{f"training {key}": training(key) for key in TRAINED},
    }
