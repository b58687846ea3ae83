"""Values of Python's built-in types.

`constant` has constants, `symbols` symbolic numbers, and numbers and texts that are known once the graph has run,
`sequences`, `mappings` and `sets` the containers (with `containers` for what all share), and `static` what is compared
by identity, and how values are made of what is computed with constants.
"""
