"""`LambdaCallback`: a callback of plain functions."""

from __future__ import annotations

from collections.abc import Callable

from graphcell.train.callback._callback import Callback, RunContext

Hook = Callable[[RunContext], object] | None


class LambdaCallback(Callback):
    """Calls functions with the RunContext, each at the moment that its name says."""

    def __init__(
        self, on_train_epoch_begin: Hook = None, on_train_epoch_end: Hook = None, on_train_step_begin: Hook = None, on_train_step_end: Hook = None,
        on_train_begin: Hook = None, on_train_end: Hook = None, on_eval_epoch_begin: Hook = None, on_eval_epoch_end: Hook = None,
        on_eval_step_begin: Hook = None, on_eval_step_end: Hook = None, on_eval_begin: Hook = None, on_eval_end: Hook = None,
    ):  # fmt: skip
        super().__init__()
        hooks = {
            "on_train_epoch_begin": on_train_epoch_begin, "on_train_epoch_end": on_train_epoch_end, "on_train_step_begin": on_train_step_begin,
            "on_train_step_end": on_train_step_end, "on_train_begin": on_train_begin, "on_train_end": on_train_end,
            "on_eval_epoch_begin": on_eval_epoch_begin, "on_eval_epoch_end": on_eval_epoch_end, "on_eval_step_begin": on_eval_step_begin,
            "on_eval_step_end": on_eval_step_end, "on_eval_begin": on_eval_begin, "on_eval_end": on_eval_end,
        }  # fmt: skip
        for name, hook in hooks.items():
            setattr(self, name, hook or _nothing)


def _nothing(run_context: RunContext) -> None:
    """What is done at the moments that no function was given for."""
