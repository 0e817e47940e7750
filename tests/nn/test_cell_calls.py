"""What backward hooks see and may return, what in-place methods do under `to_float`, declared inputs by name, what optimizers return.

Where nothing else is said, MindSpore 2.10 does the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE


@pytest.fixture(params=[PYNATIVE_MODE, GRAPH_MODE], ids=["eager", "graph"])
def mode(request: pytest.FixtureRequest) -> int:
    ms.set_context(mode=request.param)
    return int(request.param)


def lists(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        return type(x)(lists(e) for e in x)
    return x.asnumpy().tolist() if isinstance(x, Tensor) else x


# -- backward hooks ------------------------------------------------------------------------------------------------------
class Product(nn.Cell):
    def construct(self, x: Any, y: Any) -> Any:
        return x * y


class OfPositives(nn.Cell):
    """A product of what depends on the arguments, with or without a weight or a constant."""

    def __init__(self, other: str = "y"):
        super().__init__()
        self.product, self.other = Product(), other
        self.w = Parameter(Tensor([7.0, 9.0]), name="w")
        self.constant = Tensor([5.0, 6.0])

    def construct(self, x: Any, y: Any) -> Any:
        other = {"y": ops.relu(y), "w": self.w, "constant": self.constant}[self.other]
        return self.product(ops.relu(x), other)


def seen_by(cell: nn.Cell) -> list[Any]:
    """What a backward hook of `cell` will have been given."""
    seen: list[Any] = []
    cell.register_backward_hook(lambda _, grad_input, grad_output: seen.append((lists(grad_input), lists(grad_output))))
    return seen


X, Y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])


@pytest.mark.filterwarnings("ignore:.*runs as Python")
@pytest.mark.parametrize("position", [0, 1, (0, 1)])
def test_a_backward_hook_sees_the_gradients_of_all_arguments(position: Any, mode: int) -> None:
    for net in (Product(), OfPositives()):
        seen = seen_by(getattr(net, "product", net))
        want = ([3.0, 4.0], [1.0, 2.0])
        assert lists(ms.grad(net, position)(X, Y)) == (want if isinstance(position, tuple) else want[position])
        assert seen == [(want, ([1.0, 1.0],))]
        seen.clear()
        ops.GradOperation()(net)(X, Y)
        assert seen == [(want, ([1.0, 1.0],))]


def test_a_backward_hook_sees_the_gradients_of_parameters_and_none_of_constants() -> None:
    ms.set_context(mode=PYNATIVE_MODE)
    for other, want in (("w", ([7.0, 9.0], [1.0, 2.0])), ("constant", ([5.0, 6.0], None))):
        net = OfPositives(other)
        seen = seen_by(net.product)
        assert lists(ms.grad(net)(X, Y)) == want[0]
        net.w.requires_grad = False
        assert lists(ms.grad(net)(X, Y)) == want[0]
        assert seen == [(want, ([1.0, 1.0],))] * 2


def test_arguments_that_are_followed_for_hooks_do_not_need_gradients_of_their_own() -> None:
    """Where no hook lies on their way, ops without gradients may."""
    ms.set_context(mode=PYNATIVE_MODE)
    seen = seen_by(nn.ReLU())
    assert lists(ms.grad(lambda x, y: (x * ops.floor(y) + ops.argmax(y)).sum())(X, Y)) == [3.0, 4.0]
    assert seen == []


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (lambda g: None, None, ""),
        (lambda g: (g[0] * 2, g[1]), None, ""),
        (lambda g: (None, g[1]), TypeError, "should be a tensor but got NoneType"),
        (lambda g: (g[0], 3), TypeError, "should be a tensor but got int"),
        (lambda g: g[0], TypeError, "size is 1 not equal to expect grad input size 2"),
        (lambda g: (g[0].sum(), g[1]), ValueError, r"shape \(2,\), as the gradient that it got, but has shape \(\)"),
        (lambda g: (ops.ones((3,)), g[1]), ValueError, r"shape \(2,\), as the gradient that it got, but has shape \(3,\)"),
    ],
)
def test_what_a_backward_hook_returns_must_fit(given: Any, error: Any, message: str, mode: int) -> None:
    net = Product()
    handle = net.register_backward_hook(lambda _, grad_input, grad_output: given(grad_input))
    if error is None:
        factor = 1.0 if given(([], [])) is None else 2.0
        assert lists(ms.grad(net)(X, Y)) == [3.0 * factor, 4.0 * factor]
        return
    with pytest.raises(error, match=message):
        ms.grad(net)(X, Y)
    handle.remove()
    assert lists(ms.grad(net)(X, Y)) == [3.0, 4.0]


def test_a_hook_may_return_none_where_it_got_none() -> None:
    ms.set_context(mode=PYNATIVE_MODE)
    net = OfPositives("constant")
    net.product.register_backward_hook(lambda _, grad_input, grad_output: (grad_input[0] * 2, grad_input[1]))
    assert lists(ms.grad(net)(X, Y)) == [10.0, 12.0]


def test_what_a_backward_pre_hook_returns_must_fit(mode: int) -> None:
    net = Product()
    handle = net.register_backward_pre_hook(lambda _, grad_output: (None,))
    with pytest.raises(TypeError, match="should be a tensor but got NoneType"):
        ms.grad(net)(X, Y)
    handle.remove()
    net.register_backward_pre_hook(lambda _, grad_output: grad_output[0].sum())
    with pytest.raises(ValueError, match=r"backward pre hook should be a tensor of shape \(2,\)"):
        ms.grad(net)(X, Y)


def test_unused_outputs_have_zeros_for_gradients(mode: int) -> None:
    class Pair(nn.Cell):
        def construct(self, x: Any, y: Any) -> Any:
            return x * y, x + y

    net = Pair()
    net.register_backward_pre_hook(lambda _, grad_output: (grad_output[0] * 2, grad_output[1] + 1))
    assert lists(ms.grad(lambda x, y: net(x, y)[0], (0, 1))(X, Y)) == ([7.0, 9.0], [3.0, 5.0])


def test_forward_value_and_grad_of_labels_that_do_not_add_up_to_one(mode: int) -> None:
    """The gradient of -sum(labels * log(softmax(logits))) by finite differences; MindSpore gives softmax - labels."""
    labels, start = np.array([[1.0, 0.5, 2.0]]), np.array([[0.3, -0.2, 0.7]])

    def loss(logits: Any) -> Any:
        return -(labels * (logits - np.log(np.exp(logits).sum()))).sum()

    want = [(loss(start + step) - loss(start - step)) / 2e-6 for step in 1e-6 * np.eye(3)]
    cell = nn.ForwardValueAndGrad(nn.WithLossCell(nn.Identity(), nn.SoftmaxCrossEntropyWithLogits()), get_all=True)
    value, gradients = cell(Tensor(start, ms.float32), Tensor(labels, ms.float32))
    np.testing.assert_allclose(value.asnumpy(), [loss(start)], rtol=1e-6)
    np.testing.assert_allclose(gradients[0].asnumpy(), [want], rtol=1e-5)


# -- in place under to_float ---------------------------------------------------------------------------------------------
SMALL = np.float32(2.0**-14)  # too small to change 1 or 2 in float16
CHANGES: dict[str, tuple[Any, Any]] = {
    "add_": (lambda w, x: w.add_(float(SMALL)), lambda w, x: w + SMALL),
    "sub_": (lambda w, x: w.sub_(float(SMALL)), lambda w, x: w - SMALL),
    "mul_": (lambda w, x: w.mul_(float(1 + SMALL)), lambda w, x: w * (1 + SMALL)),
    "div_": (lambda w, x: w.div_(float(1 + SMALL)), lambda w, x: w / (1 + SMALL)),
    "add_ of a Tensor": (lambda w, x: w.add_(x, alpha=2), lambda w, x: w + 2 * x),
    "copy_": (lambda w, x: w.copy_(x), lambda w, x: x),
    "fill_": (lambda w, x: w.fill_(0.5), lambda w, x: np.full_like(w, 0.5)),
    "zero_": (lambda w, x: w.zero_(), lambda w, x: np.zeros_like(w)),
    "clamp_": (lambda w, x: w.clamp_(None, 1.5), lambda w, x: np.minimum(w, np.float32(1.5))),
    "exp_": (lambda w, x: w.exp_(), lambda w, x: np.exp(w)),
    "masked_fill_": (lambda w, x: w.masked_fill_(x > 3.5, 0.5), lambda w, x: np.where(x > 3.5, np.float32(0.5), w)),
    "index_fill_": (lambda w, x: w.index_fill_(0, Tensor([1]), 0.5), lambda w, x: np.array([w[0], 0.5], np.float32)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_in_place_methods_under_to_float_do_not_round_the_parameter(change: str, mode: int) -> None:
    """MindSpore's PYNATIVE_MODE loses most of these changes: they are made to the Parameter's copy in the narrow dtype."""
    made, expected = CHANGES[change]

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w = Parameter(Tensor(start), name="w")

        def construct(self, x: Any) -> Any:
            made(self.w, x)
            return self.w * 1.0

    start = np.array([1 + 3 * SMALL, 2 + 5 * SMALL], np.float32)
    net = Net().to_float(ms.float16)
    out = net(Y)
    want = expected(start.astype(np.float64), Y.asnumpy().astype(np.float64))
    np.testing.assert_allclose(net.w.asnumpy(), want, rtol=3e-7)
    assert out.dtype is ms.float16 and net.w.dtype is ms.float32
    np.testing.assert_array_equal(out.asnumpy(), net.w.asnumpy().astype(np.float16))


# -- declared inputs -----------------------------------------------------------------------------------------------------
class Scaled(nn.Cell):
    def construct(self, x: Any, y: Any = 1.0, *, scale: Any = 2.0) -> Any:
        return x * y * scale


def of(rows: int) -> Tensor:
    return Tensor(np.ones((rows, 2), np.float32))


def test_declared_inputs_given_by_keyword_are_checked() -> None:
    """MindSpore refuses to declare arguments that can only be given by keyword."""
    ms.set_context(mode=GRAPH_MODE)
    any_rows = Tensor(shape=[None, 2], dtype=ms.float32)
    net = Scaled()
    net.set_inputs(x=any_rows, scale=any_rows)
    for rows in (1, 3):
        assert lists(net(of(rows), scale=of(rows))) == lists(net(x=of(rows), scale=of(rows))) == [[1.0, 1.0]] * rows
    for given in (2.0, Tensor([[1, 2]]), Tensor([1.0, 2.0])):
        with pytest.raises((TypeError, ValueError), match=r"For set_inputs .*3th"):
            net(of(1), scale=given)
    with pytest.raises(TypeError, match=r"For set_inputs .*1th type should be Tensor\[Float32\]"):
        net(x=of(1).astype(ms.float16), scale=of(1))


def test_declared_inputs_leave_arguments_by_keyword_alone() -> None:
    ms.set_context(mode=GRAPH_MODE)
    net = Scaled()
    net.set_inputs(Tensor(shape=[None, 2], dtype=ms.float32))
    assert lists(net(of(3), scale=5.0)) == [[5.0, 5.0]] * 3
    with pytest.raises(ValueError, match="expected: 1 and input: 2"):
        net(of(3), 2.0)


def test_too_few_arguments_of_a_cell_with_declared_inputs() -> None:
    ms.set_context(mode=GRAPH_MODE)
    net = Product()
    net.set_inputs(of(1), of(1))
    with pytest.raises(TypeError, match="missing a required argument: 'y'"):
        net(of(1))
    with pytest.raises(TypeError, match="'z'"):
        net(of(1), of(1), z=3)


# -- optimizers and names ------------------------------------------------------------------------------------------------
ONE_FOR_EACH = (
    nn.SGD, nn.Momentum, nn.Adam, nn.AdamWeightDecay, nn.RMSProp, nn.Adagrad, nn.Adadelta, nn.AdaMax, nn.FTRL, nn.ProximalAdagrad, nn.LazyAdam, nn.Lamb
)  # fmt: skip


@pytest.mark.parametrize("kind", [*ONE_FOR_EACH, nn.ASGD, nn.Rprop])
def test_what_optimizers_return(kind: Any, mode: int) -> None:
    params = [Parameter(Tensor([1.0, 2.0]), name="a"), Parameter(Tensor([[1.0]]), name="b")]
    extra = {nn.Momentum: {"momentum": 0.9}}.get(kind, {})
    optimizer = kind(params, learning_rate=0.1, **extra)
    assert optimizer((Tensor([1.0, 1.0]), Tensor([[1.0]]))) == ((True, True) if kind in ONE_FOR_EACH else True)


def test_the_learning_rate_of_a_parameter_can_be_written_beside_rates_that_change(mode: int) -> None:
    a, b = (Parameter(Tensor([1.0]), name=name) for name in "ab")
    optimizer = nn.SGD([{"params": [a], "lr": 0.5}, {"params": [b], "lr": nn.ExponentialDecayLR(0.25, 1.0, 1)}])
    rate, schedule = optimizer.get_lr_parameter([a, b])
    assert rate.name == "learning_rate_group_0" and isinstance(schedule, nn.ExponentialDecayLR)
    gradients = (Tensor([1.0]), Tensor([1.0]))
    optimizer(gradients)
    assert (a.asnumpy().item(), b.asnumpy().item()) == (0.5, 0.75)
    ops.assign(rate, Tensor(0.125))
    optimizer(gradients)
    assert (a.asnumpy().item(), b.asnumpy().item()) == (0.375, 0.5)
    listed = nn.SGD([a], [0.5, 0.25]).get_lr_parameter(a)
    assert (listed.name, listed.asnumpy().tolist()) == ("learning_rate", [0.5, 0.25])


@pytest.mark.parametrize("flags", [("use_lazy", "use_offload"), ("use_lazy", "use_amsgrad"), ("use_offload", "use_amsgrad")])
def test_adam_refuses_flags_that_exclude_each_other(flags: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=r"can not both be True|no parameter named 'use_amsgrad'"):
        nn.Adam([Parameter(Tensor([1.0]), name="w")], **dict.fromkeys(flags, True))


def test_a_clone_takes_no_number_from_the_names_of_others() -> None:
    first = Parameter(1.0)
    assert first.clone().name == first.name
    number = int(first.name.removeprefix("Parameter#"))
    assert Parameter(1.0).name == f"Parameter#{number + 1}"


def test_a_hook_may_add_a_parameter_to_the_state() -> None:
    net = nn.Dense(2, 1)
    handle = net.register_state_dict_pre_hook(lambda cell, prefix, keep_vars: cell._params.update(extra=Parameter(Tensor([4.0]), name="extra")))
    assert list(net.state_dict()) == ["weight", "bias", "extra"]
    handle.remove()
    assert [p.name for p in net.get_parameters()] == ["weight", "bias", "extra"]
    assert net.extra.asnumpy().tolist() == [4.0]
