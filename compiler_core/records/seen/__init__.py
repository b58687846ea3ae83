"""The Python frames that ran while a compiled call ran, and whose code they run.

seen_frames   the frames, and their table and tree
packages      the installed package that a file belongs to
"""
