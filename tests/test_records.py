"""Records behave as the standard library's dataclasses do, which are the reference here."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from graphcell import records

MAKERS = [dataclasses.dataclass, records.make]
OPTIONS = [{}, {"frozen": True}, {"slots": True}, {"frozen": True, "slots": True}, {"eq": False}, {"frozen": True, "eq": False}, {"repr": False},
           {"slots": True, "weakref_slot": True}]  # fmt: skip


def point(make: Callable[..., Any], options: dict[str, Any]) -> Any:
    class Point:
        """A point."""

        kind: ClassVar[str] = "point"
        x: int
        y: float = 0.5
        tags: list[str] = dataclasses.field(default_factory=list)
        hidden: int = dataclasses.field(default=3, repr=False, compare=False, metadata={"role": "secret"})
        made: int = dataclasses.field(default=7, init=False)
        also_made: list[int] = dataclasses.field(default_factory=lambda: [1], init=False)

        def sum(self) -> float:
            return self.x + self.y

    return make(Point, **options)


@pytest.fixture(params=OPTIONS, ids=str)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return point(dataclasses.dataclass, request.param), point(records.make, request.param)


def outcome(action: Callable[[], Any]) -> Any:
    """What an action gives, or the class of its error."""
    try:
        return action()
    except Exception as error:
        return type(error)


def test_signature_fields_and_documentation(pair: tuple[Any, Any]) -> None:
    ours, theirs = (dataclasses.fields(cls) for cls in pair)
    assert [(f.name, f.init, f.repr, f.compare, dict(f.metadata)) for f in ours] == [(f.name, f.init, f.repr, f.compare, dict(f.metadata)) for f in theirs]
    assert pair[0].__doc__ == pair[1].__doc__ and pair[0].__match_args__ == pair[1].__match_args__
    assert list(inspect.signature(pair[0]).parameters) == list(inspect.signature(pair[1]).parameters)
    assert inspect.signature(pair[1]).parameters["y"].default == 0.5


@pytest.mark.parametrize("arguments", [(1,), (1, 2.5), (1, 2.5, ["a"]), (1, 2.5, ["a"], 9), (), (1, 2, 3, 4, 5)])
def test_construction(pair: tuple[Any, Any], arguments: tuple[Any, ...]) -> None:
    def made(cls: Any) -> Any:
        p = cls(*arguments)
        return [getattr(p, f.name) for f in dataclasses.fields(cls)], p.sum(), p.kind

    assert outcome(lambda: made(pair[0])) == outcome(lambda: made(pair[1]))
    assert outcome(lambda: pair[1](x=4, hidden=1).hidden) == 1
    assert outcome(lambda: pair[1](x=4, made=1)) is TypeError


def test_defaults_that_are_made_are_made_anew(pair: tuple[Any, Any]) -> None:
    one, two = pair[1](1), pair[1](1)
    one.tags.append("a")
    assert two.tags == [] and one.also_made is not two.also_made


def test_comparison_hash_and_text(pair: tuple[Any, Any]) -> None:
    for other in ((1, 0.5), (2, 0.5), (1, 0.5, [], 99)):
        assert (pair[0](1) == pair[0](*other)) == (pair[1](1) == pair[1](*other))
    assert outcome(lambda: hash(pair[0](1, 2.0, ()))) is TypeError or isinstance(hash(pair[1](1, 2.0, ())), int)  # type: ignore[comparison-overlap]
    assert (pair[0].__hash__ is None) == (pair[1].__hash__ is None)
    assert pair[1](1) != pair[0](1) and pair[1](1) != 1
    if "Point(" in repr(pair[0](1)):
        assert repr(pair[0](1, 2.5)) == repr(pair[1](1, 2.5))
    else:
        assert "object at" in repr(pair[1](1))


def test_hash_is_that_of_what_is_compared() -> None:
    @records.dataclass(frozen=True)
    class Pair:
        """Two numbers."""

        a: int
        b: int = 2
        note: str = dataclasses.field(default="", compare=False)

    assert hash(Pair(1)) == hash(Pair(1, 2, "x")) == hash((1, 2)) and {Pair(1): 5}[Pair(1, 2, "y")] == 5
    assert Pair(1) != Pair(2)


def test_assignment(pair: tuple[Any, Any]) -> None:
    def assign(cls: Any, name: str) -> Any:
        p = cls(1)
        setattr(p, name, 5)
        return getattr(p, name)

    def delete(cls: Any) -> None:
        p = cls(1)
        del p.x

    for name in ("x", "new"):
        ours, theirs = outcome(lambda name=name: assign(pair[1], name)), outcome(lambda name=name: assign(pair[0], name))
        assert ours == theirs or {ours, theirs} <= {TypeError, AttributeError, dataclasses.FrozenInstanceError}
    assert outcome(lambda: delete(pair[1])) == outcome(lambda: delete(pair[0]))
    assert hasattr(pair[1](1), "__dict__") == hasattr(pair[0](1), "__dict__")


def test_replacement_copies_and_references(pair: tuple[Any, Any]) -> None:
    p = pair[1](1, 2.0, ["a"])
    q = dataclasses.replace(p, x=5)
    assert (q.x, q.y, q.tags) == (5, 2.0, ["a"]) and p.x == 1
    assert dataclasses.asdict(p) == dataclasses.asdict(pair[0](1, 2.0, ["a"]))
    for twin in (copy.copy(p), copy.deepcopy(p)):
        assert (twin.x, twin.y, twin.tags, twin.made) == (1, 2.0, ["a"], 7)
    assert copy.deepcopy(p).tags is not p.tags
    assert outcome(lambda: type(weakref.ref(pair[0](1)))) == outcome(lambda: type(weakref.ref(pair[1](1))))


@records.dataclass(frozen=True, slots=True)
class Pickled:
    """In a module, so that pickle finds it."""

    x: int
    y: tuple[int, ...] = ()


def test_pickling() -> None:
    p = Pickled(3, (4, 5))
    q = pickle.loads(pickle.dumps(p))
    assert q == p and q is not p and repr(q) == "Pickled(x=3, y=(4, 5))"


@pytest.mark.parametrize("make", MAKERS)
def test_own_methods_stay(make: Callable[..., Any]) -> None:
    class Own:
        """Has its own."""

        x: int

        def __repr__(self) -> str:
            return "mine"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 11

    made = make(Own, frozen=True)
    assert repr(made(1)) == "mine" and made(1) == made(2) and hash(made(3)) == 11


@pytest.mark.parametrize("make", MAKERS)
def test_own_comparison_alone_takes_the_hash_of_the_fields(make: Callable[..., Any]) -> None:
    class Own:
        """Has its own."""

        x: int

        def __eq__(self, other: object) -> bool:
            return True

    assert hash(make(Own, frozen=True)(4)) == hash((4,))


@pytest.mark.parametrize("make", MAKERS)
def test_inheritance_and_what_follows_construction(make: Callable[..., Any]) -> None:
    class Base:
        """The base."""

        x: int
        seen: list[str] = dataclasses.field(default_factory=list)

        def __post_init__(self) -> None:
            self.seen.append("base")

    class Middle(make(Base)):  # type: ignore[misc]
        """Adds nothing."""

    class Derived(make(Middle)):  # type: ignore[misc]
        """Adds a field."""

        z: int = 4

        def __post_init__(self) -> None:
            super().__post_init__()
            self.seen.append("derived")

    derived = make(Derived)
    assert [f.name for f in dataclasses.fields(derived)] == ["x", "seen", "z"]
    d = derived(1, z=9)
    assert (d.x, d.z, d.seen) == (1, 9, ["base", "derived"]) and d != derived(1, z=8)
    assert make(Middle)(5).seen == ["base"]


@pytest.mark.parametrize("make", MAKERS)
def test_text_of_a_record_that_holds_itself(make: Callable[..., Any]) -> None:
    class Node:
        """Holds others."""

        inside: list[Any]

    node = make(Node)([])
    node.inside.append(node)
    assert repr(node).endswith("Node(inside=[...])")


@pytest.mark.parametrize("options", [{}, {"frozen": True}, {"frozen": True, "slots": True}], ids=str)
@pytest.mark.parametrize("make", MAKERS)
def test_fields_of_any_name(make: Callable[..., Any], options: dict[str, Any]) -> None:
    """Also of those that `__init__` needs for itself."""
    names = ("self", "state", "_set", "_missing", "_default_x", "_make_tags", "object", "cls")
    plain = type("Named", (), {"__annotations__": {name: int for name in names}, "__doc__": "Named."})
    record = make(plain, **options)(*range(len(names)))
    assert [getattr(record, name) for name in names] == list(range(len(names)))

    class Defaults:
        """With values that are there already."""

        _default_x: int
        _make_tags: int
        x: int = 3
        tags: list[int] = dataclasses.field(default_factory=list)

    other = make(Defaults, **options)(1, 2)
    assert (other._default_x, other._make_tags, other.x, other.tags) == (1, 2, 3, [])


@pytest.mark.parametrize("make", MAKERS)
def test_fields_by_name_only_and_fields_of_the_hash(make: Callable[..., Any]) -> None:
    class Pair:
        """Two numbers and a note."""

        first: int = dataclasses.field(default=1, kw_only=True)
        second: int = 2
        note: str = dataclasses.field(default="", hash=False)

    made = make(Pair, frozen=True)
    assert (made(5).first, made(5).second) == (1, 5) and outcome(lambda: made(1, "", 2)) is TypeError
    assert hash(made(5, "a")) == hash(made(5, "b")) and made(5, "a") != made(5, "b")


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(("base", "own"), [({"slots": True}, {}), ({}, {"slots": True}), ({"slots": True}, {"slots": True})], ids=str)
def test_slots_of_a_base(make: Callable[..., Any], base: dict[str, Any], own: dict[str, Any]) -> None:
    class Base:
        """The base."""

        x: int

    class Derived(make(Base, frozen=True, **base)):  # type: ignore[misc]
        """Adds a field."""

        y: int

    d = make(Derived, frozen=True, **own)(1, 2)
    assert (d.x, d.y) == (1, 2) and outcome(lambda: setattr(d, "x", 5)) is dataclasses.FrozenInstanceError


@pytest.mark.parametrize("make", MAKERS)
def test_classes_without_fields_of_their_own_take_those_of_all_bases(make: Callable[..., Any]) -> None:
    class One:
        """A base."""

        x: int = 1

    class Two:
        """Another."""

        y: int = 2

    class Both(make(One), make(Two)):  # type: ignore[misc]
        """Adds nothing."""

    class Follows(make(One)):  # type: ignore[misc]
        """No record itself."""

        def __init__(self) -> None:
            self.x = 99

        def __post_init__(self) -> None:
            self.seen = self.x

    class Last(Follows):
        """Adds nothing."""

    both = make(Both)(5, 6)
    assert (both.x, both.y) == (6, 5)
    assert make(Last)(3).seen == 3


@pytest.mark.parametrize("make", MAKERS)
def test_classes_derived_from_a_frozen_one_may_have_more(make: Callable[..., Any]) -> None:
    class Base:
        """The base."""

        x: int = 1

    class Derived(make(Base, frozen=True)):  # type: ignore[misc]
        """No record itself."""

        def __init__(self) -> None:
            super().__init__(3)
            self.more = 4
            del self.more
            self.more = 5

    d = Derived()
    assert (d.x, d.more) == (3, 5)
    assert outcome(lambda: setattr(d, "x", 5)) is outcome(lambda: delattr(d, "x")) is dataclasses.FrozenInstanceError


@pytest.mark.parametrize("make", MAKERS)
def test_errors_of_construction_name_the_class(make: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing 1 required positional argument: 'x'"):
        point(make, {})()


@pytest.mark.parametrize("options", [{}, {"frozen": True}, {"frozen": True, "slots": True}], ids=str)
def test_init_is_written_for_the_first_record(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    original = records._initializer
    monkeypatch.setattr(records, "_initializer", lambda *args: written.append(args) or original(*args))
    made = point(records.make, options)
    assert not written
    assert made(1).x == 1 and made(2, 3.0).sum() == 5.0 and len(written) == 1
    assert made.__init__.__qualname__.endswith("Point.__init__") and inspect.isfunction(vars(made)["__init__"])


@pytest.mark.parametrize("make", MAKERS)
def test_an_init_that_somebody_puts_in_its_place_stays(make: Callable[..., Any]) -> None:
    made = point(make, {})
    original = made.__init__

    def init(self: Any, x: int) -> None:
        original(self, 10 * x)

    made.__init__ = init
    assert made(1).x == 10 and made(2).x == 20 and made.__init__ is init
    derived = type("Derived", (made,), {"__init__": lambda self: super(derived, self).__init__(3)})
    assert derived().x == 30


def test_an_init_that_somebody_puts_in_place_of_one_not_yet_written_stays() -> None:
    made = point(records.make, {})
    late = vars(made)["__init__"]

    def init(self: Any, x: int) -> None:
        self.x = -x

    made.__init__ = init
    late.__get__(None, made)
    assert made.__init__ is init and made(1).x == -1


def test_the_first_record_may_be_that_of_a_derived_class() -> None:
    made = point(records.make, {})
    derived = type("Derived", (made,), {})
    assert derived(1).x == 1 and "__init__" not in vars(derived) and inspect.isfunction(vars(made)["__init__"])


@pytest.mark.parametrize("make", MAKERS)
def test_inits_of_ones_own_stay_and_others_are_of_the_module(make: Callable[..., Any]) -> None:
    class Own:
        """Has an `__init__`."""

        x: int

        def __init__(self, x: int) -> None:
            self.x = x + 1

    assert make(Own)(1).x == 2
    assert point(make, {}).__init__.__module__ == __name__


@pytest.mark.parametrize("make", MAKERS)
def test_classes_derived_from_a_frozen_one_with_slots_may_define_its_fields_anew(make: Callable[..., Any]) -> None:
    class Base:
        """The base."""

        x: int

    base = make(Base, frozen=True, slots=True)
    assert base(7).x == 7
    assert type("Plain", (base,), {"x": 5})(7).x == 7
    assert type("Slots", (base,), {"__slots__": ("x",)})(7).x == 7
    assert outcome(lambda: type("Fixed", (base,), {"x": property(lambda self: 5)})(7)) is AttributeError
    seen: list[int] = []
    type("Told", (base,), {"x": property(lambda self: 5, lambda self, value: seen.append(value))})(7)
    assert seen == [7]

    class Derived(base):  # type: ignore[misc]
        """A record with its own."""

        x: int = 5

        def __init__(self) -> None:
            super().__init__(7)

    assert make(Derived, frozen=True)().x == 7


@pytest.mark.parametrize("make", MAKERS)
def test_arguments_without_default_after_others_are_refused_with_the_class(make: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="non-default argument 'y' follows default argument"):
        make(type("Wrong", (), {"__annotations__": {"x": int, "y": int}, "x": 1}))
    base = make(type("Base", (), {"__annotations__": {"x": int}, "x": 1}))
    with pytest.raises(TypeError, match="non-default argument 'y' follows default argument"):
        make(type("Derived", (base,), {"__annotations__": {"y": int}}))
    last = {"__annotations__": {"y": int}, "y": dataclasses.field(kw_only=True)}
    assert make(type("ByName", (base,), last))(y=2).y == 2


def test_threads_may_make_the_first_record_at_once() -> None:
    for _ in range(20):
        made = point(records.make, {"frozen": True, "slots": True})
        with ThreadPoolExecutor(4) as pool:
            assert [p.x for p in pool.map(made, range(8))] == list(range(8))


def test_it_is_quick() -> None:
    """Not a measurement: nothing is compiled but `__init__`."""
    calls = []
    original = dataclasses._create_fn if hasattr(dataclasses, "_create_fn") else None
    if original is None:
        pytest.skip("this Python makes methods in another way")
    try:
        dataclasses._create_fn = lambda *a, **k: calls.append(a) or original(*a, **k)
        point(records.make, {"frozen": True, "slots": True})
        assert not calls
    finally:
        dataclasses._create_fn = original
