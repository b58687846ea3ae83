"""Forward and backward of a captured graph: the joint graph, its partition, and the autograd function around both.

`joint` traces the joint graph (`trace/`) and simplifies it (`passes/`).  `partition` cuts it into a forward and a
backward graph where `mincut` finds it cheapest.  Once a backend has compiled both, `source/` writes the
`torch.autograd.Function` around them, and `autograd_function` binds it.  `eager_runs` runs the captured graph as plain
PyTorch: for gradients of gradients, or after a failure, with the inputs restored.

In: a captured FX graph and fake inputs.  Out: a function that eager autograd can differentiate.
"""
