"""Imports the rooms of the package, for graphcell/__init__.py, with Python's collector kept back: what an import makes lives as long as the process."""

from graphcell.collection import rarely_collected

with rarely_collected:
    from graphcell import common as common
    from graphcell import nn as nn
    from graphcell import ops as ops
