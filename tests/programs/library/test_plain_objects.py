# mypy: ignore-errors
# ruff: noqa
"""Programs over immutable objects of the standard library: decimals, fractions, dates, paths, regular expressions.

PYTEST_DONT_REWRITE: the programs use ``assert`` as a user's would.
"""

import copy
import datetime
import functools
import pathlib
import re
import uuid
from decimal import Decimal, localcontext
from fractions import Fraction

import torch

from compiler_core.tools.testing import check, same_as_eager

one_graph = functools.partial(same_as_eager, graphs=1, breaks=[])

THIRD, DAY, RATE = Fraction(1, 3), datetime.date(2020, 2, 3), Decimal("1.50")
HOME = pathlib.PurePosixPath("/data/run.1/model.pt")
SIZE = re.compile(r"(?P<w>\d+)x(\d+)")


@one_graph()
def test_globals(x):
    found = SIZE.match("3x40")
    steps = HOME.name, HOME.suffix, str(HOME.parent / "log"), HOME.parts, HOME.with_suffix(".ckpt")
    return x * int(found.group("w")) * float(THIRD + 1) + DAY.year * float(RATE), found.groups(), found[2], steps


@one_graph(
    inputs=lambda: (
        torch.ones(3), datetime.timedelta(days=1, seconds=7), datetime.datetime(2020, 1, 2, 3), pathlib.Path("a/b.txt"),
        uuid.UUID(int=5), Fraction(2, 7), Decimal("2.5"),
    )
)  # fmt: skip
def test_arguments(x, wait, start, path, key, part, rate):
    later = start + wait * 2
    ratio = part * 3 + Fraction(x.shape[0], 2)
    texts = f"{path}: {later} {key} {ratio} {later - start}", path.stem, key.hex, later.isoformat()
    return x * wait.total_seconds() + float(ratio) * int(rate), texts, rate > 2, {path: 1, rate: 2}[path], [wait, start]


@one_graph()
def test_made_inside(x):
    pattern = re.compile("a+", re.IGNORECASE)
    words = re.split(r"\s*,\s*", "a , bAa,c"), pattern.sub("-", "xaAb"), re.findall("b", "abb"), re.escape("a.b")
    return x + len(words[0]), words, datetime.date(2020, 1, 31) + datetime.timedelta(days=1), pathlib.Path("a") / "b"


def test_changes_are_noticed():
    def program(x, obj, other):
        return x * len(str(obj)) if obj == other else x - len(repr(obj))

    pairs = [
        (Decimal("1.0"), Decimal("1.00")), (Decimal("1.00"), Decimal("1.00")), (Fraction(1, 2), Decimal("0.5")),
        (pathlib.PurePosixPath("a"), pathlib.PurePosixPath("A")), (datetime.date(2020, 1, 1), datetime.date(2020, 1, 1)),
        (datetime.time(1), datetime.time(1, fold=1)), (re.compile("a"), re.compile("a", re.I)),
    ]  # fmt: skip
    check(program, [lambda pair=pair: (torch.ones(2), *pair) for pair in pairs])


@same_as_eager(inputs=lambda: (torch.ones(3), Decimal(1), pathlib.Path(__file__)))
def test_what_depends_on_more_than_the_object(x, one, path):
    with localcontext() as context:
        context.prec = 4
        third = one / 3
    return x * float(one / 3), third, str(one), path.exists(), datetime.datetime.now().year > 1, path.is_file()


@same_as_eager(inputs=lambda: (torch.ones(3), [Decimal(1)], Fraction(1, 2), Fraction(1, 2)))
def test_identity(x, values, a, b):
    return x + 1 if a is b else x - 1, values[0] is copy.copy(values[0]), a, [a, b], a is a


@same_as_eager()
def test_functions_called_for_matches(x):
    seen = []

    def note(found):
        seen.append(found.group())
        return "-"

    return x + 1, re.sub("a", note, "aba"), SIZE.sub(note, "1x2"), seen, [m.span() for m in SIZE.finditer("1x2 3x4")]


@same_as_eager()
def test_match_across_a_break(x):
    found = re.search("b+", "abbc")
    print(found.span())
    return x * len(found.group())
