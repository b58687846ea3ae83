"""Each program has the texts that the golden book has: bytecode, guards, graphs, loops, kernels, problems."""

from __future__ import annotations

import difflib
import pkgutil
import re
import sys
from pathlib import Path

import pytest
import torch

from compiler_core.codegen.build.compilers import simd_math
from tests.golden.book import compiled, programs, sections

OF_THE_BOOK = (3, 11), "2.13", 23
"""The versions of Python and PyTorch, and the number of vector functions of the C library, that the texts are of."""


@pytest.mark.skipif(not torch.__version__.startswith(OF_THE_BOOK[1]), reason="graphs of another PyTorch differ")
@pytest.mark.parametrize("file", programs(), ids=lambda file: file.stem)
def test_the_texts_are_those_of_the_book(file: Path) -> None:
    book = sections(file.read_text())
    known, found = compared(book), compared(compiled(book["title"], book["program"]))
    advice = f"If that is meant, `python -m tests.golden.book {file.stem}` writes it into the book."
    assert found == known, f"{differences(known, found)}\n{advice}"


def test_functions_that_graphs_call_exist() -> None:
    texts = (text for file in programs() for name, text in sections(file.read_text()).items() if "captured" in name)
    functions = {name for text in texts for name in re.findall(r" = ((?:operator|torch)\.[\w.]+)\(", text)}
    assert {"operator.add", "torch.cat", "torch._C._set_grad_enabled"} < functions
    for name in functions:
        pkgutil.resolve_name(name)


def compared(texts: dict[str, str]) -> dict[str, str]:
    """Returns the sections that are the same with the installed versions."""
    left_out: list[str] = []
    if sys.version_info[:2] != OF_THE_BOOK[0]:
        left_out += ["bytecode", "generated"]
    if len(simd_math()) != OF_THE_BOOK[2]:
        left_out += ["forward.cpp", "backward.cpp"]
    return {name: text.rstrip() for name, text in texts.items() if not name.endswith(tuple(left_out))}


def differences(known: dict[str, str], found: dict[str, str]) -> str:
    """Returns the lines that differ, by section."""
    lines: list[str] = []
    for name in dict.fromkeys([*known, *found]):
        before, after = known.get(name, "").splitlines(), found.get(name, "").splitlines()
        lines += difflib.unified_diff(before, after, f"book: {name}", f"now: {name}", lineterm="")
    return "\n".join(lines)
