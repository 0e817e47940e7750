"""Cells: attributes, names, traversal, state, containers."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from tests.recording import caught, parameters, ramp


def net_class(ms: Any) -> Any:
    class Net(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.conv = ms.nn.Conv2d(1, 2, 3, weight_init="ones")
            self.bn = ms.nn.BatchNorm2d(2)
            self.block = ms.nn.SequentialCell(ms.nn.ReLU(), ms.nn.Flatten(), ms.nn.Dense(8, 3))
            self.scale = ms.Parameter(ms.Tensor([2.0]), name="other")
            self.cells_list = ms.nn.CellList([ms.nn.Dense(3, 3), ms.nn.Dense(3, 2, has_bias=False)])

        def construct(self, x: Any) -> Any:
            x = self.block(self.bn(self.conv(x))) * self.scale
            for cell in self.cells_list:
                x = cell(x)
            return x

    return Net


def naming(ms: Any) -> Any:
    net = net_class(ms)()
    outer = ms.nn.SequentialCell(OrderedDict([("first", net), ("last", ms.nn.Dense(2, 2))]))
    return [
        parameters(outer),
        [(n, type(c).__name__) for n, c in outer.cells_and_names()],
        [n for n, _ in outer.parameters_and_names()],
        [n for n, _ in net.parameters_and_names(name_prefix="pre")],
        [n for n, _ in net.parameters_and_names(expand=False)],
        list(outer.parameters_dict()),
        list(outer.parameters_dict(recurse=False)),
        [p.name for p in net.trainable_params()],
        [p.name for p in net.trainable_params(recurse=False)],
        [p.name for p in net.untrainable_params()],
        list(net.name_cells()),
        [type(c).__name__ for c in net.cells()],
        repr(outer),
        caught(outer.check_names),
    ]


def prefix(ms: Any) -> Any:
    class Plain(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__(auto_prefix=False)
            self.dense = ms.nn.Dense(2, 1)
            self.p = ms.Parameter(ms.Tensor([1.0]), name="q")

    class Shared(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.a = ms.nn.Dense(2, 2)
            self.b = self.a
            self.c = ms.nn.Dense(2, 2)
            self.c.weight = self.a.weight

    class Named(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.one = ms.Parameter(ms.Tensor([1.0]))
            self.two = ms.Parameter(ms.Tensor([1.0]), name="own_name")
            self.three = ms.ParameterTuple([ms.Parameter(ms.Tensor([1.0]), name="t1"), ms.Parameter(ms.Tensor([1.0]), name="t2")])

    class Deep(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.named = Named()

    class Twice(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__(auto_prefix=False)
            self.a = ms.nn.Dense(2, 2)
            self.b = ms.nn.Dense(2, 2)

    return [
        parameters(Plain()),
        [n for n, _ in Plain().parameters_and_names()],
        parameters(ms.nn.SequentialCell(Plain())),
        parameters(Shared()),
        [n for n, _ in Shared().cells_and_names()],
        parameters(Named()),
        parameters(Deep()),
        [n for n, _ in Deep().parameters_and_names()],
        caught(Twice().check_names),
        caught(lambda: ms.nn.Momentum(Twice().trainable_params(), 0.1, 0.9)),
        caught(lambda: list(Twice().parameters_dict())),
        repr(Shared()),
    ]


def rename(ms: Any) -> Any:
    dense = ms.nn.Dense(2, 2)
    dense.update_parameters_name("pre.")
    first = parameters(dense)
    dense.update_parameters_name()
    second = parameters(dense)
    dense.weight.name = "mine"
    holder = ms.nn.CellList([dense])
    return [first, second, parameters(holder), caught(lambda: dense.update_parameters_name(3)), caught(lambda: dense.update_parameters_name(""))]


def assign_attributes(ms: Any) -> Any:
    net = ms.nn.Dense(2, 2, weight_init="ones", bias_init="zeros")

    def set_(name: str, value: Any) -> Any:
        def action() -> Any:
            setattr(net, name, value)
            return str(getattr(net, name))

        return caught(action)

    class Early(ms.nn.Cell):
        def __init__(self) -> None:
            self.dense = ms.nn.Dense(2, 2)

    class EarlyParameter(ms.nn.Cell):
        def __init__(self) -> None:
            self.p = ms.Parameter(ms.Tensor([1.0]))

    class EarlyNumber(ms.nn.Cell):
        def __init__(self) -> None:
            self.p = 3
            super().__init__()
            self.q = 4

    early = EarlyNumber()
    results = [
        set_("weight", ms.Tensor([[1.0, 2.0], [3.0, 4.0]])),
        net.weight.value(),
        set_("weight", 3),
        set_("weight", None),
        set_("bias", ms.Parameter(ms.Tensor([5.0, 6.0]), name="new")),
        parameters(net),
        set_("extra", ms.nn.ReLU()),
        set_("extra", 3),
        set_("extra", ms.Tensor([1.0])),
        set_("extra", ms.nn.Tanh()),
        set_("number", 3),
        set_("number", ms.nn.Sigmoid()),
        set_("number", "text"),
        caught(lambda: net.unknown),
        caught(Early),
        caught(EarlyParameter),
        [early.p, early.q],
        hasattr(net, "unknown"),
    ]
    del net.extra
    results += [caught(lambda: net.extra), repr(net), caught(lambda: delattr(net, "unknown"))]
    del net.bias
    return [*results, parameters(net), caught(lambda: net.bias)]


def children(ms: Any) -> Any:
    net = ms.nn.Dense(2, 2)

    def insert(name: Any, cell: Any) -> Any:
        return caught(lambda: net.insert_child_to_cell(name, cell))

    return [
        insert("child", ms.nn.ReLU()),
        insert("child", ms.nn.Tanh()),
        repr(net),
        insert("weight", ms.nn.ReLU()),
        insert("", ms.nn.ReLU()),
        insert("a.b", ms.nn.ReLU()),
        insert(3, ms.nn.ReLU()),
        insert("x", 3),
        insert("none", None),
        insert("construct", ms.nn.ReLU()),
        [n for n, _ in net.cells_and_names()],
        caught(lambda: type(net.get_sub_cell("child")).__name__),
        caught(lambda: net.get_sub_cell("nothing")),
        caught(lambda: net.get_sub_cell("weight")),
        caught(lambda: type(net.get_sub_cell("")).__name__),
        caught(lambda: net.get_sub_cell("child.more")),
    ]


def inserted_parameters(ms: Any) -> Any:
    net = ms.nn.ReLU()
    p = ms.Parameter(ms.Tensor([1.0]), name="p")

    def insert(*args: Any) -> Any:
        return caught(lambda: net.insert_param_to_cell(*args))

    return [
        insert("w", p),
        insert("", p),
        insert("a.b", p),
        insert("a.b", ms.Parameter(ms.Tensor([1.0]), name="dot"), False),
        insert("x", 3),
        insert("none", None),
        insert("construct", p),
        insert("unnamed", ms.Parameter(ms.Tensor([1.0]))),
        parameters(net),
    ]


def calling(ms: Any) -> Any:
    class Two(ms.nn.Cell):
        def construct(self, x: Any, y: Any = 3.0, *rest: Any, scale: float = 1.0) -> Any:
            return (x + y) * scale + sum(rest)

    class Nothing(ms.nn.Cell):
        pass

    class Many(ms.nn.Cell):
        def construct(self, x: Any) -> Any:
            return x, (x + 1, [x * 2]), {"k": x}, 3, None, "s"

    class NoInit(ms.nn.Cell):
        def construct(self, x: Any, y: Any) -> Any:
            return x + y

    class Forgot(ms.nn.Cell):
        def __init__(self) -> None:
            self.number = 2

        def construct(self, x: Any) -> Any:
            return x * self.number

    x = ms.Tensor([1.0, 2.0])
    two = Two()
    return [
        two(x),
        two(x, x),
        two(x, y=x, scale=2.0),
        two(x, 1.0, 2.0, 3.0),
        two(y=x, x=x),
        caught(two),
        caught(lambda: two(x, z=1)),
        caught(lambda: two(x, x, x, x=x)),
        caught(lambda: Nothing()(x)),
        caught(lambda: Nothing()()),
        Many()(x),
        NoInit()(x, x),
        caught(lambda: NoInit()(x)),
        caught(lambda: NoInit()(x, x, x)),
        caught(lambda: Forgot()(x)),
        caught(lambda: ms.nn.Cell()(x)),
        caught(lambda: ms.nn.Cell().construct(x)),
        caught(lambda: ms.nn.CellList()(x)),
        caught(lambda: ms.nn.CellDict()(x)),
    ]


def training_state(ms: Any) -> Any:
    net = net_class(ms)()
    start = [net.training, net.phase, net.bn.training, net.requires_grad, net.auto_prefix if hasattr(net, "auto_prefix") else None]
    back = net.set_train() is net
    train = [net.training, net.phase, net.bn.training, net.bn.phase]
    net.set_train(False)
    predict = [net.training, net.phase, net.bn.training]
    net.bn.set_train()
    return [start, back, train, predict, [net.training, net.bn.training], net.set_grad() is net, net.requires_grad, net.bn.requires_grad, net.set_grad(False).requires_grad]


def flags(ms: Any) -> Any:
    net = ms.nn.SequentialCell(ms.nn.ReLU(), ms.nn.Dense(2, 2))
    made = ms.nn.Cell(flags={"speed": 3})
    return [
        net.get_flags(),
        net.add_flags(speed=1) is net,
        net.get_flags(),
        net.speed,
        net.add_flags_recursive(color="red") is net,
        net[0].color,
        net[1].get_flags(),
        net.get_flags(),
        made.speed,
        made.get_flags(),
    ]


def applied(ms: Any) -> Any:
    net = net_class(ms)()
    order: list[str] = []
    same = net.apply(lambda cell: order.append(type(cell).__name__)) is net
    return [order, same]


def floats(ms: Any) -> Any:
    class Kind(ms.nn.Cell):
        def construct(self, x: Any, y: Any = None, k: Any = 2.5) -> Any:
            return (x + 1.0).dtype, None if y is None else (y * 2.0).dtype

    class Net(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Kind()
            self.last = Kind().to_float(ms.float32)

        def construct(self, x: Any) -> Any:
            return (x + 1.0).dtype, self.inner(x, x), self.last(x, y=x)

    x = ms.Tensor([1.0, 2.0])
    net = Net()
    half = Net().to_float(ms.float16)
    half.last.to_float(ms.float32)
    dense = ms.nn.Dense(2, 2, weight_init="ones", bias_init="ones").to_float(ms.float16)
    conv = ms.nn.Conv2d(1, 1, 2, weight_init="ones").to_float(ms.float16)
    return [
        str(net(x)),
        str(half(x)),
        net.to_float(ms.float16) is net,
        dense(x),
        str(dense.weight.dtype),
        conv(ms.Tensor(ramp((1, 1, 3, 3)))),
        caught(lambda: net.to_float(ms.int32)),
        caught(lambda: net.to_float("float16")),
    ]


def buffers(ms: Any) -> Any:
    class Net(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", ms.Tensor([1.0]))
            self.register_buffer("hidden", ms.Tensor([2.0]), persistent=False)
            self.register_buffer("empty", None)
            self.dense = ms.nn.Dense(1, 1, weight_init="ones", bias_init="zeros")
            self.dense.register_buffer("inner", ms.Tensor([3.0]))

        def construct(self, x: Any) -> Any:
            return x + self.count

    net = Net()

    def register(*args: Any, **kwargs: Any) -> Any:
        return caught(lambda: net.register_buffer(*args, **kwargs))

    def set_(name: str, value: Any) -> Any:
        return caught(lambda: setattr(net, name, value))

    return [
        net(ms.Tensor([1.0])),
        [n for n, _ in net.named_buffers()],
        [n for n, _ in net.named_buffers(prefix="pre")],
        [n for n, _ in net.named_buffers(recurse=False)],
        list(net.buffers()),
        list(net.state_dict()),
        register("a.b", ms.Tensor([1.0])),
        register("", ms.Tensor([1.0])),
        register("construct", ms.Tensor([1.0])),
        register(3, ms.Tensor([1.0])),
        register("x", 3),
        register("count", ms.Tensor([9.0])),
        net.count,
        set_("count", 3),
        set_("count", ms.Tensor([7.0])),
        set_("count", None),
        str(net.count),
        caught(lambda: net.get_buffer("dense.inner")),
        caught(lambda: net.get_buffer("dense.weight")),
        caught(lambda: net.get_buffer("nothing")),
        caught(lambda: net.get_buffer("dense.nothing")),
        parameters(net),
    ]


def state_dicts(ms: Any) -> Any:
    def make() -> Any:
        net = ms.nn.SequentialCell(ms.nn.Dense(2, 1, weight_init="ones", bias_init="zeros"), ms.nn.BatchNorm1d(1))
        net.register_buffer("buf", ms.Tensor([4.0]))
        return net

    net, other = make(), make()
    state = net.state_dict()
    changed = {k: ms.Tensor(ramp(v.shape)) for k, v in state.items()}
    results: list[Any] = [list(state), type(state).__name__, state["0.weight"] is net[0].weight, str(other.load_state_dict(changed)), dict(other.state_dict())]
    missing = {k: v for k, v in changed.items() if k != "buf"} | {"extra": ms.Tensor([1.0])}
    results += [caught(lambda: other.load_state_dict(missing)), str(other.load_state_dict(missing, strict=False))]
    outcome = other.load_state_dict(missing, strict=False)
    results += [outcome.missing_keys, outcome.unexpected_keys]
    wrong = dict(changed) | {"0.weight": ms.Tensor([1.0])}
    results += [caught(lambda: other.load_state_dict(wrong)), caught(lambda: other.load_state_dict(3)), list(net.state_dict(prefix="p."))]
    destination: Any = OrderedDict()
    net.state_dict(destination=destination, prefix="d.")
    results += [list(destination)]
    seen: list[Any] = []
    handles = [
        net.register_state_dict_pre_hook(lambda cell, prefix, keep: seen.append(("pre", prefix, keep))),
        net.register_state_dict_post_hook(lambda cell, state, prefix, meta: seen.append(("post", len(state), prefix))),
        net.register_load_state_dict_pre_hook(lambda cell, state, prefix, meta, strict, missing, unexpected, errors: seen.append(("load", strict, missing, unexpected, errors))),
        net.register_load_state_dict_post_hook(lambda cell, keys: keys.missing_keys.clear()),
    ]
    net.state_dict()
    results += [str(net.load_state_dict({k: v for k, v in changed.items() if k != "buf"})), [list(s) for s in seen]]
    for handle in handles:
        handle.remove()
    seen.clear()
    net.state_dict()
    results += [seen, caught(lambda: net.get_extra_state()), caught(lambda: net.set_extra_state(3))]

    class Extra(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.got = None

        def get_extra_state(self) -> Any:
            return {"a": 1}

        def set_extra_state(self, state: Any) -> None:
            self.got = state

    extra = ms.nn.CellList([Extra()])
    results += [str(dict(extra.state_dict())), str(extra.load_state_dict({"0._extra_state": {"b": 2}})), extra[0].got]
    results += [caught(lambda: extra.load_state_dict({}))]
    return results


def various(ms: Any) -> Any:
    net = ms.nn.SequentialCell(ms.nn.Dense(2, 1))

    class Context:
        pass

    return [
        net.param_prefix,
        caught(net.update_cell_prefix),
        net[0].param_prefix,
        net.get_inputs(),
        caught(lambda: net.parameter_layout_dict),
        caught(lambda: net.pipeline_stage),
        caught(lambda: net.pipeline_segment),
        caught(lambda: net.set_boost("xx")),
        net.set_boost("less_bn") is net,
        net.set_comm_fusion(2) is net,
        net[0].weight.comm_fusion,
        net.set_broadcast_flag() is net,
        caught(lambda: net.update_cell_type("quant")),
        net.cell_type,
        net.get_scope(),
        caught(net.generate_scope),
        net[0].get_scope(),
        net.bprop_debug,
        caught(lambda: setattr(net, "bprop_debug", 3)),
        caught(lambda: net.recompute()),
        caught(lambda: net.recompute(unknown=True)),
        caught(lambda: net.recompute(mp_comm_recompute=False)),
        caught(lambda: net.set_jit_config(ms.JitConfig(jit_level="O1"))),
        caught(lambda: net.set_jit_config(3)),
        caught(lambda: net.set_inputs(ms.Tensor([[1.0, 2.0]]))),
        caught(lambda: net.set_inputs(ms.Tensor(shape=[None, 2], dtype=ms.float32))),
        caught(lambda: net.set_inputs(ms.Tensor(shape=[None, 2], dtype=ms.float32), zz=3)),
        caught(lambda: net.set_inputs(zz=3)),
        caught(lambda: net.shard(((1, 1),))),
        caught(lambda: net.set_data_parallel() is net),
        caught(lambda: net.remove_redundant_parameters()),
        caught(lambda: net.offload() is None),
        caught(lambda: net.cast_inputs((ms.Tensor([1.0]),), ms.float16)),
        caught(lambda: net.compile(ms.Tensor([[1.0, 2.0]]))),
        caught(lambda: type(net.get_func_graph_proto()).__name__),
        caught(lambda: list(net.parameters_broadcast_dict())),
        caught(lambda: [type(k).__name__ for k in net.init_parameters_data()]),
        caught(lambda: net.flatten_weights()),
        caught(lambda: net.to(ms.float16)),
        caught(lambda: net.run_construct((ms.Tensor([[1.0, 2.0]]),), {}).shape),
    ]


def containers(ms: Any) -> Any:
    nn = ms.nn
    x = ms.Tensor([[1.0, -2.0]])

    def dense() -> Any:
        return nn.Dense(2, 2, weight_init="ones", bias_init="ones")

    seq = nn.SequentialCell([dense(), nn.ReLU()])
    results: list[Any] = [seq(x), len(seq), repr(seq[0]), repr(seq[-1]), repr(seq[0:1]), [type(c).__name__ for c in seq]]
    seq.append(nn.Tanh())
    results += [repr(seq), parameters(seq)]
    seq[1] = nn.Sigmoid()
    results.append(repr(seq))
    del seq[0]
    results += [repr(seq), [n for n, _ in seq.cells_and_names()]]
    results += [parameters(seq)]
    named = nn.SequentialCell(OrderedDict([("a", dense()), ("b", nn.ReLU())]))
    results += [repr(named), parameters(named), named(x), repr(named[1])]
    empty = nn.SequentialCell()
    results += [len(empty), caught(lambda: empty(x)), repr(empty)]
    results += [caught(lambda: seq[9]), caught(lambda: seq["a"]), caught(lambda: nn.SequentialCell(3)), caught(lambda: nn.SequentialCell(3, 4)), caught(lambda: nn.SequentialCell([3]))]
    results += [caught(lambda: seq.append(3))]
    cells = nn.CellList([dense(), nn.ReLU()])
    results += [len(cells), repr(cells), parameters(cells), cells[1](cells[0](x)), repr(cells[0:1]), repr(cells[-1])]
    results += [repr(cells.append(dense())), parameters(cells)]
    cells.extend([nn.Tanh(), dense()])
    results += [repr(cells), parameters(cells)]
    cells.insert(1, dense())
    results += [repr(cells), parameters(cells)]
    cells[0] = nn.Sigmoid()
    del cells[1]
    results += [repr(cells), parameters(cells)]
    del cells[0:2]
    results += [repr(cells)]
    cells += [nn.ReLU()]
    results += [repr(cells)]
    results += [caught(lambda: cells.append(3)), caught(lambda: cells.extend(3)), caught(lambda: cells.extend([3])), caught(lambda: nn.CellList([3]))]
    results += [caught(lambda: cells[99]), caught(lambda: cells["x"]), caught(lambda: cells.insert(99, nn.ReLU())), caught(lambda: cells.insert("x", nn.ReLU()))]
    results += [caught(lambda: nn.CellList(3)), parameters(nn.CellList([dense()], auto_prefix=False)), caught(lambda: nn.CellList([nn.CellList([dense()])])), list(map(repr, nn.CellList([nn.ReLU()])))]
    return results


def dicts(ms: Any) -> Any:
    nn = ms.nn

    def dense() -> Any:
        return nn.Dense(2, 2)

    d = nn.CellDict({"conv": nn.ReLU(), "dense": dense()})
    results: list[Any] = [len(d), list(d), list(d.keys()), [repr(c) for c in d.values()], [(k, repr(c)) for k, c in d.items()], repr(d), parameters(d), "conv" in d, "x" in d]
    d["more"] = dense()
    d.update({"conv": nn.Tanh()})
    d.update([("pair", nn.Sigmoid())])
    d.update(nn.CellDict([["x", nn.ReLU()]]))
    results += [repr(d), parameters(d), repr(d.pop("conv")), len(d)]
    del d["more"]
    results += [list(d), caught(lambda: d["none"]), caught(lambda: d.pop("none")), caught(lambda: d.__setitem__(3, nn.ReLU())), caught(lambda: d.__setitem__("", nn.ReLU())), caught(lambda: d.__setitem__("a.b", nn.ReLU()))]
    results += [caught(lambda: d.__setitem__("x", 3)), caught(lambda: d.update(3)), caught(lambda: d.__setitem__("keys", nn.ReLU())), caught(lambda: nn.CellDict(3)), caught(lambda: d.update([1]))]
    d.clear()
    results += [len(d), caught(lambda: d[3]), repr(d), list(nn.CellDict(OrderedDict([("b", nn.ReLU()), ("a", nn.Tanh())])))]
    return results


def parameters_in_place(ms: Any) -> Any:
    class Counter(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.count = ms.Parameter(ms.Tensor(0.0), name="count", requires_grad=False)
            self.w = ms.Parameter(ms.Tensor([1.0, 2.0]), name="w")

        def construct(self, x: Any) -> Any:
            self.count = self.count + 1
            self.count += 10
            ms.ops.assign(self.w, self.w * 2)
            return self.w * x + self.count

    net = Counter()
    x = ms.Tensor([1.0, 1.0])
    return [net(x), net(x), net.count.value(), net.w.value(), parameters(net)]


def programs() -> dict[str, Any]:
    table = (
        naming, prefix, rename, assign_attributes, children, inserted_parameters, calling, training_state, flags, applied, floats, buffers, state_dicts,
        various, containers, dicts, parameters_in_place,
    )  # fmt: skip
    return {f.__name__: f for f in table}
