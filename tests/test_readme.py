"""Keeps README.md and docs/debugging.md true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_programs_in_the_readme_run_as_they_stand(tmp_path: Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    script = tmp_path / "program.py"
    script.write_text("\n".join(programs))
    result = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=_environment())
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
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=_environment())
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("['one', '--two'] [2. 3.] Dense(input_channels=2, output_channels=1")


def test_links_and_commands_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text()
    for link in re.findall(r"\]\((docs/[^)]+)\)", text):
        assert (ROOT / link).is_file(), link
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", text, re.M):
        assert f"\n{target}:" in makefile


def test_variables_in_the_debugging_page_are_read_somewhere() -> None:
    code = "".join(p.read_text() for p in (ROOT / "graphcell").rglob("*.py"))
    for name in set(re.findall(r"`((?:GRAPHCELL|MS)_[A-Z_]+)", (ROOT / "docs" / "debugging.md").read_text())):
        assert name in code, name


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT)}
