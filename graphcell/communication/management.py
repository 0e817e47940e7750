"""Processes that compute together: ranks and groups of them. Here a program is one process, whose rank is 0 in a world of size 1.

Enters: names of groups, lists of ranks. Leaves: the numbers that a program asks for. Refuses: unknown groups, other ranks than 0, and to
start (`init`) where a launcher's environment variables say that this is one of several processes.
"""

from __future__ import annotations

import os
from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError, ExecutionError, MissingKeyError, NotImplementedFeatureError

HCCL_WORLD_COMM_GROUP = "hccl_world_group"
NCCL_WORLD_COMM_GROUP = "nccl_world_group"
MCCL_WORLD_COMM_GROUP = "mccl_world_group"

_BACKENDS = ("hccl", "nccl", "mccl")
_WORLDS = (HCCL_WORLD_COMM_GROUP, NCCL_WORLD_COMM_GROUP, MCCL_WORLD_COMM_GROUP)
_SIZES = ("RANK_SIZE", "MS_WORKER_NUM", "OMPI_COMM_WORLD_SIZE")
"""Environment variables in which launchers say how many processes there are."""


class GlobalComm:
    """What is known of all processes.

    `BACKEND`: the library that they talk by, 'mccl' after `init`. `WORLD_COMM_GROUP`: the group of all. `INITED`: whether `init` was called.
    `CHECK_ENVS`: kept for MindSpore's sake.
    """

    BACKEND = "hccl"
    WORLD_COMM_GROUP = HCCL_WORLD_COMM_GROUP
    INITED = False
    CHECK_ENVS = True


_groups: set[str] = set()
"""The groups of `create_group`, each of which is rank 0 alone."""


def init(backend_name: str | None = None) -> None:
    """Starts communication between processes: of one process there is nothing to start, and no launcher is needed.

    Args:
        backend_name: 'mccl', the only one on a CPU; or None.

    Raises:
        TypeError: backend_name is no str. RuntimeError: it is another library's name.
        NotImplementedError: RANK_SIZE, MS_WORKER_NUM or OMPI_COMM_WORLD_SIZE of the environment say that there are several processes.
    """
    if backend_name is not None and not isinstance(backend_name, str):
        raise ArgumentTypeError(f"For 'init', the argument 'backend_name' must be a string, but got the type : {type(backend_name)}")
    if backend_name is not None and backend_name not in _BACKENDS:
        raise ExecutionError(f"For 'init', the argument 'backend_name' must be one of 'hccl', 'nccl' and 'mccl', but got 'backend_name' : {backend_name}")
    if backend_name not in (None, "mccl"):
        raise ExecutionError(f"For 'init', the argument 'backend_name' should be 'mccl' to init 'CPU', but got '{backend_name}'.")
    _require_one_process()
    GlobalComm.BACKEND, GlobalComm.WORLD_COMM_GROUP, GlobalComm.INITED = "mccl", MCCL_WORLD_COMM_GROUP, True


def _require_one_process() -> None:
    for variable in _SIZES:
        if (size := _environment(variable, 1)) > 1:
            raise NotImplementedFeatureError(
                f"communication.init: {variable}={size} says that this is one of {size} processes, and graphcell computes in one",
                hint=f"start the program without a launcher, or unset {variable}",
            )


def _environment(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable, "").strip()
    return int(text) if text.isdigit() else otherwise


def release() -> None:
    """Forgets the groups of `create_group`."""
    _groups.clear()


def get_rank(group: str = GlobalComm.WORLD_COMM_GROUP) -> int:
    """The rank of this process in a group: 0. Before `init`, the environment's RANK_ID: copies of a program may divide its data by it.

    Raises:
        TypeError: group is no str. RuntimeError: there is no such group (before `init`, any name will do).
    """
    _check_group("get_rank", group)
    return 0 if GlobalComm.INITED else _environment("RANK_ID", 0)


def get_local_rank(group: str = GlobalComm.WORLD_COMM_GROUP) -> int:
    """The rank of this process among those of a group on this machine: 0. Raises as `get_rank` does."""
    _check_group("get_local_rank", group)
    return 0


def get_group_size(group: str = GlobalComm.WORLD_COMM_GROUP) -> int:
    """How many processes are in a group: 1. Before `init`, the environment's RANK_SIZE. Raises as `get_rank` does."""
    _check_group("get_group_size", group)
    return 1 if GlobalComm.INITED else _environment("RANK_SIZE", 1)


def get_local_rank_size(group: str = GlobalComm.WORLD_COMM_GROUP) -> int:
    """How many processes of a group are on this machine: 1. Raises as `get_rank` does."""
    _check_group("get_local_rank_size", group)
    return 1


def get_world_rank_from_group_rank(group: str, group_rank_id: int) -> int:
    """The rank in the world of a process known by its rank in a group: 0.

    Raises:
        TypeError: group is no str, group_rank_id no int. RuntimeError: `init` was not called, or there is no such group or rank.
    """
    _check_int("get_world_rank_from_group_rank", "group_rank_id", group_rank_id, group)
    if group_rank_id != 0:
        raise ExecutionError(f"Group {group} doesn't contain the group rank {group_rank_id}")
    return 0


def get_group_rank_from_world_rank(world_rank_id: int, group: str) -> int:
    """The rank in a group of a process known by its rank in the world: 0.

    Raises:
        TypeError: world_rank_id is no int, group no str. RuntimeError: `init` was not called, or there is no such group or rank.
    """
    _check_int("get_group_rank_from_world_rank", "world_rank_id", world_rank_id, group)
    if world_rank_id != 0:
        raise ExecutionError(f"Group {group} doesn't contain the global rank {world_rank_id}")
    return 0


def create_group(group: str, rank_ids: list[int], options: Any = None) -> None:
    """Makes a group of processes known by a name.

    Args:
        group: its name; a name that exists already may be given with the same ranks again.
        rank_ids: the ranks of its processes in the world, which can only be [0].
        options: of the library; kept for MindSpore's sake.

    Raises:
        TypeError: group is no str, rank_ids no list of int. RuntimeError: `init` was not called.
        ValueError: rank_ids is empty, has doubles, or the group exists with others. NotImplementedError: a rank other than 0.
    """
    _check_name("create_group", group)
    _check_started()
    if not isinstance(rank_ids, list) or not all(isinstance(rank, int) for rank in rank_ids):
        raise ArgumentTypeError(f"For 'create_group', the argument 'rank_ids' must be type of list of int, but got 'rank_ids' : {rank_ids!r}.")
    if group in _groups and rank_ids != [0]:
        raise ArgumentValueError(f"The group {group} has been created, the rank_list is [0], but current rank_list for the group is {rank_ids}")
    if not rank_ids:
        raise ArgumentValueError("For 'create_group', the argument 'rank_ids' size should be greater than 1, but got 'rank_ids' size : 0.")
    if len(set(rank_ids)) < len(rank_ids):
        raise ArgumentValueError("For 'create_group', the values of the argument 'rank_ids' must not repeat.")
    if rank_ids != [0]:
        raise NotImplementedFeatureError(f"create_group: the group {group!r} of the ranks {rank_ids} needs several processes; there is rank 0 alone")
    if group not in _WORLDS:
        _groups.add(group)


def destroy_group(group: str) -> None:
    """Forgets a group of `create_group`.

    Raises:
        TypeError: group is no str. RuntimeError: `init` was not called. ValueError: it is the world. KeyError: there is no such group.
    """
    _check_name("destroy_group", group)
    _check_started()
    if group == GlobalComm.WORLD_COMM_GROUP:
        raise ArgumentValueError("The world_group does not support destruction.")
    if group not in _groups:
        raise MissingKeyError(group)
    _groups.remove(group)


def get_comm_name(group: str = GlobalComm.WORLD_COMM_GROUP) -> str:
    """The library's own name of a group: '' on a CPU. Raises as `get_process_group_ranks` does."""
    get_process_group_ranks(group)
    return ""


def get_process_group_ranks(group: str = GlobalComm.WORLD_COMM_GROUP) -> list[int]:
    """The ranks in the world of the processes of a group: [0].

    Raises:
        TypeError: group is no str. RuntimeError: `init` was not called, or there is no such group.
    """
    _check_name("get_process_group_ranks", group)
    _check_started()
    _check_group("get_process_group_ranks", group)
    return [0]


# -- checks --------------------------------------------------------------------------------------------------------------------
def _check_name(function: str, group: Any) -> None:
    if not isinstance(group, str):
        raise ArgumentTypeError(f"For '{function}', the argument 'group' must be type of string, but got 'group' type : {type(group)}.")


def _check_started() -> None:
    if not GlobalComm.INITED:
        raise ExecutionError(
            "Distributed Communication has not been inited.You can't invoke this interface yet. Please call `init()` method first."
        )


def _check_group(function: str, group: Any) -> None:
    _check_name(function, group)
    if GlobalComm.INITED and group not in _groups and group not in _WORLDS:
        raise ExecutionError(f"The group {group} does not exist.")


def _check_int(function: str, name: str, value: Any, group: Any) -> None:
    _check_name(function, group)
    if not isinstance(value, int):
        raise ArgumentTypeError(f"For '{function}', the argument '{name}' must be type of int, but got '{name}' type : {type(value)}.")
    _check_started()
    _check_group(function, group)
