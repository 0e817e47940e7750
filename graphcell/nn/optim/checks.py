"""Checks that several optimizers share, beside those of all layers (graphcell/nn/checks.py)."""

from __future__ import annotations

from typing import Any

from graphcell.errors import ArgumentTypeError, ArgumentValueError
from graphcell.nn.checks import check_float


def check_flag(owner: str, name: str, value: Any) -> bool:
    """`value` if it is a bool; raises TypeError."""
    if not isinstance(value, bool):
        raise ArgumentTypeError(
            f"For '{owner}', the type of '{name}' should be 'bool', but got type '{type(value).__name__}'."
        )
    return value


def check_positive(owner: str, name: str, value: Any) -> float:
    """A float above 0; raises TypeError or ValueError."""
    if check_float(owner, name, value) <= 0:
        raise ArgumentValueError(
            f"For '{owner}', the '{name}' must be float and must > 0, but got '{value}' with type 'float'."
        )
    return float(value)


def check_not_negative(owner: str, name: str, value: Any) -> float:
    """A float of at least 0; raises TypeError or ValueError."""
    if check_float(owner, name, value) < 0:
        raise ArgumentValueError(
            f"For '{owner}', the '{name}' must be float and must >= 0, but got '{value}' with type 'float'."
        )
    return float(value)


def check_fraction(owner: str, name: str, value: Any) -> float:
    """A float between 0 and 1; raises TypeError or ValueError."""
    if not 0.0 < check_float(owner, name, value) < 1.0:
        raise ArgumentValueError(
            f"For '{owner}', the '{name}' must be in range of (0.0, 1.0), but got {value} with type 'float'."
        )
    return float(value)


def check_rho(value: Any) -> float:
    """The factor of Adadelta's averages, a float from 0 to 1; raises TypeError or ValueError."""
    if not 0.0 <= check_float("Adadelta", "rho", value) <= 1.0:
        raise ArgumentValueError(f"For 'Adadelta', the 'rho' must be in range of [0.0, 1.0], but got {value}.")
    return float(value)


def check_momentum(owner: str, momentum: float, dampening: float, nesterov: bool) -> None:
    """Raises ValueError unless `nesterov` has a momentum and no dampening."""
    if nesterov and (momentum <= 0.0 or dampening != 0.0):
        raise ArgumentValueError(
            f"For '{owner}', if 'nesterov' is true, 'momentum' must be > 0.0 and 'dampening' must equal to 0.0, but got "
            f"'momentum' {momentum}, 'dampening' {dampening}."
        )
