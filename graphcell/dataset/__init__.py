"""Data pipelines: sources, the steps behind them, samplers, transforms."""

from typing import TYPE_CHECKING

from graphcell.dataset import callback, transforms, vision
from graphcell.dataset.callback import DSCallback
from graphcell.dataset.core import config
from graphcell.dataset.core.config import get_seed, set_seed
from graphcell.dataset.engine import samplers
from graphcell.dataset.engine.batching import BatchInfo
from graphcell.dataset.engine.datasets import (
    BatchDataset,
    BucketBatchByLengthDataset,
    ConcatDataset,
    Dataset,
    FilterDataset,
    MapDataset,
    PaddedBatchDataset,
    ProjectDataset,
    RenameDataset,
    RepeatDataset,
    Shuffle,
    ShuffleDataset,
    SkipDataset,
    TakeDataset,
    ZipDataset,
)  # fmt: skip
from graphcell.dataset.engine.datasets import zip_datasets as zip
from graphcell.dataset.engine.datasets_user_defined import GeneratorDataset, NumpySlicesDataset, PaddedDataset, Schema
from graphcell.dataset.engine.datasets_vision import Cifar10Dataset, Cifar100Dataset, FashionMnistDataset, KMnistDataset, MnistDataset
from graphcell.dataset.engine.iterators import DictIterator, TupleIterator
from graphcell.dataset.engine.samplers import (
    BuiltinSampler,
    DistributedSampler,
    IterSampler,
    PKSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    SubsetSampler,
    WeightedRandomSampler,
)  # fmt: skip
from graphcell.dataset.engine.sources import MappableDataset, SourceDataset
from graphcell.missing import getattr_of as _getattr_of

__all__ = [
    "BatchDataset", "BatchInfo", "BucketBatchByLengthDataset", "BuiltinSampler", "Cifar10Dataset", "Cifar100Dataset", "ConcatDataset", "DSCallback", "Dataset",
    "DictIterator", "DistributedSampler", "FashionMnistDataset", "FilterDataset", "GeneratorDataset", "IterSampler", "KMnistDataset", "MapDataset",
    "MappableDataset", "MnistDataset", "NumpySlicesDataset", "PKSampler", "PaddedBatchDataset", "PaddedDataset", "ProjectDataset", "RandomSampler",
    "RenameDataset", "RepeatDataset", "Sampler", "Schema", "SequentialSampler", "Shuffle", "ShuffleDataset", "SkipDataset", "SourceDataset",
    "SubsetRandomSampler", "SubsetSampler", "TakeDataset", "TupleIterator", "WeightedRandomSampler", "ZipDataset", "callback", "config", "get_seed", "samplers",
    "set_seed", "transforms", "vision", "zip",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know all names that there are
    __getattr__ = _getattr_of(__name__)
