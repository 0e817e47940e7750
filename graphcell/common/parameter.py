"""Parameters, where MindSpore programs import them from."""

from graphcell.parameter import Parameter as Parameter
from graphcell.parameter import ParameterTuple as ParameterTuple
