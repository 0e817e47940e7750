"""`dataclass` as the standard library has it, but quick to make.

For a frozen class the standard library writes and compiles six methods, two thirds of a millisecond; graphcell has some three hundred such classes, most of
which an import or a first call needs. Here `__init__` alone is written; the other methods are the same code for all classes. They know `frozen`, `eq`, `slots`
and `weakref_slot`, and fields with `default`, `default_factory`, `init`, `repr`, `compare` and `metadata`.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
import reprlib
from collections.abc import Callable, Sequence
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
    methods: dict[str, Any] = {}
    inherits = not inspect.get_annotations(cls) and "__post_init__" not in own and hasattr(cls.__base__, "__dataclass_fields__")
    if not inherits:
        methods["__init__"] = _initializer(fields, frozen and slots, frozen and not slots, hasattr(cls, "__post_init__"))
    if repr:
        methods["__repr__"] = _printer([f.name for f in fields if f.repr])
    if eq:
        methods.update(_comparers([f.name for f in fields if f.compare], frozen))
        if own.get("__hash__") is not None or ("__hash__" in own and "__eq__" not in own):
            del methods["__hash__"]
    if frozen:
        methods.update(__setattr__=_refuse_to_set, __delattr__=_refuse_to_delete)
        if slots:
            methods.update(__getstate__=_state, __setstate__=_set_state)
    for name, method in methods.items():
        if name not in own or (name == "__hash__" and own[name] is None):
            setattr(made, name, method)
    return made  # type: ignore[no-any-return]


# -- the methods -----------------------------------------------------------------------------------------------------
def _initializer(fields: Sequence[Field], by_object: bool, by_dict: bool, is_followed: bool) -> Callable[..., None]:
    """`__init__` that takes these fields, by position or name. How it sets them: past the guard of a frozen class by `object` or by the instance's
    `__dict__`.
    """
    scope: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    arguments, lines = ["self"], [" state = self.__dict__"] if by_dict else []
    for f in fields:
        value = f.name
        if f.default is not dataclasses.MISSING:
            scope[f"_default_{f.name}"] = f.default
            arguments += [f"{f.name}=_default_{f.name}"] if f.init else []
            value = f.name if f.init else f"_default_{f.name}"
        elif f.default_factory is not dataclasses.MISSING:
            scope[f"_make_{f.name}"] = f.default_factory
            arguments += [f"{f.name}=_missing"] if f.init else []
            value = f"_make_{f.name}() if {f.name} is _missing else {f.name}" if f.init else f"_make_{f.name}()"
        elif f.init:
            arguments.append(f.name)
        else:
            continue  # for `__post_init__` to set
        if by_object:
            lines.append(f" _set(self, {f.name!r}, {value})")
        else:
            lines.append(f" state[{f.name!r}] = {value}" if by_dict else f" self.{f.name} = {value}")
    lines += [" self.__post_init__()"] if is_followed else []
    exec("\n".join([f"def __init__({', '.join(arguments)}):", *(lines or [" pass"])]), scope)
    return scope["__init__"]  # type: ignore[no-any-return]


def _printer(names: Sequence[str]) -> Callable[[Any], str]:
    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _comparers(names: Sequence[str], frozen: bool) -> dict[str, Any]:
    values = _values_of(names)

    def __eq__(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}


def _values_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the fields of these names as a tuple."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    if not names:
        return lambda record: ()
    one = operator.attrgetter(*names)
    return lambda record: (one(record),)


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for f, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)
