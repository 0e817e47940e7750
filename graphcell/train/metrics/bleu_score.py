"""BLEU: how much of a translation's n-grams the references have (https://aclanthology.org/P02-1040)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphcell.errors import ArgumentValueError
from graphcell.nn.checks import check_bool, check_int
from graphcell.train.metrics.metric import Metric, check_count, check_updated, rearrange_inputs


class BleuScore(Metric):
    """The geometric mean of the shares of n-grams that references have, times a penalty for short translations.

    Args:
        n_gram: the longest n-gram, 1 to 4.
        smooth: add 1 to all counts.

    Raises:
        ValueError: n_gram is outside. TypeError: an argument of the wrong kind.
    """

    def __init__(self, n_gram: int = 4, smooth: bool = False):
        super().__init__()
        self.n_gram = check_int("BleuScore", "n_gram", n_gram)
        if not 1 <= n_gram <= 4:
            raise ArgumentValueError(f"For 'BleuScore', the argument 'n_gram' should range from 1 to 4, but got {n_gram}.")
        self.smooth = check_bool("BleuScore", "smooth", smooth)
        self.clear()

    def clear(self) -> None:
        """Forgets what was collected."""
        self._found = np.zeros(self.n_gram)
        self._all = np.zeros(self.n_gram)
        self._length = self._reference_length = 0
        self._is_update = False

    @rearrange_inputs
    def update(self, *inputs: Any) -> None:
        """Collects translations, each a list of words, and for each a list of references.

        Raises:
            ValueError: another number of one than of the other.
        """
        check_count(self, inputs, 2, "candidate_corpus, reference_corpus")
        candidates, references = inputs
        if len(candidates) != len(references):
            raise ArgumentValueError(
                "For 'BleuScore.update', 'translate_corpus' (inputs[0]) and 'reference_corpus' (inputs[1]) should be equal in length, "
                f"but got {len(candidates)}, {len(references)}"
            )
        for words, several in zip(candidates, references):
            self._length += len(words)
            self._reference_length += min((len(r) for r in several), key=lambda n: abs(len(words) - n))
            known: Counter[tuple[Any, ...]] = Counter()
            for reference in several:
                known |= self._ngrams(reference)
            made = self._ngrams(words)
            for counts, total in ((made & known, self._found), (made, self._all)):
                for ngram, count in counts.items():
                    total[len(ngram) - 1] += count
        self._is_update = True

    def _ngrams(self, words: Sequence[Any]) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(words[k : k + n]) for n in range(1, self.n_gram + 1) for k in range(len(words) - n + 1))

    def eval(self) -> float:
        """The score, 0 to 1; raises RuntimeError before `update`."""
        check_updated(self._is_update)
        if self._found.min() == 0:
            return 0.0
        extra = 1 if self.smooth else 0
        mean = float(np.exp(np.log((self._found + extra) / (self._all + extra)).mean()))
        return mean * (1.0 if self._length > self._reference_length else math.exp(1 - self._reference_length / self._length))
