"""Rules for functions of PyTorch and NumPy.

`functions` decides which functions become nodes of the graph, and `arguments` converts their arguments; the other files
have the rules for functions that do not become nodes: `queries` of PyTorch's state, `contexts` such as ``no_grad``,
`modules` (methods of ``nn.Module``), `autograd_functions`, `overrides` (``__torch_function__`` and modes), `transforms`
of ``torch.func``, `masked` reductions, `collectives`, `scan` and `numpy`.
"""
