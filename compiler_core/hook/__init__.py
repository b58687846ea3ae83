"""The PEP 523 frame hook: PyTorch calls it before a Python frame runs, and it may replace the frame's code.

`frame_hook.py` is the hook, `skip_rules.py` decides which code is never compiled, `cache_entries.py` frees installed
code, and `failures.py` reports failures of the compiler in the record and as warnings.  In goes a frame, out comes
PyTorch's decision for it: run given code, run it as it is, or skip its code object.
"""
