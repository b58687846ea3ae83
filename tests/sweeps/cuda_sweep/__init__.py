"""What can be seen of the Triton kernels on a machine without a GPU.

    make cuda-sweep                    programs x sizes x types x layouts, from a captured graph to PTX for sm_90
    make cuda-sweep FORCED=1           strategies for big sizes at small ones, in Triton's interpreter, against eager

`no_cuda` lets PyTorch differentiate fake CUDA tensors where there is no CUDA; `programs` are the programs and sizes;
`pipeline` takes a program from its graph to kernels; `overflow` and `compiler_core.codegen.triton.check` look at the
kernels' texts; `ptx` compiles those that are new; `forced` runs kernels in the interpreter, `on_gpu` on a GPU.
"""
