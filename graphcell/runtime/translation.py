"""The machine code of one program, part by part: from the object cache, or made in threads while the rest of the program is lowered.

Enters: modules as the lowering hands them over. Leaves: object code, each part of which is an entry of its own in the cache. What the runtime itself
needs (support.py) is made beside the first program of all.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import llvmlite

from graphcell.codegen.llvm.processor import NOT_RUN, PASSES, Target
from graphcell.locks import whole
from graphcell.runtime import support
from graphcell.runtime.cache import ObjectCache, make_key
from graphcell.runtime.loader import host
from graphcell.runtime.threads import processors
from graphcell.version import __version__

if TYPE_CHECKING:
    from graphcell.codegen.llvm.target import Translator
    from graphcell.codegen.llvm.text import Module


class Translation:
    """`with Translation(cache, target) as translation:`; when it ends, no thread works for it any more.

    Attributes:
        keys: of the parts in the cache.
        from_cache: whether all of them were there already.
    """

    def __init__(self, cache: ObjectCache, target: Target):
        self.keys: list[str] = []
        self.from_cache = True
        self._cache, self._target = cache, target
        self._heads: dict[str, str] = {}
        self._found: dict[str, bytes] = {}
        self._support: list[tuple[str, str]] = []
        self._translator: Translator | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Translation:
        """Begins with what the runtime needs itself, unless it is there."""
        if replace(self._target, flushes=host().flushes) == host():  # eager kernels keep denormal numbers
            try:
                self._support = support.missing()
                for _, text in self._support:
                    self._begin(text)
            except BaseException:
                self._stack.close()
                raise
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    @property
    def goes_along(self) -> bool:
        """Whether there is a processor for it while another one lowers."""
        return processors() > 1

    def take(self, module: Module, followed: bool) -> None:
        """Begins to translate a module, see `Translates`, by all processors, however few threads calls use: this is done once."""
        with whole:
            from graphcell.codegen.llvm.parts import cut, heads

        parts = cut(module, processors(), self._heads, followed)
        for number, part in enumerate(parts, 1):
            key = make_key("part", part, repr(self._target), repr((PASSES, NOT_RUN)), __version__, llvmlite.__version__, sys.version)
            self.keys.append(key)
            found = self._cache.get(key)
            if found is None:
                self.from_cache = False
                self._begin(part, apart=followed or number < len(parts))  # who waits for the last may as well make it
            else:
                self._found[key] = found[1]
        self._heads |= heads(module) if followed else {}

    def _begin(self, text: str, apart: bool = True) -> None:
        with whole:
            from graphcell.codegen.llvm.target import Translator

        if self._translator is None:
            self._translator = self._stack.enter_context(Translator(self._target))
        self._translator.begin(text, apart)

    def objects(self) -> list[bytes]:
        """The object code of all parts, which the cache keeps from now on.

        Raises:
            CodegenError: LLVM cannot make it.
        """
        if self._translator is None:
            return [self._found[key] for key in self.keys]
        made = iter(self._translator.results())
        for name, text in self._support:
            support.provide(name, text, next(made))
        for key in self.keys:
            if key not in self._found:
                self._found[key] = next(made)
                self._cache.put(key, {}, self._found[key])
        return [self._found[key] for key in self.keys]


def kept_objects(cache: ObjectCache, keys: Sequence[str]) -> list[bytes] | None:
    """The object code of these parts, if the cache has all of them."""
    found = [cache.get(key) for key in keys]
    objects = [entry[1] for entry in found if entry is not None]
    return objects if len(objects) == len(keys) else None
