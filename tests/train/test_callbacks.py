"""Callbacks and `Model` where MindSpore gives no numbers to compare with: errors on the way, files, signals, chosen differences."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, nn, train
from graphcell.dataset import GeneratorDataset
from graphcell.train import LambdaCallback, LossMonitor, Model, ModelCheckpoint
from tests.programs.training import model, rows
from tests.recording import ramp


@pytest.fixture(params=[ms.GRAPH_MODE, ms.PYNATIVE_MODE], ids=["graph", "pynative"], autouse=True)
def mode(request: pytest.FixtureRequest) -> int:
    ms.set_context(mode=request.param)
    return int(request.param)


class Batches:
    """A dataset of a user's own: the least that `Model` needs, and it notes when its iterator is released."""

    def __init__(self, *batches: Any):
        self.batches, self.released = batches, 0

    def get_dataset_size(self) -> int:
        return len(self.batches)

    def create_tuple_iterator(self, num_epochs: int = -1) -> Any:
        dataset = self

        class Epochs:
            def __iter__(self) -> Iterator[Any]:
                return iter(dataset.batches)

            def release(self) -> None:
                dataset.released += 1

        return Epochs()


def batch(label: int = 0) -> tuple[Tensor, Tensor]:
    return Tensor(ramp((2, 4))), Tensor([label, 1])


# -- datasets and errors ---------------------------------------------------------------------------------------------------
def test_an_iterator_is_released_however_the_run_ends() -> None:
    data, m = Batches(batch(), batch()), model(ms, metrics={"acc"})
    m.train(2, data)
    m.eval(data)
    m.train(2, data, LambdaCallback(on_train_step_end=lambda context: context.request_stop()))
    with pytest.raises(ZeroDivisionError):
        m.train(1, data, LambdaCallback(on_train_step_end=lambda context: 1 // 0))
    assert data.released == 4


def test_an_error_in_a_dataset_reaches_the_user() -> None:
    def source() -> Iterator[Any]:
        yield ramp((4,)), np.int32(0)
        raise OSError("the disk is gone")

    with pytest.raises(RuntimeError, match="the disk is gone"):
        model(ms).train(1, GeneratorDataset(source, ["x", "y"]).batch(1))


def test_an_error_ends_the_contexts_of_callbacks() -> None:
    seen: list[Any] = []

    class Entered(train.Callback):
        def __enter__(self) -> Any:
            seen.append("in")
            return self

        def __exit__(self, *err: object) -> None:
            seen.append(err[0])

        def on_train_epoch_end(self, run_context: train.RunContext) -> None:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        model(ms).train(1, rows(ms), [Entered(), Entered()])
    assert seen == ["in", "in", KeyError, KeyError]


def test_an_error_of_the_network_reaches_the_user() -> None:
    with pytest.raises(ValueError, match=r"\(2, 5\) does not fit weight of shape \(3, 4\)"):
        model(ms).train(1, Batches((Tensor(ramp((2, 5))), Tensor([0, 1]))))


def test_a_loss_that_is_no_number_ends_the_training() -> None:
    bad = Batches(batch(), (Tensor(np.full((2, 4), np.nan, np.float32)), Tensor([0, 1])))
    with pytest.raises(ValueError, match="In epoch: 1 step: 2, loss is NAN or INF"):
        model(ms).train(1, bad, LossMonitor())


def test_arguments_are_checked() -> None:
    net, loss = nn.Dense(4, 3), nn.CrossEntropyLoss()
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    for wrong, error in (
        (lambda: Model(3), TypeError), (lambda: Model(net, loss, optimizer, unknown=3), ValueError), (lambda: Model(net, loss, amp_level="O2"), ValueError),
        (lambda: Model(net, loss, loss_scale_manager=3), ValueError), (lambda: Model(net, metrics={"acc"}), ValueError),
        (lambda: Model(net, loss, metrics={"nothing"}), KeyError), (lambda: Model(net, loss, metrics=["acc"]), TypeError),
        (lambda: Model(net, loss, metrics={"acc"}, eval_network=net, eval_indexes=[1]), ValueError), (lambda: Model(net, 3), TypeError),
    ):  # fmt: skip
        with pytest.raises(error):
            wrong()
    m = model(ms, metrics={"acc"})
    for call, error in (
        (lambda: m.train(0, rows(ms)), ValueError), (lambda: m.train(1.5, rows(ms)), TypeError), (lambda: m.train(1, rows(ms), initial_epoch=1), ValueError),
        (lambda: m.train(1, rows(ms), initial_epoch=-1), ValueError), (lambda: m.train(1, rows(ms), dataset_sink_mode=1), TypeError),
        (lambda: m.train(1, rows(ms), sink_size=0), ValueError), (lambda: m.train(1, rows(ms), callbacks=[3]), TypeError),
        (lambda: m.train(1, Batches()), ValueError), (lambda: m.train(1, Batches((Tensor([1.0]),))), ValueError),
        (lambda: m.fit(1, rows(ms), valid_frequency="often"), TypeError), (lambda: m.fit(1, rows(ms), rows(ms), 0), ValueError), (lambda: model(ms).fit(1, rows(ms), rows(ms)), ValueError),
        (lambda: model(ms).eval(rows(ms)), ValueError), (lambda: m.predict([3]), TypeError), (lambda: m.predict(Tensor(np.zeros((0, 4)))), ValueError),
        (lambda: m.predict(Tensor([1.0]), backend="other"), ValueError), (lambda: m.infer_predict_layout(), RuntimeError),
        (lambda: m.infer_train_layout(rows(ms)), RuntimeError), (lambda: m.build(), ValueError), (lambda: model(ms).build(rows(ms), rows(ms)), RuntimeError),
    ):  # fmt: skip
        with pytest.raises(error):
            call()


def test_what_is_no_dataset_is_named() -> None:
    m = model(ms, metrics={"acc"})
    for call, name in ((lambda: m.train(1, [(1, 2)]), "train_dataset"), (lambda: m.fit(1, rows(ms), ramp((2, 2))), "valid_dataset"), (lambda: m.eval(None), "valid_dataset")):
        with pytest.raises(AttributeError, match=f"the '{name}' should be a dataset"):
            call()


def test_an_epoch_without_batches_warns() -> None:
    """MindSpore trains nothing, and says so in its log."""

    class Once:
        def __init__(self) -> None:
            self.rows = iter([(ramp((4,)), np.int32(0))] * 3)

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            return next(self.rows)

    with pytest.warns(UserWarning, match="In epoch 1 the dataset gave no batch"):
        model(ms).train(1, GeneratorDataset(Once(), ["x", "y"]).batch(1))


def test_a_generator_trains_for_several_epochs() -> None:
    steps: list[int] = []
    data = GeneratorDataset(((ramp((4,)), np.int32(k % 3)) for k in range(6)), ["x", "y"]).batch(2)
    model(ms).train(2, data, LambdaCallback(on_train_step_end=lambda c: steps.append(c.original_args().cur_step_num)))
    assert steps == [1, 2, 3, 4, 5, 6]


def test_callbacks_of_the_older_kind() -> None:
    class Older(train.Callback):
        steps = 0

        def step_end(self, run_context: train.RunContext) -> None:
            self.steps += 1

    older, m = Older(), model(ms, metrics={"acc"})
    m.train(1, rows(ms), (older,))
    m.eval(rows(ms), older)
    assert older.steps == 6
    with pytest.raises(ValueError, match="step_end"):
        m.fit(1, rows(ms), callbacks=older)


def test_a_loop_of_ones_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Programs call callbacks by the older names, with parameters of their own."""
    step = model(ms).train_network
    run = train.callback._InternalCallbackParam()
    run.train_network, run.batch_num, run.cur_epoch_num, run.cur_step_num = step, 3, 1, 0
    with train.callback._CallbackManager([LossMonitor(2), ModelCheckpoint(directory=str(tmp_path))]) as callbacks:
        context = train.RunContext(run)
        callbacks.begin(context)
        for x, y in rows(ms):
            run.net_outputs = step(x, y)
            run.cur_step_num += 1
            callbacks.step_end(context)
        callbacks.end(context)
    assert capsys.readouterr().out.startswith("epoch: 1 step: 2, loss is ")
    assert sorted(p.name for p in tmp_path.glob("*.ckpt")) == ["CKP-1_1.ckpt", "CKP-1_2.ckpt", "CKP-1_3.ckpt"]


def test_what_a_run_does_not_have() -> None:
    context = train.RunContext(train.callback._InternalCallbackParam(cur_epoch_num=1))
    assert context.original_args().cur_epoch_num == 1 and not hasattr(context.original_args(), "metrics")
    with pytest.raises(AttributeError, match="there is no 'metrics' at this point of the run; there are cur_epoch_num"):
        _ = context.original_args().metrics
    with pytest.raises(TypeError):
        train.RunContext(3)  # type: ignore[arg-type]


# -- what runs ---------------------------------------------------------------------------------------------------------------
def test_a_network_is_compiled_once(mode: int) -> None:
    m = model(ms, metrics={"acc"})
    m.build(rows(ms), rows(ms))
    before = [p.asnumpy().copy() for p in m.train_network.get_parameters()]
    m.fit(3, rows(ms), rows(ms))
    assert not np.array_equal(before[0], m.predict_network.weight.asnumpy())
    if mode == ms.GRAPH_MODE:
        for network in (m.train_network, m.eval_network):
            assert network._compiled.explain().startswith(f"{type(network).__name__}: 1 compiled graphs\n")


def test_training_and_evaluation_switch_the_network() -> None:
    class Noting(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.dense, self.drop = nn.Dense(4, 3), nn.Dropout(p=0.5)

        def construct(self, x: Tensor) -> Tensor:
            return self.drop(self.dense(x))

    net = Noting()
    m = Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.0), metrics={"loss"})
    m.train(1, rows(ms))
    assert net.training
    assert m.eval(rows(ms)) == m.eval(rows(ms)) and not net.training
    x = Tensor(ramp((3, 4)))
    np.testing.assert_allclose(m.predict(x).asnumpy(), net.dense(x).asnumpy(), rtol=1e-6)
    m.fit(1, rows(ms), rows(ms))
    assert not net.training


def test_evaluations_in_between() -> None:
    """By this model or another one; the network may be a training step already, which is not part of the evaluation."""
    net, loss = nn.SequentialCell(nn.Dense(4, 3), nn.Dropout(p=0.5)), nn.CrossEntropyLoss()
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    direct, other = (Model(net, loss, optimizer, metrics={"loss"}) for _ in range(2))
    step = Model(
        nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer), eval_network=nn.WithEvalCell(net, loss), eval_indexes=[0, 1, 2], metrics={"loss"}
    )
    seen: list[bool] = []

    def look(context: train.RunContext) -> None:
        seen.append(net.training)

    for m, between in ((direct, direct), (direct, other), (step, step)):
        m.train(1, rows(ms), LambdaCallback(on_train_step_begin=lambda c, between=between: between.eval(rows(ms)), on_train_step_end=look))
        m.fit(2, rows(ms), rows(ms), callbacks=LambdaCallback(on_train_step_end=look))
    assert seen == [True] * 3 * 9


def test_an_evaluation_in_a_callback() -> None:
    class Evaluate(train.Callback):
        def __init__(self) -> None:
            self.results: list[Any] = []

        def on_train_epoch_end(self, run_context: train.RunContext) -> None:
            self.results.append(m.eval(rows(ms)))

    m, evaluate = model(ms, metrics={"loss"}), Evaluate()
    m.train(3, rows(ms), evaluate)
    assert len({r["loss"] for r in evaluate.results}) == 3


def test_eval_loss_is_the_mean_over_the_evaluation() -> None:
    """MindSpore takes the last batch's."""
    seen: list[Any] = []
    m = model(ms, metrics={"loss": train.Loss()})
    m.fit(1, rows(ms), rows(ms), callbacks=LambdaCallback(on_train_epoch_end=lambda c: seen.append(dict(c.original_args().eval_results))))
    assert seen[0]["eval_loss"] == pytest.approx(seen[0]["loss"]) and list(seen[0]) == ["loss", "eval_loss"]


def test_early_stopping_has_a_baseline() -> None:
    """MindSpore takes `min_delta` for it."""
    for baseline, epochs in ((100.0, 4), (0.01, 2)):
        m, stop = model(ms, metrics={"acc"}), train.EarlyStopping(monitor="loss", patience=2, baseline=baseline)
        m.train(4, rows(ms), stop)
        assert (stop.stopped_epoch or 4) == epochs


def test_a_monitor_without_a_value_warns() -> None:
    for watching in (train.EarlyStopping(), train.ReduceLROnPlateau("acc")):
        with pytest.warns(UserWarning, match="is not available. There are: loss"):
            model(ms).train(1, rows(ms), watching)
    net = model(ms, [0.1, 0.01])
    for changing in (train.ReduceLROnPlateau("loss"), train.LearningRateScheduler(lambda rate, step: rate)):
        with pytest.raises(ValueError, match="does not support dynamic learning rate"):
            net.train(1, rows(ms), changing)


def test_a_schedule_gives_numbers() -> None:
    with pytest.raises(TypeError, match="must be a function"):
        train.LearningRateScheduler(3)  # type: ignore[arg-type]
    for wrong in (None, "0.1"):
        with pytest.raises(TypeError, match="must return a number, but it returned"):
            model(ms).train(1, rows(ms), train.LearningRateScheduler(lambda rate, step, wrong=wrong: wrong))  # type: ignore[misc]
    for right in (1, np.float64(0.5), Tensor(0.5)):
        m = model(ms)
        m.train(1, rows(ms), train.LearningRateScheduler(lambda rate, step, right=right: right))  # type: ignore[misc]
        assert float(m._optimizer.learning_rate.asnumpy()) == float(right)


def test_a_loss_scale_that_changes(capsys: pytest.CaptureFixture[str]) -> None:
    net = nn.Dense(4, 3, weight_init=Tensor(ramp((3, 4))))
    manager = train.DynamicLossScaleManager(2.0**24, 2, 1000)
    m = Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1), amp_level="O2", loss_scale_manager=manager)
    seen: list[tuple[bool, float, float]] = []

    def keep(context: train.RunContext) -> None:
        _, overflow, scale = context.original_args().net_outputs
        seen.append((bool(overflow), float(scale.asnumpy().item()), manager.get_loss_scale()))

    m.train(5, rows(ms), [LambdaCallback(on_train_step_end=keep), LossMonitor()])
    overflows = [over for over, _, _ in seen]
    assert overflows[0] and not overflows[-1]
    assert [before for _, before, _ in seen[1:]] == [after for _, _, after in seen[:-1]], "the step and its manager agree"
    assert [after for _, _, after in seen] == [before / 2 if over else before for over, before, _ in seen]
    assert capsys.readouterr().out.startswith("epoch: 1 step: 1, loss is ")


# -- files -------------------------------------------------------------------------------------------------------------------
def test_files_in_graph_mode(mode: int, tmp_path: Path) -> None:
    model(ms).train(1, rows(ms), ModelCheckpoint(directory=str(tmp_path / "made" / "here")))
    names = {p.name for p in (tmp_path / "made" / "here").iterdir()}
    assert names == {"CKP-1_1.ckpt", "CKP-1_2.ckpt", "CKP-1_3.ckpt"} | ({"CKP-graph.meta"} if mode == ms.GRAPH_MODE else set())


def test_a_full_disk_leaves_the_older_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphcell.train.callback import _checkpoint

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    saved = ModelCheckpoint(directory=str(tmp_path), config=train.CheckpointConfig(keep_checkpoint_max=1))
    m = model(ms)
    m.train(1, rows(ms), saved)
    monkeypatch.setattr(_checkpoint, "save_checkpoint", full)
    with pytest.raises(OSError, match="No space"):
        m.train(1, rows(ms), saved)
    assert [p.name for p in tmp_path.glob("*.ckpt")] == ["CKP-1_3.ckpt"]


def test_a_callback_saves_in_each_of_its_runs(tmp_path: Path) -> None:
    """MindSpore's saves nothing in a second run until that is longer than the first."""
    saved, m = ModelCheckpoint(directory=str(tmp_path), config=train.CheckpointConfig(keep_checkpoint_max=2)), model(ms)
    m.train(2, rows(ms), saved)
    m.train(1, rows(ms), saved)
    assert sorted(p.name for p in tmp_path.glob("*.ckpt")) == ["CKP-1_2.ckpt", "CKP-1_3.ckpt"]


def test_a_clock_that_stands_still_does_not_change_which_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of files are as coarse as the system's clock: several saves may fall into one tick."""
    saved, m = ModelCheckpoint(directory=str(tmp_path), config=train.CheckpointConfig(keep_checkpoint_max=2)), model(ms)
    monkeypatch.setattr("graphcell.train.callback._checkpoint.save_checkpoint", lambda net, path, *_, **__: (Path(path).write_bytes(b""), os.utime(path, (9, 9))))
    m.train(2, rows(ms), saved)
    m.train(1, rows(ms), saved)
    assert sorted(p.name for p in tmp_path.glob("*.ckpt")) == ["CKP-1_2.ckpt", "CKP-1_3.ckpt"]


def test_files_are_written_in_the_background(tmp_path: Path) -> None:
    saved = ModelCheckpoint("net", str(tmp_path), train.CheckpointConfig(keep_checkpoint_max=2, async_save=True))
    m = model(ms)
    m.train(3, rows(ms), saved)
    assert sorted(p.name for p in tmp_path.glob("*.ckpt")) == ["net-3_2.ckpt", "net-3_3.ckpt"]
    np.testing.assert_array_equal(ms.load_checkpoint(saved.latest_ckpt_file_name)["weight"].asnumpy(), m._network.weight.asnumpy())


def test_files_by_time(tmp_path: Path) -> None:
    saved = ModelCheckpoint("net", str(tmp_path), train.CheckpointConfig(0, 1000, saved_network=nn.Dense(2, 2)))
    model(ms).train(2, rows(ms), saved)
    assert [p.name for p in tmp_path.glob("*.ckpt")] == ["net-2_3.ckpt"]
    assert list(ms.load_checkpoint(str(tmp_path / "net-2_3.ckpt"))) == ["weight", "bias"]
    recent = ModelCheckpoint("net", str(tmp_path), train.CheckpointConfig(keep_checkpoint_max=0, keep_checkpoint_per_n_minutes=10))
    model(ms).train(1, rows(ms), recent)
    assert sorted(p.name for p in tmp_path.glob("net_1*.ckpt")) == ["net_1-1_1.ckpt", "net_1-1_3.ckpt"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"save_checkpoint_steps": -1}, ValueError), ({"save_checkpoint_steps": 0, "keep_checkpoint_max": 0}, ValueError), ({"saved_network": 3}, TypeError),
        ({"append_info": 3}, TypeError), ({"append_info": ["other"]}, ValueError), ({"append_info": [3]}, TypeError), ({"append_info": [{"a": [1]}]}, TypeError),
        ({"append_info": [{"a": 1}, {"b": 1}]}, TypeError), ({"enc_key": "key"}, ValueError), ({"async_save": 3}, TypeError), ({"async_save": "later"}, ValueError), ({"enc_mode": 3}, ValueError),
        ({"integrated_save": 3}, TypeError),
        ({"format": "safetensors", "crc_check": True}, ValueError), ({"exception_save": 3}, TypeError), ({"remove_redundancy": True}, TypeError),
    ],
)  # fmt: skip
def test_configurations_that_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        train.CheckpointConfig(**options)


def test_checkpoint_arguments_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for options, error in (
        ({"prefix": "a/b"}, ValueError), ({"prefix": 3}, ValueError), ({"directory": 3}, TypeError), ({"directory": " "}, ValueError),
        ({"config": 3}, TypeError), ({"directory": str(tmp_path / "file")}, NotADirectoryError),
    ):  # fmt: skip
        with pytest.raises(error):
            ModelCheckpoint(**options)  # type: ignore[arg-type]


def test_backup_and_restore(tmp_path: Path) -> None:
    def pull_the_plug(context: Any) -> None:
        if context.original_args().cur_epoch_num == 2:
            raise KeyboardInterrupt

    file = tmp_path / "backup.ckpt"
    m = model(ms)
    with pytest.raises(KeyboardInterrupt):
        m.train(3, rows(ms), [train.BackupAndRestore(str(tmp_path)), LambdaCallback(on_train_step_end=pull_the_plug)])
    saved = ms.load_checkpoint(str(file))["weight"].asnumpy()
    seen: list[Any] = []
    again = model(ms)
    look = LambdaCallback(on_train_epoch_begin=lambda context: seen.append(again._network.weight.asnumpy().copy()))
    again.train(1, rows(ms), [train.BackupAndRestore(str(tmp_path), 2, False), look])
    np.testing.assert_array_equal(seen[0], saved)
    assert file.exists()
    again.train(1, rows(ms), train.BackupAndRestore(str(tmp_path)))
    assert not file.exists()


# -- signals -----------------------------------------------------------------------------------------------------------------
def test_a_signal_ends_the_run_and_saves(tmp_path: Path) -> None:
    def send(context: Any) -> None:
        if context.original_args().cur_step_num == 4:
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.getsignal(signal.SIGUSR1)
    steps: list[int] = []
    count = LambdaCallback(on_train_step_end=lambda context: steps.append(context.original_args().cur_step_num))
    m, leave = model(ms, metrics={"acc"}), train.OnRequestExit(save_mindir=False, directory=str(tmp_path), sig=signal.SIGUSR1)
    m.train(5, rows(ms), [LambdaCallback(on_train_step_begin=send), leave, count])
    assert steps == [1, 2, 3, 4] and signal.getsignal(signal.SIGUSR1) is before
    file = tmp_path / "rank_0" / "Net_train.ckpt"
    weight = m._network.weight.asnumpy().copy()
    np.testing.assert_array_equal(ms.load_checkpoint(str(file))["weight"].asnumpy(), weight)
    again, seen = model(ms, metrics={"acc"}), []
    look = LambdaCallback(on_eval_step_begin=lambda context: seen.append(again._network.weight.asnumpy().copy()))
    again.eval(rows(ms), [train.OnRequestExit(save_mindir=False, directory=str(tmp_path), sig=signal.SIGUSR1), look])
    np.testing.assert_array_equal(seen[0], weight)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_the_signal_is_given_back_however_the_run_ends(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    leave, m = train.OnRequestExit(save_mindir=False, directory=str(tmp_path), sig=signal.SIGUSR1), model(ms, metrics={"acc"})
    during: list[bool] = []

    def evaluate(context: train.RunContext) -> None:
        m.eval(rows(ms), leave)
        during.append(signal.getsignal(signal.SIGUSR1) is not before)

    m.train(1, rows(ms), [leave, LambdaCallback(on_train_step_end=evaluate)])
    assert during == [True] * 3 and signal.getsignal(signal.SIGUSR1) is before
    with pytest.raises(ZeroDivisionError):
        m.train(1, rows(ms), [leave, LambdaCallback(on_train_step_end=lambda context: 1 // 0)])
    assert signal.getsignal(signal.SIGUSR1) is before


def test_a_file_ends_the_run(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"GracefulExit": 1}))
    with pytest.warns(UserWarning, match="saves no MindIR"):
        leave = train.OnRequestExit(directory=str(tmp_path), config_file=str(config), sig=signal.SIGUSR1)
    steps: list[int] = []
    model(ms).train(5, rows(ms), [leave, LambdaCallback(on_train_step_end=lambda context: steps.append(1))])
    assert steps == [1] and (tmp_path / "rank_0" / "Net_train.ckpt").exists()
    config.write_text("{")
    with pytest.warns(UserWarning, match="is no JSON"):
        leave = train.OnRequestExit(save_ckpt=False, save_mindir=False, directory=str(tmp_path), config_file=str(config), sig=signal.SIGUSR1)
        model(ms).train(1, rows(ms), leave)
    for wrong in ({"sig": signal.SIGKILL}, {"sig": "a"}, {"save_ckpt": 3}):
        with pytest.raises(ValueError):
            train.OnRequestExit(**wrong)


# -- the rest ----------------------------------------------------------------------------------------------------------------
def test_callbacks_that_are_not_there() -> None:
    for name in ("SummaryCollector", "SummaryLandscape", "SummaryRecord", "FlopsUtilizationCollector", "TrainFaultTolerance"):
        with pytest.raises(NotImplementedError, match=name):
            getattr(train, name)("somewhere")


def test_sink_mode_is_for_accelerators() -> None:
    helper = train.DatasetHelper(rows(ms), False, epoch_num=2)
    assert [len(list(helper)) for _ in range(2)] == [3, 3] and helper.sink_size() == 1
    with pytest.raises(RuntimeError, match="sink mode"):
        train.DatasetHelper(rows(ms))
    with pytest.raises(ValueError, match="sink_size"):
        train.DatasetHelper(rows(ms), False, 0)
    with pytest.raises(RuntimeError, match="sink mode"):
        train.connect_network_with_dataset(nn.Dense(2, 2), helper)
    with pytest.raises(ValueError, match="ascend or gpu"):
        train.data_sink(lambda x: x, rows(ms))


class Terminal:
    """A stream that says that it is a terminal."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        return None

    def isatty(self) -> bool:
        return True


def test_a_progress_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Terminal(), Terminal()
    monkeypatch.setattr("graphcell.progress._SECONDS_BEFORE", 0.0)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    model(ms).train(2, rows(ms), LossMonitor(3))
    assert "/6 [" in err.text
    assert out.text.count("\n") == 2 and out.text.startswith("epoch: 1 step: 3, loss is ") and "[" not in out.text


def test_no_progress_bar_elsewhere(capfd: pytest.CaptureFixture[str]) -> None:
    model(ms).train(2, rows(ms), LossMonitor(3))
    out, err = capfd.readouterr()
    assert err == "" and len(out.splitlines()) == 2
