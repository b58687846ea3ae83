"""The Python source around a compiled forward and backward.

It is written for each graph, so that a call does only what that graph needs, and the record shows exactly what runs.
`function_class` writes the `torch.autograd.Function`, and `call_function` the function that is called; both use
`writer` (lines, spans and literals; runs of a graph, writes to inputs).

Input: a partitioned joint graph; output: source text, which `autograd_function.py` binds to the objects that it names.
"""
