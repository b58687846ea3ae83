"""Prints how large the parts of the project are; a mirror for each commit, and no limit.

    python -m tests.docs.size

Tokens are those of Python without comments and docstrings, since lines differ in density.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.docs.imports import ROOT

CORE = ROOT / "compiler_core"
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


def tokens(text: str) -> int:
    """Returns the number of tokens of a module that are neither comments nor docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = (node.body for node in ast.walk(ast.parse(text)) if isinstance(node, documented))
    texts = [part for body in bodies for part in body if _is_text(part)]
    lines = {line for part in texts for line in range(part.lineno, (part.end_lineno or part.lineno) + 1)}
    found = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(each.type not in _NO_CODE and each.start[0] not in lines for each in found)


def _is_text(part: ast.stmt) -> bool:
    return isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str)


def parts() -> Iterator[tuple[str, list[Path]]]:
    """Yields the parts of the project with their files."""
    core = sorted(CORE.rglob("*.py"))
    tools = [file for file in core if CORE / "tools" in file.parents]
    yield "compiler", [file for file in core if file not in tools]
    yield "tools", tools
    yield "kernel_magics", sorted((ROOT / "kernel_magics").rglob("*.py"))
    yield "tests", sorted((ROOT / "tests").rglob("*.py"))


def main() -> None:
    print(f"{'':14}{'files':>8}{'lines':>10}{'tokens':>10}")
    for name, files in parts():
        texts = [file.read_text(encoding="utf-8") for file in files]
        lines = sum(text.count("\n") for text in texts)
        print(f"{name:14}{len(files):8,}{lines:10,}{sum(map(tokens, texts)):10,}")


if __name__ == "__main__":
    main()
