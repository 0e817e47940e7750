"""`Primitive`: the base of MindSpore's primitive classes, which are made with settings and then called like functions.

Primitives here are thin: calling one calls the function of `ops` that does the work. Their attributes say how they were made.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from graphcell.errors import ArgumentTypeError, ArgumentValueError, NotImplementedFeatureError

__all__ = ["Primitive", "PrimitiveWithCheck", "PrimitiveWithInfer", "prim_attr_register"]

F = TypeVar("F", bound=Callable[..., Any])


class Primitive:
    """An operation with settings. Subclasses define `__call__` (or `construct`).

    Args:
        name: the name of the operation.

    Raises:
        TypeError: when called without a definition.
    """

    def __init__(self, name: str):
        self.name = name
        self.attrs: dict[str, Any] = {}
        self.instance_name = ""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Settings are attributes of the names that the constructor takes."""

    def __call__(self, *args: Any) -> Any:
        construct = getattr(self, "construct", None)
        if construct is None:
            raise NotImplementedFeatureError(f"the primitive {self.name} has no definition here", hint="use functions of ops")
        return construct(*args)

    def __repr__(self) -> str:
        listed = ", ".join(f"{k}={v}" for k, v in self.attrs.items())
        return f"Prim[{self.name}]<{listed}>" if listed else f"Prim[{self.name}]"

    # -- attributes --------------------------------------------------------------------------------------------------
    def add_prim_attr(self, name: str, value: Any) -> Self:
        """Adds an attribute; returns this primitive."""
        self.__dict__[name] = value
        self.attrs[name] = value
        return self

    def del_prim_attr(self, name: str) -> Self:
        """Removes an attribute, if it is there; returns this primitive."""
        if name in self.attrs:
            del self.attrs[name]
            self.__dict__.pop(name, None)
        return self

    def add_attr(self, name: str, value: Any) -> Self:
        """The same as `add_prim_attr`."""
        return self.add_prim_attr(name, value)

    def del_attr(self, name: str) -> Self:
        """The same as `del_prim_attr`."""
        return self.del_prim_attr(name)

    def get_attr_dict(self) -> dict[str, Any]:
        """The attributes."""
        return dict(self.attrs)

    def init_prim_io_names(self, inputs: list[str], outputs: list[str]) -> None:
        """Names the inputs and outputs."""
        self.add_prim_attr("input_names", inputs)
        self.add_prim_attr("output_names", outputs)

    def set_prim_instance_name(self, name: str) -> Self:
        """Sets `instance_name`; returns this primitive."""
        self.instance_name = name
        return self

    def set_device(self, device_target: str) -> Self:
        """Keeps the name of a device; everything runs on the CPU. Returns this primitive."""
        return self.add_prim_attr("primitive_target", device_target)

    def place(self, role: str, rank_id: int) -> None:
        """Does nothing: there is one process.

        Raises:
            TypeError, ValueError: arguments that MindSpore refuses.
        """
        if not isinstance(rank_id, int):
            raise ArgumentTypeError(f"the argument 'rank_id' must be int, but got {type(rank_id)}")
        if role != "MS_WORKER":
            raise ArgumentValueError(f"the argument 'role' must be 'MS_WORKER', but got {role!r}")

    def shard(self, in_strategy: Any = None, out_strategy: Any = None) -> Self:
        """Keeps how the inputs are to be split over devices, of which there is one; returns this primitive.

        Raises:
            TypeError: a strategy is no tuple. ValueError: in_strategy is None and out_strategy is not.
        """
        for name, strategy in (("in_strategy", in_strategy), ("out_strategy", out_strategy)):
            if strategy is not None and not isinstance(strategy, tuple):
                raise ArgumentTypeError(f"For '{self.name}', {name} should be tuple type, but got:{type(strategy).__name__}")
        if in_strategy is None and out_strategy is not None:
            raise ArgumentValueError(
                f"For '{self.name}', the out_strategy is {out_strategy}, need to set in_strategy, but got none"
            )
        self.add_prim_attr("in_strategy", in_strategy)
        return self.add_prim_attr("out_strategy", out_strategy)

    def recompute(self, mode: bool = True) -> Self:
        """Asks that the result be computed again in the backward pass instead of being kept; values do not change. Returns this primitive.

        Raises:
            TypeError: mode is no bool.
        """
        if not isinstance(mode, bool):
            raise ArgumentTypeError(f"For '{self.name}', the 'mode' of recompute must be bool, but got {type(mode).__name__}")
        return self.add_prim_attr("recompute", mode)

    def set_stage(self, stage: int) -> Self:
        """Keeps a pipeline stage; returns this primitive."""
        return self.add_prim_attr("stage", stage)


PrimitiveWithCheck = Primitive
PrimitiveWithInfer = Primitive


def prim_attr_register(init: F) -> F:
    """Decorates a primitive's `__init__`: names the primitive after its class, and makes its arguments attributes.

    Call it on subclasses of `Primitive`; `super().__init__` need not be called.
    """
    signature = inspect.signature(init)

    @functools.wraps(init)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        Primitive.__init__(self, type(self).__name__)
        for name, value in list(bound.arguments.items())[1:]:
            self.add_prim_attr(name, value)
        return init(self, *args, **kwargs)

    return wrapped  # type: ignore[return-value]


class Plain(Primitive):
    """A primitive without settings: `function` does the work."""

    function: ClassVar[Callable[..., Any]]

    def __init__(self) -> None:
        super().__init__(type(self).__name__)

    def __call__(self, *args: Any) -> Any:
        return type(self).function(*args)


class Configured(Primitive):
    """A primitive whose settings are the keyword arguments of its `__init__`, kept as attributes."""

    def __init__(self, **settings: Any):
        super().__init__(type(self).__name__)
        for name, value in settings.items():
            self.add_prim_attr(name, value)
