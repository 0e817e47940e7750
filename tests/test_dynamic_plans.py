"""Which plans functions for any number of rows keep, of those whose rows meet in sums above all: results stay right whatever came before and was let go of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphcell as gc
from graphcell.dynamic import Known
from graphcell.dynamic_stages import KnownInStages
from tests.test_dynamic_stages import FEW, Computed, declared, remark, vectors


@pytest.fixture(autouse=True)
def graph_mode() -> Iterator[None]:
    gc.set_context(mode=gc.GRAPH_MODE)
    yield
    gc.set_context(mode=gc.PYNATIVE_MODE)


@pytest.mark.parametrize("first", [KnownInStages.reference, 77])
def test_as_many_rows_as_the_graph_of_comparison(first: int) -> None:
    net = Computed(lambda x: (x - x.sum(0), x.sum(0)))
    declared(net, (vectors(2),))
    for rows in (first, KnownInStages.reference, 77, 33):
        x = vectors(rows)
        centred, total = net(x)
        np.testing.assert_allclose(total.asnumpy(), x.asnumpy().sum(0), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(centred.asnumpy(), x.asnumpy() - x.asnumpy().sum(0), rtol=1e-4, atol=1e-4)
        assert remark(net).startswith("compiled for blocks of rows, ")


def test_as_many_rows_as_the_graph_of_comparison_where_few_rows_are_special() -> None:
    """It does not matter whether other numbers of rows came before."""
    found = []
    x = vectors(KnownInStages.reference)
    for before in ((), (77,)):
        net = Computed(lambda x: x.sum(0) if x.shape[0] != 8 else x.sum(0) + 1)
        declared(net, (vectors(2),))
        for rows in before:
            net(vectors(rows))
        found.append(net(x).asnumpy().tobytes())
        assert remark(net).startswith("compiled for blocks of rows, in ")
    assert found[0] == found[1]


def test_a_block_used_for_fewer_rows_leaves_workspaces_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread might bind one just then."""
    monkeypatch.setattr("graphcell.dynamic_stages.sizes_in_stages", lambda *given: FEW)
    net = Computed(lambda x: x - x.sum(0))
    declared(net, (vectors(2),))
    net(vectors(48))
    dynamic: Any = net._dynamic  # type: ignore[attr-defined]
    (space,) = dynamic._known[0]._staged._native[True].home.made.values()
    ready = [state.ready for state in (space.state, *(part.state for part in space.parts))]
    dynamic._find_out((vectors(40),), 40)
    assert [state.ready for state in (space.state, *(part.state for part in space.parts))] == ready
    x = vectors(40)
    np.testing.assert_allclose(net(x).asnumpy(), x.asnumpy() - x.asnumpy().sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kind", "function"), [(Known, lambda x: x + 1), (KnownInStages, lambda x: x - x.sum(0))])
def test_the_graph_of_comparison_is_not_let_go_of(monkeypatch: pytest.MonkeyPatch, kind: type[Known], function: Callable[[Any], Any]) -> None:
    monkeypatch.setattr("graphcell.dynamic._KEPT_PLANS", 3)
    net = Computed(function)
    declared(net, (vectors(2),))
    remarks = []
    for rows in (kind.reference, 33, 35, 37, 39, kind.reference):
        x = vectors(rows)
        np.testing.assert_allclose(net(x).asnumpy(), function(x.asnumpy()), rtol=1e-4, atol=1e-4)
        remarks.append(remark(net))
    assert len(set(remarks)) == 1 and remarks[0].startswith("compiled for blocks of rows"), remarks


def test_plans_that_were_let_go_of_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the function with stages, which has fewer plans, has not let go of its own yet."""
    monkeypatch.setattr("graphcell.dynamic._KEPT_PLANS", 3)
    net = Computed(lambda x: x.sum(0) if x.shape[0] % 2 and x.shape[0] < 1000 else x + 1)  # what is even treats rows apart
    declared(net, (vectors(2),))
    for rows in (33, 34, 36, 38, 33, 40, 42, 33, 77, 33):
        x = vectors(rows)
        wanted = x.asnumpy().sum(0) if rows % 2 else x.asnumpy() + 1
        np.testing.assert_allclose(net(x).asnumpy(), wanted, rtol=1e-4, atol=1e-4)
        if rows % 2:
            assert remark(net).startswith("compiled for blocks of rows, "), remark(net)
