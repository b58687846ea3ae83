"""Builds kernels: runs compilers and keeps their output in the kernel cache on disk.

`compilers` turns C++ source into callable functions: it runs the compiler driver through `external` (time and output
limits), verifies the library with `elf`, and keeps it in `disk_cache`, whose folders `private_folders` checks for
permissions.  `watcher` ends programs if this process is killed.  `faults` explains errors of the machine: a full disk,
missing permissions, too many open files.
"""
