"""Plans memory, prints the Python function that runs a program (the wrapper), and loads it.

`memory_plan` decides which buffers share memory.  `writer` prints the function, with `values` for its expressions and
`example_source` for the function that makes example inputs.  `executable` is the result as plain data, and loads it.
At run time the function uses `huge_pages` (allocation), `mersenne` (dropout on the CPU) and `example_inputs`.
"""
