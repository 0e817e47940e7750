"""Hooks of Tensors, of Parameters, and of what the backward pass keeps (common members of the reference beside items 175 to 183)."""

from __future__ import annotations

from typing import Any

import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn


def values(y: Any) -> list[float]:
    found: list[float] = y.asnumpy().tolist()
    return found


# -- Tensor.register_hook --------------------------------------------------------------------------------------------------
def test_hooks_of_tensors_on_the_way(mode: int) -> None:
    weight = Parameter(Tensor([2.0]), name="w")

    def net(x: Any) -> Any:
        y = x * weight
        y.register_hook(lambda g: g * 10)
        y.register_hook(lambda g: g + 1)
        y.register_hook(lambda g: None)
        return y * 3 + y

    assert values(ms.grad(net)(Tensor([1.0]))) == [(4 * 10 + 1) * 2.0]
    assert values(ms.jit(ms.grad(net))(Tensor([1.0]))) == [82.0]
    assert values(ms.grad(lambda x: ms.jit(net)(x) * 1.0)(Tensor([1.0]))) == [82.0]


def test_hooks_of_parameters_and_inputs(mode: int) -> None:
    weight = Parameter(Tensor([2.0]), name="w")
    gradient = ms.grad(lambda x: x * weight, None, [weight])
    compiled = ms.jit(gradient)
    x = Tensor([5.0])
    assert values(gradient(x)[0]) == values(compiled(x)[0]) == [5.0]
    handle = weight.register_hook(hook_fn=lambda g: g * 100)
    assert values(gradient(x)[0]) == values(compiled(x)[0]) == [500.0]
    handle.remove()
    assert values(gradient(x)[0]) == values(compiled(x)[0]) == [5.0]
    x.register_hook(lambda g: g * 7)
    assert values(ms.grad(lambda x: x * weight)(x)) == [14.0]


@pytest.mark.parametrize(("hook", "error"), [(lambda g: 3, RuntimeError), (lambda g: Tensor([1.0, 2.0]), ValueError)])
def test_what_hooks_of_tensors_return_is_checked(mode: int, hook: Any, error: Any) -> None:
    def net(x: Any) -> Any:
        y = x * 2
        y.register_hook(hook)
        return y

    with pytest.raises(error):
        ms.grad(net)(Tensor([1.0]))
    with pytest.raises(TypeError, match="Expected a callable hook function"):
        Tensor([1.0]).register_hook(3)


# -- hooks of Parameters and of what the backward pass keeps ---------------------------------------------------------------
class Affine(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.w = Parameter(Tensor(2.0), name="w")
        self.b = Parameter(Tensor(1.0), name="b")

    def construct(self, x: Any) -> Any:
        return x * self.w + self.b


def test_parameter_forward_hooks_work_in_graphs() -> None:
    some, every, x = Affine(), Affine(), Tensor(3.0)
    run = ms.jit(ms.value_and_grad(some))
    assert list(map(float, run(x))) == [7.0, 2.0]
    some.register_parameter_forward_hook([{"params": [some.w], "hook": lambda param: param * 10}])
    every.register_parameter_forward_hook(lambda param: param * 10)
    assert list(map(float, run(x))) == [61.0, 20.0]
    assert list(map(float, ms.jit(ms.value_and_grad(every))(x))) == [70.0, 20.0]
    assert list(map(float, ms.jit(ms.grad(every, None, every.trainable_params()))(x))) == [30.0, 10.0]
    assert float(every(x)) == 7.0  # not eagerly


@pytest.mark.parametrize(
    ("hook", "error", "text"),
    [
        (3, TypeError, "Hook must be a callable function or a list of dictionaries, but got <class 'int'>."),
        ([3], TypeError, "Each item in the hook list must be a dictionary, but got <class 'int'>."),
        ([{"params": []}], ValueError, "must contain both params and hook keys"),
        ([{"params": [3], "hook": print}], TypeError, "All items in params must be of type 'Parameter', but got <class 'int'>."),
        ([{"params": [], "hook": 3}], TypeError, "The hook value must be callable, but got <class 'int'>."),
    ],
)
def test_parameter_forward_hooks_are_checked(hook: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        Affine().register_parameter_forward_hook(hook)


def test_saved_tensors_hooks() -> None:
    class Product(nn.Cell):
        def construct(self, x: Any) -> Any:
            return ms.ops.exp(x) * x

    events: list[str] = []

    def pack(t: Any) -> Any:
        events.append("pack")
        return t.asnumpy().copy()  # whatever the user likes

    def unpack(array: Any) -> Any:
        events.append("unpack")
        return Tensor(array)

    net, x = Product(), Tensor([1.0])
    net.register_saved_tensors_hooks(pack, unpack)
    assert values(ms.grad(lambda x: net(x) * x)(x)) == pytest.approx([3 * 2.718281828], rel=1e-6)  # (x² eˣ)' = (x² + 2x) eˣ
    assert events == ["pack"] * 3 + ["unpack"] * 3
    net(x)  # keeps nothing
    assert len(events) == 6
    net.register_saved_tensors_hooks(pack, lambda array: 3)
    with pytest.raises(RuntimeError, match="unpack_hook must return the Tensor that was packed, but returned int"):
        ms.grad(net)(x)
    with pytest.raises(TypeError, match="Expected a callable hook function"):
        net.register_saved_tensors_hooks(pack, None)


def test_saved_tensors_hooks_around_any_code() -> None:
    events: list[str] = []

    def pack(t: Any) -> Any:
        events.append("pack")
        return t + 1

    def unpack(t: Any) -> Any:
        events.append("unpack")
        return t

    def product(x: Any, y: Any) -> Any:
        with ms.saved_tensors_hooks(pack, unpack):
            out = x * y
        events.append("forward end")
        return out

    gradients = ms.grad(product, (0, 1))(Tensor([1.0, 1.0]), Tensor([1.0, 1.0]))
    assert [values(g) for g in gradients] == [[2.0, 2.0], [2.0, 2.0]]
    assert events == ["pack", "pack", "forward end", "unpack", "unpack"]
    with pytest.raises(RuntimeError, match="PYNATIVE_MODE only"):
        ms.jit(product)(Tensor([1.0]), Tensor([1.0]))
    with pytest.raises(TypeError):
        ms.saved_tensors_hooks(3, unpack)
