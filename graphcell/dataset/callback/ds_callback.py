"""`DSCallback`: functions that a `map` calls before and after passes and rows, in the thread that makes the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from graphcell.dataset.core.columns import user_error
from graphcell.dataset.engine.checks import check_int, check_type
from graphcell.records import dataclass

T = TypeVar("T")


@dataclass
class CallbackParam:
    """Where the `map` is: the pass (from 1), the row in it, and the row since the iterator began; before the first ones 0."""

    cur_epoch_num: int = 0
    cur_step_num_in_epoch: int = 0
    cur_step_num: int = 0


class DSCallback:
    """Base of callbacks: subclasses override what they want to be told. Each method gets a `CallbackParam`.

    Args:
        step_size: of so many rows, only the first is told. Default 1.

    Raises:
        TypeError, ValueError: step_size is no int above 0.
    """

    def __init__(self, step_size: int = 1):
        self.step_size = check_int("step_size", step_size, 1)

    def ds_begin(self, ds_run_context: CallbackParam) -> None:
        """Called before the first pass."""

    def ds_epoch_begin(self, ds_run_context: CallbackParam) -> None:
        """Called before each pass."""

    def ds_epoch_end(self, ds_run_context: CallbackParam) -> None:
        """Called after each pass."""

    def ds_step_begin(self, ds_run_context: CallbackParam) -> None:
        """Called before a row is made."""

    def ds_step_end(self, ds_run_context: CallbackParam) -> None:
        """Called after a row was made."""


class Callbacks:
    """The callbacks of one `map`.

    Raises:
        TypeError: they are no DSCallback, nor a list of them.
    """

    def __init__(self, callbacks: Any):
        check_type("callbacks", callbacks, (list, DSCallback))
        self._all: list[DSCallback] = callbacks if isinstance(callbacks, list) else [callbacks]
        for k, callback in enumerate(self._all):
            check_type(f"callbacks[{k}]", callback, DSCallback)

    def around(self, function: Callable[[T], Any], items: Iterable[T], param: CallbackParam) -> Iterator[Any]:
        """`map(function, items)` for one pass, with all calls; `param` goes on from pass to pass."""
        if not param.cur_epoch_num:
            self._call("ds_begin", param)
        param.cur_epoch_num, param.cur_step_num_in_epoch = param.cur_epoch_num + 1, 0
        self._call("ds_epoch_begin", param)
        for item in items:
            param.cur_step_num, param.cur_step_num_in_epoch = param.cur_step_num + 1, param.cur_step_num_in_epoch + 1
            self._call("ds_step_begin", param)
            made = function(item)
            self._call("ds_step_end", param)
            yield made
        self._call("ds_epoch_end", param)

    def _call(self, event: str, param: CallbackParam) -> None:
        for callback in self._all:
            if "step" in event and (param.cur_step_num_in_epoch - 1) % callback.step_size:
                continue
            try:
                getattr(callback, event)(param)
            except Exception as e:
                raise user_error(e, event) from e
