"""What MindSpore keeps in `mindspore.common`: Tensors, Parameters, dtypes, initializers, the seed."""

from graphcell.common import dtype as dtype
from graphcell.common import initializer as initializer
from graphcell.common.seed import get_seed as get_seed
from graphcell.common.seed import set_seed as set_seed
from graphcell.parameter import Parameter as Parameter
from graphcell.parameter import ParameterTuple as ParameterTuple
from graphcell.tensor import Tensor as Tensor
