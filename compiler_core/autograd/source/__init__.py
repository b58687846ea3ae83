"""The Python source around a compiled forward and backward.

It is written for each graph, so that a call does only what that graph needs, and the record shows exactly what runs.
`writer` puts the parts together: `function_class` (the `torch.autograd.Function`, with `backward_graph` for what its
backward reads and runs) and `call_function` (the function that is called).  They use `graph_calls` (runs a compiled
graph), `writes` (writes new values to mutated inputs) and `lines` (lines, spans and literals).

Input: a partitioned joint graph; output: source text, which `autograd_function.py` binds to the objects that it names.
"""
