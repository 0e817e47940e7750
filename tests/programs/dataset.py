"""Data pipelines whose rows do not depend on random numbers, and the errors of others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np


def rows(dataset: Any, **options: Any) -> Any:
    """Dtypes, shapes and values of all rows of one epoch."""
    return [[_shown(x) for x in row] for row in dataset.create_tuple_iterator(num_epochs=1, **options)]


def _shown(x: Any) -> Any:
    array = x.asnumpy() if hasattr(x, "asnumpy") else x
    return [type(x).__name__, array.dtype.str, list(array.shape), array.tolist()]


def pair(ds: Any, n: int = 4, cols: tuple[str, str] = ("a", "b")) -> Any:
    return ds.NumpySlicesDataset((np.arange(n), np.arange(n) * 10.0), list(cols), shuffle=False)


def one(ds: Any, n: int = 6, **options: Any) -> Any:
    return ds.NumpySlicesDataset(list(range(n)), ["a"], **options)


class Pairs:
    """A source with rows by index."""

    def __init__(self, n: int = 4):
        self.n = n

    def __getitem__(self, i: int) -> Any:
        return np.array([i], np.int32), i * 0.5

    def __len__(self) -> int:
        return self.n


class Lists:
    def __getitem__(self, i: int) -> Any:
        return [np.array(i), np.array(i * 2)]

    def __len__(self) -> int:
        return 2


class Counter:
    """An iterator."""

    def __init__(self) -> None:
        self.i = 0

    def __iter__(self) -> Any:
        self.i = 0
        return self

    def __next__(self) -> Any:
        if self.i >= 3:
            raise StopIteration
        self.i += 1
        return (np.array(self.i),)


class Both:
    def __getitem__(self, i: int) -> int:
        return i

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Any:
        return iter([7, 8])


class NoLength:
    def __getitem__(self, i: int) -> int:
        return i


class Batches:
    def __iter__(self) -> Any:
        yield [0, 1]
        yield [2, 3, 4]

    def __len__(self) -> int:
        return 2


def kinds() -> Iterator[Any]:
    for i in range(2):
        yield i, float(i), f"s{i}", True, [1, 2], np.float16(3), b"ab"


def numbers() -> Iterator[Any]:
    names = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "uint64", "bool", "float16", "float32")
    yield tuple(np.array([1]).astype(name) for name in names)


def simple() -> Iterator[Any]:
    for i in range(3):
        yield (np.array([i, i + 1]),)


def lists() -> Iterator[Any]:
    yield [1, 2.5], [[1, 2], [3, 4]], (1, 2), ["a", "b"]


def ragged() -> Iterator[Any]:
    yield ([[1], [1, 2]],)


def failing() -> Iterator[Any]:
    yield (1,)
    raise ValueError("boom")


def nothing() -> Iterator[Any]:
    yield (None,)


def objects() -> Iterator[Any]:
    yield (object(),)


SOURCES = [
    'rows(G(Pairs(), ["a", "b"], shuffle=False))',
    'rows(G(kinds, list("abcdefg")))',
    'rows(G(kinds, list("abcdefg")), output_numpy=True)',
    'rows(G(numbers, list("abcdefghij")))',
    'rows(G(simple, ["a"]))',
    'rows(G(simple(), ["a"]))',
    'G([1], ["a"], batch_sampler=3)',
    'G([1], ["a"], batch_sampler=[[0]], collate_fn=3)',
    'rows(G([1, 2, 3], ["a"], batch_sampler=[[0, 1], []]))',
    'rows(G([1, 2, 3], ["a"], batch_sampler=[0, 1]))',
    'rows(G([1, 2, 3], ["a"], batch_sampler=[[0.0]]))',
    'G([1], ["a"], max_rowsize="x")',
    'G([1], ["a"], python_multiprocessing=3)',
    'N(np.array(3), ["a"])',
    "ds.MnistDataset(3)",
    'rows(G(Counter(), ["a"]))',
    'rows(G([1, 2, 3], ["a"], shuffle=False))',
    'rows(G([(1, 2.0), (3, 4.0)], ["a", "b"], shuffle=False))',
    'rows(G([[1, 2], [3, 4]], ["a", "b"], shuffle=False))',
    'rows(G([[1, 2], [3, 4]], ["a"], shuffle=False))',
    'rows(G(np.arange(6).reshape(3, 2), ["a"], shuffle=False))',
    'rows(G(lambda: iter([1, 2]), ["a"]))',
    'rows(G(lambda: [1, 2], ["a"]))',
    'rows(G({0: 5, 1: 6}, ["a"], shuffle=False))',
    'rows(G(Both(), ["a"], shuffle=False))',
    'rows(G(Lists(), ["a", "b"], shuffle=False))',
    'rows(G(lists, list("abcd")))',
    'rows(G([1, 2], "a", shuffle=False))',
    'rows(G(Pairs(), ["a", "b"], column_types=[ms.int32, ms.float64], shuffle=False))',
    'rows(G(Pairs(), ["a", "b"], num_samples=2, shuffle=False))',
    'rows(G(Pairs(), ["a", "b"], num_samples=0, shuffle=False))',
    'len(rows(G(Pairs(), ["a", "b"], num_samples=10)))',
    'rows(G(simple, ["a"], num_samples=2))',
    'rows(G(simple, ["a"], shuffle=True))',
    '[G(s, ["a"]).get_dataset_size() for s in (simple, Counter(), [1, 2])]',
    '[rows(G(Pairs(5), ["a", "b"], num_shards=2, shard_id=k, shuffle=False)) for k in (0, 1)]',
    '[G(Pairs(5), ["a", "b"], num_shards=2, shard_id=k, shuffle=False).get_dataset_size() for k in (0, 1)]',
    'rows(G(Pairs(), ["a", "b"], shuffle=False).create_tuple_iterator(num_epochs=1).dataset)',
    'rows(G(list(range(6)), ["a"], batch_sampler=Batches()))',
    'rows(G(list(range(6)), ["a"], batch_sampler=Batches(), collate_fn=lambda r: (np.array(r) * 2,)))',
    '[G(list(range(6)), ["a"], batch_sampler=Batches()).get_dataset_size(), G([1], ["a"], batch_sampler=Batches()).get_batch_size()]',
    'rows(N(([1, 2, 3], [4.0, 5.0, 6.0]), ["x", "y"], shuffle=False))',
    "N(([1, 2, 3], [4.0, 5, 6]), shuffle=False).get_col_names()",
    "rows(N([1, 2, 3], shuffle=False))",
    "rows(N([[1, 2], [3, 4]], shuffle=False))",
    "rows(N([1.5, 2], shuffle=False))",
    'rows(N({"p": [1, 2], "q": [3, 4]}, shuffle=False))',
    'N({"p": [1, 2], "q": [3, 4]}).get_col_names()',
    'N({"p": [1, 2], "q": [3, 4]}, column_names=["r", "s"]).get_col_names()',
    'rows(N(np.arange(6).reshape(3, 2), ["d"], shuffle=False))',
    'rows(N(["a", "bb"], shuffle=False))',
    'rows(N((np.ones((2, 2), np.float32), np.array([1, 2], np.int32)), ["a", "b"], shuffle=False))',
    'rows(N([1, 2], ["a"], shuffle=False) + ds.PaddedDataset([{"a": np.array(7)}]))',
    # errors
    "rows(G(Pairs()))",
    'rows(G(failing, ["a"]))',
    'rows(G(nothing, ["a"]))',
    'rows(G(objects, ["a"]))',
    'rows(G(ragged, ["a"]))',
    'rows(G([], ["a"]))',
    'rows(G([np.array([1j])], ["a"]))',
    'rows(G(NoLength(), ["a"], shuffle=False))',
    'rows(G(Pairs(), ["a", "b"], column_types=[ms.int64, ms.float32], shuffle=False))',
    'rows(G(Pairs(), ["a"], shuffle=False))',
    'rows(G(Pairs(), ["a", "b", "c"], shuffle=False))',
    'G(Pairs(), ["a", "a"])',
    "G(Pairs(), [])",
    "G(Pairs(), [1, 2])",
    'G(3, ["a"])',
    'G(simple, ["a"], sampler=ds.SequentialSampler())',
    'G(simple, ["a"], num_shards=2, shard_id=0)',
    'G(Pairs(), ["a", "b"], shuffle=True, sampler=ds.SequentialSampler())',
    'G(Pairs(), ["a", "b"], num_shards=2, shard_id=0, sampler=ds.SequentialSampler())',
    'G(Pairs(), ["a", "b"], num_samples=2, sampler=ds.SequentialSampler())',
    'G(Pairs(), ["a", "b"], num_shards=2)',
    'G(Pairs(), ["a", "b"], num_shards=2, shard_id=2)',
    'G(Pairs(), ["a", "b"], sampler=3)',
    'G(Pairs(), ["a", "b"], sampler=ds.PKSampler(2))',
    'G(Pairs(), ["a", "b"], num_samples=-1)',
    'G(Pairs(), ["a", "b"], num_samples=1.5)',
    'G(Pairs(), ["a", "b"], shuffle=3)',
    'G(Pairs(), ["a", "b"], num_parallel_workers=0)',
    'G(Pairs(), ["a", "b"], num_parallel_workers=1.5)',
    'G([1], ["a"], collate_fn=lambda x: x)',
    'G([1], ["a"], batch_sampler=Batches(), shuffle=True)',
    'N(([1, 2], [1, 2, 3]), ["x", "y"])',
    "N(3)",
    "N([])",
    'N([1, 2], ["a", "b"])',
]

STEPS = [
    "rows(S().map(lambda a: a + 1))",
    'rows(S().map(lambda a: a + 1, ["a"]))',
    'rows(S().map(lambda a: a + 1, "b"))',
    'rows(S().map(lambda a, b: (b, a), ["a", "b"]))',
    'rows(S().map(lambda a, b: a + b, ["a", "b"], ["c"]))',
    'rows(S().map(lambda a: (a, a * 2), ["a"], ["c", "d"]))',
    'S().map(lambda a: (a, a * 2), ["a"], ["c", "d"]).get_col_names()',
    'S().map(lambda a: (a, a * 2), ["b"], ["c", "d"]).get_col_names()',
    'rows(S().map(lambda a: (a, a * 2), ["b"], ["c", "d"]))',
    'S().map(lambda a, b: (a, b), ["a", "b"], ["b", "a"]).get_col_names()',
    'rows(S().map([lambda a: a + 1, lambda a: a * 2], ["a"]))',
    'rows(S().map([lambda a, b: (a + b, a - b), lambda a, b: (a * 10, b)], ["a", "b"]))',
    'rows(S().map(ds.transforms.Compose([lambda a, b: (a + b, a - b), lambda a, b: (a * 10, b)]), ["a", "b"]))',
    'rows(S(1).map(lambda a: 3, ["a"]))',
    'rows(S(1).map(lambda a: 3.5, ["a"]))',
    'rows(S(1).map(lambda a: [1, 2], ["a"]))',
    'rows(S(1).map(lambda a: (a + 1,), ["a"]))',
    'rows(S(1).map(lambda a: ms.Tensor([1.0]), ["a"]))',
    'rows(S(1).map(lambda a: "abc", ["a"]))',
    'rows(S(1).map(ds.transforms.TypeCast(ms.float32), ["a"]))',
    'rows(S(4).map(lambda a: a + 1, ["a"], num_parallel_workers=2))',
    "rows(S(5).batch(2))",
    "rows(S(5).batch(2, True))",
    "rows(S(5).batch(batch_size=2, drop_remainder=True))",
    "rows(S(6).batch(lambda info: info.get_batch_num() + 1))",
    "S(6).batch(lambda info: info.get_batch_num() + 1).get_dataset_size()",
    "rows(S(4).batch(2, per_batch_map=lambda a, b, info: ([x * 2 for x in a], [x + 1 for x in b])))",
    'rows(S(4).repeat(2).batch(2, per_batch_map=lambda a, i: ([x * 0 + i.get_batch_num() * 10 + i.get_epoch_num() for x in a],), input_columns=["a"]))',
    'rows(S(4).batch(2, per_batch_map=lambda a, info: (np.stack(a) * 2,), input_columns=["a"]))',
    'rows(S(4).batch(2, per_batch_map=lambda a, info: np.stack(a) * 2, input_columns=["a"]))',
    'S(4).batch(2, per_batch_map=lambda a, info: (a, a), input_columns=["a"], output_columns=["p", "q"]).get_col_names()',
    'rows(S(4).batch(2, per_batch_map=lambda a, info: (a, a), input_columns=["a"], output_columns=["p", "q"]))',
    'rows(N(["a", "bb", "ccc"], ["a"], shuffle=False).batch(3))',
    "[rows(S(4).batch(10)), rows(S(4).batch(10, True)), S(4).batch(10, True).get_dataset_size()]",
    'rows(V().padded_batch(2, pad_info={"a": ([3], -1)}))',
    "rows(V().padded_batch(2, pad_info={}))",
    'rows(V().padded_batch(2, pad_info={"a": ([1], -1)}))',
    'rows(M().padded_batch(2, pad_info={"a": ([None, 3], 0)}))',
    'rows(M().padded_batch(2, pad_info={"a": (None, 7)}))',
    'rows(G([np.ones(k) for k in (1, 4, 2, 5, 3)], ["a"], shuffle=False).bucket_batch_by_length(["a"], [3], [2, 2], pad_info={"a": ([None], 0)}))',
    "[len(rows(S().repeat(3))), S().repeat(3).get_dataset_size(), S().repeat(3).get_repeat_count(), S().repeat(2).repeat(3).get_repeat_count()]",
    "[_shown(x[0]) for _, x in zip(range(10), S().repeat())]",
    "S().repeat().get_dataset_size()",
    "[rows(S().take(2)), rows(S().take(10)), rows(S().take(-1)), rows(S().take()), S().take(2).get_dataset_size(), S().take(9).get_dataset_size()]",
    "[rows(S().skip(2)), rows(S().skip(0)), S().skip(2).get_dataset_size(), S().skip(10).get_dataset_size(), rows(S().skip(10))]",
    'rows(S(3).zip(S(2, ("c", "d"))))',
    '[S(3).zip(S(2, ("c", "d"))).get_col_names(), S(3).zip(S(2, ("c", "d"))).get_dataset_size()]',
    'rows(ds.zip((S(3), S(2, ("c", "d")))))',
    'rows(S(3).zip((S(2, ("c", "d")), S(2, ("e", "f")))))',
    "rows(S(2).concat(S(1)))",
    "[rows(S(2).concat([S(1), S(1)])), (S(2) + S(1)).get_dataset_size()]",
    "[rows(x) for x in S(5).split([3, 2], randomize=False)]",
    "[x.get_dataset_size() for x in S(5).split([0.5, 0.5])]",
    "[x.get_dataset_size() for x in S(5).split([0.8, 0.2], False)]",
    "[rows(x) for x in S(5).batch(2).split([2, 1], randomize=False)]",
    'rows(S().project(["b"]))',
    'rows(S().project(["b", "a"]))',
    'rows(S().project("b"))',
    '[S().rename(["a"], ["z"]).get_col_names(), S().rename("a", "z").get_col_names()]',
    'rows(S().filter(lambda a: a % 2 == 0, ["a"]))',
    "rows(S().filter(lambda a, b: b > 10))",
    'S().filter(lambda a: a % 2 == 0, ["a"]).get_dataset_size()',
    'rows(S().filter(lambda a: 1, ["a"]))',
    "rows(S(2).flat_map(lambda a, b: S(int(a) + 1)))",
    "rows(S(4).apply(lambda d: d.batch(2)))",
    "sorted(map(str, rows(S(4).shuffle(4))))",
    "len(rows(S(4).shuffle(100)))",
    'rows(S(2), columns=["b"])',
    'rows(S(2), columns=["b", "a"])',
    'rows(S(2), columns="b")',
    "[S(5).batch(2).output_shapes(), S(5).batch(2).get_batch_size(), S(5).batch(2).get_dataset_size(), S(5).batch(2, True).get_dataset_size()]",
    "[str(t) for t in S(5).batch(2).output_types()]",
    "[str(t) for t in N({'a': ['text', 'x'], 'b': [b'bytes', b'y']}, shuffle=False).output_types()]",
    "[S(5).batch(2).batch(2).get_batch_size(), S(5).batch(2).repeat(2).get_batch_size(), S(5).repeat(2).batch(2).get_dataset_size()]",
    "[S().get_batch_size(), S().get_repeat_count(), S().num_classes(), len(S()), S().get_class_indexing()]",
    "[[_shown(v) for v in x.values()] for x in S(2).create_dict_iterator(num_epochs=1, output_numpy=True)]",
    # errors
    'rows(S().map(lambda a: (a, a), ["a"]))',
    'rows(S().map(lambda a: a, ["a"], ["c", "d"]))',
    'rows(S().map(lambda a: [np.array(1), np.array(2)], ["a"], ["c", "d"]))',
    'rows(S().map(lambda a: a, ["z"]))',
    'rows(S().map(lambda a: None, ["a"]))',
    'rows(S().map(lambda a: 1 / 0, ["a"]))',
    'rows(S().map(3, ["a"]))',
    'rows(S().map([], ["a"]))',
    'rows(S().map(ds.transforms.TypeCast(ms.float32), ["a", "b"]))',
    'S().map(lambda a: a, ["a"], foo=1)',
    'rows(S(4).batch(2, per_batch_map=lambda a, info: (a, a), input_columns=["a"]))',
    'rows(S(4).batch(2, per_batch_map=lambda a, info: (a, a), input_columns=["z"]))',
    'S(4).batch(2, input_columns=["a"])',
    "rows(V().batch(2))",
    'rows(G([np.ones(2, np.int32), np.ones(2)], ["a"], shuffle=False).batch(2))',
    "rows(S(4).batch(2, per_batch_map=3))",
    'rows(S(4).batch(2, per_batch_map=lambda a, info: (a,), input_columns=["a"], output_columns=["b"]))',
    "rows(S(4).batch(2, per_batch_map=lambda a, b, info: (a + a, b + b)))",
    "rows(S(4).batch(2, per_batch_map=lambda a, b, info: ([], [])))",
    "rows(S(4).batch(2, per_batch_map=lambda a, b, info: (np.array([1, 2, 3]), np.array([2]))))",
    'S(4).batch(2, max_rowsize="x")',
    "S(4).batch(2, python_multiprocessing=3)",
    'S(4).map(lambda a: a, "a", max_rowsize=[1])',
    'S(4).map(lambda a: a, "a", max_rowsize=-2)',
    'S(4).map(lambda a: a, "a", offload=3)',
    "S(4).batch(0)",
    "S(4).batch(2.0)",
    "S(4).batch(2, 1)",
    "rows(V().padded_batch(2))",
    "S().repeat(0)",
    "S().repeat(-2)",
    "S().take(0)",
    "S().take(1.5)",
    "S().skip(-1)",
    "rows(ds.zip((S(3), S(2))))",
    "ds.zip((S(3),))",
    "ds.zip(3)",
    'rows(S(2) + S(1, ("c", "d")))',
    'rows(S(2) + N([1], ["a"]))',
    'rows(S(2) + N((np.array([1.0]), np.array([1.0])), ["a", "b"]))',
    "S(2) + 3",
    "S(5).split([3, 3])",
    "S(5).split([0.8, 0.3])",
    "S(5).split([0.8, 1])",
    'rows(S().project(["z"]))',
    'S().rename(["y"], ["z"]).get_col_names()',
    'S().rename(["a"], ["b"]).get_col_names()',
    'S().rename(["a", "b"], ["z"]).get_col_names()',
    'rows(S().filter(lambda a: 1 / 0, ["a"]))',
    'rows(S().filter(lambda a: True, ["z"]))',
    "rows(S(2).flat_map(lambda a, b: 3))",
    "S(4).apply(lambda d: 3)",
    "S(4).shuffle(1)",
    'rows(S(2), columns=["z"])',
    "S().create_tuple_iterator(num_epochs=0)",
    "S().create_tuple_iterator(num_epochs=1.5)",
    "S().create_tuple_iterator(output_numpy=1)",
]

SAMPLERS = [
    "[rows(L(sampler=ds.SequentialSampler(*a))) for a in ((), (2,), (1, 3), (4, 5))]",
    "[L(sampler=ds.SequentialSampler(*a)).get_dataset_size() for a in ((), (2,), (1, 3))]",
    "[len(rows(L(sampler=ds.RandomSampler(*a)))) for a in ((), (True, 4), (True,), (False, 4), (True, 10), (False, 10))]",
    "sorted(map(str, rows(L(sampler=ds.RandomSampler()))))",
    "[rows(L(sampler=ds.SubsetSampler([5, 0, 0]))), rows(L(sampler=ds.SubsetSampler([5, 0, 1], 2))), rows(L(sampler=ds.SubsetSampler(3)))]",
    "[rows(L(sampler=ds.SubsetSampler(np.array([1, 2])))), rows(L(sampler=ds.SubsetSampler(range(2))))]",
    "sorted(map(str, rows(L(sampler=ds.SubsetRandomSampler([5, 0, 2])))))",
    "rows(L(sampler=ds.WeightedRandomSampler([0, 0, 1, 0, 0, 0], 3)))",
    "[len(rows(L(sampler=ds.WeightedRandomSampler([1, 2, 3])))), len(rows(L(sampler=ds.WeightedRandomSampler([1, 0, 1, 0, 0, 0], 3, False))))]",
    "sorted(map(str, rows(L(sampler=ds.WeightedRandomSampler([1, 2, 3, 4, 5, 6], 6, False)))))",
    "[rows(L(7, sampler=ds.DistributedSampler(3, k, False))) for k in range(3)]",
    "[rows(L(7, sampler=ds.DistributedSampler(3, k, False, offset=1))) for k in range(3)]",
    "[rows(L(7, sampler=ds.DistributedSampler(3, k, False, num_samples=2))) for k in range(3)]",
    "sorted(str(r) for k in range(3) for r in rows(L(6, sampler=ds.DistributedSampler(3, k))))",
    "[rows(L(sampler=[3, 1])), rows(L(sampler=(3, 1)))]",
    "rows(L(5, shuffle=False, num_shards=2, shard_id=1))",
    "rows(L(sampler=[3, 1, 2], num_samples=2))",
    "rows(L(sampler=np.array([3, 1]), num_samples=5))",
    "rows(L(sampler=iter([3, 1, 2]), num_samples=2))",
    'L(sampler="ab")',
    "L(sampler=[3.0])",
    "rows(L(sampler=ds.SubsetSampler([3, 1]), num_samples=1))",
    "rows(L(sampler=ds.SequentialSampler(-1)))",
    "rows(L(sampler=ds.SequentialSampler(10)))",
    "rows(L(sampler=ds.SubsetSampler([9])))",
    "rows(L(sampler=ds.SubsetSampler([-1])))",
    'ds.SubsetSampler(["a"])',
    "rows(L(sampler=ds.WeightedRandomSampler([0, 0, 0])))",
    "rows(L(sampler=ds.WeightedRandomSampler([-1, 0, 0])))",
    "ds.PKSampler(2, num_class=3)",
]


def own_sampler(ms: Any) -> Any:
    ds = ms.dataset

    class Down(ds.Sampler):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Any:
            yield from range(4, -1, -2)

    class FirstTwo(Down):
        def __init__(self) -> None:
            super().__init__(num_samples=2)

    return [[rows(one(ds, sampler=s)), one(ds, sampler=s).get_dataset_size()] for s in (Down(), FirstTwo())]


def chained_samplers(ms: Any) -> Any:
    ds = ms.dataset
    last = ds.SequentialSampler(start_index=1)
    last.add_child(ds.SubsetSampler([5, 4, 3]))
    half = ds.DistributedSampler(2, 0, shuffle=False)
    half.add_child(ds.SubsetSampler([5, 4, 3, 2]))
    replaced = one(ds)
    replaced.use_sampler(ds.SubsetSampler([1]))
    added = one(ds, shuffle=False)
    added.add_sampler(ds.SubsetSampler([1]))
    return [rows(one(ds, sampler=last)), rows(one(ds, sampler=half)), one(ds, sampler=half).get_dataset_size(), rows(replaced), rows(added)]


def epochs(ms: Any) -> Any:
    """Passes through one iterator; where a pass that was left goes on; what is beyond the last epoch."""
    ds = ms.dataset
    two = ds.GeneratorDataset(list(range(4)), ["a"], shuffle=False).create_tuple_iterator(num_epochs=2)
    found = [[_shown(x[0]) for x in itertools.islice(two, 2)], [_shown(x[0]) for x in two], len(list(two))]
    try:
        next(two)
    except RuntimeError:
        found.append("RuntimeError")
    return found


def generators(ms: Any) -> Any:
    """Several epochs of what Python can go through only once."""
    found = []
    for source in (simple(), (np.array(k) for k in range(3)), zip([1, 2])):
        data = ms.dataset.GeneratorDataset(source, ["a"], shuffle=False)
        size = data.get_dataset_size()
        two = data.create_tuple_iterator(num_epochs=2)
        found.append([size, [_shown(x[0]) for x in itertools.islice(two, 1)], rows(data.repeat(2)), *([_shown(x[0]) for x in two] for _ in range(2))])
    return found


SHOWN = [
    "T.TypeCast(ms.int32)(np.array([1.7, -1.7]))",
    "T.TypeCast(np.float32)(np.array([1, 2]))",
    "T.TypeCast(ms.bool_)(np.array([0, 2]))",
    "T.TypeCast(ms.float16)(3)",
    "T.OneHot(4)(np.array(2))",
    "T.OneHot(4)(np.array(2, np.int32))",
    "T.OneHot(4)(np.array([2, 0]))",
    "T.OneHot(4)(np.array([[2], [0]]))",
    "T.OneHot(4, 0.1)(np.array(2))",
    "T.OneHot(4)(np.array(1, np.uint8))",
    "T.Fill(3)(np.zeros((2, 2), np.float32))",
    "T.Fill(3.7)(np.zeros((2, 2), np.int32))",
    'T.Fill("x")(np.array(["a", "b"]))',
    "T.Concatenate(0, np.array([9]), np.array([8]))(np.array([1, 2]))",
    "T.Duplicate()(np.array([1, 2]))",
    "T.Mask(T.Relational.EQ, 3)(np.array([1, 2, 3]))",
    "T.Mask(T.Relational.GE, 2, ms.int32)(np.array([1, 2, 3]))",
    "T.PadEnd([4], -1)(np.array([1, 2, 3]))",
    "T.PadEnd([4])(np.array([1.0, 2, 3]))",
    "T.PadEnd([2])(np.array([1, 2, 3]))",
    'T.PadEnd([3], "x")(np.array(["a", "b"]))',
    "T.Slice(slice(0, 2))(np.array([1, 2, 3]))",
    "T.Slice([0, 2])(np.array([1, 2, 3]))",
    "T.Slice(1)(np.array([1, 2, 3]))",
    "T.Slice(None)(np.array([1, 2, 3]))",
    "T.Slice(...)(np.array([1, 2, 3]))",
    "T.Slice(slice(0, 1), slice(1, 3))(np.arange(6).reshape(2, 3))",
    "T.Slice(..., 1)(np.arange(6).reshape(2, 3))",
    "T.Unique()(np.array([[3, 1], [3, 2]]))",
    "T.Compose([lambda x: x + 1, T.TypeCast(ms.float32)])(np.array([1]))",
    "T.RandomApply([lambda x: x + 1], 1.0)(np.array([1]))",
    "T.RandomApply([lambda x: x + 1], 0.0)(np.array([1]))",
    "T.RandomChoice([lambda x: x + 1])(np.array([1]))",
    "T.RandomOrder([lambda x: x + 1, lambda x: x + 2])(np.array([1]))",
    "V.Rescale(1 / 255.0, 0.0)(image)",
    "V.Rescale(2.0, 1.0)(image.astype(np.float64))",
    "V.Normalize((1.0, 2.0, 3.0), (2.0, 3.0, 4.0))(image)",
    "V.Normalize((0.1307,), (0.3081,))(grey.astype(np.float32))",
    "V.Normalize((1.0, 2.0, 3.0), (2.0, 3.0, 4.0), is_hwc=False)(image.transpose(2, 0, 1))",
    "V.Normalize([1.0], [2.0])(image)",
    "V.HWC2CHW()(image)",
    "V.HWC2CHW()(grey)",
    "V.ToTensor()(image)",
    "V.ToTensor()(grey)",
    "V.ToTensor(np.float16)(image)",
    "V.Resize((3, 5), Inter.LINEAR)(image)",
    "V.Resize((8, 6), Inter.LINEAR)(grey)",
    "V.Resize((2, 3), Inter.LINEAR)(grey)",
    "V.Resize((2, 2), Inter.LINEAR)(grey)",
    "V.Resize((2, 2), Inter.LINEAR)(grey.astype(np.float32))",
    "V.Resize((8, 8), Inter.LINEAR)(grey)",
    "V.Resize((1, 7), Inter.LINEAR)(grey)",
    "V.Resize((5, 1), Inter.LINEAR)(image)",
    "V.Resize((2, 3), Inter.LINEAR)(grey.astype(np.float32))",
    "V.Resize((3, 4))(image.astype(np.float32))",
    "V.Resize((32, 32))(big)",
    "V.Resize((17, 9))(big)",
    "V.Resize((8, 6), Inter.NEAREST)(grey)",
    "V.Resize((2, 3), Inter.NEAREST)(grey)",
    "V.Resize((3, 5), Inter.NEAREST)(image)",
    "V.Resize(4)(image)",
    "V.Resize(2)(np.zeros((6, 9), np.uint8))",
    "V.CenterCrop(2)(grey)",
    "V.CenterCrop((3, 1))(grey)",
    "V.CenterCrop(6)(grey)",
    "V.CenterCrop((2, 7))(grey)",
    "V.Crop((1, 2), (2, 2))(grey)",
    "[V.Pad([1, 2, 2, 1], 5, b)(grey) for b in Border]",
    "V.Pad((1, 2))(grey)",
    "V.Pad(1, (1, 2, 3))(image)",
    "V.RandomCrop(4)(grey)",
    "[V.RandomCrop(2)(grey).shape, V.RandomCrop((4, 4), (1, 1, 1, 1))(grey).shape, V.RandomCrop(9, pad_if_needed=True)(grey).shape]",
    "[V.HorizontalFlip()(image), V.RandomHorizontalFlip(1.0)(image), V.RandomHorizontalFlip(0.0)(image)]",
    "[V.VerticalFlip()(image), V.RandomVerticalFlip(1.0)(image)]",
    "V.Invert()(image)",
    "V.ToType(np.float32)(grey)",
    "V.RandomResizedCrop(3)(image).shape",
    "V.CutOut(1)(image).shape",
    # errors
    "T.OneHot(4)(np.array(2.0))",
    "T.OneHot(4)(np.array(5))",
    "T.OneHot(0)",
    "T.OneHot(3, 2.0)",
    "T.Concatenate(0, np.array([9.0]))(np.array([1, 2]))",
    "T.Concatenate(1, np.array([9]))",
    "T.PadEnd([2, 2])(np.array([1, 2, 3]))",
    "T.Unique()(np.array([3, 1, 3]))",
    "T.Compose([])",
    "T.Compose([3])",
    "T.RandomApply([lambda x: x], 2.0)",
    "V.Normalize((1.0, 2.0), (2.0, 3.0))(image)",
    "V.Normalize((1.0, 2.0), (2.0,))",
    "V.Normalize((1.0,), (0.0,))",
    "V.Normalize(1.0, 1.0)",
    "V.Normalize([300.0], [2.0])",
    "V.HWC2CHW()(image[None])",
    "V.HWC2CHW()([[1, 2], [3, 4]])",
    "V.Crop((3, 3), (2, 2))(grey)",
    "V.RandomCrop(9)(grey)",
    "V.RandomHorizontalFlip(1.5)",
    'V.Resize((2, 2))(np.array([["a", "b"], ["c", "d"]]))',
    "V.Resize((2, 2))(np.zeros((0, 4), np.uint8))",
    'V.Rescale(1.0, 0.0)(np.array([["a"]]))',
    'T.TypeCast(ms.float32)(np.array(["1.5"]))',
    "T.TypeCast(ms.uint8)(np.array([300, -1]))",
    'T.Mask(T.Relational.EQ, "a")(np.array([1]))',
    'T.Mask(T.Relational.GT, 1)(np.array(["a"]))',
    'T.PadEnd([2], "x")(np.array([1]))',
    'T.PadEnd([3], 1)(np.array(["a"]))',
    "V.Crop((0, 0, 0), 2)",
]


def evaluate(expression: str, ms: Any) -> Any:
    ds = ms.dataset
    result = eval(expression, globals() | {
        "ms": ms, "ds": ds, "G": ds.GeneratorDataset, "N": ds.NumpySlicesDataset, "S": partial(pair, ds), "L": partial(one, ds),
        "V": lambda: ds.GeneratorDataset([np.ones(1), np.ones(2)], ["a"], shuffle=False),
        "M": lambda: ds.GeneratorDataset([np.ones((1, 2)), np.ones((2, 1))], ["a"], shuffle=False),
    })  # fmt: skip
    return "made" if type(result).__name__.endswith(("Dataset", "Iterator", "Sampler")) else result


def transformed(expression: str, ms: Any) -> Any:
    ds = ms.dataset
    image = (np.arange(2 * 3 * 3) * 7 % 256).astype(np.uint8).reshape(2, 3, 3)
    grey = (np.arange(4 * 4) * 13 % 256).astype(np.uint8).reshape(4, 4)
    big = (np.arange(28 * 28) * 37 % 256).astype(np.uint8).reshape(28, 28, 1)
    scope = {"T": ds.transforms, "V": ds.vision, "Inter": ds.vision.Inter, "Border": ds.vision.Border, "image": image, "grey": grey, "big": big}
    return _all_shown(eval(expression, globals() | {"ms": ms} | scope))


def _all_shown(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return [x.dtype.str, list(x.shape), x.tolist() if x.dtype.kind == "U" else x]
    if isinstance(x, (list, tuple)):
        return [_all_shown(v) for v in x]
    return x if isinstance(x, int) else "made"


def programs() -> dict[str, Any]:
    found: dict[str, Any] = {f.__name__: f for f in (own_sampler, chained_samplers, epochs, generators)}
    found |= {e: partial(evaluate, e) for e in (*SOURCES, *STEPS, *SAMPLERS)}
    found |= {e: partial(transformed, e) for e in SHOWN}
    return found
