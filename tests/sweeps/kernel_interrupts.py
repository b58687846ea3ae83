"""Interrupts cells of a real Jupyter kernel: ``python -m tests.sweeps.kernel_interrupts --count 200``.

A kernel runs cells of several kinds, and SIGINT is sent to it at random moments, as Jupyter's Stop button does.  Each
signal must become a KeyboardInterrupt of the cell and leave the kernel usable, and the prompt must be back within a
second.  Kinds without Cutaway show what Python, Jupyter and PyTorch need alone.

`make interrupts` has more interrupts of more programs, without a kernel.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from jupyter_client.manager import KernelManager

from tests.limits import HANG_S

ROOT = Path(__file__).parents[2]
REPLY_S = 60
"""Seconds that a cell's reply may take once the kernel is idle."""
LOST_S = 60.0
"""Seconds after which an interrupt of a cell that has no end counts as lost, and another is sent."""
CELLS = 25
"""Interrupts of one kernel, after which a new one is started."""
READY = "print('ready', flush=True)"
"""A cell with this line is interrupted only after it."""
TOO_LATE_S = 0.05
"""A signal that arrives this short before the cell's reply may find no cell; it is not counted."""

# ---------------------------------------------------------------- the kinds of cells

LOAD = "%load_ext kernel_magics"
SET_UP = """\
import time, torch
x, w = torch.ones(3), torch.full((4, 4), 0.5, requires_grad=True)
"""
CLEAN_UP = "import kernel_magics; kernel_magics.reset(); torch._dynamo.reset(); w.grad = None"
CHECK = "%%compile --backend eager\n(torch.ones(3) + 1).sum().item()"
PLAIN_CHECK = "(torch.ones(3) + 1).sum().item()"

FIRST = "%%compile\nimport torch\nfirst = (torch.ones(3) * {n}).sin().sum().item()"
CAPTURE = """\
%%compile --backend eager
def capture(v):
    for i in range(2000):
        v = v * 2 + {n}
    return v
captured = capture(x)
"""
BUILD = """\
%%compile
def build(v, graph):
    for bit in range(20):
        v = v.sin() + graph if {n} >> bit & 1 else v.tanh().cumsum(0)
    return v
built = torch.ones(64, 64)
""" + "".join(f"built = build(built, {graph})\nprint(end='')\n" for graph in range(4))
RUN = """\
%%compile
def step(v):
    return (v * {n}).sin() + 1
t = torch.ones(50_000)
while True:
    t = step(t)
"""
STEPS = """\
def steps(v):
    for _ in range(400):
        v = torch.tanh(v @ v * 0.5 + {n})
    return v.sum()
"""
BACKWARD = "%%compile --backend aot_eager\n" + STEPS + "steps(w).backward()"
BACKWARD_STOCK = "%%compile --engine torch --backend aot_eager\n" + STEPS + "steps(w).backward()"
BACKWARD_PLAIN = STEPS + "torch.compile(steps, backend='aot_eager')(w).backward()"
RUN_PLAIN = RUN.removeprefix("%%compile\n")


@dataclass(frozen=True)
class Kind:
    """A kind of cell.  `{n}` in its text is a random number, so that it is compiled and built each time."""

    name: str
    cell: str
    is_plain: bool = False
    """Whether it runs in a kernel without Cutaway."""
    is_first: bool = False
    """Whether it is the first cell after the extension is loaded, each time in a new kernel."""
    is_endless: bool = False
    """Whether it runs until it is interrupted."""
    until_s: float | None = None
    """When it is interrupted at the latest; None: as late as a cell ended that was not interrupted."""

    @property
    def set_up(self) -> tuple[str, ...]:
        if self.is_first:
            return (LOAD,)
        return (SET_UP,) if self.is_plain else (LOAD, SET_UP)

    @property
    def cells(self) -> int:
        """How many cells a kernel runs."""
        return 1 if self.is_first else CELLS


KINDS = (
    Kind("first cell", FIRST, is_first=True),
    Kind("capture", CAPTURE),
    Kind("C++ build", BUILD),
    Kind("running", RUN, is_endless=True, until_s=2),
    Kind("backward", BACKWARD),
    Kind("backward, stock", BACKWARD_STOCK),
    Kind("running, without Cutaway", RUN_PLAIN, is_plain=True, is_endless=True, until_s=2),
    Kind("backward, stock without Cutaway", BACKWARD_PLAIN, is_plain=True),
)

Outcome = Literal["raised", "printed", "lost", "killed", "hangs", "other error", "too late"]

# ---------------------------------------------------------------- a kernel


class KernelDied(Exception):
    """The kernel's process has ended."""


class KernelHangs(Exception):
    """A cell did not end in time."""


@dataclass
class Reply:
    """What a cell sent.  The times are those of `time.time`, in this process and in the kernel."""

    status: str = ""
    error: str = ""
    value: str = ""
    stderr: str = ""
    ready_at: float = 0.0
    """When the message arrived that the cell runs, or that it printed its line `READY`."""
    replied_at: float = 0.0
    """When the kernel sent the reply."""
    prompt_at: float = 0.0
    """When the message arrived that the kernel is idle."""
    sent_at: float = 0.0
    """When the first interrupt was sent."""
    interrupts: int = 0


class Kernel:
    """A Jupyter kernel, which runs in another process."""

    def __init__(self, set_up: Iterable[str], folder: str) -> None:
        self._manager: Any = KernelManager(kernel_name="python3")
        env = {"IPYTHONDIR": folder, "CUTAWAY_CACHE_DIR": f"{folder}/cache", "PYTHONPATH": str(ROOT)}
        env["OMP_NUM_THREADS"] = "1"
        self._log = Path(folder, "stderr.txt")
        with self._log.open("wb") as stderr:
            self._manager.start_kernel(env=os.environ | env, cwd=folder, stderr=stderr)
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=HANG_S)
        for cell in set_up:
            self.run(cell)

    def run(self, code: str, interrupt_after: float | None = None, lost_after: float | None = None) -> Reply:
        """Runs a cell and sends it SIGINT `interrupt_after` seconds after it began (or after its line `READY`), and
        again if it is still running `lost_after` seconds later."""
        reply, deadline = Reply(), time.time() + HANG_S
        request = self._client.execute(code)
        interrupt_at = None
        while not reply.prompt_at:
            now = time.time()
            if reply.ready_at and interrupt_after is not None:
                interrupt_at, interrupt_after = reply.ready_at + interrupt_after, None
            if interrupt_at is not None and now >= interrupt_at:
                reply.sent_at = reply.sent_at or time.time()
                reply.interrupts += 1
                self._send()
                deadline = now + HANG_S
                interrupt_at = None if lost_after is None else now + lost_after
            if now > deadline:
                raise KernelHangs(f"{code}\n{self._stacks()}")
            self._read(request, reply, 0.5 if interrupt_at is None else min(0.5, max(interrupt_at - now, 0.0001)))
        self._read_reply(request, reply)
        return reply

    def _read_reply(self, request: str, reply: Reply) -> None:
        """Jupyter drops the reply if it is interrupted between the cell's end and the reply."""
        reply.status, reply.replied_at = "dropped", reply.prompt_at
        with suppress(queue.Empty):
            while True:
                message = self._client.get_shell_msg(timeout=REPLY_S)
                if message["parent_header"].get("msg_id") == request:
                    reply.status = message["content"]["status"]
                    reply.replied_at = _seconds(message["header"]["date"])
                    return

    def _read(self, request: str, reply: Reply, timeout: float) -> None:
        try:
            message = self._client.get_iopub_msg(timeout=timeout)
        except queue.Empty:
            if not self._manager.is_alive():
                raise KernelDied(self._log.read_text(errors="replace")[-1500:]) from None
            return
        if message["parent_header"].get("msg_id") != request:
            return
        content = message["content"]
        match message["msg_type"]:
            case "execute_input" if READY not in content["code"]:
                reply.ready_at = time.time()
            case "stream" if content["name"] == "stdout" and not reply.ready_at:
                reply.ready_at = time.time()
            case "error":
                reply.error = content["ename"]
            case "execute_result":
                reply.value = content["data"]["text/plain"]
            case "stream" if content["name"] == "stderr":
                reply.stderr += content["text"]
            case "status" if content["execution_state"] == "idle":
                reply.prompt_at = time.time()

    def _stacks(self) -> str:
        """Ends the process by a signal at which Jupyter prints the stacks of its threads."""
        os.kill(self._manager.provisioner.pid, signal.SIGABRT)
        while self._manager.is_alive():
            time.sleep(0.1)
        return self._log.read_text(errors="replace")[-20_000:]

    def _send(self) -> None:
        os.kill(self._manager.provisioner.pid, signal.SIGINT)

    def close(self) -> None:
        with suppress(Exception):
            self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


def _seconds(date: str | datetime) -> float:
    """Returns the time of a message's header."""
    parsed = datetime.fromisoformat(date) if isinstance(date, str) else date
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


# ---------------------------------------------------------------- one kind


@dataclass
class Findings:
    """The outcomes of one kind's interrupts, and the seconds from each to the prompt."""

    cell_s: float = 0.0
    """The seconds that a cell takes which is not interrupted."""
    outcomes: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    def count(self, *outcomes: Outcome) -> int:
        return sum(self.outcomes.get(outcome, 0) for outcome in outcomes)

    @property
    def sent(self) -> int:
        """The interrupts that count."""
        return sum(self.outcomes.values()) - self.count("too late")

    def note(self, outcome: Outcome, detail: str = "") -> None:
        self.outcomes[outcome] = self.count(outcome) + 1
        if detail:
            self.details.append(f"{outcome}: {detail}")

    def is_ok(self, limit: float) -> bool:
        """Returns whether each interrupt was raised within `limit` seconds and left the kernel usable."""
        return self.sent == self.count("raised") and not self.details and max(self.seconds, default=0) <= limit


def outcome_of(reply: Reply) -> tuple[Outcome, str]:
    """Returns what became of an interrupt, and what to report of it."""
    if reply.interrupts > 1:
        return "lost", ""
    if reply.error == "KeyboardInterrupt":
        return "raised", ""
    if "KeyboardInterrupt" in reply.stderr:
        return "printed", reply.stderr[-1500:]
    if reply.status == "error":
        return "other error", f"{reply.error} {reply.stderr[-1500:]}"
    if reply.sent_at == 0 or reply.sent_at > reply.replied_at - TOO_LATE_S:
        return "too late", ""
    return "lost", f"{reply.replied_at - reply.sent_at:.2f} s before the end"


class Sweep:
    """Interrupts cells of one kind, in one kernel after another."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self._kind, self._random, self.found = kind, random.Random(f"{kind.name} {seed}"), Findings()

    def run(self, count: int) -> Findings:
        """Sends `count` interrupts that count."""
        with tempfile.TemporaryDirectory() as folder:
            while self.found.sent < count:
                kernel = Kernel(self._kind.set_up, folder)
                try:
                    if not self.found.cell_s:
                        self.time_cell(kernel)
                        continue
                    for _ in range(min(self._kind.cells, count - self.found.sent)):
                        self.interrupt(kernel)
                except KernelDied as error:
                    self.found.note("killed", str(error) or "nothing was printed")
                except KernelHangs as error:
                    self.found.note("hangs", str(error))
                finally:
                    kernel.close()
        return self.found

    def _cell(self) -> str:
        return self._kind.cell.replace("{n}", str(self._random.randrange(2, 10**6)))

    def time_cell(self, kernel: Kernel) -> None:
        """Measures a cell; not the first one, which also imports modules, unless first cells are interrupted."""
        if self._kind.until_s is not None:
            self.found.cell_s = self._kind.until_s
            return
        for _ in range(1 if self._kind.is_first else 2):
            started = time.time()
            reply = kernel.run(self._cell())
            if reply.error:
                raise RuntimeError(f"{self._kind.name}: {reply.error} {reply.stderr}")
            self.found.cell_s = reply.prompt_at - started

    def interrupt(self, kernel: Kernel) -> None:
        """Runs a cell, interrupts it, and checks that the next one runs."""
        after = self._random.random() * self.found.cell_s
        reply = kernel.run(self._cell(), after, LOST_S if self._kind.is_endless else None)
        outcome, detail = outcome_of(reply)
        self.found.note(outcome, detail)
        if outcome == "raised":
            self.found.seconds.append(reply.prompt_at - reply.sent_at)
        if self._kind.is_first:
            kernel.run(SET_UP)
        check = kernel.run(PLAIN_CHECK if self._kind.is_plain else CHECK)
        if check.value != "6.0":
            self.found.details.append(f"the next cell is wrong: {check.error} {check.value} {check.stderr[-1500:]}")
        kernel.run("torch._dynamo.reset(); w.grad = None" if self._kind.is_plain else CLEAN_UP)


# ---------------------------------------------------------------- all kinds


HEAD = f"{'cell':32} {'s':>6}  sent raised printed  lost killed  median slowest"


def run(count: int, seed: int = 0, only: str = "", show: Callable[[str], None] = print) -> dict[str, Findings]:
    """Sends about `count` interrupts, equally many to each kind of cell whose name contains `only`."""
    kinds = [kind for kind in KINDS if only in kind.name]
    show(HEAD)
    found = {}
    for kind in kinds:
        found[kind.name] = each = Sweep(kind, seed).run(max(1, round(count / len(kinds))))
        show(line(kind.name, each))
    return found


def line(name: str, found: Findings) -> str:
    """Returns a line of the table."""
    median = f"{statistics.median(found.seconds):5.2f} s" if found.seconds else "-"
    slowest = f"{max(found.seconds):5.2f} s" if found.seconds else "-"
    others = f"{found.count('lost', 'other error'):5} {found.count('killed', 'hangs'):6}"
    counts = f"{found.sent:5} {found.count('raised'):6} {found.count('printed'):7} {others}"
    return f"{name:32} {found.cell_s:6.2f} {counts} {median:>7} {slowest:>7}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds of cells whose name contains this")
    parser.add_argument("--limit", type=float, default=1.0, help="seconds from a signal to the prompt")
    parser.add_argument("--save", help="write the findings to this JSON file")
    options = parser.parse_args()
    found = run(options.count, options.seed, options.only)
    for name, findings in found.items():
        for detail in findings.details:
            print(f"{name}: {detail}")
    if options.save:
        Path(options.save).write_text(json.dumps({name: asdict(each) for name, each in found.items()}, indent=1))
    ours = [each for kind in KINDS if not kind.is_plain and (each := found.get(kind.name))]
    sys.exit(not all(each.is_ok(options.limit) for each in ours))


if __name__ == "__main__":
    main()
