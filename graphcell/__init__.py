"""graphcell: a static-graph compiler and runtime for MindSpore's programming model, on the CPU.

``import graphcell as mindspore`` is all that a MindSpore program needs.
"""

from graphcell import common as common
from graphcell import dtype as dtype
from graphcell import nn as nn
from graphcell import ops as ops
from graphcell import train as train
from graphcell.common.initializer import Initializer as Initializer
from graphcell.common.seed import get_seed as get_seed
from graphcell.common.seed import set_seed as set_seed
from graphcell.context import GRAPH_MODE as GRAPH_MODE
from graphcell.context import PYNATIVE_MODE as PYNATIVE_MODE
from graphcell.context import get_context as get_context
from graphcell.context import set_context as set_context
from graphcell.context import set_device as set_device
from graphcell.dtype import bfloat16 as bfloat16
from graphcell.dtype import bool_ as bool_
from graphcell.dtype import float16 as float16
from graphcell.dtype import float32 as float32
from graphcell.dtype import float64 as float64
from graphcell.dtype import int8 as int8
from graphcell.dtype import int16 as int16
from graphcell.dtype import int32 as int32
from graphcell.dtype import int64 as int64
from graphcell.dtype import uint8 as uint8
from graphcell.dtype import uint16 as uint16
from graphcell.dtype import uint32 as uint32
from graphcell.dtype import uint64 as uint64
from graphcell.grad import get_grad as get_grad
from graphcell.grad import grad as grad
from graphcell.grad import value_and_grad as value_and_grad
from graphcell.common.jit_config import JitConfig as JitConfig
from graphcell.jit import jit as jit
from graphcell.parameter import Parameter as Parameter
from graphcell.parameter import ParameterTuple as ParameterTuple
from graphcell.tensor import Tensor as Tensor
from graphcell.train.serialization import load_checkpoint as load_checkpoint
from graphcell.train.serialization import load_param_into_net as load_param_into_net
from graphcell.train.serialization import save_checkpoint as save_checkpoint
from graphcell.version import __version__ as __version__

float_ = float32
int_ = int64
half = float16
single = float32
double = float64
