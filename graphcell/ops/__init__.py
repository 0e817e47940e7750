"""Operations: primitives, each whole in its class, and the public functions composed of them."""

from graphcell.ops.functional.activation import *  # noqa: F403
from graphcell.ops.functional.arithmetic import *  # noqa: F403
from graphcell.ops.functional.clipping import *  # noqa: F403
from graphcell.ops.functional.comparison import *  # noqa: F403
from graphcell.ops.functional.contraction import *  # noqa: F403
from graphcell.ops.functional.convolution import *  # noqa: F403
from graphcell.ops.functional.creation import *  # noqa: F403
from graphcell.ops.functional.diagonals import *  # noqa: F403
from graphcell.ops.functional.einsum import *  # noqa: F403
from graphcell.ops.functional.gathering import *  # noqa: F403
from graphcell.ops.functional.loss import *  # noqa: F403
from graphcell.ops.functional.masking import *  # noqa: F403
from graphcell.ops.functional.mathematics import *  # noqa: F403
from graphcell.ops.functional.movement import *  # noqa: F403
from graphcell.ops.functional.normalization import *  # noqa: F403
from graphcell.ops.functional.pooling import *  # noqa: F403
from graphcell.ops.functional.random import *  # noqa: F403
from graphcell.ops.functional.rearranging import *  # noqa: F403
from graphcell.ops.functional.reductions import *  # noqa: F403
from graphcell.ops.functional.scanning import *  # noqa: F403
from graphcell.ops.functional.softmax import *  # noqa: F403
from graphcell.ops.functional.sorting import *  # noqa: F403
from graphcell.ops.functional.vectors import *  # noqa: F403

from graphcell.ops import methods as methods  # isort: skip
from graphcell.ops import methods_movement as methods_movement  # isort: skip
