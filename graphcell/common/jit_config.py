"""`JitConfig`: settings for the compilation of a Cell."""

from __future__ import annotations

from typing import Any

from graphcell.errors import ArgumentValueError

_CHOICES = {
    "jit_level": ("", "O0", "O1", "O2"),
    "exc_mode": ("auto", "sink", "no_sink"),
    "jit_syntax_level": ("", "STRICT", "LAX"),
    "debug_level": ("RELEASE", "DEBUG"),
    "infer_boost": ("on", "off"),
}


class JitConfig:
    """Settings that `Cell.set_jit_config` takes. They are checked and kept; every graph is compiled in full here.

    Args:
        jit_level: 'O0', 'O1', 'O2' or ''.
        exc_mode: 'auto', 'sink' or 'no_sink'.
        jit_syntax_level: 'STRICT', 'LAX' or ''.
        debug_level: 'RELEASE' or 'DEBUG'.
        infer_boost: 'on' or 'off'.
        kwargs: other settings, kept as they are.

    Raises:
        ValueError: for any other value.
    """

    def __init__(self, jit_level: str = "", exc_mode: str = "auto", jit_syntax_level: str = "", debug_level: str = "RELEASE", infer_boost: str = "off",
                 **kwargs: Any):
        self.jit_config_dict: dict[str, Any] = kwargs | {
            "jit_level": jit_level, "exc_mode": exc_mode, "jit_syntax_level": jit_syntax_level, "debug_level": debug_level, "infer_boost": infer_boost,
        }
        for name, choices in _CHOICES.items():
            value = self.jit_config_dict[name]
            if value not in choices:
                raise ArgumentValueError(f"For '{name}' must be one of '{[c for c in choices if c]}', but got {value!r}.")
        if jit_level in ("O0", "O1"):
            self.jit_config_dict["backend"] = "ms_backend"
