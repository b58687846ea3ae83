"""Rules for Python's builtins, operators and standard library."""
