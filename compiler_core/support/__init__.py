"""Helpers that several stages share.

FX graphs (`fx_graphs`, `fx_symbols`, `operator_facts`, `opaque_ops`), symbolic sizes (`size_expr`), calls of custom
operators (`recorded_calls`), PyTorch's global state (`torch_state`) and levels of `torch.func` (`transform_levels`),
warnings (`eager_warnings`, `silenced_warnings`), signals and forks (`interrupts`, `fork_locks`), generated code
(`generated_code`), what tools add (`instruments`), and small functions on tensors and objects (`tensors`, `safe_repr`).
"""
