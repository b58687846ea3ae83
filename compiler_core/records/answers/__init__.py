"""Answers of a finished record: where compiling took the time (`costs`), what holds memory at its peak (`memory`)."""
