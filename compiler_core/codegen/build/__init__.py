"""Compilers and other programs that are run, and the kernel cache on disk."""
