"""A line needs a number itself where it counts with it or formats it, not where it decides by it."""

from __future__ import annotations

import pytest

from compiler_core.tools.questions.needed_values import decides_by, function_lines, needs_number

NEEDS = [
    ("for _ in range(self.config.depth):  # layers", "self.config.depth"),
    ("rows = [row for row in rows if counts[n] > 1]", "n"),
    ("name = f'layer {self.index}'", "self.index"),
    ("return x * math.cos(t)", "t"),
]
DECIDES = [
    ("if x.shape[0] > self.longest:", "self.longest"),
    ("elif not cfg.steps:", "self.cfg.steps"),
    ("y = x[: self.keep]", "self.keep"),
    ("y = x[:, : self.keep]", "self.keep"),
    ("y = x * 2 if step % 10 == 0 else x", "step"),
    ("rows = [row for row in rows if counts[0] > 1]", "state.counts[0]"),
]
MAY_NOT = [
    ("self.calls += 1", "self.calls"),
    ("return x * self.scale", "self.scale"),
    ("mask = x > self.limit", "self.limit"),
    ("if self.training:", "self.scale"),
    ("return (x,", "x"),
]


@pytest.mark.parametrize(("line", "name"), NEEDS)
def test_a_line_needs_a_number(line: str, name: str) -> None:
    assert needs_number(line, name)


@pytest.mark.parametrize(("line", "name"), DECIDES)
def test_a_line_decides_by_a_number(line: str, name: str) -> None:
    assert decides_by(line, name)
    assert not needs_number(line, name)


@pytest.mark.parametrize(("line", "name"), MAY_NOT)
def test_a_line_may_take_a_tensor(line: str, name: str) -> None:
    assert not needs_number(line, name)
    assert not decides_by(line, name)


def test_the_lines_of_a_function_are_those_that_are_indented_more() -> None:
    text = "class Model:\n    def forward(self):\n        self.step += 1\n\n        return 2\n\n    def other(self):\n"
    lines = dict(enumerate(text.split("\n"), 1))
    assert function_lines(lines, 3)[:4] == text.split("\n")[1:5]
    assert "    def other(self):" not in function_lines(lines, 3)
    assert function_lines({9: "x = 1"}, 9) == ["x = 1"]
