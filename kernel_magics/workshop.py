"""The workshop: questions whose right answers come from a record, and the comparison that checks of exercises make.

The package jupyterquiz shows the question where it is installed (``pip install cutaway[workshop]``); else it is a text
whose answer is folded away.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.display import display

from compiler_core.records import Compile, Record

MAX_SHOWN = 200
"""The number of characters of a value that are shown."""


@dataclass(frozen=True)
class Question:
    """A question and its right answers; `wrong` are the other choices, empty if a number is asked for."""

    text: str
    right: tuple[str | float, ...]
    wrong: tuple[str, ...] = ()
    because: str = ""


asked: list[Question] = []
"""The questions of this session, in order."""


def number(text: str, answer: float, because: str = "") -> None:
    """Asks for a number."""
    _ask(Question(text, (answer,), (), because))


def choice(text: str, right: str, wrong: Sequence[str], because: str = "") -> None:
    """Asks for one of several answers."""
    _ask(Question(text, (right,), tuple(wrong), because))


def choices(text: str, right: Sequence[str], among: Sequence[str], because: str = "") -> None:
    """Asks for all right answers `among` several."""
    _ask(
        Question(
            text, tuple(each for each in among if each in right), tuple(x for x in among if x not in right), because
        )
    )


def graphs(record: Record) -> int:
    """Returns the number of graphs that were captured."""
    return sum(artifact.pane == "captured" for artifact in record.artifacts)


def kernels(record: Record) -> int:
    """Returns the number of kernels that were generated; calls of PyTorch's own kernels are not counted."""
    return sum(kernel.language != "extern" for compile_ in record.compiles for kernel in compile_.kernels)


def saved(compile_: Compile) -> list[str]:
    """Returns the names of the values that a compile saves for the backward."""
    values = compile_.partition.values if compile_.partition else []
    return [value.node.rpartition("#")[2] for value in values if value.decision == "saved"]


def compare(yours: Mapping[str, Any], reference: Mapping[str, Any]) -> None:
    """Raises an AssertionError that shows the learner's values beside those of the reference, unless all are equal."""
    rows = [(name, yours.get(name), value) for name, value in reference.items()]
    wrong = [row for row in rows if not _are_equal(*row[1:])]
    if wrong:
        lines = [f"{name}: yours {_short(one)}, reference {_short(other)}" for name, one, other in wrong]
        raise AssertionError("\n".join([f"{len(rows) - len(wrong)} of {len(rows)} are right.", *lines]))


def _are_equal(one: Any, other: Any) -> bool:
    import torch

    if isinstance(other, torch.Tensor):
        return isinstance(one, torch.Tensor) and one.shape == other.shape and torch.allclose(one, other, equal_nan=True)
    return bool(one == other)


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def _ask(question: Question) -> None:
    asked.append(question)
    try:
        from jupyterquiz import display_quiz
    except ImportError:
        display({"text/html": _folded(question), "text/plain": question.text}, raw=True)
        return
    display_quiz([_entry(question)], border_radius=6)


def _entry(question: Question) -> dict[str, Any]:
    """Returns a question in the form that jupyterquiz takes."""
    right = question.because or "The record says so."
    if not question.wrong and isinstance(question.right[0], int | float):
        known = {"type": "value", "value": question.right[0], "correct": True, "feedback": right}
        other = {"type": "default", "feedback": "The record has another number."}
        return {"question": question.text, "type": "numeric", "answers": [known, other]}
    answers = [{"answer": str(each), "correct": True, "feedback": right} for each in question.right]
    answers += [{"answer": each, "correct": False, "feedback": "Not in the record."} for each in question.wrong]
    answers.sort(key=lambda each: str(each["answer"]))
    kind = "multiple_choice" if len(question.right) == 1 else "many_choice"
    return {"question": question.text, "type": kind, "answers": answers}


def _folded(question: Question) -> str:
    """Returns a question as HTML, with its answer folded away."""
    answer = html.escape(", ".join(map(str, question.right)) + (f". {question.because}" if question.because else ""))
    choices = "".join(
        f"<li>{html.escape(str(each))}</li>" for each in sorted(map(str, question.right + question.wrong))
    )
    listed = f"<ul>{choices}</ul>" if question.wrong else ""
    return f"<p><b>{html.escape(question.text)}</b></p>{listed}<details><summary>Answer</summary>{answer}</details>"
