"""Prints the loop IR as Triton kernels, compiles them and makes launchers.

`printer.generate` prints a program as the source of one Python module: each kernel with its launch grid; `statements`
prints single statements and `ops` single operations.  `module` loads the source, compiles
it for a target and launches it, through the kernel cache and other limits on Triton's compiler (`toolchain`).
Block sizes are chosen in `loops/schedule/block_sizes`.
"""
