"""The public functions: they compile and explain functions, and measure, check and export what a record holds.

compile              compile, pin, disable, marks; `compiled_function` and `compiled_module` are what it returns
pin                  runs a compile without its guards
recording            `record`, and the records that are open
explain, export      one call explained; the graph of a function
capture_methods      compares `torch.jit.trace`, `torch.export` and others on one function
torch_backend        our kernels as a backend of stock `torch.compile`
replay               runs the programs of a finished record, for `measure` and `accuracy`
roofline             lower bounds of kernel times
standalone_script    a graph's program as a Python file
check                checks this machine: ``python -m compiler_core.api.check``
inspection/          the compiles of a function: those in use, with something changed, with another partition
editing/             edited kernels, wrappers and graphs
reproduce/           files that show a fault
timing/              times of a call in several forms
sweep/, ranks/       many models; the ranks of a distributed job
assertions/          `assert_compiles`
testing/             compares compiled programs with eager PyTorch
"""
