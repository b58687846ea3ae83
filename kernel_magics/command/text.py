"""How the command reads lists of names, and how it prints.

Results go to standard output as text or JSON, messages and progress to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.records import Compile, Event, Record
from compiler_core.tools.questions.counts import Counts
from kernel_magics.display.answers import answer_lines

EVERY_S = 0.2
"""Seconds between two updates of the progress."""
WAITING_S = 5.0
"""Seconds of compiling after each of which a line says what is compiled."""
SHOWN = 10
"""Graph breaks, recompiles and failures that are listed, of each."""


def print_text(text: str) -> None:
    """Prints a result."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_message(text: str) -> None:
    """Prints a message, which is not part of the result."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def print_json(value: Any) -> None:
    """Prints a result as JSON, in one line."""
    print_text(json.dumps(value, ensure_ascii=False, allow_nan=False))


def choices_of(names: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Returns the argparse type of an option that takes some of these names, separated by commas."""

    def chosen(text: str) -> tuple[str, ...]:
        found = tuple(filter(None, text.split(",")))
        for name in found:
            if name not in names:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(names)}")
        return found

    return chosen


def record_text(record: Record, counts: Counts) -> str:
    """Returns a record as text: its counts, its problems, and where time, memory and values went."""
    lines = [f"{counts.title or counts.engine}: {counts.line()}"]
    for listed in (counts.failed, counts.breaks, counts.recompiled, counts.others):
        grades = ["expected " if each.grade == "expected" else "" for each in listed]
        lines += _indented([f"{grade}{each.problem} {each}" for grade, each in zip(grades, listed, strict=True)])
    lines += [f"  {line}" for line in answer_lines(record)]
    lines += [f"  note: {note}" for note in counts.notes[:SHOWN]]
    return "\n".join(lines)


def _indented(texts: Sequence[str]) -> list[str]:
    lines = [f"  {text}".replace("\n", "\n  ") for text in texts[:SHOWN]]
    if len(texts) > SHOWN:
        lines.append(f"  ... {len(texts) - SHOWN:,} more; all are in the record")
    return lines


class Progress:
    """A line on standard error that is rewritten as work progresses; nothing unless it is a terminal."""

    def __init__(self, what: str, unit: float = 1.0, unit_name: str = "") -> None:
        self._what, self._unit, self._unit_name = what, unit, unit_name
        self._shown = sys.stderr.isatty()
        self._started = time.monotonic()
        self._updated = 0.0

    def __call__(self, done: int, total: int) -> None:
        """Shows that `done` of `total` are done, and the time that is left."""
        now = time.monotonic()
        if not self._shown or (now - self._updated < EVERY_S and done < total):
            return
        self._updated = now
        left = (now - self._started) * (total - done) / done if done else 0.0
        amounts = f"{done / self._unit:,.0f} of {total / self._unit:,.0f}{self._unit_name}"
        sys.stderr.write(f"\r\x1b[K{self._what}: {amounts}, {left:,.0f} s left")
        sys.stderr.flush()

    def close(self) -> None:
        """Removes the line."""
        if self._shown and self._updated:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class CompileProgress:
    """Prints a line every few seconds while something is compiled: which function, in which stage, for how long."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._running: list[tuple[Compile, Event]] = []
        """The steps that have started, each inside the one before it."""
        self._closed = threading.Event()
        self._stop_listening = record.listen(self._after)
        threading.Thread(target=self._print, name="cutaway progress", daemon=True).start()

    def close(self) -> None:
        """Prints no more."""
        self._stop_listening()
        self._closed.set()

    def line(self) -> str:
        """Returns what is compiled now; nothing if that takes less than a few seconds so far."""
        running = [each for each in self._running if each[1].end is None]
        seconds = (self._record.clock() - running[0][1].start) / 1e9 if running else 0.0
        if seconds < WAITING_S:
            return ""
        compile_, event = running[-1]
        frame = next(each for each in self._record.frames if each.id == compile_.frame)
        return f"cutaway run: compiling {frame.name} ({frame.filename}:{frame.line}), {event.stage}: {seconds:.0f} s"

    def _after(self, compile_: Compile, event: Event) -> None:
        if event.end is None and event.stage != "run":
            self._running = [*(each for each in self._running if each[1].end is None), (compile_, event)]

    def _print(self) -> None:
        while not self._closed.wait(WAITING_S):
            if line := self.line():
                print_message(line)
