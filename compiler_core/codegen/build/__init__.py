"""Builds kernels: runs compilers and keeps their output in the kernel cache on disk.

`compilers` turns C++ source into callable functions: it runs the compiler driver through `external` (time and output
limits, and explanations of errors of the machine), verifies the library, and keeps it in `disk_cache`, whose folders
`private_folders` checks for permissions.  `kernel_lookups` has what is looked up there while a graph is
built.  `background` builds in threads, so that the forward's kernels are built while the backward is compiled.
"""
