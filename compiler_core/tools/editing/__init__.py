"""Edits what the compiler generated: tries an edited text beside the original, and swaps it in.

edits             `edit`, `revert`, `try_edit`, `editable_text` and `stock_edited`
kernel_trial      tries an edited kernel beside the original, in a separate process (`guarded_run`)
wrapper_trial     tries an edited wrapper, in a separate process (`wrapper_run`)
graph_trial       tries an edited graph
graph_from_text   reads the text of a graph
stock_edits       edits of what stock `torch.compile` generated
"""
