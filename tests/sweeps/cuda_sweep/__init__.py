"""Checks Triton kernels on a machine without a GPU.

    make cuda-sweep                    programs x sizes x types x layouts, from a captured graph to PTX for sm_90
    make cuda-sweep FORCED=1           strategies for big sizes at small sizes, in Triton's interpreter

`no_cuda` lets PyTorch differentiate fake CUDA tensors without CUDA; `programs` has the programs and sizes; `pipeline`
compiles a program from its graph to kernels; `overflow` and `compiler_core.codegen.triton.check` check the kernels'
texts; `ptx` compiles new kernels; `forced` runs kernels in the interpreter, `on_gpu` on a GPU.
"""
