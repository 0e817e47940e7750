"""`experimental.optim` and `mint.optim` against what MindSpore 2.10 made of the Parameters (tests/programs/experimental_optimizers.json), against the
papers' formulas in float64, and, where it is installed, against PyTorch."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, ParameterTuple, Tensor, nn, ops
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from graphcell.experimental import optim
from graphcell.experimental.optim import lr_scheduler
from graphcell.mint import optim as mint
from tests.experimental import formulas
from tests.recording import check, load, ramp, recorded

PROGRAMS = list(load("experimental_optimizers"))
COMPILED = [key for key in PROGRAMS if not key.startswith("error")]
MODES = pytest.mark.parametrize("mode", [PYNATIVE_MODE, GRAPH_MODE])
SHAPES: list[tuple[int, ...]] = [(3, 2), (2,), ()]


@pytest.mark.parametrize("key", PROGRAMS)
def test_eager(key: str) -> None:
    check("experimental_optimizers", key, PYNATIVE_MODE)


@pytest.mark.slow
@pytest.mark.parametrize("key", COMPILED)
def test_compiled(key: str) -> None:
    check("experimental_optimizers", key, GRAPH_MODE)


def test_errors_say_what_mindspore_says() -> None:
    """Two thirds of the texts hold MindSpore's; where Python's own stands there ("'<' not supported …"), ours names the setting."""
    programs, said = load("experimental_optimizers"), recorded("experimental_optimizers")
    refused = [key for key in PROGRAMS if isinstance(said[key], dict) and "raises" in said[key]]
    texts = {key: str(programs[key](ms)) for key in refused}
    same = [key for key in refused if said[key]["message"].strip() in texts[key]]
    assert len(refused) > 150 and 3 * len(same) > 2 * len(refused) - 3, sorted(set(refused) - set(same))
    accidents = ("not supported between", "can only concatenate", "not subscriptable", "has no len")
    for key in refused:
        assert not any(accident in texts[key] for accident in accidents), key


# -- the formulas --------------------------------------------------------------------------------------------------------
def parameters() -> list[Parameter]:
    return [Parameter(Tensor(ramp(shape, float(k))), name=f"p{k}") for k, shape in enumerate(SHAPES)]


def gradients(k: int) -> tuple[Tensor, ...]:
    return tuple(Tensor(ramp(shape, 3.0 + k)) for shape in SHAPES)


SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("optim.SGD", {"lr": 0.1}),
    ("optim.SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1, "maximize": True}),
    ("optim.SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("optim.Adam", {"lr": 0.1, "betas": (0.8, 0.5), "eps": 0.01, "weight_decay": 0.1, "amsgrad": True}),
    ("optim.Adam", {"lr": 0.1, "amsgrad": True, "maximize": True}),
    ("optim.Adam", {"lr": 0.1, "betas": (0.0, 0.0), "eps": 0.01}),
    ("optim.AdamW", {"lr": 0.1, "betas": (0.8, 0.5), "eps": 0.01, "weight_decay": 0.1, "amsgrad": True, "maximize": True}),
    ("optim.AdamW", {}),
    ("optim.Adadelta", {"rho": 0.7, "eps": 0.01, "weight_decay": 0.1, "maximize": True}),
    ("optim.Adagrad", {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1, "initial_accumulator_value": 0.3, "maximize": True}),
    ("optim.ASGD", {"lr": 0.1, "lambd": 0.01, "alpha": 0.5, "t0": 3.0, "weight_decay": 0.1, "maximize": True}),
    ("optim.Adamax", {"lr": 0.1, "betas": (0.8, 0.9), "eps": 0.01, "weight_decay": 0.1, "maximize": True}),
    ("optim.RMSprop", {"lr": 0.1, "alpha": 0.8, "eps": 0.01, "momentum": 0.5, "centered": True, "weight_decay": 0.1, "maximize": True}),
    ("optim.RMSprop", {"lr": 0.1}),
    ("optim.Rprop", {"lr": 0.1, "etas": (0.3, 1.5), "step_sizes": (0.05, 0.2), "maximize": True}),
    ("optim.RAdam", {"lr": 0.1}),
    ("optim.RAdam", {"lr": 0.1, "betas": (0.8, 0.5), "eps": 0.01, "weight_decay": 0.1}),
    ("optim.RAdam", {"lr": 0.1, "betas": (0.0, 0.9)}),
    ("optim.NAdam", {"lr": 0.1, "betas": (0.8, 0.9), "eps": 0.01, "weight_decay": 0.1, "momentum_decay": 0.1}),
    ("mint.SGD", {"lr": 0.1}),
    ("mint.SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1, "maximize": True}),
    ("mint.SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("mint.Adam", {"lr": 0.1, "betas": (0.8, 0.5), "eps": 0.01, "weight_decay": 0.1, "amsgrad": True, "maximize": True}),
    ("mint.Adam", {}),
    ("mint.AdamW", {"lr": 0.1, "betas": (0.8, 0.5), "eps": 0.01, "weight_decay": 0.1, "amsgrad": True, "maximize": True}),
    ("mint.AdamW", {}),
    ("mint.FusedAdamW", {"lr": 0.1, "weight_decay": 0.1}),
]


def reference(name: str, groups: list[dict[str, Any]], count: int, rates: list[list[float]] | None = None) -> list[Any]:
    """What `count` steps by the formulas make of the Parameters; a group names them by their places."""
    room, _, kind = name.partition(".")
    values = [ramp(shape, float(k)).astype(np.float64) for k, shape in enumerate(SHAPES)]
    states: dict[int, dict[str, Any]] = {}
    for t in range(1, count + 1):
        for g, group in enumerate(groups):
            settings = group if rates is None else {**group, "lr": rates[t - 1][g]}
            for k in group["params"]:
                gradient = ramp(SHAPES[k], 2.0 + t).astype(np.float64)
                rule = "adam_of_the_paper" if (room, kind) == ("optim", "Adam") else kind
                values[k] = formulas.step(rule, values[k], gradient, t, settings, states.setdefault(k, {}))
    return values


def kind_of(name: str) -> Any:
    return getattr({"optim": optim, "mint": mint}[name.partition(".")[0]], name.partition(".")[2])


def close(ps: list[Parameter], values: list[Any], tolerance: float = 2e-5) -> None:
    for p, value in zip(ps, values):
        np.testing.assert_allclose(p.asnumpy(), value, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@MODES
@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_steps_follow_the_formula(name: str, settings: dict[str, Any], mode: int) -> None:
    ms.set_context(mode=mode)
    ps = parameters()
    optimizer = kind_of(name)(ps, **settings)
    assert all(optimizer(gradients(k)) is True for k in range(8))
    close(ps, reference(name, [{**optimizer.param_groups[0], "params": [0, 1, 2], "lr": settings.get("lr", optimizer.defaults["lr"])}], 8))


GROUPED = {
    "optim.SGD": {"momentum": 0.5},
    "optim.Adam": {"amsgrad": True},
    "optim.AdamW": {"eps": 0.1},
    "optim.Adadelta": {"rho": 0.5},
    "optim.Adagrad": {"initial_accumulator_value": 0.5},
    "optim.ASGD": {"t0": 2.0},
    "optim.Adamax": {"betas": (0.5, 0.6)},
    "optim.RMSprop": {"centered": True},
    "optim.Rprop": {"etas": (0.2, 1.3)},
    "optim.RAdam": {"betas": (0.5, 0.9)},
    "optim.NAdam": {"momentum_decay": 0.1},
    "mint.SGD": {"momentum": 0.5},
    "mint.Adam": {"amsgrad": True},
    "mint.AdamW": {"betas": (0.5, 0.9)},
    "mint.FusedAdamW": {"amsgrad": True},
}


@pytest.mark.parametrize("name", GROUPED)
def test_groups_in_one_compiled_training_step(name: str) -> None:
    """Three groups, one of them appended, of which two have settings of their own; a scheduler changes the rates between the calls, and nothing compiles
    anew. The gradients of the loss are the factors in it, so the formulas say what comes."""
    ms.set_context(mode=GRAPH_MODE)
    ps = parameters()
    optimizer = kind_of(name)([{"params": ps[:1], "lr": 0.05}, {"params": ps[1:2], **GROUPED[name]}], lr=0.1)
    optimizer.add_param_group({"params": ps[2], "lr": 0.2, **GROUPED[name]})
    train = ms.value_and_grad(lambda *fs: sum((p * f).sum() for p, f in zip(ps, fs)), None, optimizer.parameters)

    @ms.jit
    def step(*fs: Tensor) -> Any:
        loss, grads = train(*fs)
        optimizer(grads)
        return loss

    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.9)
    rates, explained = [], set()
    for k in range(6):
        rates.append([float(rate) for rate in optimizer.lrs])
        step(*gradients(k))
        explained.add(step.explain())
        scheduler.step()
    assert len(explained) == 1
    groups = [{**group, "params": [k]} for k, group in enumerate(optimizer.param_groups)]
    close(ps, reference(name, groups, 6, rates))


@MODES
def test_many_steps_stay_near_the_formula(mode: int) -> None:
    """Corrections of the bias are computed in float64: 1 - 0.999**t has few digits in float32."""
    ms.set_context(mode=mode)
    for name in ("optim.Adam", "optim.AdamW", "optim.RAdam", "optim.NAdam", "mint.Adam"):
        ps = parameters()
        optimizer = kind_of(name)(ps, lr=0.01)
        for k in range(60):
            optimizer(gradients(k))
        close(ps, reference(name, [{**optimizer.param_groups[0], "params": [0, 1, 2], "lr": 0.01}], 60), 1e-5)


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_pytorch_does_the_same(name: str, settings: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    kind = name.partition(".")[2].replace("Fused", "")
    ps = parameters()
    optimizer = kind_of(name)(ps, **settings)
    theirs = [torch.nn.Parameter(torch.tensor(p.asnumpy().copy(), dtype=torch.float64)) for p in ps]
    given = {**optimizer.defaults, **settings}
    for key in ("grad_centralization", *(("weight_decay",) if kind == "Rprop" else ())):
        given.pop(key, None)
    other = getattr(torch.optim, kind)(theirs, **given)
    for k in range(5):
        optimizer(gradients(k))
        for p, g in zip(theirs, gradients(k)):
            p.grad = torch.tensor(g.asnumpy(), dtype=torch.float64)
        other.step()
    if name != "optim.Adam" or settings.get("eps", 0.0) < 1e-6:  # else eps stands elsewhere
        close(ps, [p.detach().numpy() for p in theirs])


# -- groups and settings -------------------------------------------------------------------------------------------------
def test_what_is_assigned_to_a_rate_is_in_its_parameter() -> None:
    ps = parameters()
    optimizer = optim.SGD([{"params": ps[:1]}, {"params": ps[1:], "lr": 0.3}], 0.1)
    group = optimizer.param_groups[0]
    rate = group["lr"]
    for value in (0.5, 1, np.float32(0.25), Tensor(0.125), Tensor([2.0]), Parameter(Tensor(3.0), name="x")):
        group["lr"] = value
        assert group["lr"] is rate is optimizer.lrs[0] and float(rate) == float(value) and rate.dtype is ms.float32
    group.update(lr=0.75)
    group |= {"lr": 0.5, "note": "mine"}
    assert float(rate) == 0.5 and group["note"] == "mine" and group.setdefault("lr", 3.0) is rate
    for wrong, error in (("fast", TypeError), (None, TypeError), (Tensor([0.1, 0.2]), ValueError)):
        with pytest.raises(error):
            group["lr"] = wrong
    assert float(optimizer.lrs[1]) == pytest.approx(0.3) and [p.name for p in optimizer.lrs] == ["learning_rate_group_0", "learning_rate_group_1"]


def test_every_change_of_a_setting_is_seen_by_compiled_steps() -> None:
    p = Parameter(Tensor([1.0, 2.0]), name="w")
    optimizer = optim.SGD([p], 0.5)
    step = ms.jit(lambda g: optimizer((g,)))
    one, zero = Tensor([1.0, 1.0]), Tensor([0.0, 0.0])
    group = optimizer.param_groups[0]

    def moved(g: Tensor) -> list[float]:
        before = p.asnumpy().copy()
        step(g)
        return (p.asnumpy() - before).round(5).tolist()  # type: ignore[no-any-return]

    assert moved(one) == [-0.5, -0.5]
    group["maximize"] = True
    assert moved(one) == [0.5, 0.5]
    group.update(maximize=False, weight_decay=0.5)
    assert moved(zero) == [-0.25, -0.5]
    del group["maximize"]
    group.pop("note", None)
    group["weight_decay"] = 0.0
    assert moved(one) == [-0.5, -0.5]
    explained = step.explain()
    group["lr"] = 0.25
    assert moved(one) == [-0.25, -0.25] and step.explain() == explained
    ops.assign(optimizer.lrs[0], Tensor(2.0))
    assert moved(one) == [-2.0, -2.0] and step.explain() == explained


def test_a_compiled_function_may_change_the_rates_itself() -> None:
    p = Parameter(Tensor([0.0]), name="w")
    optimizer = optim.SGD([p], 1.0)

    @ms.jit(fullgraph=True)
    def step(g: Tensor) -> bool:
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * 0.5
        return optimizer((g,))

    for expected in (-0.5, -0.75, -0.875):
        step(Tensor([1.0]))
        assert float(p) == expected and float(optimizer.lrs[0]) == 1.0 + expected


@MODES
def test_a_group_that_is_appended_has_its_state(mode: int) -> None:
    ms.set_context(mode=mode)
    for name in GROUPED:
        ps = parameters()
        optimizer = kind_of(name)(ps[:1], lr=0.1)
        optimizer((gradients(0)[0],))
        optimizer.add_param_group({"params": ps[1:], "lr": 0.2, **GROUPED[name]})
        assert optimizer.group_start_id == [0, 1, 3] and [p.name for p in optimizer.parameters] == ["p0", "p1", "p2"]
        assert isinstance(optimizer.parameters, ParameterTuple) and float(optimizer.lrs[1]) == pytest.approx(0.2)
        before = [p.asnumpy().copy() for p in ps]
        assert optimizer(gradients(1)) is True
        assert all((p.asnumpy() != b).any() for p, b in zip(ps, before)), name
        named = [n for n in optimizer.parameters_dict() if n.endswith(("p1", "p2"))]
        assert len(named) % 2 == 0 and len(named) > 2, name


def test_groups_that_do_not_fit() -> None:
    a, b = Parameter(Tensor([1.0]), name="w"), Parameter(Tensor([1.0]), name="w")
    for params, text in (
        ([a, b], "already exists"),
        ([{"params": [a, a]}], "twice"),
        ([{"params": [a]}, {"params": [b]}], "already exists"),
    ):
        with pytest.raises(ValueError, match=text):
            optim.SGD(params, 0.1)
    for kind in (optim.SGD, optim.Adam, optim.Adadelta):
        with pytest.raises(ValueError, match=r"Invalid learning rate|greater than 0.0"):
            kind([a], Tensor(-0.1))
    with pytest.raises(TypeError, match="must be a dict"):
        optim.Optimizer([a], 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="betas size"):
        optim.Adam([a], betas=(0.9,))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="size of 'etas'"):
        optim.Rprop([a], etas=(0.5,))  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="construct"):
        optim.Optimizer([a], {"lr": 0.1})((Tensor([1.0]),))


@MODES
def test_gradients_that_do_not_fit(mode: int) -> None:
    ms.set_context(mode=mode)
    ps = parameters()
    for optimizer in (optim.Adam(ps), mint.SGD(ps, 0.1)):
        for wrong, kind in ((gradients(0)[:2], RuntimeError), (gradients(0)[:2], ValueError), (3, TypeError), ((1.0, 2.0, 3.0), TypeError)):
            with pytest.raises(kind, match=f"For '{type(optimizer).__name__}'"):
                optimizer(wrong)
        with pytest.raises(ValueError, match="has shape"):
            optimizer(gradients(0)[::-1])
        close(ps, [ramp(shape, float(k)) for k, shape in enumerate(SHAPES)], 0.0)


def test_an_optimizer_is_copied_whole() -> None:
    for name in ("optim.Adam", "mint.SGD", "optim.ASGD"):
        optimizer = kind_of(name)(parameters(), lr=0.1)
        optimizer(gradients(0))
        for twin in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
            assert twin.param_groups[0]["lr"] is twin.lrs[0] and twin.param_groups[0]["params"][0] is twin.parameters[0]
            assert twin.lrs[0] is not optimizer.lrs[0] and twin.param_groups[0].owner is twin
            twin(gradients(1))
            step = ms.jit(twin)
            step(gradients(2))
            twin.param_groups[0]["maximize"] = True
            step(gradients(3))


@pytest.mark.slow
@MODES
@pytest.mark.parametrize("name", GROUPED)
def test_state_makes_training_go_on_where_it_stopped(name: str, mode: int) -> None:
    ms.set_context(mode=mode)
    whole, first, second = parameters(), parameters(), parameters()
    optimizers = [kind_of(name)(ps, lr=0.1, **GROUPED[name]) for ps in (whole, first, second)]
    for k in range(6):
        optimizers[0](gradients(k))
    for k in range(3):
        optimizers[1](gradients(k))
    assert ms.load_param_into_net(optimizers[2], optimizers[1].parameters_dict()) == ([], [])
    for k in range(3, 6):
        optimizers[2](gradients(k))
    for p, q in zip(whole, second):
        np.testing.assert_array_equal(p.asnumpy(), q.asnumpy())


@MODES
@pytest.mark.parametrize("name", GROUPED)
@pytest.mark.parametrize("gradient", [ms.float16, ms.float32])
def test_half_precision_parameters_stay_half(name: str, gradient: Any, mode: int) -> None:
    ms.set_context(mode=mode)
    half, whole = (Parameter(Tensor(ramp((2, 3)), dtype), name="w") for dtype in (ms.float16, ms.float32))
    made = [kind_of(name)([p], lr=0.1, **({} if name == "optim.NAdam" else {"eps": 1e-3} if "eps" in kind_of(name)([p], lr=0.1).defaults else {})) for p in (half, whole)]
    for k in range(3):
        made[0]((Tensor(ramp((2, 3), 3.0 + k), gradient),))
        made[1]((Tensor(ramp((2, 3), 3.0 + k)),))
    assert half.dtype is ms.float16
    np.testing.assert_allclose(half.asnumpy(), whole.asnumpy(), atol=0.03)


@pytest.mark.parametrize("name", GROUPED)
def test_the_update_of_a_parameter_is_one_sweep(name: str) -> None:
    ps = [Parameter(Tensor(ramp(shape)), name=f"p{shape}") for shape in ((30, 7), (5, 4, 3))]
    optimizer = kind_of(name)(ps, lr=0.1, **GROUPED[name])
    step = ms.jit(lambda *gs: optimizer(gs))
    step(*(Tensor(ramp(p.shape)) for p in ps))
    loops = [line for line in step.kernels().splitlines() if line.startswith("loops") and not line.startswith("loops ()")]
    each = 2 if name == "optim.SGD" else 1  # `stat`, which says whether this is the first step, is filled apart
    assert sorted(loops) == ["loops (i0<210 vector inner) {"] * each + ["loops (i0<60 vector inner) {"] * each


def test_model_trains_with_one() -> None:
    ms.set_seed(1)
    net = nn.Dense(4, 2)
    model = ms.train.Model(net, nn.MSELoss(), optim.AdamW(net.trainable_params(), 0.05), amp_level="O0")
    rows = [(ramp((4,), float(k)), ramp((2,), float(k))) for k in range(32)]
    data = ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False).batch(8)

    def loss() -> float:
        return float(np.mean([float(nn.MSELoss()(net(Tensor(x)), Tensor(y))) for x, y in rows]))

    before = loss()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model.train(10, data)
    assert loss() < 0.5 * before
