"""Ranks and groups of one process, and the settings for several devices.

Recorded by `msrun --worker_num=1 --local_worker_num=1 --join=True tests/recording.py communication`: the real `init` needs a launcher.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np

from tests.recording import Program, caught, ramp


def before_init(ms: Any) -> Any:
    comm = ms.communication
    return [
        [comm.GlobalComm.BACKEND, comm.GlobalComm.WORLD_COMM_GROUP, comm.GlobalComm.INITED, comm.GlobalComm.CHECK_ENVS],
        [comm.HCCL_WORLD_COMM_GROUP, comm.NCCL_WORLD_COMM_GROUP, comm.MCCL_WORLD_COMM_GROUP],
        [comm.get_rank(), comm.get_group_size(), comm.get_local_rank(), comm.get_local_rank_size(), comm.get_rank("x")],
        [caught(lambda: comm.get_rank(3)), caught(lambda: comm.get_group_size(None)), caught(lambda: comm.create_group("g", [0]))],
        [caught(comm.get_process_group_ranks), caught(comm.get_comm_name), caught(lambda: comm.destroy_group("g"))],
        [caught(lambda: comm.get_world_rank_from_group_rank("g", 0)), caught(lambda: comm.get_group_rank_from_world_rank(0, "g"))],
        [caught(lambda: comm.create_group(1, [0])), caught(lambda: comm.destroy_group(1))],
    ]


def wrong_backends(ms: Any) -> Any:
    """And `release`. The last program: after either MindSpore looks for other devices."""
    return [ms.communication.release(), ms.communication.get_rank(), caught(lambda: ms.communication.init("abc")), caught(lambda: ms.communication.init(3)), caught(lambda: ms.communication.init("hccl")), caught(lambda: ms.communication.init("nccl"))]


def after_init(ms: Any) -> Any:
    from_management = ms.communication.management
    comm = ms.communication
    return [
        [comm.init(), comm.init("mccl"), from_management.get_rank is comm.get_rank],
        [comm.GlobalComm.BACKEND, comm.GlobalComm.WORLD_COMM_GROUP, comm.GlobalComm.INITED, comm.GlobalComm.CHECK_ENVS],
        [comm.get_rank(), comm.get_group_size(), comm.get_local_rank(), comm.get_comm_name("mccl_world_group"), comm.get_process_group_ranks()],
        [caught(lambda: comm.get_rank("x")), caught(lambda: comm.get_group_size("x")), caught(lambda: comm.get_process_group_ranks("x"))],
    ]


def groups(ms: Any) -> Any:
    comm = ms.communication
    comm.init()
    return [
        [comm.create_group("g", [0]), comm.get_rank("g"), comm.get_group_size("g"), comm.get_process_group_ranks("g"), comm.get_local_rank("g")],
        [comm.create_group("g", [0]), comm.create_group("mccl_world_group", [0])],
        [caught(lambda: comm.create_group("g", [0, 1])), caught(lambda: comm.create_group("g", [1])), caught(lambda: comm.create_group("h", []))],
        [caught(lambda: comm.create_group("k", ["a"])), caught(lambda: comm.create_group("k", [0, 0]))],
        [comm.get_world_rank_from_group_rank("g", 0), comm.get_group_rank_from_world_rank(0, "g")],
        [caught(lambda: comm.get_world_rank_from_group_rank("g", 1)), caught(lambda: comm.get_world_rank_from_group_rank("g", "x"))],
        [caught(lambda: comm.get_world_rank_from_group_rank("z", 0)), caught(lambda: comm.get_world_rank_from_group_rank(1, 0))],
        [caught(lambda: comm.get_group_rank_from_world_rank(3, "g")), caught(lambda: comm.get_group_rank_from_world_rank("x", "g"))],
        [comm.destroy_group("g"), caught(lambda: comm.destroy_group("g")), caught(lambda: comm.destroy_group("mccl_world_group"))],
        [caught(lambda: comm.get_rank("g"))],
    ]


def data_parallel(ms: Any) -> Any:
    """What a data-parallel script does, in one process."""
    comm = ms.communication
    comm.init()
    ms.set_auto_parallel_context(parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True, device_num=comm.get_group_size())
    try:
        net = ms.nn.Dense(3, 2, weight_init=ms.Tensor(ramp((2, 3))), bias_init=ms.Tensor(ramp((2,))))
        optimizer = ms.nn.Momentum(net.trainable_params(), 0.1, 0.9)
        step = ms.nn.TrainOneStepCell(ms.nn.WithLossCell(net, ms.nn.MSELoss()), optimizer)
        x, y = ms.Tensor(ramp((4, 3), 1.0)), ms.Tensor(ramp((4, 2), 2.0))
        losses = [step(x, y) for _ in range(3)]
        data = ms.dataset.NumpySlicesDataset(np.arange(6), shuffle=False, num_shards=comm.get_group_size(), shard_id=comm.get_rank())
        model = ms.train.Model(net, ms.nn.MSELoss(), optimizer)
        kinds = [step.parallel_mode, step.reducer_flag, type(step.grad_reducer).__name__, model._parallel_mode, model._device_number]
        return [losses, net.weight.value(), kinds, [int(row[0].asnumpy()) for row in data.create_tuple_iterator()]]
    finally:
        ms.reset_auto_parallel_context()


def collectives(ms: Any) -> Any:
    ms.communication.init()
    ops, x = ms.ops, ms.Tensor(ramp((3, 2)))
    return [
        [ops.AllReduce()(x), ops.AllGather()(x), ops.Broadcast(0)((x,))],
        [ops.ReduceOp.SUM, ops.ReduceOp.MAX, ops.ReduceOp.MIN, ops.ReduceOp.PROD],
        [caught(lambda: ops.AllReduce(3)), caught(lambda: ops.AllReduce(ops.ReduceOp.SUM, 3)), caught(lambda: ops.Broadcast("x"))],
    ]


# -- settings ------------------------------------------------------------------------------------------------------------------
KEYS = [
    "device_num", "global_rank", "gradients_mean", "gradient_fp32_sync", "loss_repeated_mean", "pipeline_stages", "auto_pipeline",
    "pipeline_result_broadcast", "pipeline_interleave", "pipeline_scheduler", "parallel_mode", "search_mode", "auto_parallel_search_mode",
    "parameter_broadcast", "strategy_ckpt_load_file", "strategy_ckpt_save_file", "full_batch", "dataset_strategy", "enable_parallel_optimizer",
    "force_fp32_communication", "grad_accumulation_step", "all_reduce_fusion_config", "communi_parallel_mode", "optimizer_weight_shard_size",
    "optimizer_weight_shard_aggregated_save", "sharding_propagation", "enable_alltoall", "comm_fusion", "strategy_ckpt_config", "full_batch_is_set",
    "dump_local_norm", "dump_local_norm_path", "dump_device_local_norm", "auto_parallel_new_interface", "init_param_in_compile",
]  # fmt: skip

SETTINGS: list[dict[str, Any]] = [
    {"device_num": 8, "global_rank": 3},
    {"gradients_mean": True, "gradient_fp32_sync": False, "loss_repeated_mean": False, "parameter_broadcast": True},
    {"parallel_mode": "semi_auto_parallel"},
    {"parallel_mode": "auto_parallel", "search_mode": "dynamic_programming"},
    {"auto_parallel_search_mode": "sharding_propagation"},
    {"pipeline_stages": 2, "pipeline_result_broadcast": True, "pipeline_config": {"pipeline_interleave": True, "pipeline_scheduler": "gpipe"}},
    {"enable_parallel_optimizer": True, "force_fp32_communication": True, "enable_alltoall": True, "sharding_propagation": True},
    {"optimizer_weight_shard_size": 2, "optimizer_weight_shard_aggregated_save": True, "all_reduce_fusion_config": [3, 5]},
    {"strategy_ckpt_config": {"load_file": "a", "save_file": "b", "only_trainable_params": False}},
    {"strategy_ckpt_load_file": "a.ckpt"},
    {"dump_local_norm": True, "dump_local_norm_path": "here", "dump_device_local_norm": True, "init_param_in_compile": False},
    {"communi_parallel_mode": "no_group_parallel", "auto_pipeline": True, "auto_parallel_new_interface": True},
    {"optimizer_weight_shard_size": 0},
    {"comm_fusion": {"openstate": False, "allreduce": {"mode": "size", "config": 32}}},
    {"dataset_strategy": "data_parallel"},
    {"dataset_strategy": "full_batch"},
    {"dataset_strategy": ((1, 2), (1, 2))},
]

KEPT = {"comm_fusion", "dataset_strategy"}
"""MindSpore's `reset_auto_parallel_context` leaves these; so their programs are the last."""

WRONG: list[dict[str, Any]] = [
    {"foo": 1}, {"device_num": 0}, {"device_num": "8"}, {"global_rank": -1}, {"global_rank": 5000}, {"gradients_mean": 1}, {"loss_repeated_mean": None},
    {"pipeline_stages": 0}, {"pipeline_stages": True}, {"parallel_mode": "zz"}, {"parallel_mode": 1}, {"search_mode": "zz"}, {"parameter_broadcast": 1},
    {"strategy_ckpt_load_file": 3}, {"full_batch": 1}, {"dataset_strategy": "zz"}, {"dataset_strategy": [1]}, {"enable_parallel_optimizer": 0},
    {"parallel_optimizer_config": {"a": 1}}, {"parallel_optimizer_config": {"optimizer_level": "x"}}, {"pipeline_config": {"x": 1}},
    {"pipeline_config": {"pipeline_interleave": 3}}, {"grad_accumulation_step": 0}, {"grad_accumulation_step": 2}, {"all_reduce_fusion_config": ["a"]},
    {"communi_parallel_mode": "zz"}, {"optimizer_weight_shard_size": True}, {"enable_alltoall": 1}, {"comm_fusion": {"a": 1}},
    {"comm_fusion": {"allreduce": {"mode": "q", "config": 1}}}, {"comm_fusion": {"allreduce": {"mode": "size"}}}, {"strategy_ckpt_config": {"q": 1}},
    {"dump_local_norm_path": 3}, {"pipeline_interleave": True}, {"full_batch_is_set": True},
]  # fmt: skip


def read(ms: Any) -> dict[str, Any]:
    return {key: copy.deepcopy(ms.get_auto_parallel_context(key)) for key in KEYS}


def settings(given: dict[str, Any], ms: Any) -> Any:
    """What differs from the start, and whether `reset_auto_parallel_context` leaves nothing."""
    ms.reset_auto_parallel_context()
    before = read(ms)
    ms.set_auto_parallel_context(**given)
    after = {key: x for key, x in read(ms).items() if x != before[key]}
    ms.reset_auto_parallel_context()
    return [after, bool(given.keys() & KEPT) or read(ms) == before]


def start(ms: Any) -> Any:
    ms.reset_auto_parallel_context()
    mode = ms.context.ParallelMode
    return [read(ms), mode.MODE_LIST, [mode.STAND_ALONE, mode.DATA_PARALLEL, mode.HYBRID_PARALLEL, mode.SEMI_AUTO_PARALLEL, mode.AUTO_PARALLEL]]


def wrong(ms: Any) -> Any:
    found = [caught(lambda given=given: ms.set_auto_parallel_context(**given)) for given in WRONG]
    ms.reset_auto_parallel_context()
    return [found, caught(lambda: ms.get_auto_parallel_context("foo")), caught(lambda: ms.get_auto_parallel_context(3))]


def programs() -> dict[str, Program]:
    plain = (before_init, after_init, groups, collectives, data_parallel, start, wrong)
    return {
        **{program.__name__: program for program in plain},
        **{f"settings {given}": partial(settings, given) for given in SETTINGS},
        "wrong_backends": wrong_backends,
    }
