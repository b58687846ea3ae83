"""Rewrites of the joint graph, which run before it is partitioned.

`simplify` and `biases` have the small ones, `slice_writes` shortens chains of writes to parts of a tensor,
`device_constants` makes constants on the GPU that reads them, and `channels_last` chooses the memory format of
convolutions on GPUs.  Each changes the graph that it is given.
"""
