"""The layers, in the modules where MindSpore has them: `nn.layer.conv.Conv2d`, …; all are names of `nn` too."""

from graphcell.late import late as _late

__getattr__, __dir__ = _late(__name__, {})
