"""Measures processor time and memory for large logs and records, each case in a separate process.

    python -m tests.benchmarks.bench_limits [--gigabytes 0.5] [--only NAME]

Logs are generated while they are read; 10 GB take some five minutes (``--gigabytes 10``).  *Peak* is the peak memory
of the process without that of its imports.  Both cover all steps: a log is read, its record becomes a summary and JSON,
and the JSON is read again; the last column has the reading of the log alone.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import resource
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

import compiler_core
from compiler_core.guards import GuardSpec, GuardTree
from compiler_core.guards.sources import GetItemSource, LocalSource, Scope
from compiler_core.records import Record, limits
from compiler_core.tools.stock.trace_logs import LogReader
from kernel_magics.display import summary

HEAD = "V1121 10:20:57.653000 10669 torch/_dynamo/utils.py:2350] "
ROW = "{:<34} {:>10} {:>10}  {}"


def entry(about: dict[str, Any], payload: str | None = None, frame: int = 0) -> str:
    ids = {"frame_id": frame, "frame_compile_id": 0, "attempt": 0}
    text = "" if payload is None else "\t" + payload.replace("\n", "\n\t") + "\n"
    return f"{HEAD}{json.dumps(about | ids)}\n{text}"


def start(frame: int, file: str = "a.py") -> str:
    return entry({"dynamo_start": {"stack": [{"file": file, "line": 1, "name": f"f{frame}"}]}}, frame=frame)


def event(name: str, phase: str, frame: int = 0) -> str:
    return entry({"chromium_event": {}}, json.dumps({"name": name, "ts": 1e15, "ph": phase}), frame)


def graph(nodes: int) -> str:
    lines = ["    def forward(self, x):"]
    for i in range(nodes):
        lines.append(f"        # File: /home/user/model.py:{i % 500 + 1} in forward, code: x = x.sin() * {i}")
        lines.append(f'        sin_{i}: "f32[8, 8][8, 1]cpu" = torch.ops.aten.sin.default(x);  x = None')
    return "\n".join([*lines, "        return (x,)"])


# ---- logs


def a_job(gigabytes: float) -> Iterator[str]:
    """Compiles like those of a model: events, graphs, guards and other texts."""
    texts = {
        "dynamo_output_graph": graph(500),
        "aot_joint_graph": graph(2000),
        "aot_forward_graph": graph(1000),
        "dynamo_cpp_guards_str": guards(1000),
        "fx_graph_runnable": "import torch\n" * 10_000,
    }
    size = 0
    for frame in itertools.count():
        one = [start(frame), *(event(f"phase {i}", phase, frame) for i in range(200) for phase in "BE")]
        one += [entry({name: {}}, text, frame) for name, text in texts.items()]
        for each in one:
            size += len(each)
            yield each
        if size >= gigabytes * 1e9:
            return


def guards(n: int) -> str:
    lines = ["+- RootGuardManager"]
    for i in range(n):
        lines.append(f"| +- GuardManager: source=L['x'][{i}], accessed_by=ListGetItemGuardAccessor({i})")
        lines.append(f"| | +- EQUALS_MATCH: L['x'][{i}] == {i}.5  # y = x[{i}]  # a.py:{i % 50 + 1} in f")
    return "\n".join([*lines, "Guard latency = 100.5 us"])


def unmatched(n: int) -> Iterator[str]:
    yield from (event(f"begins {i}", "B") for i in range(n))
    yield from (event(f"ends {i}", "E") for i in range(n))


class Stream(io.RawIOBase):
    """A binary file whose content is generated from entries while it is read."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._entries = iter(entries)
        self._rest = b""
        self.size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = next(self._entries, "").encode()
        taken = self._rest[: len(buffer)]
        self._rest = self._rest[len(buffer) :]
        buffer[: len(taken)] = taken
        self.size += len(taken)
        return len(taken)


def of_log(entries: Iterable[str]) -> Callable[[], str]:
    def run() -> str:
        log, stream = LogReader(Path("a.log"), limits.MEMORY), Stream(entries)
        for _ in log.read(cast(BinaryIO, io.BufferedReader(stream, 2**20))):
            pass
        record = log.close()
        seconds, peak = usage()
        return f"a log of {stream.size / 1e6:,.0f} MB, read in {seconds:.1f} s and {peak:,.0f} MiB; {of_record(record)}"

    return run


# ---- records and guards


def of_record(record: Record) -> str:
    text, json_text = summary.text(record), record.to_json()
    again = Record.from_json(json_text)
    assert again == record
    return f"JSON of {len(json_text) / 1e6:,.0f} MB, {len(text.splitlines()):,} lines; {' '.join(record.notes)}"


def frames() -> str:
    record = Record()
    for i in range(1_000_000):
        record.compile(record.frame(f"f{i}", "a.py", i + 1, "root"))
    return of_record(record)


def float_guards() -> str:
    def program(numbers: Any) -> None: ...

    scope = {"numbers": [i + 0.5 for i in range(100_000)]}
    found = [
        GuardSpec("EQUALS_MATCH", GetItemSource(LocalSource("numbers"), i), n) for i, n in enumerate(scope["numbers"])
    ]
    root: Any = GuardTree(Scope(scope, {}, {}), program.__code__).build(found).root
    begin = time.perf_counter()
    assert root.check(scope)
    return f"a check takes {(time.perf_counter() - begin) * 1000:.1f} ms"


def program_of(parameter: str, reads: list[str]) -> Any:
    """Returns a function of a tensor and a parameter that adds up what `reads` read."""
    sums = (f"    total += {' + '.join(reads[i : i + 50])}" for i in range(0, len(reads), 50))
    namespace: dict[str, Any] = {}
    text = "\n".join([f"def program(x, {parameter}):", "    total = 0.0", *sums, "    return x * total", ""])
    exec(compile(text, "program.py", "exec"), namespace)
    return namespace["program"]


def many_attributes(n: int) -> Callable[[], str]:
    """A program that reads `n` attributes of an object."""

    def run() -> str:
        owner = types.SimpleNamespace(**{f"a{i}": i + 0.5 for i in range(n)})
        return compiled(program_of("owner", [f"owner.a{i}" for i in range(n)]), owner)

    return run


def many_globals(n: int) -> Callable[[], str]:
    """A program that reads `n` globals."""

    def run() -> str:
        program = program_of("y", [f"a{i}" for i in range(n)])
        program.__globals__.update({f"a{i}": i + 0.5 for i in range(n)})
        return compiled(program, 1)

    return run


def compiled(program: Any, argument: Any) -> str:
    with compiler_core.record() as record:
        function, x = compiler_core.compile(program, backend="eager"), torch.ones(2)
        function(x, argument)
    begin = time.perf_counter()
    result = function(x, argument)
    call = (time.perf_counter() - begin) * 1000
    assert torch.equal(result, program(x, argument))
    return f"{len(record.compiles[0].guards):,} guards, a call takes {call:.1f} ms; {of_record(record)}"


def cases(gigabytes: float) -> dict[str, Callable[[], str]]:
    return {
        f"a log of {gigabytes:g} GB": of_log(a_job(gigabytes)),
        "a million frames in a log": of_log(start(i) for i in range(1_000_000)),
        "a million frames in a record": frames,
        "100,000 guards in a log": of_log([start(0), entry({"dynamo_cpp_guards_str": {}}, guards(100_000))]),
        "100,000 float guards of ours": float_guards,
        "50,000 attributes, one program": many_attributes(50_000),
        "100,000 attributes, one program": many_attributes(100_000),
        "100,000 globals, one program": many_globals(100_000),
        "40,000 artifacts of one compile": of_log(entry({"artifact": {"name": f"a{i}"}}, "x") for i in range(40_000)),
        "50,000 unmatched events": of_log(unmatched(50_000)),
        "20,000 files": of_log(start(i, f"a/b{i}.py") for i in range(20_000)),
        "200 strings of 1 MB": of_log(entry({"str": ["x" * 1_000_000, i]}) for i in range(200)),
    }


BEGIN = resource.getrusage(resource.RUSAGE_SELF)


def usage() -> tuple[float, float]:
    """Returns the processor seconds and the peak memory in MiB since the imports."""
    now = resource.getrusage(resource.RUSAGE_SELF)
    seconds = now.ru_utime + now.ru_stime - BEGIN.ru_utime - BEGIN.ru_stime
    return seconds, (now.ru_maxrss - BEGIN.ru_maxrss) / 1024


def run_here(name: str, gigabytes: float) -> None:
    """Runs one case in this process."""
    result = cases(gigabytes)[name]()
    seconds, peak = usage()
    print(ROW.format(name, f"{seconds:.1f} s", f"{peak:,.0f} MiB", result), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=0.5)
    parser.add_argument("--only", default="", help="the cases whose name contains this")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_here(options.one, options.gigabytes)
        return
    print(ROW.format("what", "time", "peak", "what was made of it"), flush=True)
    for name in cases(options.gigabytes):
        if options.only in name:
            command = [sys.executable, "-m", "tests.benchmarks.bench_limits", "--one", name]
            subprocess.run([*command, "--gigabytes", str(options.gigabytes)], check=True)


if __name__ == "__main__":
    main()
