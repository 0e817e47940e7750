"""Keeps README.md and docs/debugging.md true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent


def test_the_programs_in_the_readme_run_as_they_stand(tmp_path: Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    script = tmp_path / "program.py"
    seeded = "import graphcell\ngraphcell.set_seed(1)\n"  # the programs draw random numbers, which must be the same in every run
    script.write_text(seeded + "\n".join(programs))
    result = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=600, env=_environment())
    assert result.returncode == 0, result.stderr
    loss, *explanation = result.stdout.splitlines()
    assert 0.0 < float(loss) < 1.0
    assert any("compiled" in line for line in explanation)
    assert sum(line.startswith("epoch: ") for line in explanation) == 20 and explanation[-1].startswith("{'mse': ")
    assert (tmp_path / "net.ckpt").is_file()


def test_a_mindspore_script_runs_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nimport mindspore as ms\nimport mindspore.nn as nn\nfrom mindspore import ops, Tensor\n"
        "print(sys.argv[1:], ops.add(Tensor([1.0, 2.0]), 1), nn.Dense(2, 1, has_bias=False), ms.__name__)\n"
    )
    command = [sys.executable, "-m", "graphcell", "run", str(script), "one", "--two"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, env=_environment())
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("['one', '--two'] [2. 3.] Dense(input_channels=2, output_channels=1")


def test_links_and_commands_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text()
    for link in re.findall(r"\]\((docs/[^)]+)\)", text):
        assert (ROOT / link).is_file(), link
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", text, re.M):
        assert f"\n{target}:" in makefile


def test_the_program_in_the_debugging_page_runs_as_it_stands(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "debugging.md").read_text(), re.S)
    script = tmp_path / "program.py"
    script.write_text(program)
    result = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=600, env=_environment())
    assert result.returncode == 0, result.stderr
    called, evaluated = (np.array([float(n) for n in re.findall(r"\d\S*\d", line)]) for line in re.findall(r"\[(.*?)\]", result.stdout, re.S))
    np.testing.assert_allclose(called, evaluated, rtol=1e-5)


NET = """import mindspore as ms
from mindspore import nn, ops


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = ms.Parameter(ops.ones((512, 10)), name="w")


    def construct(self, x):
        h = x.view(x.shape[0], -1)
        x = ops.relu(h)
        y = ops.matmul(x, self.w)
        return y
"""
TRAIN = """import mindspore as ms
from mindspore import ops
from net import Net


class Training:
    net, loss = Net(), staticmethod(lambda y, label: y.sum())
{gap}
    @ms.jit
    def step(self, x, label):
        loss = self.loss(self.net(x), label)
        return loss


Training().step(ops.ones((32, 784)), ops.ones((32,)))
"""


def test_the_error_in_the_debugging_page_is_what_is_printed(tmp_path: Path) -> None:
    shown = re.search(r"```\n(ShapeError.*?)```", (ROOT / "docs" / "debugging.md").read_text(), re.S)
    assert shown is not None
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "train.py").write_text(TRAIN.format(gap="\n" * 21))
    command = [sys.executable, "-m", "graphcell", "run", "train.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, env=_environment())
    assert shown[1] in result.stderr.replace(f"{tmp_path}/", ""), result.stderr


def test_variables_in_the_debugging_page_are_read_somewhere() -> None:
    code = "".join(p.read_text() for p in (ROOT / "graphcell").rglob("*.py"))
    for name in set(re.findall(r"`((?:GRAPHCELL|MS)_[A-Z_]+)", (ROOT / "docs" / "debugging.md").read_text())):
        assert name in code, name


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}
