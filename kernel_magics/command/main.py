"""The command ``cutaway`` and its subcommands."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from compiler_core.errors import CutawayError, UsageError
from compiler_core.records import Record, RecordError, to_plain
from compiler_core.records.timings import plural
from compiler_core.tools.growing_file import make_folder
from compiler_core.tools.questions.counts import Counts, count
from kernel_magics.command import sweep_command
from kernel_magics.command.text import choices_of, print_json, print_message, print_text, record_text

DIFFERENT, TROUBLE, CHECK_FAILED, INTERRUPTED, PIPE_CLOSED = 1, 2, 3, 130, 141
CHECKS = ("breaks", "recompiles", "failures", "plain_python")
"""What ``--fail-on`` can name."""

_EXIT_CODES = """exit codes:
  0  no problem
  1  cutaway diff, cutaway first-difference: something differs; cutaway doctor: there is a problem
  2  wrong arguments, or something that cannot be read; the last line says what
  3  a check that was asked for (--fail-on) found something
  130  Ctrl-C
  141  what read the output, such as head, ended, and no check had found something
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command with these arguments, those of the process by default, and returns the exit code."""
    options = argparse.Namespace(command="", script_runs=False, found=0)
    try:
        parser().parse_args(arguments, options)
        code: int = options.function(options)
    except (RecordError, CutawayError, OSError, KeyboardInterrupt) as error:
        if options.script_runs:  # the script's: as under Python
            raise
        return _trouble(f"cutaway {options.command}".strip(), error, options.found)
    return code


def _trouble(command: str, error: BaseException, found: int = 0) -> int:
    """Prints what ended a command, such as ``cutaway run``, and returns its exit code; `found`: the code of an earlier
    check."""
    if isinstance(error, BrokenPipeError):  # the reader of our output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return found or PIPE_CLOSED
    if isinstance(error, KeyboardInterrupt):
        more = "; the same command continues where it stopped" if command == "cutaway sweep" else ""
        print_message(f"{command}: interrupted{more}")
        return INTERRUPTED
    print_message(f"{command}: {error}")
    return TROUBLE


def parser() -> argparse.ArgumentParser:
    """Returns the parser of all subcommands."""
    top = argparse.ArgumentParser(
        "cutaway",
        description="Shows what a PyTorch compiler does to your programs.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_run(commands)
    _add_show(commands)
    _add_logs(commands)
    _add_diff(commands)
    _add_first_difference(commands)
    _add_sweep(commands)
    _add_open(commands)
    _add_doctor(commands)
    _add_lessons(commands)
    return top


def _add(commands: Any, name: str, summary: str, examples: str, extra: str = "") -> argparse.ArgumentParser:
    added: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[:1].upper()}{summary[1:]}.{extra}",
        epilog=f"examples:\n{examples}\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    added.add_argument("--json", action="store_true", help="print the result as JSON, in one line")
    return added


def _add_checks(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--fail-on",
        metavar="WHAT",
        type=choices_of(CHECKS),
        default=(),
        help=f"exit with 3 if there are any: a list of {', '.join(CHECKS)}; graph breaks that the program asks for "
        "do not count",
    )


def failed_checks(counts: Counts, checks: Sequence[str]) -> list[str]:
    """Returns, for each check that fails, a sentence."""
    found = {
        "breaks": (sum(each.grade != "expected" for each in counts.breaks), "graph break", ""),
        "recompiles": (sum(each.count for each in counts.recompiled if each.grade != "expected"), "recompile", ""),
        "failures": (len(counts.failed), "failure", ""),
        "plain_python": (counts.plain_python, "function", " as plain Python"),
    }
    failed = [(number, noun, how) for number, noun, how in map(found.__getitem__, checks) if number]
    texts = [f"{number} {plural(noun, number)}{how}" for number, noun, how in failed]
    if "plain_python" in checks and not counts.frames:
        texts.append("nothing was compiled")
    return [f"{counts.title}: {text}" for text in texts]


# ---- run ---------------------------------------------------------------------------------------


def _add_run(commands: Any) -> None:
    command = _add(
        commands,
        "run",
        "run a script and record what is compiled in it",
        "  cutaway run train.py --epochs 1\n"
        "  cutaway run --save report.html train.py\n"
        "  cutaway run --engine core --save ours.json train.py\n"
        "  cutaway run --try-advice train.py\n"
        "  torchrun --nproc-per-node 8 --no-python cutaway run --ranks ranks/ train.py\n"
        "  cutaway run --json --fail-on breaks,recompiles -m package.train > result.json\n",
        "\n\nThe script runs as under `python script.py`.  Options of cutaway come before its name.  A summary is\n"
        "printed on standard error when it ends; --json prints it as the last line of standard output.",
    )
    _add_engine(command)
    command.add_argument(
        "--capture-backward",
        action="store_true",
        help="with --engine core: keep loss.backward() and steps of optimizers in the graph",
    )
    command.add_argument(
        "--save",
        metavar="PATH",
        action="append",
        default=[],
        help="write the record: NAME.html (a report), NAME.json, NAME.trace.json (times), DIR/; may be repeated",
    )
    command.add_argument(
        "--ranks",
        metavar="FOLDER",
        help="write a file for this rank of a job, which can be opened if the rank dies; no summary, no --save",
    )
    command.add_argument(
        "--try-advice",
        action="store_true",
        help="when the script has ended, try the advice on its problems: it runs again with each change",
    )
    command.add_argument(
        "--trial-seconds",
        metavar="S",
        type=float,
        default=60.0,
        help="for how long advice is tried (60); Ctrl-C ends the trials only",
    )
    _add_checks(command)
    _add_script(command)
    command.set_defaults(function=_run)


def _add_engine(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--engine",
        choices=("torch", "core"),
        default="torch",
        help="torch: stock torch.compile, unchanged (the default); core: torch.compile is replaced by our compiler",
    )


def _add_script(command: argparse.ArgumentParser) -> None:
    command.add_argument("-m", dest="module", action="store_true", help="SCRIPT is the name of a module")
    command.add_argument("script", metavar="SCRIPT", help="a Python file, or a folder with __main__.py")
    command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the arguments of the script")


def _run(options: argparse.Namespace) -> int:
    from kernel_magics.command.run_script import Script, ScriptRecording, run
    from kernel_magics.display.export import check_path

    if options.capture_backward and options.engine != "core":
        raise UsageError("--capture-backward is an option of our compiler: add --engine core")
    for path in options.save:
        check_path(path)
    if options.ranks:
        make_folder(options.ranks)
    script = Script(options.script, options.arguments, options.module)
    if script.is_missing:
        print_message(f"cutaway run: can't open file {options.script!r}: there is no such file")
        return TROUBLE
    codes = [0]

    def on_finish(record: Record | None) -> None:
        try:
            codes.append(CHECK_FAILED if _show_run(record, options) else 0)
        except (CutawayError, OSError) as error:
            codes.append(_trouble("cutaway run", error))

    options.script_runs = True
    recording = ScriptRecording(options.script, options.engine, on_finish, options.ranks, options.capture_backward)
    run(script, recording, options.trial_seconds if options.try_advice else None)
    return max(codes)


def _show_run(record: Record | None, options: argparse.Namespace) -> list[str]:
    """Saves and prints the record of a script; returns the checks that failed."""
    from kernel_magics.display.export import save

    if options.ranks:
        return []
    sys.stdout.flush()
    record = record or Record(engine=options.engine, title=options.script, notes=["The script compiled nothing."])
    written = [str(save(record, path)) for path in options.save]
    counts = count(record)
    failed = failed_checks(counts, options.fail_on)
    if options.json:
        print_json(counts.as_json() | {"saved": written, "failed_checks": failed})
    else:
        print_message(record_text(record, counts))
        for path in written:
            print_message(f"  written: {path}")
    for each in failed:
        print_message(f"cutaway run: {each}")
    return failed


# ---- first-difference --------------------------------------------------------------------------


def _add_first_difference(commands: Any) -> None:
    command = _add(
        commands,
        "first-difference",
        "name the first operation that a script's compiled code computes otherwise than plain PyTorch",
        "  cutaway first-difference train.py --epochs 1\n"
        "  cutaway first-difference --engine core -m package.train\n"
        "  cutaway first-difference --json train.py | jq -r '.found.line'\n",
        "\n\nThe script runs as under `python script.py`, and what it compiles runs as plain PyTorch.  When it has\n"
        "ended, each captured graph is compiled and compared with plain PyTorch on its first inputs: the forward,\n"
        "then the backward.",
    )
    _add_engine(command)
    _add_script(command)
    command.set_defaults(function=_first_difference)


def _first_difference(options: argparse.Namespace) -> int:
    from kernel_magics.command.first_difference import ScriptGraphs
    from kernel_magics.command.run_script import Script

    script = Script(options.script, options.arguments, options.module)
    if script.is_missing:
        print_message(f"cutaway first-difference: can't open file {options.script!r}: there is no such file")
        return TROUBLE
    graphs = ScriptGraphs(options.engine)
    options.script_runs = True
    graphs.run(script)
    options.script_runs = False
    sys.stdout.flush()
    found = graphs.compare()
    if options.json:
        print_json({"found": None if found.first is None else to_plain(found.first), "graphs": found.graphs})
    else:
        print_text(str(found))
    return DIFFERENT if found.first is not None else 0


# ---- show, logs, diff, sweep, open, doctor, lessons --------------------------------------------


def _add_show(commands: Any) -> None:
    command = _add(
        commands,
        "show",
        "print a record, a log or a folder of logs as text, as after its run",
        "  cutaway show record.json\n"
        "  cutaway show --json record.json | jq -r '.[0].recompiled[].reason'\n"
        "  cutaway show --fail-on breaks,recompiles record.json\n",
    )
    command.add_argument("path", metavar="RECORD", help="a record (.json), a log, or a folder of logs")
    _add_checks(command)
    command.set_defaults(function=_show)


def _show(options: argparse.Namespace) -> int:
    from kernel_magics.command.read import read_records

    return _print_records(read_records(options.path), options)


def _print_records(records: list[Record], options: argparse.Namespace) -> int:
    """Prints records and the checks that fail; returns the exit code."""
    all_counts = [count(record) for record in records]
    failed = [each for counts in all_counts for each in failed_checks(counts, options.fail_on)]
    options.found = CHECK_FAILED if failed else 0
    for each in failed:
        print_message(f"cutaway {options.command}: {each}")
    if options.json:
        print_json([counts.as_json() for counts in all_counts])
    else:
        print_text("\n".join(map(record_text, records, all_counts)))
    return int(options.found)


def _add_logs(commands: Any) -> None:
    command = _add(
        commands,
        "logs",
        "read what a job wrote under TORCH_TRACE",
        "  TORCH_TRACE=logs/ torchrun --nproc-per-node 8 train.py; cutaway logs logs/\n"
        "  cutaway logs logs/ --json | jq '.[0].breaks'\n"
        "  cutaway logs logs/ --save records/\n",
    )
    command.add_argument("path", metavar="DIR", help="a folder of logs, or one log")
    command.add_argument("--save", metavar="DIR", help="write a record for each log to this folder")
    _add_checks(command)
    command.set_defaults(function=_logs)


def _logs(options: argparse.Namespace) -> int:
    from kernel_magics.command.read import read_records

    records = read_records(options.path)
    if options.save:
        folder = Path(options.save)
        folder.mkdir(parents=True, exist_ok=True)
        for number, record in enumerate(records):
            record.save(folder / f"{number:05}.json")
    return _print_records(records, options)


def _add_diff(commands: Any) -> None:
    command = _add(
        commands,
        "diff",
        "compare two records line by line, or all ranks of a job",
        "  cutaway diff before.json after.json\n"
        "  cutaway diff --json before.json after.json | jq .totals\n"
        "  cutaway diff ranks/ --page out/     # all ranks of a job\n",
        "\n\nA and B are records (.json) or logs.  A folder alone has the files of a job's ranks.  Times alone do not\n"
        "make two records or ranks differ.",
    )
    command.add_argument("before", metavar="A", help="a record, a log, or a folder of ranks")
    command.add_argument("after", metavar="B", nargs="?", help="a record or a log")
    command.add_argument("--page", metavar="FOLDER", help="of ranks: write their page, with explorers")
    command.set_defaults(function=_diff)


def _diff(options: argparse.Namespace) -> int:
    from compiler_core.tools.questions.compare import compare
    from compiler_core.tools.questions.line_facts import TIMES
    from kernel_magics.command.read import read_one

    if options.after is None:
        folder = Path(options.before)
        if not folder.is_dir():
            what = "a file: name the second one, too" if folder.exists() else "no file or folder"
            raise RecordError(f"{options.before} is {what}")
        return _diff_ranks(options)
    comparison = compare(read_one(options.before), read_one(options.after))
    differ = any(each.state != "same" and each.aspect not in TIMES for each in comparison.lines)
    options.found = DIFFERENT if differ else 0
    if options.json:
        print_json(to_plain(comparison))
    else:
        print_text(str(comparison))
    return int(options.found)


def _diff_ranks(options: argparse.Namespace) -> int:
    from compiler_core.tools.ranks.reading import compare_ranks
    from kernel_magics.command.text import Progress

    progress = Progress("reading", unit_name=" files")
    if options.page:
        from kernel_magics.display.offline.ranks_page import write_ranks_page

        path, comparison = write_ranks_page(options.before, options.page, progress)
    else:
        comparison = compare_ranks(options.before, progress=progress)
    progress.close()
    options.found = DIFFERENT if len(comparison.groups) > 1 or comparison.missing else 0
    if options.page:
        print_message(f"written: {path}")
    if options.json:
        print_json(comparison.as_json())
    else:
        print_text(str(comparison))
    return int(options.found)


def _add_sweep(commands: Any) -> None:
    command = _add(commands, "sweep", "compile many models, one row of results each", sweep_command.EXAMPLES,
                   sweep_command.MORE)  # fmt: skip
    sweep_command.add_options(command)
    command.set_defaults(function=_sweep)


def _sweep(options: argparse.Namespace) -> int:
    failed = sweep_command.run(options)
    for each in failed:
        print_message(f"cutaway sweep: {each}")
    return CHECK_FAILED if failed else 0


def _add_open(commands: Any) -> None:
    command = _add(
        commands,
        "open",
        "show records in the explorer, in a browser",
        "  cutaway open record.json\n"
        "  cutaway open notebook.ipynb\n"
        "  cutaway open logs/\n"
        "  cutaway open 'record.json#compile=0/0&pane=source&pane=kernel'   # a view, as the button Link copies it\n"
        "  cutaway open --no-browser --port 8123 record.json   # for a tunnel: ssh -L 8123:127.0.0.1:8123\n",
        "\n\nThe pages are served on this machine's loopback address, for reading, until Ctrl-C.",
    )
    command.add_argument(
        "path", metavar="RECORD", help="a record (.json), a notebook (.ipynb), a log, or a folder of logs"
    )
    command.add_argument("--port", type=_port, default=0, help="the port; by default one that is free")
    command.add_argument("--no-browser", action="store_true", help="print the address, and open no browser")
    command.set_defaults(function=_open)


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number < 2**16:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to {2**16 - 1}, not {number}")
    return number


def _open(options: argparse.Namespace) -> int:
    import webbrowser

    from kernel_magics.command.page_server import PageServer
    from kernel_magics.command.read import read_records
    from kernel_magics.command.view import split_address

    path, view = split_address(options.path)
    records = read_records(path)
    with PageServer(records, options.port) as server, suppress(KeyboardInterrupt):
        url = f"{server.url}#{view}" if view else server.url
        if options.json:
            print_json({"url": url, "records": [record.title for record in records]})
        else:
            print_text(f"{url}\nPress Ctrl-C to stop.")
        if not options.no_browser:
            webbrowser.open(url)
        server.serve_forever()
    return 0


def _add_doctor(commands: Any) -> None:
    command = _add(
        commands,
        "doctor",
        "say what works on this machine, and how to fix what does not",
        "  cutaway doctor\n  cutaway doctor --json | jq -r '.findings[] | select(.state == \"PROBLEM\") | .remedy'\n",
    )
    command.set_defaults(function=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from kernel_magics import doctor

    return doctor.run(options.json)


def _add_lessons(commands: Any) -> None:
    command = _add(
        commands,
        "lessons",
        "copy the tour and the workshop to a folder",
        "  cutaway lessons cutaway-lessons && jupyter lab cutaway-lessons/workshop/01_frames.ipynb\n",
        "  Files that are there already stay as they are",
    )
    command.add_argument("folder", metavar="DIR", help="the folder, which is made if it is not there")
    command.set_defaults(function=_lessons)


def _lessons(options: argparse.Namespace) -> int:
    from pathlib import Path

    from kernel_magics.command.lessons import copy_lessons

    written, kept = copy_lessons(Path(options.folder))
    if options.json:
        print_json({"written": [str(path) for path in written], "kept": [str(path) for path in kept]})
    else:
        print_text(f"{len(written)} files written, {len(kept)} kept. Open them: jupyter lab {options.folder}")
    return 0
