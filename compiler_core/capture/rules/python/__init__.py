"""Rules for Python's builtins, operators and standard library, a file for each topic.

`operators`, of containers, too; `builtins`, `iteration` (with `itertools`) and `text` have builtins; `copying`,
`cached` (``lru_cache``) and `library` have parts of the standard library.
"""
