"""Rules for functions of PyTorch and NumPy.

`functions` decides which functions become nodes of the graph, and converts their arguments; the other files have the
rules for functions that do not become nodes: `queries` of PyTorch's state and contexts such as ``no_grad``,
`autograd_functions` and hooks of tensors, `gradients` (backwards inside a frame), `optimizers`, `control_flow`
(``torch.cond``, checkpoints and ``flex_attention``), `overrides` (``__torch_function__`` and modes), `transforms` of
``torch.func``, `collectives` and `numpy`.
"""
