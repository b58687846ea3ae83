"""``cutaway sweep``: compiles many models, and shows the file with their results."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler_core.errors import UsageError
from kernel_magics.command.text import choices_of, print_json, print_message, print_text

if TYPE_CHECKING:
    from compiler_core.tools.sweep.cases import Case
    from compiler_core.tools.sweep.results import Change, Sweep

CHECKS = ("flags", "worse")
EXAMPLES = (
    "  cutaway sweep --models 'timm:resnet*,vit_tiny*' --models torchvision --workers 2 --page sweep/\n"
    "  cutaway sweep --cases my_models.py:cases --file new.sqlite --compare old.sqlite --fail-on worse\n"
    "  cutaway sweep --models operators --engine core --option backend=eager --seconds 0\n"
    "  cutaway sweep --graphs graphs/ --timeout 120 --memory 4096\n"
    "  cutaway sweep --file sweep.sqlite --json     # the results that are there\n"
)
MORE = (
    "\n\nEach model is compiled in its own process and gets a row in a file (SQLite).  The same command after a stop\n"
    "continues where it stopped.  Without --models, --cases and --graphs, the file is shown."
)


def add_options(command: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add = command.add_argument
    add(
        "--models",
        metavar="LIST[:PATTERNS]",
        action="append",
        default=[],
        help="a ready list: torchvision, timm, transformers or operators, and which names of it; may be repeated",
    )
    add(
        "--cases",
        metavar="WHERE:FUNCTION",
        action="append",
        default=[],
        help="a function of a file or module that returns a list of cases; may be repeated",
    )
    add(
        "--graphs",
        metavar="FOLDER",
        action="append",
        default=[],
        help="a folder of captured graphs: *.pt2, or folders with model.py; their code is run",
    )
    add("--file", metavar="FILE", default="sweep.sqlite", help="the file of results (sweep.sqlite)")
    add("--engine", choices=("torch", "core"), default="torch", help="stock torch.compile, or our compiler")
    add(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="an argument of torch.compile or compiler_core.compile, such as backend=eager or dynamic=true",
    )
    add("--workers", type=int, help="how many models are compiled at a time (half of the CPUs)")
    add("--timeout", type=float, default=600.0, metavar="SECONDS", help="the most that a model may take (600)")
    add(
        "--memory",
        type=float,
        metavar="MIB",
        help="the most memory that the process of a model may take, in MiB; on Linux only",
    )
    add("--retries", type=int, default=1, help="how often a model is run again that raised or crashed (1)")
    add("--seconds", type=float, default=1.0, help="for how long a model is timed; 0: not (1)")
    add("--calls", type=int, default=2, help="how often a model is called (2)")
    add("--no-records", action="store_true", help="save no records")
    add("--page", metavar="FOLDER", help="write the page of the sweep, with the explorer of each model")
    add("--compare", metavar="FILE", help="list what changed since another sweep")
    add("--fail-on", metavar="WHAT", type=choices_of(CHECKS), default=(),
        help="exit with 3: flags, if there are red flags; worse, if something is worse than in --compare")  # fmt: skip


def run(options: argparse.Namespace) -> list[str]:
    """Runs the command; returns a sentence for each check that failed.

    Raises UsageError if there is neither a model to compile nor a file of results.
    """
    from compiler_core.tools.sweep.results import Sweep, compare_sweeps

    cases = _cases(options)
    if not cases and not Path(options.file).exists():
        raise UsageError(f"{options.file}: there is no such file; --models, --cases or --graphs name models to compile")
    result = _sweep(cases, options) if cases else Sweep(options.file)
    before = Sweep(options.compare) if options.compare else None
    changes = compare_sweeps(before, result) if before else []
    if options.page:
        from kernel_magics.display.offline.sweep_page import write_sweep_page

        print_message(f"written: {write_sweep_page(result, options.page, before)}")
    _print(result, changes, options.json)
    worse, flags = [each for each in changes if each.worse], result.flags()
    failed = {"flags": f"{len(flags)} models with red flags" if flags else "",
              "worse": f"{len(worse)} values are worse" if worse else ""}  # fmt: skip
    return [failed[name] for name in options.fail_on if failed[name]]


def _print(result: Sweep, changes: list[Change], as_json: bool) -> None:
    if as_json:
        shared = [dataclasses.asdict(each) for each in result.breaks()]
        print_json({"settings": result.settings, "rows": result.rows, "flags": result.flags(), "breaks": shared,
                    "changes": [dataclasses.asdict(each) for each in changes]})  # fmt: skip
        return
    print_text(str(result))
    for each in result.breaks()[:20]:
        number = len(each.cases)
        models = "1 model breaks" if number == 1 else f"{number} models break"
        print_text(f"{models} at {each.file}:{each.line}: {each.kind}\n    {each.text}")
    for change in changes:
        print_text(str(change))


def _sweep(cases: list[Case], options: argparse.Namespace) -> Sweep:
    from compiler_core.tools.sweep.sweeping import sweep

    return sweep(
        cases, options.file, workers=options.workers, engine=options.engine, options=_options(options.option),
        timeout=options.timeout, memory=None if options.memory is None else int(options.memory * 2**20),
        retries=options.retries, seconds=options.seconds, calls=options.calls, records=not options.no_records,
    )  # fmt: skip


def _options(given: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--option is NAME=VALUE, not {text!r}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _cases(options: argparse.Namespace) -> list[Case]:
    found: list[Case] = []
    sys.path.insert(0, "")  # as Python does for scripts
    if options.models or options.graphs:
        from compiler_core.tools.sweep import ready

        for text in options.models:
            name, _, patterns = text.partition(":")
            if name not in ready.LISTS:
                raise UsageError(f"--models {text}: choose from {', '.join(ready.LISTS)}")
            found += ready.LISTS[name](patterns.split(",") if patterns else ("*",))
        for folder in options.graphs:
            found += ready.graphs(folder)
    for text in options.cases:
        found += _own_cases(text)
    if (options.models or options.graphs or options.cases) and not found:
        raise UsageError("there is no model of these names")
    return found


def _own_cases(text: str) -> list[Case]:
    where, _, function = text.rpartition(":")
    if not where:
        raise UsageError(f"--cases {text}: name a file or module and its function, such as my_models.py:cases")
    if where.endswith(".py"):
        file = Path(where).resolve()
        if not file.is_file():
            raise UsageError(f"--cases {text}: there is no file {where}")
        sys.path.insert(0, str(file.parent))
        where = file.stem
    try:
        return list(getattr(importlib.import_module(where), function)())
    except (Exception, SystemExit) as error:  # of the user's file
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = "" if last.filename == __file__ else f" ({last.filename}:{last.lineno}: {last.line})"
        raise UsageError(f"--cases {text}: {type(error).__name__}: {error}{place}") from None
