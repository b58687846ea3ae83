"""The loop IR printed as Triton kernels."""
