"""What `frozen` makes of classes of ops, beside what `dataclass(frozen=True)` makes."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from graphcell.ir.op import Op, frozen
from graphcell.ops.reduction import ReduceSum


def test_frozen_makes_what_a_frozen_dataclass_is() -> None:
    @frozen
    class Sized(Op):
        """An op of two fields, one with a default."""

        shape: tuple[int, ...]
        fill: float = 1.5

    @frozen
    class Plain(Op):
        """Without fields."""

    @frozen
    class Named(Sized):
        """With one of its own."""

        label: str = "x"

    @dataclasses.dataclass(frozen=True)
    class Reference:
        shape: tuple[int, ...]
        fill: float = 1.5

    one = Sized((2,), fill=3.0)
    assert one == Sized((2,), 3.0) != Sized((2,)) and hash(one) == hash(Sized((2,), 3.0)) == hash(Reference((2,), 3.0))
    assert repr(one).replace(Sized.__qualname__, "Reference") == repr(Reference((2,), 3.0)).replace(Reference.__qualname__, "Reference")
    assert one != Named((2,), 3.0) and Named((2,)).label == "x" and Plain() == Plain() and repr(Plain()).endswith("Plain()")
    assert dataclasses.replace(one, fill=2.0) == Sized((2,), 2.0) and dataclasses.asdict(one) == {"shape": (2,), "fill": 3.0}
    assert pickle.loads(pickle.dumps(ReduceSum((0,), True))) == ReduceSum((0,), True) and copy.deepcopy(one) == one
    for change in (lambda: setattr(one, "fill", 4.0), lambda: setattr(one, "other", 4.0), lambda: delattr(one, "fill")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    for wrong in (lambda: Sized(), lambda: Sized((2,), 1.0, 2.0), lambda: Sized((2,), kind=1)):  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            wrong()
