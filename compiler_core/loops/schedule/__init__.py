"""How the work of a loop nest is divided among kernels and their programs (blocks) or threads.

`size_rules` has the thresholds.  After fusion, `splitting` splits loop nests of which a GPU would run too few
programs. `block_sizes` chooses the block sizes of each Triton kernel, `cpp_kernels` the kind, threads
and tiles of each C++ kernel.  Input and output are an `ir.Program` and its `ir.Loops`.
"""
