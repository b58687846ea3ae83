"""The workshop: questions whose right answers come from a record, and the comparison that checks of exercises make.

A question is a form of ipywidgets. It says whether an answer is right, and shows the right one after a wrong answer.
"""

from __future__ import annotations

import contextlib
import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from IPython.display import display

from compiler_core.records import Compile, Record

MAX_SHOWN = 200
"""The number of characters of a value that are shown."""

Answers = tuple[str | float, ...]


@dataclass(frozen=True)
class Question:
    """A question and its right answers: a number, one of several choices, or all right ones of them."""

    text: str
    right: Answers
    among: tuple[str, ...] = ()
    because: str = ""
    kind: Literal["number", "choice", "choices"] = "choice"


asked: list[Question] = []
"""The questions of this session, in order."""


def number(text: str, answer: float, because: str = "") -> None:
    """Asks for a number."""
    _ask(Question(text, (answer,), (), because, "number"))


def choice(text: str, right: str, wrong: Sequence[str], because: str = "") -> None:
    """Asks for one of several answers."""
    _ask(Question(text, (right,), tuple(sorted((right, *wrong))), because))


def choices(text: str, right: Sequence[str], among: Sequence[str], because: str = "") -> None:
    """Asks for all right answers `among` several."""
    _ask(Question(text, tuple(each for each in among if each in right), tuple(among), because, "choices"))


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
    form = _form(question)._repr_mimebundle_()
    display({**form, "text/plain": question.text}, raw=True)


def _form(question: Question) -> Any:
    import ipywidgets as widgets

    fields, read = _fields(question)
    check = widgets.Button(description="Answer", button_style="primary")
    show = widgets.Button(description="Show the answer", layout={"visibility": "hidden"})
    message = widgets.HTML()

    def answer(_: object) -> None:
        given = read()
        is_right = given is not None and _is_right(question, given)
        message.value = _solution(question) if is_right else _coloured("error", _correction(question, given))
        show.layout.visibility = "hidden" if is_right or not given else "visible"

    def reveal(_: object) -> None:
        message.value = _solution(question)
        show.layout.visibility = "hidden"

    check.on_click(answer)
    show.on_click(reveal)
    if question.kind == "number":
        fields[0].observe(answer, "value")  # the Enter key
    hint = " Tick all that apply." if question.kind == "choices" else ""
    text = widgets.HTML(f"<b>{html.escape(question.text)}</b>{hint}")
    return widgets.VBox([text, *fields, widgets.HBox([check, show]), message], layout={"padding": "8px 12px"})


def _fields(question: Question) -> tuple[list[Any], Callable[[], Answers | None]]:
    """Returns the fields of a question's form, and what reads the answer that they have; None: no answer."""
    import ipywidgets as widgets

    wide = {"width": "auto"}
    if question.kind == "number":
        field = widgets.Text(placeholder="a number", continuous_update=False)
        return [field], lambda: _numbers(field.value)
    if question.kind == "choice":
        radio = widgets.RadioButtons(options=question.among, value=None, layout=wide)
        return [radio], lambda: None if radio.value is None else (radio.value,)
    boxes = [widgets.Checkbox(description=each, indent=False, layout=wide) for each in question.among]
    return boxes, lambda: tuple(box.description for box in boxes if box.value)


def _numbers(text: str) -> Answers | None:
    with contextlib.suppress(ValueError):
        return (float(text.replace(",", "")),)
    return None


def _is_right(question: Question, given: Answers) -> bool:
    if question.kind == "number":
        return math.isclose(float(given[0]), float(question.right[0]))
    return {*given} == {*question.right}


def _correction(question: Question, given: Answers | None) -> str:
    """Returns the text shown after a wrong answer; it does not contain the right one."""
    if given is None:
        return "A number, please." if question.kind == "number" else "Choose one first."
    if question.kind != "choices":
        return f"Not {_text(given[0])}."
    found = len({*given} & {*question.right})
    return f"{found} right, {len(given) - found} wrong, {len(question.right) - found} missing."


def _solution(question: Question) -> str:
    right = ", ".join(map(_text, question.right)) or "none of them"
    return f"{_coloured('success', f'{right}.')} {html.escape(question.because)}"


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:,.12g}"


def _coloured(kind: str, text: str) -> str:
    return f"<span style='color: var(--jp-{kind}-color0, inherit)'>{html.escape(text)}</span>"
