"""Rules for Python's builtins, operators and standard library, a file for each topic.

`operators`, of containers, too; `builtins`, `iteration` and `text` have builtins; `itertools`, `copying`, `cached`
(``lru_cache``), `single_dispatch`, `logs` and `library` have parts of the standard library.
"""
