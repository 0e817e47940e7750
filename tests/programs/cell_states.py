"""Buffers, extra state and state dicts of `nn.Cell`, by the numbers of the checklist made from MindSpore's reference page of Cell."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from tests.programs.cell_reference import net_class
from tests.recording import parameters, said


def item_139_buffers(ms: Any) -> Any:
    net = net_class(ms)()
    net.dense.register_buffer("inner", ms.Tensor([5.0]))
    net.register_buffer("none", None)
    return [list(net.buffers()), list(net.buffers(recurse=False)), type(net.buffers()).__name__]


def item_150_226_get_buffer(ms: Any) -> Any:
    net = net_class(ms)()
    net.dense.register_buffer("inner", ms.Tensor([5.0]))
    return [net.get_buffer("count"), net.get_buffer("dense.inner"), [said(lambda t=t: net.get_buffer(t)) for t in ("zz", "dense.weight", "dense.zz", "zz.inner", "dense", "")]]


def item_151_190_extra_state(ms: Any) -> Any:
    class Extra(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.k = 1

        def get_extra_state(self) -> Any:
            return {"k": self.k}

        def set_extra_state(self, state: Any) -> None:
            self.k = state["k"]

    class OnlyGet(ms.nn.Cell):
        def get_extra_state(self) -> Any:
            return 3

    net = ms.nn.CellList([Extra(), ms.nn.ReLU()])
    state = net.state_dict()
    outcome = str(net.load_state_dict({"0._extra_state": {"k": 7}}))
    return [
        list(state),
        state["0._extra_state"],
        outcome,
        net[0].k,
        said(lambda: net.load_state_dict({})),
        str(net.load_state_dict({}, strict=False)),
        said(lambda: OnlyGet().load_state_dict({"_extra_state": 3})),
        said(lambda: ms.nn.ReLU().load_state_dict({"_extra_state": 3})),
        said(ms.nn.Cell().get_extra_state),
        said(lambda: ms.nn.Cell().set_extra_state(3)),
    ]


def state_net(ms: Any) -> Any:
    class Net(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.d = ms.nn.Dense(2, 1, weight_init="ones", bias_init="zeros")
            self.register_buffer("buf", ms.Tensor([1.0, 2.0]))
            self.register_buffer("hidden", ms.Tensor([3.0]), persistent=False)
            self.register_buffer("none", None)
            self.bn = ms.nn.BatchNorm1d(1)

    return Net()


def more(ms: Any, net: Any) -> dict[str, Any]:
    """The state of a net, every number one larger."""
    return {k: ms.Tensor(v.asnumpy() + 1) for k, v in net.state_dict().items()}


def item_162_163_223_load_state_dict(ms: Any) -> Any:
    net = state_net(ms)
    state = more(ms, net)
    outcome = net.load_state_dict(state)
    results: list[Any] = [str(outcome), repr(outcome), type(outcome).__name__, outcome.missing_keys, outcome.unexpected_keys, outcome == ([], [])]
    results += [net.d.weight.value(), net.buf, net.bn.moving_mean.value()]
    other = {k: v for k, v in state.items() if k not in ("buf", "d.bias")} | {"zz": ms.Tensor([1.0]), "d.yy": ms.Tensor([1.0])}
    results += [said(lambda: net.load_state_dict(other)), str(net.load_state_dict(other, strict=False))]
    wrong = state | {"d.weight": ms.Tensor([[1.0]]), "d.bias": "text"}
    results += [said(lambda: net.load_state_dict(wrong)), said(lambda: net.load_state_dict(wrong, strict=False))]
    for name in ("none", "hidden"):  # registered as None; not persistent
        results.append(said(lambda name=name: net.load_state_dict(state | {name: ms.Tensor([1.0])})))
    net.load_state_dict(state | {"d.weight": ms.Tensor([[7, 8]])})
    results += [net.d.weight.value(), said(lambda: net.load_state_dict(3)), said(lambda: net.load_state_dict(None))]
    results += [str(net.load_state_dict(OrderedDict(state))), str(net.load_state_dict({k: ms.Parameter(v, name="n") for k, v in state.items()})), net.d.weight.name]
    return results


def item_165_named_buffers(ms: Any) -> Any:
    net = state_net(ms)
    net.register_buffer("same", net.buf)
    net.d.register_buffer("inner", ms.Tensor([5.0]))
    return [[n for n, _ in net.named_buffers(*a, **k)] for a, k in (((), {}), (("pre",), {}), ((), {"recurse": False}), ((), {"remove_duplicate": False}))]


def item_177_register_buffer(ms: Any) -> Any:
    class Net(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", ms.Tensor([1.0]))
            self.register_buffer("hidden", ms.Tensor([2.0]), persistent=False)
            self.register_buffer("none", None)

        def construct(self, x: Any) -> Any:
            return x + self.count + self.hidden

    class TooEarly(ms.nn.Cell):
        def __init__(self) -> None:
            self.register_buffer("a", ms.Tensor([1.0]))

    net = Net()
    bad = [("a.b", ms.Tensor([1.0])), ("", ms.Tensor([1.0])), (3, ms.Tensor([1.0])), ("construct", ms.Tensor([1.0])), ("x", 3), ("x", [1.0])]
    results: list[Any] = [net(ms.Tensor([1.0])), list(net.state_dict()), net.none, parameters(net)]
    results += [said(lambda n=n, t=t: net.register_buffer(n, t)) for n, t in bad]
    net.register_buffer("count", ms.Tensor([10.0]))
    results += [net(ms.Tensor([1.0])), said(lambda: setattr(net, "count", 3)), said(lambda: setattr(net, "count", ms.Tensor([1.0]))), said(TooEarly)]
    net.count = None
    return [*results, net.count, [n for n, _ in net.named_buffers()]]


def item_196_state_dict(ms: Any) -> Any:
    net = state_net(ms)
    state = net.state_dict()
    into: Any = OrderedDict()
    return [
        list(state),
        type(state).__name__,
        state["d.weight"] is net.d.weight,
        state["buf"] is net.buf,
        net.state_dict(keep_vars=True)["d.weight"] is net.d.weight,
        list(net.state_dict(prefix="p.")),
        net.state_dict(destination=into) is into,
        list(into),
        said(lambda: net.state_dict(destination=3)),
        said(lambda: net.state_dict(prefix=3)),
    ]


def programs() -> dict[str, Any]:
    return {name: f for name, f in globals().items() if name.startswith("item_")}
