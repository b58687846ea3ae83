"""Prints the loop IR as C++ kernels, and makes functions of them that take tensors.

`printer.generate` prints a program; it has the printers of kernels without a reduction and of those that process
several rows at a time, `rows` the others.  They derive from `kernel` (the function, its threads and single statements)
and `blocks` (vectorised loops). `ops` has the C++ of operations, reductions and conversions, `prelude` the helper
functions; `launch` compiles the source and makes the launchers.
"""
