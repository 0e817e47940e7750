"""Tensor: construction, attributes, conversions and methods against MindSpore 2.10 (values recorded from it), writing, Python's protocols."""

from __future__ import annotations

import copy
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

from graphcell import dtype as ms
from graphcell import jit, ops
from graphcell.common import dtype as mstype
from graphcell.common.initializer import One
from graphcell.errors import ConcretizationError
from graphcell.ir.types import TensorType
from graphcell.ops.dispatch import Tape, Trace, recording
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor, state
from tests.helpers import run


def T(*numbers: float) -> Tensor:
    return Tensor(list(numbers), ms.float32)


def I(*numbers: int) -> Tensor:  # noqa: E743
    return Tensor(list(numbers), ms.int64)


inf, nan = float("inf"), float("nan")
NAMES: dict[str, Any] = {"ops": ops, "ms": ms, "np": np, "copy": copy, "pickle": pickle, "Tensor": Tensor, "One": One, "T": T, "I": I,
                         "inf": inf, "nan": nan}  # fmt: skip

# expression, dtype, shape, values
RESULTS: tuple[tuple[str, str, tuple[int, ...], Any], ...] = (
    ("Tensor(1)", "Int64", (), 1),
    ("Tensor(1.5)", "Float32", (), 1.5),
    ("Tensor(True)", "Bool", (), True),
    ("Tensor([1, 2.5])", "Float32", (2,), [1.0, 2.5]),
    ("Tensor([True, 2])", "Int64", (2,), [1, 2]),
    ("Tensor([True, 2.5])", "Float32", (2,), [1.0, 2.5]),
    ("Tensor((1, 2))", "Int64", (2,), [1, 2]),
    ("Tensor([[1, 2], [3, 4]])", "Int64", (2, 2), [[1, 2], [3, 4]]),
    ("Tensor(np.array([1.5]))", "Float64", (1,), [1.5]),
    ("Tensor(np.array([1.5]), ms.int32)", "Int32", (1,), [1]),
    ("Tensor(np.float64(1.5))", "Float64", (), 1.5),
    ("Tensor(np.float32(1.5))", "Float32", (), 1.5),
    ("Tensor(np.int32(1))", "Int32", (), 1),
    ("Tensor([np.float64(1.5)])", "Float32", (1,), [1.5]),
    ("Tensor([np.float32(1.5), 2])", "Float32", (2,), [1.5, 2.0]),
    ("Tensor([np.int32(1)])", "Int64", (1,), [1]),
    ("Tensor(np.array([1, 2], np.uint16))", "UInt16", (2,), [1, 2]),
    ("Tensor(3, ms.float16)", "Float16", (), 3.0),
    ("Tensor(3.7, ms.int32)", "Int32", (), 3),
    ("Tensor([0, 2], ms.bool_)", "Bool", (2,), [False, True]),
    ("Tensor(Tensor([1, 2]))", "Int64", (2,), [1, 2]),
    ("Tensor(Tensor([1, 2]), ms.float32)", "Float32", (2,), [1.0, 2.0]),
    ("Tensor([Tensor(1), Tensor(2)])", "Int64", (2,), [1, 2]),
    ("Tensor([Tensor(1.0), 2])", "Float32", (2,), [1.0, 2.0]),
    ("Tensor([Tensor([1, 2]), Tensor([3, 4])])", "Int64", (2, 2), [[1, 2], [3, 4]]),
    ("Tensor([T(1, 2), T(3, 4)])", "Float32", (2, 2), [[1.0, 2.0], [3.0, 4.0]]),
    ("Tensor([])", "Float32", (0,), []),
    ("Tensor([[], []])", "Float32", (2, 0), [[], []]),
    ("Tensor(())", "Float32", (0,), []),
    ("Tensor(2**40)", "Int64", (), 1099511627776),
    ("Tensor([2**40])", "Int64", (1,), [1099511627776]),
    ("Tensor([1, 2], ms.int8)", "Int8", (2,), [1, 2]),
    ("Tensor([300], ms.int8)", "Int8", (1,), [44]),
    ("Tensor(300, ms.uint8)", "UInt8", (), 44),
    ("Tensor(-1, ms.uint8)", "UInt8", (), 255),
    ("Tensor(float('nan'))", "Float32", (), nan),
    ("Tensor(float('inf'), ms.int32)", "Int32", (), -2147483648),
    ("Tensor(shape=(2, ), dtype=ms.float32, init=One()).init_data()", "Float32", (2,), [1.0, 1.0]),
    ("Tensor(np.asfortranarray(np.arange(6).reshape(2, 3)))", "Int64", (2, 3), [[0, 1, 2], [3, 4, 5]]),
    ("Tensor(np.arange(10)[::2])", "Int64", (5,), [0, 2, 4, 6, 8]),
    ("Tensor(input_data=[1, 2], dtype=ms.float32)", "Float32", (2,), [1.0, 2.0]),
    ("T(1)", "Float32", (1,), [1.0]),
    ("T(1)==T(1)", "Bool", (1,), [True]),
    ("copy.copy(T(1, 2))", "Float32", (2,), [1.0, 2.0]),
    ("copy.deepcopy(T(1, 2))", "Float32", (2,), [1.0, 2.0]),
    ("pickle.loads(pickle.dumps(T(1, 2)))", "Float32", (2,), [1.0, 2.0]),
    ("pickle.loads(pickle.dumps(Tensor([1, 2], ms.bfloat16)))", "BFloat16", (2,), [1.0, 2.0]),
    ("Tensor.from_numpy(np.arange(3))", "Int64", (3,), [0, 1, 2]),
    ("T(1.5)[0]", "Float32", (), 1.5),
    ("T(1, 2, 3)[1:]", "Float32", (2,), [2.0, 3.0]),
    ("round(T(1.5))", "Float32", (1,), [2.0]),
    ("abs(T(-1))", "Float32", (1,), [1.0]),
    ("-T(1)", "Float32", (1,), [-1.0]),
    ("+T(1)", "Float32", (1,), [1.0]),
    ("~Tensor([True])", "Bool", (1,), [False]),
    ("~I(1)", "Bool", (1,), [False]),
    ("I(3)|True", "Int64", (1,), [3]),
    ("I(3)^1", "Int64", (1,), [2]),
    ("T(1)@T(2)", "Float32", (), 2.0),
    ("I(7)//2", "Int64", (1,), [3]),
    ("I(-7)//2", "Int64", (1,), [-4]),
    ("I(-7)%3", "Int64", (1,), [2]),
    ("T(-7)%3", "Float32", (1,), [2.0]),
    ("7%I(4)", "Int64", (1,), [3]),
    ("7//I(2)", "Int64", (1,), [3]),
    ("2**I(3)", "Int64", (1,), [8]),
    ("I(2)**3", "Int64", (1,), [8]),
    ("I(2)**-1", "Int64", (1,), [0]),
    ("I(2)**0.5", "Float32", (1,), [1.414214]),
    ("T(2)**0.5", "Float32", (1,), [1.414214]),
    ("T(2)**3", "Float32", (1,), [8.0]),
    ("T(4)**-0.5", "Float32", (1,), [0.5]),
    ("T(0)**0", "Float32", (1,), [1.0]),
    ("I(0)**0", "Int64", (1,), [1]),
    ("2/I(4)", "Float32", (1,), [0.5]),
    ("I(2)/I(4)", "Float32", (1,), [0.5]),
    ("Tensor(True)/2", "Float32", (), 0.5),
    ("Tensor(True)+Tensor(True)", "Bool", (), True),
    ("Tensor(True)+1", "Int64", (), 2),
    ("Tensor(True)*2.5", "Float32", (), 2.5),
    ("Tensor(True)-Tensor(True)", "Bool", (), False),
    ("T(1)+True", "Float32", (1,), [2.0]),
    ("Tensor([np.array([1.5]), np.array([2.5])])", "Float32", (2, 1), [[1.5], [2.5]]),
    ("Tensor([np.array([1], np.int32)])", "Int64", (1, 1), [[1]]),
    ("Tensor([Tensor([1.0], ms.float64)])", "Float32", (1, 1), [[1.0]]),
    ("Tensor([Tensor(1, ms.int32), Tensor(2, ms.int32)])", "Int64", (2,), [1, 2]),
    ("Tensor([Tensor(1.0, ms.float16), 1])", "Float32", (2,), [1.0, 1.0]),
    ("Tensor([1, 2], ms.uint8)", "UInt8", (2,), [1, 2]),
    ("Tensor([-1], ms.uint8)", "UInt8", (1,), [255]),
    ("Tensor([2**63])", "UInt64", (1,), [9223372036854775808]),
    ("Tensor(2**63)", "UInt64", (), 9223372036854775808),
    ("Tensor([1.5], ms.int8)", "Int8", (1,), [1]),
    ("Tensor(np.array([[1, 2], [3, 4]], np.int16))", "Int16", (2, 2), [[1, 2], [3, 4]]),
    ("Tensor(np.array(5))", "Int64", (), 5),
    ("Tensor(np.zeros((0, 3)))", "Float64", (0, 3), []),
    ("Tensor([[1, 2], [3, 4.5]])", "Float32", (2, 2), [[1.0, 2.0], [3.0, 4.5]]),
    ("Tensor([[True], [False]])", "Bool", (2, 1), [[True], [False]]),
    ("Tensor((1.5, True))", "Float32", (2,), [1.5, 1.0]),
    ("Tensor([[[1]]])", "Int64", (1, 1, 1), [[[1]]]),
    ("Tensor([1e40])", "Float32", (1,), [inf]),
    ("Tensor(1e40)", "Float32", (), inf),
    ("Tensor(1e40, ms.float64)", "Float64", (), 1e+40),
    ("Tensor(float('-inf'))", "Float32", (), -inf),
    ("Tensor([float('nan')], ms.int32)", "Int32", (1,), [-2147483648]),
    ("T(1).type_as(I(1))", "Int64", (1,), [1]),
    ("T(1.5).to(ms.int32)", "Int32", (1,), [1]),
    ("T(1.5).astype(ms.float16, copy=False)", "Float16", (1,), [1.5]),
    ("T(1, 2).new_zeros((2, ))", "Float32", (2,), [0.0, 0.0]),
    ("T(1, 2).new_ones(3, dtype=ms.int32)", "Int32", (3,), [1, 1, 1]),
    ("T(1, 2).copy()", "Float32", (2,), [1.0, 2.0]),
    ("T(1, 2).T", "Float32", (2,), [1.0, 2.0]),
    ("Tensor([[1, 2], [3, 4]]).T", "Int64", (2, 2), [[1, 3], [2, 4]]),
    ("Tensor([[1, 2], [3, 4]]).mT", "Int64", (2, 2), [[1, 3], [2, 4]]),
    ("T(1).where(T(1)>0, 5.0)", "Float32", (1,), [1.0]),
    ("T(1, 2).where(T(1, 0)>0, T(7, 8))", "Float32", (2,), [1.0, 8.0]),
    ("T(1).isclose(T(1))", "Bool", (1,), [True]),
    ("I(5).float()", "Float32", (1,), [5.0]),
    ("T(1.5).int()", "Int32", (1,), [1]),
    ("T(1.5).long()", "Int64", (1,), [1]),
    ("T(1.5).bool()", "Bool", (1,), [True]),
    ("T(1.5).half()", "Float16", (1,), [1.5]),
    ("T(1.5).bfloat16()", "BFloat16", (1,), [1.5]),
    ("T(1.5).byte()", "UInt8", (1,), [1]),
    ("T(1.5).double()", "Float64", (1,), [1.5]),
    ("T(1.5).short()", "Int16", (1,), [1]),
    ("T(1, 2).add(1)", "Float32", (2,), [2.0, 3.0]),
    ("T(1, 2).sub(T(1, 1), alpha=2)", "Float32", (2,), [-1.0, 0.0]),
    ("T(3, 2).pow(2)", "Float32", (2,), [9.0, 4.0]),
    ("T(3, 2).div(2)", "Float32", (2,), [1.5, 1.0]),
    ("T(3.5).round()", "Float32", (1,), [4.0]),
    ("T(3.5).clamp(0, 2)", "Float32", (1,), [2.0]),
    ("T(3.5).clamp(None, 2)", "Float32", (1,), [2.0]),
    ("T(3.5).clip(0, 2)", "Float32", (1,), [2.0]),
    ("T(1, 2).maximum(T(2, 1))", "Float32", (2,), [2.0, 2.0]),
    ("T(1).add_(1)", "Float32", (1,), [2.0]),
    ("I(1).mul_(2)", "Int64", (1,), [2]),
    ("T(1).div_(4)", "Float32", (1,), [0.25]),
    ("T(1, 2).copy_(T(3, 4))", "Float32", (2,), [3.0, 4.0]),
    ("T(1, 2).copy_(I(3, 4))", "Float32", (2,), [3.0, 4.0]),
    ("T(1, 2).copy_(T(3))", "Float32", (2,), [3.0, 3.0]),
    ("T(1, 2).data", "Float32", (2,), [1.0, 2.0]),
    ("T(1, 2).value()", "Float32", (2,), [1.0, 2.0]),
    ("T(1, 2).expm1()", "Float32", (2,), [1.718282, 6.389056]),
    ("T(1, 2).logical_not()", "Bool", (2,), [False, False]),
    ("T(1, 2).lerp(T(3, 4), 0.5)", "Float32", (2,), [2.0, 3.0]),
    ("T(1, 2).addcmul(T(1, 2), T(1, 2), value=3)", "Float32", (2,), [4.0, 14.0]),
    ("T(1, 2).isfinite()", "Bool", (2,), [True, True]),
    ("T(1, 2).hypot(T(1, 2))", "Float32", (2,), [1.414214, 2.828427]),
    ("T(1).erfinv()", "Float32", (1,), [inf]),
    ("T(.25).logit()", "Float32", (1,), [-1.098612]),
)  # fmt: skip

ERRORS: tuple[tuple[str, type[Exception]], ...] = (
    ("Tensor([[1, 2], [3]])", TypeError),
    ("Tensor('abc')", TypeError),
    ("Tensor(None)", TypeError),
    ("Tensor()", TypeError),
    ("Tensor([None])", TypeError),
    ("Tensor(['a'])", TypeError),
    ("Tensor({1:2})", TypeError),
    ("Tensor(np.array([None]))", TypeError),
    ("Tensor([1, 2], 'xx')", TypeError),
    ("Tensor([1, 2], 3)", TypeError),
    ("Tensor([1, 2], 'float32')", TypeError),
    ("Tensor([1, 2], np.float32)", TypeError),
    ("Tensor([1, 2], dtype=float)", TypeError),
    ("Tensor(shape=(2, ), dtype='float32', init=One())", TypeError),
    ("Tensor(shape=(2, None), dtype=ms.float32, init=One())", ValueError),
    ("Tensor(shape=(2, -1), dtype=ms.float32, init=One())", ValueError),
    ("Tensor([1, 2], device='meta').asnumpy()", RuntimeError),
    ("Tensor([1, 2], device='meta') + 1", RuntimeError),
    ("Tensor([1, 2], device='meta').reshape(2, 1)", RuntimeError),
    ("Tensor([1, 2], device='meta').astype(ms.float32)", RuntimeError),
    ("Tensor(shape=(2, ), dtype=ms.float32, device='meta').item(0)", RuntimeError),
    ("T(1, 2).to('meta').to('CPU')", RuntimeError),
    ("T(1, 2).to('GPU')", ValueError),
    ("Tensor([1, 2], device='cpu')", ValueError),
    ("Tensor([1, 2], device='Ascend')", ValueError),
    ("Tensor(init=One())", ValueError),
    ("Tensor(shape=(2, ), init=One())", ValueError),
    ("Tensor(1, ms.float32, (2, ))", ValueError),
    ("Tensor(np.datetime64('2020-01-01'))", TypeError),
    ("len(Tensor(1))", TypeError),
    ("bool(T(1, 2))", ValueError),
    ("int(T(1, 2))", ValueError),
    ("list(Tensor(1))", TypeError),
    ("T(1, 2).item()", ValueError),
    ("np.sum(T(1, 2))", TypeError),
    ("Tensor.from_numpy([1])", TypeError),
    ("f'{T(1.5)[0]:.3f}'", TypeError),
    ("T(1)+'a'", TypeError),
    ("T(1)+None", TypeError),
    ("T(1)<None", TypeError),
    ("None<T(1)", TypeError),
    ("T(1)&1", TypeError),
    ("I(1)&T(1)", TypeError),
    ("2@T(1)", TypeError),
    ("T(1, 2)+T(1, 2, 3)", ValueError),
    ("divmod(T(1), 2)", TypeError),
    ("Tensor([1, [2]])", TypeError),
    ("T(1).mT", ValueError),
    ("Tensor(np.zeros((2, 3, 4))).stride(7)", IndexError),
)  # fmt: skip


@pytest.mark.parametrize("expression, dtype, shape, values", RESULTS, ids=[r[0] for r in RESULTS])
def test_result(expression: str, dtype: str, shape: tuple[int, ...], values: Any) -> None:
    result = eval(expression, NAMES)
    assert type(result) is Tensor
    assert (str(result.dtype), result.shape) == (dtype, shape)
    np.testing.assert_allclose(np.asarray(result.tolist()), np.asarray(values), rtol=2e-6 if result.dtype.is_float else 0)


@pytest.mark.parametrize("expression, error", ERRORS, ids=[e[0] for e in ERRORS])
def test_error(expression: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        eval(expression, NAMES)


def test_attributes() -> None:
    x = Tensor(np.zeros((2, 3, 4), np.float32))
    assert (x.shape, x.ndim, x.size, x.itemsize, x.nbytes, x.strides, len(x)) == ((2, 3, 4), 3, 24, 4, 96, (48, 16, 4), 2)
    assert x.dtype is ms.float32 and x.stride() == [12, 4, 1] and x.stride(1) == 4 and x.stride(-1) == 1
    assert x.dim() == 3 and x.numel() == 24 and x.is_contiguous() and x.storage_offset() == 0 and x.device == "CPU" and not x.is_meta
    assert x.is_floating_point() and x.is_signed() and not Tensor([1], ms.uint8).is_signed() and not x.has_init
    assert x.T.shape == (4, 3, 2) and x.mT.shape == (2, 4, 3) == x.mH.shape
    assert T(1, 2).get_bytes() == np.array([1, 2], np.float32).tobytes() and T(1).data_ptr() % 4 == 0


def test_python_numbers() -> None:
    assert int(T(1.7)) == 1 and float(I(3)) == 3.0 and bool(T(0)) is False and I(2).__index__() == 2
    assert T(5).item() == 5.0 and type(I(5).item()) is int and Tensor(True).item() is True
    assert Tensor([1.5], ms.bfloat16).item() == 1.5 and Tensor([1.5], ms.bfloat16).tolist() == [1.5]
    assert Tensor([[1, 2], [3, 4]]).item((1, 0)) == 3 and Tensor(0.1, ms.float64).item() == 0.1
    assert f"{T(1)}" == "[1.]" and f"{float(T(1)):f}" == "1.000000"
    with pytest.raises(ValueError, match="with 2 elements is ambiguous"):
        bool(T(1, 2))
    with pytest.raises(TypeError, match="only integer Tensors"):
        T(1).__index__()


def test_comparison_with_other_objects() -> None:
    x = T(1)
    assert (x == None) is False and (x != "a") is True and (x == [1]) is False and x in [x]  # noqa: E711
    assert isinstance(x == x, Tensor) and hash(x) == hash(x)
    assert 1.0 in T(1, 2) and 3 not in T(1, 2) and "a" not in T(1)


def test_iteration() -> None:
    assert [x.item() for x in T(1, 2)] == [1.0, 2.0]
    assert [row.tolist() for row in Tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    with pytest.raises(TypeError, match="iteration over a 0-d tensor"):
        list(Tensor(1))


def test_numpy_protocols() -> None:
    x = T(1, 2)
    assert np.asarray(x) is x.asnumpy() is x.numpy() and np.array(x, np.float64).dtype == np.float64
    assert np.concatenate([x, T(3)]).tolist() == [1.0, 2.0, 3.0]
    assert np.from_dlpack(x).tolist() == [1.0, 2.0]
    for mixed in (np.array([1.0, 2.0]) + x, np.float64(2) * x):
        assert isinstance(mixed, Tensor)
    array = np.arange(3)
    assert Tensor.from_numpy(array).asnumpy() is array
    source = np.ones(2)
    copied = Tensor(source)
    source[0] = 5
    assert copied.tolist() == [1.0, 1.0]


def test_buffers_are_aligned() -> None:
    for n in (1, 3, 100):
        assert Tensor(np.ones(n)).address() % 64 == 0
    view = Tensor.of_array(np.arange(6.0).reshape(2, 3).T)
    assert view.address() and view.asnumpy().flags.c_contiguous


def test_setitem_rebinds() -> None:
    x = T(1, 2, 3)
    before, same = x.asnumpy(), x
    x[1] = 9
    x[-1:] = T(7)
    assert same.tolist() == [1.0, 9.0, 7.0] and before.tolist() == [1.0, 2.0, 3.0]
    y = same
    y += 1
    assert y.tolist() == [2.0, 10.0, 8.0] and x.tolist() == [1.0, 9.0, 7.0]


def test_in_place_methods() -> None:
    x = T(1, 4)
    assert x.add_(1) is x and x.tolist() == [2.0, 5.0]
    x.sub_(T(1, 1), alpha=2).mul_(3).div_(2)
    assert x.tolist() == [0.0, 4.5]
    assert x.clamp_(1, 2).tolist() == [1.0, 2.0] and x.fill_(3).tolist() == [3.0, 3.0] and x.zero_().tolist() == [0.0, 0.0]
    assert x.copy_(I(2, 3)).tolist() == [2.0, 3.0] and x.copy_(T(1)).tolist() == [1.0, 1.0] and x.dtype is ms.float32
    assert T(1.5).floor_().tolist() == [1.0] and T(0).exp_().tolist() == [1.0]
    with pytest.raises(TypeError, match="cannot be written into a Tensor of Int64"):
        I(1).add_(1.5)
    with pytest.raises(ValueError, match="cannot be written into a Tensor of shape"):
        T(1).add_(T(1, 2))


def test_gradient_flows_through_writing_and_copies() -> None:
    x = T(2, 3)
    tape = Tape()
    tape.watch(x)
    with recording(tape):
        y = (x * 2).copy()
        y[0] = 5.0
        z = y * y + x.astype(ms.float32)
    (g,) = tape.gradients([z], [T(1, 1)], [x])
    assert g is not None and g.tolist() == [1.0, 1.0 + 2 * 6.0 * 2]


def test_writing_while_tracing() -> None:
    trace = Trace("f")
    value = trace.input(TensorType(ms.float32, (2,)))
    with trace.active():
        x = Tensor.of_value(value)
        kept = x.copy()
        x[0] = 7.0
        x.add_(1)
        total = x * kept
        graph = trace.finish([trace.read(x), trace.read(total)])
    new, product = run(graph, np.array([1.0, 2.0], np.float32))
    assert new.tolist() == [8.0, 3.0] and product.tolist() == [8.0, 6.0]


@pytest.mark.parametrize("ask", [bool, int, float, Tensor.asnumpy, Tensor.item, Tensor.tolist, np.asarray])
def test_symbolic_tensors_have_no_values(ask: Any) -> None:
    trace = Trace("f")
    with trace.active():
        x = Tensor.of_value(trace.input(TensorType(ms.float32, ())))
        with pytest.raises(ConcretizationError, match="while its graph is being built"):
            ask(x)
    assert state.trace is None


def test_lazy_initialisation() -> None:
    x = Tensor(shape=(2, 2), dtype=ms.float16, init=One())
    assert x.has_init and x.shape == (2, 2) and x.dtype is ms.float16 and x.size == 4
    assert (x + 1).tolist() == [[2.0, 2.0], [2.0, 2.0]] and not x.has_init
    with pytest.raises(TypeError, match=r"init_data must be set Tensor\.init"):
        x.init_data()
    with pytest.raises(RuntimeError, match="no data"):
        Tensor(shape=(2,), dtype=ms.float32).asnumpy()


@pytest.mark.parametrize(
    ("init", "values"),
    [("ones", [1.0, 1.0]), ("ZEROS", [0.0, 0.0]), (2.5, [2.5, 2.5]), (3, [3.0, 3.0]), (np.float32(4), [4.0, 4.0]), (True, [1.0, 1.0])],
)
def test_init_by_name_and_by_number(init: Any, values: list[float]) -> None:
    for ask in (Tensor.init_data, Tensor.copy, lambda x: x + 0, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        x = Tensor(shape=(2,), dtype=ms.float32, init=init)
        assert x.has_init and x.init == init and repr(x) == "Tensor(shape=[2], dtype=Float32, value=<uninitialized>)"
        assert ask(x).tolist() == values
    assert x.init_data() is x and not x.has_init and x.init is None
    assert ops.add(Parameter(Tensor(shape=(2,), dtype=ms.float32, init=init)), 1).tolist() == [v + 1 for v in values]


def test_data_of_an_initializer_print_as_numpy_prints_them() -> None:
    x = Tensor(shape=(2, 2), dtype=ms.float32, init="ones").init_data()
    assert repr(x) == "Tensor(shape=[2, 2], dtype=Float32, value=\n[[1., 1.],\n [1., 1.]])"
    assert repr(x + 0).count("1.00000000e+00") == 4
    before = weakref.ref(x.asnumpy())
    x.own_buffer(keep=True)
    assert before() is None and repr(x).count("1.00000000e+00") == 4


def test_meta_tensors() -> None:
    x = Tensor([[1.0, 2.0]], device="meta")
    assert (x.device, x.is_meta, x.shape, x.dtype, x.size, x.nbytes, x.has_init) == ("meta", True, (1, 2), ms.float32, 2, 8, False)
    assert repr(x) == str(x) == "Tensor(shape=[1, 2], dtype=Float32, value=\n<meta>)"
    assert repr(Tensor(1, device="meta")) == "Tensor(shape=[], dtype=Int64, value= <meta>)"
    assert str(Tensor(1, device="meta")) == "Tensor(shape=[], dtype=Int64, value=<meta>)"
    for other in (
        Tensor(x), Tensor(x, device="CPU"), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), T(1, 2).reshape(1, 2).to("meta"),
        Tensor(T(1, 2).reshape(1, 2), device="meta"), Tensor(shape=(1, 2), dtype=ms.float32, device="meta"), Tensor(I(1, 2).reshape(1, 2)).to("meta", ms.float32),
        I(1, 2).reshape(1, 2).to(dtype=ms.float32, device="meta"),
    ):  # fmt: skip
        assert other.is_meta and (other.shape, other.dtype) == ((1, 2), ms.float32)
    assert Tensor(x, ms.int32).dtype is Tensor([1.5], ms.int32, device="meta").dtype is ms.int32
    with pytest.raises(RuntimeError, match="Not support copy between src:meta and dst:CPU"):
        x.asnumpy()
    with pytest.raises(RuntimeError, match="Not support copy between src:meta and dst:CPU"):
        jit(lambda x: x * 2)(x)
    y = Tensor(shape=(2,), dtype=ms.float32, init=One(), device="meta")
    assert y.is_meta and y.has_init and y.init_data().tolist() == [1.0, 1.0] and y.device == "CPU" and not y.is_meta
    assert (T(1).device, T(1).is_meta) == ("CPU", False)


def test_allclose() -> None:
    assert T(1).allclose(T(1 + 1e-7)) is True and T(1).allclose(T(1.1)) is False


def test_copies_are_independent() -> None:
    x = T(1, 2)
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.copy(), Tensor(x)):
        other.asnumpy()[0] = 9
        assert x.tolist() == [1.0, 2.0]


def test_foreign_memory_is_never_written() -> None:
    shared = bytearray(np.ones(2, np.float32).tobytes())
    x = Tensor.from_numpy(np.frombuffer(shared, np.float32))
    address = x.own_buffer(True)
    assert address != np.frombuffer(shared, np.float32).ctypes.data and x.tolist() == [1.0, 1.0]


def test_bad_arguments() -> None:
    for wrong in (None, "float33", object(), 3):
        with pytest.raises(TypeError, match="expected a dtype"):
            ops.cast(T(1), wrong)
    with pytest.raises(TypeError, match=r"init must be .* an Initializer, but is list"):
        Tensor(shape=(2,), dtype=ms.float32, init=[1, 2])
    with pytest.raises(ValueError, match="there is no initializer named 'onse'"):
        Tensor(shape=(2,), dtype=ms.float32, init="onse")
    with pytest.raises(TypeError, match=r"For 'Tensor', the 'dtype' should be one of \[mindspore\.bool, .*\], but got ''float32''\."):
        Tensor([1.0], "float32")
    for given in ({"shape": (2,)}, {"dtype": ms.float32}, {"input_data": [1.0]}):
        with pytest.raises(ValueError, match="init, dtype and shape must have values at the same time"):
            Tensor(init=One(), **given)
    with pytest.raises(ValueError, match=r"'shape' should be set to None.But got shape: \(1,\)"):
        Tensor([1.0], ms.float32, (1,), One())
    with pytest.raises(TypeError, match=r"the 'shape' should be one of \[list, tuple\], but got '<class 'str'>'"):
        Tensor(shape="x", dtype=ms.float32)


def test_memory_order() -> None:
    x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    y = x.T
    assert x.is_contiguous() and x.contiguous() is x and x.stride() == [3, 1]
    assert not y.is_contiguous() and y.stride() == [1, 3] and y.contiguous().is_contiguous() and y.contiguous().tolist() == y.tolist()


def test_set_dtype() -> None:
    t = Tensor([1.7, 2.2], ms.float32)
    assert t.set_dtype(ms.int32) is ms.int32
    assert t.dtype is ms.int32 and t.asnumpy().tolist() == [1, 2]
    with pytest.raises(TypeError, match="takes a dtype"):
        t.set_dtype("float16")
    with pytest.raises(RuntimeError, match="when a function is compiled"):
        jit(lambda x: x.set_dtype(ms.float16))(t)


def test_assign_value() -> None:
    x = T(1, 2)
    assert x.assign_value(I(3, 4, 5)) is x and x.tolist() == [3, 4, 5] and x.dtype is ms.int64


def test_divisor_by_name() -> None:
    assert T(5).remainder(divisor=3).tolist() == T(5).remainder(3).tolist() == [2.0]


def test_dtypes_and_python_types() -> None:
    assert mstype.dtype_to_nptype(ms.float32) is np.float32 and mstype.dtype_to_nptype(ms.bool_) is np.bool_
    assert [mstype.dtype_to_pytype(d) for d in (ms.bool_, ms.uint64, ms.bfloat16)] == [bool, int, float]
    assert mstype.pytype_to_dtype(float) is ms.float64 and mstype.pytype_to_dtype(int) is ms.int64 and mstype.pytype_to_dtype(bool) is ms.bool_
    assert mstype.pytype_to_dtype(np.float32) is ms.float32 and mstype.pytype_to_dtype(np.dtype("int8")) is ms.int8
    for wrong in (3, "a", dict, slice):
        with pytest.raises(TypeError):
            mstype.pytype_to_dtype(wrong)
    with pytest.raises(TypeError, match="expected a dtype"):
        mstype.dtype_to_nptype(None)  # type: ignore[arg-type]
