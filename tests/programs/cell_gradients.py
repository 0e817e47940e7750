"""Cells: hooks, gradients of the user's own, losses and training steps."""

from __future__ import annotations

from typing import Any

from tests.recording import caught, fill, parameters, ramp


def hooks(ms: Any) -> Any:
    log: list[Any] = []

    class Net(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.inner = ms.nn.Dense(2, 2, weight_init="ones", bias_init="zeros")

        def construct(self, x: Any, scale: float = 1.0) -> Any:
            return self.inner(x) * scale

    def note(name: str, result: Any = None) -> Any:
        def hook(cell: Any, *args: Any) -> Any:
            log.append((name, type(cell).__name__, *args))
            return result(*args) if result is not None else None

        return hook

    x = ms.Tensor([[1.0, 2.0]])
    net = Net()
    results: list[Any] = []

    def take() -> None:
        results.append(list(log))
        log.clear()

    handles = [net.inner.register_forward_pre_hook(note("pre")), net.inner.register_forward_hook(note("after"))]
    results.append(net(x))
    take()
    for h in handles:
        h.remove()
    results.append(net(x))
    take()
    h = net.inner.register_forward_pre_hook(note("pre", lambda args: args[0] * 2))
    results.append(net(x))
    h.remove()
    h = net.inner.register_forward_pre_hook(note("pre", lambda args: (args[0] * 3,)))
    results.append(net(x))
    h.remove()
    h = net.inner.register_forward_hook(note("after", lambda args, out: out + 1))
    results.append(net(x))
    h.remove()
    log.clear()
    h = net.register_forward_pre_hook(note("kw", lambda args, kwargs: (args, {"scale": 5.0})), with_kwargs=True)
    results.append(net(x, scale=2.0))
    take()
    h.remove()
    h = net.register_forward_hook(note("kw after", lambda args, kwargs, out: out * 10), with_kwargs=True)
    results.append(net(x, scale=2.0))
    take()
    h.remove()
    h = net.inner.register_backward_hook(note("back"))
    results.append(ms.grad(net)(x))
    take()
    h.remove()
    h = net.inner.register_backward_hook(note("back", lambda gin, gout: (gin[0] * 10,)))
    results.append(ms.grad(net)(x))
    log.clear()
    h.remove()
    h = net.inner.register_backward_pre_hook(note("back pre", lambda gout: (gout[0] * 100,)))
    results.append(ms.grad(net)(x))
    take()
    h.remove()
    results.append(ms.grad(net)(x))
    take()
    for register in (net.register_forward_hook, net.register_forward_pre_hook, net.register_backward_hook, net.register_backward_pre_hook):
        results.append(caught(lambda register=register: register(3)))
    return results


def hook_values(ms: Any) -> Any:
    """Hooks that keep nothing, so that they may become part of a graph."""

    class Net(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.inner = ms.nn.Dense(2, 2, weight_init="ones", bias_init="zeros")

        def construct(self, x: Any) -> Any:
            return self.inner(x) * 2.0

    class Pair(ms.nn.Cell):
        def construct(self, x: Any, y: Any) -> Any:
            return x * y, x + y

    x, y = ms.Tensor([[1.0, 2.0]]), ms.Tensor([[3.0, 5.0]])
    net, pair = Net(), Pair()
    weights = net.trainable_params()
    results: list[Any] = []

    def with_hook(register: Any, hook: Any, action: Any) -> None:
        handle = register(hook)
        results.append(action())
        handle.remove()
        results.append(action())

    with_hook(net.inner.register_forward_pre_hook, lambda cell, args: (args[0] * 3,), lambda: net(x))
    with_hook(net.inner.register_forward_hook, lambda cell, args, out: out + args[0], lambda: net(x))
    with_hook(net.inner.register_forward_hook, lambda cell, args, out: out * out, lambda: ms.grad(net, 0, weights)(x))
    with_hook(net.inner.register_backward_hook, lambda cell, gin, gout: (gout[0] * 10,), lambda: ms.grad(net, 0, weights)(x))
    with_hook(net.inner.register_backward_hook, lambda cell, gin, gout: (gin[0] + 1,), lambda: ms.grad(net, 0, weights)(x))
    with_hook(net.inner.register_backward_pre_hook, lambda cell, gout: (gout[0] * 100,), lambda: ms.grad(net, 0, weights)(x))
    with_hook(pair.register_backward_hook, lambda cell, gin, gout: (gin[1], gin[0] * gout[0]), lambda: ms.grad(pair, (0, 1))(x, y))
    with_hook(pair.register_backward_pre_hook, lambda cell, gout: (gout[0] * 2, gout[1] * 3), lambda: ms.grad(pair, (0, 1))(x, y))
    return results


def custom_bprop(ms: Any) -> Any:
    class Double(ms.nn.Cell):
        def construct(self, x: Any, y: Any) -> Any:
            return x * y

        def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any:
            return dout * 100.0, out

    class Net(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.double = Double()

        def construct(self, x: Any, y: Any) -> Any:
            return self.double(x, y) * 2.0

    x, y = ms.Tensor([1.0, 2.0]), ms.Tensor([3.0, 4.0])
    return [ms.grad(Double(), (0, 1))(x, y), ms.grad(Net(), (0, 1))(x, y), Net()(x, y)]


def loss_cells(ms: Any) -> Any:
    nn = ms.nn
    net = nn.Dense(3, 2, weight_init="ones", bias_init="zeros")
    x, y = ms.Tensor(ramp((2, 3))), ms.Tensor(ramp((2, 2), 1.0))
    with_loss = nn.WithLossCell(net, nn.MSELoss())
    evaluate = nn.WithEvalCell(net, nn.MSELoss())
    return [
        with_loss(x, y),
        parameters(with_loss),
        repr(with_loss),
        with_loss.backbone_network is net,
        evaluate(x, y),
        caught(lambda: repr(evaluate)),
        caught(lambda: nn.WithEvalCell(net, nn.MSELoss(), add_cast_fp32=3)),
        nn.WithLossCell(net, lambda a, b: (a - b).sum())(x, y),
    ]


def train_steps(ms: Any) -> Any:
    nn = ms.nn
    x, y = ms.Tensor(ramp((4, 3))), ms.Tensor(ramp((4, 2), 1.0))
    results: list[Any] = []
    for name in ("sgd", "momentum", "adam", "groups", "sens", "grad"):
        net = nn.SequentialCell(nn.Dense(3, 4), nn.Tanh(), nn.Dense(4, 2))
        fill(ms, net)
        optimizer = {
            "sgd": lambda: nn.SGD(net.trainable_params(), 0.1, momentum=0.9),
            "momentum": lambda: nn.Momentum(net.trainable_params(), 0.1, 0.9, weight_decay=0.01),
            "adam": lambda: nn.Adam(net.trainable_params(), 0.1),
            "groups": lambda: nn.Momentum([{"params": net[0].trainable_params(), "lr": [0.1, 0.2, 0.3]}, {"params": net[2].trainable_params()}], 0.1, 0.9),
            "sens": lambda: nn.SGD(net.trainable_params(), 0.1, loss_scale=8.0),
            "grad": lambda: nn.SGD(net.trainable_params(), 0.1),
        }[name]()
        options = {"sens": {"sens": 8.0}, "grad": {"return_grad": True}}.get(name, {})
        step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer, **options)
        step.set_train()
        results.append([name, [step(x, y) for _ in range(3)], [p.value() for p in net.trainable_params()], [p.name for p in step.get_parameters()], [p.name for p in step.trainable_params()]])
    net = nn.Dense(3, 2)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params()))
    results += [repr(step), step.sens, step.training, parameters(step)]
    return results


def forward_value_and_grad(ms: Any) -> Any:
    nn = ms.nn
    net = nn.Dense(3, 2)
    fill(ms, net)
    x, y = ms.Tensor(ramp((2, 3))), ms.Tensor(ramp((2, 2), 1.0))
    loss = nn.WithLossCell(net, nn.MSELoss())
    weights = ms.ParameterTuple(net.trainable_params())
    return [
        nn.ForwardValueAndGrad(loss, weights=weights, get_by_list=True)(x, y),
        nn.ForwardValueAndGrad(loss, get_all=True)(x, y),
        nn.ForwardValueAndGrad(loss, weights=weights, get_all=True, get_by_list=True)(x, y),
        caught(lambda: nn.ForwardValueAndGrad(loss, weights=weights, get_by_list=True, sens_param=True)(x, y, ms.Tensor(2.0))),
        caught(lambda: nn.ForwardValueAndGrad(3)),
        caught(lambda: nn.ParameterUpdate(net.bias)(ms.Tensor([5.0, 6.0]))),
        net.bias.value(),
    ]


def batch_norm_state(ms: Any) -> Any:
    net = ms.nn.BatchNorm2d(2, momentum=0.8)
    net.set_train()
    for k in range(3):
        net(ms.Tensor(ramp((2, 2, 2, 2), float(k))))
    moved = [net.moving_mean.value(), net.moving_variance.value()]
    net.set_train(False)
    return [moved, net(ms.Tensor(ramp((1, 2, 2, 2)))), [net.moving_mean.value(), net.moving_variance.value()], caught(lambda: ms.nn.BatchNorm2d(1).set_train()(ms.Tensor(ramp((1, 1, 1, 1)))))]


def programs() -> dict[str, Any]:
    table = (hooks, hook_values, custom_bprop, loss_cells, train_steps, forward_value_and_grad, batch_norm_state)
    return {f.__name__: f for f in table}
