"""Random graphs made of the table of ops, for properties that hold for every graph.

Two kinds. `special` graphs take any numbers (NaN, infinities, both zeros, subnormals) and hold no float sums
or matrix products, whose rounding depends on the order of adding in numpy. `exact` graphs hold these too; all
their numbers are small integers, so that every order gives the same. To keep them so, nodes are run on sample
inputs while the graph grows, and refused if a number leaves the range.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from graphcell import dtype as dt
from graphcell.errors import GraphcellError
from graphcell.ir.graph import Builder, Graph, Value
from graphcell.ir.op import Array, Op, evaluate, infer_types
from graphcell.ir.types import TensorType
from graphcell.ir.verify import operand_count
from graphcell.ops.arithmetic import Add, Cast
from graphcell.ops.base import Elementwise, Reduction
from graphcell.ops.comparison import Less
from graphcell.ops.contraction import MatMul
from graphcell.ops.control import For, GraphCall, If, While
from graphcell.ops.creation import Constant, Full, Iota, Literal, number_of
from graphcell.ops.movement import BroadcastTo, Concat, Pad, Reshape, Slice, Transpose
from tests.passes.cases import random_array

SHAPES: list[tuple[int, ...]] = [(), (1,), (4,), (3, 4), (1, 4), (3, 1), (2, 3, 4), (2, 1, 4), (4, 4), (0, 4)]
DTYPES = [
    dt.float32,
    dt.float32,
    dt.float32,
    dt.float16,
    dt.bfloat16,
    dt.float64,
    dt.int32,
    dt.int8,
    dt.uint8,
    dt.bool_,
]
EXACT_DTYPES = [dt.float32, dt.float64, dt.int32, dt.bool_]
_LIMIT = 1 << 16
_NUMBERS = [0, 1, -1, 2, 4, 3]
_UNEXACT = {"div", "power", "pow"}

POINTWISE = [
    cls
    for _, cls in sorted(Op.table.items())
    if issubclass(cls, Elementwise) and cls.__module__.startswith("graphcell.ops") and cls.fast and not dataclasses.fields(cls)  # type: ignore[arg-type]
]
REDUCTIONS = [cls for _, cls in sorted(Op.table.items()) if issubclass(cls, Reduction)]


class Generator:
    """Grows one graph."""

    def __init__(self, rng: np.random.Generator, exact: bool, depth: int, name: str = "random"):
        self.rng = rng
        self.exact = exact
        self.depth = depth
        self.builder = Builder(name)
        self.values: list[Value] = []
        self.arrays: dict[Value, Array] = {}

    # -- growing ---------------------------------------------------------------------------------------------
    def input(self, type: TensorType, array: Array | None = None) -> Value:
        v = self.builder.input(type)
        self.arrays[v] = random_array(self.rng, type, self.exact) if array is None else array
        self.values.append(v)
        return v

    def add(self, op: Op, *operands: Value) -> tuple[Value, ...] | None:
        """Appends a node unless the op refuses the operands, or an exact graph would be exact no more."""
        try:
            infer_types(op, tuple(v.type for v in operands))
            with np.errstate(all="ignore"):
                arrays = evaluate(op, tuple(self.arrays[v] for v in operands))
            if self.exact and not all(map(_is_exact, arrays)):
                return None
            results = self.builder.append(op, operands)
        except GraphcellError:
            return None
        for v, array in zip(results, arrays, strict=True):
            assert array.shape == v.type.shape and dt.from_numpy(array.dtype) is v.type.dtype, (
                f"{op} gives {array.dtype}{array.shape}"
            )
            self.arrays[v] = array
        self.values += results
        return results

    def grow(self, count: int) -> None:
        makers = [self.pointwise] * 8 + [
            self.full,
            self.constant,
            self.ramp,
            self.cast,
            self.select,
            self.reduction,
        ]
        makers += [
            self.reshape,
            self.transpose,
            self.broadcast,
            self.slice,
            self.pad,
            self.concat,
            self.again,
        ]
        makers += [self.matmul] * self.exact + (
            [self.branch, self.loop, self.while_loop, self.call] if self.depth else []
        )
        before = len(self.builder.nodes)
        for _ in range(20 * count):
            if len(self.builder.nodes) - before >= count:
                return
            makers[self.rng.integers(len(makers))]()

    def finish(self, outputs: int) -> Graph:
        return self.builder.finish([self.pick() for _ in range(outputs)])

    # -- choosing --------------------------------------------------------------------------------------------
    def pick(self) -> Value:
        """A value, rather a late one."""
        n = len(self.values)
        return self.values[max(self.rng.integers(n), self.rng.integers(n))]

    def type(self) -> TensorType:
        dtypes = EXACT_DTYPES if self.exact else DTYPES
        return TensorType(dtypes[self.rng.integers(len(dtypes))], SHAPES[self.rng.integers(len(SHAPES))])

    def number(self, type: TensorType) -> bool | int | float:
        number = _NUMBERS[self.rng.integers(len(_NUMBERS))]
        if type.dtype.is_float and not self.exact:
            return [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, float("nan"), float("inf")][self.rng.integers(9)]
        return number_of(abs(number) if not type.dtype.signed else number, type.dtype)

    def like(self, type: TensorType) -> Value:
        """A value of this type: one that is there, or a fill."""
        found = [v for v in self.values if v.type == type]
        if found and self.rng.random() < 0.7:
            return found[self.rng.integers(len(found))]
        made = self.add(Full(self.number(type), type.shape, type.dtype))
        assert made is not None
        return made[0]

    # -- makers ----------------------------------------------------------------------------------------------
    def pointwise(self) -> None:
        cls = POINTWISE[self.rng.integers(len(POINTWISE))]
        if self.exact and cls.name in _UNEXACT:
            return
        x, count = self.pick(), operand_count(cls)
        assert count is not None
        operands = [x] + [self.like(x.type) for _ in range(count - 1)]
        self.add(cls(), *operands[:: self.rng.choice([-1, 1])])

    def full(self) -> None:
        t = self.type()
        self.add(Full(self.number(t), t.shape, t.dtype))

    def constant(self) -> None:
        t = self.type()
        self.add(Constant(Literal(random_array(self.rng, t, self.exact)), t.dtype))

    def ramp(self) -> None:
        t = self.type()
        if t.shape:
            self.add(Iota(t.shape, int(self.rng.integers(len(t.shape))), t.dtype))

    def cast(self) -> None:
        self.add(Cast(self.type().dtype), self.pick())

    def select(self) -> None:
        from graphcell.ops.arithmetic import Select

        x = self.pick()
        self.add(Select(), self.like(x.type.with_dtype(dt.bool_)), x, self.like(x.type))

    def reduction(self) -> None:
        x = self.pick()
        cls = REDUCTIONS[self.rng.integers(len(REDUCTIONS))]
        rounds = cls.kind in ("add", "mul") and x.type.dtype.is_float
        axis = tuple(k for k in range(x.type.rank) if self.rng.random() < 0.5)
        ones = all(x.type.shape[a] == 1 for a in axis)
        extremum = cls.kind in ("max", "min")  # of nothing: numpy raises even where the result is empty
        if (x.type.size or not extremum) and (self.exact or not rounds or ones):
            self.add(cls(axis, bool(self.rng.integers(2))), x)  # type: ignore[call-arg]

    def matmul(self) -> None:
        x = self.pick()
        if x.type.rank < 2:
            return
        y = self.like(x.type) if self.rng.random() < 0.8 else self.pick()
        self.add(MatMul(bool(self.rng.integers(2)), bool(self.rng.integers(2))), x, y)

    def reshape(self) -> None:
        x = self.pick()
        same = [
            s
            for s in SHAPES + [x.type.shape[::-1], (x.type.size,), (1, *x.type.shape)]
            if int(np.prod(s)) == x.type.size
        ]
        self.add(Reshape(same[self.rng.integers(len(same))]), x)

    def transpose(self) -> None:
        x = self.pick()
        self.add(Transpose(tuple(int(k) for k in self.rng.permutation(x.type.rank))), x)

    def broadcast(self) -> None:
        self.add(BroadcastTo(SHAPES[self.rng.integers(len(SHAPES))]), self.pick())

    def slice(self) -> None:
        x = self.pick()
        start, size, step = [], [], []
        for d in x.type.shape:
            s = int(self.rng.choice([1, 1, 1, 2, -1, -2]))
            a = int(self.rng.integers(max(d, 1)))
            a = (0 if s > 0 else max(d - 1, 0)) if self.rng.random() < 0.5 else a
            most = (d - 1 - a) // s + 1 if s > 0 else a // -s + 1
            n = most if self.rng.random() < 0.5 else int(self.rng.integers(most + 1))
            start.append(a)
            size.append(n if d else 0)
            step.append(s)
        self.add(Slice(tuple(start), tuple(size), tuple(step)), x)

    def pad(self) -> None:
        x = self.pick()
        low, high, interior = (tuple(int(k) for k in self.rng.integers(0, 2, x.type.rank)) for _ in range(3))
        self.add(
            Pad(low, high, interior if self.rng.random() < 0.3 else (0,) * x.type.rank, self.number(x.type)),
            x,
        )

    def concat(self) -> None:
        x = self.pick()
        if x.type.rank:
            self.add(
                Concat(int(self.rng.integers(x.type.rank))),
                x,
                *(self.like(x.type) for _ in range(self.rng.integers(3))),
            )

    def again(self) -> None:
        """A node like one that is there already."""
        if self.builder.nodes:
            node = self.builder.nodes[self.rng.integers(len(self.builder.nodes))]
            self.add(node.op, *node.operands)

    # -- regions ---------------------------------------------------------------------------------------------
    def child(self, operands: list[Value], name: str) -> Generator:
        child = Generator(self.rng, self.exact, self.depth - 1, name)
        for v in operands:
            child.input(v.type, self.arrays[v])
        return child

    def operands(self, least: int) -> list[Value]:
        return [self.pick() for _ in range(self.rng.integers(least, 4))]

    def branch(self) -> None:
        operands = self.operands(1)
        sides = [self.child(operands, name) for name in ("then", "else")]
        for side in sides:
            side.grow(4)
        outputs = [sides[0].pick() for _ in range(self.rng.integers(1, 4))]
        others = [sides[1].like(v.type) for v in outputs]
        self.add(
            If(sides[0].builder.finish(outputs), sides[1].builder.finish(others)),
            self.like(TensorType(dt.bool_, ())),
            *operands,
        )

    def loop(self) -> None:
        trips = int(self.rng.integers(0, 4))
        carried = self.operands(0)
        stacked = [self.like(TensorType(dt.float32, (trips, 4)))] if self.rng.random() < 0.5 else []
        invariant = self.operands(0)
        body = Generator(self.rng, self.exact, self.depth - 1, "body")
        body.input(TensorType(dt.int64, ()), np.asarray(0, np.int64))
        for v in carried:
            body.input(v.type, self.arrays[v])
        for v in stacked:
            body.input(v.type.with_shape(v.type.shape[1:]), np.zeros(4, np.float32))
        for v in invariant:
            body.input(v.type, self.arrays[v])
        body.grow(5)
        before = body.builder.inputs[1 : 1 + len(carried)]
        after = [v if self.rng.random() < 0.3 else body.like(v.type) for v in before]
        ys = [body.pick() for _ in range(self.rng.integers(0, 3))]
        op = For(
            body.builder.finish([*after, *ys]), trips, len(carried), len(stacked), bool(self.rng.integers(2))
        )
        self.add(op, *carried, *stacked, *invariant)

    def while_loop(self) -> None:
        """Counts to at most 3, and computes something on the way."""
        counter, others, invariant = self.like(TensorType(dt.int32, ())), self.operands(0), self.operands(0)
        operands = [counter, *others, *invariant]
        cond, body = self.child(operands, "cond"), self.child(operands, "body")
        limit = cond.add(Full(3, (), dt.int32))
        assert limit is not None
        going = cond.add(Less(), cond.builder.inputs[0], limit[0])
        body.grow(5)
        one = body.add(Full(1, (), dt.int32))
        assert going is not None and one is not None
        count = body.add(Add(), body.builder.inputs[0], one[0])
        if count is None or self.arrays[counter] < -4:
            return
        before = body.builder.inputs[1 : 1 + len(others)]
        after = [v if self.rng.random() < 0.3 else body.like(v.type) for v in before]
        self.add(
            While(cond.builder.finish(going), body.builder.finish([*count, *after]), 1 + len(others)),
            *operands,
        )

    def call(self) -> None:
        operands = self.operands(0)
        child = self.child(operands, "callee")
        child.full()
        child.grow(3)
        self.add(GraphCall(child.finish(2)), *operands)


def _is_exact(array: Array) -> bool:
    if array.dtype.kind == "b":
        return True
    wide = array.astype(np.float64)
    return bool(
        np.all(np.abs(wide) <= _LIMIT)
        and np.all(wide == np.round(wide))
        and not np.any((wide == 0) & np.signbit(wide))
    )


def random_graph(seed: int, exact: bool, nodes: int = 25) -> tuple[Graph, list[Array]]:
    """A graph and the inputs that it was grown on."""
    generator = Generator(np.random.default_rng(seed), exact, 2)
    for _ in range(4):
        generator.input(generator.type())
    generator.grow(nodes)
    graph = generator.finish(4)
    return graph, [generator.arrays[v] for v in graph.inputs]
