"""`match`: the cases are tried in turn, as an `if` with its `elif`s.

The structure of the subject (what it is an instance of, its length, its keys) is known while the graph is being built, and decides then. A value
pattern is `==`: where it meets a Tensor, only the graph knows whether it holds, and the case becomes a branch like that of an `if`. To sequence
and mapping patterns a Tensor is neither, and to `None`, `True` and `False` it is none of them: that is Python's meaning.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError, BranchTypeError
from graphcell.frontend.control import Control
from graphcell.frontend.expressions import check_key, mangled
from graphcell.frontend.frame import Frame
from graphcell.frontend.numbers import WeakNumber, is_number
from graphcell.frontend.places import Unbound
from graphcell.frontend.signals import Chain, Done, Signal
from graphcell.frontend.supported import leaves
from graphcell.ops.functional.comparison import logical_and, logical_or
from graphcell.records import dataclass
from graphcell.tensor import Tensor

_NO_SEQUENCES = (str, bytes, bytearray)
_MATCH_SELF = 1 << 22
"""Py_TPFLAGS of classes such as int and dict, whose one positional pattern is for the subject itself."""
_ABSENT = object()


@dataclass(slots=True)
class Match:
    """A pattern against a subject. `truth`: whether it fits. `names`: what it binds then, with the pattern that says so."""

    truth: bool | Tensor = True
    names: dict[str, tuple[ast.pattern, Any]] = field(default_factory=dict)

    def add(self, other: Match) -> bool:
        """Asks for `other` too; False if that is settled not to fit."""
        if isinstance(self.truth, bool) or isinstance(other.truth, bool):
            self.truth = other.truth if self.truth is True else self.truth if other.truth is True else False
        else:
            self.truth = logical_and(self.truth, other.truth)
        self.names.update(other.names)
        return self.truth is not False


_FAILED = Match(False)


class Patterns(Control):
    """Adds `match`."""

    def run_block_Match(self, node: ast.Match, frame: Frame, rest: Chain) -> Chain | Done:
        subject = self.evaluate(node.subject, frame)
        return self._cases(node.cases, subject, frame, rest)

    def _cases(self, cases: Sequence[ast.match_case], subject: Any, frame: Frame, rest: Chain) -> Chain | Done:
        for k, case in enumerate(cases):
            found = self._match(case.pattern, subject, frame)
            truth = self._guarded(case, found, frame)
            if truth is True:
                self._bind_names(found, frame)
                return rest.before(case.body)
            if isinstance(truth, Tensor):
                frame.node = case.guard or case.pattern
                return self._branch_of_case(truth, found, cases[k:], subject, frame, rest)
        return rest

    def _branch_of_case(self, truth: Tensor, found: Match, cases: Sequence[ast.match_case], subject: Any, frame: Frame, rest: Chain) -> Chain | Done:
        """The first of `cases` where `truth` holds, else the others."""
        leaving = any(leaves(tuple(case.body)) for case in cases)
        following = rest if leaving else Chain(())

        def this() -> Signal | None:
            self._bind_names(found, frame)
            return self.run(following.before(cases[0].body), frame)

        def others() -> Signal | None:
            outcome = self._cases(cases[1:], subject, frame, following)
            return outcome.signal if isinstance(outcome, Done) else self.run(outcome, frame)

        signal = self.branch(truth, this, others)
        return Done(signal) if leaving or signal is not None else rest

    def _guarded(self, case: ast.match_case, found: Match, frame: Frame) -> bool | Tensor:
        """Whether the case is taken: its guard sees the names of its pattern."""
        guard = case.guard
        if guard is None or found.truth is False:
            return found.truth

        def holds() -> bool | Tensor:
            self._bind_names(found, frame)
            return self.condition(guard, frame)

        return self.both(found.truth, holds) if isinstance(found.truth, Tensor) else holds()

    def _bind_names(self, found: Match, frame: Frame) -> None:
        for name, (pattern, value) in found.names.items():
            frame.node = pattern
            self.store(name, value, frame)

    # -- patterns ------------------------------------------------------------------------------------------
    def _match(self, pattern: ast.pattern, subject: Any, frame: Frame) -> Match:
        frame.node = pattern
        return getattr(self, "match_" + type(pattern).__name__)(pattern, subject, frame)  # type: ignore[no-any-return]

    def match_MatchValue(self, pattern: ast.MatchValue, subject: Any, frame: Frame) -> Match:
        value = self.evaluate(pattern.value, frame)
        frame.node = pattern
        return Match(self.truth(self.compare(ast.Eq(), subject, value)))

    def match_MatchSingleton(self, pattern: ast.MatchSingleton, subject: Any, frame: Frame) -> Match:
        tensor = subject.tensor if isinstance(subject, WeakNumber) else subject
        if isinstance(pattern.value, bool) and isinstance(tensor, Tensor) and is_number(subject) and tensor.dtype.is_bool:
            return Match(tensor if pattern.value else self.negated(tensor))
        return Match(subject is pattern.value)

    def match_MatchSequence(self, pattern: ast.MatchSequence, subject: Any, frame: Frame) -> Match:
        if not isinstance(subject, Sequence) or isinstance(subject, _NO_SEQUENCES):
            return _FAILED
        parts, items = pattern.patterns, list(subject)
        star = next((k for k, part in enumerate(parts) if isinstance(part, ast.MatchStar)), None)
        if len(items) != len(parts) if star is None else len(items) < len(parts) - 1:
            return _FAILED
        if star is not None:
            stop = len(items) - (len(parts) - star - 1)
            items[star:stop] = [self.bear(items[star:stop])]
        return self._all(parts, items, frame)

    def match_MatchStar(self, pattern: ast.MatchStar, subject: Any, frame: Frame) -> Match:
        return Match(names={pattern.name: (pattern, subject)} if pattern.name else {})

    def match_MatchMapping(self, pattern: ast.MatchMapping, subject: Any, frame: Frame) -> Match:
        if not isinstance(subject, Mapping):
            return _FAILED
        keys = [self.evaluate(key, frame) for key in pattern.keys]
        for key in keys:
            check_key(subject, key)
        frame.node = pattern
        if len(set(keys)) < len(keys):
            raise ArgumentValueError("a mapping pattern asks for one key twice")
        found = [subject.get(key, _ABSENT) for key in keys]
        if any(value is _ABSENT for value in found):
            return _FAILED
        match = self._all(pattern.patterns, found, frame)
        if match.truth is not False and pattern.rest:
            match.names[pattern.rest] = pattern, self.bear({k: v for k, v in subject.items() if k not in keys})
        return match

    def match_MatchClass(self, pattern: ast.MatchClass, subject: Any, frame: Frame) -> Match:
        kind = self.evaluate(pattern.cls, frame)
        frame.node = pattern
        if not isinstance(kind, type):
            raise ArgumentTypeError(f"called match pattern must be a class, but is {type(kind).__name__}")
        if not self.call(isinstance, (subject, kind), {}):
            return _FAILED
        if pattern.patterns and not hasattr(kind, "__match_args__") and kind.__flags__ & _MATCH_SELF:
            _check_count(kind, pattern, 1)
            whole, names = [subject], pattern.kwd_attrs
        else:
            whole, names = [], [*_positional_names(kind, pattern), *pattern.kwd_attrs]
        repeated = next((name for k, name in enumerate(names) if name in names[:k]), None)
        if repeated is not None:
            raise ArgumentTypeError(f"{kind.__name__}() got multiple sub-patterns for attribute '{repeated}'")
        try:
            values = [self.load_attribute(subject, mangled(name, frame)) for name in names]
        except AttributeError:
            return _FAILED
        return self._all([*pattern.patterns, *pattern.kwd_patterns], [*whole, *values], frame)

    def match_MatchAs(self, pattern: ast.MatchAs, subject: Any, frame: Frame) -> Match:
        match = Match() if pattern.pattern is None else self._match(pattern.pattern, subject, frame)
        if pattern.name is not None and match.truth is not False:
            match.names[pattern.name] = pattern, subject
        return match

    def match_MatchOr(self, pattern: ast.MatchOr, subject: Any, frame: Frame) -> Match:
        return self._first_of(pattern.patterns, subject, frame)

    def _first_of(self, patterns: Sequence[ast.pattern], subject: Any, frame: Frame) -> Match:
        """The first of alternatives that fits. They bind the same names."""
        match = self._match(patterns[0], subject, frame)
        if len(patterns) == 1 or match.truth is True:
            return match
        others = self._first_of(patterns[1:], subject, frame)
        if match.truth is False or others.truth is False:
            return others if match.truth is False else match
        truth, names = match.truth, dict(match.names)
        for name, (part, value) in match.names.items():
            other = others.names[name][1]
            if other is not value:
                frame.node = part
                names[name] = part, self._either_of(truth, value, other)
        return Match(True if others.truth is True else logical_or(truth, others.truth), names)

    def _either_of(self, truth: Tensor, value: Any, other: Any) -> Any:
        """What a name is whose alternative only the graph knows; if the two have no common type, only reading it is an error."""
        try:
            return self.choose(truth, lambda: value, lambda: other)
        except BranchTypeError as e:
            kind, message, hint = type(e), e.message, e.hint
            return Unbound(lambda: kind(message, hint=hint))

    def _all(self, patterns: Sequence[ast.pattern], values: Sequence[Any], frame: Frame) -> Match:
        match = Match()
        for part, value in zip(patterns, values, strict=True):
            if not match.add(self._match(part, value, frame)):
                return _FAILED
        return match


def _positional_names(kind: type, pattern: ast.MatchClass) -> Sequence[str]:
    """The attributes that the positional patterns are for."""
    names = getattr(kind, "__match_args__", ())
    if not isinstance(names, tuple):
        raise ArgumentTypeError(f"{kind.__name__}.__match_args__ must be a tuple (got {type(names).__name__})")
    _check_count(kind, pattern, len(names))
    return names[: len(pattern.patterns)]


def _check_count(kind: type, pattern: ast.MatchClass, most: int) -> None:
    if len(pattern.patterns) > most:
        plural = "" if most == 1 else "s"
        raise ArgumentTypeError(f"{kind.__name__}() accepts {most} positional sub-pattern{plural} ({len(pattern.patterns)} given)")
