"""MindSpore's primitive classes: `ops.ReLU()`, `ops.MatMul(transpose_b=True)`, `ops.ReduceMean(keep_dims=True)`, …

A primitive is made with its settings and called with Tensors. Each is a thin wrapper of the functions in graphcell/ops/functional; what
enters, leaves and is refused is theirs.
"""

from graphcell.ops.primitives import boxes as _boxes
from graphcell.ops.primitives import colors as _colors
from graphcell.ops.primitives import communication as _communication
from graphcell.ops.primitives import images as _images
from graphcell.ops.primitives import indexing as _indexing
from graphcell.ops.primitives import losses as _losses
from graphcell.ops.primitives import mathematics as _mathematics
from graphcell.ops.primitives import matrices as _matrices
from graphcell.ops.primitives import network as _network
from graphcell.ops.primitives import pools as _pools
from graphcell.ops.primitives import proximal as _proximal
from graphcell.ops.primitives import random as _random
from graphcell.ops.primitives import reductions as _reductions
from graphcell.ops.primitives import scatters as _scatters
from graphcell.ops.primitives import scientific as _scientific
from graphcell.ops.primitives import selection as _selection
from graphcell.ops.primitives import sequences as _sequences
from graphcell.ops.primitives import shapes as _shapes
from graphcell.ops.primitives import special as _special
from graphcell.ops.primitives import training as _training
from graphcell.ops.primitives.boxes import *  # noqa: F403
from graphcell.ops.primitives.colors import *  # noqa: F403
from graphcell.ops.primitives.communication import *  # noqa: F403
from graphcell.ops.primitives.images import *  # noqa: F403
from graphcell.ops.primitives.indexing import *  # noqa: F403
from graphcell.ops.primitives.losses import *  # noqa: F403
from graphcell.ops.primitives.mathematics import *  # noqa: F403
from graphcell.ops.primitives.matrices import *  # noqa: F403
from graphcell.ops.primitives.network import *  # noqa: F403
from graphcell.ops.primitives.pools import *  # noqa: F403
from graphcell.ops.primitives.proximal import *  # noqa: F403
from graphcell.ops.primitives.random import *  # noqa: F403
from graphcell.ops.primitives.reductions import *  # noqa: F403
from graphcell.ops.primitives.scatters import *  # noqa: F403
from graphcell.ops.primitives.scientific import *  # noqa: F403
from graphcell.ops.primitives.selection import *  # noqa: F403
from graphcell.ops.primitives.sequences import *  # noqa: F403
from graphcell.ops.primitives.shapes import *  # noqa: F403
from graphcell.ops.primitives.special import *  # noqa: F403
from graphcell.ops.primitives.training import *  # noqa: F403

# the names of the files are those of rooms of ops, which must stay
__all__ = [
    *_images.__all__,
    *_indexing.__all__,
    *_losses.__all__,
    *_mathematics.__all__,
    *_network.__all__,
    *_random.__all__,
    *_reductions.__all__,
    *_scatters.__all__,
    *_scientific.__all__,
    *_shapes.__all__,
    *_training.__all__,
    *_sequences.__all__,
    *_boxes.__all__,
    *_colors.__all__,
    *_communication.__all__,
    *_special.__all__,
    *_selection.__all__,
    *_pools.__all__,
    *_proximal.__all__,
    *_matrices.__all__,
]
