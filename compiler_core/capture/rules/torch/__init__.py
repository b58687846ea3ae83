"""Rules for functions of PyTorch and NumPy.

`functions.py` decides which functions become nodes of the graph, and `arguments.py` converts their arguments; the other
files have the rules for functions that do not become nodes.
"""
