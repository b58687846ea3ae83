"""Helpers of several stages: FX graphs, symbolic sizes, PyTorch's state, warnings, signals."""
