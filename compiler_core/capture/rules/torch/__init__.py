"""Rules for functions of PyTorch and NumPy."""
