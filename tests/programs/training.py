"""`Model` with callbacks: what is printed, the losses, the metrics, the files, for small networks on scikit-learn's digits and on made-up data."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.recording import fill, ramp


def table(n: int = 24) -> tuple[Any, Any]:
    """Rows of four numbers and their classes, of three."""
    return ramp((n, 4)), (np.arange(n) * 7 // 3 % 3).astype(np.int32)


def rows(ms: Any, n: int = 24, batch: int = 8) -> Any:
    return ms.dataset.NumpySlicesDataset(tuple(x[:n] for x in table()), shuffle=False).batch(batch)


def model(ms: Any, rate: Any = 0.1, **options: Any) -> Any:
    net = ms.nn.Dense(4, 3, weight_init=ms.Tensor(ramp((3, 4))), bias_init="zeros")
    return ms.train.Model(net, ms.nn.CrossEntropyLoss(), ms.nn.Momentum(net.trainable_params(), rate, 0.9), **options)


def printed(action: Callable[[], Any]) -> list[str]:
    """The lines that `action` prints, with times replaced, and numbers as far as both can agree on them."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        action()
    text = re.sub(r"\d+\.\d+ ms", "T ms", out.getvalue())
    return re.sub(r"\d+\.\d{3,}", lambda m: f"{float(m[0]):.4f}", text).splitlines()


# -- one callback at a time ------------------------------------------------------------------------------------------------
def monitors(ms: Any) -> Any:
    m = model(ms, metrics={"acc": ms.train.Accuracy(), "loss": ms.train.Loss()})
    both = [ms.train.LossMonitor(2), ms.train.TimeMonitor()]
    return [
        printed(lambda: m.fit(2, rows(ms), rows(ms, 16), callbacks=both)),
        printed(lambda: m.train(3, rows(ms), both, initial_epoch=1)),
        printed(lambda: m.train(1, rows(ms), ms.train.TimeMonitor(data_time=True), dataset_sink_mode=True, sink_size=2)),
        printed(lambda: print(m.eval(rows(ms), callbacks=[ms.train.LossMonitor()]))),
        printed(lambda: m.fit(4, rows(ms), rows(ms, 8), [2, 3], ms.train.LossMonitor(0))),
    ]


def early_stopping(ms: Any, **options: Any) -> Any:
    m = model(ms, metrics={"acc": ms.train.Accuracy()})
    stop = ms.train.EarlyStopping(verbose=True, **options)
    lines = printed(lambda: m.fit(9, rows(ms), rows(ms, 8, 8), callbacks=[stop, ms.train.LossMonitor(3)]))
    return lines, stop.stopped_epoch, stop.wait, [p for p in m.train_network.get_parameters()]


def plateau(ms: Any, **options: Any) -> Any:
    m = model(ms, metrics={"acc": ms.train.Accuracy()})
    lines = printed(lambda: m.fit(6, rows(ms), rows(ms, 8, 8), callbacks=ms.train.ReduceLROnPlateau(verbose=True, **options)))
    return lines, m._optimizer.learning_rate


def history(ms: Any) -> Any:
    m, kept = model(ms, metrics={"acc"}), ms.train.History()
    m.fit(2, rows(ms), rows(ms, 16), callbacks=kept)
    m.train(1, rows(ms), callbacks=kept)
    return {name: [float(v) for v in values] for name, values in kept.history.items()}, kept.epoch


def scheduler(ms: Any) -> Any:
    m, seen = model(ms), []

    def lower(rate: float, step: int) -> float:
        seen.append((rate, step))
        return rate / 2

    m.train(1, rows(ms), callbacks=ms.train.LearningRateScheduler(lower))
    return seen, m._optimizer.learning_rate


def moments(ms: Any) -> Any:
    """What a callback of the user's own is called with, and what it sees."""
    seen: list[Any] = []

    class Trace(ms.train.Callback):
        def __getattribute__(self, name: str) -> Any:
            return partial(note, name) if name.startswith("on_") else object.__getattribute__(self, name)

    def note(name: str, context: Any) -> None:
        run = context.original_args()
        seen.append([name, *(run.get(k) for k in ("cur_epoch_num", "cur_step_num", "batch_num", "mode", "dataset_sink_mode", "epoch_num")), sorted(run)])

    m = model(ms, metrics={"acc"})
    m.fit(2, rows(ms, 16), rows(ms, 8), callbacks=Trace())
    m.eval(rows(ms, 8), callbacks=[Trace()])
    m.train(1, rows(ms, 16), Trace(), True, 1)
    return seen


def stops(ms: Any) -> Any:
    seen: list[int] = []

    def end_at_two(context: Any) -> None:
        seen.append(context.original_args().cur_step_num)
        if seen[-1] == 2:
            context.request_stop()

    m = model(ms, metrics={"acc"})
    lines = printed(lambda: m.train(5, rows(ms), callbacks=[ms.train.LambdaCallback(on_train_step_end=end_at_two), ms.train.LossMonitor()]))
    m.eval(rows(ms), callbacks=ms.train.LambdaCallback(on_eval_step_end=end_at_two))
    return lines, seen


def checkpoints(ms: Any, **options: Any) -> Any:
    """The files of three trainings in one directory, and what the last one holds."""
    found = []
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(3):
            saved = ms.train.ModelCheckpoint("net", directory, ms.train.CheckpointConfig(**options))
            model(ms).train(3, rows(ms), callbacks=saved)
            found.append([sorted(f for f in os.listdir(directory) if not f.endswith(".meta")), os.path.basename(saved.latest_ckpt_file_name)])
        format = options.get("format", "ckpt")
        entries = ms.load_checkpoint(saved.latest_ckpt_file_name, format=format)
    return found, {name: value if isinstance(value, str) else ms.Tensor(value) for name, value in entries.items()}


def breakpoint_file(ms: Any) -> Any:
    def fail(context: Any) -> None:
        if context.original_args().cur_step_num == 5:
            raise OSError("the plug was pulled")

    with tempfile.TemporaryDirectory() as directory:
        config = ms.train.CheckpointConfig(100, exception_save=True, append_info=["epoch_num", "step_num"])
        for _ in range(2):
            saved = ms.train.ModelCheckpoint("net", directory, config)
            try:
                model(ms).train(3, rows(ms), callbacks=[saved, ms.train.LambdaCallback(on_train_step_end=fail)])
            except OSError as e:
                message = str(e)
        files = sorted(f for f in os.listdir(directory) if f.endswith(".ckpt"))
        entries = ms.load_checkpoint(os.path.join(directory, files[0]))
    return message, files, {name: ms.Tensor(value) for name, value in entries.items()}


def names_by_function(ms: Any) -> Any:
    with tempfile.TemporaryDirectory() as directory:
        saved = ms.train.ModelCheckpoint(
            lambda run: f"step{run.cur_step_num}", lambda run: os.path.join(directory, f"epoch{run.cur_epoch_num}"), ms.train.CheckpointConfig(2)
        )
        model(ms).train(2, rows(ms), callbacks=saved)
        return [(os.path.relpath(place, directory), sorted(f for f in files if f.endswith(".ckpt"))) for place, _, files in sorted(os.walk(directory))]


def policy(ms: Any) -> Any:
    kinds: list[dict[str, Any]] = [
        {}, {"save_checkpoint_steps": 0, "save_checkpoint_seconds": 30}, {"keep_checkpoint_max": 0, "keep_checkpoint_per_n_minutes": 2},
        {"keep_checkpoint_max": None}, {"keep_checkpoint_per_n_minutes": 2}, {"save_checkpoint_steps": 3, "save_checkpoint_seconds": 30},
    ]  # fmt: skip
    return [ms.train.CheckpointConfig(**k).get_checkpoint_policy() for k in kinds]


def networks(ms: Any) -> Any:
    m = model(ms, metrics={"acc"})
    only = ms.train.Model(m._network, m._loss_fn)
    return [str(m.train_network), str(m.eval_network), str(m.predict_network), str(only.train_network), only.eval_network, m.predict(ms.Tensor(table()[0][:3]))]


def own_networks(ms: Any) -> Any:
    """A network that computes its loss, another for evaluation; and a training step as the network."""
    net = model(ms)._network

    class WithLoss(ms.nn.Cell):
        def __init__(self, net: Any):
            super().__init__(auto_prefix=False)
            self.net, self.loss = net, ms.nn.CrossEntropyLoss()

        def construct(self, x: Any, y: Any) -> Any:
            return self.loss(self.net(x), y)

    class Evaluated(WithLoss):
        def construct(self, x: Any, y: Any) -> Any:
            out = self.net(x)
            return y, out, self.loss(out, y)

    with_loss = WithLoss(net)
    metrics = {"acc": ms.train.Accuracy(), "loss": ms.train.Loss()}
    m = ms.train.Model(with_loss, None, ms.nn.SGD(net.trainable_params(), 0.1), metrics, Evaluated(net), [2, 1, 0])
    first = printed(lambda: m.fit(2, rows(ms), rows(ms, 16), callbacks=ms.train.LossMonitor()))
    step = ms.train.Model(ms.nn.TrainOneStepCell(with_loss, ms.nn.SGD(net.trainable_params(), 0.1)))
    second = printed(lambda: step.train(1, rows(ms), ms.train.LossMonitor()))
    chosen = {"acc": ms.train.Accuracy().set_indexes([1, 0]), "loss": ms.train.Loss().set_indexes([2])}
    third = ms.train.Model(with_loss, None, None, chosen, Evaluated(net)).eval(rows(ms))
    return first, second, {k: float(v) for k, v in third.items()}


def mixed(ms: Any, level: str, **scaling: Any) -> Any:
    """Losses in mixed precision. (At O1 MindSpore rewrites the SequentialCell to one in which batch norm is not switched to training.)"""
    norm = [] if level == "O1" else [ms.nn.BatchNorm1d(8)]
    net = ms.nn.SequentialCell(ms.nn.Dense(4, 8), *norm, ms.nn.ReLU(), ms.nn.Dense(8, 3))
    fill(ms, net)
    options = {"loss_scale_manager": scaling["scale"] and ms.amp.FixedLossScaleManager(scaling["scale"], False)} if scaling else {}
    optimizer = ms.nn.Momentum(net.trainable_params(), 0.01, 0.9)
    m = ms.train.Model(net, ms.nn.CrossEntropyLoss(), optimizer, {"acc", "loss"}, amp_level=level, **options)
    seen: list[float] = []
    m.train(2, rows(ms), ms.train.LambdaCallback(on_train_step_end=lambda context: seen.append(float(context.original_args().net_outputs.asnumpy()))))
    return seen, {name: float(value) for name, value in sorted(m.eval(rows(ms)).items())}, str(m.predict(ms.Tensor(table()[0])).dtype)


# -- whole networks --------------------------------------------------------------------------------------------------------
def lenet(ms: Any) -> Any:
    nn = ms.nn
    convolutions = [nn.Conv2d(1, 6, 3, pad_mode="same", has_bias=True), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Conv2d(6, 16, 3, pad_mode="valid"), nn.ReLU()]
    return nn.SequentialCell(*convolutions, nn.Flatten(), nn.Dense(64, 32, activation="relu"), nn.Dense(32, 10))


def resnet(ms: Any) -> Any:
    nn = ms.nn

    def convolution(inside: int, outside: int, stride: int = 1) -> Any:
        return nn.SequentialCell(nn.Conv2d(inside, outside, 3, stride, pad_mode="pad", padding=1), nn.BatchNorm2d(outside))

    class Block(nn.Cell):
        def __init__(self, inside: int, outside: int, stride: int):
            super().__init__()
            self.body = nn.SequentialCell(convolution(inside, outside, stride), nn.ReLU(), convolution(outside, outside))
            self.side = nn.Conv2d(inside, outside, 1, stride) if stride > 1 else nn.Identity()
            self.relu = nn.ReLU()

        def construct(self, x: Any) -> Any:
            return self.relu(self.body(x) + self.side(x))

    return nn.SequentialCell(convolution(1, 8), nn.ReLU(), Block(8, 8, 1), Block(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dense(16, 10))


def lstm(ms: Any) -> Any:
    class Classifier(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = ms.nn.LSTM(8, 16, batch_first=True, bidirectional=True), ms.nn.Dense(32, 10)

        def construct(self, x: Any) -> Any:
            outputs, _ = self.rnn(x.reshape(-1, 8, 8))
            return self.head(outputs[:, -1])

    return Classifier()


def transformer(ms: Any) -> Any:
    nn, ops, width, heads = ms.nn, ms.ops, 16, 2

    class Classifier(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.place = nn.Dense(8, width), ms.Parameter(ms.Tensor(ramp((8, width))), name="place")
            self.qkv, self.out, self.head = nn.Dense(width, 3 * width), nn.Dense(width, width), nn.Dense(width, 10)
            self.first, self.second = nn.LayerNorm((width,)), nn.LayerNorm((width,))
            self.mlp = nn.SequentialCell(nn.Dense(width, 32), nn.GELU(), nn.Dense(32, width))

        def construct(self, x: Any) -> Any:
            h = self.patches(x.reshape(-1, 8, 8)) + self.place
            q, k, v = ops.split(self.qkv(self.first(h)).reshape(-1, 8, 3, heads, width // heads).transpose(2, 0, 3, 1, 4), 1, 0)
            scores = ops.matmul(q[0], k[0].transpose(0, 1, 3, 2)) / (width // heads) ** 0.5
            mixed = ops.matmul(ops.softmax(scores, -1), v[0])
            h = h + self.out(mixed.transpose(0, 2, 1, 3).reshape(-1, 8, width))
            return self.head((h + self.mlp(self.second(h))).mean(1))

    return Classifier()


def digits(ms: Any, network: Callable[[Any], Any], optimizer: str, rate: float) -> Any:
    """Losses of a training on handwritten digits, and metrics on others."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images, labels = (found.images / 8.0 - 1.0).astype(np.float32)[:, None], found.target.astype(np.int32)

    def dataset(start: int, stop: int, batch: int) -> Any:
        return ms.dataset.NumpySlicesDataset((images[start:stop], labels[start:stop]), shuffle=False).batch(batch)

    net, losses = network(ms), []
    for p in net.trainable_params():
        if not p.name.endswith(("gamma", "beta")):
            numbers = np.random.default_rng(sum(map(ord, p.name))).standard_normal(p.shape) / np.sqrt(np.prod(p.shape[1:]))
            p.set_data(ms.Tensor(numbers.astype(np.float32)))
    options = {"momentum": 0.9} if optimizer == "Momentum" else {}
    metrics = {"acc": ms.train.Accuracy(), "loss": ms.train.Loss(), "top 5": ms.train.Top5CategoricalAccuracy()}
    m = ms.train.Model(net, ms.nn.CrossEntropyLoss(), getattr(ms.nn, optimizer)(net.trainable_params(), rate, **options), metrics)
    keep = ms.train.LambdaCallback(on_train_step_end=lambda context: losses.append(float(context.original_args().net_outputs.asnumpy())))
    m.train(2, dataset(0, 256, 64), keep)
    return losses, {k: float(v) for k, v in m.eval(dataset(256, 384, 64)).items()}


NETWORKS = {"LeNet": (lenet, "Momentum", 0.02), "ResNet": (resnet, "Momentum", 0.01), "LSTM": (lstm, "Adam", 1e-3), "Transformer": (transformer, "Adam", 1e-3)}


MIXED: list[dict[str, Any]] = [{"level": "O1"}, {"level": "O2", "scale": None}, {"level": "O2", "scale": 64}, {"level": "O3"}, {"level": "O0", "scale": 64}]


def programs() -> dict[str, Any]:
    found: dict[str, Any] = {
        "monitors": monitors, "history": history, "scheduler": scheduler, "moments": moments, "stops": stops, "breakpoint": breakpoint_file,
        "names by function": names_by_function, "policy": policy, "networks": networks, "own networks": own_networks,
        "early stopping": partial(_call, early_stopping, {"patience": 2, "min_delta": 10, "restore_best_weights": True}),
        "early stopping on accuracy": partial(_call, early_stopping, {"monitor": "acc", "patience": 1}),
        "early stopping on loss": partial(_call, early_stopping, {"monitor": "loss", "mode": "max"}),
        "plateau": partial(_call, plateau, {"patience": 1, "min_delta": 3.0}),
        "plateau with cooldown": partial(_call, plateau, {"patience": 1, "min_delta": 3.0, "cooldown": 1, "factor": 0.5, "min_lr": 0.03}),
        "checkpoints": partial(_call, checkpoints, {"keep_checkpoint_max": 2}),
        "checkpoints with more": partial(
            _call, checkpoints, {"save_checkpoint_steps": 2, "append_info": ["epoch_num", "step_num", {"a": 1.5, "b": "text", "c": 3}]}
        ),
        "checkpoints safetensors": partial(_call, checkpoints, {"save_checkpoint_steps": 4, "format": "safetensors"}),
    }  # fmt: skip
    found |= {f"mixed {options}": partial(_call, mixed, options) for options in MIXED}
    return found | {name: partial(_trained, *row) for name, row in NETWORKS.items()}


def _call(function: Any, options: dict[str, Any], ms: Any) -> Any:
    return function(ms, **options)


def _trained(network: Any, optimizer: str, rate: float, ms: Any) -> Any:
    return digits(ms, network, optimizer, rate)
