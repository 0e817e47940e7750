"""`for`: unrolled, or one op, always with Python's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphcell import ops
from graphcell.jit import jit
from graphcell.tensor import Tensor
from tests.frontend.support import check, op_names, tensor

VALUES = [(1.0, 2.0, 3.0), (-1.0, -2.0, 0.5), (50.0, 60.0, 7.0)]


def for_small(x: Any) -> Any:
    for i in range(3):
        x = x * (i + 1)
    return x, i


def for_range(x: Any) -> Any:
    for i in range(12):
        x = ops.tanh(x) + i
    return x, i


def for_range_steps(x: Any) -> Any:
    s = x
    for i in range(20, 0, -2):
        s = s + x * i - i / 4 + (2 * i + 1) % 5 + i**2
    return s


def for_rows(x: Any) -> Any:
    m = ops.stack([x + k for k in range(10)])
    h = x * 0
    for row in m:
        h = h * 0.5 + row
    return h, row


def for_indexed_rows(x: Any) -> Any:
    m = ops.stack([x + k for k in range(12)])
    h = x * 0
    for i in range(10):
        h = h * 0.5 + m[i] * m[i + 2] - m[11 - i]
    return h


def for_columns(x: Any) -> Any:
    m = ops.stack([x + k for k in range(10)], axis=1)
    s = x * 0
    for i in range(10):
        s = s + m[:, i] * i
    return s


def for_number_start(x: Any) -> Any:
    total = 0
    for i in range(10):
        total = total + x * i
    return total


def for_number_scalar_start(x: Any) -> Any:
    total = 0.0
    for _ in range(10):
        total += x.sum()
    return total


def for_append(x: Any) -> Any:
    out = []
    for i in range(9):
        x = x * 0.5 + i
        out.append(x)
    return out[0], out[-1], ops.stack(out), len(out)


def for_append_tuple(x: Any) -> Any:
    out = [(x, -1)]
    for i in range(9):
        x = x + 1
        out.append((x * 2, i))
    return out[4], out[-1], len(out)


def for_counter(x: Any) -> Any:
    k, n = 5, 0
    for _ in range(10):
        x = x + k
        k += 2
        n = n + 1
    return x, k, n


def for_dtype_kept(x: Any) -> Any:
    y = (x * 0).astype("int32")
    for i in range(10):
        y = y + i
    return y


def for_break(x: Any) -> Any:
    n = x * 0
    for i in range(15):
        if x.sum() > 30:
            break
        x = x + 1
        n = n + i
    return x, n


def for_break_small(x: Any) -> Any:
    for i in range(4):
        if x.sum() > 12:
            break
        x = x + i
    return x


def for_return(x: Any) -> Any:
    for i in range(12):
        x = x + 1
        if x.sum() > 25:
            return x * i, 1
    return -x, 2


def for_return_small(x: Any) -> Any:
    for i in range(4):
        x = x + 1
        if x.sum() > 12:
            return x * i
    return -x


def for_continue(x: Any) -> Any:
    s = x * 0
    for i in range(10):
        if x.sum() + i > 8:
            continue
        s = s + i
    return s


def for_else(x: Any) -> Any:
    for i in range(10):
        x = x + i
        if x.sum() > 60:
            break
    else:
        x = x * 100
    return x


def for_else_small(x: Any) -> Any:
    for i in range(3):
        x = x + i
        if x.sum() > 12:
            break
    else:
        x = x * 100
    return x


def for_index_condition(x: Any) -> Any:
    for i in range(10):
        if i % 2 == 0:
            x = x + 1
        else:
            x = x * 1.5
    return x


def for_enumerate_zip(x: Any) -> Any:
    m = ops.stack([x + k for k in range(10)])
    s = x * 0
    for i, row in enumerate(m, 1):
        s = s + row * i
    for a, b in zip(m, range(10)):
        s = s + a * b
    for i in reversed(range(10)):
        s = s * 0.9 + i
    return s


def for_nested(x: Any) -> Any:
    for i in range(8):
        for j in range(9):
            x = x * 0.9 + i * j
        for k in range(2):
            x = x + k
    return x


def for_temporaries(x: Any) -> Any:
    for i in range(10):
        t = x * i
        u = (t, i)
        x = x + t * 0.1
    return x, t, u


def for_writes(x: Any) -> Any:
    for i in range(9):
        x[1] = x[0] + i
        x[0] = x[1] * 0.5
    return x


def for_list_state(x: Any) -> Any:
    h = [x, x * 2]
    for i in range(9):
        h[0] = h[0] * 0.5 + i
        h[1] = h[1] + h[0]
    return h


def for_rows_written(x: Any) -> Any:
    m = ops.stack([x + k for k in range(10)])
    out = m * 0
    for i in range(10):
        out[i] = m[i] * i
        out[i, 0] += 1
    return out


def for_conditional_append(x: Any) -> Any:
    out = []
    for i in range(9):
        if i % 3 == 0:
            out.append(x * i)
    return out


def for_tuple_carried(x: Any) -> Any:
    state = (x, x * 2)
    for i in range(9):
        h, c = state
        c = c * 0.5 + h
        h = ops.tanh(c) + i
        state = (h, c)
    return state


def for_dict_carried(x: Any) -> Any:
    d = {"h": x, "n": 0}
    for i in range(9):
        d["h"] = d["h"] * 0.5 + i
        d["n"] += 2
    return d


def for_in_function(x: Any) -> Any:
    def run(v: Any, n: int) -> Any:
        out = []
        for i in range(n):
            v = v * 0.5 + i
            out.append(v)
        return v, out

    a, first = run(x, 9)
    b, second = run(a, 3)
    return a, b, first[3], second[-1]


def for_index_into_list(x: Any) -> Any:
    scales = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    for i in range(9):
        x = x * scales[i] * 0.5
    return x


def for_containers(x: Any) -> Any:
    d = {"a": x, "b": x * 2}
    s = x
    for v in d.values():
        s = s + v
    for k, v in d.items():
        s = s + v * len(k)
    for a, (b, c) in [(1, (2, x)), (3, (4, x))]:
        s = s + a * b * c
    for _ in []:
        s = s * 0
    return s


def for_changing_shape(x: Any) -> Any:
    for _ in range(9):
        x = ops.concat([x, x[:1]])
    return x


def for_shared_temporary(x: Any) -> Any:
    for _ in range(9):
        z = x + 1
        x = z * 0.5
    w = ops.concat([x, x])
    for _ in range(9):
        z = w * 0.5
        w = z + 1
    return w


def for_last_index_read(x: Any) -> Any:
    for i in range(10):
        x = x + i
    return x * i


def for_range_tensor_len(x: Any) -> Any:
    m = ops.stack([x + k for k in range(9)])
    s = 0.0
    for i in range(len(m)):
        s = s + m[i].sum() * (i + 1)
    return s


FORS = [
    for_small, for_range, for_range_steps, for_rows, for_indexed_rows, for_columns, for_number_start, for_number_scalar_start, for_append,
    for_append_tuple, for_counter, for_dtype_kept, for_break, for_break_small, for_return, for_return_small, for_continue, for_else, for_else_small,
    for_index_condition, for_enumerate_zip, for_nested, for_temporaries, for_writes, for_list_state, for_index_into_list, for_containers,
    for_rows_written, for_conditional_append, for_tuple_carried, for_dict_carried, for_in_function,
    for_changing_shape, for_shared_temporary, for_last_index_read, for_range_tensor_len,
]  # fmt: skip


@pytest.mark.parametrize("function", FORS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("values", VALUES, ids=["positive", "negative", "large"])
def test_for(function: Any, values: Any) -> None:
    check(function, tensor(*values))


ONE_OP = [for_range, for_range_steps, for_rows, for_indexed_rows, for_number_scalar_start, for_append, for_append_tuple, for_counter, for_dtype_kept,
          for_break, for_return, for_continue, for_else, for_index_condition, for_temporaries, for_writes, for_list_state, for_range_tensor_len,
          for_rows_written, for_tuple_carried, for_dict_carried, for_in_function]  # fmt: skip


@pytest.mark.parametrize("function", ONE_OP, ids=lambda f: f.__name__)
def test_becomes_one_op(function: Any) -> None:
    traced = check(function, tensor(1.0, 2.0, 3.0))
    assert op_names(traced).count("for") == 1, traced.remarks


@pytest.mark.parametrize("function", [for_index_into_list, for_changing_shape], ids=lambda f: f.__name__)
def test_unrolled_with_a_reason(function: Any) -> None:
    traced = check(function, tensor(1.0, 2.0, 3.0))
    assert "for" not in op_names(traced)
    assert "the loop is unrolled (9 iterations)" in traced.remarks[0]


def test_first_iteration_settles_types() -> None:
    traced = check(for_number_start, tensor(1.0, 2.0))
    loop = next(n for n in traced.graph.nodes if n.op.name == "for")
    assert loop.op.trip_count == 9


def test_rows_are_scanned() -> None:
    traced = check(for_rows, tensor(1.0, 2.0))
    loop = next(n for n in traced.graph.nodes if n.op.name == "for")
    assert loop.op.scanned == 1
    traced = check(for_indexed_rows, tensor(1.0, 2.0))
    loop = next(n for n in traced.graph.nodes if n.op.name == "for")
    assert loop.op.scanned == 3


def test_trial_leaves_no_nodes_behind() -> None:
    traced = check(for_index_into_list, tensor(1.0))
    assert op_names(traced).count("mul") == 18


def for_symbolic_range(x: Any, n: Any) -> Any:
    k = 0
    for i in range(n):
        x = x * 0.5 + i
        k += i
    for i in range(2, n, 3):
        x = x + i
        if x.sum() > 1000:
            break
    else:
        x = x - 1
    for i in range(n, 0, -2):
        if i == 3:
            continue
        x = x - i
    return x, k


@pytest.mark.parametrize("n", [0, 1, 7, 12])
def test_range_of_a_tensor(n: int) -> None:
    check(for_symbolic_range, tensor(1.0, 2.0), Tensor(n))


def test_an_index_of_a_long_loop_that_leaves_its_dimension_raises() -> None:
    def write(x: Tensor) -> Tensor:
        y = x * 1
        for t in range(300):
            y[t + 1] = x[t]
        return y

    def read_columns(x: Tensor) -> Tensor:
        total = x[:, 0] * 0
        for t in range(300):
            total = total + x.reshape(1, 300)[:, t + 1]
        return total

    def read_squares(x: Tensor) -> Tensor:
        total = x[0] * 0
        for t in range(20):
            total = total + x[t * t]
        return total

    x = Tensor(np.arange(300, dtype=np.float32).reshape(300, 1))
    for function in (write, read_columns, read_squares):
        with pytest.raises(IndexError, match="out of range"):
            jit(function)(x)


def test_an_index_of_a_long_loop_inside_its_dimension_is_not_checked() -> None:
    @jit
    def shift(x: Tensor) -> Tensor:
        y = x * 1
        for t in range(299):
            y[t + 1] = x[t] + 0 * y[t]
        return y

    x = np.arange(300, dtype=np.float32).reshape(300, 1)
    assert np.array_equal(shift(Tensor(x)).asnumpy(), np.vstack([x[:1], x[:-1]]))
    assert "check_index" not in shift.ir() and " for[" in shift.ir()
