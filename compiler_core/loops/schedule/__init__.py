"""How the work of a loop nest is divided among kernels and their programs (blocks) or threads.

After fusion, `splitting` splits loop nests of which a GPU would run too few programs.  `block_sizes` has the
thresholds, and chooses the block sizes of each Triton kernel, `cpp_kernels` the kind, threads and tiles of each C++
kernel.  `updates` has loops write new values of inputs in place, `numbers` keeps changing floats in tensors.  Input and
output are an `ir.Program` and its `ir.Loops`.
"""
