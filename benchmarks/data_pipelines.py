"""Microseconds a batch of data pipelines as programs have them, beside MindSpore, each library in a process of its own.

    python benchmarks/data_pipelines.py                        # graphcell alone
    python benchmarks/data_pipelines.py --mindspore PYTHON     # beside MindSpore, given an interpreter that has it
    python benchmarks/data_pipelines.py --only graphcell       # the figures of one library as JSON

6400 grey images of 28 by 28 pixels in batches of 64; nothing is done with the batches.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

IMAGES, BATCH, ROUNDS = 6400, 64, 5


class Source:
    """Rows by index."""

    def __init__(self, images: Any, labels: Any):
        self.images, self.labels = images, labels

    def __getitem__(self, index: int) -> Any:
        return self.images[index], self.labels[index]

    def __len__(self) -> int:
        return len(self.images)


def pipelines(ms: Any, ds: Any) -> dict[str, Callable[[], Any]]:
    """The pipelines by name."""
    vision, transforms = ds.vision, ds.transforms
    images = np.random.default_rng(0).integers(0, 256, (IMAGES, 28, 28, 1)).astype(np.uint8)
    labels = (np.arange(IMAGES) % 10).astype(np.int32)
    scaled = [vision.Rescale(1 / 255.0, 0.0), vision.Normalize((0.1307,), (0.3081,)), vision.HWC2CHW()]
    cast = transforms.TypeCast(ms.int32)
    names = ["image", "label"]

    def arrays() -> Any:
        return ds.NumpySlicesDataset((images, labels), names)

    def objects() -> Any:
        return ds.GeneratorDataset(Source(images, labels), names)

    return {
        "arrays": lambda: arrays(),
        "arrays, shuffled": lambda: arrays().shuffle(1000),
        "arrays, transforms": lambda: arrays().map(scaled, "image").map(cast, "label"),
        "arrays, resized to 32 x 32": lambda: arrays().map([vision.Resize((32, 32)), *scaled], "image").map(cast, "label"),
        "arrays, random crop and flip": lambda: arrays().map([vision.RandomCrop(28, 2), vision.RandomHorizontalFlip(), *scaled], "image"),
        "objects": lambda: objects(),
        "objects, transforms": lambda: objects().map(scaled, "image").map(cast, "label"),
        "objects, a function": lambda: objects().map(lambda x: (x / 255.0).astype(np.float32), "image"),
    }


def measure(library: str) -> dict[str, float]:
    """Microseconds a batch, the least of several passes."""
    ms = importlib.import_module(library)
    figures = {}
    for name, make in pipelines(ms, importlib.import_module(f"{library}.dataset")).items():
        batches, best = make().batch(BATCH).create_tuple_iterator(), float("inf")
        for _ in range(ROUNDS):
            start = time.perf_counter()
            count = sum(1 for _ in batches)
            best = min(best, (time.perf_counter() - start) / count)
        figures[name] = best * 1e6
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="Microseconds a batch of data pipelines.")
    parser.add_argument("--mindspore", metavar="PYTHON", help="an interpreter that has MindSpore")
    parser.add_argument("--only", metavar="LIBRARY", help="print the figures of this library as JSON")
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure(options.only)))
        return
    interpreters = {"graphcell": sys.executable} | ({"mindspore": options.mindspore} if options.mindspore else {})
    found = {}
    for library, python in interpreters.items():
        environment = os.environ | ({"PYTHONPATH": os.getcwd()} if library == "graphcell" else {})
        done = subprocess.run([python, __file__, "--only", library], check=True, capture_output=True, text=True, env=environment)
        found[library] = json.loads(done.stdout.strip().splitlines()[-1])
    print(f"{'microseconds a batch':32}" + "".join(f"{library:>12}" for library in found))
    for name in found["graphcell"]:
        print(f"{name:32}" + "".join(f"{figures[name]:12.0f}" for figures in found.values()))


if __name__ == "__main__":
    main()
