"""How the blocks of a matrix product are numbered, of which threads take ranges.

Enters: a schedule, whose grid has strips of blocks one below another. Leaves: emitted code that finds those of a range. A range is carried out strip by
strip, whatever the numbers, since what is packed of B serves all blocks of a strip. As a rule strips follow each other, so threads divide columns. Where
they had better divide rows (`Schedule.rows_first`), the strips of a matrix of the batch, or of a part of k, take turns: then blocks beside each other
have numbers that follow each other.
"""

from __future__ import annotations

from graphcell.codegen.llvm.matmul_schedule import Schedule
from graphcell.codegen.llvm.text import FunctionBuilder, Val, i64


def strips(b: FunctionBuilder, plan: Schedule) -> tuple[Val, Val]:
    """The first strip of which blocks `begin` .. `end` of the function are to be carried out, and the one behind the last."""
    first, past = b.args["begin"], b.args["end"]
    if plan.grid[1] == 1:
        return first, past
    turns, blocks = _turns(plan)
    return b.mul(b.div(first, i64(blocks), signed=False), i64(turns)), b.mul(b.div(b.add(past, i64(blocks - 1)), i64(blocks), signed=False), i64(turns))


def blocks_of_strip(b: FunctionBuilder, plan: Schedule, strip: Val) -> tuple[Val, Val]:
    """The first block, counted down the strip, that is to be carried out, and the one behind the last."""
    turns, blocks = _turns(plan)
    group = b.div(strip, i64(turns), signed=False) if turns > 1 else strip
    before = b.mul(group, i64(blocks))
    top, bottom = b.binary("smax", b.sub(b.args["begin"], before), i64(0)), b.binary("smin", b.sub(b.args["end"], before), i64(blocks))
    if turns == 1:
        return top, bottom
    later = b.sub(i64(turns - 1), b.rem(strip, i64(turns), signed=False))
    return b.div(b.add(top, later), i64(turns), signed=False), b.div(b.add(bottom, later), i64(turns), signed=False)


def _turns(plan: Schedule) -> tuple[int, int]:
    """How many strips take turns, and their blocks."""
    across, down = plan.grid
    turns = across if plan.rows_first else 1
    return turns, turns * down


def balanced(b: FunctionBuilder, number: Val, count: int) -> Val:
    """The first, the last, the second, the last but one ...: where work grows from block to block, the first half of them is half of it."""
    if count < 3:
        return number
    half = b.div(number, i64(2), signed=False)
    return b.select(b.icmp("eq", b.and_(number, i64(1)), i64(0)), half, b.sub(i64(count - 1), half))
