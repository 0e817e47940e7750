"""What all tests share: graphs are verified around every pass, the configuration is put back, golden files
can be renewed.
"""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Iterator

import pytest

# Eager results are those of the ops' own `eval`, to the bit; tests/ops/test_kernels.py has the kernels that may take their place.
os.environ.setdefault("GRAPHCELL_EAGER_KERNELS", "0")

from graphcell.context import config


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
