"""Code generation: from a graph's loop IR (`ir.Program`) to a Python function that runs it.

`cpp` and `triton` print the kernels of one graph: ``generate(program) -> KernelSource``.  `wrapper` plans memory,
prints the Python function that allocates buffers, launches kernels and calls PyTorch's kernels, and loads it
(`executable`).  `build` runs compilers and keeps their output in the kernel cache on disk.  `source` has the types that
the others share, and the devices for which machine code can be made.
"""
