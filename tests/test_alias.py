"""`import mindspore` as graphcell: in this process, and by `python -m graphcell run`."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import graphcell
from graphcell import alias
from graphcell.__main__ import main
from graphcell.runtime.cache import SWITCH_VARIABLE


@pytest.fixture
def installed() -> Iterator[None]:
    alias.install()
    yield
    alias.uninstall()


def test_names_of_mindspore_are_the_modules_of_graphcell(installed: None) -> None:
    import mindspore
    import mindspore.common.dtype as mstype
    import mindspore.nn as nn
    import mindspore.ops as ops
    from mindspore import Parameter, Tensor, context
    from mindspore.common import dtype
    from mindspore.common.initializer import Uniform, initializer
    from mindspore.nn.learning_rate_schedule import LearningRateSchedule
    from mindspore.nn.optim import Optimizer
    from mindspore.ops import composite as C
    from mindspore.ops import functional as F
    from mindspore.ops import operations as P
    from mindspore.ops.primitive import Primitive, prim_attr_register
    from mindspore.train.serialization import load_checkpoint

    assert mindspore is graphcell and nn is graphcell.nn and ops is graphcell.ops and mstype is dtype
    assert Tensor is graphcell.Tensor and Parameter is graphcell.Parameter and context is graphcell.context
    assert P.ReLU is ops.ReLU and F.relu is ops.relu and C.GradOperation is ops.GradOperation
    assert issubclass(ops.ReLU, Primitive) and callable(prim_attr_register)
    assert issubclass(nn.Adam, Optimizer) and issubclass(nn.WarmUpLR, LearningRateSchedule)
    assert initializer(Uniform(), [1, 2], mindspore.float32).shape == (1, 2) and load_checkpoint is mindspore.load_checkpoint
    assert mindspore.__name__ == "graphcell" and mindspore.__spec__.name == "graphcell"
    assert import_module("mindspore.nn") is nn


def test_layers_print_with_the_path_that_mindspore_has() -> None:
    import graphcell.nn as nn

    kinds = {"layer.conv.Conv2d", "layer.container.SequentialCell", "layer.activation.ReLU", "layer.basic.Dense", "loss.loss.MSELoss", "cell.Cell"}
    for kind in kinds:
        assert str(getattr(nn, kind.rpartition(".")[2])) == f"<class 'graphcell.nn.{kind}'>"
    alias.install()
    try:
        for kind in kinds:
            assert str(getattr(nn, kind.rpartition(".")[2])) == f"<class 'mindspore.nn.{kind}'>"
    finally:
        alias.uninstall()
    assert str(nn.Conv2d) == "<class 'graphcell.nn.layer.conv.Conv2d'>"


def test_a_module_that_is_not_there_says_so(installed: None) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"no counterpart of the module 'mindspore\.nothing'") as caught:
        import_module("mindspore.nothing")
    assert caught.value.name == "mindspore.nothing"
    with pytest.raises(ImportError, match="nothing"):
        exec("from mindspore import nothing")


def test_other_imports_are_left_alone(installed: None) -> None:
    with pytest.raises(ModuleNotFoundError, match="mindspores"):
        import_module("mindspores")
    assert import_module("json").__name__ == "json"


def test_installing_twice_and_uninstalling(installed: None) -> None:
    before = len(sys.meta_path)
    alias.install()
    assert len(sys.meta_path) == before
    import_module("mindspore.nn")
    alias.uninstall()
    assert not [n for n in sys.modules if n.startswith("mindspore")]
    assert sys.modules["graphcell.nn"] is graphcell.nn


def test_threads_may_import_at_once(installed: None) -> None:
    names = ["mindspore.nn", "mindspore.ops", "mindspore.train", "mindspore.common", "mindspore.nn.cell"] * 4
    found: list[bool] = []
    threads = [threading.Thread(target=lambda n=n: found.append(import_module(n).__spec__.name == "graphcell" + n[9:])) for n in names]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [True] * len(names)


SCRIPT = '''
import sys
import mindspore as ms
from mindspore import nn, ops, Tensor
from helper import double

class Net(nn.Cell):
    def construct(self, x):
        return double(ops.relu(x))

if __name__ == "__main__":
    ms.set_context(mode=ms.GRAPH_MODE)
    print(Net()(Tensor([-1.0, 2.0])), sys.argv[1:], __file__.endswith("script.py"))
'''


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("def double(x):\n    return x * 2\n")
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(graphcell.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-m", "graphcell", *arguments], capture_output=True, text=True, timeout=600, env={"PYTHONPATH": str(root), SWITCH_VARIABLE: "0"}
    )


def test_a_script_runs_as_it_is(script: Path) -> None:
    done = run("run", str(script), "--epochs", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[0. 4.] ['--epochs', '3'] True\n"


SPAWNING = """
import multiprocessing
import mindspore as ms
from mindspore import Tensor, nn

def work(x):
    return type(nn.ReLU()).__module__, (Tensor([x]) * 2).asnumpy().tolist()

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map_async(work, [1, 2]).get(600))
"""


def test_processes_that_a_script_spawns_have_the_alias(tmp_path: Path) -> None:
    path = tmp_path / "spawning.py"
    path.write_text(SPAWNING)
    done = run("run", str(path))
    assert done.stdout == "[('mindspore.nn.layer.activation', [2]), ('mindspore.nn.layer.activation', [4])]\n", done.stderr


@pytest.mark.slow
def test_errors_and_exit_codes_of_a_script_are_its_own(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("import mindspore\nmindspore.ops.relu('x')\n")
    done = run("run", str(path))
    assert done.returncode == 1 and "line 2" in done.stderr and "TypeError" in done.stderr
    assert done.stderr.startswith(f'Traceback (most recent call last):\n  File "{path}", line 2')  # nothing of runpy or of this package before it
    path.write_text("x = = 3\n")
    done = run("run", str(path))
    assert done.returncode == 1 and done.stderr.startswith(f'  File "{path}", line 1\n') and done.stderr.endswith("SyntaxError: invalid syntax\n")
    path.write_text("from mindspore import export\n")
    assert "hint: MindSpore 2.10 has mindspore.export, graphcell does not have it yet" in run("run", str(path)).stderr
    path.write_text("raise SystemExit(7)\n")
    assert run("run", str(path)).returncode == 7


@pytest.mark.parametrize("statement", ["ms.dataset, ms.mint", "import mindspore.dataset, mindspore.mint", "from mindspore import mint, dataset"])
def test_classes_of_packages_that_come_late_are_mindspores_too(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "late.py"
    path.write_text(f"import mindspore as ms\n{statement}\nprint(ms.dataset.NumpySlicesDataset, ms.mint.nn.GLU)\n")
    kinds = "dataset.engine.datasets_user_defined.NumpySlicesDataset", "mint.nn.layer.activation.GLU"
    assert run("run", str(path)).stdout == " ".join(f"<class 'mindspore.{kind}'>" for kind in kinds) + "\n"


def test_the_command_line_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "nothing.py"]) == 2
    assert "there is no file nothing.py" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([])
    with pytest.raises(SystemExit):
        main(["run"])
    assert capsys.readouterr().err.endswith("the following arguments are required: script\n")
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0 and graphcell.__version__ in capsys.readouterr().out


def test_optimizers_that_come_late_print_with_the_path_that_mindspore_has(installed: None) -> None:
    from mindspore import mint
    from mindspore.experimental import optim
    from mindspore.experimental.optim.lr_scheduler import StepLR

    assert optim is graphcell.experimental.optim and mint.optim is graphcell.mint.optim and StepLR is optim.lr_scheduler.StepLR
    assert str(optim.Adam) == "<class 'mindspore.experimental.optim.adam.Adam'>" and str(mint.optim.SGD) == "<class 'mindspore.mint.optim.sgd.SGD'>"
    assert str(StepLR) == "<class 'mindspore.experimental.optim.lr_scheduler.StepLR'>"
