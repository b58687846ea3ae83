"""Rewrites of the joint graph, which run before it is partitioned.

`simplify` has the small ones, `slice_writes` shortens chains of writes to parts of a tensor, and `gpu_rewrites` makes
constants on the GPU that reads them and chooses the memory format of convolutions.  Each changes the graph that it is
given.
"""
