"""Rates of a binary confusion matrix: sensitivity, specificity, precision, … (https://en.wikipedia.org/wiki/Confusion_matrix)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphcell.train.metrics.metric import Array

Fraction = tuple[Array, Array]


def _ratio(above: Array, below: Array) -> Array:
    """above / below, NaN where that is nothing to divide by."""
    above, below = np.broadcast_arrays(np.asarray(above, float), np.asarray(below, float))
    return np.asarray(np.divide(above, below, out=np.full(above.shape, np.nan), where=below != 0))


def _prevalence_threshold(tp: Array, fp: Array, tn: Array, fn: Array) -> Fraction:
    hit, selective = _ratio(tp, tp + fn), _ratio(tn, tn + fp)
    return np.sqrt(hit * (1 - selective)) + selective - 1, hit + selective - 1


def _informedness(tp: Array, fp: Array, tn: Array, fn: Array) -> Fraction:
    return _ratio(tp, tp + fn) + _ratio(tn, tn + fp) - 1, np.ones_like(tp)


def _markedness(tp: Array, fp: Array, tn: Array, fn: Array) -> Fraction:
    return _ratio(tp, tp + fp) + _ratio(tn, tn + fn) - 1, np.ones_like(tp)


def _correlation(tp: Array, fp: Array, tn: Array, fn: Array) -> Fraction:
    return tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))


def _balanced(tp: Array, fp: Array, tn: Array, fn: Array) -> Fraction:
    return _ratio(tp, tp + fn) + _ratio(tn, tn + fp), np.full_like(tp, 2)


def _fowlkes_mallows(tp: Array, fp: Array, tn: Array, fn: Array) -> Fraction:
    return np.sqrt(_ratio(tp, tp + fp) * _ratio(tp, tp + fn)), np.ones_like(tp)


_FORMULAS: tuple[tuple[str, Callable[[Array, Array, Array, Array], Fraction]], ...] = (
    ("sensitivity recall hit_rate true_positive_rate tpr", lambda tp, fp, tn, fn: (tp, tp + fn)),
    ("specificity selectivity true_negative_rate tnr", lambda tp, fp, tn, fn: (tn, tn + fp)),
    ("precision positive_predictive_value ppv", lambda tp, fp, tn, fn: (tp, tp + fp)),
    ("negative_predictive_value npv", lambda tp, fp, tn, fn: (tn, tn + fn)),
    ("miss_rate false_negative_rate fnr", lambda tp, fp, tn, fn: (fn, tp + fn)),
    ("fall_out false_positive_rate fpr", lambda tp, fp, tn, fn: (fp, tn + fp)),
    ("false_discovery_rate fdr", lambda tp, fp, tn, fn: (fp, tp + fp)),
    ("false_omission_rate for", lambda tp, fp, tn, fn: (fn, tn + fn)),
    ("prevalence_threshold pt", _prevalence_threshold),
    ("threat_score critical_success_index ts csi", lambda tp, fp, tn, fn: (tp, tp + fn + fp)),
    ("accuracy acc", lambda tp, fp, tn, fn: (tp + tn, tp + fn + tn + fp)),
    ("balanced_accuracy ba", _balanced),
    ("f1_score f1", lambda tp, fp, tn, fn: (2 * tp, 2 * tp + fn + fp)),
    ("matthews_correlation_coefficient mcc", _correlation),
    ("fowlkes_mallows_index fm", _fowlkes_mallows),
    ("informedness bookmaker_informedness bm", _informedness),
    ("markedness deltap mk", _markedness),
)
RATES = {name: formula for names, formula in _FORMULAS for name in names.split()}
"""All names of each rate → its numerator and denominator."""


def rate(name: str, counts: Array) -> Array:
    """A rate of counts (…, 4) of true positives, false positives, true negatives and false negatives; NaN where it is undefined."""
    tp, fp, tn, fn = (counts[..., k] for k in range(4))
    return _ratio(*RATES[name](tp, fp, tn, fn))
