"""Attaches the methods of `Tensor` that draw random numbers."""

from __future__ import annotations

from graphcell.ops.functional import distributions, filling, random
from graphcell.ops.methods import attach

attach((
    ("normal_", filling.normal_), ("uniform_", filling.uniform_), ("random_", filling.random_), ("exponential_", filling.exponential_),
    ("bernoulli_", filling.bernoulli_), ("bernoulli", filling.bernoulli), ("uniform", filling.uniform),
    ("multinomial", random.multinomial), ("random_categorical", distributions.random_categorical),
))  # fmt: skip
