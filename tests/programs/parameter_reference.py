"""`Parameter` and `ParameterTuple`: construction, names, attributes, values, copies, and what graphs write into them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np

from tests.recording import caught, said


def shown(p: Any) -> Any:
    return [str(p), p.asnumpy() if str(p.dtype) != "BFloat16" else p.astype("float32").asnumpy()]


def construction(ms: Any) -> Any:
    P, T, init = ms.Parameter, ms.Tensor, ms.common.initializer.initializer
    data = [
        T([1.0]), T([1, 2]), T(True), T(np.ones((2, 2)), ms.bfloat16), 3, -7, 2.5, 1e300, [1, 2], [1.0, 2.0], [[1, 2], [3, 4.5]], [],
        np.ones(2), np.array([1], np.int8), np.float32([1.5]), P(T([4.0]), name="inner", requires_grad=False), init("ones", [2], ms.float16), init(0, [2], ms.int32),
    ]  # fmt: skip
    bad = [(1.0, 2.0), True, 3 + 1j]
    return [
        [shown(P(x, name="n")) for x in data],
        [said(lambda x=x: P(x, name="n")) for x in bad],
        [caught(lambda x=x: P(x, name="n")) for x in ("text", None, {"a": 1}, 2**40)],
        str(P(default_input=2.0, name="z", requires_grad=False, layerwise_parallel=True, parallel_optimizer=False)),
        [said(lambda n=n: P(T([1.0]), name="a", **{n: 3})) for n in ("layerwise_parallel", "parallel_optimizer")],
        caught(lambda: P()),
    ]


def copies_of_data(ms: Any) -> Any:
    t, n = ms.Tensor([1.0, 2.0]), np.ones(2, np.float32)
    of_tensor, of_array = ms.Parameter(t, name="t"), ms.Parameter(n, name="n")
    of_parameter = ms.Parameter(of_tensor, name="p")
    of_tensor[0] = 7.0
    n[0] = 4
    first = [t.asnumpy().tolist(), of_array.asnumpy().tolist(), of_parameter.asnumpy().tolist()]
    t[1] = 9.0
    return [first, of_tensor.asnumpy().tolist()]


def names(ms: Any) -> Any:
    P, T = ms.Parameter, ms.Tensor

    class Net(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.p = P(T([1.0]))
            self.q = P(T([1.0]), name="other")
            self.r = P(T([1.0]), name="")
            self.s = P(T([1.0]), name=None)

    def rename(name: Any) -> str:
        p = P(T([1.0]), name="a")
        p.name = name
        return str(p.name)

    given = [P(T([1.0]), name=n).name for n in ("a", "a.b", "x" * 1024, " ", "中")][:3]
    return [
        given,
        [P(T([1.0]), name=n).name.split("#")[0] for n in (None, "", " ")],
        [said(lambda n=n: P(T([1.0]), name=n)) for n in (3, b"a", True)],
        caught(lambda: P(T([1.0]), name="x" * 1025)),
        [rename("b"), rename("a.b"), rename("").split("#")[0], rename(None).split("#")[0], said(lambda: rename(3))],
        [(n, p.name) for n, p in Net().parameters_and_names()],
        [p.name for p in ms.nn.SequentialCell(Net()).get_parameters()],
    ]


def attributes(ms: Any) -> Any:
    p = ms.Parameter(ms.Tensor([1.0]), name="p")
    names = "requires_grad layerwise_parallel parallel_optimizer parallel_optimizer_comm_recompute comm_fusion sliced unique cache_enable cache_shape key inited_param has_init"
    defaults = [str(getattr(p, n)) for n in names.split()]
    good = [
        ("requires_grad", False), ("layerwise_parallel", True), ("parallel_optimizer", False), ("parallel_optimizer_comm_recompute", True), ("comm_fusion", 3),
        ("sliced", True), ("unique", True), ("cache_enable", True), ("cache_shape", [1]), ("cache_shape", (2,)), ("key", 3),
    ]  # fmt: skip
    changed = []
    for name, value in good:
        setattr(p, name, value)
        changed.append(str(getattr(p, name)))
    said_of = [("layerwise_parallel", 3), ("parallel_optimizer", 3), ("comm_fusion", -1), ("comm_fusion", "a"), ("comm_fusion", True), ("cache_enable", 3), ("cache_shape", 3), ("key", "a")]
    return [
        defaults,
        changed,
        str(p),
        [said(lambda n=n, v=v: setattr(p, n, v)) for n, v in said_of],
        [caught(lambda n=n: setattr(p, n, 3)) for n in ("requires_grad", "parallel_optimizer_comm_recompute", "inited_param")],
    ]


def set_data(ms: Any) -> Any:
    P, T, init = ms.Parameter, ms.Tensor, ms.common.initializer.initializer

    def put(data: Any, **options: Any) -> Any:
        p = P(T([1.0, 2.0]), name="p")
        return [p.set_data(data, **options) is p, str(p), p.asnumpy()]

    kinds = ("int32", "int64", "float32", "float16", "bool_", "float64", "uint8")

    def cast(into: str, of: str) -> Any:
        p = P(T([1, 0], getattr(ms, into)), name="p")
        return caught(lambda: p.set_data(T([1, 1], getattr(ms, of))).asnumpy())

    good = [T([3, 4]), T([3.5, 4.5]), P(T([7.0, 8.0]), name="q"), init("ones", [2], ms.float16), init(9, [2], ms.int32), T([True, False]), T(np.ones(2), ms.float16)]
    p = P(T([1.0]), name="p")
    p.data = T([5.0])
    return [
        [put(d) for d in good],
        put(T([[1.0, 2.0]]), slice_shape=True),
        [said(lambda d=d: put(d)) for d in ([1.0, 2.0], np.ones(2, np.float32), "a", None)],
        [[cast(into, of) for of in kinds] for into in kinds],
        p.asnumpy(),
    ]


def index_assignment(ms: Any) -> Any:
    p = ms.Parameter(ms.Tensor([1.0, 2.0, 3.0]), name="p")

    def put(index: Any, value: Any) -> Any:
        p[index] = value
        return [str(p), p.asnumpy().tolist()]

    cases = [(0, 5.0), (slice(0, 2), 7), (1, ms.Tensor(9.0)), (-1, 3), (ms.Tensor([0, 1]), 1.0), (p > 2, 0.0)]
    return [[put(i, v) for i, v in cases], caught(lambda: put(9, 1.0))]


def clone(ms: Any) -> Any:
    P, T = ms.Parameter, ms.Tensor
    p = P(T([1.0, 2.0]), name="p", requires_grad=False)
    p.comm_fusion, p.layerwise_parallel = 3, True
    c = p.clone()
    kept = [shown(c), c.comm_fusion, c.layerwise_parallel, c is p]
    c.set_data(T([5.0, 6.0]))
    inits = ("same", "ones", "zeros", 0, 2.5, T([7.0, 8.0]), ms.common.initializer.One())
    return [kept, p.asnumpy(), [shown(p.clone(i)) for i in inits], [caught(lambda i=i: p.clone(i)) for i in ("xx", None, [1.0, 2.0], T([7]))]]


def copies(ms: Any) -> Any:
    results = []
    for again in (copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p)), lambda p: p.copy(), lambda p: p.clone()):
        p = ms.Parameter(ms.Tensor([1.0, 2.0]), name="p", requires_grad=False)
        q = again(p)
        q.set_data(ms.Tensor([9.0, 9.0]))
        results.append([type(q).__name__, str(q), q is p, p.asnumpy().tolist()])
    return results


def values(ms: Any) -> Any:
    P, T = ms.Parameter, ms.Tensor
    p = P(T([1.0, 2.0]), name="p")
    results: list[Any] = [type(p.value()).__name__, type(p.data).__name__, repr(p.value()), type(p + 1).__name__, type(p[0]).__name__]
    results += [isinstance(p, T), f"{p}", len(p), p.init_data() is p, float(P(2.0)), bool(P(T(0.0), name="z")), p.shape, p.ndim, p.size]
    p.data[0] = 5.0  # is written into the Parameter
    results.append(p.asnumpy().tolist())
    p.value()[0] = 6.0  # is not
    results.append(p.asnumpy().tolist())
    ms.ops.assign(p.data, T([8.0, 8.0]))
    results.append(p.asnumpy().tolist())
    before = p.data
    p.set_data(T([1.0, 1.0]))
    results.append(before.asnumpy().tolist())
    q = p
    q += 1
    q *= 3
    return [*results, q is p, p.asnumpy().tolist()]


def assign(ms: Any) -> Any:
    P, T = ms.Parameter, ms.Tensor
    p = P(T([1.0, 2.0]), name="p")
    results: list[Any] = []
    for name, value in (("assign", T([3.0, 4.0])), ("assign_add", T([3.0, 4.0])), ("assign_sub", T([1.0, 1.0])), ("assign", T([3, 4])), ("assign", T([1.0, 2.0], ms.float16))):
        getattr(ms.ops, name)(p, value)
        results.append([str(p), p.asnumpy().tolist()])
    bad = [("assign", 3.0), ("assign", T([1.0])), ("assign_add", T([3])), ("assign", T([1.0, 2.0], ms.float64)), ("assign", "x")]
    return [*results, [caught(lambda n=n, v=v: getattr(ms.ops, n)(p, v)) for n, v in bad], caught(lambda: ms.ops.assign(3, T([2.0]))), p.asnumpy()]


def order_of_writes(ms: Any) -> Any:
    P, T, ops = ms.Parameter, ms.Tensor, ms.ops

    class Line(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w = P(T([1.0, 2.0]), name="w")

        def construct(self, x: Any) -> Any:
            a = self.w + 0
            ops.assign(self.w, x)
            b = self.w + 0
            ops.assign_add(self.w, T([10.0, 10.0]))
            c = self.w + 0
            ops.assign_sub(self.w, T([1.0, 1.0]))
            self.w[0] = 100.0
            d = self.w + 0
            self.w += 1
            self.w *= 2
            return a, b, c, d, self.w + 0

    class Branch(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w = P(T([1.0, 2.0]), name="w")

        def construct(self, x: Any) -> Any:
            if x.sum() > 0:
                ops.assign(self.w, x)
            else:
                ops.assign_add(self.w, x)
            return self.w * 2

    class Loop(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.w = P(T(0.0), name="w")

        def construct(self, x: Any) -> Any:
            i = 0
            while i < 5:
                ops.assign_add(self.w, x)
                i += 1
            return self.w * 1

    line, branch, loop = Line(), Branch(), Loop()
    x = T([5.0, 6.0])
    return [line(x), line.w.value(), line(x), branch(x), branch.w.value(), branch(-x), branch.w.value(), loop(T(2.0)), loop.w.value(), loop(T(2.0))]


def tuples(ms: Any) -> Any:
    P, T = ms.Parameter, ms.Tensor
    x, y = P(T([1.0]), name="x"), P(T([2.0]), name="y", requires_grad=False)
    t = ms.ParameterTuple((x, y))
    results: list[Any] = [str(t), isinstance(t, tuple), len(ms.ParameterTuple([x, y])), len(ms.ParameterTuple(())), len(ms.ParameterTuple((x, x))), len(ms.ParameterTuple(p for p in (x, y)))]
    results += [[shown(p) for p in t.clone("pre", init=i)] for i in ("same", "ones", 0, T([5.0]))]
    results += [type(t.clone("a.b")).__name__, t.clone("a.b")[0].name, [said(lambda n=n: t.clone(n)) for n in ("", "a b", "a/b", ".a")], caught(lambda: t.clone(3)), caught(lambda: t.clone())]
    bad: list[Any] = [(x, 3), {"a": x}, "ab"]
    results += [[said(lambda b=b: ms.ParameterTuple(b)) for b in bad], [caught(lambda b=b: ms.ParameterTuple(b)) for b in (3, x, None)]]
    results += [said(lambda: ms.ParameterTuple((x, P(T([1.0]), name="x")))), [p.name for p in copy.deepcopy(t)], type(pickle.loads(pickle.dumps(t))).__name__]
    return results


def programs() -> dict[str, Any]:
    table = (construction, copies_of_data, names, attributes, set_data, index_assignment, clone, copies, values, assign, order_of_writes, tuples)
    return {f.__name__: f for f in table}
