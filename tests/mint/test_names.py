"""The names of mint that MindSpore lists without a CPU: against what MindSpore 2.10 gave where it has a kernel all the same
(tests/programs/mint_functions.json, mint_network.json), else against what PyTorch gave (mint_functions_pytorch.json, …), whose functions these
are; and their arguments, and the layers' Parameters, against MindSpore's (mint_forms.json).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import graphcell as ms
from graphcell.context import PYNATIVE_MODE
from tests.expressions import call, call_layer
from tests.recording import PROGRAMS, caught, differences, encode, load, recorded

PEERS = ("", "_pytorch")
RECORDED = {name + peer: json.loads((PROGRAMS / f"{name}{peer}.json").read_text()) for name in ("mint_functions", "mint_network") for peer in PEERS}
CASES = [(name, peer, key) for name in ("mint_functions", "mint_network") for peer in PEERS for key in RECORDED[name + peer]]
COMPILED_AS_PYTHON = ("M.unique(", "M.bincount(")


def compare(name: str, peer: str, key: str, compiled: bool) -> None:
    ms.set_seed(1)
    ms.set_context(mode=PYNATIVE_MODE)
    program: Any = load(name)[key]
    run = call_layer if key.startswith("N.") else call
    found = encode(caught(lambda: run(ms, *program.args, compiled=compiled)))
    wrong = differences(RECORDED[name + peer][key], found)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("name", "peer", "key"), CASES)
def test_eager(name: str, peer: str, key: str) -> None:
    compare(name, peer, key, False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*runs as Python")
@pytest.mark.parametrize(("name", "peer", "key"), CASES)
def test_compiled(name: str, peer: str, key: str) -> None:
    compare(name, peer, key, True)


# -- arguments and Parameters ----------------------------------------------------------------------------------------------
FORMS = recorded("mint_forms")
OVERLOADED = {name for name, form in FORMS.items() if "(" not in name and any(argument[0] in ("args", "kwargs") for argument in form)}
PRINTED_OTHERWISE = {"BCELoss()": "without an inner loss", "SyncBatchNorm(3)": "without an inner layer for several processes"}


@pytest.mark.parametrize("name", [n for n in FORMS if "(" not in n and n not in OVERLOADED])
def test_arguments(name: str) -> None:
    found = load("mint_forms")[name](ms)
    assert found == FORMS[name]


@pytest.mark.parametrize("name", [n for n in FORMS if "(" in n])
def test_layers(name: str) -> None:
    text, parameters, kind = load("mint_forms")[name](ms)
    want_text, want_parameters, want_kind = FORMS[name]
    assert parameters == want_parameters and kind == want_kind
    assert text == want_text or name in PRINTED_OTHERWISE
