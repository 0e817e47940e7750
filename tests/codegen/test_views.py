"""Random chains of views feeding every kind of consumer: native code against `eval`, to the bit.

All numbers are small integers, so that sums and products are exact in any order. Extents have several divisors, so that reshapes split
and join dimensions in ways that do not fit each other.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell import ops
from graphcell.dtype import DType
from graphcell.errors import GraphcellError
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Builder, Graph, Value
from graphcell.ir.op import Array, Op
from graphcell.ir.types import Shape, TensorType
from graphcell.ops.arithmetic import Add, Cast, Maximum, Minimum, Mul, Select
from graphcell.ops.comparison import Less
from graphcell.ops.contraction import MatMul
from graphcell.ops.creation import Full, Iota
from graphcell.ops.indexing import Gather, Scatter
from graphcell.ops.movement import BroadcastTo, Concat, Pad, Reshape, Slice, Transpose, UpdateSlice
from graphcell.ops.pooling import Windows
from graphcell.ops.reduction import ReduceMax, ReduceSum
from graphcell.runtime.executable import compile_graph
from graphcell.tensor import Tensor
from tests.helpers import trace

RNG = np.random.default_rng(2)
SHAPES: list[Shape] = [(6, 4), (24,), (2, 3, 4), (4, 6), (12, 1, 2), (1, 6), (3, 8), (4, 1), (2, 2, 2, 3), (36,), (6, 6), ()]
MOST = 600
"""Elements of a value at most."""


class _Views:
    """Grows a graph in which views are many and everything else reads them."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.builder = Builder(f"views{seed}")
        self.values: list[Value] = []
        self.read: list[Value] = []

    def add(self, op: Op, *operands: Value) -> Value | None:
        try:
            (result,) = self.builder.append(op, operands)
        except (GraphcellError, ValueError):
            return None
        if result.type.size > MOST:
            self.builder.nodes.pop()
            return None
        self.values.append(result)
        return result

    def pick(self, rank: int = 0, dtype: DType | None = None) -> Value:
        found = [v for v in self.values if v.type.rank >= rank and (dtype is None or v.type.dtype is dtype)]
        found = found or [v for v in self.builder.inputs if v.type.rank >= rank and (dtype is None or v.type.dtype is dtype)]
        return found[max(self.rng.integers(len(found)), self.rng.integers(len(found)))]

    def factors(self, size: int) -> Shape:
        """A random shape of `size` elements."""
        shape: list[int] = []
        while size > 1 and len(shape) < 4:
            divisors = [d for d in range(2, size + 1) if size % d == 0]
            shape.append(int(self.rng.choice(divisors)))
            size //= shape[-1]
        shape += [size] if size > 1 else []
        if self.rng.random() < 0.3:
            shape.insert(int(self.rng.integers(len(shape) + 1)), 1)
        return tuple(shape)

    # -- views -------------------------------------------------------------------------------------------------------
    def view(self, x: Value) -> Value | None:
        kinds = [self.reshape, self.reshape, self.reshape, self.transpose, self.broadcast, self.slice, self.windows]
        return kinds[self.rng.integers(len(kinds))](x)

    def reshape(self, x: Value) -> Value | None:
        return self.add(Reshape(self.factors(x.type.size) if x.type.size else x.type.shape), x)

    def transpose(self, x: Value) -> Value | None:
        return self.add(Transpose(tuple(int(p) for p in self.rng.permutation(x.type.rank))), x)

    def broadcast(self, x: Value) -> Value | None:
        shape = [int(self.rng.choice([1, 2, 3, 6])) if d == 1 else d for d in x.type.shape]
        lead = [int(self.rng.choice([2, 3, 4]))] if self.rng.random() < 0.5 else []
        return self.add(BroadcastTo((*lead, *shape)), x)

    def slice(self, x: Value) -> Value | None:
        start, size, step = [], [], []
        for d in x.type.shape:
            kind = self.rng.integers(4)
            s = int([1, -1, 2, -2][kind])
            n = int(self.rng.integers(1, d + 1)) if d and self.rng.random() < 0.5 else d
            n = -(-n // abs(s)) if self.rng.random() < 0.98 else 0
            first = int(self.rng.integers(d - (n - 1) * abs(s))) if n else 0
            start.append(first if s > 0 else first + (n - 1) * -s if n else 0)
            size.append(n)
            step.append(s)
        return self.add(Slice(tuple(start), tuple(size), tuple(step)), x)

    def windows(self, x: Value) -> Value | None:
        if not x.type.rank:
            return None
        axis = int(self.rng.integers(x.type.rank))
        size, stride, dilation = (int(self.rng.integers(1, 3)) for _ in range(3))
        return self.add(Windows((axis,), (size,), (stride,), (dilation,)), x)

    def source(self) -> Value | None:
        shape = SHAPES[self.rng.integers(len(SHAPES))]
        if self.rng.random() < 0.5 and shape:
            return self.add(Iota(shape, int(self.rng.integers(len(shape))), dt.float32))
        return self.add(Full(float(self.rng.integers(-2, 3)), shape, dt.float32))

    def matching(self, x: Value) -> Value | None:
        """Another value of the shape of x, by a reshape or a broadcast where there is none."""
        same = [v for v in self.values if v.type == x.type and v is not x]
        if same and self.rng.random() < 0.4:
            return same[self.rng.integers(len(same))]
        sized = [v for v in self.values if v.type.size == x.type.size and v.type.dtype is x.type.dtype]
        y = sized[self.rng.integers(len(sized))]
        moved = self.transpose(y)
        return self.add(Reshape(x.type.shape), moved if moved is not None and self.rng.random() < 0.7 else y)

    # -- consumers ---------------------------------------------------------------------------------------------------
    def elementwise(self) -> None:
        x = self.pick(dtype=dt.float32)
        y = self.matching(x)
        if y is None:
            return
        kind = self.rng.integers(4)
        if kind == 3:
            condition = self.add(Less(), x, y)
            z = self.matching(x)
            if condition is not None and z is not None:
                self.keep(self.add(Select(), condition, y, z))
            return
        self.keep(self.add((Add(), Maximum(), Mul())[kind], x, y))

    def reduction(self) -> None:
        x = self.pick(dtype=dt.float32)
        axis = tuple(k for k in range(x.type.rank) if self.rng.random() < 0.5)
        op = (ReduceSum, ReduceMax)[self.rng.integers(2)](axis, bool(self.rng.integers(2)))
        if axis and x.type.size:
            self.keep(self.add(op, x))

    def matmul(self) -> None:
        x = self.pick(2, dt.float32)
        flip = self.rng.integers(2)
        self.keep(self.add(MatMul(bool(flip), not flip), x, x))

    def gather(self) -> None:
        x = self.pick(1, dt.float32)
        index = self.add(Cast(dt.int32), self.pick(dtype=dt.float32))
        if index is not None and index.type.size * x.type.size <= MOST and x.type.size:
            got = self.keep(self.add(Gather((int(self.rng.integers(x.type.rank)),)), x, index))
            if got is not None and index.type.rank == 1:
                self.keep(self.add(Scatter((0,), "add"), x, index, got))

    def joined(self) -> None:
        x = self.pick(1, dt.float32)
        y = self.matching(x)
        if y is not None:
            self.keep(self.add(Concat(int(self.rng.integers(x.type.rank))), x, y, x))

    def padded(self) -> None:
        x = self.pick(dtype=dt.float32)
        low, high, inner = (tuple(int(n) for n in self.rng.integers(0, most, x.type.rank)) for most in (4, 4, 2 if self.rng.random() < 0.3 else 1))
        self.add(Pad(low, high, inner, float(self.rng.integers(-1, 2))), x)

    def updated(self) -> None:
        x = self.pick(1, dt.float32)
        cut = self.slice(x)
        if cut is None:
            return
        op = self.builder.nodes[-1].op
        update = self.matching(cut)
        if isinstance(op, Slice) and update is not None:
            self.keep(self.add(UpdateSlice(op.start, op.step), x, update))

    def keep(self, v: Value | None) -> Value | None:
        """The value, made small again, so that numbers stay exact."""
        if v is None or v.type.dtype is not dt.float32:
            return v
        one = self.add(Full(5.0, v.type.shape, dt.float32))
        low = self.add(Full(-5.0, v.type.shape, dt.float32))
        if one is None or low is None:
            return v
        small = self.add(Minimum(), v, one)
        return None if small is None else self.add(Maximum(), small, low)

    def run(self, steps: int) -> tuple[Graph, list[Array]]:
        for shape in (SHAPES[self.rng.integers(len(SHAPES) - 1)], SHAPES[self.rng.integers(len(SHAPES))], (2, 3, 4)):
            self.values.append(self.builder.input(TensorType(dt.float32, shape)))
        makers = [self.elementwise] * 4 + [self.reduction] * 2 + [self.matmul, self.gather, self.joined, self.padded, self.updated, self.source]
        for _ in range(steps):
            for _ in range(self.rng.integers(1, 5)):
                self.view(self.pick())
            makers[self.rng.integers(len(makers))]()
        outputs = [self.pick() for _ in range(5)]
        arrays = [self.rng.integers(-3, 4, v.type.shape).astype(np.float32) for v in self.builder.inputs]
        return self.builder.finish(outputs), arrays


def check(seed: int, steps: int = 8) -> None:
    graph, inputs = _Views(seed).run(steps)
    executable = compile_graph(graph)
    wanted = evaluate_graph(graph, inputs)
    for want, tensor in zip(wanted, executable([Tensor(x) for x in inputs]), strict=True):
        np.testing.assert_array_equal(tensor.asnumpy(), want, err_msg=str(graph))


@pytest.mark.parametrize("seed", range(24))
def test_chains_of_views_agree_with_eval(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("fn, shapes", [
    (lambda x: ops.channel_shuffle(x.reshape(1, 6, 2, 2), 3), [(24,)]),
    (lambda x, y: x.reshape(6) + y.reshape(6), [(2, 3), (3, 2)]),
    (lambda x, y: x.T.reshape(6) + y.T.reshape(6), [(2, 3), (3, 2)]),
    (lambda x: x.T.reshape(6).broadcast_to((4, 6)).reshape(4, 2, 3) * 2.0, [(2, 3)]),
    (lambda x: x.T.reshape(6) + x.reshape(6), [(2, 3)]),
    (lambda x: x.reshape(9) - x.T.reshape(9), [(3, 3)]),
    (lambda x: x.reshape(32) - x.transpose(2, 1, 0).reshape(32), [(2, 2, 8)]),
    (lambda x: x.transpose(2, 0, 1).reshape(4, 16) - x.reshape(4, 16), [(4, 4, 4)]),
    (lambda x: (x.T.reshape(6, 1) + x.reshape(6)).reshape(4, 9).sum(0), [(2, 3)]),
    (lambda x: x.T.sum(), [(1031, 31)]),
    (lambda x: x.reshape(2, 0, 3).sum(1), [(0,)]),
], ids=["channel_shuffle", "split_two_ways", "transposed_two_ways", "through_broadcast", "itself_two_ways",
        "square_two_ways", "multiples_two_ways", "rows_two_ways", "outer", "long_sum", "empty"])
def test_reshapes_that_no_strides_express(fn, shapes: list[Shape]) -> None:
    arrays = [np.arange(math.prod(s), dtype=np.float32).reshape(s) % 7 for s in shapes]
    graph = trace(fn, *(TensorType(dt.float32, s) for s in shapes))
    executable = compile_graph(graph)
    assert not executable.compilation.program.host_calls
    for want, got in zip(evaluate_graph(graph, arrays), executable([Tensor(a) for a in arrays]), strict=True):
        np.testing.assert_array_equal(got.asnumpy(), want)


@pytest.mark.parametrize("fn", [
    lambda x, i: ops.gather(x[:, 1], i[1::2], 0),
    lambda x, i: ops.gather(x[1::2, :, 2:], i[::2], 0),
    lambda x, i: ops.gather(x[:, 1:3], i[1:3], 1),
], ids=["a row of each", "every other", "inner dimension"])
def test_elements_of_views_are_gathered_where_they_lie(fn) -> None:
    x = RNG.integers(0, 50, (8, 4, 16)).astype(np.float32)
    i = RNG.integers(0, 2, 6).astype(np.int32)
    graph = trace(fn, TensorType(dt.float32, x.shape), TensorType(dt.int32, i.shape))
    executable = compile_graph(graph)
    for want, got in zip(evaluate_graph(graph, [x, i]), executable([Tensor(x), Tensor(i)]), strict=True):
        np.testing.assert_array_equal(got.asnumpy(), want)
    steps = [s for s in executable.compilation.program.steps if s.title.startswith("loops")]
    assert sum("gather" in s.kernel for s in steps) == 1 and not any("copy" in s.kernel for s in steps)
