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
import contextlib
import functools
import gc
import importlib
import importlib.machinery
import json
import os
import pkgutil
import random
import resource
import select
import signal
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Sequence
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
LIMIT_S = 120
WALL_FACTOR = 20
MOST_PROGRAMS, MOST_TESTS = 25, 15
"""How many of those that call a changed function run, of all evenly."""
MUTATION, REACHED = "CUTAWAY_MUTATION", "CUTAWAY_REACHED"
"""Variables of the environment: the change to make, and the file in which called functions are noted."""
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


# ---- changed code --------------------------------------------------------------------------
# Each change is tried in a fork of this process, which has imported the compiler but run nothing: all functions of the
# file get the code of the changed one.  Processes that a test starts import the file with the change.


def edited(path: str, numbers: Sequence[int], lines: Sequence[int] = ()) -> types.CodeType:
    """Returns the code of a file with changes, or in which the functions at these lines note that they are called."""
    tree = ast.parse(Path(path).read_text())
    nodes = list(ast.walk(tree))
    for number in numbers:
        change(nodes[number])
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and node.lineno in lines:
            text = f"__import__('tests.sweeps.mutation', fromlist=['x']).note({node.lineno}, __file__)"
            (noting,) = ast.parse(text).body
            for each in ast.walk(noting):
                ast.copy_location(each, node.body[0])
            node.body.insert(0 if ast.get_docstring(node) is None else 1, noting)
    return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


def replace_code(path: str, code: types.CodeType) -> None:
    """Gives the functions of an imported file their code in `code`."""
    known: dict[tuple[int, str], types.CodeType] = {}
    work = [code]
    while work:
        inner = [each for each in work.pop().co_consts if isinstance(each, types.CodeType)]
        known |= {(each.co_firstlineno, each.co_name): each for each in inner}
        work += inner
    for each in gc.get_objects():
        if type(each) is types.FunctionType and each.__code__.co_filename == path:
            new = known.get((each.__code__.co_firstlineno, each.__code__.co_name))
            if new is not None and new.co_freevars == each.__code__.co_freevars:
                each.__code__ = new


def install() -> None:
    """Has a process that a test starts import the compiler with the change that the environment names."""
    file, _, number = os.environ[MUTATION].rpartition(":")
    loader: Any = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, name: str) -> types.CodeType | None:
        if self.path == str(ROOT / file):
            return edited(self.path, [int(number)])
        return original(self, name)  # type: ignore[no-any-return]

    loader.get_code = get_code


_NOTED: set[tuple[str, int, str]] = set()


def note(line: int, file: str) -> None:
    """Notes that the test that runs calls a function."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if test and (file, line, test) not in _NOTED:
        _NOTED.add((file, line, test))
        with open(os.environ[REACHED], "a") as out:
            out.write(json.dumps([f"{Path(file).relative_to(ROOT).as_posix()}:{line}", test]) + "\n")


def in_fork(action: Callable[[], str], limit_s: int) -> str:
    """Returns what `action` returns in a fork of this process; "does not end" after so many seconds of the processor,
    since the machine may be busy."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        end = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
            silent = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(silent, stream)
            os.write(writing, action().encode())
            end = 0
        except BaseException as error:
            os.write(writing, type(error).__name__.encode())
        finally:
            os._exit(end)
    os.close(writing)
    text, until = b"", time.monotonic() + WALL_FACTOR * limit_s
    while time.monotonic() < until:
        if select.select([reading], [], [], 1)[0]:
            if not (part := os.read(reading, 1 << 16)):
                break
            text += part
    else:
        os.kill(child, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        of_limit = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
        return "does not end" if of_limit else signal.Signals(os.WTERMSIG(status)).name
    return text.decode()


def warm_up() -> None:
    """Imports what the tests need, and all of the compiler, so that forks need not."""
    os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "TORCHINDUCTOR_VEC_ISA_OK": "1"}
    import compiler_core
    import tests.golden.test_golden  # noqa: F401

    for module in pkgutil.walk_packages(compiler_core.__path__, "compiler_core."):
        if ".tools" not in module.name and not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # of what is not installed here
                importlib.import_module(module.name)


# ---- the tests -----------------------------------------------------------------------------


def run_book(mutation: Mutation | None, names: Sequence[str], lines: dict[str, list[int]]) -> str:
    """Runs programs of the golden book.  Returns the first whose texts differ; without a change, the functions among
    `lines` that each program calls."""
    from tests.golden.book import compiled, programs, sections
    from tests.golden.test_golden import compared

    called: dict[str, list[str]] = {}
    keys = {(str(ROOT / file), line) for file, found in lines.items() for line in found}
    for file in (file for file in programs() if not names or file.stem in names):
        seen: set[tuple[str, int]] = set()

        def noting(frame: types.FrameType, event: str, _: object, seen: set[tuple[str, int]] = seen) -> None:
            if event == "call":
                seen.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

        book = sections(file.read_text())
        sys.setprofile(noting if mutation is None else None)
        try:
            found = compiled(book["title"], book["program"])
        finally:
            sys.setprofile(None)
        if mutation is not None and compared(book) != compared(found):
            return f"tests/golden/{file.stem}"
        for path, line in seen & keys:
            called.setdefault(f"{Path(path).relative_to(ROOT).as_posix()}:{line}", []).append(file.stem)
    return "" if mutation else json.dumps(called)


def run_tests(tests: Sequence[str], *options: str) -> str:
    """Runs tests, and returns those that fail, one a line."""
    import pytest

    class Failures:
        found: list[str] = []  # noqa: RUF012

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                self.found.append(report.nodeid)

        pytest_collectreport = pytest_runtest_logreport

    # pytest's own loader, which rewrites assertions, would leave changes out
    chosen = ["-q", "-p", "no:cacheprovider", "--assert=plain", "--tb=no", *options, *tests]
    code = pytest.main(chosen, plugins=[Failures()])
    return "\n".join(Failures.found) or ("" if code in (0, 5) else f"exit status {int(code)}")


def some(names: Sequence[str], most: int) -> Sequence[str]:
    return names[:: -(-len(names) // most)]


def noticed_by(mutation: Mutation, programs: Sequence[str], tests: Sequence[str]) -> str:
    """Returns what notices a change, or an empty text."""
    path = str(ROOT / mutation.file)

    def tried(run: Callable[[], str]) -> Callable[[], str]:
        def action() -> str:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "sitecustomize.py").write_text("from tests.sweeps.mutation import install\ninstall()\n")
                os.environ |= {MUTATION: mutation.key, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
                replace_code(path, edited(path, [mutation.number]))
                return run()

        return action

    found = in_fork(tried(lambda: run_book(mutation, some(programs, MOST_PROGRAMS), {})), LIMIT_S) if programs else ""
    if not found and tests:
        found = in_fork(tried(lambda: run_tests(some(tests, MOST_TESTS), "-x")), LIMIT_S)
    return found.partition("\n")[0]


def reached(chosen: Sequence[Mutation], stages: Sequence[str], limit_s: int) -> dict[str, list[str]]:
    """Returns the tests of the stages that call the function of each change, by file and line, without those that fail
    unchanged."""
    folders = dict.fromkeys(f"tests/{folder}" for stage in stages for folder in STAGES[stage][1])
    lines = functions_of(chosen)
    found: dict[str, list[str]] = {}
    failing: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "reached")
        out.touch()

        def action(tests: Sequence[str]) -> str:
            os.environ[REACHED] = str(out)
            for file, own in lines.items():
                replace_code(str(ROOT / file), edited(str(ROOT / file), [], own))
            return run_tests(tests)

        for tests in ((ROOT / "tests/smoke.txt").read_text().split()[1:], *([each] for each in folders)):
            failed = in_fork(functools.partial(action, tests), limit_s)
            failing.update(failed.split())
            print(f"{tests[0]}: {failed}", flush=True)
        for line in out.read_text().splitlines():
            key, test = json.loads(line)
            if test not in found.setdefault(key, []) and test not in failing:
                found[key].append(test)
    return found


def functions_of(chosen: Sequence[Mutation]) -> dict[str, list[int]]:
    """Returns the lines of the functions around changes, by file."""
    lines: dict[str, list[int]] = {}
    for each in chosen:
        lines.setdefault(each.file, []).append(each.function)
    return lines


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
    options.add_argument("--minutes", type=float, default=120)
    options.add_argument("--book", action="store_true", help="the golden book alone, in a minute or two")
    given = options.parse_args(arguments)
    end = time.monotonic() + given.minutes * 60
    by_stage = {stage: drawn(stage, given.count, given.seed) for stage in given.stage}
    chosen = [each for found in by_stage.values() for each in found]
    warm_up()
    in_book: dict[str, list[str]] = json.loads(in_fork(lambda: run_book(None, [], functions_of(chosen)), 1200))
    tests = {} if given.book else reached(chosen, given.stage, 1200)
    rows: list[tuple[str, Mutation, str]] = []
    for turn in range(given.count):  # a stage after the other, so that a run that is cut short has some of each
        for stage, found in by_stage.items():
            if turn < len(found) and time.monotonic() < end:
                each = found[turn]
                key = f"{each.file}:{each.function}"
                by = noticed_by(each, in_book.get(key, []), tests.get(key, []))
                rows.append((stage, each, by))
                print(f"{stage}: {each.file}:{each.line}: {each.what}: {by or 'NOT NOTICED'}", flush=True)
                order = sorted(rows, key=lambda row: given.stage.index(row[0]))
                PAGE.write_text(page(order, given.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
