"""Primitive classes of collective communication, in the group of the one process: they check, and give what came."""

from __future__ import annotations

from typing import Any

from graphcell.communication.management import GlobalComm, get_group_size
from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.ops.functional.creation import another
from graphcell.ops.primitive import Configured
from graphcell.ops.primitives.checks import check_choice, check_tensors
from graphcell.tensor import Tensor

__all__ = ["AllGather", "AllReduce", "Broadcast", "ReduceOp", "ReduceScatter"]


class ReduceOp:
    """How the values of several processes are combined."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    PROD = "prod"


class _Collective(Configured):
    """An operation of all processes of a group, of which there is this one.

    Raises:
        TypeError: group is no str, or an input no Tensor. RuntimeError: there is no such group.
    """

    def __init__(self, group: Any, **settings: Any):
        name = type(self).__name__
        if not isinstance(group, str):
            raise ArgumentTypeError(f"For '{name}', the type of 'group' should be 'str', but got type '{type(group).__name__}'.")
        super().__init__(group=group, rank_size=get_group_size(group), **settings)

    def __call__(self, input_x: Any) -> Tensor:
        check_tensors(type(self).__name__, input_x=input_x)
        return another(input_x)


class AllReduce(_Collective):
    """The sum (or maximum, minimum, product) of the Tensors of all processes.

    Args:
        op: `ReduceOp.SUM`, MAX, MIN or PROD. group: the processes; by default all.

    Raises:
        TypeError: op is no str. ValueError: op is none of these.
    """

    def __init__(self, op: str = ReduceOp.SUM, group: str = GlobalComm.WORLD_COMM_GROUP):
        super().__init__(group, op=_checked(type(self).__name__, op))


class ReduceScatter(_Collective):
    """The sum (or …) of the Tensors of all processes, of which each process gets its part of the rows; see `AllReduce`."""

    def __init__(self, op: str = ReduceOp.SUM, group: str = GlobalComm.WORLD_COMM_GROUP):
        super().__init__(group, op=_checked(type(self).__name__, op))


class AllGather(_Collective):
    """The Tensors of all processes, one after the other along the first dimension."""

    def __init__(self, group: str = GlobalComm.WORLD_COMM_GROUP):
        super().__init__(group)


class Broadcast(_Collective):
    """The Tensors of the process `root_rank`, as a tuple: called with a tuple of Tensors.

    Raises:
        TypeError: root_rank is no int, or the input no tuple of Tensors. ValueError: root_rank is not 0.
    """

    def __init__(self, root_rank: int, group: str = GlobalComm.WORLD_COMM_GROUP):
        if not isinstance(root_rank, int) or isinstance(root_rank, bool):
            raise ArgumentTypeError(f"For 'Broadcast', the type of 'root_rank' should be 'int', but got type '{type(root_rank).__name__}'.")
        if root_rank != 0:
            raise ArgumentValueError(f"For 'Broadcast', the 'root_rank' must be 0, the only one, but got {root_rank}")
        super().__init__(group, root_rank=root_rank)

    def __call__(self, input_x: Any) -> Any:
        if not isinstance(input_x, tuple):
            raise ArgumentTypeError(f"For 'Broadcast', the input must be a tuple of Tensors, but got {type(input_x).__name__}")
        return tuple(super(Broadcast, self).__call__(x) for x in input_x)


def _checked(owner: str, op: Any) -> str:
    if not isinstance(op, str):
        raise ArgumentTypeError(f"For '{owner}', the type of 'op' should be 'str', but got type '{type(op).__name__}'.")
    return str(check_choice(owner, "op", op, "sum", "max", "min", "prod"))
