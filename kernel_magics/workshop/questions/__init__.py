"""The questions of the lessons by name: `capture` has those of lessons 1 to 5, `kernels` those of lessons 6 to 11."""

from __future__ import annotations

from kernel_magics.workshop.questions import capture, kernels

QUESTIONS = {**capture.QUESTIONS, **kernels.QUESTIONS}
