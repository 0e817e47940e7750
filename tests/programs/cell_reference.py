"""The members of `nn.Cell`, by the numbers of the checklist made from MindSpore's reference page of Cell."""

from __future__ import annotations

from typing import Any

from tests.recording import caught, fill, parameters, ramp, said


def net_class(ms: Any) -> Any:
    class Conv(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.conv = ms.nn.SequentialCell(ms.nn.Dense(3, 3), ms.nn.ReLU())

        def construct(self, x: Any) -> Any:
            return self.conv(x)

    class Outer(ms.nn.Cell):
        def __init__(self, auto_prefix: bool = True) -> None:
            super().__init__(auto_prefix)
            self.net_b = Conv()
            self.dense = ms.nn.Dense(3, 2)
            self.scale = ms.Parameter(ms.Tensor([2.0]), name="own")
            self.register_buffer("count", ms.Tensor([1.0]))

        def construct(self, x: Any) -> Any:
            return self.dense(self.net_b(x)) * self.scale + self.count

    return Outer


def item_132_class(ms: Any) -> Any:
    net = net_class(ms)()
    fill(ms, net)
    modes = ms.nn.BatchNorm1d(3)
    plain = modes(ms.Tensor(ramp((4, 3))))
    return [
        parameters(net),
        parameters(net_class(ms)(False)),
        [net.training, net.phase, net.requires_grad],
        net(ms.Tensor(ramp((2, 3)))),
        plain,
        modes.set_train()(ms.Tensor(ramp((4, 3)))),
        said(ms.nn.Cell),
        str(ms.nn.Cell(auto_prefix=False)),
    ]


def item_133_227_reserved_names(ms: Any) -> Any:
    class WithCast(ms.nn.Cell):
        def cast(self, x: Any) -> Any:
            return x * 2

        def construct(self, x: Any) -> Any:
            return self.cast(x)

    def assign(name: str, value: Any) -> str:
        def action() -> Any:
            net = ms.nn.ReLU()
            setattr(net, name, value)
            return str(getattr(net, name))

        return said(action)

    cases = [("phase", "mine"), ("phase", 3), ("phase", ms.nn.Tanh()), ("cells", ms.nn.Tanh()), ("cast", ms.nn.Tanh()), ("construct", ms.nn.Tanh())]
    return [WithCast()(ms.Tensor([1.0])), [assign(name, value) for name, value in cases]]


def item_134_flags_argument(ms: Any) -> Any:
    net = ms.nn.Cell(flags={"speed": 3, "color": "red"})
    return [net.get_flags(), net.speed, net.color, ms.nn.Cell(True, {"a": 1}).get_flags(), ms.nn.Cell(flags=None).get_flags()]


def item_135_add_flags(ms: Any) -> Any:
    net = ms.nn.ReLU()
    back = net.add_flags(speed=1, note="x") is net
    net.add_flags(speed=2)
    return [back, net.speed, net.note, net.get_flags()]


def item_136_add_flags_recursive(ms: Any) -> Any:
    net = net_class(ms)()
    back = net.add_flags_recursive(level=7) is net
    return [back, [cell.level for _, cell in net.cells_and_names()], net.dense.get_flags()]


def item_137_apply(ms: Any) -> Any:
    order: list[str] = []
    net = net_class(ms)()

    def constant(cell: Any) -> None:
        order.append(type(cell).__name__)
        if isinstance(cell, ms.nn.Dense):
            cell.weight.set_data(ms.ops.full(cell.weight.shape, 0.5, dtype=ms.float32))

    return [net.apply(constant) is net, order, net.dense.weight.value(), said(lambda: ms.nn.ReLU().apply(3))]


def item_138_bprop_debug(ms: Any) -> Any:
    class Custom(ms.nn.Cell):
        def construct(self, x: Any, k: float = 2.0) -> Any:
            return x * k

        def bprop(self, x: Any, k: float, out: Any, dout: Any) -> Any:
            return dout * 10.0 * k, 0

    class Two(ms.nn.Cell):
        def construct(self, x: Any) -> Any:
            return x * 2, x * 3

        def bprop(self, x: Any, out: Any, dout: Any) -> Any:
            return (dout[0] + 10 * dout[1] + out[0],)

    class Weighted(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w = ms.Parameter(ms.Tensor([5.0]), name="w")

        def construct(self, x: Any) -> Any:
            return x * self.w

        def bprop(self, x: Any, out: Any, dout: Any) -> Any:
            return (dout * 7.0,)

    x = ms.Tensor([1.0, 2.0])
    net = Custom()
    before = net.bprop_debug
    net.bprop_debug = True
    weighted = Weighted()
    return [
        before,
        net.bprop_debug,
        ms.grad(net)(x),
        ms.grad(net)(x, 3.0),
        net(x),
        ms.grad(Two())(x),
        ms.grad(weighted, 0, weighted.trainable_params())(x),
        said(lambda: setattr(net, "bprop_debug", 1)),
    ]


def item_140_cast_inputs(ms: Any) -> Any:
    return said(lambda: ms.nn.ReLU().cast_inputs((ms.Tensor([1.0]),), ms.float16))


def item_141_cells(ms: Any) -> Any:
    net = net_class(ms)()
    return [[type(c).__name__ for c in net.cells()], list(ms.nn.ReLU().cells())]


def item_142_cells_and_names(ms: Any) -> Any:
    net = net_class(ms)()
    net.again = net.dense
    return [
        [(n, type(c).__name__) for n, c in net.cells_and_names()],
        [n for n, _ in net.cells_and_names(name_prefix="top")],
        [n for n, _ in net.cells_and_names(cells={net.net_b})],
        type(net.cells_and_names()).__name__,
    ]


def item_143_check_names(ms: Any) -> Any:
    class Twice(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.a = ms.Parameter(ms.Tensor([1.0]), name="w")
            self.b = ms.Parameter(ms.Tensor([1.0]), name="w")

    return [said(net_class(ms)().check_names), said(Twice().check_names)]


def item_145_compile_and_run(ms: Any) -> Any:
    net = ms.nn.Dense(3, 2)
    fill(ms, net)
    return net.compile_and_run(ms.Tensor(ramp((4, 3))))


def item_147_construct(ms: Any) -> Any:
    class Nothing(ms.nn.Cell):
        pass

    class Many(ms.nn.Cell):
        def construct(self, x: Any, *rest: Any, scale: float = 1.0, **more: Any) -> Any:
            return x * scale + sum(rest) + more.get("shift", 0)

    x = ms.Tensor([1.0, 2.0])
    return [
        Many()(x),
        Many()(x, x, x, scale=2.0),
        Many()(x, shift=5.0),
        said(lambda: Nothing()(x)),
        said(lambda: ms.nn.Cell().construct(x)),
    ]


def item_148_extend_repr(ms: Any) -> Any:
    class Leaf(ms.nn.Cell):
        def extend_repr(self) -> str:
            return "a=1, b=2"

    class Lines(ms.nn.Cell):
        def extend_repr(self) -> str:
            return "first\nsecond"

    class Both(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.leaf = Leaf()
            self.lines = Lines()
            self.insert_child_to_cell("nothing", None)

        def extend_repr(self) -> str:
            return "c=3"

    return [str(Leaf()), str(Lines()), str(Both()), repr(ms.nn.SequentialCell(Both(), ms.nn.ReLU())), str([Leaf()])]


def item_149_156_scopes(ms: Any) -> Any:
    net = net_class(ms)()
    before = [net.get_scope(), net.dense.get_scope()]
    return [before, said(net.generate_scope), [c.get_scope() for _, c in net.cells_and_names()]]


def item_152_get_flags(ms: Any) -> Any:
    net = ms.nn.ReLU()
    first = dict(net.get_flags())
    net.add_flags(a=1)
    return [first, net.get_flags(), ms.nn.Dense(1, 1).to_float(ms.float16).get_flags()]


def item_155_get_parameters(ms: Any) -> Any:
    net = net_class(ms)()
    return [[p.name for p in net.get_parameters()], [p.name for p in net.get_parameters(expand=False)], type(net.get_parameters()).__name__]


def item_157_226_get_sub_cell(ms: Any) -> Any:
    net = net_class(ms)()
    found = [type(net.get_sub_cell(t)).__name__ for t in ("", "net_b", "net_b.conv", "net_b.conv.1", "dense")]
    return [found, [said(lambda t=t: net.get_sub_cell(t)) for t in ("zz", "net_b.9", "scale", "dense.weight", "net_b.conv.0.x")]]


def item_158_printed_tree(ms: Any) -> Any:
    return [str(net_class(ms)()), str(ms.nn.CellList([ms.nn.Dense(2, 1), ms.nn.ReLU()])), str(ms.nn.CellDict({"a": ms.nn.Tanh()})), str(ms.nn.SequentialCell())]


def item_160_222_insert_child(ms: Any) -> Any:
    class Net(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.first = ms.nn.Dense(2, 2)
            self.insert_child_to_cell("second", ms.nn.Dense(2, 1))

        def construct(self, x: Any) -> Any:
            return self.second(self.first(x))

    net = Net()
    results: list[Any] = [parameters(net), [n for n, _ in net.parameters_and_names()]]
    fill(ms, net)
    results.append(net(ms.Tensor(ramp((3, 2)))))
    bad = [("", ms.nn.ReLU()), ("a.b", ms.nn.ReLU()), (3, ms.nn.ReLU()), (None, ms.nn.ReLU()), ("x", 3), ("x", "cell"), ("construct", ms.nn.ReLU())]
    results += [said(lambda n=n, c=c: net.insert_child_to_cell(n, c)) for n, c in bad]
    net.insert_child_to_cell("first", ms.nn.ReLU())
    net.insert_child_to_cell("empty", None)
    return [*results, str(net)]


def item_161_222_insert_parameter(ms: Any) -> Any:
    net = ms.nn.ReLU()
    p = ms.Parameter(ms.Tensor([1.0]), name="p")
    bad: list[tuple[Any, ...]] = [("", p), ("a.b", p), ("w", 3), ("w", ms.Tensor([1.0])), ("construct", p)]
    errors = [said(lambda a=a: net.insert_param_to_cell(*a)) for a in bad]
    net.insert_param_to_cell("w", p)
    net.insert_param_to_cell("c.d", ms.Parameter(ms.Tensor([2.0]), name="dotted"), check_name_contain_dot=False)
    net.insert_param_to_cell("unnamed", ms.Parameter(ms.Tensor([3.0])))
    net.insert_param_to_cell("none", None)
    return [errors, parameters(net), [n for n, _ in net.parameters_and_names()], net.w is p]


def item_164_name_cells(ms: Any) -> Any:
    net = net_class(ms)()
    net.again = net.dense
    return [[(n, type(c).__name__) for n, c in net.name_cells().items()], type(net.name_cells()).__name__]


def item_169_parameters_and_names(ms: Any) -> Any:
    net = net_class(ms)()
    return [
        [(n, p.name) for n, p in net.parameters_and_names()],
        [n for n, _ in net.parameters_and_names(name_prefix="pre")],
        [n for n, _ in net.parameters_and_names(expand=False)],
        [n for n, _ in net.parameters_and_names("pre", False)],
    ]


def item_170_171_dicts(ms: Any) -> Any:
    net = net_class(ms)()
    results: list[Any] = [list(net.parameters_dict()), list(net.parameters_dict(recurse=False)), type(net.parameters_dict()).__name__]
    results += [list(net.parameters_broadcast_dict()), list(net.parameters_broadcast_dict(recurse=False))]
    net.dense.weight.layerwise_parallel = True
    return [*results, list(net.parameters_broadcast_dict()), ms.nn.ReLU().parameters_broadcast_dict()]


def item_174_recompute(ms: Any) -> Any:
    net = net_class(ms)()
    fill(ms, net)
    x = ms.Tensor(ramp((2, 3)))
    plain = ms.grad(net, None, net.trainable_params())(x)
    back = net.net_b.recompute()
    again = ms.grad(net, None, net.trainable_params())(x)
    return [
        plain,
        back,
        again,
        said(lambda: net.recompute(mp_comm_recompute=True, parallel_optimizer_comm_recompute=False)),
        said(lambda: net.recompute(unknown=True)),
        said(lambda: net.recompute(mp_comm_recompute=3)),
    ]


def item_186_225_set_boost(ms: Any) -> Any:
    net = ms.nn.SequentialCell(ms.nn.ReLU())
    return [net.set_boost("less_bn") is net, net.get_flags(), net[0].less_bn, said(lambda: net.set_boost("xx")), said(lambda: net.set_boost(3))]


def item_188_set_comm_fusion(ms: Any) -> Any:
    net = net_class(ms)()
    net.dense.bias.requires_grad = False
    results: list[Any] = [net.set_comm_fusion(3) is net, [p.comm_fusion for p in net.get_parameters()]]
    net.set_comm_fusion(5, recurse=False)
    results.append([p.comm_fusion for p in net.get_parameters()])
    return [*results, *(said(lambda v=v: net.set_comm_fusion(v)) for v in (-1, "x", 1.0, True))]


def item_193_set_jit_config(ms: Any) -> Any:
    net = ms.nn.SequentialCell(ms.nn.ReLU())
    results: list[Any] = [net.jit_config_dict, said(lambda: net.set_jit_config(3))]
    net.set_jit_config(ms.JitConfig(jit_level="O1", jit_syntax_level="LAX"))
    return [*results, net.jit_config_dict, net[0].jit_config_dict, net(ms.Tensor([-1.0, 1.0]))]


def item_194_set_train(ms: Any) -> Any:
    net = ms.nn.SequentialCell(ms.nn.Dropout(p=0.5), ms.nn.BatchNorm1d(2))
    results: list[Any] = [net.set_train() is net, [(c.training, c.phase) for _, c in net.cells_and_names()]]
    net.set_train(False)
    results.append([(c.training, c.phase) for _, c in net.cells_and_names()])
    net[1].set_train()
    return [*results, [c.training for _, c in net.cells_and_names()]]


def item_197_225_to_float(ms: Any) -> Any:
    net = net_class(ms)()
    back = net.to_float(ms.float16) is net
    flags = dict(net.dense.get_flags())
    net.to_float(ms.float32)
    kinds = [str(net.get_mixed_precision_type())]
    bad = [said(lambda d=d: net.to_float(d)) for d in ("float16", 3, None)] + [caught(lambda: net.to_float(ms.int32))]
    return [back, flags, net.get_flags(), kinds, bad, [str(p.dtype) for p in net.get_parameters()]]


def item_198_199_params(ms: Any) -> Any:
    net = net_class(ms)()
    net.dense.weight.requires_grad = False
    return [[p.name for p in ps] for ps in (net.trainable_params(), net.trainable_params(recurse=False), net.untrainable_params(), net.untrainable_params(False))]


def item_200_167_prefix(ms: Any) -> Any:
    net = net_class(ms)()
    before = [c.param_prefix for _, c in net.cells_and_names()]
    net.update_cell_prefix()
    return [before, [c.param_prefix for _, c in net.cells_and_names()], said(lambda: setattr(net, "param_prefix", "x"))]


def item_201_update_cell_type(ms: Any) -> Any:
    net = ms.nn.ReLU()
    before = net.cell_type
    net.update_cell_type("quant")
    first = net.cell_type
    net.update_cell_type("second-order")
    return [before, first, net.cell_type]


def item_202_update_parameters_name(ms: Any) -> Any:
    net = net_class(ms)()
    net.update_parameters_name("pre.")
    first = [p.name for p in net.get_parameters()]
    net.update_parameters_name("q", recurse=False)
    second = [p.name for p in net.get_parameters()]
    net.update_parameters_name()
    return [first, second, [p.name for p in net.get_parameters()], said(lambda: net.update_parameters_name("a b")), caught(lambda: net.update_parameters_name(None))]


def item_14_229_duplicate_names(ms: Any) -> Any:
    class Plain(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__(auto_prefix=False)
            self.a = ms.nn.Dense(2, 2)
            self.b = ms.nn.Dense(2, 2)

    net = Plain()
    return [parameters(net), said(net.check_names), caught(lambda: ms.nn.Momentum(net.trainable_params(), 0.1, 0.9)), list(net.parameters_dict())]


def programs() -> dict[str, Any]:
    return {name: f for name, f in globals().items() if name.startswith("item_")}
