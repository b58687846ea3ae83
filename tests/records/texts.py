"""All texts that a record shows to a reader, and what no text may have: names that the user has not written."""

from __future__ import annotations

import re
from collections.abc import Iterator

from compiler_core.records import Compile, Problem, Record
from kernel_magics.display import summary
from kernel_magics.display.explanation import explanation

_GENERATED = (
    r"__stack|__callee|\b[LG]\[['\"]|\b___\w|MetaFloat|__import_(?!_)|__builtins_dict|__mro__|join_text|__optimizer"
    r"|torch_dynamo_resume|UserDefined\w+Variable|<Box>|\b[su]\d+\b|\bself\.\d"
)
"""Names of resume functions and their parameters, sources, symbols, and classes of the compilers."""
_GRAMMAR = (
    r"\b(\w+) \1\b|\bis and\b|\ban? an?\b|\ba the\b|,,|\(\)\(\)| ,| \(\s*\)|\b(?:is|are|was) not,"
    r"|Message: None"
)
WRONG = re.compile(f"{_GENERATED}|{_GRAMMAR}")
_QUOTED = re.compile(r"`[^`]*`")
_OF_PYTORCH = re.compile(r"Explanation: Dynamo failed to run FX node|^got |Developer debug")
"""PyTorch's own messages of errors, which are shown as they are."""


def texts(record: Record) -> Iterator[tuple[str, str]]:
    """Yields each text with what it is."""
    for problem in record.problems:
        yield from of_problem(problem)
    for frame in record.frames:
        yield "frame", frame.skipped
        for compile_ in frame.compiles:
            yield from of_compile(compile_)
    yield from (("note", note) for note in record.notes)
    yield "explanation", explanation(record)


def of_problem(problem: Problem) -> Iterator[tuple[str, str]]:
    for name in ("title", "cause", "advice", "cost", "behind"):
        yield name, getattr(problem, name)


def of_compile(compile_: Compile) -> Iterator[tuple[str, str]]:
    for break_ in compile_.breaks:
        yield "break", break_.explanation
        yield "break's hint", break_.hint
    if compile_.cause:
        yield "cause", compile_.cause.text
    for guard in compile_.guards:
        yield "guard", guard.name
        yield "guard's meaning", guard.meaning
    for symbol in compile_.symbols:
        yield "symbol", summary._symbol_text(symbol)
    for failure in compile_.failures:
        yield "failure", failure.meaning


def wrong_lines(record: Record) -> list[str]:
    """Returns the lines that have a generated name or broken grammar, with what is wrong."""
    lines = [(what, line) for what, text in texts(record) for line in text.split("\n") if not _OF_PYTORCH.search(line)]
    found = [(what, line, WRONG.search(_without_code(line))) for what, line in lines]
    return list(dict.fromkeys(f"{what}: {at[0]!r} in {line!r}" for what, line, at in found if at))


def _without_code(line: str) -> str:
    """Leaves out the user's code, in which words may repeat."""
    return _QUOTED.sub(lambda quoted: quoted[0] if re.search(_GENERATED, quoted[0]) else "``", line)
