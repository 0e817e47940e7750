"""Code generation: Graph → kernels → LLVM assembly text → machine code."""
