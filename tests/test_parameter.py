"""Parameter and ParameterTuple against MindSpore 2.10: values and error types recorded from it, names, flags, cloning, storage."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from graphcell import dtype as ms
from graphcell import jit, nn, ops
from graphcell.common.initializer import One, initializer
from graphcell.ir.types import TensorType
from graphcell.ops.dispatch import Trace
from graphcell.parameter import Parameter, ParameterTuple
from graphcell.tensor import StorageEpoch, Tensor


def T(*numbers: float) -> Tensor:
    return Tensor(list(numbers), ms.float32)


def I(*numbers: int) -> Tensor:  # noqa: E743
    return Tensor(list(numbers), ms.int64)


def P(*numbers: float, name: str = "w") -> Parameter:
    return Parameter(T(*numbers), name=name)


NAMES: dict[str, Any] = {"ms": ms, "np": np, "copy": copy, "pickle": pickle, "Tensor": Tensor, "Parameter": Parameter, "T": T, "I": I,
                         "One": One, "initializer": initializer}  # fmt: skip

# expression, dtype, shape, values
RESULTS: tuple[tuple[str, str, tuple[int, ...], Any], ...] = (
("Parameter(1)", "Int32", (), 1),
    ("Parameter(1.5)", "Float32", (), 1.5),
    ("Parameter([1, 2])", "Int64", (2,), [1, 2]),
    ("Parameter([1.5])", "Float32", (1,), [1.5]),
    ("Parameter(np.array([1.5]))", "Float64", (1,), [1.5]),
    ("Parameter(np.array([1]))", "Int64", (1,), [1]),
    ("Parameter(T(1), 'x', False)", "Float32", (1,), [1.0]),
    ("Parameter(T(1, 2), name='w')", "Float32", (2,), [1.0, 2.0]),
    ("Parameter(T(1, 2), name='w').data", "Float32", (2,), [1.0, 2.0]),
    ("Parameter(T(1, 2), name='w').clone()", "Float32", (2,), [1.0, 2.0]),
    ("Parameter(T(1, 2), name='w').clone('zeros')", "Float32", (2,), [0.0, 0.0]),
    ("Parameter(T(1, 2), name='w').clone(0.5)", "Float32", (2,), [0.5, 0.5]),
    ("Parameter(T(1, 2), name='w').clone(T(5, 6))", "Float32", (2,), [5.0, 6.0]),
    ("Parameter(T(1, 2), name='w').set_data(T(3, 4))", "Float32", (2,), [3.0, 4.0]),
    ("Parameter(T(1, 2), name='w').set_data(I(3, 4))", "Float32", (2,), [3.0, 4.0]),
    ("Parameter(T(1, 2), name='w').set_data(T(3, 4, 5), True)", "Float32", (3,), [3.0, 4.0, 5.0]),
    ("Parameter(Tensor([1, 2], ms.int32), name='a').set_data(T(1.5, 2))", "Int32", (2,), [1, 2]),
    ("Parameter(Tensor([1, 2], ms.float16), name='a').set_data(T(1.5, 2))", "Float16", (2,), [1.5, 2.0]),
    ("Parameter(T(1, 2), name='w').set_data(initializer('ones', (2, )))", "Float32", (2,), [1.0, 1.0]),
    ("Parameter(T(1, 2), name='w').set_data(Parameter(T(5, 6)))", "Float32", (2,), [5.0, 6.0]),
    ("Parameter(initializer('ones', (2, 3), ms.float16), name='i')", "Float16", (2, 3), [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]),
    ("Parameter(T(1, 2))+1", "Float32", (2,), [2.0, 3.0]),
    ("Parameter(T(1, 2))[0]", "Float32", (), 1.0),
    ("copy.deepcopy(Parameter(T(1, 2), name='w'))", "Float32", (2,), [1.0, 2.0]),
    ("copy.copy(Parameter(T(1, 2), name='w'))", "Float32", (2,), [1.0, 2.0]),
    ("pickle.loads(pickle.dumps(Parameter(T(1, 2), name='w')))", "Float32", (2,), [1.0, 2.0]),
    ("Parameter(np.float64(1.5))", "Float32", (), 1.5),
    ("Parameter(Tensor([True]))", "Bool", (1,), [True]),
    ("Parameter([True])", "Bool", (1,), [True]),
)  # fmt: skip

ERRORS: tuple[tuple[str, type[Exception]], ...] = (
("Parameter(True)", ValueError),
    ("Parameter('a')", TypeError),
    ("Parameter(None)", TypeError),
    ("Parameter()", TypeError),
    ("Parameter((1, 2))", TypeError),
    ("Parameter(T(1), name=3)", ValueError),
    ("Parameter(T(1), requires_grad='a')", TypeError),
    ("Parameter(T(1), layerwise_parallel=1)", TypeError),
    ("Parameter(T(1, 2), name='w').clone('xx')", ValueError),
    ("Parameter(T(1, 2), name='w').set_data(np.array([3., 4.]))", TypeError),
    ("Parameter(T(1, 2), name='w').set_data([3., 4.])", TypeError),
    ("Parameter([[1, 2], [3]])", TypeError),
)  # fmt: skip


@pytest.mark.parametrize("expression, dtype, shape, values", RESULTS, ids=[r[0] for r in RESULTS])
def test_result(expression: str, dtype: str, shape: tuple[int, ...], values: Any) -> None:
    result = eval(expression, NAMES)
    assert isinstance(result, Tensor) and (str(result.dtype), result.shape) == (dtype, shape)
    np.testing.assert_array_equal(np.asarray(result.tolist()), np.asarray(values))


@pytest.mark.parametrize("expression, error", ERRORS, ids=[e[0] for e in ERRORS])
def test_error(expression: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        eval(expression, NAMES)


def test_repr() -> None:
    p = Parameter(Tensor([[1, 2]], ms.float16), name="weight", requires_grad=False)
    assert repr(p) == str(p) == "Parameter (name=weight, shape=(1, 2), dtype=Float16, requires_grad=False)"
    assert repr(ParameterTuple([p])) == f"({p},)"


def test_names() -> None:
    p = Parameter(T(1))
    assert p.name.startswith("Parameter#") and p.has_default_name and Parameter(T(1)).name != p.name
    done = subprocess.run([sys.executable, "-c", "import graphcell as ms; print(ms.Parameter(1.0))"], capture_output=True, text=True, timeout=600)
    assert done.stdout == "Parameter (name=Parameter#2, shape=(), dtype=Float32, requires_grad=True)\n"  # MindSpore's first one
    p.name = "new"
    assert p.name == "new" and not p.has_default_name and p.param_info.name == "new"
    p.name = None
    assert p.name.startswith("Parameter#") and p.has_default_name
    with pytest.raises(ValueError, match="should be 'string' or 'None', but got"):
        p.name = 3  # type: ignore[assignment]
    with pytest.raises(ValueError, match="should be less than 1024"):
        p.name = "x" * 2000


def test_flags() -> None:
    p = P(1, 2)
    assert (p.requires_grad, p.layerwise_parallel, p.parallel_optimizer, p.parallel_optimizer_comm_recompute) == (True, False, True, False)
    assert (p.comm_fusion, p.key, p.cache_shape, p.sliced, p.unique, p.cache_enable, p.inited_param) == (1, -1, [], False, False, False, None)
    p.requires_grad = False
    assert "requires_grad=False" in repr(p)
    for flag in ("requires_grad", "layerwise_parallel", "parallel_optimizer", "parallel_optimizer_comm_recompute"):
        with pytest.raises(TypeError, match=f"`{flag}` must be bool"):
            setattr(p, flag, 3)
    p.comm_fusion = 2
    with pytest.raises(TypeError):
        p.comm_fusion = "a"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="must >= 0"):
        p.comm_fusion = -1


def test_clone() -> None:
    p = Parameter(T(1, 2), name="w", requires_grad=False)
    same = p.clone()
    same.set_data(T(9, 9))
    assert p.tolist() == [1.0, 2.0] and same.name == "w" and not same.requires_grad and not same.has_default_name
    assert p.clone("ones").tolist() == [1.0, 1.0] and p.clone(init=0.5).tolist() == [0.5, 0.5] and p.clone(I(3, 4)).tolist() == [3.0, 4.0]
    assert p.clone(I(3, 4)).dtype is ms.float32
    with pytest.raises(ValueError, match="no initializer named 'xx'"):
        p.clone("xx")


def test_set_data() -> None:
    p = P(1, 2)
    array, value, data = p.asnumpy(), p.value(), p.data
    assert p.set_data(I(3, 4)) is p and p.tolist() == [3.0, 4.0] and p.dtype is ms.float32
    assert array.tolist() == value.tolist() == data.tolist() == [1.0, 2.0]
    assert type(value) is type(data) is Tensor
    p.data = T(5, 6)
    assert p.tolist() == [5.0, 6.0]
    with pytest.raises(ValueError, match=r"w has shape \(2,\), but data has \(3,\)"):
        p.set_data(T(1, 2, 3))
    assert p.set_data(T(1, 2, 3), slice_shape=True).shape == (3,)
    with pytest.raises(TypeError, match="But with type <class 'list'>"):
        p.set_data([1.0])
    assert Parameter(1.5).set_data(2).tolist() == 2.0
    with pytest.raises(TypeError, match="Current dtype is Int32, and incoming is Float"):
        Parameter(1).set_data(2.5)


def test_data_are_copied() -> None:
    tensor, array = T(1, 2), np.ones(2, np.float32)
    p, q = Parameter(tensor), Parameter(array)
    tensor.asnumpy()[0] = array[0] = 9
    assert p.tolist() == [1.0, 2.0] and q.tolist() == [1.0, 1.0]
    p[0] = 7.0
    assert p.tolist() == [7.0, 2.0] and isinstance(p, Parameter)
    total = p
    total += 1
    assert type(total) is Tensor and p.tolist() == [7.0, 2.0]


def test_copies_are_parameters() -> None:
    p = P(1, 2, name="w")
    p.extra = "kept"
    for other in (copy.copy(p), copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(other) is Parameter and other.name == "w" and other.extra == "kept" and other.tolist() == [1.0, 2.0]
        other.set_data(T(9, 9))
        assert p.tolist() == [1.0, 2.0]
    assert pickle.loads(pickle.dumps(Parameter(Tensor([1.5], ms.bfloat16)))).dtype is ms.bfloat16


def test_initialised_at_once() -> None:
    lazy = initializer("normal", (4,))
    p, q = Parameter(lazy, name="p"), Parameter(lazy, name="q")
    assert not p.has_init and p.init_data() is p and lazy.has_init
    assert p.tolist() != q.tolist()


def test_storage_is_persistent() -> None:
    p = P(1, 2)
    address = p.own_buffer(True)
    assert p.own_buffer(True) == address and p.address() == address
    before = StorageEpoch.value
    view = p.asnumpy()
    assert StorageEpoch.value > before
    assert p.own_buffer(True) != address and view.tolist() == p.tolist() == [1.0, 2.0]
    before = StorageEpoch.value
    p.set_data(T(3, 4))
    assert StorageEpoch.value > before


def test_captured_and_written_while_tracing() -> None:
    p = P(1, 2)
    trace = Trace("f")
    with trace.active():
        before = p * 2
        ops.assign_add(p, T(1, 1))
        ops.assign(p, p * 10)
        after = p + 0
    assert [t for t, _ in trace.captured.values()] == [p] and [t for t, _ in trace.writes()] == [p]
    assert before.is_symbolic and after.is_symbolic and p.tolist() == [1.0, 2.0]
    with trace.active():
        assert trace.newest(p).type == TensorType(ms.float32, (2,))


def test_parameter_tuple() -> None:
    a, b = P(1, name="a"), P(2, name="b")
    both = ParameterTuple([a, b])
    assert both[0] is a and len(both) == 2 and isinstance(both, tuple)
    clones = both.clone("new", init="zeros")
    assert [p.name for p in clones] == ["new.a", "new.b"] and clones[1].tolist() == [0.0] and type(clones) is ParameterTuple
    assert [p.tolist() for p in both.clone("new")] == [[1.0], [2.0]] and a.name == "a"
    with pytest.raises(ValueError, match="its name 'a' already exists"):
        ParameterTuple([a, P(3, name="a")])
    for wrong in ([T(1)], a, 3):
        with pytest.raises(TypeError, match="should be 'Parameter' collection"):
            ParameterTuple(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="prefix must be a string"):
        both.clone(3)  # type: ignore[arg-type]


def in_cell(p: Parameter) -> Any:
    class Scale(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.p = p

        @jit
        def construct(self, x: Any) -> Any:
            return x + self.p

    return Scale()


@pytest.mark.parametrize("made", [lambda p: jit(lambda x: x + p), in_cell])
def test_compiled_functions_see_another_type(made: Any) -> None:
    """Of the Parameters that they read: the code for the type before would read memory as what it is not."""
    p = P(1, 1, 1)
    f, x = made(p), T(1, 1, 1)
    for _ in range(3):
        assert f(x).tolist() == [2.0, 2.0, 2.0]
    p.assign_value(Tensor(np.full(3, 5.0)))
    for _ in range(3):
        assert f(x).dtype is ms.float64 and f(x).tolist() == [6.0, 6.0, 6.0]
    p.set_data(Tensor([7.0], ms.float64), slice_shape=True)
    for _ in range(3):
        assert f(x).tolist() == [8.0, 8.0, 8.0]
    assert p.set_dtype(ms.float16) is ms.float16
    for _ in range(3):
        assert f(x).dtype is ms.float32 and f(x).tolist() == [8.0, 8.0, 8.0]
    p.set_data(Tensor([1.0, 2.0], ms.float16), slice_shape=True)
    with pytest.raises(ValueError):
        f(x)
