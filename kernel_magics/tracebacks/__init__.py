"""Tracebacks like those of a plain cell: `traces` removes the compiler's frames, `synthetic_frames` makes frames that
show the user's function in place of generated code."""
