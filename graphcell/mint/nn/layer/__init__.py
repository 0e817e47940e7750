"""Layers of mint, in the modules where MindSpore has them."""
