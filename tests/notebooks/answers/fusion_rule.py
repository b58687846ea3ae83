"""Answers to the exercise of the fusion rule."""

from tests.notebooks.answers import Wrong

RIGHT = {
    "refusals one by one": """
def fits(first, second):
    reads_it = first.name in second.reads
    refusals = [
        first.kind == "call" or second.kind == "call",
        not reads_it and set(first.reads).isdisjoint(second.reads),
        reads_it and bool(first.reduced) and bool(second.reduced),
        not reads_it and bool(first.reduced) and bool(second.reduced) and first.reduced != second.reduced,
        second.ranges != first.ranges and not (reads_it and second.ranges == kept(first)),
    ]
    return not any(refusals)


def kept(step):
    return tuple(size for loop, size in enumerate(step.ranges) if loop not in step.reduced)
""",
    "by kinds": """
def fits(first, second):
    match (first.kind, second.kind, first.name in second.reads):
        case ("call", _, _) | (_, "call", _) | ("reduction", "reduction", True):
            return False
        case ("reduction", "pointwise", True):
            rest = [size for loop, size in enumerate(first.ranges) if loop not in first.reduced]
            return list(second.ranges) in (rest, list(first.ranges))
        case ("reduction", "reduction", False) if first.reduced != second.reduced:
            return False
        case (_, _, reads_it):
            return first.ranges == second.ranges and (reads_it or any(each in second.reads for each in first.reads))
""",
}

WRONG = [
    Wrong(
        "a table of names",
        "look names of steps up",
        """
FUSED = {("sine", "add"), ("sine", "sum"), ("rows", "exp"), ("rows", "divide")}


def fits(first, second):
    return (first.name, second.name) in FUSED
""",
    ),
    Wrong(
        "names instead of ranges",
        "ignore the ranges",
        """
def fits(first, second):
    if "call" in (first.kind, second.kind):
        return False
    if first.name in second.reads:
        return not (first.reduced and second.reduced)
    if not {*first.reads} & {*second.reads}:
        return False
    return not first.reduced or not second.reduced or first.reduced == second.reduced
""",
    ),
    Wrong(
        "a reader needs equal ranges",
        "the loops of a reduction",
        """
def fits(first, second):
    if "call" in (first.kind, second.kind) or first.ranges != second.ranges:
        return False
    if first.name not in second.reads and not {*first.reads} & {*second.reads}:
        return False
    return not first.reduced or not second.reduced or first.reduced == second.reduced
""",
    ),
    Wrong(
        "equal ranges",
        "ignore what the steps read",
        "def fits(first, second):\n    return first.ranges == second.ranges\n",
    ),
    Wrong("nothing to gain", "ignore what the steps read", old="not {*first.reads} & {*second.reads} or ", new=""),
    Wrong(
        "producers only",
        "fuse producers only",
        old="return not first.reduced or not second.reduced or first.reduced == second.reduced",
        new="return False",
    ),
    Wrong(
        "siblings only",
        "fuse siblings only",
        old="if first.name in second.reads:\n",
        new="if first.name in second.reads:\n        return False\n",
    ),
    Wrong(
        "over any loops",
        "compare the ranges only",
        old="not first.reduced or not second.reduced or first.reduced == second.reduced",
        new="True",
    ),
    Wrong("no reductions", "never fuse reductions", old='if "call" in', new='if second.reduced or "call" in'),
    Wrong(
        "calls",
        "something into a call",
        old='if "call" in (first.kind, second.kind):\n        return False\n    ',
        new="",
    ),
    Wrong(
        "all loops again only",
        "the loops of a reduction",
        old="second.ranges in (first.ranges, left)",
        new="second.ranges == first.ranges",
    ),
    Wrong("a sum of sums", "fuse a sum of sums", old=' and second.kind == "reduction"', new=" and not second.reads"),
    Wrong(
        "what is left only",
        "a / a.sum(1, keepdim=True):\n",
        old="second.ranges in (first.ranges, left)",
        new="second.ranges == left",
    ),
    Wrong(
        "the number of elements",
        "compare the number of elements",
        """
import math
def fits(first, second):
    if "call" in (first.kind, second.kind): return False
    if first.name in second.reads:
        return not (first.reduced and second.reduced)  and (math.prod(first.ranges) == math.prod(second.ranges) or second.ranges == tuple(r for i, r in enumerate(first.ranges) if i not in first.reduced))
    return bool({*first.reads} & {*second.reads}) and math.prod(first.ranges) == math.prod(second.ranges) and (not first.reduced or not second.reduced or first.reduced == second.reduced)
""",
    ),
    Wrong(
        "the same operands",
        "want all operands in common",
        """
def fits(first, second):
    if "call" in (first.kind, second.kind): return False
    if first.name in second.reads:
        left = tuple(s for i, s in enumerate(first.ranges) if i not in first.reduced)
        return not (first.reduced and second.reduced) and second.ranges in (first.ranges, left)
    return first.reads == second.reads and first.ranges == second.ranges and (not first.reduced or not second.reduced or first.reduced == second.reduced)
""",
    ),
    Wrong(
        "both reduce or neither",
        "want both to reduce, or neither",
        """
def fits(first, second):
    if "call" in (first.kind, second.kind): return False
    if first.name in second.reads:
        left = tuple(s for i, s in enumerate(first.ranges) if i not in first.reduced)
        return not (first.reduced and second.reduced) and second.ranges in (first.ranges, left)
    return bool({*first.reads} & {*second.reads}) and first.ranges == second.ranges and first.reduced == second.reduced
""",
    ),
]
