"""Changes rules of the compiler, one at a time, and says which of the changes the golden book notices.

    python -m tests.golden.mutation [--stage loops ...] [--count 10] [--seed 0] [--processes 2]

A change is a wrong comparison, sign, number or index, ``and`` for ``or``, a condition without its ``not``, or a call
that is left out, in a function that the book's programs run.  Each is tried in a separate process.  What is not
noticed is printed with its line: either nothing that the book shows depends on it, or a program is missing.
"""

from __future__ import annotations

import argparse
import ast
import importlib.machinery
import random
import subprocess
import sys
import types
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STAGES = ("hook", "bytecode", "capture", "guards", "resume", "autograd", "loops", "codegen", "backends", "pipeline")
LIMIT_S = 240
_OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
"""What stands in the place of an operator."""


@dataclass(frozen=True)
class Mutation:
    """A change of the node with this number, in the order of `ast.walk`, of a file."""

    file: str
    number: int
    line: int

    def text(self) -> str:
        return f"{self.file}:{self.line}: {(ROOT / self.file).read_text().splitlines()[self.line - 1].strip()}"


def can_change(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[first, *_]):
            return type(first) in _OTHER
        case ast.BinOp(op=op) | ast.BoolOp(op=op):
            return type(op) in _OTHER
        case ast.Constant(value=int()) | ast.UnaryOp(op=ast.Not()) | ast.Expr(value=ast.Call()):
            return True
    return False


def mutated(tree: ast.Module, number: int) -> ast.Module:
    """Changes the node with this number."""
    found = list(ast.walk(tree))[number]
    node: Any = found
    match found:
        case ast.Compare():
            node.ops[0] = _OTHER[type(node.ops[0])]()
        case ast.BinOp() | ast.BoolOp():
            node.op = _OTHER[type(node.op)]()
        case ast.Constant():
            node.value = not node.value if isinstance(node.value, bool) else node.value + 1
        case ast.UnaryOp():
            node.op = ast.UAdd()
            node.operand = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
        case ast.Expr():
            node.value = ast.Constant(None)
    return ast.fix_missing_locations(tree)


def mutations(file: str, functions: set[int]) -> Iterator[Mutation]:
    """Yields all changes in the functions of a file that begin at these lines."""
    tree = ast.parse((ROOT / file).read_text())
    run = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and _first_line(n) in functions]
    inside = {id(each) for function in run for part in function.body for each in ast.walk(part)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in inside and can_change(node):
            yield Mutation(file, number, getattr(node, "lineno", 0))


def _first_line(function: ast.FunctionDef) -> int:
    return min([function.lineno, *(each.lineno for each in function.decorator_list)])


def functions_run() -> dict[str, set[int]]:
    """Returns the files of the compiler, with the first lines of the functions that the book's programs run."""
    from tests.golden.book import compiled, programs, sections

    found: dict[str, set[int]] = {}

    def note(frame: types.FrameType, event: str, _: object) -> None:
        if event == "call" and (name := frame.f_code.co_filename).startswith(f"{ROOT}/compiler_core/"):
            found.setdefault(name.removeprefix(f"{ROOT}/"), set()).add(frame.f_code.co_firstlineno)

    for file in programs():
        book = sections(file.read_text())
        sys.setprofile(note)
        try:
            compiled(book["title"], book["program"])
        finally:
            sys.setprofile(None)
    return found


def try_one(mutation: Mutation) -> int:
    """Imports the compiler with the change, and returns 1 if a text of the book differs."""
    path, original = str(ROOT / mutation.file), importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, name: str) -> types.CodeType | None:
        if self.path != path:
            return original(self, name)
        return compile(mutated(ast.parse(Path(path).read_text()), mutation.number), path, "exec", dont_inherit=True)

    loader: Any = importlib.machinery.SourceFileLoader
    loader.get_code = get_code
    from tests.golden.book import compiled, programs, sections
    from tests.golden.test_golden import compared

    for file in programs():
        book = sections(file.read_text())
        if compared(book) != compared(compiled(book["title"], book["program"])):
            return 1
    return 0


def is_noticed(mutation: Mutation) -> bool:
    """Tries a change in a separate process.  One that ends in an error, or does not end, is noticed, too."""
    command = [sys.executable, "-m", "tests.golden.mutation", "--one", mutation.file, str(mutation.number)]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=LIMIT_S, check=False).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def main(arguments: Sequence[str]) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--stage", nargs="+", default=STAGES, choices=STAGES)
    options.add_argument("--count", type=int, default=10, help="changes of each stage")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = options.parse_args(arguments)
    if given.one:
        return try_one(Mutation(given.one[0], int(given.one[1]), 0))
    run, draw = functions_run(), random.Random(given.seed)
    with ThreadPoolExecutor(given.processes) as pool:
        for stage in given.stage:
            files = {file: lines for file, lines in run.items() if file.startswith(f"compiler_core/{stage}/")}
            possible = [each for file, lines in sorted(files.items()) for each in mutations(file, lines)]
            chosen = draw.sample(possible, min(given.count, len(possible)))
            noticed = list(pool.map(is_noticed, chosen))
            print(f"{stage}: {sum(noticed)} of {len(chosen)} are noticed, {len(possible):,} are possible", flush=True)
            print(*(f"    {each.text()}" for each, seen in zip(chosen, noticed, strict=True) if not seen), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
