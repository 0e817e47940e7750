"""Networks of minima and maxima, such as the medians of windows: NaN is found once for each result, and not by every minimum and maximum.

Enters: a kernel. Leaves: the same kernel, in which minima and maxima of floats that lead to each other give one of their operands, whichever, where one
is NaN, if that takes fewer instructions. All of them hand NaN on, so a result is NaN where any number that leads to it is: these are compared, two at
a time.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphcell.codegen.kernel import LoopKernel, Splat, Statement
from graphcell.codegen.statements import Body
from graphcell.dtype import bool_, float32, float64
from graphcell.ir.op import Op, frozen
from graphcell.ops.arithmetic import Maximum, Minimum, Select
from graphcell.ops.base import Elementwise, Emitter, Val
from graphcell.ops.comparison import BitwiseOr
from graphcell.records import dataclass

Array = NDArray[Any]
_FEWEST = 3
"""Minima and maxima of a network that may be worth it."""


@frozen
class SmallerNumber(Minimum):
    """The smaller of x and y, either if one is NaN: what x86 has an instruction for."""

    name = "smaller_number"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.where(x < y, x, y)

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        return b.select(b.fcmp("olt", x, y), x, y)


@frozen
class LargerNumber(Maximum):
    """The larger of x and y, either if one is NaN."""

    name = "larger_number"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.where(x > y, x, y)

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        return b.select(b.fcmp("ogt", x, y), x, y)


@frozen
class OneIsNan(Elementwise):
    """Whether x or y is NaN."""

    name = "one_is_nan"

    def eval(self, x: Array, y: Array) -> Array:  # type: ignore[override]
        return np.isnan(x) | np.isnan(y)

    def emit(self, b: Emitter, x: Val, y: Val) -> Val:
        return b.fcmp("uno", x, y)


_NUMBERS: dict[type, Elementwise] = {Minimum: SmallerNumber(), Maximum: LargerNumber()}
_NAN = math.nan


def find_nan_once(kernel: LoopKernel) -> LoopKernel:
    """The kernel with such networks."""
    networks = [network for network in _networks(kernel) if network.is_worth_it]
    if not networks:
        return kernel
    of = {n: network for network in networks for n in network.members}
    body, raw, nan = Body(), dict[int, int](), dict[frozenset[int], int]()
    for n, s in enumerate(kernel.body):
        if n not in of:
            body.keep(s)
            continue
        args = tuple(raw.get(a, body.number[a]) for a in s.args)
        raw[n] = result = body.add(replace(s, what=_NUMBERS[type(s.what)], args=args))
        if n in of[n].results:
            leaves = of[n].results[n]
            if leaves not in nan:
                nan[leaves] = _one_of_them_is_nan(body, [body.number[a] for a in sorted(leaves)])
            number = body.add(Statement(Splat(_NAN, s.dtype), (), s.dtype, 0, 0))
            result = body.add(replace(s, what=Select(), args=(nan[leaves], number, result)))
        body.number.append(result)
    return body.of(kernel)


def _one_of_them_is_nan(body: Body, numbers: list[int]) -> int:
    """Whether one of some locals is NaN."""

    def add(what: Op, x: int, y: int) -> int:
        one, other = body.statements[x], body.statements[y]
        return body.add(Statement(what, (x, y), bool_, one.loops | other.loops, max(one.stage, other.stage)))

    found = [add(OneIsNan(), numbers[k], numbers[min(k + 1, len(numbers) - 1)]) for k in range(0, len(numbers), 2)]
    while len(found) > 1:
        found = [*(add(BitwiseOr(), x, y) for x, y in zip(found[::2], found[1::2], strict=False)), *found[len(found) // 2 * 2 :]]
    return found[0]


@dataclass(frozen=True, slots=True)
class _Network:
    """Minima and maxima that lead to each other, and the numbers that lead to each of its `results`, which others read."""

    kernel: LoopKernel
    members: tuple[int, ...]
    results: dict[int, frozenset[int]]

    @property
    def is_worth_it(self) -> bool:
        """By the instructions: each has one, one that chooses NaN, and one that finds it in the first operand."""
        if len(self.members) < _FEWEST or not all(self.results.values()):
            return False
        before = 2 * len(self.members) + len({self.kernel.body[n].args[0] for n in self.members})
        after = len(self.members) + len(self.results) + sum(2 * ((len(leaves) + 1) // 2) - 1 for leaves in set(self.results.values()))
        return after < before


def _networks(kernel: LoopKernel) -> list[_Network]:
    body = kernel.body
    members = [n for n, s in enumerate(body) if type(s.what) in _NUMBERS and s.dtype in (float32, float64)]
    if len(members) < _FEWEST:
        return []
    inside = set(members)
    read = {a for n, s in enumerate(body) if n not in inside for a in s.args} | {store.local for store in kernel.stores}
    leaves: dict[int, frozenset[int]] = {}
    network: dict[int, list[int]] = {}
    for n in members:
        own = [n]
        leaves[n] = frozenset().union(*(leaves[a] if a in inside else _that_may_be_nan(body, a) for a in body[n].args))
        for joined in {id(network[a]): network[a] for a in body[n].args if a in inside}.values():
            own += joined
        for m in own:
            network[m] = own
    found = {id(own): own for own in network.values()}.values()
    return [_Network(kernel, tuple(own), {n: leaves[n] for n in own if n in read}) for own in found]


def _that_may_be_nan(body: tuple[Statement, ...], local: int) -> frozenset[int]:
    what = body[local].what
    return frozenset() if isinstance(what, Splat) and not math.isnan(float(what.value)) else frozenset((local,))
