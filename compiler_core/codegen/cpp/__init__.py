"""Prints loop nests as C++ kernels, and makes functions of them that take tensors.

`printer.generate` prints a program: `printer` the functions, loops and accumulators of a nest, `vectors` its vector
loops, `statements` single statements.  `ops` has the C++ of operations, reductions and conversions, `prelude` the
helper functions; `runs` prints functions that call several kernels; `launch` compiles the source and makes the
launchers.
"""
