"""Optimizers: what several steps with given gradients make of the Parameters, and the optimizer's own state by name."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.recording import after_steps, caught, module_first, ramp

STEPS = 10
SHOWN = (0, 3, 9)
RATES = [0.1, 0.05, 0.01, 0.2, 0.3, 0.15, 0.25, 0.35, 0.12, 0.07]

OPTIMIZERS = [
    "nn.SGD(ps)",
    "nn.SGD(ps, 0.05)",
    "nn.SGD(ps, learning_rate=0.05, momentum=0.9)",
    "nn.SGD(ps, learning_rate=0.05, momentum=0.9, dampening=0.3)",
    "nn.SGD(ps, learning_rate=0.05, momentum=0.9, nesterov=True)",
    "nn.SGD(ps, learning_rate=0.05, momentum=0.9, weight_decay=0.01)",
    "nn.SGD(ps, learning_rate=0.05, weight_decay=0.01, loss_scale=4.0)",
    "nn.SGD(ps, learning_rate=0.05, momentum=0.9, nesterov=True, weight_decay=0.1, loss_scale=2.0)",
    "nn.Momentum(ps, 0.1, 0.9)",
    "nn.Momentum(ps, learning_rate=0.1, momentum=0.9, weight_decay=0.01)",
    "nn.Momentum(ps, learning_rate=0.1, momentum=0.9, weight_decay=0.01, loss_scale=8.0)",
    "nn.Momentum(ps, learning_rate=rates, momentum=0.9)",
    "nn.Momentum(ps, learning_rate=tuple(rates), momentum=0.9)",
    "nn.Momentum(ps, learning_rate=Tensor(0.1), momentum=0.9)",
    "nn.Momentum(ps, learning_rate=Tensor(rates), momentum=0.9)",
    "nn.Momentum(ps, learning_rate=(x for x in rates), momentum=0.9)",
    "nn.Momentum(ps, learning_rate=1, momentum=0.9)",
    "nn.Momentum(ps, learning_rate=nn.ExponentialDecayLR(0.1, 0.5, 2), momentum=0.9)",
    "nn.Momentum(ps, learning_rate=nn.ExponentialDecayLR(0.1, 0.5, 2, is_stair=True), momentum=0.9)",
    "nn.Momentum(ps, learning_rate=nn.CosineDecayLR(0.01, 0.1, 3), momentum=0.9)",
    "nn.Momentum(ps, learning_rate=nn.PolynomialDecayLR(0.1, 0.01, 3, 0.5), momentum=0.9)",
    "nn.Momentum(ps, learning_rate=nn.PolynomialDecayLR(0.1, 0.01, 2, 0.5, True), momentum=0.9)",
    "nn.Momentum(ps, learning_rate=nn.WarmUpLR(0.1, 2), momentum=0.9)",
    "nn.Momentum(ps, learning_rate=nn.NaturalExpDecayLR(0.1, 0.9, 4, True), momentum=0.9)",
    "nn.Momentum(ps, learning_rate=nn.NaturalExpDecayLR(0.1, 0.2, 4), momentum=0.9)",
    "nn.Momentum(ps, learning_rate=nn.InverseDecayLR(0.1, 0.5, 4, True), momentum=0.9)",
    "nn.Momentum(ps, learning_rate=0.1, momentum=0.9, weight_decay=nn.ExponentialDecayLR(0.1, 0.5, 2))",
    "nn.Momentum([{'params': [w], 'lr': 0.01, 'weight_decay': 0.1}, {'params': [b, g]}], 0.1, 0.9)",
    "nn.Momentum([{'params': [w], 'lr': 0.01}, {'params': [b, g], 'weight_decay': 0.1}], 0.1, 0.9, weight_decay=0.2)",
    "nn.Momentum([{'params': [g], 'weight_decay': 0.1}, {'params': [w, b]}, {'order_params': [w, b, g]}], 0.1, 0.9)",
    "nn.Momentum([{'params': [w], 'lr': rates}, {'params': [b, g], 'lr': rates[::-1]}], rates, 0.9)",
    "nn.Momentum([{'params': [w], 'lr': nn.ExponentialDecayLR(0.1, 0.5, 2)}, {'params': [b, g]}], 0.1, 0.9)",
    "nn.Momentum([{'params': [w], 'lr': rates}, {'params': [b, g]}], 0.1, 0.9)",
    "nn.Momentum([{'params': [w], 'grad_centralization': True}, {'params': [b, g]}], 0.1, 0.9)",
    "nn.Momentum([{'params': [w, b, g]}], 0.1, 0.9)",
    "nn.Momentum([w, b], 0.1, 0.9)",
    "nn.Momentum([{'params': [w]}, {'params': [b, g]}], 0.1, 0.9, weight_decay=0.3)",
    "nn.Momentum([{'params': [w], 'lr': 0.01}, {'params': [b, g]}], 0.1, 0.9, weight_decay=nn.ExponentialDecayLR(0.1, 0.5, 2), loss_scale=4.0)",
    "nn.SGD([{'params': [g, w], 'weight_decay': 0.2}, {'params': [b]}], 0.1, weight_decay=0.3, loss_scale=2.0)",
    "nn.Momentum((p for p in ps), 0.1, 0.9)",
    "nn.Adam(ps)",
    "nn.Adam(ps, 0.1)",
    "nn.Adam(ps, learning_rate=0.1, beta1=0.8, beta2=0.9, eps=1e-4)",
    "nn.Adam(ps, learning_rate=0.1, use_nesterov=True)",
    "nn.Adam(ps, learning_rate=0.1, use_amsgrad=True)",
    "nn.Adam(ps, learning_rate=0.1, weight_decay=0.1)",
    "nn.Adam(ps, learning_rate=0.1, weight_decay=0.1, loss_scale=16.0)",
    "nn.Adam(ps, learning_rate=0.1, use_locking=True)",
    "nn.Adam(ps, learning_rate=rates)",
    "nn.Adam([{'params': [w], 'lr': 0.01, 'weight_decay': 0.1}, {'params': [b, g]}], 0.1)",
    "nn.Adam(ps, learning_rate=0.1, use_lazy=True)",
    "nn.AdamWeightDecay(ps)",
    "nn.AdamWeightDecay(ps, learning_rate=0.1, weight_decay=0.1)",
    "nn.AdamWeightDecay(ps, learning_rate=0.1, beta1=0.8, beta2=0.9, eps=1e-3)",
    "nn.AdamWeightDecay(ps, learning_rate=rates, weight_decay=0.1)",
    "nn.AdamWeightDecay([{'params': [w], 'lr': 0.01, 'weight_decay': 0.1}, {'params': [b, g]}], 0.1, weight_decay=0.3)",
    "nn.AdamWeightDecay([{'params': [w], 'weight_decay': 0.1}, {'params': [b, g]}], 0.1)",
    "nn.Adagrad(ps)",
    "nn.Adagrad(ps, accum=0.2, learning_rate=0.1, weight_decay=0.1, loss_scale=2.0)",
    "nn.RMSProp(ps)",
    "nn.RMSProp(ps, learning_rate=0.05, decay=0.8, momentum=0.5, epsilon=1e-3, weight_decay=0.1)",
    "nn.RMSProp(ps, learning_rate=0.05, centered=True)",
    "nn.Adadelta(ps, learning_rate=0.5)",
    "nn.AdaMax(ps, learning_rate=0.1)",
    "nn.Rprop(ps, learning_rate=0.1)",
    "nn.ASGD(ps, learning_rate=0.1)",
    "nn.Momentum(ps, 0.1, 0.0)",
    "nn.Momentum([{'params': [w], 'lr': nn.CosineDecayLR(0.01, 0.1, 5), 'weight_decay': nn.ExponentialDecayLR(0.1, 0.5, 2)}, {'params': [b, g]}], 0.1, 0.9)",
    "nn.Momentum([{'params': [w], 'weight_decay': 0.1, 'grad_centralization': True}, {'params': [b, g], 'lr': 0.3}, {'order_params': [g, w, b]}], 0.1, 0.9)",
    "nn.Adam(ps, learning_rate=nn.CosineDecayLR(0.01, 0.1, 5), weight_decay=0.05)",
    "nn.Adam(ps, learning_rate=0.1, weight_decay=nn.ExponentialDecayLR(0.1, 0.5, 2))",
    "nn.Adam([{'params': [w], 'lr': 0.01}, {'params': [b, g], 'weight_decay': 0.1}, {'order_params': [b, w, g]}], 0.1, loss_scale=2.0)",
    "nn.Adam(ps, learning_rate=0.1, use_nesterov=True, weight_decay=0.1, loss_scale=2.0)",
    "nn.Adam(ps, learning_rate=0.1, use_offload=True)",
    "nn.AdamWeightDecay(ps, learning_rate=nn.PolynomialDecayLR(0.1, 0.01, 6, 0.5), weight_decay=0.1)",
    "nn.AdamWeightDecay(ps, learning_rate=0.1, weight_decay=nn.ExponentialDecayLR(0.1, 0.5, 2))",
    "nn.AdamOffload(ps, 0.1)",
    "nn.AdamOffload(ps, learning_rate=0.1, beta1=0.8, beta2=0.9, eps=1e-4, use_nesterov=True, weight_decay=0.1, loss_scale=2.0)",
    "nn.LazyAdam(ps, 0.1)",
    "nn.LazyAdam(ps, learning_rate=0.1, beta1=0.8, beta2=0.9, eps=1e-4, use_nesterov=True, weight_decay=0.1, loss_scale=2.0)",
    "nn.LazyAdam([{'params': [w], 'lr': 0.01, 'weight_decay': 0.1}, {'params': [b, g]}], 0.1)",
    "nn.FTRL(ps)",
    "nn.FTRL(ps, learning_rate=0.1)",
    "nn.FTRL(ps, initial_accum=0.3, learning_rate=0.1, lr_power=-0.3, l2=0.3)",
    "nn.FTRL(ps, learning_rate=0.1, lr_power=0.0)",
    "nn.FTRL(ps, learning_rate=0.1, l2=0.1, use_locking=True, weight_decay=0.1, loss_scale=2.0)",
    "nn.FTRL([{'params': [w], 'lr': 0.01, 'weight_decay': 0.1}, {'params': [b, g]}], learning_rate=0.1)",
    "nn.FTRL(ps, learning_rate=rates)",
    "nn.ProximalAdagrad(ps)",
    "nn.ProximalAdagrad(ps, accum=0.2, learning_rate=0.1, l1=0.3, l2=0.2, weight_decay=0.1, loss_scale=2.0)",
    "nn.ProximalAdagrad(ps, learning_rate=0.1, l1=0.1)",
    "nn.ProximalAdagrad(ps, learning_rate=rates, l2=0.3)",
    "nn.AdaFactor(ps)",
    "nn.AdaFactor(ps, learning_rate=0.1, relative_step=False)",
    "nn.AdaFactor(ps, learning_rate=0.1, relative_step=False, scale_parameter=False, weight_decay=0.1)",
    "nn.AdaFactor(ps, learning_rate=rates, relative_step=False)",
    "nn.AdaFactor(ps, eps=(1e-3, 0.1), clip_threshold=0.2, decay_rate=0.5, beta1=0.5, loss_scale=4.0)",
    "nn.AdaFactor(ps, warmup_init=True)",
    "nn.AdaFactor(ps, compression=True)",
    "nn.AdaFactor(ps, loss_scale=4.0, weight_decay=0.1)",
    "nn.Adagrad([{'params': [w], 'lr': 0.01, 'weight_decay': 0.1}, {'params': [b, g]}], learning_rate=0.1)",
    "nn.RMSProp(ps, learning_rate=0.05, decay=0.8, momentum=0.5, centered=True, weight_decay=0.1, loss_scale=2.0)",
    "nn.RMSProp([{'params': [w], 'lr': 0.01, 'weight_decay': 0.1}, {'params': [b, g]}], learning_rate=0.1)",
    "nn.RMSProp(ps, learning_rate=rates)",
    "nn.Adadelta(ps, learning_rate=0.5, rho=0.7, epsilon=1e-3, weight_decay=0.1, loss_scale=2.0)",
    "nn.Adadelta(ps, learning_rate=rates)",
    "nn.AdaMax(ps, learning_rate=0.1, beta1=0.8, beta2=0.9, eps=1e-4, weight_decay=0.1, loss_scale=2.0)",
    "nn.AdaMax(ps, learning_rate=rates)",
    "nn.Rprop(ps, learning_rate=0.1, etas=(0.3, 1.5), step_sizes=(1e-3, 0.2), weight_decay=0.1)",
    "nn.ASGD(ps, learning_rate=0.1, lambd=0.01, alpha=0.5, t0=3.0, weight_decay=0.1)",
    "nn.ASGD(ps, learning_rate=rates)",
    "nn.Rprop(ps, learning_rate=rates)",
    "nn.SGD(ps, learning_rate=nn.ExponentialDecayLR(0.1, 0.5, 2), momentum=0.9, weight_decay=0.1)",
    "nn.SGD([{'params': [w], 'lr': rates}, {'params': [b, g], 'weight_decay': 0.2}], rates[::-1], momentum=0.9)",
]

ERRORS = [
    "nn.Momentum([], 0.1, 0.9)",
    "nn.Momentum(w, 0.1, 0.9)",
    "nn.Momentum(3, 0.1, 0.9)",
    "nn.Momentum([1, 2], 0.1, 0.9)",
    "nn.Momentum([Tensor(1.0)], 0.1, 0.9)",
    "nn.Momentum([w, w], 0.1, 0.9)",
    "nn.Momentum([w, {'params': [b]}], 0.1, 0.9)",
    "nn.Momentum([{'params': [w], 'speed': 1}], 0.1, 0.9)",
    "nn.Momentum([{'lr': 1.0}], 0.1, 0.9)",
    "nn.Momentum([{'params': []}], 0.1, 0.9)",
    "nn.Momentum([{'params': w}], 0.1, 0.9)",
    "nn.Momentum([{'params': [w]}, {'params': [w]}], 0.1, 0.9)",
    "nn.Momentum([{'params': [w]}, {'order_params': [w, b]}], 0.1, 0.9)",
    "nn.Momentum([{'params': [w, b]}, {'order_params': [w]}], 0.1, 0.9)",
    "nn.Momentum([{'params': [w], 'weight_decay': -1.0}], 0.1, 0.9)",
    "nn.Momentum([{'params': [w], 'weight_decay': 'x'}], 0.1, 0.9)",
    "nn.Momentum([{'params': [w], 'lr': 'x'}], 0.1, 0.9)",
    "nn.Momentum([{'params': [w], 'grad_centralization': 1}], 0.1, 0.9)",
    "nn.Momentum(ps)",
    "nn.Momentum(ps, 0.1)",
    "nn.Momentum(ps, -0.1, 0.9)",
    "nn.Momentum(ps, True, 0.9)",
    "nn.Momentum(ps, 'fast', 0.9)",
    "nn.Momentum(ps, None, 0.9)",
    "nn.Momentum(ps, [], 0.9)",
    "nn.Momentum(ps, ['x'], 0.9)",
    "nn.Momentum(ps, [-0.1, 0.1], 0.9)",
    "nn.Momentum(ps, [1, 2], 0.9)",
    "nn.Momentum(ps, Tensor([[0.1]]), 0.9)",
    "nn.Momentum(ps, Tensor([0.1]), 0.9)",
    "nn.Momentum(ps, 0.1, -0.9)",
    "nn.Momentum(ps, 0.1, 1)",
    "nn.Momentum(ps, 0.1, True)",
    "nn.Momentum(ps, 0.1, 'x')",
    "nn.Momentum(ps, 0.1, 0.9, weight_decay=-0.1)",
    "nn.Momentum(ps, 0.1, 0.9, weight_decay='x')",
    "nn.Momentum(ps, 0.1, 0.9, weight_decay=1)",
    "nn.Momentum(ps, 0.1, 0.9, weight_decay=True)",
    "nn.Momentum(ps, 0.1, 0.9, loss_scale=0.0)",
    "nn.Momentum(ps, 0.1, 0.9, loss_scale=2)",
    "nn.Momentum(ps, 0.1, 0.9, loss_scale='x')",
    "nn.Momentum(ps, 0.1, 0.9, use_nesterov=1)",
    "nn.SGD(ps, 0.1, -0.5)",
    "nn.SGD(ps, 0.1, 1)",
    "nn.SGD(ps, 0.1, 'x')",
    "nn.SGD(ps, 0.1, dampening=-0.5)",
    "nn.SGD(ps, 0.1, dampening='x')",
    "nn.SGD(ps, 0.1, nesterov=True)",
    "nn.SGD(ps, 0.1, nesterov=1)",
    "nn.SGD(ps, 0.1, momentum=0.5, dampening=0.5, nesterov=True)",
    "nn.Adam(ps, beta1=1.0)",
    "nn.Adam(ps, beta1=-0.1)",
    "nn.Adam(ps, beta1=0.0)",
    "nn.Adam(ps, beta1=1)",
    "nn.Adam(ps, beta2='x')",
    "nn.Adam(ps, eps=0.0)",
    "nn.Adam(ps, eps=1)",
    "nn.Adam(ps, eps='x')",
    "nn.Adam(ps, use_nesterov=1)",
    "nn.Adam(ps, use_amsgrad='x')",
    "nn.Adam(ps, use_locking=0)",
    "nn.Adam(ps, weight_decay=-1.0)",
    "nn.Adam(ps, unknown=1)",
    "nn.Adam()",
    "nn.AdamWeightDecay(ps, beta1=2.0)",
    "nn.AdamWeightDecay(ps, eps=-1.0)",
    "nn.AdamWeightDecay(ps, weight_decay=-1.0)",
    "nn.Adagrad(ps, accum=-1.0)",
    "nn.RMSProp(ps, decay=-1.0)",
    "nn.RMSProp(ps, momentum=-1.0)",
    "nn.RMSProp(ps, epsilon=0.0)",
    "nn.FTRL(ps, initial_accum=-1.0)",
    "nn.FTRL(ps, lr_power=1.0)",
    "nn.FTRL(ps, l1=-1.0)",
    "nn.FTRL(ps, l2=1)",
    "nn.FTRL(ps, use_locking=1)",
    "nn.ProximalAdagrad(ps, accum=-1.0)",
    "nn.ProximalAdagrad(ps, l1=-1.0)",
    "nn.ProximalAdagrad(ps, l2='x')",
    "nn.LazyAdam(ps, beta1=1.0)",
    "nn.LazyAdam(ps, eps=0.0)",
    "nn.AdamOffload(ps, use_nesterov=1)",
    "nn.AdaFactor(ps, learning_rate=0.1)",
    "nn.AdaFactor(ps, warmup_init=True, relative_step=False)",
    "nn.AdaFactor(ps, relative_step=False)",
    "nn.AdaFactor(ps, clip_threshold=-1.0)",
    "nn.AdaFactor(ps, decay_rate='x')",
    "nn.AdaFactor(ps, decay_rate=2.0)",
    "nn.AdaFactor(ps, beta1=-1.0)",
    "nn.AdaFactor(ps, eps=1e-3)",
    "nn.AdaFactor(ps, compression=1)",
    "nn.LARS(nn.Momentum(ps, 0.1, 0.9), epsilon=1)",
    "nn.LARS(nn.Momentum(ps, 0.1, 0.9), use_clip=1)",
    "nn.AdaSumByGradWrapCell(nn.Momentum(ps, 0.1, 0.9))",
    "nn.AdaSumByDeltaWeightWrapCell(nn.Momentum(ps, 0.1, 0.9))",
    "nn.AdaMax(ps, beta2=1.0)",
    "nn.Adadelta(ps, rho=2.0)",
    "nn.Adadelta(ps, epsilon=-1.0)",
    "nn.Rprop(ps, etas=(0.5,))",
    "nn.Rprop(ps, etas=[0.5, 1.2])",
    "nn.Rprop(ps, step_sizes=(1.0, 0.5))",
    "nn.Rprop(ps, etas=(1.5, 2.0))",
    "nn.ASGD(ps, lambd=1)",
    "nn.ASGD(ps, alpha='x')",
    "nn.ExponentialDecayLR(-0.1, 0.5, 2)",
    "nn.ExponentialDecayLR(0.1, 0.5, 0)",
    "nn.ExponentialDecayLR(0.1, 0.5, 2.0)",
    "nn.CosineDecayLR(0.1, 0.01, 2)",
    "nn.WarmUpLR(0.1, 0)",
    "nn.PolynomialDecayLR(0.1, 0.01, 2, -1.0)",
    "nn.piecewise_constant_lr([2, 4], [0.1, 0.05])",
    "nn.piecewise_constant_lr([4, 2], [0.1, 0.05])",
    "nn.piecewise_constant_lr([2], [0.1, 0.05])",
    "nn.cosine_decay_lr(0.01, 0.1, 6, 2, 2)",
    "nn.cosine_decay_lr(0.2, 0.1, 6, 2, 2)",
    "nn.exponential_decay_lr(0.1, 0.9, 6, 2, 1)",
    "nn.exponential_decay_lr(0.1, 0.9, 6, 2, 2, True)",
    "nn.natural_exp_decay_lr(0.1, 0.9, 6, 2, 2)",
    "nn.inverse_decay_lr(0.1, 0.5, 6, 1, 1, True)",
    "nn.polynomial_decay_lr(0.1, 0.01, 6, 2, 2, 0.5)",
    "nn.polynomial_decay_lr(0.1, 0.01, 6, 2, 2, 0.5, True)",
    "nn.warmup_lr(0.1, 6, 2, 2)",
    "nn.warmup_lr(0.1, 6, 2, 0)",
]


def network(ms: Any) -> Any:
    class Net(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w = ms.Parameter(ms.Tensor(ramp((3, 2))), name="w")
            self.b = ms.Parameter(ms.Tensor(ramp((2,), 1.0)), name="bias")
            self.gamma = ms.Parameter(ms.Tensor(ramp((2,), 2.0)), name="gamma")

        def construct(self, x: Any) -> Any:
            return (ms.ops.matmul(x, self.w) + self.b) * self.gamma

    return Net()


def make(ms: Any, expression: str, net: Any) -> Any:
    scope = {"ms": ms, "nn": ms.nn, "Tensor": ms.Tensor, "ps": net.trainable_params(), "w": net.w, "b": net.b, "g": net.gamma, "rates": RATES}
    return eval(expression, scope)


def steps(ms: Any, expression: str) -> dict[str, Any]:
    net = network(ms)
    optimizer = make(ms, expression, net)
    if "LARS" in expression:
        optimizer = optimizer.opt
    trained = list(optimizer.parameters)
    after = after_steps(ms, optimizer, STEPS, SHOWN)
    names = {p.name for p in trained}
    state = {p.name: p.value() for p in optimizer.get_parameters() if p.name not in names}
    return {"printed": repr(optimizer), "trained": [p.name for p in trained], "steps": after, "state": state, "parameters": [str(p) for p in optimizer.get_parameters()]}


def error(ms: Any, expression: str) -> Any:
    result = make(ms, expression, network(ms))
    return "accepted" if isinstance(result, ms.nn.Cell) else result


def attributes(ms: Any) -> Any:
    net = network(ms)
    groups = [{"params": [net.w], "lr": 0.01, "weight_decay": 0.1}, {"params": [net.b, net.gamma]}, {"order_params": net.trainable_params()}]
    one = ms.nn.Momentum(net.trainable_params(), 0.1, 0.9, weight_decay=0.1, loss_scale=2.0)
    many = ms.nn.Momentum(groups, 0.1, 0.9)
    dynamic = ms.nn.Momentum(net.trainable_params(), [0.1, 0.2], 0.9)
    return [
        [one.is_group, many.is_group, dynamic.is_group],
        [one.is_group_lr, many.is_group_lr],
        [one.dynamic_lr, dynamic.dynamic_lr],
        [one.loss_scale, one.weight_decay, one.need_scale, one.exec_weight_decay],
        [one.get_lr(), dynamic.get_lr()],
        one.get_lr_parameter(net.w),
        many.get_lr_parameter([net.w, net.b]),
        [one.global_step.value(), dynamic.global_step.value()],
        caught(lambda: one.get_lr_parameter(3)),
        one.unique,
        [p.name for p in many.parameters],
        one.get_weight_decay(),
        many.get_weight_decay(),
        one.scale_grad((ms.Tensor([2.0]), ms.Tensor([4.0]), ms.Tensor([6.0]))),
        one.learning_rate.value(),
        [p.name for p in many.learning_rate],
    ]


def own(ms: Any) -> Any:
    """An optimizer that a user wrote."""
    ops = ms.ops

    class Own(ms.nn.Optimizer):
        def __init__(self, params: Any, learning_rate: float, momentum: float = 0.9):
            super().__init__(learning_rate, params)
            self.momentum = ms.Parameter(ms.Tensor(momentum, ms.float32), name="momentum")
            self.moments = self.parameters.clone(prefix="moments", init="zeros")
            self.assign = ops.Assign()

        def construct(self, gradients: Any) -> Any:
            lr = self.get_lr()
            params = self.parameters
            for i in range(len(params)):
                self.assign(self.moments[i], self.moments[i] * self.momentum + gradients[i])
                update = params[i] - self.moments[i] * lr
                self.assign(params[i], update)
            return params

    net = network(ms)
    optimizer = Own(net.trainable_params(), 0.1)
    for k in range(3):
        optimizer(tuple(ms.Tensor(ramp(p.shape, 3.0 + k)) for p in net.trainable_params()))
    return [[p.value() for p in net.trainable_params()], [p.name for p in optimizer.get_parameters()]]


def wrong_gradients(ms: Any) -> Any:
    net = network(ms)
    optimizer = ms.nn.Momentum(net.trainable_params(), 0.1, 0.9)
    good = tuple(ms.Tensor(ramp(p.shape, 3.0)) for p in net.trainable_params())
    return [
        caught(lambda: optimizer(good[0])),
        caught(lambda: optimizer()),
        caught(lambda: optimizer((ms.Tensor([1.0]), *good[1:]))),
    ]


def programs() -> dict[str, Any]:
    found: dict[str, Any] = {expression: partial(module_first, steps, expression) for expression in OPTIMIZERS}
    found |= {f.__name__: f for f in (attributes, own, wrong_gradients)}
    found |= {expression: partial(module_first, error, expression) for expression in ERRORS}
    return found
