"""How the work of a loop nest is divided among kernels and their programs (blocks) or threads.

After fusion, `splitting` splits loop nests of which a GPU would run too few programs.  `block_sizes` has the
thresholds, and chooses the block sizes of each Triton kernel.  `cpu` chooses the schedule of each C++ kernel, by its
kind: `rewrites` of its loop nest, which `script` applies in order or reads from text.  `updates` has loops write new
values of inputs in place, `numbers` keeps changing floats in tensors.  Input and output are an `ir.Program` and its
`ir.Loops`.
"""
