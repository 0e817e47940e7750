"""What stands beside the plain uses of items 116 to 229 of the checklist: attributes that collide, hooks of inner Cells, gradients by `bprop`
of other forms, refused arguments, other dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.recording import caught, parameters, said


def kind(action: Callable[[], Any]) -> Any:
    """What `action` returns, or the builtin class that it raises."""
    result = caught(action)
    if isinstance(result, BaseException):
        return next(c.__name__ for c in type(result).__mro__ if c.__module__ == "builtins")
    return result


def holder(ms: Any) -> Any:
    """A Cell that holds one of each kind: Cell `d`, Parameter `w`, buffer `b`, number `k`."""

    class Holder(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.d = ms.nn.Dense(1, 1, "ones", "zeros")
            self.w = ms.Parameter(ms.Tensor([1.0]), name="w")
            self.register_buffer("b", ms.Tensor([1.0]))
            self.k = 3

    return Holder()


# -- state ---------------------------------------------------------------------------------------------------------------
def item_160_161_177_222_names_that_are_taken(ms: Any) -> Any:
    def new(kind: str) -> Any:
        number = ms.Parameter(2.0)
        made = {"parameter": number, "cell": ms.nn.ReLU(), "number": 4, "none": None}
        return made[kind]

    found = {}
    for name in ("d", "w", "b", "k", "construct", "new"):
        for given in ("parameter", "cell", "number", "none"):
            net = holder(ms)
            outcome = said(lambda: setattr(net, name, new(given)))
            found[f"{name} = {given}"] = [outcome, parameters(net), [n for n, _ in net.cells_and_names()], [n for n, _ in net.named_buffers()]]
    return found


def item_161_parameters_in_a_tuple_take_names_too(ms: Any) -> Any:
    found = {}
    for name in ("k", "d", "b", "w", "construct", "x.y", "t"):
        net = holder(ms)
        outcome = said(lambda: setattr(net, "t", ms.ParameterTuple([ms.Parameter(5.0, name=name)])))
        found[name] = [outcome, parameters(net)]
    net = holder(ms)
    found["refused"] = [said(lambda: setattr(net, "k", ms.ParameterTuple([ms.Parameter(5.0, name="d")]))), net.k]
    return found


def item_043_161_parameters_without_names_in_tuples(ms: Any) -> Any:
    class Tuples(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.t = ms.ParameterTuple([ms.Parameter(1.0), ms.Parameter(2.0, name="named")])
            self.u = ms.ParameterTuple([ms.Parameter(3.0)])
            self.w = ms.Parameter(4.0)

    return [parameters(Tuples()), parameters(ms.nn.SequentialCell(Tuples(), Tuples()))]


def item_222_226_key_errors_print_quoted(ms: Any) -> Any:
    net = holder(ms)

    def printed(action: Callable[[], Any]) -> str:
        return str(caught(action)).replace("graphcell", "mindspore")

    return [
        printed(lambda: net.insert_child_to_cell("a.b", ms.nn.ReLU())),
        printed(lambda: net.insert_param_to_cell("", ms.Parameter(1.0))),
        printed(lambda: net.register_buffer("a.b", ms.Tensor(1.0))),
        printed(lambda: net.insert_param_to_cell("d", ms.Parameter(1.0))),
        printed(lambda: ms.nn.CellDict()["gone"]),
    ]


def item_148_extend_repr_that_gives_nothing(ms: Any) -> Any:
    class Silent(ms.nn.Cell):
        def extend_repr(self) -> Any:
            pass

    return [repr(Silent()), repr(ms.nn.SequentialCell(Silent(), Silent()))]


def item_181_pre_hooks_of_inner_cells_see_their_own_names(ms: Any) -> Any:
    seen = []

    def note(cell: Any, state: Any, prefix: str, *rest: Any) -> None:
        seen.append([type(cell).__name__, list(state), prefix])

    def rename(cell: Any, state: Any, prefix: str, *rest: Any) -> None:
        state[f"{prefix}weight"] = state.pop(f"{prefix}old")

    net = ms.nn.SequentialCell(ms.nn.Dense(1, 1), holder(ms))
    for cell in (net, net[0], net[1], net[1].d):
        cell.register_load_state_dict_pre_hook(note)
    state = {k: ms.Tensor(v.asnumpy() + 1) for k, v in net.state_dict().items()}
    results = [str(net.load_state_dict(state))]
    net[1].d.register_load_state_dict_pre_hook(rename)
    state["1.d.old"] = ms.Tensor([[9.0]])
    del state["1.d.weight"]
    results.append(said(lambda: net.load_state_dict(state)))
    return [*results, str(net.load_state_dict(state, strict=False)), net[1].d.weight, seen]


# -- bprop ---------------------------------------------------------------------------------------------------------------
def item_122_bprop_gives_more_than_there_are_inputs(ms: Any) -> Any:
    class Many(ms.nn.Cell):
        def construct(self, x: Any) -> Any:
            return x * x

        def bprop(self, x: Any, out: Any, dout: Any) -> Any:
            return (dout * x, dout)

    x = ms.Tensor([[1.0, 2.0]])
    return [ms.grad(Many())(x), ms.grad(ms.grad(Many()))(x)]


def item_122_bprop_of_arguments_with_defaults(ms: Any) -> Any:
    class Default(ms.nn.Cell):
        def construct(self, x: Any, k: Any = 2) -> Any:
            return x * k

        def bprop(self, x: Any, k: Any, out: Any, dout: Any) -> Any:
            return dout * 7 + out, 0

    x = ms.Tensor([1.0, 2.0])
    return [Default()(x, k=3), ms.grad(Default())(x), ms.grad(Default())(x, 3), ms.grad(Default())(x, 3.0)]


def item_122_bprop_of_arguments_by_keyword(ms: Any) -> Any:
    class Keyword(ms.nn.Cell):
        def construct(self, x: Any, *, k: Any = 2) -> Any:
            return x * k

        def bprop(self, x: Any, k: Any, out: Any, dout: Any) -> Any:
            return dout * 7 + out, dout * 3

    class Outer(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Keyword()

        def construct(self, x: Any, y: Any) -> Any:
            return self.inner(x, k=y)

    x, y = ms.Tensor([1.0]), ms.Tensor([5.0])
    return [Keyword()(x, k=3), Keyword()(x, k=y), ms.grad(Keyword())(x), ms.grad(Outer(), (0, 1))(x, y)]


def item_222_bprop_refused(ms: Any) -> Any:
    class Few(ms.nn.Cell):
        def construct(self, x: Any, y: Any) -> Any:
            return x * y

        def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any:
            return (dout,)

    class Unfit(Few):
        def bprop(self, x: Any, y: Any, dout: Any) -> Any:
            return dout, dout

    x = ms.Tensor([1.0])
    return [kind(lambda cell=cell: ms.grad(cell())(x, x)) for cell in (Few, Unfit)]


# -- what the tutorial's layers are made of --------------------------------------------------------------------------------
def item_124_unsorted_segment_sum(ms: Any) -> Any:
    total, data = ms.ops.UnsortedSegmentSum(), np.arange(12).reshape(4, 3)
    rows = ms.Tensor([0, -1, 0, 2], ms.int32)
    places = ms.Tensor(np.array([[0, 1, 0], [1, 1, 1], [2, 2, 0], [0, 0, 3]]), ms.int32)
    found = {str(d): total(ms.Tensor(data, d), rows, 3) for d in (ms.float32, ms.float16, ms.float64, ms.int32, ms.int8)}
    found["by element"] = total(ms.Tensor(data, ms.float32), places, 4)
    found["more segments"] = total(ms.Tensor(data, ms.float32), rows, 5)
    bad: list[Any] = [0, -3, 3.0]
    found["refused"] = [kind(lambda n=n: total(ms.Tensor(data, ms.float32), rows, n)) for n in bad]
    found["other lengths"] = kind(lambda: total(ms.Tensor(data, ms.float32), rows[:3], 3))
    found["no integers"] = kind(lambda: total(ms.Tensor(data, ms.float32), rows.astype(ms.float32), 3))
    return found


def item_115_stack(ms: Any) -> Any:
    x = ms.Tensor(np.arange(6).reshape(2, 3).astype(np.float32))
    bad: list[tuple[Any, Any]] = [([x, x], 3), ([x, x], -4), ([], 0), ([x, x[0]], 0), ([x, x.astype(ms.int32)], 0), ([1, 2], 0), ([x, x], 1.0)]
    found: list[Any] = [ms.ops.stack((x, x), a) for a in (0, -1, 1, -3)] + [ms.ops.stack([ms.Tensor(1), ms.Tensor(2)])]
    found += [kind(lambda t=t, a=a: ms.ops.stack(t, a)) for t, a in bad]
    return [*found, [said(lambda a=a: ms.ops.Stack(a)) for a in ("a", 1.0, None, True)]]


def item_211_213_214_threshold_of_other_dtypes(ms: Any) -> Any:
    def threshold(x: Any) -> Any:
        return ms.ops.select(ms.ops.gt(x, 1), x, ms.ops.fill(x.dtype, x.shape, 20))

    dtypes = (ms.float32, ms.float16, ms.float64, ms.int32, ms.int8, ms.uint8)
    data = [threshold(ms.Tensor([[0, 1, 2], [3, 4, 5]], d)) for d in dtypes]
    return [data, threshold(ms.Tensor(3.0)), threshold(ms.Tensor(np.zeros((0, 2), np.float32))).shape]


def item_212_fill(ms: Any) -> Any:
    fill: Any = ms.ops.fill
    given = [(ms.int32, (2, 2), 1.7), (ms.bool_, (2,), True), (ms.float32, (2,), True), (ms.float32, (), 3), (ms.float32, (0,), 3)]
    given += [(ms.float16, (2,), 1e6), (ms.float32, (2,), ms.Tensor(3.0)), (ms.float64, (1,), 0.1)]
    bad = [(ms.float32, (-1,), 3), (ms.float32, (2,), "a"), (ms.float32, (2.0,), 1), (ms.float32, (2,), None)]
    return [[fill(*a) for a in given], [kind(lambda a=a: fill(*a)) for a in bad]]


def item_213_select(ms: Any) -> Any:
    c, x = ms.Tensor([True, False, True]), ms.Tensor([0.5, 1.5, 2.5])
    given = [(c, x, x * 2), (c, x, 5.0), (c, x, 5), (c, 5.0, x), (c, 1, 2), (c, 1.0, 2.5), (c, ms.Tensor([1, 2, 3], ms.int32), 5)]
    given += [(ms.Tensor([[True], [False]]), x, x * 2), (c, x, ms.Tensor(1.0)), (c, x.astype(ms.float16), 5.0), (ms.Tensor(True), x, x * 2)]
    bad = [(c, x, ms.Tensor([1.0, 2.0])), (c, None, x), (c, x, "a")]
    return [[kind(lambda a=a: ms.ops.select(*a)) for a in given], [kind(lambda a=a: ms.ops.select(*a)) for a in bad]]


def item_216_dropout2d_of_other_dtypes(ms: Any) -> Any:
    keep, drop = ms.ops.Dropout2D(1.0), ms.ops.Dropout2D(0.0)
    dtypes = (ms.float32, ms.float16, ms.float64, ms.int32, ms.int8)
    x = {str(d): ms.Tensor(np.arange(8).reshape(1, 2, 2, 2), d) for d in dtypes}
    halves = ms.ops.Dropout2D(0.8)(ms.Tensor(np.full((64, 2, 1, 1), 3), ms.int32))[0].asnumpy()
    bad: list[Any] = [1, True, None, "a", 1.5, -0.1]
    refused = [said(lambda p=p: ms.ops.Dropout2D(p)) for p in bad] + [said(lambda: ms.ops.Dropout3D(0))]
    unfit = [kind(lambda s=s: keep(ms.Tensor(np.ones(s), ms.float32))) for s in ((2, 3), (2, 3, 4), (1, 2, 3, 4, 5))]
    unfit += [kind(lambda: keep(3)), kind(lambda: keep(x["Float32"].astype(ms.bool_)))]
    return [{d: [keep(t), drop(t)] for d, t in x.items()}, sorted(set(halves.ravel().tolist())), refused, unfit]


def item_219_astype_takes_types_of_python_and_numpy(ms: Any) -> Any:
    class Inside(ms.nn.Cell):
        def construct(self, x: Any) -> Any:
            return x.astype(float), x.astype("int32"), x.astype(bool), x.astype(int), x.astype(ms.float16)

    x = ms.Tensor([1.5, -2.5, 0.0])
    kinds: list[Any] = [float, int, bool, np.float32, np.int64, "float", "int", "bool", "float16", "half", "double", ms.int8]
    return [[x.astype(k) for k in kinds], Inside()(x), [kind(lambda k=k: x.astype(k)) for k in ("foo", 3, None)]]


# -- random numbers --------------------------------------------------------------------------------------------------------
def item_129_131_seeds_refused(ms: Any) -> Any:
    ops, one, bad = ms.ops, ms.Tensor([1.0]), (-1, 1.0, "a")
    functions: dict[str, Any] = {
        "uniform": lambda s: ops.uniform((1,), ms.Tensor(0.0), ms.Tensor(1.0), seed=s),
        "normal": lambda s: ops.normal((1,), 0.0, 1.0, seed=s),
        "standard_normal": lambda s: ops.standard_normal((1,), seed=s),
        "multinomial": lambda s: ops.multinomial(one, 1, seed=s),
    }
    found: dict[str, Any] = {name: [said(lambda f=f, s=s: f(s)) for s in bad] for name, f in functions.items()}
    for name in ("UniformReal", "UniformInt", "StandardNormal", "StandardLaplace"):
        cell = getattr(ops, name)
        found[name] = [[said(lambda c=cell, s=s: c(seed=s)) for s in bad], [said(lambda c=cell, s=s: c(seed2=s)) for s in bad]]
    found["floats"] = kind(lambda: ops.UniformInt()((2,), ms.Tensor(1.0), ms.Tensor(3.0)))
    return found


def item_129_dtypes_of_normal_numbers(ms: Any) -> Any:
    half, single, double = (ms.Tensor(1.0, d) for d in (ms.float16, ms.float32, ms.float64))
    pairs = [(0.0, 1.0), (0, 1), (half, half), (single, 1.0), (double, 1.0), (double, double), (ms.Tensor([1, 2]), 1.0)]
    pairs += [(0.0, ms.Tensor([1.0, 2.0], ms.float64)), (half, ms.Tensor([1.0, 2.0], ms.float64))]
    return [str(ms.ops.normal((3, 2), mean, deviation).dtype) for mean, deviation in pairs]


def item_129_the_generator_is_given_back(ms: Any) -> Any:
    return [type(ms.manual_seed(7)).__name__, ms.manual_seed(7) is ms.default_generator, ms.initial_seed()]


def programs() -> dict[str, Any]:
    return {name: f for name, f in globals().items() if name.startswith("item_")}
