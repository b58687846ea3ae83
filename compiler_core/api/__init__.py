"""The public functions: they compile and explain functions, and measure, check and export what a record holds.

``compile``                      compile, pin, disable, marks; `recording` has ``record``
``explain``                      one call explained; the graph of a function
``capture_methods``              compares `torch.jit.trace`, `torch.export` and others on one function
``torch_backend``                our kernels as a backend of stock `torch.compile`
``replay``                       runs the programs of a finished record, for `measure` and `accuracy`
``roofline, standalone_script``  lower bounds of kernel times; a graph's program as a Python file
``check``                        checks this machine: ``python -m compiler_core.api.check``
``testing``                      compares compiled programs with eager PyTorch
"""
