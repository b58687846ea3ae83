"""Values of Python's built-in types.

`constant` has constants, `plain_objects` those of the standard library, `symbols` symbolic numbers, `sequences`,
`mappings`, `sets` and `deques` the containers (with `containers` for what all share, `iterators`, and `keys` for
conversion to dict keys), `weakrefs` and `context_vars` what their names say, `static` what is compared by identity, and
`methods` bound methods.
"""
