"""Runs a cell through the core engine, through stock torch.compile, or both.

`request` has the options, `core` runs a parsed cell and records its compiles; `stock` compiles its units by stock
`torch.compile`; `both` runs the cell with two engines and compares them, for which `snapshots` saves and restores the
state that the cell can reach and `outside_effects` lists what it does to files, processes and connections.  `ranks`
runs a cell on the engines of a cluster.  `own_compiles` finds the cells that use `torch.compile` themselves.

Afterwards, `cell_timer` times the cell, `experiments` and `what_if` run it again with one thing changed
(`silenced_output` drops what it prints), and `fixes/` tries changes of its code.  `graph_passes` and `edits` hold the
user's passes and edited texts; `captures` and `speed` are ``%capture_methods`` and ``%speed``.
"""
