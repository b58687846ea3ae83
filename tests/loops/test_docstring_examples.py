"""The docstrings of `compiler_core.loops` show what their rules print, and every rule has an example."""

from __future__ import annotations

import doctest
import functools
import inspect
import re

import pytest

from compiler_core.loops.fuse import rules
from compiler_core.loops.lower.body import RULES
from tests.loops.docstring_examples import doctests, run

EXAMPLES = {f"{test.name}:{test.examples[0].source.strip()}": test for test in doctests()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_current(name: str) -> None:
    """If this fails, ``python -m tests.loops.docstring_examples`` updates the docstrings."""
    for example in EXAMPLES[name].examples:
        assert doctest.OutputChecker().check_output(example.want, run(example.source), 0), example.source


def test_every_lowering_rule_has_an_example() -> None:
    """Each rule has an example in its docstring, or refers to the rule that has one for its group."""
    for target, registered in RULES.items():
        rule = inspect.unwrap(registered)
        if isinstance(rule, functools.partial):
            rule = rule.func
        doc = inspect.getdoc(rule) or ""
        if ">>>" in doc:
            continue
        others = re.findall(r"Like `(\w+)`", doc)
        module = inspect.getmodule(rule)
        assert others, f"the rule for {target} has no example: add one, or say ``Like `rule` ``"
        assert ">>>" in (inspect.getdoc(getattr(module, others[0])) or ""), f"{others[0]} has no example"


def test_every_fusion_rule_has_an_example() -> None:
    for rule in rules.RULES:
        assert ">>>" in (inspect.getdoc(rule.apply) or ""), rule.name
