"""Optimizers against what MindSpore 2.10 made of the Parameters in several steps (tests/programs/optimizers.json), and against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from tests.recording import check, load, ramp, recorded

PROGRAMS = list(load("optimizers"))
COMPILED = [key for key in PROGRAMS if isinstance(recorded("optimizers")[key], dict) and "steps" in recorded("optimizers")[key]]


@pytest.mark.parametrize("key", PROGRAMS)
def test_eager(key: str) -> None:
    check("optimizers", key, PYNATIVE_MODE)


@pytest.mark.slow
@pytest.mark.parametrize("key", COMPILED)
def test_compiled(key: str) -> None:
    check("optimizers", key, GRAPH_MODE)


def parameter(shape: tuple[int, ...] = (2, 3), name: str = "w") -> Parameter:
    return Parameter(Tensor(ramp(shape)), name=name)


def steps(optimizer: Any, parameters: Any, count: int = 3) -> list[Any]:
    """The values of the first Parameter after each step."""
    after = []
    for k in range(count):
        optimizer(tuple(Tensor(ramp(p.shape, 3.0 + k)) for p in parameters))
        after.append(parameters[0].asnumpy().copy())
    return after


def test_nesterov_momentum_follows_the_documented_formula() -> None:
    """MindSpore's CPU kernel leaves use_nesterov out; the formula is that of its documentation."""
    p = parameter()
    w, v = ramp((2, 3)).astype(np.float64), np.zeros((2, 3))
    for k, got in enumerate(steps(nn.Momentum([p], 0.1, 0.9, use_nesterov=True), [p])):
        g = ramp((2, 3), 3.0 + k)
        v = 0.9 * v + g
        w = w - 0.1 * (g + 0.9 * v)
        np.testing.assert_allclose(got, w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("shape", "centralised"), [((2, 16, 2, 2), True), ((2, 32, 3), True), ((2, 3, 2, 2), False), ((4, 16), False), ((16,), False)])
def test_gradients_of_convolutions_are_centralised(shape: tuple[int, ...], centralised: bool) -> None:
    """MindSpore leaves gradients alone whose second dimension is no multiple of 16; for the others its CPU backend has no kernel."""
    p = parameter(shape)
    got = steps(nn.Momentum([{"params": [p], "grad_centralization": True}], 0.1, 0.0), [p], 1)[0]
    g = ramp(shape, 3.0)
    mean = g.mean(tuple(range(1, g.ndim)), keepdims=True) if centralised else 0.0
    np.testing.assert_allclose(got, ramp(shape) - 0.1 * (g - mean), rtol=1e-5, atol=1e-6)


def test_adagrad_can_leave_its_slots() -> None:
    p = parameter()
    got = steps(nn.Adagrad([p], 0.5, 0.1, update_slots=False), [p], 1)[0]
    np.testing.assert_allclose(got, ramp((2, 3)) - 0.1 * ramp((2, 3), 3.0) / np.sqrt(0.5), rtol=1e-5, atol=1e-6)


def test_ftrl_shrinks_both_signs_alike() -> None:
    """MindSpore's CPU kernel takes the sign of the linear part for +1; the formula is that of its documentation."""
    p = parameter()
    w, a, z = ramp((2, 3)).astype(np.float64), np.full((2, 3), 0.1), np.zeros((2, 3))
    for k, got in enumerate(steps(nn.FTRL([p], learning_rate=0.3, l1=0.4, l2=0.2), [p], 5)):
        g = ramp((2, 3), 3.0 + k).astype(np.float64)
        total = a + g * g
        z += g - (np.sqrt(total) - np.sqrt(a)) / 0.3 * w
        a = total
        w = np.where(np.abs(z) > 0.4, (np.sign(z) * 0.4 - z) / (np.sqrt(a) / 0.3 + 0.4), 0.0)
        np.testing.assert_allclose(got, w, rtol=1e-4, atol=1e-5)
    assert (w > 0).any() and (w < 0).any()


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
@pytest.mark.parametrize("clip", [False, True])
def test_lars_makes_gradients_as_long_as_parameters(mode: int, clip: bool) -> None:
    ms.set_context(mode=mode)
    p, bias, zero = parameter(), parameter((2,), "bias"), Parameter(Tensor(np.zeros(2, np.float32)), name="zero")
    inner = nn.SGD([p, bias, zero], 0.5, weight_decay=0.1, loss_scale=4.0)
    optimizer = nn.LARS(inner, epsilon=1e-3, coefficient=0.2, use_clip=clip)
    w, b = ramp((2, 3)).astype(np.float64), ramp((2,)).astype(np.float64)
    for k in range(3):
        g, gb = ramp((2, 3), 3.0 + k).astype(np.float64), ramp((2,), 3.0 + k).astype(np.float64)
        optimizer(tuple(Tensor(4.0 * x, ms.float32) for x in (g, gb, gb)))
        trust = 0.2 * np.linalg.norm(w) / (np.linalg.norm(g) + 0.1 * np.linalg.norm(w) + 1e-3)
        trust = min(trust / 0.5, 1.0) if clip else trust
        w, b = w - 0.5 * trust * (g + 0.1 * w), b - 0.5 * gb
        np.testing.assert_allclose(p.asnumpy(), w, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(bias.asnumpy(), b, rtol=1e-5, atol=1e-6)
    assert np.isfinite(zero.asnumpy()).all() and zero.asnumpy().any()
    with pytest.raises(TypeError, match="must be Optimizer"):
        nn.LARS(3)


def test_parameters_are_missing() -> None:
    with pytest.raises(ValueError, match="the argument parameters can not be None"):
        nn.SGD(None, 0.1)


def test_lamb_makes_steps_as_long_as_the_parameter_times_the_rate() -> None:
    p = parameter()
    w, m, v = ramp((2, 3)).astype(np.float64), np.zeros((2, 3)), np.zeros((2, 3))
    for k, got in enumerate(steps(nn.Lamb([p], 0.1, weight_decay=0.01), [p])):
        g = ramp((2, 3), 3.0 + k).astype(np.float64)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        update = (m / (1 - 0.9 ** (k + 1))) / (np.sqrt(v / (1 - 0.999 ** (k + 1))) + 1e-6) + 0.01 * w
        w = w - 0.1 * min(np.linalg.norm(w) / np.linalg.norm(update), 10.0) * update
        np.testing.assert_allclose(got, w, rtol=1e-4, atol=1e-5)


def test_the_learning_rate_can_be_changed_between_steps() -> None:
    p = Parameter(Tensor(np.zeros(2, np.float32)), name="w")
    optimizer = nn.Momentum([p], 0.1, 0.0)
    g = (Tensor(np.ones(2, np.float32)),)
    optimizer(g)
    optimizer.learning_rate.set_data(Tensor(0.5, ms.float32))
    optimizer(g)
    ops.assign(optimizer.learning_rate, Tensor(0.25, ms.float32))
    optimizer(g)
    np.testing.assert_allclose(p.asnumpy(), -0.85, rtol=1e-6)
    assert int(optimizer.global_step) == 3


def test_the_last_rate_of_a_list_stays() -> None:
    p = Parameter(Tensor(np.zeros(2, np.float32)), name="w")
    after = steps(nn.SGD([p], [0.5, 0.25]), [p], 4)
    rates = [np.abs(b - a).max() / np.abs(ramp((2,), 3.0 + k)).max() for k, (a, b) in enumerate(zip([np.zeros(2), *after], after))]
    np.testing.assert_allclose(rates, [0.5, 0.25, 0.25, 0.25], rtol=1e-5)


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
@pytest.mark.parametrize(
    "make",
    [
        lambda ps: nn.Adam(ps, 0.05, use_nesterov=True, use_amsgrad=True, weight_decay=0.1, loss_scale=4.0),
        lambda ps: nn.SGD(ps, [0.1, 0.2, 0.3, 0.4], 0.9, 0.1, 0.01),
        lambda ps: nn.AdamWeightDecay([{"params": ps[:1], "lr": 0.1}, {"params": ps[1:]}], nn.WarmUpLR(0.1, 3), weight_decay=0.1),
    ],
)
def test_state_makes_training_go_on_where_it_stopped(make: Any, mode: int) -> None:
    """Three steps, the state into a fresh optimizer, three steps more: the same as six."""
    ms.set_context(mode=mode)

    def parameters() -> list[Parameter]:
        return [parameter(name="w"), parameter((3,), "bias")]

    def step(optimizer: Any, ps: Any, k: int) -> None:
        optimizer(tuple(Tensor(ramp(p.shape, 3.0 + k)) for p in ps))

    whole = parameters()
    optimizer = make(whole)
    for k in range(6):
        step(optimizer, whole, k)
    first = parameters()
    optimizer = make(first)
    for k in range(3):
        step(optimizer, first, k)
    state = {name: Tensor(p.asnumpy().copy()) for name, p in optimizer.parameters_dict().items()}
    second = parameters()
    fresh = make(second)
    for name, p in fresh.parameters_dict().items():
        p.set_data(state[name])
    for k in range(3, 6):
        step(fresh, second, k)
    for p, q in zip(whole, second):
        np.testing.assert_array_equal(p.asnumpy(), q.asnumpy())


def test_an_optimizer_that_defines_nothing_says_so() -> None:
    with pytest.raises(NotImplementedError, match="construct"):
        nn.Optimizer(0.1, [parameter()])((Tensor(ramp((2, 3))),))


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
@pytest.mark.parametrize("gradient", [ms.float16, ms.float32])
def test_half_precision_parameters_stay_half(mode: int, gradient: Any) -> None:
    ms.set_context(mode=mode)
    for make in (
        lambda ps: nn.SGD(ps, 0.1, 0.9),
        lambda ps: nn.Momentum(ps, 0.1, 0.9),
        lambda ps: nn.Adam(ps, 0.1),
        lambda ps: nn.AdamWeightDecay(ps, 0.1, weight_decay=0.1),
        lambda ps: nn.Lamb(ps, 0.1, weight_decay=0.1),
        nn.AdaFactor,
    ):
        half, whole = (Parameter(Tensor(ramp((2, 3)), dtype), name="w") for dtype in (ms.float16, ms.float32))
        if gradient is ms.float32 and make([half]).cls_name in ("Momentum", "Adam"):
            continue  # MindSpore refuses these, too
        optimizers = make([half]), make([whole])
        for k in range(3):
            optimizers[0]((Tensor(ramp((2, 3), 3.0 + k), gradient),))
            optimizers[1]((Tensor(ramp((2, 3), 3.0 + k)),))
        assert half.dtype is ms.float16
        np.testing.assert_allclose(half.asnumpy(), whole.asnumpy(), atol=0.02)


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "make", [lambda p: nn.Adam(p, 1e-3), lambda p: nn.Adam(p, 1e-3, use_nesterov=False, use_amsgrad=True), lambda p: nn.AdaMax(p, 1e-3)], ids=["Adam", "amsgrad", "AdaMax"]
)  # fmt: skip
def test_the_first_steps_are_as_long_as_the_rate(make: Any, dtype: Any, mode: int) -> None:
    """The averages of equal gradients are these gradients once their bias is corrected."""
    ms.set_context(mode=mode)
    p = Parameter(Tensor(np.zeros((2, 3), dtype)), name="w")
    optimizer = make([p])
    for k in range(3):
        optimizer((Tensor(np.full((2, 3), 64.0, dtype)),))
        np.testing.assert_allclose(p.asnumpy(), -1e-3 * (k + 1), rtol=2e-7 if k == 0 else 3e-5)


EVERY: dict[str, Any] = {
    "SGD": lambda ps: nn.SGD(ps, 0.1, 0.9, 0.1, 0.1),
    "Momentum": lambda ps: nn.Momentum(ps, 0.1, 0.9, 0.1),
    "Adam": lambda ps: nn.Adam(ps, 0.1, weight_decay=0.1, use_amsgrad=True),
    "AdamWeightDecay": lambda ps: nn.AdamWeightDecay(ps, 0.1, weight_decay=0.1),
    "AdamOffload": nn.AdamOffload,
    "LazyAdam": nn.LazyAdam,
    "AdaMax": nn.AdaMax,
    "Adagrad": nn.Adagrad,
    "Adadelta": nn.Adadelta,
    "RMSProp": lambda ps: nn.RMSProp(ps, centered=True),
    "Rprop": nn.Rprop,
    "ASGD": nn.ASGD,
    "FTRL": lambda ps: nn.FTRL(ps, learning_rate=0.1, l1=0.1, l2=0.1),
    "ProximalAdagrad": lambda ps: nn.ProximalAdagrad(ps, 0.1, 0.1, 0.1, 0.1),
    "Lamb": lambda ps: nn.Lamb(ps, 0.1),
    "LARS": lambda ps: nn.LARS(nn.Momentum(ps, 0.1, 0.9)),
    "AdaFactor": nn.AdaFactor,
}
NORMS = ("Lamb", "LARS", "AdaFactor")  # these need whole sums of a Parameter before they can move it


@pytest.mark.parametrize("name", [name for name in EVERY if name not in NORMS])
def test_the_update_of_a_parameter_is_one_sweep(name: str) -> None:
    ps = [parameter((30, 7), "w"), parameter((5, 4, 3), "k")]
    optimizer = EVERY[name](ps)

    @ms.jit
    def step(*gradients: Tensor) -> bool:
        optimizer(gradients)
        return True

    step(*(Tensor(ramp(p.shape)) for p in ps))
    loops = [line for line in step.kernels().splitlines() if line.startswith("loops") and not line.startswith("loops ()")]
    each = 2 if name == "SGD" else 1  # `stat`, which says whether this is the first step, is filled apart
    assert sorted(loops) == ["loops (i0<210 vector inner) {"] * each + ["loops (i0<60 vector inner) {"] * each


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_gradients(count: int, mode: int) -> None:
    """MindSpore raises RuntimeError then."""
    ms.set_context(mode=mode)
    optimizer = nn.Momentum([parameter((2,), "w"), parameter((2,), "k")], 0.1, 0.9)
    for kind in (RuntimeError, ValueError):
        with pytest.raises(kind, match=f"For 'Momentum', there are 2 Parameters but {count} gradients"):
            optimizer((Tensor([1.0, 2.0]),) * count)


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
@pytest.mark.parametrize("name", EVERY)
def test_parameters_of_all_ranks(name: str, mode: int) -> None:
    """Each element of a Parameter moves as it would in a vector, except where norms are taken; every shape stays."""
    ms.set_context(mode=mode)
    shapes: list[tuple[int, ...]] = [(), (1,), (3,), (2, 2), (2, 1, 3)]
    ps = [Parameter(Tensor(ramp(shape) + 0.5, ms.float32), name=f"p{k}") for k, shape in enumerate(shapes)]
    optimizer = EVERY[name](ps)
    for k in range(3):
        optimizer(tuple(Tensor(np.resize(ramp((6,), 3.0 + k), p.shape).astype(np.float32)) for p in ps))
    assert [p.shape for p in ps] == shapes
    if name not in NORMS:
        firsts = [p.asnumpy().reshape(-1)[0] for p in ps]
        np.testing.assert_allclose(firsts, firsts[0], rtol=1e-6)
    assert all(np.isfinite(p.asnumpy()).all() for p in ps)


@pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
def test_an_optimizer_of_ones_own_in_the_style_of_model_collections(mode: int) -> None:
    from graphcell.nn.optim.optimizer import Optimizer, opt_init_args_register

    ms.set_context(mode=mode)
    update = ops.MultitypeFuncGraph("update")

    @update.register("Tensor", "Tensor", "Tensor", "Tensor")
    def _update(rate: Any, p: Any, m: Any, g: Any) -> Any:
        m = ops.depend(m, ops.assign(m, m * 0.5 + g))
        return ops.assign(p, p - rate * m)

    class Own(Optimizer):
        @opt_init_args_register
        def __init__(self, params: Any, learning_rate: float = 0.1, weight_decay: float = 0.0, loss_scale: float = 1.0):
            super().__init__(learning_rate, params, weight_decay, loss_scale)
            self.moments = self.parameters.clone(prefix="moments", init="zeros")

        def construct(self, gradients: Any) -> Any:
            gradients = self.flatten_gradients(gradients)
            gradients = self.decay_weight(gradients)
            gradients = self.gradients_centralization(gradients)
            gradients = self.scale_grad(gradients)
            rate = self.get_lr()
            self.assignadd(self.global_step, self.global_step_increase_tensor)
            return self.hyper_map(ops.partial(update, rate), self.parameters, self.moments, gradients)

    p, beta = parameter(name="w"), parameter((2,), "beta")
    optimizer = Own([p, beta], 0.1, weight_decay=0.2, loss_scale=2.0)
    assert optimizer.decay_flags == (True, False) and optimizer.init_learning_rate == 0.1
    assert optimizer.init_args == {"weight_decay": 0.2, "loss_scale": 2.0} and optimizer.init_params == [p, beta]
    w, m = ramp((2, 3)).astype(np.float64), np.zeros((2, 3))
    for k in range(3):
        g = ramp((2, 3), 3.0 + k)
        optimizer((Tensor(2.0 * g), Tensor(ramp((2,)))))
        m = 0.5 * m + g + 0.2 * w
        w = w - 0.1 * m
        np.testing.assert_allclose(p.asnumpy(), w, rtol=1e-5, atol=1e-6)
    assert int(optimizer.global_step) == 3


def test_what_needs_other_machines_says_so() -> None:
    with pytest.raises(NotImplementedError, match="Ascend and GPU"):
        nn.thor(nn.Dense(2, 2), 0.1, 0.1, 0.9)
