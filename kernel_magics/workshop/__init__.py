"""The workshop: questions whose right answers come from a record, and what checks its exercises.

`form` asks a question, `measures` counts what it asks about in a record, `checks` compares a learner's answer with the
right one, and `triton_kernels` runs a learner's kernel and notes what it reads and writes.
"""

from __future__ import annotations

from kernel_magics.workshop.checks import Misconception, Raised, check, compare, on_its_own
from kernel_magics.workshop.form import asked, choice, choices, number
from kernel_magics.workshop.measures import graphs, kernels, saved
from kernel_magics.workshop.triton_kernels import launch

__all__ = [
    "Misconception",
    "Raised",
    "asked",
    "check",
    "choice",
    "choices",
    "compare",
    "graphs",
    "kernels",
    "launch",
    "number",
    "on_its_own",
    "saved",
]
