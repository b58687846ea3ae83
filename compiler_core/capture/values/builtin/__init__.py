"""Values of Python's built-in types.

`constant` has constants (`conversion` makes values of what is computed with them), `symbols` symbolic numbers,
`deferred` numbers and texts that are known once the graph has run, `sequences`, `mappings`, `sets` and `deques` the
containers (with `containers` for what all share), `context_vars` context variables and weak references, and `static`
what is compared by identity.
"""
