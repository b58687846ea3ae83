"""Plans memory, prints the Python function that runs a program (the wrapper), and loads it.

`memory_plan` decides which buffers share memory, `runs` which kernels are one call.  `writer` prints the function, with
`values` for its expressions, and the function that makes example inputs.  `executable` is the result as plain data,
loads it, and has what it calls at run time, with `mersenne` (dropout on the CPU).
"""
