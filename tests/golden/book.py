"""The golden book: small programs, each with the text of every stage of its compile, in one file a program.

A file begins with a title and the program, which are written by hand; ``python -m tests.golden.book [NAME ...]`` writes
the other sections::

    # A sum over rows
    ---- program
    def program(x): ...
    def run(call): ...
    ---- 0/0 captured
    ...
    ---- problems

``run`` makes the calls.  No kernel is built, so that no compiler or device is needed: the graphs themselves run.  What
differs between runs and machines is left out: times, addresses, the numbers of objects.
"""

from __future__ import annotations

import contextlib
import functools
import io
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.fx as fx

import compiler_core
from compiler_core.backends.kernel_recorder import Which
from compiler_core.config import Options
from compiler_core.loops import ir
from compiler_core.pipeline.graph import compile_differentiable, print_kernels
from compiler_core.pipeline.parts import compile_parts
from compiler_core.records import Compile, Record
from compiler_core.support.node_facts import waits_for_data
from tests.cases.scripts import namespace_of

FOLDER = Path(__file__).parent / "programs"
_MARK = re.compile(r"^---- (.+)\n", re.MULTILINE)
_CPP: ir.Languages = {"cpu": "cpp"}
_TRITON: ir.Languages = {"cpu": "triton"}
_PRELUDES = {
    "cpp": re.compile(r"\A.*?\n(?=extern \"C\" void )", re.DOTALL),
    "triton": re.compile(r"\A(?:import .*\n|from .*\n|\n)*"),
    **dict.fromkeys(("wrapper", "launch"), re.compile(r"\n*def random_inputs\(\).*", re.DOTALL)),
}
"""What all texts of a language have, and is left out: types and functions, imports, example inputs."""
_LEFT_OUT = ("decompiled", "autograd")
"""Texts that say the same as others."""
_VARYING = [
    (re.compile(r"  # \d+ guards, .*"), ""),
    (re.compile(r"  # \d+ ns(?:; )?"), "  # "),
    (re.compile(r"  # $", re.MULTILINE), ""),
    (re.compile(r"\b(id\(.*?\)) == \d+"), r"\1 == ..."),
    (re.compile(r"(_hooks)\[\d+\]|(_hooks\) ==) \[\d+\]"), r"\1\2 [...]"),
    (re.compile(r"0x[0-9a-f]{6,}"), "0x..."),
    (re.compile(r"(?<![.\d])\d{12,15}\b"), "..."),
    (re.compile(r"(?<![.\d])1\d{9}\.\d+"), "..."),
    # PyTorch keeps this flag in one of two modules, which depends on what the process imported and set before.
    (re.compile(r"^ +and unchanged\('torch\.backends\.opt_einsum', enabled\).*\n", re.MULTILINE), ""),
]
"""What differs between runs, and what stands for it."""


def programs() -> list[Path]:
    """Returns the files of the book."""
    return sorted(FOLDER.glob("*.txt"))


def sections(text: str) -> dict[str, str]:
    """Returns the sections of a file by their names; the title has the name ``title``."""
    title, *found = _MARK.split(text)
    return {"title": title.strip("# \n")} | dict(zip(found[::2], found[1::2], strict=True))


def written(found: dict[str, str]) -> str:
    """Returns the text of a file."""
    texts = (f"---- {name}\n{text.rstrip()}\n" for name, text in found.items() if name != "title")
    return f"# {found['title']}\n" + "".join(texts)


def compiled(title: str, program: str) -> dict[str, str]:
    """Runs a program, and returns its sections."""
    found = {"title": title, "program": program}
    space = namespace_of(program, "program.py", "program", compiler_core=compiler_core)
    torch.manual_seed(0)
    random.seed(0)
    triton: dict[str, str] = {}
    silent = contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore")
    with compiler_core.record() as record, silent[0], silent[1]:
        options = {"backend": functools.partial(_printing, record, triton)} | space.get("OPTIONS", {})
        space["run"](compiler_core.compile(space["program"], **options))
    record.find_problems()
    for each in record.compiles:
        found |= {f"{each.id} {name}": text for name, text in _of_compile(record, each, triton)}
    return found | {"problems": "\n".join(_problems(record))}


def _printing(
    record: Record, triton: dict[str, str], gm: fx.GraphModule, inputs: Sequence[torch.Tensor]
) -> Callable[..., Any]:
    """A backend that prints kernels, and runs the graph itself."""

    def printed(half: fx.GraphModule, which: Which, compile_: Compile) -> Callable[..., Any]:
        print_kernels(half, which, compile_, Options(), _CPP)
        other = Record()
        codes = print_kernels(half, which, other.compile(other.frame("f", "f.py", 1, "root")), Options(), _TRITON).codes
        key = f"{compile_.id}.{which}.triton".replace(
            ".", " ", 1
        )  # a subgraph's id is that of the compile and its name
        triton[key] = "".join(code.text for code in codes)
        schedules = [each.text for each in other.compiles[-1].artifacts if each.name == f"{which}.schedule"]
        triton[f"{key} schedule"] = "".join(schedules)
        return lambda: half.forward

    def print_graph(
        gm: fx.GraphModule, inputs: Sequence[Any], compile_: Compile, options: Options
    ) -> Callable[..., Any]:
        compile_differentiable(gm, inputs, compile_, options, printed)
        forward: Callable[..., Any] = gm.forward
        return forward

    in_parts = any(map(waits_for_data, gm.graph.nodes))
    compile_, options = record.compiles[-1], Options()
    if in_parts:
        return compile_parts(gm, inputs, compile_, options, print_graph)
    return print_graph(gm, inputs, compile_, options)


def _of_compile(record: Record, compile_: Compile, triton: dict[str, str]) -> Iterator[tuple[str, str]]:
    yield "outcome", f"{compile_.outcome}: {compile_.reason}" if compile_.reason else compile_.outcome
    for break_ in compile_.breaks:
        yield f"break: {break_.kind}", f"{break_.explanation}\nHint: {break_.hint}"
    for artifact in compile_.artifacts:
        name = artifact.name
        text = compiler_core.guards_text(record, compile_) if name == "guards" else artifact.text
        if name.rpartition(".")[2] not in _LEFT_OUT:
            yield name, _readable(name, text)
        if name.endswith(".cpp"):
            key = name.replace(".cpp", ".triton")
            yield f"{key} schedule", triton[f"{compile_.id} {key} schedule"]
            yield key, _readable(key, triton[f"{compile_.id} {key}"])


def _readable(name: str, text: str) -> str:
    """Returns a text without what all have, and without what differs between runs."""
    language = name.rpartition(".")[2]
    text = _PRELUDES[language].sub("", text) if language in _PRELUDES else text
    for pattern, stands_for in _VARYING:
        text = pattern.sub(stands_for, text)
    return text


def _problems(record: Record) -> Iterator[str]:
    for problem in record.problems:
        place = f" (line {problem.lineno})" if problem.lineno else ""
        yield f"{problem.grade}: {problem.title}{place}\n    {problem.cause}\n    {problem.advice}"


def main(names: Sequence[str]) -> None:
    """Writes the sections of programs, or of all."""
    for file in programs():
        if not names or file.stem in names:
            known = sections(file.read_text())
            file.write_text(written(compiled(known["title"], known["program"])))


if __name__ == "__main__":
    main(sys.argv[1:])
