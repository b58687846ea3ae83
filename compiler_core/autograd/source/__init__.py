"""The Python source around a compiled forward and backward.

It is written for each graph, so that a call does only what that graph needs, and the record shows exactly what runs.
`writer` puts the parts together: `function_class` (the `torch.autograd.Function`) and `call_function` (the function
that is called), which both use `graph_calls` (runs a compiled graph) and `lines` (lines, spans and literals).

Input: a partitioned joint graph; output: source text, which `autograd_function.py` binds to the objects that it names.
"""
