"""Programs as people write them, in both modes, with the numbers and errors of MindSpore 2.10.0 on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Parameter, Tensor, nn, ops
from graphcell.errors import ArityError, DataIndexError, SourceNotFoundError, UnsupportedSyntaxError


@pytest.fixture(params=[ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
def mode(request: pytest.FixtureRequest) -> int:
    ms.set_context(mode=request.param)
    return int(request.param)


def lists(x: Any) -> Any:
    """Tensors in tuples as lists of numbers."""
    return tuple(map(lists, x)) if isinstance(x, tuple) else x.tolist() if isinstance(x, Tensor) else x


def cell(function: Callable[..., Any]) -> nn.Cell:
    """A Cell with this `construct`."""
    return type("Net", (nn.Cell,), {"construct": function})()


# -- a Parameter that is assigned ------------------------------------------------------------------------------------------
def assign(w: Any, x: Any) -> Any:
    ops.assign(w, x * 2.0)
    return (w * w * x).sum()


def use_what_assign_returns(w: Any, x: Any) -> Any:
    r = ops.assign(w, x * 2.0)
    return (r * r * x).sum()


def assign_add(w: Any, x: Any) -> Any:
    ops.assign_add(w, x * 2.0)
    return (w * x).sum()


def write_an_element(w: Any, x: Any) -> Any:
    w[1] = x[0] * x[2]
    return (w * w * x).sum()


def read_before_and_after(w: Any, x: Any) -> Any:
    y = w * x
    ops.assign(w, w * 3.0)
    return (y * w).sum()


def assign_in_a_branch(w: Any, x: Any) -> Any:
    if x.sum() > 0:
        ops.assign(w, x * 2.0)
    return (w * w * x).sum()


def assign_in_a_loop(w: Any, x: Any) -> Any:
    i = Tensor(0)
    while i < 2:
        ops.assign(w, x * 2.0)
        i = i + 1
    return (w * w * x).sum()


@pytest.mark.parametrize(
    ("function", "by_x", "by_w", "after"),
    [
        (assign, [1.0, 0.25, 16.0], [1.0, 0.25, 16.0], [1.0, -0.5, 4.0]),
        (use_what_assign_returns, [1.0, 0.25, 16.0], [1.0, 0.25, 16.0], [1.0, -0.5, 4.0]),
        (assign_add, [2.0, 1.5, 1.0], [0.5, -0.25, 2.0], [2.0, 1.5, 1.0]),
        (write_an_element, [1.0, 1.0, 9.0], [1.0, -0.5, -12.0], [1.0, 1.0, -3.0]),
        (read_before_and_after, [3.0, 12.0, 27.0], [2.0, -2.0, -24.0], [3.0, 6.0, -9.0]),
        (assign_in_a_branch, [1.0, 0.25, 16.0], [1.0, 0.25, 16.0], [1.0, -0.5, 4.0]),
        (assign_in_a_loop, [1.0, 0.25, 16.0], [1.0, 0.25, 16.0], [1.0, -0.5, 4.0]),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_gradients_do_not_look_into_what_is_assigned(mode: int, function: Any, by_x: Any, by_w: Any, after: Any) -> None:
    w, x = Parameter(Tensor([1.0, 2.0, -3.0]), name="w"), Tensor([0.5, -0.25, 2.0])
    assert lists(ms.grad(lambda x: function(w, x), 0, [w])(x)) == (by_x, (by_w,))
    assert w.tolist() == after


def test_gradients_of_a_compiled_function_that_assigns() -> None:
    """The function is a graph of its own there, differentiated later."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    w, x = Parameter(Tensor([1.0, 2.0, -3.0]), name="w"), Tensor([0.5, -0.25, 2.0])
    compiled = ms.jit(lambda x: assign(w, x))
    assert lists(ms.grad(compiled, 0, [w])(x)) == ([1.0, 0.25, 16.0], ([1.0, 0.25, 16.0],))


# -- indices out of range --------------------------------------------------------------------------------------------------
def gather(x: Any, i: Any) -> Any:
    return ops.gather(x, i, 0)


def take(x: Any, i: Any) -> Any:
    return x[i]


def take_one(x: Any, i: Any) -> Any:
    return x[i[0]]


def put(x: Any, i: Any) -> Any:
    y = x * 1.0
    y[i] = 5.0
    return y


def add_rows(x: Any, i: Any) -> Any:
    return ops.tensor_scatter_add(x, i.expand_dims(1), x[:1])


def sum_segments(x: Any, i: Any) -> Any:
    return ops.unsorted_segment_sum(x[:1], i, 3)


@pytest.mark.parametrize("function", [gather, take, take_one, put, add_rows, sum_segments])
def test_an_index_out_of_range_is_an_error(mode: int, function: Any) -> None:
    """MindSpore raises RuntimeError; after that the compiled function works on."""
    net = cell(lambda self, x, i: function(x, i))
    x, good = Tensor(np.arange(6.0).reshape(3, 2)), Tensor([1])
    want = net(x, good).tolist()
    for error in (RuntimeError, IndexError):
        with pytest.raises(error, match=r"out of range for|a segment id is 9") as caught:
            net(x, Tensor([9]))
        assert isinstance(caught.value, DataIndexError)
        if mode == ms.GRAPH_MODE:
            assert f"test_programs.py:{function.__code__.co_firstlineno + 1}:" in str(caught.value) or function is put
    assert net(x, good).tolist() == want


def test_an_index_out_of_range_in_a_loop(mode: int) -> None:
    def sum_of_squares(x: Any, count: Any) -> Any:
        i, total = Tensor(0), Tensor(0.0)
        while i < count:
            total = total + x[i] * x[i]
            i = i + 1
        return total

    x, function = Tensor([1.0, 2.0, 3.0]), ms.jit(sum_of_squares)
    assert function(x, Tensor(3)).item() == 14.0
    with pytest.raises(RuntimeError, match="out of range"):
        function(x, Tensor(4))
    with pytest.raises(RuntimeError, match="out of range"):
        ms.grad(sum_of_squares)(x, Tensor(4))
    assert ms.grad(sum_of_squares)(x, Tensor(2)).tolist() == [2.0, 4.0, 0.0]


def test_a_branch_may_keep_an_index_in_range(mode: int) -> None:
    def guarded(self: Any, x: Any, i: Any) -> Any:
        return x[i] if i.max() < 3 else x[i % 3]

    net, x = cell(guarded), Tensor([1.0, 2.0, 3.0])
    assert (net(x, Tensor([0, 2])).tolist(), net(x, Tensor([4, 2])).tolist()) == ([1.0, 3.0], [2.0, 3.0])


def test_class_numbers(mode: int) -> None:
    """Negative ones count from the end, ignored ones cost 0.0 (not -0.0), others must be classes."""
    x = Tensor(np.sqrt(np.arange(12, dtype=np.float32)).reshape(3, 4))
    want = [2.60148549079895, 1.1019155979156494, 1.317281723022461]
    np.testing.assert_allclose(ops.cross_entropy(x, Tensor([0, -1, 2]), reduction="none").asnumpy(), want, rtol=1e-6)
    by_x = [
        [-0.30861231684684753, 0.06719893217086792, 0.10168392211198807, 0.13972945511341095],
        [0.05805995315313339, 0.07351897656917572, 0.0910096988081932, -0.22258861362934113],
        [0.06394416838884354, 0.07591252028942108, -0.24404588341712952, 0.1041891872882843],
    ]
    np.testing.assert_allclose(ms.grad(ops.cross_entropy)(x, Tensor([0, -1, 2])).asnumpy(), by_x, rtol=1e-5)
    assert str(ops.cross_entropy(x[1:2], Tensor([-100]), reduction="none")) == "[0.]"
    for labels in ([0, 4, 2], [0, -5, 2]):
        with pytest.raises(RuntimeError, match="out of range"):
            nn.CrossEntropyLoss()(x, Tensor(labels))


# -- errors point at the user's line ---------------------------------------------------------------------------------------
def test_a_layer_that_is_called_directly_shows_the_call() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = nn.Conv2d(3, 4, 3)
    with pytest.raises(ValueError, match="2 channels") as caught:
        net(ops.ones((1, 2, 5, 5)))
    text = str(caught.value)
    assert "net(ops.ones((1, 2, 5, 5)))\n" in text
    assert "^" * len("net(ops.ones((1, 2, 5, 5)))") in text
    assert "graphcell/nn" not in text


def test_a_layer_inside_of_a_network_shows_the_line_of_the_network() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.SequentialCell(nn.ReLU(), nn.Embedding(3, 2))

        def construct(self, i: Any) -> Any:
            return self.body(i)

    net = Net()
    with pytest.raises(RuntimeError, match=r"(?s)out of range.*return self.body\(i\)") as caught:
        net(Tensor([7]))
    assert "graphcell/nn" not in str(caught.value)
    assert net(Tensor([2])).shape == (1, 2)


def generator(self: Any, x: Any) -> Any:
    yield x


async def asynchronous(self: Any, x: Any) -> Any:
    return x


@pytest.mark.parametrize(("construct", "error"), [(generator, "is a generator"), (asynchronous, "is asynchronous")])
def test_constructs_that_cannot_be_compiled(construct: Any, error: str) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    with pytest.raises(UnsupportedSyntaxError, match=error):
        cell(construct)(Tensor([1.0]))


def test_a_construct_without_source() -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    names: dict[str, Any] = {}
    exec("def construct(self, x):\n    return x * 3.0\n", names)
    with pytest.raises(SourceNotFoundError, match="no Python source was found for function construct"):
        cell(names["construct"])(Tensor([1.0]))
    ms.set_context(mode=ms.PYNATIVE_MODE)
    assert cell(names["construct"])(Tensor([1.0])).tolist() == [3.0]


def test_a_gradient_function_called_without_arguments(mode: int) -> None:
    def loss(x: Any) -> Any:
        return x.sum()

    with pytest.raises(TypeError, match="missing a required argument: 'x'") as caught:
        ms.grad(loss)()
    assert isinstance(caught.value, ArityError)
    with pytest.raises(IndexError, match="'grad_position' 5 is out of range"):
        ms.grad(loss, 5)(Tensor([1.0]))


# -- small differences -----------------------------------------------------------------------------------------------------
def test_item_in_a_compiled_function(mode: int) -> None:
    def scaled(self: Any, x: Any, n: Any) -> Any:
        y = x * x[1].item()
        if x.max().item() > 2.5:
            y = y + n.item()
        return y, n.item() * 2

    net = cell(scaled)
    assert lists(net(Tensor([1.0, 2.0]), Tensor(3))) == ([2.0, 4.0], 6)
    assert lists(net(Tensor([3.0, 2.0]), Tensor(3))) == ([9.0, 7.0], 6)
    with pytest.raises(ValueError, match="item"):
        cell(lambda self, x: x.item())(Tensor([1.0, 2.0]))


def test_bool_and_small_integers(mode: int) -> None:
    x = Tensor([[False, True], [True, True]])
    assert lists((ops.argmax(x), x.argmax(1))) == (1, [1, 0])
    for dtype in (ms.bool_, ms.int8, ms.uint8, ms.int16, ms.int32):
        sums = x.astype(dtype).cumsum(1)
        assert (sums.dtype, sums.tolist()) == (ms.int32, [[0, 1], [1, 2]])
    assert ops.cumsum(x.astype(ms.int8), 0).dtype == ms.int8


def test_a_checkpoint_needs_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(IsADirectoryError):
        ms.save_checkpoint(nn.Dense(2, 2), "")
    assert list(tmp_path.iterdir()) == []
