"""The compiler's public functions.

compile              compile, disable, marks; `compiled` has what it returns, and the records that are open
export               the graph of a function
torch_backend        our kernels as a backend of stock `torch.compile`
"""
