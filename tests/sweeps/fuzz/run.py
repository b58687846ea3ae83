"""Compares random programs with eager PyTorch:  python -m tests.sweeps.fuzz.run [programs] [--backend cpp] [--seed 0].

With ``--tensors`` they are programs on tensors of all types, shapes and layouts, for kernels; otherwise general Python.

Programs run in worker processes, a few hundred in each, so that a crash costs one of them and is reported with the
program that caused it.  Each difference is shrunk and written to build/fuzz/, as a module that runs on its own:
``python -m tests.sweeps.fuzz.run FILE``.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import linecache
import re
import signal
import subprocess
import sys
import tempfile
import time
import types
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from compiler_core.records import Record
from compiler_core.tools import testing
from tests.sweeps.fuzz import within_noise
from tests.sweeps.fuzz.reduce import reduced

ROOT = Path(__file__).resolve().parents[3]
FOUND = ROOT / "build" / "fuzz"
PER_SEED = 10
"""Programs drawn with one seed; beyond this, hypothesis only varies earlier ones."""
SEEDS_PER_WORKER = 30
EAGER_SECONDS, SECONDS = 2, 300
TOO_DEEP = 400
STALE = "a leaf Variable that requires grad is being used in an in-place operation"
"""PyTorch reports this also for a view whose base got a history, until the history of the view is read."""
INVALID = "invalid"
_numbers = itertools.count()


class Endless(BaseException):
    """The program runs too long to be compared."""


class Invalid(Exception):
    """The source is not a module with a program and its arguments."""


def check(source: str, backend: str | None = "eager") -> Record | None:
    """Raises AssertionError if the program differs from eager; returns None if it takes or recurses too long."""
    with warnings.catch_warnings(), _at_most(EAGER_SECONDS) as ended:
        warnings.simplefilter("ignore")
        too_deep = _run_eagerly(source)
    if ended or too_deep:
        return None
    module = load(source)
    with warnings.catch_warnings(), _at_most(SECONDS) as ended:
        warnings.simplefilter("ignore")
        try:
            record = _compared(module, backend)
        except AssertionError as error:
            call = re.match(r"call (\d+), ", str(error))
            if call is None or not _goes_on_if_looked_at(module, int(call[1])):
                raise
            return None
    if ended:
        assert not _ends(source), f"takes more than {SECONDS} s"
        return None
    return record


def _compared(module: Any, backend: str | None) -> Record:
    if hasattr(module, "WITHIN_NOISE"):
        return within_noise.check(module, backend)
    tolerance = 0.0 if backend == "eager" else 2e-3
    return testing.check(
        module.program,
        module.CALLS,
        testing.Expected(refusals=True),
        grad=module.GRAD,
        changes=module.CHANGES,
        backend=backend,
        tolerance=tolerance,
    )


class _Looking(TorchFunctionMode):
    """Reads the history of each tensor that an operation takes."""

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in filter(torch.is_tensor, torch.utils._pytree.tree_leaves(args)):
            tensor.is_leaf
        return fn(*args, **(kwargs or {}))


def _goes_on_if_looked_at(module: Any, call: int) -> bool:
    """Whether eager PyTorch itself reports `STALE`, and does not once histories were read."""
    make = module.CALLS[call % len(module.CALLS)]
    messages = []
    for looking in (contextlib.nullcontext(), _Looking()):
        with looking:
            outcome = testing.observe(module.program, make, 0, grad=module.GRAD, changes=module.CHANGES)
        messages.append(STALE in (outcome.raised or ""))
    return messages == [True, False]


def _ends(source: str) -> bool:
    """Whether the program always terminates; a loop may depend on random numbers."""
    with _at_most(5 * EAGER_SECONDS) as ended:
        for _ in range(5):
            _run_eagerly(source)
    return not ended


def _run_eagerly(source: str) -> bool:
    """Whether it recurses without end; then its depth depends on the frames around it."""
    try:
        module = load(source)
        arguments = [call() for call in module.CALLS]
        if not arguments or not all(isinstance(a, tuple) for a in arguments) or not isinstance(module.CHANGES, list):
            raise TypeError("CALLS are not empty, arguments are a tuple, CHANGES a list")
        if hasattr(module, "WITHIN_NOISE"):
            within_noise.valid(module, arguments)
    except Exception as error:
        raise Invalid(f"{type(error).__name__}: {error}") from error
    depth = _Depth()
    for each in arguments:
        with contextlib.redirect_stdout(None), contextlib.suppress(Exception), depth:
            module.program(*each)
    return depth.greatest > TOO_DEEP


class _Depth:
    """Context manager that measures the depth of calls."""

    greatest = at = 0

    def __enter__(self) -> None:
        self.at = 0
        sys.setprofile(self._count)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: Any, event: str, arg: Any) -> None:
        self.at += (event == "call") - (event == "return")
        self.greatest = max(self.greatest, self.at)


def load(source: str) -> Any:
    """Loads the program as a module whose lines appear in tracebacks."""
    name = f"random_program_{next(_numbers)}"
    filename = f"{name}.py"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    module = types.ModuleType(name)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(source, filename, "exec"), module.__dict__)
    return module


@contextlib.contextmanager
def _at_most(seconds: int) -> Iterator[list[str]]:
    """Context manager that ends the block after this many seconds; the list then has an entry."""
    ended: list[str] = []

    def leave(number: int, frame: Any) -> None:
        raise Endless

    before, grad_enabled = signal.signal(signal.SIGALRM, leave), torch.is_grad_enabled()
    signal.alarm(seconds)
    try:
        yield ended
    except Endless:
        ended.append("ended")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        torch.set_grad_enabled(grad_enabled)  # the end may have come between a block's end and its effect


# ---------------------------------------------------------------- what was found


@dataclass
class Tally:
    """Counts of a run."""

    programs: int = 0
    captured: int = 0
    broke: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    found: dict[str, str] = field(default_factory=dict)
    """A kind of difference, with the smallest program that shows it."""
    differ: int = 0
    invalid: int = 0

    def add(self, record: Record | None) -> None:
        self.programs += 1
        if record is not None:
            self.captured += testing.graph_count(record) > 0
            kinds = testing.break_kinds(record)
            self.broke += bool(kinds)
            self.kinds.update(kinds)


def kind_of(error: BaseException) -> str:
    """Returns the message without its varying parts; differences of one kind usually have one cause."""
    text = str(error) or type(error).__name__
    text = next(
        (line for line in reversed(text.splitlines()) if re.search("Error|error: ", line)), text.splitlines()[0]
    )
    text = re.sub(r"'(\w+Error|CompilerBug|)[^']*'", r"\1", text)
    text = re.sub(r"^call \d+, seed \d+: |\[.*?\]|0x[0-9a-f]+|\d+|tensor\(.*", "", text)
    return re.sub(r"\s+", " ", text).strip()[:120]


def search(number: int, tally: Tally, backend: str, at_work: Path | None = None, tensors: bool = False) -> None:
    """Runs the programs of one seed; a new kind of difference is reduced and stored."""
    from hypothesis import HealthCheck, Phase, given, seed, settings

    from tests.sweeps.fuzz.programs import programs
    from tests.sweeps.fuzz.tensor_programs import tensor_programs

    @seed(number)
    @settings(
        max_examples=PER_SEED, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(tensor_programs() if tensors else programs())
    def try_one(source: str) -> None:
        if at_work is not None:
            at_work.write_text(source)
        kind, record = attempt(source, backend)
        tally.add(record)
        tally.invalid += kind == INVALID
        tally.differ += kind not in ("", INVALID)
        if kind not in ("", INVALID, *tally.found):
            tally.found[kind] = reduced(source, lambda text: attempt(text, backend)[0] == kind)

    try_one()


def attempt(source: str, backend: str) -> tuple[str, Record | None]:
    """Returns the kind of the difference (empty: none), and the record."""
    try:
        return "", check(source, backend)
    except Invalid:
        return INVALID, None
    except Exception as error:
        return kind_of(error), None


# ---------------------------------------------------------------- the long run


def work(first: int, last: int, backend: str, folder: Path, tensors: bool) -> None:
    """Runs a worker for the seeds from `first` to `last`: reads the known kinds, writes its counts."""
    state = folder / "tally.json"
    tally = _read(state)
    for number in range(first, last):
        search(number, tally, backend, folder / "at_work.py", tensors)
        (folder / "next_seed").write_text(str(number + 1))
        state.write_text(json.dumps(vars(tally)))


def _read(state: Path) -> Tally:
    if not state.exists():
        return Tally()
    tally = Tally(**json.loads(state.read_text()))
    tally.kinds = Counter(tally.kinds)
    return tally


def long_run(count: int, backend: str, first: int, tensors: bool) -> Tally:
    """Runs `count` programs and writes each kind of difference to a separate file."""
    FOUND.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start, number, last = time.monotonic(), first, first + -(-count // PER_SEED)
        while number < last:
            upto = min(number + SEEDS_PER_WORKER, last)
            command = [
                sys.executable,
                "-m",
                "tests.sweeps.fuzz.run",
                "--backend",
                backend,
                *(["--tensors"] if tensors else []),
                "--work",
                f"{number}",
                f"{upto}",
                name,
            ]
            ended = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
            number = int((folder / "next_seed").read_text()) if (folder / "next_seed").exists() else number
            if ended.returncode:
                _crashed(folder, number, ended)
                number += 1
            _write(tally := _read(folder / "tally.json"))
            print(
                f"{tally.programs:,} programs in {time.monotonic() - start:,.0f} s: {tally.captured:,} with a graph, "
                f"{tally.broke:,} with a break, {tally.differ} differ in {len(tally.found)} ways",
                flush=True,
            )
        return tally


def _crashed(folder: Path, number: int, ended: subprocess.CompletedProcess[str]) -> None:
    (folder / "next_seed").write_text(str(number + 1))
    tally = _read(folder / "tally.json")
    kind = f"crash of seed {number}: exit status {ended.returncode}"
    program = (folder / "at_work.py").read_text() if (folder / "at_work.py").exists() else ""
    tally.found[kind] = f"{program}\n'''{ended.stderr[-2000:]}'''\n"
    tally.differ += 1
    (folder / "tally.json").write_text(json.dumps(vars(tally)))


def _write(tally: Tally) -> None:
    for number, (kind, source) in enumerate(tally.found.items()):
        (FOUND / f"found_{number}.py").write_text(f"# {kind}\n{source}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="20000", help="how many programs, or the file of one")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; ten programs are drawn from each")
    parser.add_argument("--tensors", action="store_true", help="programs of tensors of all types, shapes and layouts")
    parser.add_argument("--work", nargs=3, metavar=("FIRST", "LAST", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(int(options.work[0]), int(options.work[1]), options.backend, Path(options.work[2]), options.tensors)
        return 0
    if not options.what.isdigit():
        check(Path(options.what).read_text(), options.backend)
        print("as eager")
        return 0
    tally = long_run(int(options.what), options.backend, options.seed, options.tensors)
    print(*(f"{count:7,} breaks: {kind}" for kind, count in tally.kinds.most_common()), sep="\n")
    print(*(f"found: {kind}" for kind in tally.found), f"see {FOUND}" if tally.found else "no difference", sep="\n")
    return bool(tally.found)


if __name__ == "__main__":
    sys.exit(main())
