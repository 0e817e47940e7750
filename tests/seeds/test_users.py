"""Programs as users write them (tests/programs/users.py), against what MindSpore 2.10 gave for them."""

from __future__ import annotations

import pytest

from tests.recording import check, load

TOLERANCE = {"recurrent": 1e-3}  # MindSpore's float32 tanh is that far off


@pytest.mark.slow
@pytest.mark.parametrize("key", load("users"))
def test_users(mode: int, key: str) -> None:
    check("users", key, mode, TOLERANCE.get(key, 1e-4))
