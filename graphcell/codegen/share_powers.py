"""What a kernel knows of its powers of e: a softplus and its slope begin with the same one; none is above 1 whose exponent is not above 0.

Enters: a kernel. Leaves: the same kernel, in which sigmoids that stand beside a softplus of their operand are computed from its e**-|x| (alone, a sigmoid has
a form that takes fewer instructions), and logarithms of 1 + e**-|x|, written so by hand, without what larger numbers would need.
"""

from __future__ import annotations

from dataclasses import replace

from graphcell.codegen.kernel import LoopKernel, Statement
from graphcell.ir.op import Op, frozen
from graphcell.ops.arithmetic import Abs, Neg
from graphcell.ops.mathematics import Exp, Log1p, Sigmoid, Softplus


@frozen
class SigmoidBesideSoftplus(Sigmoid):
    """The slope of a softplus in the same kernel."""

    name = "sigmoid_beside_softplus"


@frozen
class Log1pOfFraction(Log1p):
    """log(1 + x) of 0 <= x <= 1."""

    name = "log1p_of_fraction"


def share_powers(kernel: LoopKernel) -> LoopKernel:
    """The kernel with such sigmoids and logarithms."""
    body = tuple(_with_what_is_known(kernel.body, s) for s in kernel.body)
    return replace(kernel, body=body) if body != kernel.body else kernel


def _with_what_is_known(body: tuple[Statement, ...], s: Statement) -> Statement:
    if isinstance(s.what, Sigmoid) and any(isinstance(other.what, Softplus) and other.args == s.args for other in body):
        return replace(s, what=SigmoidBesideSoftplus())
    if isinstance(s.what, Log1p) and _leads_to(body, s, (Exp, Neg, Abs)):
        return replace(s, what=Log1pOfFraction())
    return s


def _leads_to(body: tuple[Statement, ...], s: Statement, kinds: tuple[type[Op], ...]) -> bool:
    """Whether the first operand of `s` is made by an op of the first kind, the first operand of that by one of the second, and so on."""
    for kind in kinds:
        s = body[s.args[0]]
        if not isinstance(s.what, kind):
            return False
    return True
