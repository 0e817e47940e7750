"""`DatasetHelper`: the batches of a dataset, epoch by epoch. Refused: sink mode, which moves batches to an accelerator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphcell.errors import ArgumentValueError, ExecutionError
from graphcell.nn.checks import check_bool, check_int


class DatasetHelper:
    """Iterates over the batches of a dataset; each iteration is one epoch.

    Args:
        dataset: a dataset.
        dataset_sink_mode: must be False on a CPU. Default True, as in MindSpore.
        sink_size: -1 or positive; only for sink mode.
        epoch_num: how many epochs there will be; -1 for any number.

    Raises:
        TypeError, ValueError: arguments of the wrong kind. RuntimeError: sink mode is asked for.
    """

    def __init__(self, dataset: Any, dataset_sink_mode: bool = True, sink_size: int = -1, epoch_num: int = 1):
        check_bool("DatasetHelper", "dataset_sink_mode", dataset_sink_mode)
        if check_int("DatasetHelper", "sink_size", sink_size) < -1 or sink_size == 0:
            raise ArgumentValueError(f"The 'sink_size' must be -1 or positive, but got sink_size {sink_size}.")
        if dataset_sink_mode:
            raise ExecutionError(
                "Currently dataset sink mode is not supported when the device target is CPU",
                hint="set dataset_sink_mode to False; Model.train does so by itself",
            )
        self._dataset = dataset
        self._epochs = dataset.create_tuple_iterator(num_epochs=epoch_num)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._epochs)

    def types_shapes(self) -> tuple[Any, Any]:
        """The dtypes and the shapes of the dataset's columns."""
        return self._dataset.output_types(), self._dataset.output_shapes()

    def sink_size(self) -> int:
        """Batches of one iteration step: 1 without sink mode."""
        return 1

    def stop_send(self) -> None:
        """Nothing to stop without sink mode."""

    def release(self) -> None:
        """Nothing to release without sink mode."""

    def continue_send(self) -> None:
        """Nothing to go on with without sink mode."""


def connect_network_with_dataset(network: Any, dataset_helper: DatasetHelper) -> Any:
    """Raises RuntimeError: it joins a network to a dataset in sink mode, which the CPU does not have."""
    raise ExecutionError("The API 'connect_network_with_dataset' should be called in dataset sink mode, which the CPU does not have.")
