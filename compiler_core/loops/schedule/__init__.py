"""How the work of a loop nest is divided among kernels and their programs (blocks) or threads.

After fusion, `splitting` splits loop nests of which a GPU would run too few programs, and `unrolling` unrolls loops of
a few iterations for a CPU. `cpu` chooses the schedule of each C++ kernel, by its kind, `gpu` that of each Triton
kernel, from its block sizes (`block_sizes`): `rewrites` of its loop nest, and `gpu_rewrites`, which `script` applies in
order. `vectors` says how long vectors are, and which float16 is converted for whole ones. `inputs` has loops write new
values of inputs in place, read gradients only if they are there, and read changing floats from a tensor. Input and
output are an `ir.Program` and its `ir.Loops`.
"""
