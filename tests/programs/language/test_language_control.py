# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""Control flow, names, slices, unpacking, f-strings, imports.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import math

from compiler_core.tools.testing import same_as_eager


@same_as_eager(graphs=1, breaks=[])
def test_loops_with_else(x):
    log = []
    for i in range(3):
        log.append(i)
    else:
        log.append("else")
    while len(log) < 6:
        log.append(0)
        if len(log) == 5:
            break
    else:
        log.append("never")
    return x + len(log), log


@same_as_eager(graphs=1, breaks=[])
def test_nested_loops(x):
    total = 0
    for i in range(4):
        for j in range(4):
            if j == i:
                continue
            if j > 2:
                break
            total += i * j
    return x * total


@same_as_eager(graphs=1, breaks=[])
def test_walrus(x):
    if (n := x.shape[0]) > 3 and (m := n * 2) > n:
        x = x * m
    values = [y := 1, y + 1, (z := y * 3)]
    return x, values, y, z, [w for v in values if (w := v * 2) > 2], w


@same_as_eager(graphs=1, breaks=[])
def test_and_or_not(x):
    return x + 1, 0 or "a", [] and 1, not "", None or 0 or (), 1 and 2 and 3, 5 if not x.ndim else 6


@same_as_eager(graphs=1, breaks=[])
def test_star_unpacking(x):
    a, *b, c = range(5)
    (d, (e, *f)), g = (1, (2, 3, 4)), 5
    *h, i = "xyz"
    [j, k] = {"p": 1, "q": 2}.items()
    return x + a, b, c, d, e, f, g, h, i, j, k


@same_as_eager(graphs=1, breaks=[])
def test_star_in_displays(x):
    a, b = [1, 2], (3, 4)
    d = {"p": 1, **{"q": 2}}
    return [*a, *b, x + 1], (*a, *b), {*a, *b} == {1, 2, 3, 4}, {**d, "p": 5}, [*range(2), *"ab"]


@same_as_eager(graphs=1, breaks=[])
def test_slices(x):
    a = list(range(6))
    b = a[1:4], a[::-1], a[-2:], a[:], a[4:1:-2]
    a[1:3] = ["x"]
    a[::2] = [0, 0, 0]
    del a[-1:]
    s = slice(1, None)
    return x[1:, ::2] + 1, b, a, "hello"[1:3], (1, 2, 3)[s], x[..., None, 0].shape, s.start


@same_as_eager(graphs=1, breaks=[])
def test_deleting(x):
    a, d, box = [1, 2, 3], {"p": 1, "q": 2}, Box()
    box.v = 3
    n = 5
    del a[0], d["p"], box.v, n
    try:
        return n
    except UnboundLocalError:
        return x + 1, a, d, hasattr(box, "v")


class Box:
    pass


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


@same_as_eager(graphs=1, breaks=[])
def test_imports(x):
    import math
    import os.path as p
    from collections import OrderedDict, namedtuple as nt
    import torch.nn.functional as F

    return F.relu(x) * math.pi, p.sep, OrderedDict(a=1), nt is not None


@same_as_eager(graphs=1, breaks=["exception", "unsupported call"])
def test_import_error(x):
    try:
        from math import no_such_name
    except ImportError as e:
        return x + 1, "no_such_name" in str(e)


@same_as_eager(graphs=1, breaks=[])
def test_comprehension_scopes(x):
    i = "kept"
    a = [i * 2 for i in range(3)]
    b = {k: [v + k for v in range(k)] for k in range(3)}
    c = [lambda: i for i in range(2)]
    d = {n % 2 for n in range(5)}
    e = [(p, q) for p in range(2) for q in range(p + 1) if (p + q) % 2 == 0]
    return x + 1, i, a, b, [f() for f in c], d == {0, 1}, e


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


@same_as_eager(graphs=1, breaks=[])
def test_augmented_assignment(x):
    a, b, n, s = [1], {"k": 2}, 5, "a"
    alias = a
    a += [2]
    a *= 2
    b["k"] **= 3
    b |= {"m": 1}
    n //= 2
    n <<= 3
    n ^= 5
    s += "b"
    t = (1,)
    t += (2,)
    y = x.clone()
    y += 1
    y @= x
    return y, a is alias, a, b, n, s, t


@same_as_eager(graphs=1, breaks=[])
def test_conditional_expressions(x):
    return [("even" if n % 2 == 0 else "odd") if n else "zero" for n in range(4)], x + (1 if x.requires_grad else 2)


@same_as_eager(graphs=1, breaks=[])
def test_numbers(x):
    return (
        x * math.sqrt(2),
        7 // -2,
        -7 % 3,
        2**-1,
        divmod(-7, 2),
        abs(-3),
        round(2.5),
        round(2.675, 2),
        int("0x1f", 16),
        float("1e3"),
        1_000 & 0xFF,
        ~5,
        1 << 40,
        3 + 4j,
        (3 + 4j).conjugate(),
        0.1 + 0.2,
        -0.0,
        +True,
        -True,
        int(3.9),
        complex(1, 2),
        (5).bit_length(),
        (255).to_bytes(2, "big"),
        (0.5).as_integer_ratio(),
        math.inf > 10**300,
        math.isnan(math.nan),
    )


@same_as_eager(graphs=1, breaks=[])
def test_identity_of_constants(x):
    a = None
    b = ...
    return x + 1, a is None, b is Ellipsis, a is not b, NotImplemented is NotImplemented


@same_as_eager(graphs=1, breaks=[])
def test_pass_and_docstring(x):
    """A docstring."""
    pass
    ...
    if False:
        never
    return x + 1


@same_as_eager(graphs=1, breaks=[])
def test_assert_holds(x):
    assert x.ndim == 2, "never said"
    assert [x.shape[0], "always true"]
    return x + 1
