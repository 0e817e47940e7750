"""The order of steps: possible, kept where there is nothing to gain, memory given back early, effects in front."""

from __future__ import annotations

import random

import numpy as np
import pytest

import graphcell as gc
from graphcell import Parameter, Tensor, nn, ops
from graphcell import dtype as dt
from graphcell.codegen.order import Step, order
from graphcell.ir.graph import Value
from graphcell.ir.types import TensorType


def value(size: int) -> Value:
    return Value(TensorType(dt.float32, (size,)))


def peak(names: list[str], steps: dict[str, Step[str]], given: set[Value]) -> int:
    """Bytes in use at most, each value from its writer to its last reader."""
    position = {n: k for k, n in enumerate(names)}
    used = [0] * len(names)
    for name, step in steps.items():
        for v in step.writes:
            if v not in given:
                last = max([position[n] for n, s in steps.items() if v in s.reads], default=position[name])
                for k in range(position[name], last + 1):
                    used[k] += v.type.nbytes
    return max(used)


def test_a_gradient_is_used_up_where_it_is_made() -> None:
    w = [value(100) for _ in range(3)]
    new, act, dw = [value(100) for _ in range(3)], [value(10) for _ in range(4)], [value(100) for _ in range(3)]
    steps = {f"forward{k}": Step(f"forward{k}", [act[k], w[k]], [act[k + 1]]) for k in range(3)}
    dy = [value(10) for _ in range(4)]
    for k in (2, 1, 0):
        steps[f"dx{k}"] = Step(f"dx{k}", [dy[k + 1], w[k]], [dy[k]])
        steps[f"dw{k}"] = Step(f"dw{k}", [dy[k + 1], act[k]], [dw[k]])
    for k in range(3):
        steps[f"update{k}"] = Step(f"update{k}", [dw[k], w[k]], [new[k]])
    given = {*w, *new, act[0], dy[3]}
    names = list(steps)
    found = order(list(steps.values()), given, list(zip(new, w, strict=True)))
    assert sorted(found) == sorted(names)
    for k in range(3):
        assert found.index(f"dx{k}") < found.index(f"update{k}")  # reads the old weight
        assert found.index(f"update{k}") == found.index(f"dw{k}") + 1 or found[found.index(f"dw{k}") + 1].startswith("d")
    assert peak(found, steps, given) < peak(names, steps, given)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_stay_possible(seed: int) -> None:
    rng = random.Random(seed)
    inputs = [value(rng.randrange(1, 50)) for _ in range(3)]
    known, steps = list(inputs), []
    for k in range(25):
        reads = rng.sample(known, min(len(known), rng.randrange(1, 4)))
        writes = [value(rng.randrange(1, 50)) for _ in range(rng.randrange(1, 3))]
        known += writes
        steps.append(Step(k, reads, writes, rng.random() < 0.1))
    outputs = set(rng.sample(known[3:], 3))
    target = inputs[0]
    updated = next(iter(outputs))
    found = order(steps, {*inputs, *outputs}, [(updated, target)])
    assert sorted(found) == list(range(25))
    place = {k: n for n, k in enumerate(found)}
    made = {v: k for k, s in enumerate(steps) for v in s.writes}
    for k, step in enumerate(steps):
        assert all(place[made[v]] < place[k] for v in step.reads if v in made)
        if target in step.reads and k < made[updated]:
            assert place[k] < place[made[updated]]
        if step.has_effect:
            assert all(place[k] < place[later] for later in range(k + 1, 25))


def test_nothing_to_gain_keeps_the_order() -> None:
    values = [value(4) for _ in range(6)]
    steps = [Step(k, [values[k]], [values[k + 1], value(1)]) for k in range(5)]
    assert order(steps, {values[0]}, []) == list(range(5))


def test_an_index_out_of_range_leaves_parameters_as_they_were() -> None:
    table, w = Parameter(Tensor(np.ones((4, 3), np.float32)), name="table"), Parameter(Tensor(np.ones(3, np.float32)), name="w")

    @gc.jit
    def step(index: Tensor) -> Tensor:
        ops.assign(w, w * 2.0)
        return ops.gather(table, index, 0).sum()

    assert float(step(Tensor(np.array([0, 3], np.int32)))) == 6.0
    np.testing.assert_array_equal(w.asnumpy(), np.full(3, 2.0, np.float32))
    with pytest.raises(IndexError):
        step(Tensor(np.array([0, 7], np.int32)))


def test_training_gives_the_same_in_both_modes() -> None:
    """Updates run right after their gradients, and yet every gradient is that of the old weights."""
    x, y = Tensor(np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)), Tensor(np.arange(8, dtype=np.int32) % 3)

    def trained(mode: int) -> list[np.ndarray]:  # type: ignore[type-arg]
        gc.set_seed(3)
        net = nn.SequentialCell([nn.Dense(6, 16), nn.ReLU(), nn.Dense(16, 16), nn.Tanh(), nn.Dense(16, 3)])
        optimizer = nn.Adam(net.trainable_params(), learning_rate=0.05)
        forward = gc.value_and_grad(lambda x, y: ops.cross_entropy(net(x), y), None, optimizer.parameters)

        def step(x: Tensor, y: Tensor) -> Tensor:
            loss, gradients = forward(x, y)
            return ops.depend(loss, optimizer(gradients))

        run = gc.jit(step) if mode == 0 else step
        return [*(run(x, y).asnumpy() for _ in range(5)), *(p.asnumpy() for p in net.trainable_params())]

    for a, b in zip(trained(0), trained(1), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_steps_that_gain_nothing_keep_their_order_around_one_that_does() -> None:
    """One that frees memory is taken out of the middle of those that are ready."""
    large = value(1000)
    steps = [Step(0, [], [large])]
    steps += [Step(k, [large] if k == 1 else [], [] if k == 1 else [value(8)]) for k in range(1, 9)]
    assert order(steps, set(), []) == list(range(9))
