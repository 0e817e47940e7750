"""How pipelines run: threads, errors, passes that are left early, seeds."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest

import graphcell as ms
from graphcell import Tensor, dataset
from graphcell.dataset import GeneratorDataset, NumpySlicesDataset, config, transforms, vision
from graphcell.errors import DatasetError


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    workers, size = config._settings.num_parallel_workers, config.get_prefetch_size()
    yield
    config._settings.num_parallel_workers = workers
    config.set_prefetch_size(size)
    config.set_debug_mode(False)


def numbers(count: int = 8, **options: Any) -> NumpySlicesDataset:
    return NumpySlicesDataset(list(range(count)), ["x"], **{"shuffle": False} | options)


def values(data: Any) -> list[Any]:
    return [row[0].tolist() for row in data.create_tuple_iterator(num_epochs=1)]


def wait_for(condition: Callable[[], bool]) -> bool:
    """Whether it holds at some moment of two minutes: a busy machine takes its time."""
    end = time.monotonic() + 120
    while not (holds := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return holds


def dataset_threads() -> set[threading.Thread]:
    gc.collect()
    return {t for t in threading.enumerate() if t.name.startswith("graphcell dataset")}


# -- threads ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_several_threads_keep_the_order(workers: int) -> None:
    def slowly(x: Any) -> Any:
        time.sleep(0.002 if x % 3 else 0.006)
        return x * 2

    data = GeneratorDataset(list(range(20)), ["x"], shuffle=False, num_parallel_workers=workers)
    data = data.map(slowly, num_parallel_workers=workers).filter(lambda x: x % 4 == 0, num_parallel_workers=workers).batch(2, num_parallel_workers=workers)
    assert values(data) == [[0, 4], [8, 12], [16, 20], [24, 28], [32, 36]]


def test_workers_really_work_side_by_side() -> None:
    together = threading.Barrier(3, timeout=120)

    def wait(x: Any) -> Any:
        together.wait()
        return x

    assert values(numbers(6).map(wait, num_parallel_workers=3)) == list(range(6))
    config.set_num_parallel_workers(3)
    assert values(numbers(6).map(wait)) == list(range(6))


def test_rows_are_made_ahead_but_not_too_far() -> None:
    made: list[int] = []

    def source() -> Iterator[int]:
        for k in range(100):
            made.append(k)
            yield k

    config.set_prefetch_size(4)
    rows = GeneratorDataset(source, ["x"]).create_tuple_iterator(num_epochs=1)
    next(rows)
    assert wait_for(lambda: len(made) >= 6)
    time.sleep(0.05)  # in which it could make more
    assert len(made) == 6  # one taken, four waiting, one in the thread's hand
    rows.stop()


def test_debug_mode_makes_rows_when_they_are_asked_for() -> None:
    made: list[str] = []
    config.set_debug_mode(True)
    rows = numbers().map(lambda x: made.append(threading.current_thread().name) or x, num_parallel_workers=3).create_tuple_iterator()
    next(rows)
    assert made == [threading.current_thread().name]


def test_iterators_at_the_same_time() -> None:
    data = numbers(4).batch(2)
    assert [(a[0].tolist(), b[0].tolist()) for a, b in zip(data, data)] == [([0, 1], [0, 1]), ([2, 3], [2, 3])]


def test_callbacks() -> None:
    """The numbers are those that MindSpore 2.10 told; it tells of rows before it makes several of them."""
    told: list[Any] = []

    class Teller(dataset.DSCallback):
        def ds_begin(self, c: Any) -> None:
            told.append(("begin", c.cur_epoch_num, c.cur_step_num_in_epoch, c.cur_step_num))

        def ds_epoch_begin(self, c: Any) -> None:
            told.append(("epoch begin", c.cur_epoch_num, c.cur_step_num_in_epoch, c.cur_step_num))

        def ds_epoch_end(self, c: Any) -> None:
            told.append(("epoch end", c.cur_epoch_num, c.cur_step_num_in_epoch, c.cur_step_num))

        def ds_step_begin(self, c: Any) -> None:
            told.append(("step begin", c.cur_epoch_num, c.cur_step_num_in_epoch, c.cur_step_num))

        def ds_step_end(self, c: Any) -> None:
            told.append(("step end", c.cur_epoch_num, c.cur_step_num_in_epoch, c.cur_step_num))

    rows = numbers(3).map(transforms.TypeCast(ms.float32), callbacks=[Teller(2)]).batch(2).create_tuple_iterator(num_epochs=2)
    assert [[r[0].tolist() for r in rows] for _ in range(2)] == [[[0.0, 1.0], [2.0]]] * 2
    assert told == [
        ("begin", 0, 0, 0),
        ("epoch begin", 1, 0, 0), ("step begin", 1, 1, 1), ("step end", 1, 1, 1), ("step begin", 1, 3, 3), ("step end", 1, 3, 3), ("epoch end", 1, 3, 3),
        ("epoch begin", 2, 0, 3), ("step begin", 2, 1, 4), ("step end", 2, 1, 4), ("step begin", 2, 3, 6), ("step end", 2, 3, 6), ("epoch end", 2, 3, 6),
    ]  # fmt: skip

    class Failing(dataset.DSCallback):
        def ds_step_begin(self, c: Any) -> None:
            raise ValueError("boo")

    with pytest.raises(RuntimeError, match=r"ds_step_begin failed. ValueError: boo"):
        list(numbers().map(lambda x: x, callbacks=Failing()))
    for wrong in (3, [3], Failing):
        with pytest.raises(TypeError):
            numbers().map(lambda x: x, callbacks=wrong)
    with pytest.raises(ValueError):
        dataset.DSCallback(0)


# -- ends ------------------------------------------------------------------------------------------------------------------
def test_leaving_a_loop_ends_the_threads() -> None:
    ended: list[bool] = []

    def source() -> Iterator[int]:
        try:
            yield from range(1000)
        finally:
            ended.append(True)

    before = dataset_threads()
    for _ in GeneratorDataset(source, ["x"]).map(lambda x: x, num_parallel_workers=2):
        break
    assert wait_for(lambda: dataset_threads() <= before)  # those of other tests may end, too
    assert wait_for(lambda: ended == [True])


def test_a_program_that_leaves_a_loop_ends() -> None:
    program = "import graphcell.dataset as ds\nrows = ds.GeneratorDataset(range(10**6), ['x'], shuffle=False).create_tuple_iterator()\nprint(next(rows)[0])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 0)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_keyboard_interrupt_reaches_who_waits() -> None:
    leave = threading.Event()
    left: list[bool] = []

    def source() -> Iterator[int]:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)
        left.append(leave.wait(120))
        yield 0

    try:
        with pytest.raises(KeyboardInterrupt):
            next(GeneratorDataset(source, ["x"]).create_tuple_iterator())
        assert not left  # the row is still being made
    finally:
        leave.set()


def test_a_stopped_iterator_gives_no_more() -> None:
    rows = numbers().create_dict_iterator()
    assert next(rows)["x"] == 0
    rows.stop()
    assert list(rows) == []


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("where", ["source", "map"])
def test_threads_that_wait_for_ever_do_not_keep_a_program_from_ending(where: str) -> None:
    program = f"""
import os, signal, threading, graphcell.dataset as ds

first = threading.Lock()

class Source:
    def __len__(self):
        return 9

    def __getitem__(self, k):
        return wait() if {where == "source"} else k

def wait(*row):
    if first.acquire(blocking=False):
        os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()

data = ds.GeneratorDataset(Source(), ["x"], num_parallel_workers=2).map(wait, num_parallel_workers=2)
try:
    list(data)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


def test_a_generator_is_kept_for_further_epochs() -> None:
    """Also iterators that MindSpore gives nothing of from the second epoch on; errors come again; iterators at the same time share the rows."""
    for source in (iter([1, 2, 3]), map(int, "123"), (k for k in (1, 2, 3))):
        data = GeneratorDataset(source, ["x"])
        assert [(a.item(), b.item()) for (a,), (b,) in zip(data, data)] == [(1, 1), (2, 2), (3, 3)]
        assert data.get_dataset_size() == 3 and values(data.repeat(2)) == [1, 2, 3] * 2

    batches = GeneratorDataset([1, 2, 3], ["x"], batch_sampler=([k, 0] for k in (1, 2)))
    assert batches.get_dataset_size() == 2 and values(batches.repeat(2)) == [[2, 1], [3, 1]] * 2

    def source_that_fails() -> Iterator[int]:
        yield 1
        raise OSError("unplugged")

    data = GeneratorDataset(source_that_fails(), ["x"])
    for _ in range(2):
        rows = data.create_tuple_iterator()
        assert next(rows)[0].item() == 1
        with pytest.raises(DatasetError, match="OSError: unplugged"):
            next(rows)


def test_sources_without_end() -> None:
    data = GeneratorDataset(lambda: count(), ["x"])
    assert data.take(4).get_dataset_size() == 4 and values(data.take(2)) == [0, 1]
    for endless in (data.map(lambda x: x).batch(2), data.rename("x", "y").shuffle(2), data.filter(lambda x: x % 2 == 0), data.zip(data.rename("x", "y"))):
        assert endless.take(3).batch(2).get_dataset_size() == 2
    assert data.take(4).concat(data.take(2)).get_dataset_size() == 6 and data.take(9).skip(2).take(20).get_dataset_size() == 7
    assert GeneratorDataset(lambda: count(), ["x"], num_samples=3).get_dataset_size() == 3


def test_rows_are_counted_once_and_no_further_than_asked_for() -> None:
    given: list[int] = []

    def source() -> Iterator[int]:
        for k in range(10):
            given.append(k)
            yield k

    data = GeneratorDataset(source, ["x"])
    assert data.map(lambda x: 1 // 0).batch(2).take(3).get_dataset_size() == 3 and given == list(range(6))
    for steps, size in ((data, 10), (data.skip(3), 7), (data.repeat(2), 20), (data.batch(3), 4), (data.batch(3, True), 3), (data.take(20), 10)):
        assert steps.get_dataset_size() == size
    assert len(given) == 16


# -- errors ----------------------------------------------------------------------------------------------------------------
def broken(x: Any) -> Any:
    return x / {}["missing"]


@pytest.mark.parametrize("where, step", [
    ("GeneratorDataset's source", lambda: GeneratorDataset([(1, None)], ["a", "b"])),
    ("map operation [<lambda>]", lambda: GeneratorDataset([1], ["a"]).map(lambda a: None, "a")),
    ("batch: 'per_batch_map' function", lambda: GeneratorDataset([1], ["a"]).batch(1, per_batch_map=lambda a, info: ([None],))),
])  # fmt: skip
def test_a_value_that_no_column_can_have_tells_where_it_came_from(where: str, step: Callable[[], Any]) -> None:
    with pytest.raises(DatasetError) as caught:
        list(step().create_tuple_iterator(num_epochs=1))
    assert str(caught.value).startswith(f"{where}: expected numbers, strings or arrays of them, but got NoneType")


@pytest.mark.parametrize("workers", [1, 3])
def test_errors_in_user_code_show_its_line(workers: int) -> None:
    rows = numbers().map(broken, num_parallel_workers=workers).batch(2).create_tuple_iterator()
    with pytest.raises(RuntimeError, match=r"map operation \[broken\] failed. KeyError: 'missing'") as caught:
        next(rows)
    assert isinstance(caught.value, DatasetError) and isinstance(caught.value.__cause__, KeyError)
    assert 'return x / {}["missing"]' in str(caught.value) and "test_running.py" in str(caught.value)
    assert list(rows) == []  # it is over


def test_rows_before_an_error_come() -> None:
    rows = numbers().map(lambda x: x if x < 2 else 1 / 0).create_tuple_iterator()
    assert [next(rows)[0].item(), next(rows)[0].item()] == [0, 1]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        next(rows)


def test_errors_of_sources_and_batch_functions() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    for data in (
        GeneratorDataset(source, ["x"]),
        numbers().filter(lambda x: no_such_name),  # type: ignore[name-defined]  # noqa: F821
        numbers().batch(2, per_batch_map=lambda x, info: x.shape),
        numbers().batch(lambda info: "two"),  # type: ignore[arg-type,return-value]
        numbers().batch(lambda info: 1 // 0),
    ):
        with pytest.raises(DatasetError):
            list(data)


def test_errors_of_samplers() -> None:
    class Failing(dataset.Sampler):
        def __iter__(self) -> Iterator[int]:
            yield 1
            raise KeyError("mine")

    for data, message in (
        (NumpySlicesDataset([1, 2], ["x"], sampler=Failing()), "sampler Failing failed. KeyError: 'mine'"),
        (NumpySlicesDataset([1, 2], ["x"], sampler=map(str, (0, 1))), "must be int, but got list.0.: 0"),
        (GeneratorDataset([1, 2], ["x"], batch_sampler=([1 // k] for k in (2, 0))), "batch_sampler failed. ZeroDivisionError"),
        (GeneratorDataset([1, 2], ["x"], batch_sampler=iter([[0], 1])), "batch_sampler failed. TypeError"),
        (GeneratorDataset([1, 2], ["x"], batch_sampler=iter([[0], []])), "gave no indices for a batch"),
    ):
        with pytest.raises(DatasetError, match=message):
            list(data)
    with pytest.raises(NotImplementedError, match="no cache server"):
        numbers().map(lambda x: x, cache="somewhere")


def test_stop_iteration_in_user_code_does_not_end_the_rows() -> None:
    with pytest.raises(DatasetError, match="StopIteration"):
        list(numbers().map(lambda x: next(iter(()))))


@pytest.mark.parametrize("batched", [False, True])
def test_errors_of_transforms_are_the_pipelines(batched: bool) -> None:
    class Failing(transforms.TypeCast):
        def compute(self, x: Any, lead: int) -> Any:
            return x.no_such_attribute

    words = NumpySlicesDataset(["a", "b"], ["x"])
    for operation, message in ((transforms.TypeCast(ms.float32), "TypeCast: strings have no values"), (Failing(ms.float32), r"map operation \[Failing\] failed")):
        data = words.map(operation)
        with pytest.raises(DatasetError, match=message):
            list(data.batch(2) if batched else data)


def test_batches_of_unlike_rows_name_the_column() -> None:
    data = GeneratorDataset([(1, np.ones(2)), (2, np.ones(3))], ["k", "image"], shuffle=False)
    with pytest.raises(RuntimeError, match=r"different shapes in column 'image': \(2,\) and \(3,\)"):
        list(data.batch(2))
    with pytest.raises(RuntimeError, match="different shapes in column 'image'"):
        list(data.map(transforms.TypeCast(ms.float32), "image").batch(2))
    with pytest.raises(NotImplementedError, match="MindRecord"):
        numbers().save("x")


# -- arrays ----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("batched", [False, True])
def test_what_is_given_out_is_the_users_own(batched: bool) -> None:
    source = np.arange(8.0).reshape(4, 2)
    data = NumpySlicesDataset(source, ["x"], shuffle=False)
    for (x,) in data.batch(2) if batched else data:
        x += 1
        x[0] = 100.0
    for (x,) in (data.batch(2) if batched else data).create_tuple_iterator(num_epochs=1, output_numpy=True):
        x[...] = -1
    np.testing.assert_array_equal(source, np.arange(8.0).reshape(4, 2))


def test_bytes_of_the_other_order_and_bfloat16() -> None:
    import ml_dtypes

    data = GeneratorDataset([(np.array([1, 2], ">i4"), np.array([1.5], ml_dtypes.bfloat16))], ["a", "b"])
    ((a, b),) = list(data)
    assert (a.dtype, a.tolist(), b.dtype, b.tolist()) == (ms.int32, [1, 2], ms.bfloat16, [1.5])


def test_dicts_as_columns() -> None:
    data = GeneratorDataset([({"n": k, "s": "t"}, k) for k in range(2)], ["d", "k"], shuffle=False)
    assert [d["n"].item() for d, _ in data] == [0, 1]
    ((d, k),) = list(data.batch(2))
    assert d["n"].tolist() == [0, 1] and d["s"].tolist() == ["t", "t"] and k.tolist() == [0, 1]


def test_transforms_of_many_rows_are_those_of_each_row() -> None:
    images = np.random.default_rng(0).integers(0, 256, (7, 6, 5, 3)).astype(np.uint8)
    data = NumpySlicesDataset((images, np.arange(7)), ["image", "label"], shuffle=False)
    steps: list[Any] = [vision.Rescale(1 / 255, 0.0), vision.Normalize((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)), vision.HWC2CHW(), transforms.TypeCast(ms.float16)]
    for operations in (
        steps,
        [vision.ToTensor()],
        [vision.HorizontalFlip(), vision.VerticalFlip(), vision.Invert()],
        [transforms.Compose([vision.HWC2CHW(), vision.Rescale(2.0, 1.0)])],
        [transforms.Mask(transforms.Relational.GT, 9), transforms.TypeCast(ms.int8)],
        [lambda x: x[1:], *steps],
        [vision.Resize((9, 4))],
        [vision.Resize((3, 10), vision.Inter.NEAREST), vision.CenterCrop((4, 3)), vision.Crop((1, 0), (2, 2))],
        [transforms.TypeCast(ms.float32), vision.Resize(8), vision.CenterCrop(4), vision.Resize(2)],
    ):
        each = [row[0].asnumpy() for row in data.map(operations, "image").create_tuple_iterator()]
        together = [row[0].asnumpy() for row in data.map(operations, "image").batch(3).create_tuple_iterator()]
        np.testing.assert_array_equal(np.concatenate(together), np.stack(each))
        assert together[0].dtype == each[0].dtype
    hot = data.map(transforms.OneHot(8), "label").batch(7)
    np.testing.assert_array_equal(next(iter(hot))[1].asnumpy(), np.eye(8, dtype=np.int64)[:7])
    again = data.map(steps, "image").map(transforms.TypeCast(ms.int32), "label").shuffle(4).project(["label"]).rename("label", "y").skip(1).take(4).repeat(2)
    assert sorted(len(b[0]) for b in again.batch(3)) == [2, 3, 3]


def test_sizes_of_what_is_repeated_without_end() -> None:
    endless = numbers(4).repeat()
    assert endless.get_dataset_size() == 4
    for data in (endless.take(10), endless.batch(3).take(5), endless.skip(1).rename("x", "y").take(6), dataset.zip((endless, numbers(7).rename("x", "y")))):
        assert len(data) == sum(1 for _ in data)
    with pytest.raises(RuntimeError, match="without end"):
        len(endless.filter(lambda x: x > 1))


def test_columns_that_a_map_replaces() -> None:
    data = NumpySlicesDataset({"a": [1, 2], "b": [3, 4], "c": [5, 6]}, shuffle=False)
    for made, names, rows in (
        (data.map(lambda a: a * 10, "a", "b"), ["b", "c"], [[10, 5], [20, 6]]),
        (data.map(lambda a, c: (c, a), ["a", "c"], ["c", "a"]), ["c", "b", "a"], [[5, 3, 1], [6, 4, 2]]),
        (data.map(lambda b: (b, -b), "b", ["c", "d"]), ["c", "d", "a"], [[3, -3, 1], [4, -4, 2]]),
        (data.map(lambda c, b: c + b, ["c", "b"], ["a"]), ["a"], [[8], [10]]),
        (data.map(transforms.TypeCast(ms.float32), "a", "c"), ["c", "b"], [[1.0, 3], [2.0, 4]]),
        (data.map([lambda c: c * 10, transforms.TypeCast(ms.float32)], "c", "a"), ["b", "a"], [[3, 50.0], [4, 60.0]]),
        (data.map([lambda c: c * 10, transforms.TypeCast(ms.float32)], "c", "z"), ["a", "b", "z"], [[1, 3, 50.0], [2, 4, 60.0]]),
    ):
        assert made.get_col_names() == names
        assert [[x.item() for x in row] for row in made] == rows
        assert [x.tolist() for x in next(iter(made.batch(2)))] == [list(column) for column in zip(*rows)]


# -- random numbers --------------------------------------------------------------------------------------------------------
def test_seeds_repeat_shuffles() -> None:
    def orders() -> list[list[int]]:
        data = NumpySlicesDataset(list(range(30)), ["x"])
        twice = data.create_tuple_iterator()
        return [values(data), values(data.shuffle(7)), [r[0].item() for r in twice], [r[0].item() for r in twice], values(data.repeat(2))]

    dataset.config.set_seed(5)
    first = orders()
    dataset.config.set_seed(5)
    assert orders() == first
    ms.set_seed(5)
    assert orders() == first and dataset.config.get_seed() == 5
    ms.set_seed(6)
    assert orders() != first
    assert all(sorted(order) == list(range(30)) for order in first[:4])
    assert first[0] == first[2], "each iterator starts anew from the seed"
    assert first[2] != first[3], "each epoch has another order"
    assert first[4][:30] != first[4][30:]


def test_a_shuffle_is_uniform_enough() -> None:
    """Each of 5 rows stands at each of 5 places equally often: chi-square with 16 degrees of freedom, 39.3 at 0.1 %."""
    ms.set_seed(3)
    for data in (NumpySlicesDataset(list(range(5)), ["x"]), numbers(5).shuffle(5), numbers(5).shuffle(50)):
        rows, counts = data.create_tuple_iterator(output_numpy=True), np.zeros((5, 5))
        for _ in range(400):
            for place, (x,) in enumerate(rows):
                counts[place, x] += 1
        assert ((counts - 80) ** 2 / 80).sum() < 39.3


def test_random_transforms_do_not_depend_on_threads() -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3)).astype(np.uint8)
    steps = [vision.RandomCrop(6, 2), vision.RandomHorizontalFlip(), transforms.RandomChoice([vision.VerticalFlip(), vision.Invert()]), vision.CutOut(2)]

    def made(workers: int) -> Any:
        ms.set_seed(7)
        data = NumpySlicesDataset((images,), ["image"], shuffle=False).map(steps, num_parallel_workers=workers)
        rows = data.create_tuple_iterator(output_numpy=True)
        return [np.stack([x for (x,) in rows]) for _ in range(2)]

    one, many = made(1), made(4)
    np.testing.assert_array_equal(one, many)
    assert not np.array_equal(one[0], one[1]), "another epoch, other numbers"
    assert len({x.tobytes() for x in one[0]}) == 12


def test_random_split() -> None:
    ms.set_seed(1)
    for data in (NumpySlicesDataset(list(range(10)), ["x"]), numbers(10).batch(1), GeneratorDataset(lambda: iter(range(10)), ["x"])):
        parts = data.split([0.7, 0.3])
        first = [[values(part) for part in parts] for _ in range(2)]
        assert [len(part) for part in first[0]] == [7, 3]
        assert [sorted(np.ravel(part).tolist()) for part in first[0]] == [sorted(np.ravel(part).tolist()) for part in first[1]]
        assert sorted(np.ravel(first[0][0]).tolist() + np.ravel(first[0][1]).tolist()) == list(range(10))
        assert np.ravel(first[0][0]).tolist() + np.ravel(first[0][1]).tolist() != list(range(10))


# -- names ---------------------------------------------------------------------------------------------------------------
def test_every_public_name_is_there() -> None:
    for module in (dataset, transforms, vision):
        for name in module.__all__:
            assert getattr(module, name) is not None, f"{module.__name__}.{name}"


# -- settings --------------------------------------------------------------------------------------------------------------
def test_settings() -> None:
    pairs = [name[4:] for name in dir(config) if name.startswith("get_") and hasattr(config, f"set_{name[4:]}")]
    assert {"seed", "num_parallel_workers", "prefetch_size", "auto_offload", "enable_watchdog"} <= set(pairs)
    for name in pairs:
        getter, setter = getattr(config, f"get_{name}"), getattr(config, f"set_{name}")
        before = getter()
        changed = not before if isinstance(before, bool) else 3
        try:
            if name not in ("data_seed",):
                setter(changed)
                assert getter() == changed, name
                with pytest.raises(TypeError):
                    setter("x")
        finally:
            setter(before)
    for function, wrong in ((config.set_seed, -1), (config.set_num_parallel_workers, 0), (config.set_prefetch_size, 0), (config.set_seed, 2**32)):
        with pytest.raises(ValueError):
            function(wrong)


# -- a training ------------------------------------------------------------------------------------------------------------
def test_batches_train_a_compiled_step() -> None:
    ms.set_seed(0)
    x = np.random.default_rng(1).normal(size=(64, 4)).astype(np.float32)
    y = (x @ np.array([[1.0], [-2.0], [0.5], [3.0]], np.float32)).astype(np.float32)
    net = ms.nn.Dense(4, 1)
    optimizer = ms.nn.SGD(net.trainable_params(), 0.1)
    gradient = ms.value_and_grad(lambda a, b: ((net(a) - b) ** 2).mean(), None, optimizer.parameters)

    @ms.jit
    def step(a: Tensor, b: Tensor) -> Tensor:
        loss, grads = gradient(a, b)
        optimizer(grads)
        return loss

    data = NumpySlicesDataset((x, y), ["x", "y"]).batch(16)
    losses = [step(*batch).item() for _ in range(30) for batch in data.create_tuple_iterator()]
    assert losses[-1] < 1e-3 < losses[0]
