"""The worker pool, for the tests of it, and an op that calls Python."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from graphcell.ir.op import Op
from graphcell.runtime import threads
from graphcell.runtime.cache import DIRECTORY_VARIABLE
from tests.runtime.pool_harness import Kernels
from tests.runtime.support import CallsPython


@pytest.fixture(scope="session")
def kernels() -> Kernels:
    return Kernels()


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An object cache of their own, which processes that they start share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DIRECTORY_VARIABLE, str(tmp_path_factory.mktemp("objects")))
        yield


@pytest.fixture
def pool(own_cache: None) -> Iterator[threads.Pool]:
    """The pool, whose size is put back."""
    found = threads.pool()
    before = found.threads
    yield found
    found.resize(before)


@pytest.fixture(scope="module")
def calls_python_is_known() -> Iterator[None]:
    """In these tests alone."""
    Op.table[CallsPython.name] = CallsPython
    yield
    Op.table.pop(CallsPython.name, None)
