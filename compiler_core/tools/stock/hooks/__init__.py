"""Access to PyTorch while it compiles.

`torch_internals` has what depends on its version, and `after_import` waits until a module of it is loaded.
`trace_file` writes its structured trace, `torch_logs` collects the messages of its loggers, `deferred_text` postpones
the printing of its texts, and `dynamo_steps` records the steps of its symbolic interpreter.
"""
