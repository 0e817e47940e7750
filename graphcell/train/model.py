"""`Model`: trains, evaluates and runs a network over datasets, with callbacks and metrics.

Enters: a network, a loss function, an optimizer, metrics, and datasets: objects with `get_dataset_size()` and
`create_tuple_iterator(num_epochs=…)`, whose iterator is iterated once an epoch. Leaves: trained Parameters, metrics, predictions. In GRAPH_MODE a
training step (forward, backward, update) is one executable; in PYNATIVE_MODE the network runs eagerly. Refused: what needs several devices.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphcell.auto_parallel_context import get_auto_parallel_context
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ExecutionError, MissingAttributeError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import check_bool, check_int, non_negative_int, positive_int
from graphcell.nn.wrap import WithEvalCell, WithLossCell
from graphcell.progress import progress
from graphcell.tensor import Tensor
from graphcell.train import callback as _callback
from graphcell.train.amp import build_train_network
from graphcell.train.callback import ModelCheckpoint, RunContext, TimeMonitor
from graphcell.train.callback._callback import Callback, CallbackManager, InternalCallbackParam, list_of_callbacks
from graphcell.train.metrics import Loss, get_metrics

__all__ = ["Model"]

_AMP_OPTIONS = ("loss_scale_manager", "keep_batchnorm_fp32")
_OPTIONS = (*_AMP_OPTIONS, "boost_config_dict", "acc_level")
_OLD_HOOKS = {"begin", "end", "epoch_begin", "epoch_end", "step_begin", "step_end"}


class Model:
    """A network with all that its training and evaluation need.

    Args:
        network: the network, or with `loss_fn` None one whose output is the loss, or with `optimizer` None too a whole training step.
        loss_fn: (outputs, label) → loss.
        optimizer: updates the network's Parameters.
        metrics: a set of names (see `train.names`), or a dict name → Metric.
        eval_network: the network of evaluations. Default None: `network` with `loss_fn`, whose results are (loss, outputs, label).
        eval_indexes: which of `eval_network`'s results are the loss, the outputs and the label. Default None: each metric gets all of them.
        amp_level: mixed precision, see `amp.build_train_network`: 'O0' (none), 'O1', 'O2', 'O3', 'auto'.
        boost_level: 'O0'.
        loss_scale_manager, keep_batchnorm_fp32: see `amp.build_train_network`.
        boost_config_dict, acc_level: for boost levels.

    Raises:
        TypeError, ValueError, KeyError: arguments that are of the wrong kind, or do not fit each other.
    """

    def __init__(
        self, network: Cell, loss_fn: Any = None, optimizer: Any = None, metrics: Any = None, eval_network: Cell | None = None,
        eval_indexes: list[int] | None = None, amp_level: str = "O0", boost_level: str = "O0", **kwargs: Any,
    ):  # fmt: skip
        if not isinstance(network, Cell):
            raise ArgumentTypeError(f"For 'Model', the type of 'network' should be 'Cell', but got type '{type(network).__name__}'.")
        unknown = [name for name in kwargs if name not in _OPTIONS]
        if unknown:
            listed = " or ".join(f"'{name}'" for name in _OPTIONS)
            raise ArgumentValueError(f"The argument in 'kwargs' should be {listed}, but got '{unknown[0]}'.")
        if optimizer is None and amp_level != "O0":
            raise ArgumentValueError(
                "Auto mixed precision will not work because 'optimizer' is None.Please set amp_level='O0' to disable auto mixed precision "
                "or set 'optimizer' not be None to use auto mixed precision."
            )
        if optimizer is None and kwargs.get("loss_scale_manager") is not None:
            raise ArgumentValueError("The argument 'optimizer' can not be None when set 'loss_scale_manager'.")
        self._network, self._loss_fn, self._optimizer = network, loss_fn, optimizer
        self._amp_level, self._boost_level = amp_level, kwargs.get("acc_level", boost_level)
        self._loss_scale_manager = kwargs.get("loss_scale_manager")
        options = {k: v for k, v in kwargs.items() if k in _AMP_OPTIONS}
        if options.get("keep_batchnorm_fp32", True) is None:
            del options["keep_batchnorm_fp32"]  # what the level says
        self._train_network = self._build_train_network(options)
        self._metric_fns = get_metrics(metrics) or {}
        self._eval_network, self._eval_indexes = eval_network, eval_indexes
        if self._metric_fns:
            self._check_eval_network()
        self._predict_network = network
        self._current_epoch_num = self._current_step_num = 0
        self._is_training = False
        self._parallel_mode, self._device_number = get_auto_parallel_context("parallel_mode"), get_auto_parallel_context("device_num")

    def _build_train_network(self, options: dict[str, Any]) -> Cell:
        network = self._network
        if self._optimizer is not None:
            network = build_train_network(network, self._optimizer, self._loss_fn, level=self._amp_level, boost_level=self._boost_level, **options)
        elif self._loss_fn is not None:
            if not isinstance(self._loss_fn, Cell):
                raise ArgumentTypeError(f"The type of 'loss_fn' should be 'Cell', but got type '{type(self._loss_fn).__name__}'.")
            network = WithLossCell(network, self._loss_fn)
        return self._with_inputs(network)

    def _check_eval_network(self) -> None:
        indexes = self._eval_indexes
        if self._eval_network is not None:
            if indexes is not None and not (isinstance(indexes, list) and len(indexes) == 3):
                raise ArgumentValueError(
                    "The argument 'eval_indexes' must be a list or None. If 'eval_indexes' is a list, length of it must be three. "
                    f"But got 'eval_indexes' {indexes}"
                )
            return
        if self._loss_fn is None:
            raise ArgumentValueError(
                "If `metrics` is set, `eval_network` must not be None. Do not set `metrics` if you don't want an evaluation.",
                hint="give `eval_network`, or a `loss_fn`, which makes one of (loss, outputs, label)",
            )
        wide = self._amp_level in ("O2", "O3", "auto")
        self._eval_network = self._with_inputs(WithEvalCell(self._network, self._loss_fn, wide))
        self._eval_indexes = [0, 1, 2]

    def _with_inputs(self, network: Cell) -> Cell:
        """`network` (data, label), with the inputs that the network and the loss function were told of by `set_inputs`."""
        data = self._network.get_inputs()
        labels = self._loss_fn.get_inputs() if data and self._loss_fn is not None else None
        if data and labels:
            network.set_inputs(*data, *labels[1:])
        return network

    @property
    def train_network(self) -> Cell:
        """The training step, or without an optimizer the network with its loss."""
        return self._train_network

    @property
    def eval_network(self) -> Cell | None:
        """The network of evaluations; None without metrics."""
        return self._eval_network

    @property
    def predict_network(self) -> Cell:
        """The network."""
        return self._predict_network

    # -- training ----------------------------------------------------------------------------------------------------
    def train(
        self, epoch: int, train_dataset: Any, callbacks: Any = None, dataset_sink_mode: bool = False, sink_size: int = -1, initial_epoch: int = 0
    ) -> None:
        """Trains the network.

        Args:
            epoch: the number of the last epoch.
            train_dataset: gives (data, label), or what the network takes.
            callbacks: a Callback, or several.
            dataset_sink_mode: accepted; the CPU has no queue to sink batches into.
            sink_size: with `dataset_sink_mode`, what callbacks take for the steps of an epoch. Default -1: the dataset's size.
            initial_epoch: how many epochs are behind. Default 0.

        Raises:
            TypeError, ValueError: arguments of the wrong kind, an empty dataset, or another number of columns than 2 with a `loss_fn`.
            Whatever the dataset, the network or a callback raises.
        """
        self._train("train", epoch, train_dataset, callbacks, dataset_sink_mode, sink_size, initial_epoch)

    def fit(
        self, epoch: int, train_dataset: Any, valid_dataset: Any = None, valid_frequency: int | list[int] = 1, callbacks: Any = None,
        dataset_sink_mode: bool = False, valid_dataset_sink_mode: bool = False, sink_size: int = -1, initial_epoch: int = 0,
    ) -> None:  # fmt: skip
        """Trains the network and evaluates it in between; see `train`.

        Args:
            valid_dataset: what is evaluated after epochs. The callbacks that see it are TimeMonitor and the user's own.
            valid_frequency: after every how many epochs, or after which ones. Default 1.

        Raises:
            TypeError, ValueError: as `train`; a `valid_dataset` without metrics; callbacks with methods of the older names.
        """
        check_bool("Model.fit", "valid_dataset_sink_mode", valid_dataset_sink_mode)
        if not isinstance(valid_frequency, (int, list)):
            raise ArgumentTypeError(
                f"For 'Model.fit', the type of 'valid_frequency' must be a list or an integer, but got type {type(valid_frequency)}."
            )
        if valid_frequency == 0:
            raise ArgumentValueError("For 'Model.fit', the 'valid_frequency' must not be 0.", hint="without valid_dataset there is no evaluation")
        if valid_dataset is not None and not self._metric_fns:
            raise ArgumentValueError(
                "For 'Model.fit', if valid_dataset is not None, the model argument 'metrics' can not beNone or empty, "
                "you should set the argument 'metrics' for model."
            )
        for cb in list_of_callbacks(callbacks):
            old = _OLD_HOOKS & set(vars(type(cb)))
            if old and not _is_own(cb):
                raise ArgumentValueError(
                    f"For {type(cb).__name__} callback, {old} methods may not be supported in later version, "
                    "Use methods prefixed with 'on_train' or 'on_eval' instead when using customized callbacks."
                )
        if valid_dataset is not None:
            _check_dataset("Model.fit", "valid_dataset", valid_dataset)
        self._train("fit", epoch, train_dataset, callbacks, dataset_sink_mode, sink_size, initial_epoch, valid_dataset, valid_frequency)

    def _train(
        self, name: str, epoch: int, dataset: Any, callbacks: Any, sink: bool, sink_size: int, initial_epoch: int,
        valid_dataset: Any = None, valid_frequency: int | list[int] = 1,
    ) -> None:  # fmt: skip
        steps = _check_run(f"Model.{name}", epoch, dataset, sink, sink_size, initial_epoch)
        listed = list_of_callbacks(callbacks)
        run = InternalCallbackParam(
            cur_step_num=0, train_network=self._train_network, epoch_num=epoch - initial_epoch, mode="train", loss_fn=self._loss_fn,
            batch_num=sink_size if sink and sink_size > 0 else steps, optimizer=self._optimizer, parallel_mode=self._parallel_mode,
            device_number=self._device_number, train_dataset=dataset, list_callback=listed, train_dataset_element=None, network=self._network,
            last_save_ckpt_step=None, latest_ckpt_file=None, loss_scale_mananger=self._loss_scale_manager, initial_step=None, dataset_sink_mode=False,
        )  # fmt: skip
        epochs = epoch - initial_epoch
        try:
            with CallbackManager(listed) as manager, progress(steps * epochs) as advance, _iterator(dataset, epochs) as batches:
                context = RunContext(run)
                self._set_train(self._train_network, True)
                manager.on_train_begin(context)
                for number in range(initial_epoch + 1, epoch + 1):
                    run.cur_epoch_num = self._current_epoch_num = number
                    manager.on_train_epoch_begin(context)
                    self._train_epoch(batches, manager, context, advance)
                    if valid_dataset is not None and _is_due(number, valid_frequency):
                        self._eval_between(valid_dataset, manager, run)
                    manager.on_train_epoch_end(context)
                    run.pop("metrics", None)
                    run.pop("eval_results", None)
                    if context.get_stop_requested():
                        break
                manager.on_train_end(context)
        except BaseException:
            for cb in listed:
                if isinstance(cb, ModelCheckpoint):
                    cb.save_breakpoint(self._train_network, self._current_epoch_num, self._current_step_num)
            raise

    def _train_epoch(self, batches: Any, manager: CallbackManager, context: RunContext, advance: Any) -> None:
        run, network, manager_of_scale = context.original_args(), self._train_network, self._loss_scale_manager
        before = run["cur_step_num"]
        for inputs in _elements(batches):
            if self._loss_fn is not None and len(inputs) != 2:
                raise ArgumentValueError(
                    f"When 'loss_fn' is not None, 'train_dataset' should return two elements, but got {len(inputs)}, "
                    "please check the number of elements returned by 'train_dataset'"
                )
            run["cur_step_num"] += 1
            self._current_step_num = (run["cur_step_num"] - 1) % run["batch_num"] + 1
            run["train_dataset_element"] = inputs
            manager.on_train_step_begin(context)
            self._keep_mode(network, True)
            outputs = run["net_outputs"] = network(*inputs)
            if manager_of_scale is not None and manager_of_scale.get_drop_overflow_update():
                manager_of_scale.update_loss_scale(bool(np.all(outputs[1].asnumpy())))
            manager.on_train_step_end(context)
            advance()
            if context.get_stop_requested():
                return
        if run["cur_step_num"] == before:
            warnings.warn(
                f"In epoch {run['cur_epoch_num']} the dataset gave no batch, and nothing was trained. (Some sources can be gone through only once.)",
                stacklevel=4,
            )

    def _keep_mode(self, network: Cell, training: bool) -> None:
        """Switches a network if a callback has switched it: by this Model, or in training by other means. (To look at every Cell would cost.)"""
        if self._is_training is not training or (training and not self._network.training):
            self._set_train(network, training)

    def _set_train(self, network: Cell, training: bool) -> None:
        network.set_train(training)
        self._is_training = training

    # -- evaluation --------------------------------------------------------------------------------------------------
    def eval(self, valid_dataset: Any, callbacks: Any = None, dataset_sink_mode: bool = False) -> dict[str, Any]:
        """Evaluates the network.

        Args:
            valid_dataset: gives (data, label), or what the evaluation network takes.
            callbacks: a Callback, or several.
            dataset_sink_mode: accepted; the CPU has no queue to sink batches into.

        Returns:
            dict name → value of the metric.

        Raises:
            TypeError, ValueError: arguments of the wrong kind, or no metrics. Whatever the dataset, the network or a callback raises.
        """
        check_bool("Model.eval", "dataset_sink_mode", dataset_sink_mode)
        if not self._metric_fns:
            raise ArgumentValueError(
                "For Model.eval, the model argument 'metrics' can not be None or empty, you should set the argument 'metrics' for model."
            )
        _check_dataset("Model.eval", "valid_dataset", valid_dataset)
        listed = list_of_callbacks(callbacks)
        run = InternalCallbackParam(list_callback=listed, network=self._network)
        return self._evaluate(valid_dataset, listed, run, None)

    def _eval_between(self, dataset: Any, manager: CallbackManager, run: InternalCallbackParam) -> None:
        """The evaluation after an epoch. Afterwards the run is that of the training again, and has the metrics."""
        kept = {name: run[name] for name in ("mode", "cur_step_num", "batch_num", "dataset_sink_mode", "net_outputs")}
        watching = [cb for cb in manager.callbacks if isinstance(cb, TimeMonitor) or not _is_own(cb)]
        self._evaluate(dataset, watching, run, Loss())
        run.update(kept)

    def _evaluate(self, dataset: Any, callbacks: list[Callback], run: InternalCallbackParam, loss: Loss | None) -> dict[str, Any]:
        """Evaluates; with `loss`, collects the losses in it and gives `run` the 'eval_results'."""
        assert self._eval_network is not None
        network = self._eval_network
        steps = dataset.get_dataset_size()
        run.update(
            eval_network=network, valid_dataset=dataset, batch_num=steps, mode="eval", cur_step_num=0, dataset_sink_mode=False
        )
        for metric in self._metric_fns.values():
            metric.clear()
        with CallbackManager(callbacks) as manager, progress(steps) as advance, _iterator(dataset, 1) as batches:
            context = RunContext(run)
            manager.on_eval_begin(context)
            self._set_train(network.set_grad(False), False)
            manager.on_eval_epoch_begin(context)
            for inputs in _elements(batches):
                run["cur_step_num"] += 1
                run["eval_dataset_element"] = inputs
                manager.on_eval_step_begin(context)
                self._keep_mode(network, False)
                outputs = run["net_outputs"] = network(*inputs)
                manager.on_eval_step_end(context)
                self._update_metrics(outputs)
                if loss is not None and self._eval_indexes is not None:
                    loss.update(outputs[self._eval_indexes[0]])
                advance()
                if context.get_stop_requested():
                    break
            manager.on_eval_epoch_end(context)
            metrics = {name: metric.eval() for name, metric in self._metric_fns.items()}
            run["metrics"] = metrics
            if loss is not None:
                run["eval_results"] = metrics | ({} if self._eval_indexes is None else {"eval_loss": loss.eval()})
            manager.on_eval_end(context)
        return metrics

    def _update_metrics(self, outputs: Any) -> None:
        if isinstance(outputs, Tensor):
            outputs = (outputs,)
        if not isinstance(outputs, tuple):
            raise ArgumentValueError(f"The argument 'outputs' should be tuple, but got {type(outputs)}.")
        if self._eval_indexes is None:
            for metric in self._metric_fns.values():
                metric.update(*outputs)
            return
        if len(outputs) < 3:
            raise ArgumentValueError(f"The length of 'outputs' must be >= 3, but got {len(outputs)}")
        loss, predicted, label = (outputs[k] for k in self._eval_indexes)
        for metric in self._metric_fns.values():
            if isinstance(metric, Loss):
                metric.update(loss)
            else:
                metric.update(predicted, label)

    # -- the rest ----------------------------------------------------------------------------------------------------
    def predict(self, *predict_data: Any, backend: str | None = None, config: Any = None) -> Any:
        """Runs the network on inputs: Tensors, numbers, strings or None.

        Args:
            backend: None; 'lite' runs the network itself too.
            config: for 'lite'; not used.

        Raises:
            TypeError, ValueError: inputs of another kind, an empty Tensor, or another backend. RuntimeError: the network gives nothing.
        """
        if backend not in ("lite", None):
            raise ArgumentValueError(f"For Model.predict, `backend` should be 'lite' or None, but got {backend}")
        for item in predict_data:
            if item is not None and not isinstance(item, (Tensor, int, float, str)):
                raise ArgumentTypeError(
                    f"The types of input data must be in the Union(Tensor, None, int, float, str), but got type {type(item).__name__}."
                )
            if isinstance(item, Tensor) and item.size == 0:
                raise ArgumentValueError("The input data can not be empty.")
        if self._is_training or self._predict_network.training:
            self._set_train(self._predict_network, False)
        result = self._predict_network(*predict_data)
        if result is None:
            raise ExecutionError("The output data can not be None, please check your net or input data.")
        return result

    def build(
        self, train_dataset: Any = None, valid_dataset: Any = None, sink_size: int = -1, epoch: int = 1, sink_mode: bool = True
    ) -> None:
        """Compiles the training network for the first batch of `train_dataset`, and the evaluation network for that of `valid_dataset`.

        Raises:
            ValueError: neither dataset, or an `epoch` that is not positive. RuntimeError: `valid_dataset` without metrics.
        """
        positive_int("Model.build", "epoch", epoch)
        if train_dataset is None and valid_dataset is None:
            raise ArgumentValueError("The argument 'train_dataset' and 'valid_dataset' can not both be None or empty.")
        if valid_dataset is not None and self._eval_network is None:
            raise ExecutionError("If define `valid_dataset`, metric fn can not be None or empty, you should set the argument 'metrics' for model.")
        for dataset, network, training in ((train_dataset, self._train_network, True), (valid_dataset, self._eval_network, False)):
            if dataset is not None and network is not None:
                self._set_train(network, training)
                with _iterator(dataset, 1) as batches:
                    network.compile(*next(_elements(batches)))

    def infer_train_layout(self, train_dataset: Any, dataset_sink_mode: bool = True, sink_size: int = -1) -> None:
        """Raises RuntimeError: it is about how Parameters are spread over devices."""
        raise ExecutionError(f"'infer_train_layout' only supports 'semi_auto_parallel' and 'auto_parallel' mode, but got {self._parallel_mode}.")

    def infer_predict_layout(self, *predict_data: Any, skip_backend_compile: bool = False) -> None:
        """Raises RuntimeError: it is about how Parameters are spread over devices."""
        raise ExecutionError("Infer predict layout only supports semi auto parallel and auto parallel mode.")


def _check_run(owner: str, epoch: int, dataset: Any, sink: bool, sink_size: int, initial_epoch: int) -> int:
    """Checks the arguments of a training; gives the steps of an epoch."""
    check_bool(owner, "dataset_sink_mode", sink)
    check_int(owner, "sink_size", sink_size)
    positive_int(owner, "epoch", epoch)
    non_negative_int(owner, "initial_epoch", initial_epoch)
    if initial_epoch >= epoch:
        raise ArgumentValueError(
            f"For '{owner}', the parameter 'epoch' must bigger than parameter 'initial_epoch', "
            f"but got the parameter 'epoch' is {epoch}, 'initial_epoch' is {initial_epoch}."
        )
    _check_dataset(owner, "train_dataset", dataset)
    steps: int = dataset.get_dataset_size()
    if steps == 0:
        raise ArgumentValueError("There is no valid data in dataset, please check dataset file firstly.")
    if sink_size < -1 or sink_size == 0:
        raise ArgumentValueError(f"For '{owner}', The argument 'sink_size' must be -1 or positive, but got {sink_size}.")
    return steps


def _check_dataset(owner: str, name: str, dataset: Any) -> None:
    if not hasattr(dataset, "get_dataset_size") or not hasattr(dataset, "create_tuple_iterator"):
        raise MissingAttributeError(
            f"For '{owner}', the '{name}' should be a dataset, with get_dataset_size and create_tuple_iterator, but got {type(dataset)}.",
            hint="NumpySlicesDataset((data, labels)).batch(32) makes one of arrays, GeneratorDataset of anything to iterate over",
        )


@contextmanager
def _iterator(dataset: Any, epochs: int) -> Iterator[Any]:
    """The iterator of a dataset; its threads, if it has any, end with the context."""
    batches = dataset.create_tuple_iterator(num_epochs=epochs)
    try:
        yield batches
    finally:
        if hasattr(batches, "release"):
            batches.release()


def _elements(batches: Any) -> Iterator[tuple[Any, ...]]:
    """The batches of one epoch, each a tuple."""
    for element in batches:
        yield (element,) if isinstance(element, Tensor) else tuple(element)


def _is_due(epoch: int, frequency: int | list[int]) -> bool:
    return epoch % frequency == 0 if isinstance(frequency, int) else epoch in frequency


def _is_own(cb: Callback) -> bool:
    """Whether a callback's class is one of graphcell's; a subclass of one is not."""
    return getattr(_callback, type(cb).__name__, None) is type(cb)
