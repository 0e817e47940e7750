"""What a kernel knows of its powers: functions of one value begin with the same power of e, or the same logarithm; no power of e is above 1 whose exponent is
not above 0.

Enters: a kernel. Leaves: the same kernel, in which a sigmoid that stands beside a softplus, or a tanh of one, of its operand is computed from the
same power (alone, a sigmoid has a form that takes fewer instructions), tanh(softplus(x)), written so by hand, without its logarithm,
logarithms of 1 + e**-|x|, and powers of x - max(x), without what larger numbers would need, and logarithms of the bases of powers, as the slopes of these by
their exponents have them, from what the powers need of them.
"""

from __future__ import annotations

from dataclasses import replace

from graphcell.codegen.contract import without
from graphcell.codegen.kernel import LoopKernel, Splat, Statement
from graphcell.ir.op import Op, frozen
from graphcell.ops.arithmetic import Abs, Neg, Select, Sub
from graphcell.ops.base import Elementwise, Emitter, Reduction, Val
from graphcell.ops.comparison import Greater
from graphcell.ops.mathematics import Exp, Log, Log1p, Pow, Sigmoid, Softplus, Tanh, TanhSoftplus

_ONE_FROM = 20.0
"""Where tanh is 1 in every dtype."""


@frozen
class SigmoidBesideSoftplus(Sigmoid):
    """The slope of a softplus in the same kernel."""

    name = "sigmoid_beside_softplus"


@frozen
class SigmoidBesideTanhSoftplus(Sigmoid):
    """A factor of the slope of a tanh(softplus(x)) in the same kernel."""

    name = "sigmoid_beside_tanh_softplus"


@frozen
class ExpOfNegative(Exp):
    """e ** x of x <= 0."""

    name = "exp_of_negative"


@frozen
class Log1pOfFraction(Log1p):
    """log(1 + x) of 0 <= x <= 1."""

    name = "log1p_of_fraction"


@frozen
class LogBesidePower(Elementwise):
    """log(x), but 0 where a condition holds, in a kernel with a power of x."""

    fast = False
    name = "log_beside_power"

    def emit(self, b: Emitter, condition: Val, x: Val) -> Val:
        return b.select(condition, b.const(0.0, x), b.log_beside_power(x))


def share_powers(kernel: LoopKernel) -> LoopKernel:
    """The kernel with such functions."""
    body = tuple(_without_logarithm(kernel.body, s) for s in kernel.body)
    if body != kernel.body:
        kernel = _without_unused(replace(kernel, body=body))
    body = tuple(_with_what_is_known(kernel.body, s) for s in kernel.body)
    return _without_unused(replace(kernel, body=body)) if body != kernel.body else kernel


def _without_logarithm(body: tuple[Statement, ...], s: Statement) -> Statement:
    """tanh(softplus(x)), or tanh(select(x > c, x, softplus(x))) where tanh(c) is 1, as one function."""
    if not isinstance(s.what, Tanh) or s.dtype.bits < 32:
        return s
    inner = body[s.args[0]]
    if isinstance(inner.what, Select):
        condition, x, other = inner.args
        above, inner = body[condition], body[other]
        limit = body[above.args[1]].what if isinstance(above.what, Greater) else None
        if not isinstance(limit, Splat) or limit.value < _ONE_FROM or above.args[0] != x or inner.args != (x,):
            return s
    return replace(s, what=TanhSoftplus(), args=inner.args) if isinstance(inner.what, Softplus) else s


def _without_unused(kernel: LoopKernel) -> LoopKernel:
    used = {s.local for s in kernel.stores}
    for n in reversed(range(len(kernel.body))):
        if n in used or kernel.body[n].is_reduction:
            used.update(kernel.body[n].args)
    return without(kernel, {n for n, s in enumerate(kernel.body) if n not in used and not s.is_reduction})


def _with_what_is_known(body: tuple[Statement, ...], s: Statement) -> Statement:
    if isinstance(s.what, Sigmoid):
        size = _but_for_sign(body, s.args[0])
        if any(isinstance(other.what, Softplus) and _but_for_sign(body, other.args[0]) == size for other in body):
            return replace(s, what=SigmoidBesideSoftplus())
        if any(isinstance(other.what, TanhSoftplus) and other.args == s.args for other in body):
            return replace(s, what=SigmoidBesideTanhSoftplus())
    if isinstance(s.what, Log):
        chosen = body[s.args[0]]
        if isinstance(chosen.what, Select) and body[chosen.args[1]].what == Splat(1.0, s.dtype):
            condition, _, x = chosen.args
            if any(isinstance(other.what, Pow) and other.args[0] == x for other in body):
                return replace(s, what=LogBesidePower(), args=(condition, x))
    if isinstance(s.what, Exp) and _is_below_its_largest(body, body[s.args[0]]):
        return replace(s, what=ExpOfNegative())
    if isinstance(s.what, Log1p) and _leads_to(body, s, (Exp, Neg, Abs)):
        return replace(s, what=Log1pOfFraction())
    return s


def _is_below_its_largest(body: tuple[Statement, ...], s: Statement) -> bool:
    """x - max(x), as a softmax has it. Not in half precision: where either is rounded and the other is not, the difference may be above 0."""
    if not isinstance(s.what, Sub) or s.dtype.bits < 32:
        return False
    largest = body[s.args[1]]
    return isinstance(largest.what, Reduction) and largest.what.kind == "max" and largest.args == s.args[:1]


def _but_for_sign(body: tuple[Statement, ...], local: int) -> int:
    """The local, or what it is the negative of."""
    return body[local].args[0] if isinstance(body[local].what, Neg) else local


def _leads_to(body: tuple[Statement, ...], s: Statement, kinds: tuple[type[Op], ...]) -> bool:
    """Whether the first operand of `s` is made by an op of the first kind, the first operand of that by one of the second, and so on."""
    for kind in kinds:
        s = body[s.args[0]]
        if not isinstance(s.what, kind):
            return False
    return True
