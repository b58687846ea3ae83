"""The loop IR printed as C++ kernels."""
