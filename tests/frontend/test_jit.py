"""`@jit` itself: arguments, results, signatures, decorators, threads, tapes."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphcell import nn, ops
from graphcell.context import set_context
from graphcell.errors import ConcretizationError, SourceNotFoundError
from graphcell.grad import grad, value_and_grad
from graphcell.jit import JitFunction, jit
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.tensor import Tensor
from tests.frontend.support import same, tensor


def numbers(t: Any) -> list[float]:
    return [round(float(v), 5) for v in t.asnumpy().reshape(-1)]


def affine(x: Any, k: Any = 2, *, b: Any = 1) -> Any:
    """Multiplies."""
    return x * k + b


class Methods:
    def __init__(self, k: int):
        self.k = k

    @jit
    def scaled(self, x: Any) -> Any:
        return x * self.k

    @jit
    @staticmethod
    def static(x: Any) -> Any:
        return x + 1

    @staticmethod
    @jit
    def other_static(x: Any) -> Any:
        return x + 2


class Net(nn.Cell):
    def __init__(self, k: float):
        super().__init__()
        self.w = Parameter(tensor(k), name="w")

    @jit
    def construct(self, x: Any) -> Any:
        return x * self.w


def test_results_of_all_kinds() -> None:
    @jit
    def f(x: Any) -> Any:
        return x, {"a": [x * 2, 1, None]}, "s", (2.5, True), [], x

    got = f(tensor(1.0, 2.0))
    same(got, (tensor(1.0, 2.0), {"a": [tensor(2.0, 4.0), 1, None]}, "s", (2.5, True), [], tensor(1.0, 2.0)))


def test_numbers_come_back_as_numbers() -> None:
    @jit
    def f(x: Any) -> Any:
        n = 0
        while x.sum() < 10:
            x = x + 1
            n += 1
        return n, int(x.sum()), float(x[0]), bool(x[0] > 1), n > 3

    n, total, first, flag, many = f(tensor(1.0, 2.0))
    assert (type(n), type(total), type(first), type(flag), type(many)) == (int, int, float, bool, bool)
    assert (n, total, first, flag, many) == (4, 11, 5.0, True, True)


def test_arguments_of_all_kinds() -> None:
    @jit
    def f(a: Any, pair: Any, table: Any, n: Any, *rest: Any, flag: Any = False, **others: Any) -> Any:
        y = a + pair[0] * n + table["k"]
        for r in rest:
            y = y + r
        return (y if flag else -y), sorted(others)

    args = (tensor(1.0), (tensor(2.0), 5), {"k": tensor(3.0)}, 4, tensor(10.0), 20)
    same(f(*args, flag=True, z=1), (tensor(42.0), ["z"]))
    same(f(*args, z=1), (tensor(-42.0), ["z"]))
    with pytest.raises(TypeError, match="missing 3 required positional"):
        f(tensor(1.0))


def test_one_graph_for_one_signature() -> None:
    f = jit(affine)
    for _ in range(2):
        f(tensor(1.0))
        f(tensor(1.0, 2.0))
        f(tensor(1.0), 3)
        f(tensor(1.0), 3.0)
        f(tensor(1.0), k=3)
        f(tensor(1.0, dtype=np.int32))
    assert len(list(f._all_entries())) == 6
    assert "argument" in f._why or "number of arguments" in f._why


def test_signs_of_zero_and_types_of_constants_differ() -> None:
    f = jit(lambda x, k: x * k)
    assert np.signbit(f(tensor(1.0), -0.0).asnumpy()).tolist() == [True]
    assert np.signbit(f(tensor(1.0), 0.0).asnumpy()).tolist() == [False]
    assert f(tensor(1, dtype=np.int32), 1).dtype is not f(tensor(1, dtype=np.int32), 1.0).dtype


def test_numpy_arguments_are_constants_by_value() -> None:
    f = jit(lambda x, a: x * Tensor(a))
    a = np.array([2.0], np.float32)
    assert numbers(f(tensor(1.0), a)) == [2.0]
    a[0] = 3.0
    assert numbers(f(tensor(1.0), a)) == [3.0]


def test_attributes_are_the_originals() -> None:
    f = jit(affine)
    assert (
        f.__name__ == "affine"
        and f.__doc__ == "Multiplies."
        and f.__wrapped__ is affine
        and isinstance(f, JitFunction)
    )
    assert jit(f) is f


def test_forms_of_the_decorator() -> None:
    @jit
    def f(x: Any) -> Any:
        return x + 1

    @jit(jit_level="O1", fullgraph=True, backend="ms_backend", exec_order="dfs", anything=1)
    def g(x: Any) -> Any:
        return x + 2

    assert numbers(f(tensor(1.0))) == [2.0] and numbers(g(tensor(1.0))) == [3.0]
    assert numbers(jit(lambda x: x * 3)(tensor(1.0))) == [3.0]
    assert numbers(jit(function=affine)(tensor(1.0))) == [3.0]
    assert numbers(jit(nn.ReLU())(tensor(-1.0))) == [0.0]
    assert numbers(jit(nn.ReLU().construct)(tensor(-1.0))) == [0.0]
    assert jit(3) == 3 and jit(None) is not None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"capture_mode": "zz"},
            ValueError,
            "For 'jit', the 'capture_mode' must be str and must be in '['ast', 'bytecode', 'trace']', but got 'zz'.",
        ),
        (
            {"jit_level": "O2"},
            ValueError,
            "For 'jit', the 'jit_level' must be str and must be in '['O0', 'O1']', but got 'O2'.",
        ),
        (
            {"jit_level": 3},
            ValueError,
            "For 'jit', the 'jit_level' must be str and must be in '['O0', 'O1']', but got '3'.",
        ),
        (
            {"dynamic": 2},
            ValueError,
            "For 'jit', the 'dynamic' must be in range of [0, 1], but got 2 with type 'int'.",
        ),
        ({"dynamic": "a"}, TypeError, "For 'jit', the 'dynamic' must be 'int',  but got 'str'."),
        ({"fullgraph": 3}, TypeError, "For 'jit', the 'fullgraph' must be a bool, but got int."),
        (
            {"exec_order": "a"},
            ValueError,
            "For 'exec_order', the value of 'exec_order' must be one of ['bfs', 'dfs'], but got 'a'.",
        ),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as e:
        jit(affine, **options)
    assert str(e.value) == message


def test_methods() -> None:
    a, b = Methods(2), Methods(3)
    assert [numbers(o.scaled(tensor(1.0))) for o in (a, b, a)] == [[2.0], [3.0], [2.0]]
    a.k = 7
    assert numbers(a.scaled(tensor(1.0))) == [7.0]
    assert numbers(a.static(tensor(1.0))) == [2.0] and numbers(Methods.other_static(tensor(1.0))) == [3.0]


def test_compiled_construct() -> None:
    nets = [Net(2.0), Net(3.0)]
    assert [numbers(n(tensor(1.0))) for n in nets] == [[2.0], [3.0]]
    other = copy.deepcopy(nets[0])
    other.w.set_data(tensor(9.0))
    assert [numbers(n(tensor(1.0))) for n in (other, *nets)] == [[9.0], [2.0], [3.0]]


def test_parameters_as_arguments() -> None:
    @jit
    def f(p: Any, x: Any) -> Any:
        ops.assign(p, p + x)
        return p * 2

    p, q = Parameter(tensor(1.0), name="p"), Parameter(tensor(10.0), name="q")
    assert numbers(f(p, tensor(1.0))) == [4.0] and numbers(p) == [2.0]
    assert numbers(f(q, tensor(1.0))) == [22.0] and numbers(q) == [11.0]
    assert numbers(f(p, tensor(1.0))) == [6.0] and numbers(p) == [3.0]


def test_compiled_functions_call_each_other() -> None:
    @jit
    def inner(x: Any) -> Any:
        if x.sum() > 0:
            return x
        return -x

    @jit
    def outer(x: Any) -> Any:
        return inner(x) + inner(-x)

    assert numbers(outer(tensor(1.0, 2.0))) == [2.0, 4.0]
    assert inner._last is None  # it became part of the outer graph


def test_gradients_of_compiled_functions() -> None:
    net = Net(3.0)

    @jit
    def f(x: Any) -> Any:
        y = x * x
        if y.sum() > 10:
            y = y * 2
        return (y * net.w).sum()

    assert numbers(grad(f)(tensor(2.0))) == [12.0]
    assert numbers(grad(f)(tensor(4.0))) == [48.0]
    assert numbers(grad(f, None, net.w)(tensor(2.0))) == [4.0]
    value, gradient = value_and_grad(lambda x: f(x) * 2)(tensor(2.0))
    assert numbers(value) == [24.0] and numbers(gradient) == [24.0]


def test_compiled_gradients() -> None:
    def f(x: Any) -> Any:
        for _ in range(9):
            x = x * 1.5
        return x.sum()

    assert np.allclose(jit(grad(f))(tensor(1.0, 2.0)).asnumpy(), 1.5**9)

    @jit
    def step(x: Any) -> Any:
        value, gradient = value_and_grad(f)(x)
        return x - gradient * 0.1, value

    assert np.allclose(step(tensor(1.0))[0].asnumpy(), 1.0 - 0.1 * 1.5**9)


def test_writes_of_compiled_functions_under_a_tape() -> None:
    p = Parameter(tensor(1.0), name="p")

    @jit
    def f(x: Any) -> Any:
        y = (x * p).sum()
        ops.assign(p, p + 1)
        return y

    assert numbers(grad(f)(tensor(5.0))) == [1.0] and numbers(p) == [2.0]
    assert numbers(grad(f)(tensor(5.0))) == [2.0] and numbers(p) == [3.0]


def test_threads() -> None:
    @jit
    def f(x: Any) -> Any:
        while x.sum() < 100:
            x = x * 2
        return x

    inputs = [tensor(float(k + 1)) for k in range(16)]
    results: list[Any] = [None] * 16

    def work(k: int) -> None:
        for _ in range(5):
            results[k] = f(inputs[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k, result in enumerate(results):
        want = float(k + 1)
        while want < 100:
            want *= 2
        assert numbers(result) == [want]
    assert len(list(f._all_entries())) == 1


def test_uncompiled_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MS_JIT", "0")
    seen = []

    @jit
    def f(x: Any) -> Any:
        seen.append(x.asnumpy())
        return x + 1

    assert numbers(f(tensor(1.0))) == [2.0] and len(seen) == 1


def test_errors_show_the_line_and_none_of_our_frames() -> None:
    @jit(fullgraph=True)
    def f(x: Any) -> Any:
        y = ops.exp(x)
        return y.asnumpy()

    with pytest.raises(ConcretizationError) as e:
        f(tensor(1.0))
    text = str(e.value)
    assert "return y.asnumpy()" in text and "^^^" in text and "hint:" in text
    frames = [f.path for f in e.traceback]
    assert not any("frontend" in str(path) for path in frames if "tests" not in str(path))


def test_exceptions_of_the_user_keep_their_type_and_get_the_place() -> None:
    @jit
    def f(x: Any) -> Any:
        return {"a": 1}["b"]

    with pytest.raises(KeyError) as e:
        f(tensor(1.0))
    assert "return {" in "\n".join(e.value.__notes__) and "^" in e.value.__notes__[0]


def test_no_source() -> None:
    namespace: dict[str, Any] = {}
    exec("def f(x): return x", namespace)
    with pytest.raises(SourceNotFoundError):
        jit(namespace["f"])(tensor(1.0))


def test_looking_inside() -> None:
    @jit
    def f(x: Any) -> Any:
        for i in range(9):
            x = x * [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0][i]
        return ops.exp(x).sum()

    with pytest.raises(RuntimeError, match="has not been compiled"):
        f.ir()
    f(tensor(1.0, 2.0))
    assert "graph @f(%x: f32[2])" in f.ir() and "exp" in f.ir("optimized") and "exp" in f.ir("simplify")
    with pytest.raises(ValueError, match="there is no pass"):
        f.ir("nonsense")
    text = f.explain()
    assert (
        "first call" in text
        and "simplify" in text
        and "f32[2]" in text
        and "the loop is unrolled (9 iterations)" in text
    )
    assert "kernel" in f.kernels().lower() or f.kernels()
    assert "define" in f.llvm() and f.asm()


class Counting(nn.Optimizer):
    """Returns its Parameters, as optimizers of users do."""

    @jit
    def construct(self, gradients: Any) -> Any:
        for p, g in zip(self.parameters, gradients):
            ops.assign(p, p - g)
        return self.parameters


def test_a_tuple_of_parameters_is_returned_as_their_values() -> None:
    x, y = Parameter(tensor(1.0, 2.0), name="x"), Parameter(tensor(3.0), name="y")
    optimizer = Counting(0.1, [x, y])
    for expected in ([0.0, 1.0], [-1.0, 0.0]):
        found = optimizer((tensor(1.0, 1.0), tensor(1.0)))
        assert type(found) is tuple and [v.asnumpy().tolist() for v in found] == [expected, [expected[1] + 1.0]]
        np.testing.assert_array_equal(x.asnumpy(), expected)

    @jit
    def first(parameters: Any) -> Any:
        return parameters[0] * 2

    assert isinstance(optimizer.parameters, ParameterTuple) and first(optimizer.parameters).asnumpy().tolist() == [-2.0, 0.0]


def test_looking_at_a_graph_writes_no_dumps(tmp_path: Path) -> None:
    @jit
    def f(x: Any) -> Any:
        return ops.exp(x) + 0.0

    set_context(save_graphs=True, save_graphs_path=str(tmp_path))
    try:
        f(tensor(1.0))
        before = sorted(tmp_path.iterdir())
        f.ir("optimized")
        assert before and sorted(tmp_path.iterdir()) == before
    finally:
        set_context(save_graphs=False)


def test_asking_for_data_of_a_condition() -> None:
    @jit(fullgraph=True)
    def f(x: Any) -> Any:
        return [v for v in x if v > 0]

    with pytest.raises(ConcretizationError, match="comprehension"):
        f(tensor(1.0, -1.0))


def test_entries_belong_to_their_function() -> None:
    net = Net(1.0)
    for k in range(
        20
    ):  # functions that are let go of must not leave their graphs to those that take their place in memory
        f = jit(lambda n, x, k=k: x * n.w + k)
        assert numbers(f(net, tensor(1.0))) == [1.0 + k]


def test_copies() -> None:
    net = Net(2.0)
    net(tensor(1.0))
    other = copy.deepcopy(net)
    other.w.set_data(tensor(5.0))
    assert numbers(other(tensor(1.0))) == [5.0] and numbers(net(tensor(1.0))) == [2.0]
    f = jit(net)
    f(tensor(1.0))
    assert numbers(copy.deepcopy(f)(tensor(1.0))) == [2.0]


def test_a_compiled_net_is_let_go_of() -> None:
    import gc
    import weakref

    net = Net(2.0)
    net(tensor(1.0))
    seen = weakref.ref(net)
    Net.construct._last = None  # the entry that ran last is kept for looking inside
    del net
    gc.collect()
    assert seen() is None


def test_objects_that_are_new_in_each_call_are_let_go_of() -> None:
    class Batch:
        def __init__(self, x: Any) -> None:
            self.x = x

    @jit
    def f(batch: Any) -> Any:
        return batch.x * 2.0

    first = Batch(tensor(1.0))
    alive = weakref.ref(first)
    assert numbers(f(first)) == [2.0]
    del first
    for k in range(140):
        assert numbers(f(Batch(tensor(float(k))))) == [2.0 * k]
    gc.collect()
    assert alive() is None
