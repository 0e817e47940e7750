"""Python numbers that a Tensor decides on stay Python numbers, whatever is computed of them."""

from __future__ import annotations

from typing import Any

import pytest

from graphcell import dtype as dt
from graphcell.jit import jit
from tests.frontend.support import check, op_names, same, tensor


def unary(x: Any) -> Any:
    n, r, t = 0, 0.5, True
    if x.sum() > 1.5:
        n, r, t = 7, -2.5, False
    return -n, +n, ~n, abs(n), abs(r - 1), not n, not (n > 3), not r, bool(t), round(n), round(2.5 + r)


def inverted(x: Any) -> Any:
    t = True
    if x.sum() > 1.5:
        t = False
    return int(t) + 1, ~int(t)


def of_two(x: Any) -> Any:
    n, r = 3, 0.5
    if x.sum() > 1.5:
        n, r = 7, -2.5
    return pow(n, 2), pow(2, n), divmod(n, 2), divmod(n, -3), divmod(20, n), divmod(r, 2), n * r, n & 5


def of_an_index(x: Any) -> Any:
    total, product, last = 0, 0.5, -1
    for i in range(10):
        x = x * 1.1
        if x.sum() > 9:
            total += i
        if x[0] * i > 2:
            product = product * i
            last = total - i * 2
    return total, product, last, total * last, total / 3, total == last


def of_two_indices(x: Any) -> Any:
    total = 0
    for i in range(9):
        for j in range(8):
            if x.sum() > i + j:
                total = total + i * j
    return total, total // 2, x * total


def kept_in_a_list(x: Any) -> Any:
    n, kept, before = 0, [], 0
    for i in range(10):
        if x.sum() > 1.5:
            n = n + 1
        before = n
        n += i
        kept.append(n)
    return n, before, kept, x.astype(dt.float16) * kept[3]


def of_a_name_that_starts_in_the_loop(x: Any) -> Any:
    n = 0
    for i in range(10):
        if x.sum() > 1.5:
            n = n + i
        y = n
        z = (y, [n])
    return y, z


def looked_for(x: Any) -> Any:
    n = 1
    if x.sum() > 1.5:
        n = 2
    return n in (1, 3), n in {1, 3}, n in {2: 5}, n not in [2], x * (n in [1]), 5 in (n, 6), {"a": n}.get("a"), {"a": 1}.get("b", n)


FUNCTIONS = [looked_for, unary, inverted, of_two, of_an_index, of_two_indices, kept_in_a_list, of_a_name_that_starts_in_the_loop]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("values", [(1.0, 2.0, 3.0), (-1.0, -2.0, 0.5), (0.1, 0.2, 0.3)])
def test_numbers_stay_numbers(function: Any, values: Any) -> None:
    check(function, tensor(*values))


@pytest.mark.parametrize("function", [of_an_index, kept_in_a_list, of_a_name_that_starts_in_the_loop], ids=lambda f: f.__name__)
def test_loops_of_numbers_become_one_op(function: Any) -> None:
    assert op_names(check(function, tensor(1.0, 2.0, 3.0))).count("for") == 1


def test_tensors_are_not_numbers() -> None:
    def function(x: Any) -> Any:
        return abs(x), pow(x, 2), abs(x.sum()), abs(-3), pow(2, 3, 5), round(2.567, 1), divmod(7, 2)

    check(function, tensor(-1.0, 2.0))


def key_read(x: Any, n: Any) -> Any:
    return {1: "a", 2: "b"}[n]


def key_asked_for(x: Any, n: Any) -> Any:
    return {1: "a", 2: "b"}.get(n, "c")


def key_written(x: Any, n: Any) -> Any:
    d = {1: x}
    d[n] = 5
    return d


def key_displayed(x: Any, n: Any) -> Any:
    return {n: x}


def set_extended(x: Any, n: Any) -> Any:
    numbers = {1}
    numbers.add(n)
    return len(numbers)


def range_summed(x: Any, n: Any) -> Any:
    return sum(range(n)), [i for i in range(n)]


def range_in_list(x: Any, n: Any) -> Any:
    return list(range(n)), len(range(n)), list(enumerate(range(n))), list(zip(range(n), "ab", strict=False)), 1 in range(n), tuple(reversed(range(n)))


NEEDED = [key_read, key_asked_for, key_written, key_displayed, set_extended, range_summed, range_in_list]


@pytest.mark.parametrize("function", NEEDED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("values", [(1.0, 2.0), (-1.0, -2.0)])
def test_numbers_that_python_itself_needs(function: Any, values: Any) -> None:
    """The call runs as Python where a look-up or a length depends on a number that a Tensor decides on."""

    def decided(x: Any) -> Any:
        n = 1
        if x.sum() > 1.5:
            n = 2
        return function(x, n)

    x = tensor(*values)
    with pytest.raises(RuntimeError, match="while the graph is being built"):
        jit(decided, fullgraph=True)(x)
    with pytest.warns(RuntimeWarning, match="runs as Python"):
        same(jit(decided)(x), decided(x))
