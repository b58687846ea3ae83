"""Forward and backward of a captured graph: the joint graph, its partition, and the autograd function around both.

`joint` traces the joint graph (`trace/`) and simplifies it (`passes/`).  `partition` cuts it into a forward and a
backward graph where `mincut` finds it cheapest (`op_cost`), and `partition_report` records why.  Once a backend has
compiled both, `source/` writes the `torch.autograd.Function` around them, `autograd_function` binds it,
`double_backward` computes gradients of gradients, and `undo_writes` restores the inputs of a graph that failed.

In: a captured FX graph and fake inputs.  Out: a function that eager autograd can differentiate.
"""
