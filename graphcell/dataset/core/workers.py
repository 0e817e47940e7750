"""Threads of a pipeline: one that makes rows ahead of their use, and several that share the work of one step. Order is kept.

An error in a thread is raised where its row is asked for. A reader that is closed, or that nobody holds any more, ends its thread. No thread
keeps a program from ending, not even one that waits for ever in a user's function.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class _Queue(Generic[T]):
    """A bounded queue between one thread that fills it and one that empties it, which either side may end."""

    def __init__(self, size: int):
        self.size = size
        self.items: deque[T] = deque()
        self.changed = threading.Condition()
        self.ended = False
        self.closed = False
        self.error: BaseException | None = None

    def put(self, item: T) -> bool:
        """False if nobody wants more."""
        with self.changed:
            while len(self.items) >= self.size and not self.closed:
                self.changed.wait()
            if self.closed:
                return False
            self.items.append(item)
            self.changed.notify_all()
            return True

    def end(self, error: BaseException | None) -> None:
        with self.changed:
            self.ended, self.error = True, error
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.items.clear()
            self.changed.notify_all()

    def get(self) -> T:
        """The next item. Raises StopIteration after the last one, or the error that came instead of it."""
        with self.changed:
            while not self.items and not self.ended and not self.closed:
                self.changed.wait()
            if self.items:
                item = self.items.popleft()
                self.changed.notify_all()
                return item
            error, self.error = self.error, None
        if error is not None:
            raise error
        raise StopIteration


class Ahead(Generic[T]):
    """An iterator over `items` that has a thread make up to `size` of them ahead."""

    def __init__(self, items: Iterator[T], size: int):
        self._queue: _Queue[T] = _Queue(size)
        # The thread knows the queue but not this object: once that is gone, the queue is closed and the thread ends.
        self.close = weakref.finalize(self, self._queue.close)
        threading.Thread(target=_fill, args=(items, self._queue), name="graphcell dataset", daemon=True).start()

    def __iter__(self) -> Ahead[T]:
        return self

    def __next__(self) -> T:
        return self._queue.get()


def _fill(items: Iterator[Any], queue: _Queue[Any]) -> None:
    error: BaseException | None = None
    try:
        for item in items:
            if not queue.put(item):
                break
    except BaseException as e:
        error = e
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()  # runs what a user's generator has in `finally`
        queue.end(error)


def in_order(function: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """`map(function, items)` by several threads, a few items ahead."""
    calls: SimpleQueue[tuple[T, Future[R]] | None] = SimpleQueue()
    waiting: deque[Future[R]] = deque()
    # The interpreter waits for the threads of a ThreadPoolExecutor before it ends; it does not wait for these.
    for _ in range(workers):
        threading.Thread(target=_work, args=(function, calls), name="graphcell dataset worker", daemon=True).start()
    try:
        for item in items:
            waiting.append(Future())
            calls.put((item, waiting[-1]))
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        for _ in range(workers):
            calls.put(None)


def _work(function: Callable[[T], R], calls: SimpleQueue[tuple[T, Future[R]] | None]) -> None:
    while (call := calls.get()) is not None:
        _answer(function, *call)
        del call  # else its row would stay in memory while this thread waits for the next one


def _answer(function: Callable[[T], R], item: T, future: Future[R]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function(item))
    except BaseException as e:
        future.set_exception(e)
        del future  # which the traceback would hold, and with it the error itself
