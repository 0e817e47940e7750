"""The layers, in the modules where MindSpore has them: `nn.layer.conv.Conv2d`, …; all are names of `nn` too."""
