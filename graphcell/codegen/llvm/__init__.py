"""LLVM: text emission, vector mathematics, and the machine-code back end."""
