"""The text of ``%explain``: few lines, one for each problem, and the counts that the explorer has."""

from __future__ import annotations

import torch

from compiler_core.api import compile as api
from compiler_core.records import Failure, Record
from compiler_core.tools import recording
from compiler_core.tools.explain import Explanation
from kernel_magics.display import summary
from kernel_magics.display.explanation import MAX_PROBLEMS, explanation


def printing(x: torch.Tensor) -> torch.Tensor:
    x = x.sin()
    print(end="")
    x = x.cos()
    print(end="")
    return x.sum()


def record_of_prints() -> Record:
    with recording.record("the prints") as record:
        compiled = api.compile(printing, backend="eager")
        for dtype in (torch.float32, torch.float64):
            compiled(torch.ones(3, dtype=dtype))
    return record


def test_a_problem_is_one_line_and_guards_are_one() -> None:
    record = record_of_prints()
    lines = explanation(record).splitlines()
    assert lines[0] == summary.text(record).splitlines()[0]
    assert " 2 graph breaks, 3 recompiles, " in lines[0]
    assert len([line for line in lines if line.startswith("  costly: graph break: print, ")]) == 2
    assert len([line for line in lines if line.startswith("    What to do: Return what is printed")]) == 1
    guards = sum(len(c.guards) for c in record.compiles)
    (guard_line,) = [line for line in lines if " guards in " in line]
    assert guard_line.startswith(f"  {guards} guards in 6 compiles (most: ")


def test_of_long_advice_the_first_line_is_printed() -> None:
    record = record_of_prints()
    record.problems[0].advice = "Do this.\nOr that.\nMore about it: http"
    record.problems[0].checked = "Not tried here."
    text = explanation(record)
    assert "    What to do: Do this.  Not tried here.\n" in text
    assert "Or that." not in text


def test_few_problems_are_listed_and_the_others_counted() -> None:
    record = record_of_prints()
    record.problems *= 4
    lines = explanation(record).splitlines()
    assert len([line for line in lines if line.startswith("  costly: ")]) == MAX_PROBLEMS
    left = len(record.problems) - MAX_PROBLEMS
    assert f"  and {left} more problems: kernel_magics.last_record().problems" in lines


def test_texts_of_a_record_that_lacks_the_lines_it_names() -> None:
    """A record that was read may name any line."""
    record = record_of_prints()
    line = record.problems[0].line
    assert record.line_text(line) == 'print(end="")'
    record.compiles[0].failures.append(Failure("build", "it failed", "", filename="a.py", lineno=1, line=line))
    record.sources.clear()
    [p for p in record.problems if p.kind == "graph break"][1].compiles.clear()
    record = Record.from_json(record.to_json())
    assert record.line_text(line) == ""
    assert "costly: graph break: print, " in explanation(record)
    assert " build: it failed" in summary.text(record)
    assert f"break in {record.compiles[0].id} at " in str(Explanation(record))
    assert "break at " in str(Explanation(record))


def test_explanation_says_what_is_kept_and_what_that_would_cost_to_drop() -> None:
    weight = torch.randn(64, 64, requires_grad=True)
    with recording.record() as made:
        api.compile(lambda x: (x @ weight).exp().sin(), backend="aot_eager", strict=True)(torch.randn(128, 64))
    text = explanation(made)
    assert "  saved for the backward: 2 values, 64 KiB (PyTorch's default partition: " in text
    assert "`: a matrix product, convolution or attention, expensive to compute again (32 KiB)" in text
    assert "    mm of line " in text
    assert "; recomputing it would cost " in text
    assert "    x: an input, in memory already" in text
