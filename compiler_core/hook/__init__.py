"""The PEP 523 frame hook: PyTorch calls it before a Python frame runs, and it may replace the frame's code.

`frame_hook.py` is the hook, and frees installed code, `skip_rules.py` decides which code is never compiled, and
`failures.py` reports failures of the compiler in the record and as warnings.  Input: a frame; output:
PyTorch's decision for it, which is to run given code, to run it as it is, or to skip its code object.
"""
