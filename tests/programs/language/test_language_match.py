# mypy: ignore-errors
# ruff: noqa
# (the programs stand for users' code, which has no annotations and does odd things)
"""The match statement.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import dataclasses


from compiler_core.tools.testing import same_as_eager


@same_as_eager(graphs=1, breaks=[])
def test_mappings(x):
    def kind(v):
        match v:
            case {"op": "add", "by": n}:
                return x + n
            case {"op": "mul", **rest}:
                return x * rest["by"]
            case {}:
                return x

    return kind({"op": "add", "by": 2, "more": 0}), kind({"op": "mul", "by": 3}), kind({"a": 1})


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


@dataclasses.dataclass
class Circle:
    centre: Point
    radius: float


@same_as_eager(graphs=1, breaks=[])
def test_classes(x):
    def area(shape):
        match shape:
            case Point(0, 0):
                return "origin"
            case Point(a, y=b):
                return a + b
            case Circle(Point(x=cx), radius=r) if r > 1:
                return cx, r
            case Circle():
                return "small"
            case Point(nothing=_):
                return "never"

    shapes = Point(0, 0), Point(1, 2), Circle(Point(3, 4), 2.0), Circle(Point(3, 4), 1.0), 5
    return x + 1, [area(s) for s in shapes]


@same_as_eager(graphs=1, breaks=[])
def test_builtin_classes(x):
    def kind(v):
        match v:
            case bool(b):
                return "bool", b
            case int(n) | float(n):
                return "number", n
            case str() as s:
                return "text", s
            case list([a, *_]):
                return "list", a
            case dict(d):
                return "dict", len(d)
            case tuple():
                return "tuple"

    return x + 1, [kind(v) for v in (True, 3, 2.5, "a", [4, 5], {}, (), None)]


@same_as_eager(graphs=1, breaks=[])
def test_attribute_that_is_not_there(x):
    match Point(1, 2):
        case Point(z=0):
            return x
        case Point(x=1 | 2 as n):
            return x + n


@same_as_eager(graphs=1, breaks=[])
def test_a_pattern_of_no_class(x):
    circle = "Circle"
    try:
        match x:
            case circle():
                return x
    except TypeError as e:
        return x + 1, str(e)


@same_as_eager(graphs=1, breaks=[])
def test_too_many_patterns(x):
    try:
        match Point(1, 2):
            case Point(a, b, c):
                return x
    except TypeError as e:
        return x + 1, str(e)


@same_as_eager(graphs=1, breaks=[])
def test_nested(x):
    command = {"do": ["scale", {"by": (2, 3)}], "then": None}
    match command:
        case {"do": ["scale", {"by": (a, b)}], "then": None | [] as then}:
            return x * a + b, then
