"""Layers whose arguments are those of `nn`'s: they are the same classes."""

from graphcell.nn import AdaptiveAvgPool3d as AdaptiveAvgPool3d
from graphcell.nn import AdaptiveMaxPool2d as AdaptiveMaxPool2d
from graphcell.nn import ConstantPad1d as ConstantPad1d
from graphcell.nn import ConstantPad2d as ConstantPad2d
from graphcell.nn import ConstantPad3d as ConstantPad3d
from graphcell.nn import Flatten as Flatten
from graphcell.nn import HShrink as Hardshrink
from graphcell.nn import HSigmoid as Hardsigmoid
from graphcell.nn import HSwish as Hardswish
from graphcell.nn import Identity as Identity
from graphcell.nn import Linear as Linear
from graphcell.nn import MaxUnpool2d as MaxUnpool2d
from graphcell.nn import PixelShuffle as PixelShuffle
from graphcell.nn import ReflectionPad1d as ReflectionPad1d
from graphcell.nn import ReflectionPad2d as ReflectionPad2d
from graphcell.nn import ReflectionPad3d as ReflectionPad3d
from graphcell.nn import ReLU as ReLU
from graphcell.nn import ReplicationPad1d as ReplicationPad1d
from graphcell.nn import ReplicationPad2d as ReplicationPad2d
from graphcell.nn import ReplicationPad3d as ReplicationPad3d
from graphcell.nn import SoftShrink as Softshrink
from graphcell.nn import ZeroPad2d as ZeroPad2d

__all__ = [
    "AdaptiveAvgPool3d", "AdaptiveMaxPool2d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "Flatten", "Hardshrink", "Hardsigmoid",
    "Hardswish", "Identity", "Linear", "MaxUnpool2d", "PixelShuffle", "ReLU", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d",
    "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "Softshrink", "ZeroPad2d",
]
