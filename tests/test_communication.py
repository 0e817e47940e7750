"""Ranks and groups of the one process, and the settings for several devices: as MindSpore has them in a world of one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, communication, nn
from graphcell.communication import GlobalComm, management
from tests.recording import check, load


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if nothing had been initialised, by nobody's launcher."""
    for variable in ("RANK_ID", "RANK_SIZE", "MS_WORKER_NUM", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    for name, value in (("BACKEND", "hccl"), ("WORLD_COMM_GROUP", "hccl_world_group"), ("INITED", False)):
        monkeypatch.setattr(GlobalComm, name, value)
    monkeypatch.setattr(management, "_groups", set())
    yield
    ms.reset_auto_parallel_context()


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"])
@pytest.mark.parametrize("key", list(load("communication")))
def test_as_mindspore(key: str, mode: int) -> None:
    check("communication", key, mode)


@pytest.mark.parametrize("variable", ["RANK_SIZE", "MS_WORKER_NUM", "OMPI_COMM_WORLD_SIZE"])
def test_init_among_several_processes(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    communication.init()
    monkeypatch.setenv(variable, "8")
    with pytest.raises(RuntimeError, match=f"{variable}=8 says that this is one of 8 processes"):
        communication.init()


def test_ranks_of_the_environment_divide_data_without_init(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in MindSpore, which gives 3, 8, 0 and 1 here."""
    monkeypatch.setenv("RANK_ID", "3")
    monkeypatch.setenv("RANK_SIZE", "8")
    assert [communication.get_rank(), communication.get_group_size(), communication.get_local_rank(), communication.get_local_rank_size()] == [3, 8, 0, 1]
    monkeypatch.setenv("RANK_SIZE", "1")
    communication.init()
    assert [communication.get_rank(), communication.get_group_size(), communication.get_local_rank_size()] == [0, 1, 1]


def test_a_group_of_other_ranks() -> None:
    communication.init()
    with pytest.raises(NotImplementedError, match=r"the group 'g' of the ranks \[0, 1\] needs several processes; there is rank 0 alone"):
        communication.create_group("g", [0, 1])


@pytest.mark.parametrize("parallel_mode", ms.ParallelMode.MODE_LIST)
def test_every_mode_computes_on_one_device(parallel_mode: str) -> None:
    ms.set_auto_parallel_context(parallel_mode=parallel_mode)
    net = nn.Dense(3, 1)
    before = net.weight.asnumpy()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
    assert step.parallel_mode == parallel_mode
    assert np.isfinite(step(Tensor([[1.0, 2.0, 3.0]]), Tensor([[4.0]])).asnumpy()) and (net.weight.asnumpy() != before).any()


def test_a_training_step_for_several_devices_is_refused() -> None:
    net = nn.Dense(3, 1)
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    ms.set_auto_parallel_context(device_num=8)  # stand-alone: it is only a number
    nn.TrainOneStepCell(net, optimizer)
    ms.set_auto_parallel_context(parallel_mode="data_parallel")
    net(Tensor([[1.0, 2.0, 3.0]]))
    for make in (lambda: nn.TrainOneStepCell(net, optimizer), lambda: ms.Model(net, nn.MSELoss(), optimizer)):
        with pytest.raises(RuntimeError, match=r"parallel_mode='data_parallel' with device_num=8 needs 8 devices, and there is one"):
            make()


def test_all_values_are_checked_before_one_is_set() -> None:
    with pytest.raises(ValueError):
        ms.set_auto_parallel_context(gradients_mean=True, device_num=0)
    assert ms.get_auto_parallel_context("gradients_mean") is False
    ms.get_auto_parallel_context("comm_fusion")["openstate"] = False
    assert ms.get_auto_parallel_context("comm_fusion")["openstate"] is True


def test_under_the_name_mindspore(tmp_path: Path) -> None:
    program = """
import mindspore as ms
from mindspore import context
from mindspore.context import ParallelMode
from mindspore.communication import init, get_rank
from mindspore.communication.management import get_group_size
init()
context.set_auto_parallel_context(parallel_mode=ParallelMode.DATA_PARALLEL, gradients_mean=True, device_num=get_group_size())
print(get_rank(), ms.communication.get_local_rank_size(), context.get_auto_parallel_context("parallel_mode"))
"""
    path = tmp_path / "script.py"
    path.write_text(program)
    done = subprocess.run([sys.executable, "-m", "graphcell", "run", str(path)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "0 1 data_parallel\n", done.stderr
