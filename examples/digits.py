"""Trains a LeNet-style network on scikit-learn's handwritten digits and shows what came out of it.

    python examples/digits.py --out demo-output

Leaves in the output folder: curve.png (loss and accuracy), digits.png (held-out digits with predictions), digits.ckpt (the checkpoint),
ir/ (the graph before and after each pass of the compiler).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from tqdm import tqdm

import graphcell as ms
from graphcell import nn, ops

BATCH = 64
EPOCHS = 30
HELD_OUT = 360
WANTED_ACCURACY = 0.98
EAGER_STEPS = 10
TOLERANCE = 1e-4


class LeNet(nn.Cell):
    """Two convolutions with pooling, three dense layers; for images of 8 x 8."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, pad_mode="same", has_bias=True)
        self.conv2 = nn.Conv2d(16, 32, 3, pad_mode="same", has_bias=True)
        self.pool = nn.MaxPool2d(kernel_size=2, stride=2)
        self.relu = nn.ReLU()
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(32 * 2 * 2, 120, activation="relu")
        self.fc2 = nn.Dense(120, 84, activation="relu")
        self.fc3 = nn.Dense(84, 10)

    def construct(self, x: Any) -> Any:
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        return self.fc3(self.fc2(self.fc1(self.flatten(x))))


def read_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images (N, 1, 8, 8) scaled to [-1, 1] and labels, for training and held out."""
    digits = load_digits()
    images = (digits.images / 8.0 - 1.0).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[HELD_OUT:], order[:HELD_OUT]
    return images[train], labels[train], images[test], labels[test]


def batches(images: np.ndarray, labels: np.ndarray, epoch: int) -> Any:
    """Shuffled batches of one epoch; the rest that fills no batch waits for the next epoch's order."""
    order = np.random.default_rng(epoch).permutation(len(labels))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[start : start + BATCH]
        yield ms.Tensor(images[chosen]), ms.Tensor(labels[chosen])


def training_step(net: nn.Cell) -> Any:
    """Forward, loss, backward and update; in GRAPH_MODE one executable."""
    loss_fn = nn.CrossEntropyLoss()
    optimizer = nn.Adam(net.trainable_params(), learning_rate=1e-3)

    def forward(x: Any, y: Any) -> Any:
        return loss_fn(net(x), y)

    gradient = ms.value_and_grad(forward, None, optimizer.parameters)

    def step(x: Any, y: Any) -> Any:
        loss, grads = gradient(x, y)
        return ops.depend(loss, optimizer(grads))

    return step


def accuracy(net: nn.Cell, images: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Share of right predictions, and the predictions."""
    net.set_train(False)
    predicted = net(ms.Tensor(images)).asnumpy().argmax(1)
    net.set_train()
    return float((predicted == labels).mean()), predicted


def first_losses(initial: dict[str, np.ndarray], images: np.ndarray, labels: np.ndarray, mode: int) -> list[float]:
    """Losses of the first steps from given weights in a mode."""
    ms.set_context(mode=mode, save_graphs=False)
    net = LeNet().set_train()
    for param in net.get_parameters():
        param.set_data(ms.Tensor(initial[param.name]))
    step = training_step(net)
    if mode == ms.GRAPH_MODE:
        step = ms.jit(step)
    return [float(step(x, y).asnumpy()) for (x, y), _ in zip(batches(images, labels, 0), range(EAGER_STEPS))]


def draw_curve(losses: list[float], accuracies: list[float], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, left = plt.subplots(figsize=(8, 4.5))
    per_epoch = len(losses) // len(accuracies)
    left.plot(np.arange(len(losses)) / per_epoch, losses, color="tab:blue", linewidth=0.8)
    left.set_xlabel("epoch")
    left.set_ylabel("training loss", color="tab:blue")
    left.set_yscale("log")
    right = left.twinx()
    right.plot(np.arange(1, len(accuracies) + 1), [100 * a for a in accuracies], color="tab:orange", marker=".")
    right.set_ylabel("held-out accuracy, %", color="tab:orange")
    left.set_title("LeNet on handwritten digits, graphcell in GRAPH_MODE")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_digits(images: np.ndarray, labels: np.ndarray, predicted: np.ndarray, path: Path) -> None:
    """Some held-out digits with their predictions; wrong ones first, in red."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    order = np.argsort(predicted == labels, kind="stable")[:20]
    figure, axes = plt.subplots(2, 10, figsize=(12, 3.2))
    for axis, k in zip(axes.flat, order):
        axis.imshow(-images[k, 0], cmap="gray")
        axis.set_axis_off()
        right = predicted[k] == labels[k]
        axis.set_title(f"{predicted[k]}" if right else f"{predicted[k]} (is {labels[k]})", color="black" if right else "red", fontsize=10)
    figure.suptitle("held-out digits and their predictions")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="output folder (default: demo-output)")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args()
    out: Path = options.out
    shutil.rmtree(out / "ir", ignore_errors=True)
    (out / "ir").mkdir(parents=True, exist_ok=True)

    images, labels, test_images, test_labels = read_digits()
    print(f"{len(labels)} digits to learn from, {len(test_labels)} held out")
    ms.set_seed(0)
    net = LeNet().set_train()
    initial = {p.name: p.asnumpy().copy() for p in net.get_parameters()}

    ms.set_context(mode=ms.GRAPH_MODE, save_graphs=True, save_graphs_path=str(out / "ir"))
    step = ms.jit(training_step(net))
    losses: list[float] = []
    accuracies: list[float] = []
    start = time.perf_counter()
    steps = len(labels) // BATCH
    with tqdm(total=options.epochs * steps, unit="step", file=sys.stdout) as bar:
        for epoch in range(options.epochs):
            for x, y in batches(images, labels, epoch):
                losses.append(float(step(x, y).asnumpy()))
                bar.update()
            ms.set_context(save_graphs=False)
            accuracies.append(accuracy(net, test_images, test_labels)[0])
            bar.set_postfix(loss=f"{losses[-1]:.4f}", held_out=f"{100 * accuracies[-1]:.1f}%")
    seconds = time.perf_counter() - start
    final, predicted = accuracy(net, test_images, test_labels)
    print(f"trained {len(losses)} steps in {seconds:.1f} s; accuracy on held-out digits: {100 * final:.2f} %")

    checkpoint = out / "digits.ckpt"
    ms.save_checkpoint(net, str(checkpoint))
    reloaded = LeNet()
    ms.load_param_into_net(reloaded, ms.load_checkpoint(str(checkpoint)))
    again, _ = accuracy(reloaded, test_images, test_labels)
    print(f"accuracy after saving and reloading {checkpoint}: {100 * again:.2f} %")

    graph = first_losses(initial, images, labels, ms.GRAPH_MODE)
    eager = first_losses(initial, images, labels, ms.PYNATIVE_MODE)
    apart = max(abs(a - b) / abs(b) for a, b in zip(graph, eager))
    print("first losses, GRAPH_MODE:    " + " ".join(f"{v:.6f}" for v in graph))
    print("first losses, PYNATIVE_MODE: " + " ".join(f"{v:.6f}" for v in eager))
    print(f"largest relative difference: {apart:.1e} (at most {TOLERANCE:.0e} is expected)")

    draw_curve(losses, accuracies, out / "curve.png")
    draw_digits(test_images, test_labels, predicted, out / "digits.png")
    dumps = sorted((out / "ir").rglob("*.ir"))
    print(f"pictures: {out / 'curve.png'}, {out / 'digits.png'}; {len(dumps)} dumps of the compiler's passes in {out / 'ir'}")

    problems = []
    if final < WANTED_ACCURACY and options.epochs >= EPOCHS:
        problems.append(f"the accuracy is below {100 * WANTED_ACCURACY:.0f} %")
    if again != final:
        problems.append("the reloaded network predicts differently")
    if not apart <= TOLERANCE:
        problems.append("the two modes differ")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
