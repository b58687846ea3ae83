"""Fusion: joins loop nests, so that intermediate tensors are not stored and loads are shared.

Input: the `ir.Program` of `lower`; output: a `FusionResult`, with fewer loop nests, the rewrites and the refusals.
`rules` has the fusion rules for pairs of loop nests, which `rewriter` applies; they use `matching` (index maps, and
one body of two).  Then `program_passes` joins reductions over rows and over columns, and small independent kernels.
"""
