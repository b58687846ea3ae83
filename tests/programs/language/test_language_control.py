# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Control flow, names, slices, unpacking, f-strings, imports.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

from compiler_core.tools.testing import same_as_eager


@same_as_eager(graphs=1, breaks=[])
def test_deleting_a_shared_variable(x):
    n = 1

    def read():
        return n

    first = read()
    del n
    try:
        read()
    except NameError as e:
        message = str(e)
    n = 3
    return x + first + read(), message


@same_as_eager(graphs=1, breaks=[])
def test_f_strings(x):
    n, s, f = 42, "text", 3.14159
    w = 8
    return (
        x + 1,
        f"{n} {s!r} {f:.2f} {n:>{w}} {n:#x} {s:^{w}} {n=} {s!s:>6} {f!r:.4} {'nested ' + f'{n}'}",
        f"{x.shape} {x.dtype} {[1, s]} {(n,)} { {'a': None} } {None} {True!a} {{}}",
        "%s and %05.1f" % (s, f),
        "{:>5}|{0.real}".format(n) if False else "{:>5}|{k!r}".format(n, k=s),
        str(n) + repr(s) + format(f, ".1e"),
    )


@same_as_eager(graphs=1, breaks=["exception", "unsupported call"])
def test_import_error(x):
    try:
        from math import no_such_name
    except ImportError as e:
        return x + 1, "no_such_name" in str(e)


@same_as_eager(graphs=1, breaks=["exception"], changes=["made_here"])
def test_global_made_and_deleted(x):
    global made_here
    made_here = 5
    y = x + made_here
    del made_here
    try:
        made_here
    except NameError as e:
        return y, str(e)
