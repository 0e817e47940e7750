"""Items 61, 175 to 183 and 224: hooks of Cells, eagerly and in graphs. Gradients are worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

import graphcell as ms
from graphcell import Tensor, nn
from graphcell.context import PYNATIVE_MODE


class Inner(nn.Cell):
    def construct(self, x: Any, scale: Any = 1.0) -> Any:
        return x * 3 * scale


class Net(nn.Cell):
    """3 · scale · x + 1"""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def construct(self, x: Any, scale: Any = 1.0) -> Any:
        return self.inner(x, scale=scale) + 1


X = (1.0, 2.0)


def values(y: Any) -> list[float]:
    found: list[float] = y.asnumpy().tolist()
    return found


# -- items 61, 178, 179: forward hooks ------------------------------------------------------------------------------------
def test_item_61_178_forward_hook(mode: int) -> None:
    net, x = Net(), Tensor(X)
    handle = net.inner.register_forward_hook(lambda cell, args, output: output * 2 + args[0])
    assert values(net(x)) == [8.0, 15.0]
    handle.remove()
    handle.remove()  # a second time does nothing
    assert values(net(x)) == [4.0, 7.0]
    net.inner.register_forward_hook(lambda cell, args, output: None)
    assert values(net(x)) == [4.0, 7.0]
    assert values(ms.grad(net)(x)) == [3.0, 3.0]


def test_item_178_forward_hook_with_kwargs(mode: int) -> None:
    net = Net()
    net.inner.register_forward_hook(lambda cell, args, kwargs, output: output + kwargs["scale"], with_kwargs=True)
    assert values(net(Tensor(X), scale=2.0)) == [9.0, 15.0]


def test_item_61_179_forward_pre_hook(mode: int) -> None:
    net, x = Net(), Tensor(X)
    handle = net.inner.register_forward_pre_hook(lambda cell, args: args[0] * 10)  # what is no tuple is wrapped
    assert values(net(x)) == [31.0, 61.0]
    handle.remove()
    handle = net.inner.register_forward_pre_hook(lambda cell, args: (args[0] + 1,))
    assert values(net(x)) == [7.0, 10.0]
    handle.remove()
    assert values(net(x)) == [4.0, 7.0]


def test_item_179_forward_pre_hook_with_kwargs(mode: int) -> None:
    net = Net()
    net.inner.register_forward_pre_hook(lambda cell, args, kwargs: ((args[0] * 2,), {"scale": kwargs["scale"] * 10}), with_kwargs=True)
    assert values(net(Tensor(X), scale=2.0)) == [121.0, 241.0]
    net.inner.register_forward_pre_hook(lambda cell, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match=r"must return None or a tuple of \(new_args, new_kwargs\)"):
        net(Tensor(X), scale=2.0)


def test_item_178_179_prepended_hooks_run_first(mode: int) -> None:
    cell, x = nn.Identity(), Tensor([1.0])
    cell.register_forward_pre_hook(lambda cell, args: args[0] + 1)
    cell.register_forward_pre_hook(lambda cell, args: args[0] * 10, prepend=True)
    assert values(cell(x)) == [11.0]
    cell.register_forward_hook(lambda cell, args, output: output + 100)
    cell.register_forward_hook(lambda cell, args, output: output * 2, prepend=True)
    assert values(cell(x)) == [122.0]


def test_item_178_always_called_hooks(mode: int) -> None:
    class Bad(nn.Cell):
        def construct(self, x: Any) -> Any:
            raise ValueError("no")

    seen: list[str] = []

    def always(cell: Any, args: Any, output: Any) -> None:
        seen.append(f"always {output is None}")

    def ordinary(cell: Any, args: Any, output: Any) -> None:
        seen.append("ordinary")

    def bad(cell: Any, args: Any, output: Any) -> None:
        raise KeyError("hook")

    net = Bad()
    net.register_forward_hook(ordinary)
    net.register_forward_hook(always, always_call=True)
    with pytest.raises(ValueError, match="no"):
        net(Tensor(X))
    assert "ordinary" not in seen
    if mode == PYNATIVE_MODE:
        assert seen == ["always True"]
        seen.clear()
        fine = nn.ReLU()
        fine.register_forward_hook(bad)
        fine.register_forward_hook(ordinary)
        fine.register_forward_hook(always, always_call=True)
        with pytest.raises(KeyError, match="hook"):
            fine(Tensor(X))
        assert seen == ["always False"]
        net.register_forward_hook(bad, always_call=True)
        with pytest.warns(RuntimeWarning, match="hook"), pytest.raises(ValueError, match="no"):
            net(Tensor(X))


# -- items 61, 175, 176: backward hooks ------------------------------------------------------------------------------------
def test_item_61_175_backward_hook(mode: int) -> None:
    net, x = Net(), Tensor(X)
    handle = net.inner.register_backward_hook(lambda cell, grad_input, grad_output: (grad_input[0] * 2 + grad_output[0],))
    assert values(ms.grad(net)(x)) == [7.0, 7.0]
    assert values(net(x)) == [4.0, 7.0]
    handle.remove()
    assert values(ms.grad(net)(x)) == [3.0, 3.0]
    net.register_backward_hook(lambda cell, grad_input, grad_output: grad_input[0] + 100)  # one Tensor instead of a tuple
    assert values(ms.grad(net)(x)) == [103.0, 103.0]


def test_item_61_176_backward_pre_hook(mode: int) -> None:
    net, x = Net(), Tensor(X)
    handle = net.inner.register_backward_pre_hook(lambda cell, grad_output: (grad_output[0] * 7,))
    assert values(ms.grad(net)(x)) == [21.0, 21.0]
    net.inner.register_backward_hook(lambda cell, grad_input, grad_output: (grad_input[0] + grad_output[0],))
    assert values(ms.grad(net)(x)) == [28.0, 28.0]  # the hook sees what the pre hook gave
    handle.remove()
    assert values(ms.grad(net)(x)) == [4.0, 4.0]


def test_item_175_gradients_have_a_place_for_each_tensor() -> None:
    class Mixed(nn.Cell):
        def construct(self, x: Any, n: Any, k: float, y: Any = None) -> Any:
            return x * k + n + y, n

    seen: list[Any] = []
    net = Mixed()
    net.register_backward_hook(lambda cell, grad_input, grad_output: seen.append((grad_input, grad_output)))
    ms.grad(lambda x: net(x, Tensor([1, 2]), 3.0, y=Tensor([1.0, 1.0]))[0].sum())(Tensor(X))
    (grad_input, grad_output), = seen
    assert values(grad_input[0]) == [3.0, 3.0] and grad_input[1:] == (None,)
    assert values(grad_output[0]) == [1.0, 1.0] and grad_output[1:] == (None,)


def test_item_175_backward_hooks_see_what_forward_hooks_made(mode: int) -> None:
    cell = nn.Identity()
    cell.register_forward_hook(lambda cell, args, output: (output * 2, output.astype(ms.float16)))
    cell.register_backward_hook(lambda cell, grad_input, grad_output: (grad_input[0] + 10 * grad_output[0] + 100 * grad_output[1].astype(ms.float32),))

    def total(x: Any) -> Any:
        double, half = cell(x)
        return double.sum() + half.astype(ms.float32).sum()

    assert values(ms.grad(total)(Tensor([1.0]))) == [113.0]


@pytest.mark.parametrize("result", [(), "two", 3, ("text",)])
def test_item_175_176_what_hooks_return_is_checked(mode: int, result: Any) -> None:
    net, x = Net(), Tensor(X)
    given = (x, x) if result == "two" else result
    size = len(given) if isinstance(given, tuple) else 1
    handle = net.inner.register_backward_hook(lambda cell, grad_input, grad_output: given)
    wrong = f"backward hook return value size is {size} not equal to expect grad input size 1" if size != 1 else "should be a tensor but got"
    with pytest.raises(TypeError, match=wrong):
        ms.grad(net)(x)
    handle.remove()
    net.inner.register_backward_pre_hook(lambda cell, grad_output: given)
    wrong = f"backward pre hook return value size is {size} not equal to expect output size 1" if size != 1 else "should be a tensor but got"
    with pytest.raises(TypeError, match=wrong):
        ms.grad(net)(x)


def test_item_175_hooks_steer_training_alike_in_both_modes(mode: int) -> None:
    net = nn.SequentialCell(nn.Dense(2, 2, weight_init="ones", bias_init="zeros"), nn.ReLU(), nn.Dense(2, 1, weight_init="ones", bias_init="zeros"))
    net[1].register_backward_hook(lambda cell, grad_input, grad_output: (grad_input[0] * 0.5,))
    net[2].register_backward_pre_hook(lambda cell, grad_output: (grad_output[0] * 3,))
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1)).set_train()
    losses = [float(step(Tensor([[1.0, 2.0]]), Tensor([[1.0]]))) for _ in range(2)]
    # (6 - 1)² = 25; the gradient of the output is 10, the pre hook makes 30 of it, the hook halves what reaches the first layer
    assert losses[0] == 25.0
    # after one step: hidden = 3 - 1.5 - 3 - 1.5 → below zero: ReLU gives 0; the output is its bias, 0 - 3 = -3; (-3 - 1)² = 16
    assert losses[1] == 16.0


def test_item_61_order_of_all_hooks() -> None:
    order: list[tuple[str, int]] = []
    cell = nn.ReLU()
    for k in range(2):
        cell.register_backward_hook(lambda c, gi, go, k=k: order.append(("backward", k)))
        cell.register_backward_pre_hook(lambda c, go, k=k: order.append(("backward pre", k)))
        cell.register_forward_hook(lambda c, a, o, k=k: order.append(("forward", k)))
        cell.register_forward_pre_hook(lambda c, a, k=k: order.append(("forward pre", k)))
    ms.grad(cell)(Tensor([1.0]))
    assert order == [(kind, k) for kind in ("forward pre", "forward", "backward pre", "backward") for k in (0, 1)]


# -- hooks that misbehave --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["forward", "forward_pre", "backward", "backward_pre"])
def test_item_175_to_179_hooks_that_raise_leave_nothing_behind(mode: int, kind: str) -> None:
    def bad(*args: Any) -> None:
        raise ValueError("from the hook")

    net, x = Net(), Tensor(X)
    handle = getattr(net.inner, f"register_{kind}_hook")(bad)
    run = ms.grad(net) if kind.startswith("backward") else net
    for _ in range(2):
        with pytest.raises(ValueError, match="from the hook"):
            run(x)
    handle.remove()
    assert values(run(x)) == ([3.0, 3.0] if kind.startswith("backward") else [4.0, 7.0])


def test_hooks_that_remove_themselves_and_others(mode: int) -> None:
    cell, x, calls = nn.Identity(), Tensor([1.0]), []

    def once(cell: Any, args: Any, output: Any) -> Any:
        calls.append("once")
        handles[0].remove()
        handles[2].remove()
        return output + 1

    handles = [cell.register_forward_hook(once)]
    handles.append(cell.register_forward_hook(lambda cell, args, output: output * 10))
    handles.append(cell.register_forward_hook(lambda cell, args, output: output * 0))  # is gone before its turn
    assert values(cell(x)) == [20.0]
    assert values(cell(x)) == [10.0]
    assert calls == ["once"]


def test_hooks_that_register_others(mode: int) -> None:
    cell, x = nn.Identity(), Tensor([1.0])
    handle = cell.register_forward_hook(lambda c, args, output: c.register_forward_hook(lambda c, args, output: output * 2) and None)
    assert [values(cell(x)) for _ in range(3)] == [[1.0], [2.0], [4.0]]  # a new one is called from the next time on
    handle.remove()
    assert [values(cell(x)) for _ in range(2)] == [[8.0], [8.0]]


def test_item_175_178_hooks_registered_in_construct_add_up(mode: int) -> None:
    class Adds(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Identity()

        def construct(self, x: Any) -> Any:
            self.inner.register_forward_hook(lambda cell, args, output: output * 2)
            return self.inner(x)

    net = Adds()
    assert [values(net(Tensor([1.0]))) for _ in range(3)] == [[2.0], [4.0], [8.0]]


@pytest.mark.filterwarnings("ignore:.*runs as Python")
def test_a_call_that_does_not_compile_registers_once(mode: int) -> None:
    class Adds(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Identity()

        def construct(self, x: Any) -> Any:
            self.inner.register_forward_hook(lambda cell, args, output: output * 2)
            return self.inner(x) + float(x.asnumpy().sum())  # which a graph does not know

    net = Adds()
    assert [values(net(Tensor([1.0]))) for _ in range(3)] == [[3.0], [5.0], [9.0]]
    with pytest.raises(ValueError, match="broadcast"):
        ms.jit(lambda x: nn.Identity().register_forward_hook(print) and net.inner.register_forward_hook(print) and x + Tensor([1.0, 2.0, 3.0]))(Tensor([1.0, 2.0]))
    assert len(net.inner._forward_hooks) == 3


@pytest.mark.filterwarnings("ignore:.*runs as Python")
def test_a_backward_hook_that_removes_itself(mode: int) -> None:
    cell = nn.Identity()

    def once(cell: Any, grad_input: Any, grad_output: Any) -> Any:
        handle.remove()
        return (grad_input[0] * 10,)

    handle = cell.register_backward_hook(once)
    assert [values(ms.grad(cell)(Tensor([1.0]))) for _ in range(2)] == [[10.0], [1.0]]


@pytest.mark.parametrize(
    "kind", ["forward", "forward_pre", "backward", "backward_pre", "state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post"]
)
@pytest.mark.parametrize("bad", [3, None, "hook"])
def test_item_224_hooks_must_be_functions(kind: str, bad: Any) -> None:
    with pytest.raises(TypeError, match=f"Expected a callable hook function, but got {type(bad).__name__}."):
        getattr(nn.ReLU(), f"register_{kind}_hook")(bad)


# -- items 180 to 183: hooks of states -------------------------------------------------------------------------------------
def state_net() -> Any:
    return nn.SequentialCell(nn.Dense(2, 1, weight_init="ones", bias_init="zeros"), nn.ReLU())


def test_item_182_183_state_dict_hooks() -> None:
    net, seen = state_net(), []
    net[0].register_state_dict_pre_hook(lambda cell, prefix, keep_vars: seen.append(("pre", prefix, keep_vars)))
    net[0].register_state_dict_post_hook(lambda cell, state, prefix, metadata: seen.append(("post", list(state), prefix, metadata)))
    handle = net.register_state_dict_post_hook(lambda cell, state, prefix, metadata: state.update({prefix + "more": 1}))
    assert list(net.state_dict(prefix="z.")) == ["z.0.weight", "z.0.bias", "z.more"]
    assert seen == [("pre", "z.0.", False), ("post", ["z.0.weight", "z.0.bias"], "z.0.", {})]
    handle.remove()
    assert list(net.state_dict()) == ["0.weight", "0.bias"]
    net.register_state_dict_post_hook(lambda cell, state, prefix, metadata: {})
    with pytest.raises(RuntimeError, match="state_dict post-hook must return None"):
        net.state_dict()


def test_item_181_load_state_dict_pre_hook() -> None:
    net, seen = state_net(), []

    def rename(cell: Any, state: Any, prefix: Any, metadata: Any, strict: Any, missing: Any, unexpected: Any, errors: Any) -> None:
        seen.append((type(cell).__name__, prefix, metadata, strict, missing, unexpected, errors))
        state[prefix + "weight"] = state.pop(prefix + "w")

    handle = net[0].register_load_state_dict_pre_hook(rename)
    given = {"0.w": Tensor([[5.0, 6.0]]), "0.bias": Tensor([7.0])}
    assert str(net.load_state_dict(given)) == "<All keys matched successfully>"
    assert net[0].weight.asnumpy().tolist() == [[5.0, 6.0]]
    assert list(given) == ["0.w", "0.bias"]  # the caller's dict stays as it is
    assert [s[:4] for s in seen] == [("Dense", "0.", {}, True)]
    handle.remove()
    net.register_load_state_dict_pre_hook(lambda *args: args[-1].append("my error"))
    with pytest.raises(RuntimeError, match="my error"):
        net.load_state_dict(net.state_dict())


def test_item_180_load_state_dict_post_hook() -> None:
    net, seen = state_net(), []

    def forgive(cell: Any, keys: Any) -> None:
        seen.append((list(keys.missing_keys), list(keys.unexpected_keys)))
        keys.missing_keys.clear()
        keys.unexpected_keys.clear()

    handle = net.register_load_state_dict_post_hook(forgive)
    net.load_state_dict({"0.weight": Tensor([[5.0, 6.0]]), "zz": Tensor([1.0])})
    assert seen == [(["0.bias"], ["zz"])] and net[0].weight.asnumpy().tolist() == [[5.0, 6.0]]
    handle.remove()
    handle = net.register_load_state_dict_post_hook(lambda cell, keys: keys.missing_keys.append("added"))
    with pytest.raises(RuntimeError, match='Missing key\\(s\\) in state_dict: "added"'):
        net.load_state_dict(net.state_dict())
    handle.remove()
    net.register_load_state_dict_post_hook(lambda cell, keys: keys)
    with pytest.raises(RuntimeError, match="not expected to return"):
        net.load_state_dict(net.state_dict())


@pytest.mark.parametrize("kind", ["state_dict_pre", "state_dict_post", "load_state_dict_pre", "load_state_dict_post"])
def test_item_180_to_183_hooks_that_raise_change_nothing(kind: str) -> None:
    def bad(*args: Any) -> None:
        raise ValueError("from the hook")

    net = state_net()
    handle = getattr(net, f"register_{kind}_hook")(bad)
    with pytest.raises(ValueError, match="from the hook"):
        net.state_dict() if kind.startswith("state") else net.load_state_dict({"0.weight": Tensor([[5.0, 6.0]]), "0.bias": Tensor([7.0])})
    assert net[0].weight.asnumpy().tolist() == [[1.0, 1.0]]
    handle.remove()
    assert len(net.state_dict()) == 2
