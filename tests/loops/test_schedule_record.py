"""Tests of the schedules in the record: the rewrites of each kernel, and the loops of the nest after each."""

from __future__ import annotations

import torch

import compiler_core
from compiler_core.records import Rewrite, Schedule


def schedule_of(f: object, *args: torch.Tensor) -> Schedule:
    with compiler_core.record() as record:
        compiler_core.compile(f, backend="cpp")(*args)
    made, *_ = record.compiles[0].schedules
    return made


def around(rewrite: Rewrite, line: int) -> list[str]:
    """Returns the headings around a line, by its indentation, outermost first."""
    lines = rewrite.nest.splitlines()
    found: list[str] = []
    indent = len(lines[line]) - len(lines[line].lstrip())
    for each in reversed(lines[:line]):
        depth = len(each) - len(each.lstrip())
        if depth < indent:
            found.insert(0, each.strip())
            indent = depth
    return found


def test_the_loops_are_those_of_the_text() -> None:
    made = schedule_of(lambda x: (torch.softmax(x, -1), x.sum(0)), torch.ones(512, 1024))
    for rewrite in made.rewrites:
        lines = rewrite.nest.splitlines()
        headings = [n for n, line in enumerate(lines) if line.split()[0] in ("for", "thread", "vector")]
        assert [loop.line for loop in rewrite.loops] == headings
        for loop in rewrite.loops:
            text = lines[loop.line].strip()
            assert f" {loop.index} " in text
            assert text.startswith("thread") == loop.is_threaded
            assert ("vector" in text) == loop.is_vector
            outside = [each for each in around(rewrite, loop.line) if each.split()[0] in ("for", "thread", "vector")]
            parents = [lines[rewrite.loops[loop.parent].line].strip()] if loop.parent >= 0 else []
            assert outside[-1:] == parents
    assert made.rewrites[-1].loops[-1].lanes == 16


def test_loops_in_both_versions_of_an_if_and_symbolic_sizes() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    x = torch.ones(64, 128)
    torch._dynamo.mark_dynamic(x, 1)
    last = schedule_of(f, x).rewrites[-1]
    assert "else:" in last.nest
    assert {str(loop.end) for loop in last.loops if loop.index == "j0"} != {"128"}
    assert len({loop.line for loop in last.loops}) == len(last.loops)
    assert sum(loop.parent < 0 for loop in last.loops) == 2
