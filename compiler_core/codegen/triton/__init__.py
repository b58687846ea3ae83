"""Prints the loop IR as Triton kernels, compiles them and makes launchers.

`printer.generate` prints a program as the source of one Python module; `kernel` prints one kernel with its launch
grid, `statements` single statements and `ops` single operations. `module` loads the source, compiles it for a target
and launches it, through the kernel cache (`cache`), unless its PTX reads undefined bits (`ptx`). `check` finds
undefined names in the source on machines without a GPU. Block sizes are chosen in `loops/schedule/block_sizes`.
"""
