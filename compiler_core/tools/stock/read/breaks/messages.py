"""Parses Dynamo's messages about graph breaks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from compiler_core.records import StackLine
from compiler_core.records.capture import OWN

_POLYFILL = re.compile(r"[\\/]torch[\\/]_dynamo[\\/]polyfills[\\/]")
_FILE = re.compile(r'  File "(.+)", line (\d+), in (.+)$')
RESUME = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)$")
"""The name of a resume function: the function that it is the rest of, and the line."""


@dataclass(slots=True)
class ParsedBreak:
    """Dynamo's explanation of a graph break."""

    kind: str = ""
    explanation: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    link: str = ""
    raised: str = ""
    """The exception that it expects of the program, if it breaks the graph for one."""
    stack: list[StackLine] = field(default_factory=list)


_NO_MESSAGE = re.compile(r" Message: (?:None)?$")
_VARIABLE = re.compile(r"\bUserDefined\w+Variable\((\w+)\)")
_OBJECT = re.compile(r"<(?:function|bound method|built-in function|built-in method) ([\w.]+)[^<>]*>")
_SECTIONS = {"Explanation:": "explanation", "Hint:": "hints"}


_POSITIONAL_MESSAGE = re.compile(r"graph_break\(\)` with args `\[ConstantVariable\(str: (.+)\)\]`")


def read_break(text: str) -> ParsedBreak:
    """Parses the payload of ``dynamo_graph_break_reason``."""
    parsed = ParsedBreak()
    sections: dict[str, list[list[str]]] = {"explanation": [], "hints": []}
    section: list[str] | None = None
    message, _, trace = text.partition("User code traceback:")
    for line in message.split("\n"):
        stripped = line.strip()
        if parsed.kind.endswith(":") and stripped and section is None:
            parsed.kind = stripped  # the first line only states that an instruction failed, this one states why
            continue
        heading = next((heading for heading in _SECTIONS if stripped.startswith(heading)), None)
        if "Graph Break Reason:" in line:
            parsed.kind = line.partition("Graph Break Reason:")[2].strip()
        elif heading is not None:
            section = [stripped.removeprefix(heading).strip()]
            sections[_SECTIONS[heading]].append(section)
        elif "please visit:" in line:
            parsed.link = line.partition("please visit:")[2].strip()
            section = None
        elif stripped.startswith("Developer debug context:"):
            section = None
            parsed.raised = stripped.partition("raised exception ")[2]
        elif section is not None and stripped:
            section.append(stripped)
    parsed.explanation = [_in_plain_words("\n".join(lines)) for lines in sections["explanation"]]
    if found := _POSITIONAL_MESSAGE.search(message):  # PyTorch shows only a message passed by name
        shown = found[1][1:-1]
        parsed.explanation = [f"{each} Message: {shown}" for each in parsed.explanation]
    parsed.hints = ["\n".join(lines) for lines in sections["hints"]]
    stack = read_stack(trace.partition("\nTraceback (most recent call last)")[0])
    # the lines of Cutaway's own functions, such as its `graph_break`, say nothing, nor those that Dynamo traces in
    # place of a function of Python's
    parsed.stack = [line for line in stack if line.library != OWN and not _POLYFILL.search(line.filename)] or stack
    return parsed


def _in_plain_words(explanation: str) -> str:
    """Returns an explanation without Dynamo's names for what it traces, the addresses of functions, and an empty
    message."""
    text = _OBJECT.sub(r"\1", explanation)
    text = text.partition("\nThe branch condition involves a tensor computed as follows:")[0]
    return _NO_MESSAGE.sub("", _VARIABLE.sub(r"\1", text))


def read_stack(text: str) -> list[StackLine]:
    """Returns the frames of a traceback, the innermost last; the rest of a function has that function's name."""
    stack: list[StackLine] = []
    for line in text.split("\n"):
        if found := _FILE.match(line):
            resume = RESUME.match(found[3])
            stack.append(StackLine(found[1], int(found[2]), resume[1] if resume else found[3], ""))
        elif stack and not stack[-1].text and line.startswith("    "):
            stack[-1].text = line.strip()
    return stack
