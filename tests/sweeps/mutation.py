"""Changes rules of the compiler, one at a time, and says which test notices each of them.

    python -m tests.sweeps.mutation [--stage passes ...] [--count 10] [--seed 5] [--minutes 60]

A change is a wrong comparison, sign, number or index, ``and`` for ``or``, a condition without its ``not``, a check
that is never true, or a call that is left out.  For each stage, as many are drawn from all its functions.  The golden
book and the tests of the stage run once, to see which of them call the changed functions.  Then each change is tried
in a separate process, on those tests alone, the book first.  `mutations.md` has the results, with a remark for each
change that nothing notices, which is written by hand and kept.
"""

from __future__ import annotations

import argparse
import ast
import importlib.machinery
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("mutations.md")
STAGES: dict[str, tuple[list[str], list[str]]] = {
    "bytecode": (["bytecode", "resume"], ["bytecode", "resume"]),
    "capture": (["capture"], ["capture"]),
    "guards": (["guards", "hook"], ["guards", "hook"]),
    "autograd": (["autograd"], ["autograd"]),
    "passes": (["autograd/passes"], ["autograd"]),
    "lowering": (["loops"], ["loops"]),
    "fusion and schedule": (["loops/fuse", "loops/schedule"], ["loops"]),
    "codegen": (["codegen"], ["codegen"]),
    "backends": (["backends", "pipeline"], ["backends", "pipeline"]),
    "records": (["records"], ["records"]),
}
"""The folders of each stage in `compiler_core`, less those of other stages inside, and in `tests`."""
LIMIT_S = 150
MOST_TESTS = 15
MUTATION, REACH, REACHED = "CUTAWAY_MUTATION", "CUTAWAY_REACH", "CUTAWAY_REACHED"
"""Variables of the environment: the change to make; or the functions to note, and the file to note them in."""
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
    function: int
    """The line of the innermost function around it."""
    what: str

    @property
    def key(self) -> str:
        return f"{self.file}:{self.number}"

    def text(self) -> str:
        return (ROOT / self.file).read_text().splitlines()[self.line - 1].strip()


def can_change(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[first, *_]):
            return type(first) in _OTHER
        case ast.BinOp(op=op) | ast.BoolOp(op=op):
            return type(op) in _OTHER
        case ast.If(body=[ast.Raise() | ast.Return() | ast.Continue()], orelse=[]):
            return True
        case ast.Constant(value=int()) | ast.UnaryOp(op=ast.Not() | ast.USub()) | ast.Expr(value=ast.Call()):
            return True
    return False


def change(found: ast.AST) -> str:
    """Changes a node in place, and says how."""
    node: Any = found
    before = ast.unparse(node)
    match found:
        case ast.Compare():
            node.ops[0] = _OTHER[type(node.ops[0])]()
        case ast.BinOp() | ast.BoolOp():
            node.op = _OTHER[type(node.op)]()
        case ast.If():
            before, node.test = f"if {ast.unparse(node.test)}", ast.Constant(False)
            return f"{before} -> if False"
        case ast.Constant():
            node.value = not node.value if isinstance(node.value, bool) else node.value + 1
        case ast.UnaryOp(op=ast.Not()):
            node.op, node.operand = ast.UAdd(), ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
        case ast.UnaryOp():
            node.op = ast.UAdd()
        case _:
            node.value = ast.Constant(None)
    return f"{before} -> {ast.unparse(node)}"


def mutations(file: str) -> Iterator[Mutation]:
    """Yields all changes in the functions of a file."""
    tree = ast.parse((ROOT / file).read_text())
    inside: dict[int, int] = {}
    for function in ast.walk(tree):  # outer functions come first
        if isinstance(function, ast.FunctionDef):
            inside |= {id(each): function.lineno for part in function.body for each in ast.walk(part)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in inside and can_change(node):
            yield Mutation(file, number, getattr(node, "lineno", 0), inside[id(node)], "")


def drawn(stage: str, count: int, seed: int) -> list[Mutation]:
    """Draws changes of a stage: functions first, so that long ones do not count for more."""
    folders, _ = STAGES[stage]
    others = [f for name, (found, _) in STAGES.items() if name != stage for f in found if f not in folders]
    nested = tuple(f"compiler_core/{f}/" for f in others if any(f.startswith(f"{own}/") for own in folders))
    files = sorted(path for folder in folders for path in (ROOT / "compiler_core" / folder).rglob("*.py"))
    names = [name for path in files if not (name := path.relative_to(ROOT).as_posix()).startswith(nested or ("\0",))]
    by_function: dict[tuple[str, int], list[Mutation]] = {}
    for name in names:
        for each in mutations(name):
            by_function.setdefault((each.file, each.function), []).append(each)
    draw = random.Random(f"{seed} {stage}")
    chosen = [draw.choice(by_function[each]) for each in draw.sample(sorted(by_function), min(count, len(by_function)))]
    described = []
    for each in chosen:
        node = list(ast.walk(ast.parse((ROOT / each.file).read_text())))[each.number]
        described.append(Mutation(each.file, each.number, each.line, each.function, change(node)))
    return described


# ---- inside of the processes that run tests ------------------------------------------------


def install() -> None:
    """Has this process import the compiler with the change, or with the notes, that the environment asks for."""
    wanted: dict[str, list[int]] = {}
    for key in (os.environ.get(MUTATION) or os.environ.get(REACH) or "").split():
        file, _, number = key.rpartition(":")
        wanted.setdefault(str(ROOT / file), []).append(int(number))
    edit = _changed if os.environ.get(MUTATION) else _noting
    loader: Any = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, name: str) -> types.CodeType | None:
        if self.path not in wanted:
            return original(self, name)  # type: ignore[no-any-return]
        tree = ast.parse(Path(self.path).read_text())
        edit(tree, wanted[self.path])
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)

    loader.get_code = get_code


def _changed(tree: ast.Module, numbers: Sequence[int]) -> None:
    for number in numbers:
        change(list(ast.walk(tree))[number])


def _noting(tree: ast.Module, lines: Sequence[int]) -> None:
    """Has the functions at these lines note that they are called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.lineno in lines:
            note = f"__import__('tests.sweeps.mutation', fromlist=['x']).note({node.lineno}, __file__)"
            at = 1 if ast.get_docstring(node) is not None else 0
            body = [ast.copy_location(each, node.body[0]) for each in ast.parse(note).body]
            for each in body:
                for inner in ast.walk(each):
                    ast.copy_location(inner, node.body[0])
            node.body[at:at] = body


_NOTED: set[tuple[str, int, str]] = set()


def note(line: int, file: str) -> None:
    """Notes that the test that runs calls a function."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if test and (file, line, test) not in _NOTED:
        _NOTED.add((file, line, test))
        with open(os.environ[REACHED], "a") as out:
            out.write(json.dumps([f"{Path(file).relative_to(ROOT).as_posix()}:{line}", test]) + "\n")


# ---- the tests -----------------------------------------------------------------------------


def run_tests(tests: Sequence[str], limit_s: float, **variables: str) -> list[str]:
    """Runs tests, and returns those that fail; "does not end" after the limit."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text("from tests.sweeps.mutation import install\ninstall()\n")
        environment = os.environ | variables | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
        # pytest's own loader, which rewrites assertions, would leave the changes out
        options = ["-q", "-p", "no:cacheprovider", "--assert=plain", "--tb=no", "-rfE"]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            return ["does not end"]
    found = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    ended = [] if done.returncode in (0, 5) else [f"exit status {done.returncode}"]
    return [re.sub(r"^(FAILED|ERROR) ", "", line).partition(" - ")[0] for line in found] or ended


def reached(chosen: Sequence[Mutation], stages: Sequence[str], limit_s: float) -> dict[str, list[str]]:
    """Returns the tests that call the function of each change, by file and line, the book's first; without those that
    fail unchanged."""
    folders = dict.fromkeys(f"tests/{folder}" for stage in stages for folder in STAGES[stage][1])
    smoke = (ROOT / "tests/smoke.txt").read_text().split()
    found: dict[str, list[str]] = {}
    failing: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "reached")
        out.touch()
        reach = " ".join(dict.fromkeys(f"{each.file}:{each.function}" for each in chosen))
        for tests in (["tests/golden"], smoke, *([each] for each in folders)):
            started = time.monotonic()
            failed = run_tests(tests, limit_s, **{REACH: reach, REACHED: str(out)})
            failing.update(failed)
            print(f"{tests[0]}: {time.monotonic() - started:.0f} s {' '.join(failed)}", flush=True)
        for line in out.read_text().splitlines():
            key, test = json.loads(line)
            if test not in found.setdefault(key, []) and test not in failing:
                found[key].append(test)
    return found


def noticed_by(mutation: Mutation, tests: Sequence[str]) -> str:
    """Returns the test that notices a change, or an empty text."""
    if not tests:
        return ""
    return next(iter(run_tests(["-x", *tests[:MOST_TESTS]], LIMIT_S, **{MUTATION: mutation.key})), "")


# ---- the page ------------------------------------------------------------------------------


def remarks() -> dict[tuple[str, str], str]:
    """Returns what the page says about changes that nothing noticed, by the stage and the change."""
    rows = [line.strip("| \n").split(" | ") for line in PAGE.read_text().splitlines()] if PAGE.exists() else []
    return {(row[0], row[2]): row[4] for row in rows if len(row) == 5}


def page(rows: Sequence[tuple[str, Mutation, str]], seed: int) -> str:
    known = remarks()
    lines = [
        "# What notices a wrong rule",
        "",
        f"`python -m tests.sweeps.mutation --seed {seed}` writes this table: in each stage, rules that are drawn at",
        "random are changed, one at a time, and the golden book and the tests of the stage run that call them.",
        f"{sum(bool(by) for *_, by in rows)} of {len(rows)} changes are noticed.",
        "",
        "| stage | line | change | noticed by | remark |",
        "|---|---|---|---|---|",
    ]
    for stage, each, by in rows:
        what = f"`{each.what}`".replace("|", "\\|").replace("\n", " ")
        place = f"{each.file.removeprefix('compiler_core/')}:{each.line}"
        lines.append(f"| {stage} | {place} | {what} | {by.replace('|', '/')} | {known.get((stage, what), '')} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--stage", nargs="+", default=list(STAGES), choices=STAGES)
    options.add_argument("--count", type=int, default=10, help="changes of each stage")
    options.add_argument("--seed", type=int, default=5)
    options.add_argument("--minutes", type=float, default=60)
    given = options.parse_args(arguments)
    end = time.monotonic() + given.minutes * 60
    by_stage = {stage: drawn(stage, given.count, given.seed) for stage in given.stage}
    tests = reached([each for found in by_stage.values() for each in found], given.stage, 900)
    rows: list[tuple[str, Mutation, str]] = []
    for turn in range(given.count):  # a stage after the other, so that a run that is cut short has some of each
        for stage, found in by_stage.items():
            if turn < len(found) and time.monotonic() < end:
                each = found[turn]
                by = noticed_by(each, tests.get(f"{each.file}:{each.function}", []))
                rows.append((stage, each, by))
                print(f"{stage}: {each.file}:{each.line}: {each.what}: {by or 'NOT NOTICED'}", flush=True)
                order = sorted(rows, key=lambda row: given.stage.index(row[0]))
                PAGE.write_text(page(order, given.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
