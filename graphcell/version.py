"""The version of this package, and when it was imported."""

import time

__version__ = "0.1.0"
IMPORTED = time.time_ns()
"""Taken before any other module of the package is read: a source file that is younger may be another than the one that runs."""
