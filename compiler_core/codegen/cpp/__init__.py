"""Prints the loop IR as C++ kernels, and makes functions of them that take tensors.

`printer.generate` prints a program.  Each kind of kernel has a printer class: `elementwise`, `rows`, `short_rows`,
`mix_order` and `lanes`.  They derive from `statements` (single statements), `kernel` (the function and its threads) and
`blocks` (vectorised loops, with `loop_distribution`), and write to `source_writer`.  `ops`, `accumulators` and
`half_types` are the C++ of operations, reductions and conversions; `launch` compiles the source and makes the
launchers.
"""
