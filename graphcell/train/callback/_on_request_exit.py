"""`OnRequestExit`: a signal ends the run after the current step, and its state is saved."""

from __future__ import annotations

import os
import signal
import warnings
from types import FrameType
from typing import Any, Self

from graphcell.errors import ArgumentValueError
from graphcell.train.callback._callback import Callback, RunContext
from graphcell.train.directories import make_directory
from graphcell.train.serialization import load_checkpoint, save_checkpoint


class OnRequestExit(Callback):
    """On a signal, ends the run after the current step and saves the network to `<directory>/rank_0/<file_name>_train.ckpt` (or `_eval.ckpt`);
    a run that begins loads that file, where it is there.

    Args:
        save_ckpt: save and load the checkpoint.
        save_mindir: MindIR is not there: a warning says so, and only the checkpoint is saved.
        file_name, directory: where.
        config_file: a JSON file; `{"GracefulExit": 1}` in it asks for the end as the signal does. Default None.
        sig: the signal. Default SIGTERM.

    Raises:
        ValueError: arguments of the wrong kind, or a signal that cannot be caught.
    """

    def __init__(
        self, save_ckpt: bool = True, save_mindir: bool = True, file_name: str = "Net", directory: str | None = "./",
        config_file: str | None = None, sig: int = signal.SIGTERM,
    ):  # fmt: skip
        super().__init__()
        for name, value, kind in (("save_ckpt", save_ckpt, bool), ("save_mindir", save_mindir, bool), ("sig", sig, int)):
            if not isinstance(value, kind):
                raise ArgumentValueError(f"For 'OnRequestExit', the parameter '{name}' must be isinstance of {kind}, but got {value}.")
        if sig == getattr(signal, "SIGKILL", None):
            raise ArgumentValueError("Not support send exit request by signal SIGKILL.")
        if save_mindir:
            warnings.warn("OnRequestExit saves no MindIR here, only the checkpoint; save_mindir=False says that this is wanted", stacklevel=2)
        self.save_ckpt, self.save_mindir, self.sig = save_ckpt, save_mindir, sig
        self.remote_config_file = config_file
        self.exit = False
        self._handlers: list[Any] = []
        place = make_directory(os.path.join(os.getcwd() if directory is None else directory, "rank_0"))
        self.train_name, self.eval_name = (os.path.join(place, f"{file_name}_{kind}") for kind in ("train", "eval"))

    def __enter__(self) -> Self:
        self._handlers.append(signal.signal(self.sig, self._on_signal))
        return self

    def __exit__(self, *err: object) -> None:
        signal.signal(self.sig, self._handlers.pop())

    def on_train_begin(self, run_context: RunContext) -> None:
        """Loads what an interrupted run left."""
        self._begin(run_context.original_args().train_network, self.train_name)

    def on_eval_begin(self, run_context: RunContext) -> None:
        """Loads what an interrupted run left, of the evaluation or else of the training."""
        self._begin(run_context.original_args().eval_network, self.eval_name, self.train_name)

    def _begin(self, network: Any, *names: str) -> None:
        found = [f"{name}.ckpt" for name in names if os.path.isfile(f"{name}.ckpt")]
        if self.save_ckpt and found:
            load_checkpoint(found[0], net=network)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.exit = True

    def step_end(self, run_context: RunContext) -> None:
        """Ends the run, if that was asked for."""
        if self.exit or self._asked_by_file():
            self.exit = True
            run_context.request_stop()

    def _asked_by_file(self) -> bool:
        if self.remote_config_file is None or not os.path.exists(self.remote_config_file):
            return False
        import json

        try:
            with open(self.remote_config_file, encoding="utf-8") as file:
                asked: bool = json.load(file).get("GracefulExit") == 1
        except json.JSONDecodeError as e:
            warnings.warn(f"OnRequestExit: {self.remote_config_file} is no JSON: {e}", stacklevel=2)
            return False
        return asked

    def on_train_end(self, run_context: RunContext) -> None:
        """Saves the training network, if the run was ended."""
        self._end(run_context.original_args().train_network, self.train_name)

    def on_eval_end(self, run_context: RunContext) -> None:
        """Saves the evaluation network, if the run was ended."""
        self._end(run_context.original_args().eval_network, self.eval_name)

    def _end(self, network: Any, name: str) -> None:
        if self.exit and self.save_ckpt:
            save_checkpoint(network, name)
