"""The tasks of the lessons that have no exercise, by name.

`task` is one as data; `capture` has those of lessons 1, 2 and 4, `kernels` those of lessons 6 and 9 to 11.
"""

from __future__ import annotations

from kernel_magics.display.record_view import print_line
from kernel_magics.workshop.tasks import capture, kernels
from kernel_magics.workshop.tasks.task import Function

TASKS = {**capture.TASKS, **kernels.TASKS}


def grade(name: str, function: Function) -> None:
    """Prints that a learner's function does what the task asks, or what the learner probably thought."""
    print_line(TASKS[name].check(function))
