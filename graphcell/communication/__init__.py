"""`mindspore.communication`: which process of how many this is. It is rank 0 of 1."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from graphcell.communication.management import (
    HCCL_WORLD_COMM_GROUP,
    MCCL_WORLD_COMM_GROUP,
    NCCL_WORLD_COMM_GROUP,
    GlobalComm,
    create_group,
    destroy_group,
    get_comm_name,
    get_group_rank_from_world_rank,
    get_group_size,
    get_local_rank,
    get_local_rank_size,
    get_process_group_ranks,
    get_rank,
    get_world_rank_from_group_rank,
    init,
    release,
)  # fmt: skip
from graphcell.missing import getattr_of as _getattr_of

__all__ = [
    "HCCL_WORLD_COMM_GROUP", "MCCL_WORLD_COMM_GROUP", "NCCL_WORLD_COMM_GROUP", "GlobalComm", "create_group", "destroy_group", "get_comm_name",
    "get_group_rank_from_world_rank", "get_group_size", "get_local_rank", "get_local_rank_size", "get_process_group_ranks", "get_rank",
    "get_world_rank_from_group_rank", "init", "release",
]  # fmt: skip

if not _TYPE_CHECKING:
    __getattr__ = _getattr_of(__name__)
