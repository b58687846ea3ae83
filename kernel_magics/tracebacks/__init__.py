"""Tracebacks that read as those of a plain cell."""
