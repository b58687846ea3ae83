"""The Python frames that ran while a compiled call ran.

seen_frames   the frames, and their table and tree
"""
