"""The optimizers of `experimental.optim` and `mint.optim`: what steps with given gradients make of the Parameters and of their state, what
schedulers make of the learning rates, and what is refused."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

from tests.recording import after_steps, caught, module_first, ramp

STEPS = 10
SHOWN = (0, 1, 3, 9)

OPTIMIZERS = [
    "optim.SGD(ps, 0.1)",
    "optim.SGD(ps, 1)",
    "optim.SGD(ps, Tensor(0.1))",
    "optim.SGD(ps, 0.1, momentum=0.9)",
    "optim.SGD(ps, 0.1, momentum=0.9, dampening=0.3)",
    "optim.SGD(ps, 0.1, momentum=0.9, nesterov=True)",
    "optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.1)",
    "optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.1, maximize=True)",
    "optim.SGD(ps, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1, maximize=True)",
    "optim.SGD([{'params': [w], 'lr': 0.02, 'weight_decay': 0.1}, {'params': [b, g], 'momentum': 0.5}], 0.1, momentum=0.9)",
    "optim.SGD([{'params': [b], 'maximize': True, 'nesterov': True}, {'params': [w, g], 'dampening': 0.5}], 0.1, momentum=0.9)",
    "optim.SGD((p for p in ps), 0.1)",
    "optim.SGD([{'params': w}, {'params': (b, g), 'note': 'mine'}], 0.1)",
    "optim.Adam(ps)",
    "optim.Adam(ps, 0.1)",
    "optim.Adam(ps, lr=0.1, betas=(0.8, 0.9), eps=0.01)",
    "optim.Adam(ps, lr=0.1, betas=(0.0, 0.9), eps=0.01)",
    "optim.Adam(ps, lr=0.1, weight_decay=0.1)",
    "optim.Adam(ps, lr=0.1, weight_decay=0.1, maximize=True)",
    "optim.Adam([{'params': [w], 'lr': 0.01, 'weight_decay': 0.1}, {'params': [b, g], 'betas': (0.5, 0.6), 'eps': 0.1}], 0.1)",
    "optim.AdamW(ps)",
    "optim.AdamW(ps, 0.1, weight_decay=0.1)",
    "optim.AdamW(ps, lr=0.1, betas=(0.8, 0.9), eps=0.01)",
    "optim.AdamW(ps, lr=0.1, betas=(0.8, 0.5), eps=0.01, weight_decay=0.1, amsgrad=True)",
    "optim.AdamW(ps, lr=0.1, weight_decay=0.1, maximize=True)",
    "optim.AdamW(ps, lr=0.1, weight_decay=0.0)",
    "optim.AdamW([{'params': [w], 'lr': 0.01, 'weight_decay': 0.3}, {'params': [b, g], 'betas': (0.5, 0.6), 'eps': 0.1}], 0.1)",
    "optim.Adadelta(ps)",
    "optim.Adadelta(ps, lr=0.5, rho=0.7, eps=0.01, weight_decay=0.1)",
    "optim.Adadelta(ps, lr=0.5, weight_decay=0.1, maximize=True)",
    "optim.Adadelta([{'params': [w], 'lr': 0.1, 'weight_decay': 0.1}, {'params': [b, g], 'rho': 0.5}], 0.5)",
    "optim.Adagrad(ps)",
    "optim.Adagrad(ps, lr=0.1, lr_decay=0.2, weight_decay=0.1, initial_accumulator_value=0.3, eps=0.01)",
    "optim.Adagrad(ps, lr=0.1, weight_decay=0.1, maximize=True)",
    "optim.Adagrad([{'params': [w], 'lr': 0.01, 'lr_decay': 0.1}, {'params': [b, g], 'weight_decay': 0.1}], 0.1)",
    "optim.ASGD(ps)",
    "optim.ASGD(ps, lr=0.1, lambd=0.01, alpha=0.5, t0=3.0, weight_decay=0.1)",
    "optim.ASGD(ps, lr=0.1, weight_decay=0.1, maximize=True)",
    "optim.ASGD([{'params': [w], 'lr': 0.01, 'lambd': 0.1}, {'params': [b, g], 't0': 2.0}], 0.1)",
    "optim.Adamax(ps)",
    "optim.Adamax(ps, lr=0.1, betas=(0.8, 0.9), eps=0.01, weight_decay=0.1)",
    "optim.Adamax(ps, lr=0.1, weight_decay=0.1, maximize=True)",
    "optim.Adamax([{'params': [w], 'lr': 0.01}, {'params': [b, g], 'betas': (0.5, 0.6)}], 0.1)",
    "optim.RMSprop(ps)",
    "optim.RMSprop(ps, lr=0.05, alpha=0.8, eps=0.01, weight_decay=0.1)",
    "optim.RMSprop(ps, lr=0.05, alpha=0.8, eps=0.01, momentum=0.5)",
    "optim.RMSprop(ps, lr=0.05, alpha=0.8, eps=0.01, centered=True)",
    "optim.RMSprop(ps, lr=0.05, alpha=0.8, eps=0.01, momentum=0.5, centered=True, weight_decay=0.1, maximize=True)",
    "optim.RMSprop([{'params': [w], 'lr': 0.01, 'momentum': 0.5}, {'params': [b, g], 'centered': True}], 0.1)",
    "optim.Rprop(ps)",
    "optim.Rprop(ps, lr=0.1, etas=(0.3, 1.5), step_sizes=(0.05, 0.2))",
    "optim.Rprop(ps, lr=0.1, maximize=True)",
    "optim.Rprop([{'params': [w], 'lr': 0.01, 'weight_decay': 0.1}, {'params': [b, g], 'etas': (0.2, 1.3)}], 0.1)",
    "optim.RAdam(ps)",
    "optim.RAdam(ps, lr=0.1, betas=(0.8, 0.9), eps=0.01, weight_decay=0.1)",
    "optim.RAdam(ps, lr=0.1, betas=(0.8, 0.99), eps=0.01)",
    "optim.RAdam([{'params': [w], 'lr': 0.01, 'weight_decay': 0.1}, {'params': [b, g], 'betas': (0.5, 0.9)}], 0.1)",
    "optim.NAdam(ps)",
    "optim.NAdam(ps, lr=0.1, betas=(0.8, 0.9), eps=0.01, weight_decay=0.1, momentum_decay=0.01)",
    "optim.NAdam([{'params': [w], 'lr': 0.01, 'weight_decay': 0.1}, {'params': [b, g], 'betas': (0.5, 0.9), 'momentum_decay': 0.1}], 0.1)",
]

SCHEDULERS = [
    "S.StepLR(o, 2)",
    "S.StepLR(o, 3, 0.5)",
    "S.LinearLR(o)",
    "S.LinearLR(o, start_factor=0.5, end_factor=0.25, total_iters=4)",
    "S.LinearLR(o, start_factor=1, total_iters=0)",
    "S.ExponentialLR(o, 0.9)",
    "S.PolynomialLR(o)",
    "S.PolynomialLR(o, 4, 2.0)",
    "S.MultiplicativeLR(o, lambda e: 0.95)",
    "S.MultiplicativeLR(o, [lambda e: 0.95, lambda e: 1 / (e + 1)])",
    "S.LambdaLR(o, lambda e: 0.95 ** e)",
    "S.LambdaLR(o, [lambda e: 0.95 ** e, lambda e: 1 / (e + 1)])",
    "S.LambdaLR(o, lambda e: 1.0 if e < 3 else 0.1)",
    "S.ConstantLR(o)",
    "S.ConstantLR(o, 0.5, 3)",
    "S.MultiStepLR(o, [2, 5])",
    "S.MultiStepLR(o, [5, 2, 5], 0.5)",
    "S.MultiStepLR(o, [])",
    "S.SequentialLR(o, [S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.9)], [3])",
    "S.SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 2), S.ExponentialLR(o, 0.9), S.StepLR(o, 2)], [3, 5])",
    "S.SequentialLR(o, [S.CosineAnnealingLR(o, 4)], [])",
    "S.CyclicLR(o, 0.01, 0.1, 2)",
    "S.CyclicLR(o, [0.01, 0.02], [0.1, 0.3], 2, 3)",
    "S.CyclicLR(o, 0.01, 0.1, 2, mode='triangular2')",
    "S.CyclicLR(o, 0.01, 0.1, 2, mode='exp_range', gamma=0.9)",
    "S.CyclicLR(o, 0.01, 0.1, 2, scale_fn=lambda x: 1 / (x + 1))",
    "S.CyclicLR(o, 0.01, 0.1, 2, scale_fn=lambda x: 1 / (x + 1), scale_mode='iterations')",
    "S.CosineAnnealingWarmRestarts(o, 3)",
    "S.CosineAnnealingWarmRestarts(o, 2, 2, 0.01)",
    "S.CosineAnnealingLR(o, 4)",
    "S.CosineAnnealingLR(o, 4, 0.01)",
    "S.CosineAnnealingLR(o, 4, 1)",
    "Halving(o)",
]

EPOCHS = {
    "S.StepLR(o, 2)": [4, 6, 3, None],
    "S.LinearLR(o)": [4, 6, 3, None],
    "S.PolynomialLR(o)": [4, 6, 3],
    "S.ExponentialLR(o, 0.9)": [4, 6, 3, None],
    "S.ConstantLR(o, 0.5, 3)": [1, 6, 2, None],
    "S.CosineAnnealingLR(o, 4)": [4, 6, 3, None],
    "S.LambdaLR(o, lambda e: 0.9 ** e)": [4, 6, 3, None],
    "S.MultiplicativeLR(o, lambda e: 0.9)": [4, 6, 3, None],
    "S.CyclicLR(o, 0.01, 0.1, 2)": [4, 6, 3, None],
    "S.CosineAnnealingWarmRestarts(o, 2, 1, 0.01)": [0, 0.5, 1.5, 2.5, 7.0, 3, None],
}

PLATEAUS: list[tuple[str, list[float]]] = [
    ("S.ReduceLROnPlateau(o, 'min', 0.1, 1)", [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.4, 0.5]),
    ("S.ReduceLROnPlateau(o, 'max', 0.5, 1, cooldown=2, min_lr=[0.03, 0.04])", [1.0] * 12),
    ("S.ReduceLROnPlateau(o, 'max', 0.5, 1, threshold=0.1, threshold_mode='abs')", [1.0 + 0.06 * k for k in range(8)]),
    ("S.ReduceLROnPlateau(o, 'min', 0.5, 0, eps=0.02)", [1.0] * 8),
    ("S.ReduceLROnPlateau(o, 'min', 0.5, 0)", [float("nan"), 1.0, 2.0]),
    ("S.ReduceLROnPlateau(o, 'max', 0.5, 1)", [-1.0, -1.5, -2.0, -0.5, -0.5, -0.5]),
    ("S.ReduceLROnPlateau(o, factor=0.5, patience=0, min_lr=(0.1, 0.01))", [1, 1, 1, 1]),
]

ERRORS = [
    "optim.SGD([], 0.1)",
    "optim.SGD(None, 0.1)",
    "optim.SGD(3, 0.1)",
    "optim.SGD([1, 2], 0.1)",
    "optim.SGD([Tensor(1.0)], 0.1)",
    "optim.SGD([w, w], 0.1)",
    "optim.SGD([w, {'params': [b]}], 0.1)",
    "optim.SGD([{'lr': 0.2}], 0.1)",
    "optim.SGD([{'params': []}], 0.1)",
    "optim.SGD([{'params': 'w'}], 0.1)",
    "optim.SGD([{'params': {w}}], 0.1)",
    "optim.SGD([{'params': [w]}, {'params': [w]}], 0.1)",
    "optim.SGD([{'params': [w], 'speed': 1}], 0.1)",
    "optim.SGD([{'params': [w], 'lr': -0.2}], 0.1)",
    "optim.SGD([{'params': [w], 'lr': 'x'}], 0.1)",
    "optim.SGD([{'params': [w], 'weight_decay': -0.2}], 0.1)",
    "optim.SGD([{'params': [w], 'weight_decay': 'x'}], 0.1)",
    "optim.SGD(ps)",
    "optim.SGD(ps, None)",
    "optim.SGD(ps, 'x')",
    "optim.SGD(ps, True)",
    "optim.SGD(ps, -0.1)",
    "optim.SGD(ps, Tensor([0.1, 0.2]))",
    "optim.SGD(ps, [0.1])",
    "optim.SGD(ps, 0.1, weight_decay=-1.0)",
    "optim.SGD(ps, 0.1, weight_decay='x')",
    "optim.SGD(ps, 0.1, weight_decay=Tensor(0.1))",
    "optim.SGD(ps, 0.1, momentum=-1.0)",
    "optim.SGD(ps, 0.1, momentum='x')",
    "optim.SGD(ps, 0.1, momentum=1)",
    "optim.SGD(ps, 0.1, dampening='x')",
    "optim.SGD(ps, 0.1, nesterov=1)",
    "optim.SGD(ps, 0.1, nesterov=True)",
    "optim.SGD(ps, 0.1, momentum=0.9, dampening=0.1, nesterov=True)",
    "optim.SGD(ps, 0.1, maximize=1)",
    "optim.SGD(ps, 0.1, 0.9, 0, 0, False, True)",
    "optim.SGD(ps, 0.1).add_param_group(3)",
    "optim.SGD(ps, 0.1).add_param_group({'lr': 0.1})",
    "optim.SGD(ps, 0.1).add_param_group({'params': [w]})",
    "optim.SGD(ps, 0.1).add_param_group({'params': [3]})",
    "optim.Optimizer(ps, {'weight_decay': 0.1})",
    "optim.Optimizer(ps, {'lr': 0.1})",
    "optim.Adam(ps, betas=0.9)",
    "optim.Adam(ps, betas=[0.9, 0.99])",
    "optim.Adam(ps, betas=(1.0, 0.9))",
    "optim.Adam(ps, betas=(0.9, -0.1))",
    "optim.Adam(ps, betas=('x', 0.9))",
    "optim.Adam(ps, eps=-1.0)",
    "optim.Adam(ps, eps=0)",
    "optim.Adam(ps, eps='x')",
    "optim.Adam(ps, lr='x')",
    "optim.Adam(ps, lr=-1.0)",
    "optim.Adam(ps, weight_decay=-1.0)",
    "optim.AdamW(ps, betas=(0.9, 1.0))",
    "optim.AdamW(ps, eps=-1.0)",
    "optim.AdamW(ps, weight_decay=-1.0)",
    "optim.AdamW(ps, lr=None)",
    "optim.Adadelta(ps, lr=0.0)",
    "optim.Adadelta(ps, rho=1.5)",
    "optim.Adadelta(ps, rho='x')",
    "optim.Adadelta(ps, rho=1)",
    "optim.Adadelta(ps, eps=0.0)",
    "optim.Adadelta(ps, weight_decay=-1.0)",
    "optim.Adagrad(ps, lr_decay=-1.0)",
    "optim.Adagrad(ps, lr_decay='x')",
    "optim.Adagrad(ps, initial_accumulator_value=-1.0)",
    "optim.Adagrad(ps, eps=0.0)",
    "optim.Adagrad(ps, lr=-1.0)",
    "optim.ASGD(ps, lambd='x')",
    "optim.ASGD(ps, t0=5)",
    "optim.ASGD(ps, lr=-1.0)",
    "optim.ASGD(ps, weight_decay=-1.0)",
    "optim.Adamax(ps, betas=(1.0, 0.9))",
    "optim.Adamax(ps, betas=('x', 0.9))",
    "optim.Adamax(ps, eps=0.0)",
    "optim.Adamax(ps, lr=0.0)",
    "optim.RMSprop(ps, alpha=-1.0)",
    "optim.RMSprop(ps, eps=0.0)",
    "optim.RMSprop(ps, momentum=-1.0)",
    "optim.RMSprop(ps, momentum='x')",
    "optim.RMSprop(ps, lr=-1.0)",
    "optim.Rprop(ps, etas=0.5)",
    "optim.Rprop(ps, etas=(1.5, 1.2))",
    "optim.Rprop(ps, etas=(0.5, 0.9))",
    "optim.Rprop(ps, weight_decay=0.1)",
    "optim.Rprop(ps, lr=-1.0)",
    "optim.RAdam(ps, betas=(0.9, 1.0))",
    "optim.RAdam(ps, eps=0.0)",
    "optim.RAdam(ps, weight_decay=-1.0)",
    "optim.RAdam(ps, maximize=True)",
    "optim.NAdam(ps, betas=(1.0, 0.9))",
    "optim.NAdam(ps, eps=-1.0)",
    "optim.NAdam(ps, momentum_decay=-1.0)",
    "optim.NAdam(ps, lr='x')",
    "mint.SGD(ps)",
    "mint.SGD(ps, -0.1)",
    "mint.SGD(ps, 0.1, momentum=-1.0)",
    "mint.SGD(ps, 0.1, momentum='x')",
    "mint.SGD(ps, 0.1, nesterov=True)",
    "mint.SGD(ps, 0.1, weight_decay=-1.0)",
    "mint.Adam(ps, lr=1)",
    "mint.Adam(ps, lr=-1.0)",
    "mint.Adam(ps, betas=(1.0, 0.9))",
    "mint.Adam(ps, betas=(0.9,))",
    "mint.Adam(ps, eps=-1.0)",
    "mint.Adam(ps, amsgrad=1)",
    "mint.AdamW(ps, lr='x')",
    "mint.AdamW(ps, betas=(0.9, 1.0))",
    "mint.AdamW(ps, weight_decay=-1.0)",
    "mint.AdamW(ps, amsgrad=1)",
    "S.LRScheduler(o)",
    "S.StepLR(3, 2)",
    "S.StepLR(ms.nn.SGD(ps, 0.1), 2)",
    "S.StepLR(o, 2.5)",
    "S.StepLR(o, 2, 1)",
    "S.StepLR(o, 2, last_epoch='x')",
    "S.StepLR(o, 2, last_epoch=1.5)",
    "S.StepLR(o, 2, last_epoch=-2)",
    "S.StepLR(o, 2, last_epoch=3)",
    "S.LinearLR(o, start_factor=1.5)",
    "S.LinearLR(o, start_factor=0.0)",
    "S.LinearLR(o, end_factor=1.5)",
    "S.LinearLR(o, start_factor='x')",
    "S.LinearLR(o, total_iters='x')",
    "S.LinearLR(o, last_epoch=2)",
    "S.ExponentialLR(o, 'x')",
    "S.ExponentialLR(o, 1)",
    "S.PolynomialLR(o, 'x')",
    "S.PolynomialLR(o, 4, 2)",
    "S.PolynomialLR(o, 4, -1.0)",
    "S.LambdaLR(o, [lambda e: 0.95])",
    "S.LambdaLR(o, 3)",
    "S.MultiplicativeLR(o, [lambda e: 0.95])",
    "S.ConstantLR(o, 1.5)",
    "S.ConstantLR(o, 'x')",
    "S.ConstantLR(o, 0.5, 2.5)",
    "S.MultiStepLR(o, (2, 5))",
    "S.MultiStepLR(o, [2.5])",
    "S.MultiStepLR(o, [2, 5], 'x')",
    "S.SequentialLR(o, [S.ConstantLR(o), S.ExponentialLR(o, 0.9)], [3, 4])",
    "S.SequentialLR(o, [S.ConstantLR(o), S.ExponentialLR(optim.SGD(ps, 0.1), 0.9)], [3])",
    "S.SequentialLR(o, [], [])",
    "S.SequentialLR(o, 3, [])",
    "S.ReduceLROnPlateau(3)",
    "S.ReduceLROnPlateau(o, 'x')",
    "S.ReduceLROnPlateau(o, factor=1.0)",
    "S.ReduceLROnPlateau(o, factor='x')",
    "S.ReduceLROnPlateau(o, threshold_mode='x')",
    "S.ReduceLROnPlateau(o, min_lr=[0.1])",
    "S.ReduceLROnPlateau(o, min_lr='x')",
    "S.ReduceLROnPlateau(o).step()",
    "S.ReduceLROnPlateau(o).step('x')",
    "S.CyclicLR(o, [0.01], 0.1, 2)",
    "S.CyclicLR(o, 'x', 0.1, 2)",
    "S.CyclicLR(o, 0.1, 0.2, 'x')",
    "S.CyclicLR(o, 0.1, 0.2, 0)",
    "S.CyclicLR(o, 0.1, 0.2, 2, mode='x')",
    "S.CyclicLR(o, 0.1, 0.2, 2, scale_fn=3)",
    "S.CosineAnnealingWarmRestarts(o, 0)",
    "S.CosineAnnealingWarmRestarts(o, 2.5)",
    "S.CosineAnnealingWarmRestarts(o, 2, 0)",
    "S.CosineAnnealingWarmRestarts(o, 2, 1, 'x')",
    "S.CosineAnnealingWarmRestarts(o, 2).step(-1)",
    "S.CosineAnnealingLR(o, 2.5)",
    "S.CosineAnnealingLR(o, 2, 'x')",
]


def parameters(ms: Any) -> list[Any]:
    """A weight, a bias, and one whose name spares it from weight decay in `nn`."""
    return [ms.Parameter(ms.Tensor(ramp(shape, float(k))), name=name) for k, (shape, name) in enumerate([((3, 2), "w"), ((2,), "bias"), ((2,), "gamma")])]


def make(ms: Any, expression: str) -> Any:
    optim, mint = (importlib.import_module(f"{ms.__name__}.{room}.optim") for room in ("experimental", "mint"))
    schedulers = optim.lr_scheduler

    class Halving(schedulers.LRScheduler):  # type: ignore[name-defined, misc]
        """One that a user wrote."""

        def get_lr(self) -> Any:
            rates = [rate.value() for rate in self._last_lr]
            if self.last_epoch == 0:
                return rates
            return [rate / 2 for rate in rates]

    ps = parameters(ms)
    o = optim.SGD([{"params": ps[:1], "lr": 0.2}, {"params": ps[1:]}], 0.05)
    names = {"ms": ms, "optim": optim, "mint": mint, "S": schedulers, "Tensor": ms.Tensor, "Halving": Halving, "o": o}
    return eval(expression, {**names, "ps": ps, "w": ps[0], "b": ps[1], "g": ps[2]})


def steps(ms: Any, expression: str) -> dict[str, Any]:
    optimizer = make(ms, expression)
    printed = repr(optimizer)
    trained = list(optimizer.parameters)
    after = after_steps(ms, optimizer, STEPS, SHOWN)
    names = {p.name for p in trained}
    hidden = ("eta_", "mu_")  # which MindSpore's optimizers have, but do not tell
    state = {p.name: p.value() for p in optimizer.get_parameters() if p.name not in names and not p.name.startswith(hidden)}
    groups = [{name: value for name, value in group.items() if name not in ("params", "lr")} for group in optimizer.param_groups]
    rates = [[group["lr"].name, group["lr"].value()] for group in optimizer.param_groups]
    return {"printed": printed, "steps": after, "state": state, "groups": [sorted(g) for g in groups], "rates": rates, "starts": optimizer.group_start_id}


def rates(ms: Any, expression: str, arguments: list[Any] | None = None, count: int = 10) -> dict[str, Any]:
    """The rates of all groups from step to step."""
    scheduler = make(ms, expression)

    def now() -> list[float]:
        return [float(group["lr"]) for group in scheduler.optimizer.param_groups]

    seen = [now()]
    for k in range(count if arguments is None else len(arguments)):
        given = () if arguments is None or arguments[k] is None else (arguments[k],)
        scheduler.step(*given)
        seen.append(now())
    return {"rates": seen, "last": scheduler.get_last_lr(), "epoch": float(scheduler.last_epoch)}


def changed(ms: Any) -> Any:
    """A rate that is assigned between steps, in both ways."""
    optimizer = make(ms, "optim.SGD(ps, 0.1)")
    gradients = tuple(ms.Tensor(ramp(p.shape, 3.0)) for p in optimizer.parameters)
    seen = []
    for value in (0.5, 0.25, 1.0):
        optimizer.param_groups[0]["lr"] = value
        optimizer(gradients)
        seen.append(optimizer.parameters[1].value())
    optimizer = make(ms, "optim.Adam([{'params': ps[:1]}, {'params': ps[1:], 'lr': 0.3}])")
    for value in (0.5, 0.25):
        ms.ops.assign(optimizer.param_groups[1]["lr"], ms.Tensor(value, ms.float32))
        optimizer(gradients)
        seen.append(optimizer.parameters[1].value())
    return [seen, [float(group["lr"]) for group in optimizer.param_groups]]


def resumed(ms: Any) -> Any:
    """A scheduler that goes on with an optimizer that had one before."""
    optimizer = make(ms, "o")
    schedulers = importlib.import_module(f"{ms.__name__}.experimental.optim.lr_scheduler")
    first = schedulers.StepLR(optimizer, 2)
    for _ in range(5):
        first.step()
    second = schedulers.StepLR(optimizer, 2, last_epoch=3)
    seen = [float(second.last_epoch), *second.get_last_lr()]
    for _ in range(4):
        second.step()
        seen += second.get_last_lr()
    return [seen, [group["initial_lr"] for group in optimizer.param_groups], second.base_lrs, str(optimizer)]


def own(ms: Any) -> Any:
    """An optimizer that a user wrote."""
    optim = importlib.import_module(f"{ms.__name__}.experimental.optim")

    class Own(optim.Optimizer):  # type: ignore[name-defined, misc]
        def __init__(self, params: Any, lr: float):
            super().__init__(params, {"lr": lr, "weight_decay": 0.1, "scale": 2.0})

        def construct(self, gradients: Any) -> bool:
            for k, group in enumerate(self.param_groups):
                start, end = self.group_start_id[k], self.group_start_id[k + 1]
                found = self._decay_weight(group["weight_decay"], self.parameters[start:end], gradients[start:end])
                for p, g in zip(self.parameters[start:end], found):
                    ms.ops.assign(p, p - self.lrs[k] * g * group["scale"])
            return True

    ps = parameters(ms)
    optimizer = Own([{"params": ps[:1], "scale": 3.0}, {"params": ps[1:], "lr": 0.5}], 0.1)
    result = optimizer(tuple(ms.Tensor(ramp(p.shape, 3.0)) for p in ps))
    return [result, [p.value() for p in ps], repr(optimizer), optimizer.defaults]


def error(ms: Any, expression: str) -> Any:
    result = make(ms, expression)
    return result if isinstance(result, (int, str)) else "accepted"


def programs() -> dict[str, Any]:
    table: dict[str, Any] = {e: partial(module_first, steps, e) for e in OPTIMIZERS}
    table |= {e: partial(module_first, rates, e) for e in SCHEDULERS}
    table |= {f"{e} epochs": partial(module_first, rates, e, epochs) for e, epochs in EPOCHS.items()}
    table |= {f"{e} {metrics[:3]}": partial(module_first, rates, e, metrics) for e, metrics in PLATEAUS}
    table |= {f"error {e}": partial(module_first, lambda ms, e: caught(lambda: error(ms, e)), e) for e in ERRORS}
    return {**table, "changed": changed, "resumed": resumed, "own": own}
