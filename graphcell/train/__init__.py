"""Training: checkpoints."""

from graphcell.train.serialization import load_checkpoint as load_checkpoint
from graphcell.train.serialization import load_param_into_net as load_param_into_net
from graphcell.train.serialization import save_checkpoint as save_checkpoint
