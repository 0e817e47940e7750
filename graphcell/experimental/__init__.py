"""What MindSpore has under `experimental`: optimizers whose settings stand in groups, and schedulers of their learning rates."""

from graphcell.late import late as _late

__all__ = ["optim"]

__getattr__, __dir__ = _late(__name__, {})
