"""What all tests share: graphs are verified around every pass, the configuration is put back, random numbers are the same in every run
(`--hypothesis-profile=default` lets Hypothesis look for new cases), golden files can be renewed.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest

# Eager results are those of the ops' own `eval`, to the bit; tests/ops/test_kernels.py has the kernels that may take their place.
os.environ.setdefault("GRAPHCELL_EAGER_KERNELS", "0")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells leave it for what they start in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

from graphcell.codegen import lower
from graphcell.common.seed import _State, set_seed
from graphcell.context import GRAPH_MODE, config
from graphcell.jit import jit
from tests.helpers import in_graph

# Nor does anything depend on how long it takes.
hypothesis.settings.register_profile(
    "reproducible", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("reproducible")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write what the tests get into the golden files"
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """True if golden files are to be written instead of compared."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(autouse=True)
def default_config(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test starts from the configuration of a fresh process, with the verifier on, and leaves it so."""
    for variable in ("MS_DEV_SAVE_GRAPHS", "MS_DEV_SAVE_GRAPHS_PATH"):
        monkeypatch.delenv(variable, raising=False)
    before = copy.deepcopy(config)
    config.verify = True
    yield
    for field in dataclasses.fields(config):
        setattr(config, field.name, getattr(before, field.name))


@pytest.fixture(autouse=True)
def memory_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporaries share memory as those of large programs do, whose plan small ones test; tests/codegen/test_memory.py has them lie apart."""
    monkeypatch.setattr(lower, "_APART", 0)


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """Every test starts from the same random numbers, though no seed is set as far as it can tell."""
    set_seed(0)
    _State.seed = _State.data_seed = None


@pytest.fixture(params=["tape", "graph", "jit", "graph mode"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Calls a function eagerly, inside a graph that is then evaluated, inside a compiled function, or in GRAPH_MODE, where gradient functions
    compile themselves."""
    if request.param == "graph":
        return in_graph
    if request.param == "jit":
        return lambda fn, *args: jit(lambda *args: fn(*args))(*args)
    if request.param == "graph mode":
        config.mode = GRAPH_MODE
    return lambda fn, *args: fn(*args)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that are compiled from now on."""
    from graphcell.runtime import executable

    seen: list[Any] = []
    compile_program = executable.compile_program

    def counted(graph: Any, *args: Any) -> Any:
        seen.append(graph)
        return compile_program(graph, *args)

    monkeypatch.setattr(executable, "compile_program", counted)
    return seen
