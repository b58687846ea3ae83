"""Compiles kernels to machine code for a target and maps each line to the kernel's lines.

`compiled_forms` runs the compilers and adds every form (TTIR, PTX, assembly, ...) to the record; `line_map` reads the
debug locations in their output.
"""
