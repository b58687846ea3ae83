"""Answers that a finished record has: where compiling took the time (`costs`)."""
