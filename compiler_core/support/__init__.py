"""Helpers that several stages share.

FX graphs (`fx_graphs`, `fx_symbols`, `operators`, `node_facts`, `opaque_ops`, `subgraphs`), symbolic sizes
(`size_expr`), calls of custom operators (`recorded_calls`), PyTorch's global state (`torch_state`) and levels of
`torch.func` (`transform_levels`), warnings (`eager_warnings`), signals, forks and garbage collections (`interrupts`,
`fork_locks`, `garbage`), and small functions on tensors and on texts (`tensors`, `texts`).
"""
