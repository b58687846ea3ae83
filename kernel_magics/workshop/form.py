"""A question as a form of ipywidgets: says whether an answer is right, and shows the right one after a wrong answer."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import Any

from IPython.display import display

from kernel_magics.workshop.question import Answer, Asked, measured, number, shown
from kernel_magics.workshop.questions import QUESTIONS

asked: list[Asked] = []
"""The questions of this session, in order."""


def ask(name: str, what: object, **facts: object) -> None:
    """Asks the question of this name about what a lesson ran, such as its record; `facts` are named in its texts."""
    question = measured(name, QUESTIONS[name], what, facts)
    asked.append(question)
    form = _form(question)._repr_mimebundle_()
    display({**form, "text/html": _static(question), "text/plain": question.text}, raw=True)


def _form(question: Asked) -> Any:
    import ipywidgets as widgets

    fields, read = _fields(question)
    check = widgets.Button(description="Answer", button_style="primary")
    show = widgets.Button(description="Show the answer", layout={"visibility": "hidden"})
    message = widgets.HTML()

    def answer(_: object) -> None:
        given = read()
        is_right = given is not None and question.is_right(given)
        message.value = _solution(question) if is_right else _coloured("error", _correction(question, given))
        show.layout.visibility = "hidden" if is_right or given in (None, ()) else "visible"

    def reveal(_: object) -> None:
        message.value = _solution(question)
        show.layout.visibility = "hidden"

    check.on_click(answer)
    show.on_click(reveal)
    if not question.measure.among:
        fields[0].observe(answer, "value")  # the Enter key
    text = widgets.HTML(f"<b>{_prose(question.text)}</b>{_hint(question)}")
    return widgets.VBox([text, *fields, widgets.HBox([check, show]), message], layout={"padding": "8px 12px"})


def _static(question: Asked) -> str:
    """Returns a question for pages without a kernel: it opens on its answer."""
    items = "".join(f"<li>{html.escape(each)}</li>" for each in question.measure.among)
    among = f"<ul>{items}</ul>" if items else ""
    text = f"<b>{_prose(question.text)}</b>{_hint(question)}"
    return f"<p>{text}</p>{among}<details><summary>Answer</summary>{_solution(question)}</details>"


def _hint(question: Asked) -> str:
    if isinstance(question.right, tuple):
        return " Tick all that apply."
    return f" To within {100 * question.measure.within:g}%." if question.measure.within else ""


def _fields(question: Asked) -> tuple[list[Any], Callable[[], Answer | None]]:
    """Returns the fields of a question's form, and what reads the answer that they have; None: no answer."""
    import ipywidgets as widgets

    wide, among, units = {"width": "auto"}, question.measure.among, question.measure.units
    if not among:
        unit = f" of {next(iter(units))}" if units else ""
        field = widgets.Text(placeholder=f"a number{unit}", continuous_update=False)
        return [field], lambda: number(field.value, units)
    if isinstance(question.right, str):
        radio = widgets.RadioButtons(options=among, value=None, layout=wide)
        return [radio], lambda: radio.value
    boxes = [widgets.Checkbox(description=each, indent=False, layout=wide) for each in among]
    return boxes, lambda: tuple(box.description for box in boxes if box.value)


def _correction(question: Asked, given: Answer | None) -> str:
    if given is not None:
        return question.correction(given)
    if question.measure.among:
        return "Choose one first."
    unit = f" of {next(iter(question.measure.units))}" if question.measure.units else ""
    return f"A number{unit}, please."


def _solution(question: Asked) -> str:
    return f"{_coloured('success', f'{shown(question.right)}.')} {_prose(question.because)}"


def _coloured(kind: str, text: str) -> str:
    return f"<span style='color: var(--jp-{kind}-color0, inherit)'>{_prose(text)}</span>"


def _prose(text: str) -> str:
    """Returns a text in which backquotes enclose code as HTML."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
