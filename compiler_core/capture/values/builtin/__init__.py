"""Values of Python's built-in types: constants, symbolic numbers, sequences, dicts, sets, deques, weak references,
context variables, and what is compared by identity.

`containers.py` has what all containers share, `iterators.py` the iterators, and `keys.py` converts values to dict keys.
"""
