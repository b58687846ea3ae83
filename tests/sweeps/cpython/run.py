"""Runs CPython's tests of the standard library with functions that we rewrote or captured.

    python -m tests.sweeps.cpython.run [MODULE ...]        a table: module, functions, tests, and how many of them fail

Each module is tested three times, in separate processes: unchanged; with each function disassembled, widened with NOPs
so that jumps need EXTENDED_ARG, and assembled again; and with the frame hook, where all functions of the module and of
its tests count as user code, and generated code runs even if no tensor was found.  A test counts as failed only if it
passes unchanged.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import importlib.util
import json
import os
import sys
import tempfile
import time
import types
import unittest
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import warm_python

ROOT = Path(__file__).resolve().parents[3]

# What is tested: the modules (the first gives its name), and the tests, where they are not test.test_NAME.
MODULES: dict[str, tuple[list[str], list[str]]] = {
    "bisect": ([], []),
    "heapq": ([], []),
    "textwrap": ([], []),
    "string": ([], []),
    "fractions": ([], []),
    "statistics": ([], []),
    "difflib": ([], []),
    "shlex": ([], []),
    "colorsys": ([], []),
    "copy": ([], []),
    "json": (["json.encoder", "json.decoder", "json.scanner"], []),
    "configparser": ([], []),
    "calendar": ([], []),
    "collections": (["_collections_abc"], ["test.test_collections", "test.test_ordered_dict"]),
    "dataclasses": ([], []),
    "enum": ([], []),
    "argparse": ([], []),
    "ast": ([], []),
    "functools": ([], []),
    "datetime": (["_pydatetime"], []),
    "contextlib": ([], []),
    "graphlib": ([], []),
    "reprlib": ([], []),
    "pprint": ([], []),
    "html": (["html.parser", "_markupbase"], ["test.test_html", "test.test_htmlparser"]),
    "operator": ([], []),
    "types": ([], []),
    "keyword": ([], []),
    "sched": ([], []),
    "quopri": ([], []),
    "random": ([], []),
    "fnmatch": ([], []),
    "getopt": ([], []),
    "posixpath": (["genericpath"], []),
    "_pydecimal": ([], ["test.test_decimal"]),
}
LANGUAGE = """
    augassign binop bool compare decorators dictcomps dynamicclassattribute enumerate exception_variations exceptions
    extcall fstring funcattrs generators global isinstance iter keywordonlyarg listcomps named_expressions patma
    positional_only_arg property raise richcmp scope setcomps slice super unpack_ex with yield_from
""".split()
"""Tests of the language and its types.  There is no module, so the tests' own functions are rewritten."""
MODULES |= {name: ([], []) for name in LANGUAGE}
_ALIVE = "PyTorch's frame hook keeps the arguments of a frame alive until it returns, and this waits for one to die"
_TRACEBACK = "compares a whole traceback, in which each resume function has a line"
_COUNTS = "counts the references to an object, of which the frame hook has one"
_LINES = "follows the lines by sys.settrace, of which generated code has not all"
LEFT_OUT = {
    "test.test_ast.AST_Tests.test_AST_garbage_collection": _ALIVE,
    "test.test_ast.ModuleStateTests.test_reload_module": "takes modules from the compiler, too",
    "test.test_ast.ModuleStateTests.test_sys_modules": "takes modules from the compiler, too",
    "test.test_contextlib.TestExitStack.test_exit_exception_traceback": _TRACEBACK,
    "test.test_copy.TestCopy.test_copy_weakkeydict": _ALIVE,
    "test.test_copy.TestCopy.test_copy_weakvaluedict": _ALIVE,
    "test.test_copy.TestCopy.test_deepcopy_weakkeydict": _ALIVE,
    "test.test_copy.TestCopy.test_deepcopy_weakvaluedict": _ALIVE,
    "test.test_enumerate.TestReversed.test_bug1229429": _COUNTS,
    "test.test_functools.TestLRUC.test_lru_cache_weakrefable": _ALIVE,
    "test.test_functools.TestLRUC.test_lru_reentrancy_with_len": "gives the compiler, too, another len()",
    "test.test_functools.TestLRUPy.test_lru_cache_weakrefable": _ALIVE,
    "test.test_functools.TestLRUPy.test_lru_reentrancy_with_len": "gives the compiler, too, another len()",
    "test.test_functools.TestPartialC.test_weakref": _ALIVE,
    "test.test_functools.TestPartialCSubclass.test_weakref": _ALIVE,
    "test.test_functools.TestPartialPy.test_weakref": _ALIVE,
    "test.test_functools.TestPartialPySubclass.test_weakref": _ALIVE,
    "test.test_exceptions.ExceptionTests.testExceptionCleanupState": _ALIVE,
    "test.test_generators.FinalizationTest.test_frame_resurrect": _ALIVE,
    "test.test_generators.FinalizationTest.test_refcycle": _ALIVE,
    "test.test_iter.TestCase.test_ref_counting_behavior": _ALIVE,
    "test.test_iter.TestCase.test_reduce_mutating_builtins_iter": "takes iter() from the compiler, too",
    "test.test_patma.TestTracing.test_default_capture": _LINES,
    "test.test_patma.TestTracing.test_default_wildcard": _LINES,
    "test.test_patma.TestTracing.test_no_default": _LINES,
    "test.test_patma.TestTracing.test_only_default_capture": _LINES,
    "test.test_patma.TestTracing.test_only_default_wildcard": _LINES,
    "test.test_patma.TestTracing.test_unreachable_code": _LINES,
    "test.test_raise.TestContext.test_3611": _ALIVE,
    "test.test_raise.TestTracebackType.test_attrs": _TRACEBACK,
    "test.test_sched.TestCase.test_enter": "expects to be run in time",
}
"""Tests that cannot pass with capture, with the reason."""
QUICK = ["bisect", "super"]
MODES = ("plain", "rewritten", "captured")
PADDING = 300
"""NOPs at the start of each function, so that operands of jumps and table entries exceed a byte."""
SECONDS = 900


@dataclass
class Outcome:
    """The result of one module in one mode."""

    tests: int = 0
    functions: int = 0
    """The number of functions that were rewritten, or of which a call ran generated code."""
    failed: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Failures of our compiler, even if the tests passed."""
    seconds: float = 0.0


# ---- in the process of one run


def files_of(module: str) -> set[str]:
    """Returns the files of the module and of its tests."""
    parts, tests = MODULES[module]
    found = set()
    for name in [module, *parts, *(tests or [f"test.test_{module}"])]:
        if importlib.util.find_spec(name.partition(".")[0]) and (imported := _import(name)):
            path = getattr(imported, "__file__", None) or ""
            found.add(path)
            if path.endswith("__init__.py") and name.startswith("test."):
                found |= {str(p) for p in Path(path).parent.glob("*.py")}
    return found - {""}


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def suite_of(module: str) -> unittest.TestSuite:
    names = MODULES[module][1] or [f"test.test_{module}"]
    return unittest.defaultTestLoader.loadTestsFromNames(names)


def leave_out(suite: unittest.TestSuite) -> None:
    """Skips the tests of `LEFT_OUT`."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            leave_out(test)
        elif (reason := LEFT_OUT.get(test.id())) is not None:
            setattr(test, test.id().rpartition(".")[2], functools.partial(test.skipTest, reason))


def ran(suite: unittest.TestSuite, outcome: Outcome) -> None:
    class Counted(unittest.TestResult):
        def startTest(self, test: unittest.TestCase) -> None:
            super().startTest(test)
            if os.environ.get("CUTAWAY_SHOW"):
                print(test.id(), file=sys.stderr, flush=True)

    result = Counted()
    suite.run(result)
    outcome.tests = result.testsRun
    for test, trace in [*result.failures, *result.errors]:
        outcome.failed.append(f"{test.id()}\n{trace}")
    outcome.failed += [f"{test.id()} passes" for test in result.unexpectedSuccesses]


def plain(module: str, outcome: Outcome) -> None:
    ran(suite_of(module), outcome)


def rewritten(module: str, outcome: Outcome) -> None:
    """Replaces the code of all functions of the module, or of the tests if there is no module, by reassembled code."""
    files = {f for f in files_of(module) if module in LANGUAGE or f"{os.sep}test{os.sep}" not in f}
    suite = suite_of(module)
    gc.unfreeze()  # the process that this one was forked from has frozen its objects, which hides them
    for obj in gc.get_objects():
        if isinstance(obj, types.FunctionType) and obj.__code__.co_filename in files:
            obj.__code__ = widened(obj.__code__)
            outcome.functions += 1
    ran(suite, outcome)


def widened(code: types.CodeType) -> types.CodeType:
    """Returns the code with 300 NOPs at its start, and the same for nested code objects."""
    from compiler_core import bytecode
    from compiler_core.bytecode import Instruction

    consts = {c: widened(c) for c in code.co_consts if isinstance(c, types.CodeType)}
    instructions = bytecode.disassemble(code)
    for x in instructions:
        if isinstance(x.argval, types.CodeType):
            x.argval = consts[x.argval]
    at = next(i for i, x in enumerate(instructions) if x.opname == "RESUME") + 1
    first = instructions[at - 1]
    nops = [Instruction("NOP", positions=first.positions, handler=first.handler) for _ in range(PADDING)]
    result = bytecode.assemble([*instructions[:at], *nops, *instructions[at:]], code)
    bytecode.verify(result)
    return result


def captured(module: str, outcome: Outcome) -> None:
    """Runs the tests with the frame hook, with functions of the module and of the tests as user code."""
    from compiler_core.api.compiled import new_record
    from compiler_core.capture import side_effects
    from compiler_core.config import Options
    from compiler_core.hook import skip_rules
    from compiler_core.pipeline import compiled_region
    from compiler_core.pipeline import frame as pipeline

    files, suite, record = files_of(module), suite_of(module), new_record()
    leave_out(suite)
    # the compiler assumes that the standard library does not change
    own = {"test", *(name.partition(".")[0] for name in [module, *MODULES[module][0]])}
    sys.stdlib_module_names = frozenset(sys.stdlib_module_names - own)
    closed = skip_rules._file_skip_reason
    skip_rules._file_skip_reason = lambda filename: "" if filename in files else closed(filename)  # type: ignore[assignment]
    skip_rules.is_library_file.cache_clear()
    _run_generated_code(pipeline, side_effects)
    captured_here = compiled_region.Region(ran.__code__, Options(backend="eager", strict=True), lambda: record)
    captured_here.hook.wrap(ran)(suite, outcome)
    compiled = {c.frame for c in record.compiles if c.outcome == "compiled"}
    outcome.functions = len(compiled)
    outcome.faults = [f"{c.id} {f.message}\n{f.detail}" for c in record.compiles for f in c.failures]


def _run_generated_code(pipeline: Any, side_effects: Any) -> None:
    """Makes a frame without tensors and effects, which would run unchanged, run its generated code."""

    class Some(side_effects.SideEffects):  # type: ignore[misc]
        def __bool__(self) -> bool:
            return True

    capture_frame = pipeline.FrameCompile._capture

    def captured_frame(self: Any) -> Any:
        found = capture_frame(self)
        if found.break_ is None:
            found.capture.effects.__class__ = Some
        return found

    pipeline.FrameCompile._capture = captured_frame


def work(module: str, mode: str, result: Path) -> None:
    outcome = Outcome()
    start = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        {"plain": plain, "rewritten": rewritten, "captured": captured}[mode](module, outcome)
    outcome.seconds = time.monotonic() - start
    result.write_text(json.dumps(vars(outcome)))


# ---- the table


def run_module(module: str, mode: str) -> Outcome:
    """Runs one module in a separate process."""
    with tempfile.TemporaryDirectory() as name:
        result = Path(name) / "outcome.json"
        command = ["-m", "tests.sweeps.cpython.run", "--work", module, mode, str(result)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": name}
        ended = warm_python.run(command, env=environment, cwd=name, timeout=SECONDS)
        if result.exists():
            return Outcome(**json.loads(result.read_text()))
        return Outcome(faults=[f"exit status {ended.returncode}\n{ended.stderr[-3000:]}"])


def broken(module: str, mode: str, before: Outcome) -> tuple[Outcome, list[str]]:
    """Returns the tests that pass unchanged and fail in this mode, and failures of our compiler."""
    outcome = run_module(module, mode)
    known = {failed.splitlines()[0] for failed in before.failed}
    wrong = [f for f in outcome.failed if f.splitlines()[0] not in known]
    if outcome.tests != before.tests and not outcome.faults:
        wrong.append(f"{outcome.tests} tests ran, not {before.tests}")
    return outcome, wrong + outcome.faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work[0], options.work[1], Path(options.work[2]))
        return 0
    if importlib.util.find_spec("test.test_bisect") is None:
        print(
            "This Python has no tests of its own (Debian: apt-get install libpython3-testsuite; or one built by pyenv)"
        )
        return 2
    print(f"{sys.version.split()[0]:14}  tests  fail | rewritten  fail     s |  captured  fail     s |")
    all_wrong: list[str] = []
    for module in options.modules or MODULES:
        before = run_module(module, "plain")
        line = f"{module:14}{before.tests:7}{len(before.failed):6} |"
        for mode in MODES[1:]:
            outcome, wrong = broken(module, mode, before)
            line += f"{outcome.functions:10}{len(wrong):6}{outcome.seconds:6.1f} |"
            all_wrong += [f"{module}, {mode}: {w}" for w in wrong]
        print(line, flush=True)
    print(*all_wrong, sep="\n\n")
    return bool(all_wrong)


if __name__ == "__main__":
    sys.exit(main())
