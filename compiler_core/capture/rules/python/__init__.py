"""Rules for Python's builtins, operators and standard library, a file for each topic.

`operators` and `container_operators` have the operators, and `type_errors` their TypeErrors; `builtins`, `iteration`
and `text` have builtins, and `object_methods` the methods of `object`; `itertools`, `copying`, `getters` (the module
`operator`), `cached` (``lru_cache``, which asks `reachable` what a function can read) and `library` have parts of the
standard library.
"""
