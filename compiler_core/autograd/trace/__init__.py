"""Traces a captured graph to a functional graph of ATen operators, with its backward.

`functionalize` runs the captured graph under PyTorch's functionalization.  It replaces some operators
(`decompositions`, `derivatives`, `hidden_writes`, `custom_operators`, `opaque_nodes`, `collectives`), records where
each node came from (`provenance`), and finds out how the outputs share memory (`outputs`, `view_chains`, `ownership`),
which writes autograd does not see (`data_writes`) and what eager PyTorch saves (`eager_saves`).  Tensors that are
written to in place keep their order in memory (`memory_order`), and what tracing assumes about symbolic sizes is kept
as text (`shape_assumptions`).
"""
