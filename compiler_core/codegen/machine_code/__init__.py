"""The machine code of kernels, and the kernel's lines that it came from."""
