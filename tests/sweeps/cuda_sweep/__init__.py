"""Checks Triton kernels on a machine without a GPU.

    make cuda-sweep                    programs x sizes x types x layouts, from capture to PTX for sm_90
    make cuda-sweep FORCED=1           strategies for big sizes at small sizes, in Triton's interpreter
    make cuda-sweep SYMBOLIC=1         either with symbolic sizes, and random tensor programs called with several sizes

`no_cuda` lets PyTorch differentiate fake CUDA tensors without CUDA; `programs` has the programs and sizes, `drawn` the
random tensor programs; `pipeline` compiles a program to kernels; `overflow` and `compiler_core.codegen.triton.module`
check the kernels' texts; `ptx` compiles new kernels; `forced` runs kernels in the interpreter, `on_gpu` on a GPU.
"""
