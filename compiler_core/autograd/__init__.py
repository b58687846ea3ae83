"""Forward and backward of a captured graph: the joint graph, its partition, and the autograd function around both.

`joint` traces the joint graph (`trace/`) and simplifies it (`passes/`).  `partition` cuts it into a forward and a
backward graph where `mincut` finds it cheapest.  Once a backend has compiled both, `function_class` writes the
`torch.autograd.Function` around them, and `source_writer` the function that is called, with the lines, spans and
literals of both.  The source is written for each graph, so that a call does only what that graph needs, and the record
shows exactly what runs; `autograd_function` binds it to the objects that it names.  `eager_runs` runs the captured
graph as plain PyTorch: for gradients of gradients, or after a failure, with the inputs restored.

In: a captured FX graph and fake inputs.  Out: a function that eager autograd can differentiate.
"""
