"""`Callback`, the base of all callbacks; `RunContext`, by which they see and steer a run; and the manager that calls them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, Self

import numpy as np

from graphcell.errors import ArgumentTypeError, MissingAttributeError
from graphcell.tensor import Tensor


class Callback:
    """Base class of callbacks: override the methods of the moments at which something shall be done.

    `on_train_*` are called in `Model.train` and `Model.fit`, `on_eval_*` in `Model.eval` and the evaluations of `Model.fit`; unless they are
    overridden they call the methods of the older names (`begin`, `step_end`, …). Around the whole run, `__enter__` and `__exit__` are called.
    """

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *err: object) -> None:
        return None

    def begin(self, run_context: RunContext) -> None:
        """Before the run."""

    def epoch_begin(self, run_context: RunContext) -> None:
        """Before each epoch."""

    def epoch_end(self, run_context: RunContext) -> None:
        """After each epoch."""

    def step_begin(self, run_context: RunContext) -> None:
        """Before each step."""

    def step_end(self, run_context: RunContext) -> None:
        """After each step."""

    def end(self, run_context: RunContext) -> None:
        """After the run."""

    def on_train_begin(self, run_context: RunContext) -> None:
        """Before training."""
        self.begin(run_context)

    def on_train_epoch_begin(self, run_context: RunContext) -> None:
        """Before each epoch of training."""
        self.epoch_begin(run_context)

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """After each epoch of training, and the evaluation that belongs to it."""
        self.epoch_end(run_context)

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Before each step of training."""
        self.step_begin(run_context)

    def on_train_step_end(self, run_context: RunContext) -> None:
        """After each step of training."""
        self.step_end(run_context)

    def on_train_end(self, run_context: RunContext) -> None:
        """After training."""
        self.end(run_context)

    def on_eval_begin(self, run_context: RunContext) -> None:
        """Before evaluation."""
        self.begin(run_context)

    def on_eval_epoch_begin(self, run_context: RunContext) -> None:
        """Before the batches of an evaluation."""
        self.epoch_begin(run_context)

    def on_eval_epoch_end(self, run_context: RunContext) -> None:
        """After the batches of an evaluation, before its metrics are computed."""
        self.epoch_end(run_context)

    def on_eval_step_begin(self, run_context: RunContext) -> None:
        """Before each batch of an evaluation."""
        self.step_begin(run_context)

    def on_eval_step_end(self, run_context: RunContext) -> None:
        """After each batch of an evaluation."""
        self.step_end(run_context)

    def on_eval_end(self, run_context: RunContext) -> None:
        """After evaluation; the metrics are there."""
        self.end(run_context)


class InternalCallbackParam(dict[str, Any]):
    """What callbacks know of a run, as attributes and as items: `cur_epoch_num`, `cur_step_num`, `batch_num`, `net_outputs`, `train_network`, …"""

    def __getattr__(self, key: str) -> Any:
        try:
            return self[key]
        except KeyError:
            raise MissingAttributeError(f"there is no '{key}' at this point of the run; there are {', '.join(sorted(self))}") from None

    def __setattr__(self, key: str, value: Any) -> None:
        self[key] = value


class RunContext:
    """The run that a callback is called in.

    Args:
        original_args: what there is to know of the run.

    Raises:
        TypeError: original_args is no dict.
    """

    def __init__(self, original_args: dict[str, Any]):
        if not isinstance(original_args, dict):
            raise ArgumentTypeError(f"The argument 'original_args' of RunContext should be dict type, but got {type(original_args)}.")
        self._original_args = original_args
        self._stop_requested = False

    def original_args(self) -> Any:
        """What there is to know of the run: a dict whose items are attributes too."""
        return self._original_args

    def request_stop(self) -> None:
        """Ends the run after this step."""
        self._stop_requested = True

    def get_stop_requested(self) -> bool:
        """Whether a callback asked to end the run."""
        return self._stop_requested


def list_of_callbacks(callbacks: Any) -> list[Callback]:
    """None, a callback, or several, as a list.

    Raises:
        TypeError: something else.
    """
    if callbacks is None:
        return []
    found = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
    for callback in found:
        if not isinstance(callback, Callback):
            raise ArgumentTypeError(f"The 'callbacks' must be a Callback or a list of Callback, but got {type(callback)}.")
    return found


def _of_each(hook: str) -> Any:
    """The method of the manager that calls `hook` of each callback."""

    def call(manager: CallbackManager, run_context: RunContext) -> None:
        for callback in manager.callbacks:
            getattr(callback, hook)(run_context)

    return call


class CallbackManager(Callback):
    """Several callbacks as one, called in order. As a context it enters each of them and goes on with what that gives."""

    def __init__(self, callbacks: Any):
        self.callbacks = list_of_callbacks(callbacks)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        entered = [(callback, self._stack.enter_context(callback)) for callback in self.callbacks]
        self.callbacks = [target if isinstance(target, Callback) else callback for callback, target in entered]
        return self

    def __exit__(self, *err: Any) -> Any:
        return self._stack.__exit__(*err)

    begin = _of_each("begin")
    epoch_begin = _of_each("epoch_begin")
    epoch_end = _of_each("epoch_end")
    step_begin = _of_each("step_begin")
    step_end = _of_each("step_end")
    end = _of_each("end")
    on_train_begin = _of_each("on_train_begin")
    on_train_epoch_begin = _of_each("on_train_epoch_begin")
    on_train_epoch_end = _of_each("on_train_epoch_end")
    on_train_step_begin = _of_each("on_train_step_begin")
    on_train_step_end = _of_each("on_train_step_end")
    on_train_end = _of_each("on_train_end")
    on_eval_begin = _of_each("on_eval_begin")
    on_eval_epoch_begin = _of_each("on_eval_epoch_begin")
    on_eval_epoch_end = _of_each("on_eval_epoch_end")
    on_eval_step_begin = _of_each("on_eval_step_begin")
    on_eval_step_end = _of_each("on_eval_step_end")
    on_eval_end = _of_each("on_eval_end")


def loss_of(outputs: Any) -> Any:
    """The loss among a network's outputs: the mean of a Tensor as a float, the first of several as it is, anything else as it is."""
    if isinstance(outputs, (tuple, list)):
        return outputs[0] if isinstance(outputs[0], Tensor) else outputs
    if isinstance(outputs, Tensor):
        values = outputs.asnumpy()
        return float(values.item() if values.size == 1 else np.mean(values))
    return outputs
