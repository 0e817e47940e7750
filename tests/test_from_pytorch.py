"""Keeps docs/from_pytorch.md true: its programs print what stands under them, and what the two sides print agrees. The programs of PyTorch run
where it is installed; there, `--update-golden` writes the page's outputs, and the files of weights, anew.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphcell import Tensor, nn, ops

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "from_pytorch.md"
WEIGHTS = ROOT / "docs" / "from_pytorch"
BLOCK = re.compile(r"```python\n(.*?)```\n```text\n(.*?)```", re.S)
MARK = "-- end of a block --\n"


def blocks(of_torch: bool) -> list[tuple[str, str]]:
    """The programs of one side, each with what stands under it."""
    return [(program, printed) for program, printed in BLOCK.findall(PAGE.read_text()) if ("import torch\n" in program) is of_torch]


def outputs(programs: list[str], folder: Path) -> list[str]:
    """What the programs print, run one after another in one process."""
    script = folder / "programs.py"
    script.write_text("".join(f"{program}\nprint({MARK!r}, end='')\n" for program in programs))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=folder, capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split(MARK)[:-1]


def keep(found: list[tuple[str, str]], printed: list[str]) -> None:
    text = PAGE.read_text()
    for (program, before), after in zip(found, printed, strict=True):
        text = text.replace(f"{program}```\n```text\n{before}```", f"{program}```\n```text\n{after}```")
    PAGE.write_text(text)


def numbers(text: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+\.\d*", text)]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_the_programs_of_pytorch(tmp_path: Path, update_golden: bool) -> None:
    found = blocks(of_torch=True)
    printed = outputs([program for program, _ in found], tmp_path)
    if update_golden:
        keep(found, printed)
        for file in tmp_path.glob("*.safetensors"):
            shutil.copy(file, WEIGHTS)
    for (_, want), got in zip(blocks(of_torch=True), printed, strict=True):
        np.testing.assert_allclose(numbers(got), numbers(want), atol=2e-5)


def test_the_programs_for_graphcell(tmp_path: Path, update_golden: bool) -> None:
    for file in WEIGHTS.glob("*.safetensors"):
        shutil.copy(file, tmp_path)
    found = blocks(of_torch=False)
    printed = outputs([program for program, _ in found], tmp_path)
    if update_golden:
        keep(found, printed)
    for (_, want), got in zip(blocks(of_torch=False), printed, strict=True):
        assert re.sub(r"[\d.]+", "0", got) == re.sub(r"[\d.]+", "0", want)
        np.testing.assert_allclose(numbers(got), numbers(want), atol=2e-5)


def test_the_two_sides_agree() -> None:
    """The logits, losses and statistics; of the optimizers of `nn` the first two, of `experimental.optim` all."""
    theirs = [numbers(printed) for _, printed in blocks(of_torch=True)]
    apart = ("pytorch_state_dict(net).items()", "import optim", "optim.lr_scheduler")
    ours = [numbers(printed) for program, printed in blocks(of_torch=False) if not any(text in program for text in apart)]
    assert [len(values) for values in theirs] == [len(values) for values in ours] == [4, 13, 6, 15]
    for want, got in zip(theirs, ours):
        same = 6 if len(want) == 15 else len(want)
        np.testing.assert_allclose(got[:same], want[:same], atol=2e-5)
    (same_names,) = (numbers(printed) for program, printed in blocks(of_torch=False) if "import optim" in program)
    np.testing.assert_allclose(same_names, theirs[-1], atol=2e-5)


IMAGE = np.zeros((1, 1, 8, 8), np.float32)
STATED = (
    ("nn.Conv2d(1, 4, 3)(image).shape[-1]", "8 × 8, without", 8),
    ("nn.Conv2d(1, 4, 3, pad_mode='pad', padding=0, has_bias=True)(image).shape[-1]", "6 × 6, with bias", 6),
    ("nn.MaxPool2d(2)(image).shape[-1]", "stride 1: 7 × 7", 7),
    ("nn.MaxPool2d(2, 2)(image).shape[-1]", "4 × 4", 4),
    ("signature(nn.BatchNorm2d).parameters['momentum'].default", "0.9, share of the old one", 0.9),
    ("nn.LayerNorm((3,)).epsilon", "`epsilon` 1e-7", 1e-7),
    ("float(nn.GELU()(one))", "`nn.GELU()` 0.84119", 0.84119),
    ("float(nn.GELU(approximate=False)(one))", "0.84134, exact", 0.84134),
    ("float(ops.gelu(one))", "0.84134, exact", 0.84134),
    ("float(nn.LeakyReLU()(-one))", "-0.2; give `alpha`", -0.2),
    ("round(float(nn.Embedding(1000, 50).embedding_table.std()), 3)", "deviation 0.01", 0.01),
    ("nn.SmoothL1Loss()(three, three).shape[0]", "one loss an element", 3),
    ("float(three.std())", "1.24722", 1.24722),
    ("float(three.var())", "1.55556", 1.55556),
    ("float(three.std(ddof=1))", "1.52753", 1.52753),
    ("float(three.var(ddof=1))", "2.33333", 2.33333),
)


@pytest.mark.parametrize(("expression", "stated", "value"), STATED)
def test_what_the_table_of_differences_says_of_graphcell(expression: str, stated: str, value: float) -> None:
    names = {"nn": nn, "ops": ops, "signature": inspect.signature, "image": Tensor(IMAGE), "one": Tensor(1.0), "three": Tensor([-1.0, 1.0, 2.0])}
    assert stated in PAGE.read_text()
    assert eval(expression, names) == pytest.approx(value, abs=5e-6)


STATED_OF_PYTORCH = (
    ("nn.Linear(1, 1).training", "`Module` trains", True),
    ("nn.Conv2d(1, 4, 3)(image).shape[-1]", "no padding: 6 × 6, with bias", 6),
    ("nn.MaxPool2d(2)(image).shape[-1]", "stride is the window: 4 × 4", 4),
    ("nn.BatchNorm2d(1).momentum", "0.1, share of the new value", 0.1),
    ("nn.LayerNorm(3).eps", "eps 1e-5", 1e-5),
    ("float(nn.GELU()(one))", "0.84134, exact", 0.84134),
    ("float(nn.LeakyReLU()(-one))", "| -0.01 |", -0.01),
    ("round(float(nn.Embedding(1000, 50).weight.std()), 1)", "deviation 1 |", 1.0),
    ("float(three.std())", "1.52753", 1.52753),
    ("float(three.var())", "2.33333", 2.33333),
)


@pytest.mark.parametrize(("expression", "stated", "value"), STATED_OF_PYTORCH)
def test_what_the_table_of_differences_says_of_pytorch(expression: str, stated: str, value: float) -> None:
    torch = pytest.importorskip("torch")
    names = {"nn": torch.nn, "image": torch.from_numpy(IMAGE), "one": torch.tensor(1.0), "three": torch.tensor([-1.0, 1.0, 2.0])}
    assert stated in PAGE.read_text()
    assert eval(expression, names) == pytest.approx(value, abs=5e-6)
