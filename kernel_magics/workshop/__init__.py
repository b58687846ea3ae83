"""The workshop: questions whose right answers come from what the lessons run, and what checks its exercises.

`question` is a question as data, `questions/` has those of the lessons, `measures` counts what they ask about in a
record, `form` asks them.  `tasks/` has functions that the learner writes in lessons.  `checks` compares the answer of a
learner with the right one, and `triton_kernels` runs a kernel and notes what it reads and writes.
"""

from __future__ import annotations

from kernel_magics.workshop.checks import Misconception, Raised, check, on_its_own
from kernel_magics.workshop.form import ask, asked
from kernel_magics.workshop.measures import compile_of, graphs, kernels, saved
from kernel_magics.workshop.tasks import grade
from kernel_magics.workshop.triton_kernels import launch

__all__ = [
    "Misconception",
    "Raised",
    "ask",
    "asked",
    "check",
    "compile_of",
    "grade",
    "graphs",
    "kernels",
    "launch",
    "on_its_own",
    "saved",
]
