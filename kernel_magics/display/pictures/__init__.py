"""Pictures for viewers that run no scripts.

lines_and_kernels   which of the user's lines each kernel computes
"""
