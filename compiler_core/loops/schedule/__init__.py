"""How the work of a loop is divided among blocks and kernels."""
