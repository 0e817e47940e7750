"""Optimizers by their papers' formulas, in numpy and float64: each takes a Parameter's value `p`, its gradient `g`, the number `t` of the step, a
group's settings and a dict for what it remembers, and gives the new value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
State = dict[str, Any]


def slot(s: State, name: str, like: Array, value: float = 0.0) -> Array:
    return s.setdefault(name, np.full(np.shape(like), value))


def sgd(p: Array, g: Array, t: int, o: dict[str, Any], s: State) -> Array:
    momentum, damped = o["momentum"], 1.0 - o["dampening"]
    if momentum == 0.0:
        return p - o["lr"] * g
    v = s["v"] = g if t == 1 else momentum * s["v"] + damped * g
    return p - o["lr"] * (g + momentum * v if o["nesterov"] else v)


def moments(p: Array, g: Array, o: dict[str, Any], s: State) -> tuple[Array, Array]:
    beta1, beta2 = o["betas"]
    s["m"] = beta1 * slot(s, "m", p) + (1.0 - beta1) * g
    s["v"] = beta2 * slot(s, "v", p) + (1.0 - beta2) * g * g
    return s["m"], s["v"]


def largest(v: Array, o: dict[str, Any], s: State) -> Array:
    if not o["amsgrad"]:
        return v
    s["largest"] = np.maximum(slot(s, "largest", v), v)
    return s["largest"]


def adam_of_the_paper(p: Array, g: Array, t: int, o: dict[str, Any], s: State) -> Array:
    """Section 2, the more efficient order: eps is added to a root without correction."""
    beta1, beta2 = o["betas"]
    m, v = moments(p, g, o, s)
    rate = o["lr"] * np.sqrt(1.0 - beta2**t) / (1.0 - beta1**t)
    return p - rate * m / (np.sqrt(largest(v, o, s)) + o["eps"])


def adam(p: Array, g: Array, t: int, o: dict[str, Any], s: State) -> Array:
    """Algorithm 1: eps is added to the root of the corrected average."""
    beta1, beta2 = o["betas"]
    m, v = moments(p, g, o, s)
    return p - o["lr"] * (m / (1.0 - beta1**t)) / (np.sqrt(largest(v, o, s) / (1.0 - beta2**t)) + o["eps"])


def adadelta(p: Array, g: Array, t: int, o: dict[str, Any], s: State) -> Array:
    rho, eps = o["rho"], o["eps"]
    s["a"] = rho * slot(s, "a", p) + (1.0 - rho) * g * g
    u = np.sqrt(slot(s, "d", p) + eps) / np.sqrt(s["a"] + eps) * g
    s["d"] = rho * s["d"] + (1.0 - rho) * u * u
    return p - o["lr"] * u


def adagrad(p: Array, g: Array, t: int, o: dict[str, Any], s: State) -> Array:
    s["a"] = slot(s, "a", p, o["initial_accumulator_value"]) + g * g
    return p - o["lr"] / (1.0 + (t - 1) * o["lr_decay"]) * g / (np.sqrt(s["a"]) + o["eps"])


def asgd(p: Array, g: Array, t: int, o: dict[str, Any], s: State) -> Array:
    eta, mu = s.get("eta", o["lr"]), s.get("mu", 1.0)
    new = p * (1.0 - o["lambd"] * eta) - eta * g
    ax = slot(s, "ax", p)
    s["ax"] = new if mu == 1.0 else ax + (new - ax) * mu
    s["eta"] = o["lr"] / (1.0 + o["lambd"] * o["lr"] * t) ** o["alpha"]
    s["mu"] = 1.0 / max(1.0, t - o["t0"])
    return new


def adamax(p: Array, g: Array, t: int, o: dict[str, Any], s: State) -> Array:
    beta1, beta2 = o["betas"]
    s["m"] = beta1 * slot(s, "m", p) + (1.0 - beta1) * g
    s["u"] = np.maximum(beta2 * slot(s, "u", p), np.abs(g) + o["eps"])
    return p - o["lr"] / (1.0 - beta1**t) * s["m"] / s["u"]


def rmsprop(p: Array, g: Array, t: int, o: dict[str, Any], s: State) -> Array:
    alpha = o["alpha"]
    square = s["s"] = alpha * slot(s, "s", p) + (1.0 - alpha) * g * g
    if o["centered"]:
        s["mean"] = alpha * slot(s, "mean", p) + (1.0 - alpha) * g
        square = square - s["mean"] ** 2
    step = g / (np.sqrt(square) + o["eps"])
    if o["momentum"]:
        step = s["m"] = o["momentum"] * slot(s, "m", p) + step
    return p - o["lr"] * step


def rprop(p: Array, g: Array, t: int, o: dict[str, Any], s: State) -> Array:
    size, before = slot(s, "size", p, o["lr"]), slot(s, "before", p)
    factor = np.where(g * before > 0, o["etas"][1], np.where(g * before < 0, o["etas"][0], 1.0))
    s["size"] = np.clip(size * factor, *o["step_sizes"])
    s["before"] = np.where(g * before < 0, 0.0, g)
    return p - np.sign(s["before"]) * s["size"]


def radam(p: Array, g: Array, t: int, o: dict[str, Any], s: State) -> Array:
    beta1, beta2 = o["betas"]
    m, v = moments(p, g, o, s)
    first = m / (1.0 - beta1**t)
    most = 2.0 / (1.0 - beta2) - 1.0
    length = most - 2.0 * t * beta2**t / (1.0 - beta2**t)
    if length <= 5.0:
        return p - o["lr"] * first
    rectified = np.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
    return p - o["lr"] * first * rectified * np.sqrt(1.0 - beta2**t) / (np.sqrt(v) + o["eps"])


def nadam(p: Array, g: Array, t: int, o: dict[str, Any], s: State) -> Array:
    beta1, beta2 = o["betas"]
    m, v = moments(p, g, o, s)
    now, then = (beta1 * (1.0 - 0.5 * 0.96 ** (k * o["momentum_decay"])) for k in (t, t + 1))
    s["product"] = s.get("product", 1.0) * now
    along = (1.0 - now) / (1.0 - s["product"]) * g + then / (1.0 - s["product"] * then) * m
    return p - o["lr"] * along / (np.sqrt(v / (1.0 - beta2**t)) + o["eps"])


DECOUPLED = ("AdamW", "FusedAdamW")
UPDATES: dict[str, Callable[..., Array]] = {
    "SGD": sgd, "adam_of_the_paper": adam_of_the_paper, "Adam": adam, "AdamW": adam, "FusedAdamW": adam, "Adadelta": adadelta, "Adagrad": adagrad, "ASGD": asgd, "Adamax": adamax,
    "RMSprop": rmsprop, "Rprop": rprop, "RAdam": radam, "NAdam": nadam,
}  # fmt: skip


def step(name: str, p: Array, g: Array, t: int, o: dict[str, Any], s: State) -> Array:
    """One step of the optimizer `name`, with weight decay and `maximize`."""
    g = -g if o.get("maximize") else g
    decay = o.get("weight_decay", 0.0)
    if name in DECOUPLED:
        return UPDATES[name](p * (1.0 - o["lr"] * decay), g, t, o, s)
    return UPDATES[name](p, g + decay * p, t, o, s)
