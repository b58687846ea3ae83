"""Fuzzes the readers of records, logs and messages of the page with damaged and hostile input.

    python -m tests.sweeps.fuzz_inputs --count 20000 --seed 0

A case is a real record, log or message with a few random changes.  It must load, or raise the reader's own error with a
short message; never another error, a file outside the target folder, or an endless loop.  The browser's reader must
refuse the same records as ours.
"""

from __future__ import annotations

import argparse
import base64
import copy
import functools
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import compiler_core
from compiler_core.records import Record, RecordError
from compiler_core.tools import recording
from compiler_core.tools.explain import Explanation
from compiler_core.tools.questions.counts import count
from compiler_core.tools.stock.trace_logs import read_logs
from kernel_magics.command.text import record_text
from kernel_magics.display import export, static_html, summary
from kernel_magics.display.explanation import explanation
from kernel_magics.display.messages import PANES, InvalidMessage, check_message
from tests import warm_python

ROOT = Path(__file__).parents[2]
LIMIT_S = 20
"""The time limit of one case in seconds."""
MAX_ERROR_LENGTH = 2000
SAVED = 20
"""One of this many records that load is also saved as a folder and as a report."""

LONG = "z" * 300_000
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 10, 1.5, 2.0, 1e300, 2**31, 2**53, -(2**53), 2**63, 10**30,
    "", "0", "0/0", "0/1", "..", "../..", "/etc/passwd", "a\0b", "\ud800", "é", "#", "src:0", "NaN", "compiled", LONG,
    [], {}, [None], [[]], [1, 2, 3], ["a"], ["a", "b"], [0] * 1000, {"a": 1}, {"__proto__": {}}, {"constructor": 1},
]  # fmt: skip
"""Values that replace fields."""
TEXTS = [*'NaN Infinity -Infinity 1e999 -1e999 1e2 {"a": , } " \\ \x00'.split(" "), "9" * 5000, "[" * 50000]
NAMES = [*"__proto__ constructor toString id frame first last text _record _made_here".split(), LONG]


@dataclass
class Findings:
    """Counts of cases, and the failures."""

    taken: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


# ---- real input -----------------------------------------------------------------------------


def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = (x @ y).relu()
    print(end="")
    return (z * x.shape[0]).sum()


@functools.cache
def records() -> list[dict[str, Any]]:
    """Returns records of both engines, with steps, breaks, recompiles and a failure."""
    created = []
    for engine in ("core", "torch"):
        with recording.record("fuzzed", engine=engine, steps=True) as record:
            compiled = (
                torch.compile(program, backend="aot_eager")
                if engine == "torch"
                else compiler_core.compile(program, steps=True)
            )
            for size in (3, 4):
                x = torch.ones(size, size, requires_grad=True)
                compiled(x, x.detach()).backward()
        record.compiles[0].fail("build", "it failed", "Traceback")
        record.compiles[0].failures[-1].line = record.problems[0].line
        created.append(json.loads(record.to_json()))
    return created


@functools.cache
def log() -> bytes:
    """Returns a log that PyTorch writes for the program."""
    with tempfile.TemporaryDirectory() as folder:
        text = (
            "import torch\n@torch.compile(backend='aot_eager')\ndef f(x):\n    y = x.cos()\n    print(end='')\n"
            "    return y * 2\nf(torch.ones(3, requires_grad=True)).sum().backward()\n"
        )
        env = {"TORCH_TRACE": folder, "PATH": "/usr/bin:/bin", "HOME": folder}
        warm_python.run(["-c", text], env=env).check_returncode()
        return next(Path(folder).glob("*.log")).read_bytes()


MESSAGES: list[Any] = [
    {"method": "update", "state": {"selection": ["src:0#1"], "shown": ["source", "kernel:a.cpp"], "compile": "0/0"}},
    {"method": "update", "state": {"shown": PANES[:4]}, "buffer_paths": []},
    {"method": "request_state"},
    {"method": "custom", "content": {"type": "cancel"}},
    {"method": "custom", "content": {"type": "removed"}},
    {"method": "custom", "content": {"type": "time", "forms": ["stock", "pinned"]}},
    {"method": "custom", "content": {"type": "try", "experiment": "guard", "item": "src:0#1"}},
    {"method": "custom", "content": {"type": "run", "run": 1}},
]


# ---- changes ---------------------------------------------------------------------------------


def changed(value: Any, draw: random.Random) -> Any:
    """Returns plain data with one to three random changes, at random depths."""
    value = json.loads(json.dumps(value))  # a copy
    for _ in range(draw.randint(1, 3)):
        at, key = random_position(value, draw)
        if at is None:
            return draw.choice(VALUES)
        change = draw.randrange(6)
        if change < 3:
            at[key] = copy.deepcopy(draw.choice(VALUES))
        elif change == 3:
            del at[key]
        elif change == 4 and isinstance(at, list):
            at.insert(key, copy.deepcopy(at[key]))
        elif change == 4:
            at[draw.choice(NAMES)] = draw.choice(VALUES)
        else:
            other, name = random_position(value, draw)
            at[key] = copy.deepcopy(other[name])
    return value


def random_position(value: Any, draw: random.Random) -> tuple[Any, Any]:
    """Returns a random container inside `value`, and a key of it."""
    at: Any = None
    key: Any = None
    while isinstance(value, (dict, list)) and value and (at is None or draw.random() < 0.85):
        at, key = value, draw.choice(list(value)) if isinstance(value, dict) else draw.randrange(len(value))
        value = at[key]
    return at, key


def damaged(text: bytes, draw: random.Random) -> bytes:
    """Returns `text` with random parts cut, doubled or overwritten."""
    result = bytearray(text)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(result) + 1)
        change = draw.randrange(5)
        if change == 0:
            result[at : at + draw.randint(1, 40)] = b""
        elif change == 1:
            result[at:at] = draw.choice(TEXTS).encode()
        elif change == 2:
            result[at : at + 1] = bytes([draw.randrange(256)])
        elif change == 3:
            del result[at:]
        else:
            result[at:at] = result[at : at + draw.randint(1, 400)]
    return bytes(result)


# ---- the rule --------------------------------------------------------------------------------


@contextmanager
def time_limited() -> Iterator[None]:
    def ended(*_: Any) -> None:
        raise TimeoutError(f"it takes more than {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check_case(read: Callable[[], object], refusal: type[Exception] | tuple[()], found: Findings, case: str) -> bool:
    """Reads a case and returns whether it loaded; notes a failure unless it loaded or was refused properly."""
    try:
        with time_limited():
            read()
        found.taken += 1
        return True
    except refusal as error:
        found.refused += 1
        if len(str(error)) > MAX_ERROR_LENGTH:
            found.wrong.append(f"{case}: an error of {len(str(error)):,} characters: {str(error)[:200]}")
    except Exception:
        found.wrong.append(f"{case}: {traceback.format_exc()[-1500:]}")
    return False


def used(record: Record, is_saved: bool) -> None:
    """Uses a record in all the ways in which a loaded record is used."""
    assert Record.from_json(record.to_json()) == record
    summary.text(record)
    record_text(record, count(record))
    static_html.html(record)
    explanation(record)
    str(Explanation(record))
    for compile_ in record.compiles:
        for attempt in range(len(compile_.steps)):
            replay = compile_.replay(attempt)
            for n in (0, len(replay) // 2, len(replay) - 1):
                if 0 <= n < len(replay):
                    replay.state(n)
    for artifact in record.artifacts[:3]:
        for span in artifact.spans[:3]:
            record.text(artifact.item(span.key))
            record.linked(artifact.item(span.key))
    if is_saved:
        saved(record)


def saved(record: Record) -> None:
    """Saves a record as a folder and as a report, and checks that no file is outside the folder."""
    with tempfile.TemporaryDirectory() as outside:
        target = Path(outside) / "deep" / "er" / "folder"
        export.save(record, f"{target}/")
        export.save(record, f"{outside}/deep/report.html")
        there = {p.relative_to(outside).parts[:3] for p in Path(outside).rglob("*") if not p.is_dir()}
        assert there <= {("deep", "er", "folder"), ("deep", "report.html")}, there


def try_records(count: int, draw: random.Random, found: Findings) -> None:
    cases: list[tuple[str, bytes, bool]] = []
    for number in range(count):
        plain = draw.choice(records())
        if draw.random() < 0.75:
            text = json.dumps(changed(plain, draw)).encode()
        else:
            text = damaged(json.dumps(plain, ensure_ascii=False).encode("utf-8", "surrogatepass"), draw)
        case = f"record {number}"
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(text)
            loaded: list[Record] = []
            taken = check_case(lambda: loaded.append(Record.load(file.name)), RecordError, found, case)  # noqa: B023
        if taken:
            check_case(lambda: used(loaded[0], number % SAVED == 0), RecordError, found, f"{case}, used")  # noqa: B023
            found.taken -= 1
        cases.append((case, text, taken))
        if len(cases) == 50 or number == count - 1:
            found.wrong += differing(cases)
            cases.clear()


def try_logs(count: int, draw: random.Random, found: Findings) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "some.log"
        for number in range(count):
            file.write_bytes(damaged(log(), draw) if draw.random() < 0.5 else with_changed_lines(log(), draw))
            read: list[Record] = []
            if check_case(lambda: read.extend(read_logs(file)), RecordError, found, f"log {number}"):  # noqa: B023
                for record in read:
                    check_case(functools.partial(used, record, False), (), found, f"log {number}, used")
                found.taken -= 1


def with_changed_lines(text: bytes, draw: random.Random) -> bytes:
    """Returns the log with changes in the data of some entries."""
    lines = text.split(b"\n")
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(lines))
        head, mark, data = lines[at].partition(b"] ")
        try:
            plain = json.loads(data)
        except ValueError:
            lines[at] = damaged(lines[at], draw)
        else:
            lines[at] = head + mark + json.dumps(changed(plain, draw)).encode()
    return b"\n".join(lines)


def try_messages(count: int, draw: random.Random, found: Findings) -> None:
    record = Record.from_json(json.dumps(records()[0]))
    for number in range(count):
        data = changed(draw.choice(MESSAGES), draw)
        message = draw.choice([{"content": {"data": data}}, {"content": {"data": data}, "buffers": []}, data])
        check_case(lambda: check_message(message, record), InvalidMessage, found, f"message {number}: {message!r:.300}")  # noqa: B023


# ---- the browser -----------------------------------------------------------------------------

ASK = """
import { createInterface } from "node:readline";
import { RecordError, readRecord } from "CHECK";
const NOT_UTF8 = "ERR_ENCODING_INVALID_ENCODED_DATA";
for await (const line of createInterface({ input: process.stdin })) {
  let answer = "taken";
  try {
    // as a file is read: bytes that are no UTF-8 are refused
    readRecord(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Buffer.from(line, "base64")));
  } catch (error) {
    const isRefused = error instanceof RecordError || error.code === NOT_UTF8;
    answer = isRefused ? "refused" : `wrong ${error.stack}`;
    if (error.message.length > 2000) answer = `wrong: an error of ${error.message.length} characters`;
  }
  console.log(JSON.stringify(answer));
}
"""


@functools.cache
def browser() -> Path | None:
    """Builds the browser's reader for Node; None if the packages of the browser half are not installed."""
    esbuild = ROOT / "extension/node_modules/.bin/esbuild"
    if not esbuild.exists() or shutil.which("node") is None:
        return None
    folder = Path(tempfile.mkdtemp())
    (folder / "ask.ts").write_text(ASK.replace("CHECK", str(ROOT / "extension/src/view/model/record/read")))
    command = [
        str(esbuild),
        "ask.ts",
        "--bundle",
        "--format=esm",
        "--platform=node",
        "--outfile=ask.mjs",
        "--log-level=error",
    ]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "ask.mjs"


def differing(cases: Sequence[tuple[str, bytes, bool]]) -> list[str]:
    """Returns the records that only one of the two readers accepts."""
    script = browser()
    if script is None:
        return []
    lines = b"\n".join(base64.b64encode(text) for _, text, _ in cases)
    ran = subprocess.run(
        ["node", script], input=lines, capture_output=True, check=True, timeout=60 + LIMIT_S * len(cases)
    )
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    return [
        f"{case}: {'taken' if taken else 'refused'} here, in the browser {answer}"
        for (case, _, taken), answer in zip(cases, answers, strict=True)
        if answer != ("taken" if taken else "refused")
    ]


# ---- all -------------------------------------------------------------------------------------

KINDS = {"records": try_records, "logs": try_logs, "messages": try_messages}


def run(kind: str, count: int, seed: int) -> Findings:
    """Runs `count` cases of a kind."""
    found = Findings()
    KINDS[kind](count, random.Random(f"{kind} {seed}"), found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=20_000, help="cases of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, help="this kind only")
    arguments = parser.parse_args()
    failed = False
    for kind in [arguments.kind] if arguments.kind else KINDS:
        found = run(kind, arguments.count, arguments.seed)
        print(f"{kind}: {found.taken} taken, {found.refused} refused, {len(found.wrong)} wrong", flush=True)
        for each in found.wrong[:20]:
            print(f"  {each}", flush=True)
        failed = failed or bool(found.wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
