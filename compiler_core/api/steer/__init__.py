"""Opens and changes what the compiler made: edited kernels and graphs, tried beside the original and swapped in.

editing           `edit`, `revert`, `try_edit` and `editable_text`
kernel_trial      tries an edited kernel beside the original, in a separate process (`guarded_run`)
graph_trial       tries an edited graph beside the original
graph_from_text   reads the text of a graph
compiled_before   `already_compiled`, `guards_text` and `decompiled`: opens what was compiled before
what_if           compiles a call again with something changed
reproducer        writes a file that shows a fault of a compiler
"""
