"""Printers of the loop IR.

Each language is a module with a function ``generate(program) -> Code``, the text of all kernels of one graph
(`cpp`, `triton`); `wrapper` prints the Python that allocates, launches and calls PyTorch's own kernels; `recipe` makes
a function of both.
"""
