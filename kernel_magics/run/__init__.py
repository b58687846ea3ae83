"""Runs a cell through the core engine, through stock torch.compile, or both.

`core` runs a parsed cell and records its compiles; `stock` compiles its units by stock `torch.compile`; `both` runs
the cell with two engines and compares them, for which `snapshots` saves and restores the state that the cell can reach
and `outside_effects` lists what it does to files, processes and connections.
"""
