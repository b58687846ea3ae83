"""The workshop: questions whose right answers come from a record, and what checks its exercises.

`form` asks a question, `measures` counts what it asks about in a record, `checks` compares a learner's values with a
reference.
"""

from __future__ import annotations

from kernel_magics.workshop.checks import compare
from kernel_magics.workshop.form import asked, choice, choices, number
from kernel_magics.workshop.measures import graphs, kernels, saved

__all__ = ["asked", "choice", "choices", "compare", "graphs", "kernels", "number", "saved"]
