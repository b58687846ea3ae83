"""Fusion: joins loop nests, so that intermediate tensors are not stored and loads are shared.

Input: the `ir.Program` of `lower`; output: a `FusionResult`, with fewer loop nests, the rewrites and the refusals.
`rules` has the fusion rules for pairs of loop nests, which `rewriter` applies on the dependency graph of `step_graph`;
they use `access_matching` (index maps) and `merge_bodies` (one body of two).  Two passes follow:
`mix_order_reduction` joins reductions over rows and over columns (which indices are the columns' is found by
`column_matching`), `horizontal` joins small independent kernels.
"""
