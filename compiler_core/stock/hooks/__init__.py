"""Access to PyTorch while it compiles: its internals by version, its loggers, its printed texts, Dynamo's steps."""
