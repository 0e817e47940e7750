"""`dataclass` as the standard library has it, but quick to make.

For a frozen class the standard library writes and compiles six methods, two thirds of a millisecond; graphcell has some three hundred such classes, most of
which an import or a first call needs. Here `__init__` alone is written, and only when the first record is made; the other methods are the same code for all
classes. They know `frozen`, `eq`, `slots` and `weakref_slot`, and fields with `default`, `default_factory`, `init`, `repr`, `compare`, `hash`, `kw_only` and
`metadata`; no `InitVar`.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import reprlib
from collections.abc import Callable, Sequence
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

Field = dataclasses.Field[Any]

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        """Like `dataclasses.dataclass`."""
        return (lambda made: make(made, **options)) if cls is None else make(cls, **options)


def make(cls: type, *, frozen: bool = False, eq: bool = True, repr: bool = True, slots: bool = False, weakref_slot: bool = False) -> type:
    """The dataclass of `cls`; for the options see `dataclasses.dataclass`."""
    own = dict(vars(cls))
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, weakref_slot=weakref_slot)(cls)
    fields = dataclasses.fields(made)
    has_slots = slots or any(vars(base).get("__slots__") for base in cls.__mro__)
    _check_order(fields)
    write = functools.partial(_initializer, made, fields, frozen and has_slots, frozen and not has_slots, hasattr(cls, "__post_init__"))
    methods: dict[str, Any] = {"__init__": _Late(made, write)}
    if repr:
        methods["__repr__"] = _printer([f.name for f in fields if f.repr])
    if eq:
        hashed = [f.name for f in fields if (f.compare if f.hash is None else f.hash)]
        methods.update(__eq__=_comparer([f.name for f in fields if f.compare]), __hash__=_hasher(hashed) if frozen else None)
        if own.get("__hash__") is not None or ("__hash__" in own and "__eq__" not in own):
            del methods["__hash__"]
    if frozen:
        methods.update(_guards(made, {f.name for f in fields}))
        if slots:
            methods.update(__getstate__=_state, __setstate__=_set_state)
    for name, method in methods.items():
        if name not in own or (name == "__hash__" and own[name] is None):
            setattr(made, name, method)
    return made  # type: ignore[no-any-return]


# -- the methods -----------------------------------------------------------------------------------------------------
class _Late:
    """Stands for `__init__` until somebody asks for it: of most classes, a process makes no record."""

    def __init__(self, made: type, write: Callable[[], Callable[..., None]]):
        self._made, self._write = made, write

    def __get__(self, record: object, owner: type | None = None) -> Callable[..., None]:
        written: Any = self._write()
        if vars(self._made).get("__init__") is self:  # nobody has put another in its place
            type.__setattr__(self._made, "__init__", written)
        return written if record is None else written.__get__(record, owner)  # type: ignore[no-any-return]


def _initializer(made: type, fields: Sequence[Field], by_object: bool, by_dict: bool, is_followed: bool) -> Callable[..., None]:
    """`__init__` that takes these fields, by position or name. How it sets them: past the guard of a frozen class by `object`, or for records of just
    this class by the slots themselves, which is quicker, or by the instance's `__dict__`. What is no field has a name that none in a class can have.
    """
    scope: dict[str, Any] = {"__name__": made.__module__, "__own": made, "__set": object.__setattr__, "__missing": dataclasses.MISSING}
    arguments: dict[bool, list[str]] = {False: ["__self"], True: []}
    values: dict[str, str] = {}
    for f in fields:
        taken, value = f.name, f.name
        if f.default is not dataclasses.MISSING:
            scope[f"__default_{f.name}"] = f.default
            taken, value = f"{f.name}=__default_{f.name}", f.name if f.init else f"__default_{f.name}"
        elif f.default_factory is not dataclasses.MISSING:
            scope[f"__make_{f.name}"] = f.default_factory
            taken, value = f"{f.name}=__missing", f"__make_{f.name}() if {f.name} is __missing else {f.name}" if f.init else f"__make_{f.name}()"
        elif not f.init:
            continue  # for `__post_init__` to set
        if f.init:
            arguments[bool(f.kw_only)].append(taken)
        values[f.name] = value
    slots = {name: slot for name in values if by_object and isinstance(slot := getattr(made, name, None), MemberDescriptorType)}
    if slots and len(slots) == len(values):
        scope.update((f"__set_{name}", slot.__set__) for name, slot in slots.items())
        quick = [f"  __set_{name}(__self, {value})" for name, value in values.items()]
        lines = [" if __self.__class__ is __own:", *quick, " else:", *(f"  __set(__self, {name!r}, {value})" for name, value in values.items())]
    elif by_object:
        lines = [f" __set(__self, {name!r}, {value})" for name, value in values.items()]
    elif by_dict:
        lines = [" __state = __self.__dict__", *(f" __state[{name!r}] = {value}" for name, value in values.items())]
    else:
        lines = [f" __self.{name} = {value}" for name, value in values.items()]
    lines += [" __self.__post_init__()"] if is_followed else []
    named = ["*", *arguments[True]] if arguments[True] else []
    exec("\n".join([f"def __init__({', '.join(arguments[False] + named)}):", *(lines or [" pass"])]), scope)
    scope["__init__"].__qualname__ = f"{made.__qualname__}.__init__"
    return scope["__init__"]  # type: ignore[no-any-return]


def _check_order(fields: Sequence[Field]) -> None:
    """Refuses, with the class, arguments that could not be left out: `__init__` itself is written later."""
    by_default = False
    for f in fields:
        if f.init and not f.kw_only:
            has_default = f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING
            if by_default and not has_default:
                raise TypeError(f"non-default argument {f.name!r} follows default argument")
            by_default = has_default


def _printer(names: Sequence[str]) -> Callable[[Any], str]:
    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _comparer(names: Sequence[str]) -> Callable[[Any, object], bool]:
    values = _values_of(names)

    def __eq__(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hasher(names: Sequence[str]) -> Callable[[Any], int]:
    values = _values_of(names)

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return __hash__


def _values_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the fields of these names as a tuple."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    if not names:
        return lambda record: ()
    one = operator.attrgetter(*names)
    return lambda record: (one(record),)


def _guards(cls: Any, names: set[str]) -> dict[str, Any]:
    """What refuses to change a record of `cls`; classes derived from it may have more than its fields."""

    def __setattr__(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for f, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)
