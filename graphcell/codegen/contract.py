"""Contracts products and the sums that they go into to fused multiply-adds, which round once.

Enters: a kernel. Leaves: the same kernel with `MulAdd` for x * y + z, for z - x * y where z is a number known while compiling, with
reductions that add products taking the two factors, and with x + x for what is left of x * 2. Refuses: differences of values that are
computed. There the rounded product may be meant to cancel against another rounded one (a * d - b * c), and what is left of a single
rounding would show.

This is the only place where floating-point operations are contracted, so that every vector width and every processor gives the same
bits. A product is contracted only if nothing else needs it, so that no work is done twice, or if it is one by 2, which could overflow where the sum does not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from graphcell.codegen.kernel import LoopKernel, MulAdd, Splat, Statement
from graphcell.ops.arithmetic import Add, Mul, Sub
from graphcell.ops.base import Reduction


def contract(kernel: LoopKernel) -> LoopKernel:
    """The kernel with fused multiply-adds."""
    uses = Counter(a for s in kernel.body for a in s.args)
    uses.update(s.local for s in kernel.stores)
    body, products = list(kernel.body), set[int]()
    for n, s in enumerate(body):
        found = _contracted(kernel, s, uses)
        if found is not None:
            product, body[n] = found
            products.add(product)
    body = [_added(s, body) for s in body]
    numbers = {a for n, s in enumerate(kernel.body) if body[n] is not s for a in s.args if isinstance(body[a].what, Splat)}
    used = {a for s in body for a in s.args} | {s.local for s in kernel.stores}
    return without(replace(kernel, body=tuple(body)), (products | numbers) - used) if body != list(kernel.body) else kernel


def _added(s: Statement, body: list[Statement]) -> Statement:
    """x * 2 as x + x: most kernels have more products than sums, and processors add beside them."""
    if isinstance(s.what, Mul) and s.dtype.is_float:
        for x, number in (s.args, s.args[::-1]):
            if body[number].what == Splat(2.0, s.dtype):
                return replace(s, what=Add(), args=(x, x))
    return s


def _contracted(kernel: LoopKernel, s: Statement, uses: Counter[int]) -> tuple[int, Statement] | None:
    """The product that goes into `s`, and `s` with its factors instead."""
    if not s.dtype.is_float:
        return None

    def is_product(local: int) -> bool:
        made = kernel.body[local]
        return isinstance(made.what, Mul) and (uses[local] == 1 or any(kernel.body[a].what == Splat(2.0, made.dtype) for a in made.args))

    if isinstance(s.what, Reduction):
        (p,) = s.args
        if s.what.kind == "add" and is_product(p) and kernel.body[p].dtype is s.dtype:
            return p, replace(s, args=kernel.body[p].args)
        return None
    if isinstance(s.what, Add):
        for p, z in (s.args, s.args[::-1]):
            if is_product(p) and kernel.body[p].loops == s.loops:
                return p, replace(s, what=MulAdd(negated=False), args=(*kernel.body[p].args, z))
    if isinstance(s.what, Sub):
        z, p = s.args
        if isinstance(kernel.body[z].what, Splat) and is_product(p) and kernel.body[p].loops == s.loops:
            return p, replace(s, what=MulAdd(negated=True), args=(*kernel.body[p].args, z))
    return None


def without(kernel: LoopKernel, dropped: set[int]) -> LoopKernel:
    """The kernel without these locals."""
    number: dict[int, int] = {}
    body: list[Statement] = []
    for n, s in enumerate(kernel.body):
        if n not in dropped:
            number[n] = len(body)
            body.append(Statement(s.what, tuple(number[a] for a in s.args), s.dtype, s.loops, s.stage))
    stores = tuple(replace(s, local=number[s.local]) for s in kernel.stores)
    return replace(kernel, body=tuple(body), stores=stores)
