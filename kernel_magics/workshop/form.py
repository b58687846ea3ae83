"""A question as a form of ipywidgets: says whether an answer is right, and shows the right one after a wrong answer."""

from __future__ import annotations

import contextlib
import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from IPython.display import display

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
