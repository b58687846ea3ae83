"""Interrupts compiles at random moments: ``python -m tests.sweeps.interrupts --count 2000``.

A process compiles and runs programs repeatedly, with core or with stock torch.compile under observation, while a timer
sends it SIGINT, whose handler raises exceptions of five classes in turn.  Each must be raised once in the program,
within a second, and leave no mode, hook, lock or temporary folder behind.  A process that dies is counted, and a new
one continues.

Stock torch.compile itself loses some: its guards drop what is raised in them, and its C++ code ends the process when
Python code that it calls raises.  ``--engine plain`` counts those.  Under observation there must be none, since a
signal that arrives at such a moment is held back (`compiler_core/support/interrupts.py`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.fx.passes.graph_transform_observer
import torch.nn.functional as F

import compiler_core
from tests.limits import HANG_S

WAIT_S = 4.0
"""Seconds of processor time, however busy the machine is, after which an interrupt counts as lost."""
LIMIT_S = 10
"""Seconds for one interrupt after `HANG_S` in all, before a process counts as hanging."""
CHUNK = 100
"""Interrupts sent to one process."""


@dataclass
class Findings:
    sent: int = 0
    delivered: int = 0
    slowest_s: float = 0.0
    died: int = 0
    in_destructors: int = 0
    """Raised in a destructor or a weak reference callback: Python prints such exceptions and continues."""
    in_pytorch: int = 0
    """Lost in stock torch.compile, or replaced by another error there."""
    deaths_of_pytorch: int = 0
    """Processes that stock torch.compile terminated: exceptions in Python code that C++ calls while tracing."""
    lost_at: dict[str, int] = field(default_factory=dict)
    """The functions in which those of `in_destructors` and `in_pytorch` arrived."""
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        self.sent += other.sent
        self.delivered += other.delivered
        self.died += other.died
        self.deaths_of_pytorch += other.deaths_of_pytorch
        self.slowest_s = max(self.slowest_s, other.slowest_s)
        self.in_destructors += other.in_destructors
        self.in_pytorch += other.in_pytorch
        self.lost_at = dict(Counter(self.lost_at) + Counter(other.lost_at))
        self.wrong += other.wrong

    def note_lost(self, kind: str, where: str) -> None:
        setattr(self, kind, getattr(self, kind) + 1)
        self.lost_at[where] = self.lost_at.get(where, 0) + 1

    def is_ok(self, engine: str) -> bool:
        """Returns whether no interrupt was lost or fatal, except, without observation, in PyTorch itself."""
        if engine != "plain" and (self.in_pytorch or self.deaths_of_pytorch):
            return False
        raised = self.delivered + self.in_destructors + self.in_pytorch
        return self.sent == raised and not (self.died or self.wrong)


# ---- the programs


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner, self.out = torch.nn.LayerNorm(16), torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)
        self.scale = 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.out(F.gelu(self.inner(self.norm(x)))) * self.scale
        return result


def train(compile_: Callable[..., Any], number: int) -> None:
    model = torch.nn.Sequential(Block(), Block())
    step = compile_(model)
    for _ in range(3):
        step(torch.randn(4, 16)).square().mean().backward()


def float_guards(compile_: Callable[..., Any], number: int) -> None:
    """A number that changes in a loop; its guard is checked in every call."""
    factors = [float(number % 7) + 0.5, -0.0]
    step = compile_(lambda x: (x * factors[0] + factors[1]).sin())
    x = torch.randn(8)
    for _ in range(300):
        step(x)


def symbolic_sizes(compile_: Callable[..., Any], number: int) -> None:
    step = compile_(lambda x: (x.cumsum(0) / x.shape[0]).exp().sum(), dynamic=True)
    for size in range(3, 9):
        step(torch.randn(size, 4, requires_grad=True)).backward()


def breaks(compile_: Callable[..., Any], number: int) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * (number % 5 + 1)
        print(end="")
        return (y @ y.t()).softmax(-1)

    step = compile_(program)
    for _ in range(3):
        step(torch.randn(5, 5))


PROGRAMS = (train, float_guards, symbolic_sizes, breaks)

# ---- one process


_OBSERVED_METHODS = [
    (torch.fx.passes.graph_transform_observer.GraphTransformObserver, n) for n in ("__enter__", "__exit__")
]


def _is_observed(owner: Any, name: str) -> bool:
    return "compiler_core" in getattr(owner, name).__code__.co_filename


def state() -> dict[str, Any]:
    """Returns the state that an interrupt must not change."""
    return {
        "frame hook": torch._C._dynamo.eval_frame.get_eval_frame_callback() is not None,
        "dispatch keys": [
            repr(keys())
            for keys in (torch._C._dispatch_tls_local_include_set, torch._C._dispatch_tls_local_exclude_set)
        ],
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "function modes": torch._C._len_torch_function_stack(),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "proxy mode": torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None,
        "fake mode": torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None,
        "functional mode": torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FUNCTIONAL) is not None,
        "tracing context": torch._guards.TracingContext.try_get() is not None,
        "saved tensor hooks": vars(torch._C._autograd)["_saved_tensors_hooks_is_enabled"](),
        "handler of SIGINT": signal.getsignal(signal.SIGINT) is on_signal,
        "listeners": [len(logging.getLogger(name).handlers) for name in ("torch.__trace", "torch._dynamo", "torch")],
        "functions of PyTorch": [_is_observed(*each) for each in _OBSERVED_METHODS],
        "folders of builds": sorted(str(p) for p in Path(tempfile.gettempdir()).rglob("*") if "building" in p.name),
    }


raised_at: list[str] = []
"""The stack at the last interrupt."""


last_raised_at: list[str] = []
"""The ends of the stacks at the last two interrupts."""


def in_ours() -> bool:
    """Returns whether the last interrupt arrived in Cutaway's code, or in code that it called."""
    return any(f"{os.sep}compiler_core{os.sep}" in line.partition("\n")[0] for line in raised_at)


def place() -> str:
    """Returns the file and function in which the last interrupt arrived."""
    file, _, function = raised_at[-1].partition("\n")[0].split(", ")
    return f"{Path(file.strip()[6:-1]).name} {function}"


class TimeIsUp(TimeoutError):
    """As test runners and schedulers raise."""


class Failure(RuntimeError):
    """Of the class of what operators raise."""


class Plain(Exception):
    pass


class Stop(BaseException):
    pass


RAISED = (KeyboardInterrupt, Stop, TimeIsUp, Failure, Plain)
"""The exceptions that the handler raises in turn; with stock only the first two, since stock wraps or drops each
`Exception` that is raised while it compiles, observed or not."""
times_raised, kinds = [0], [len(RAISED)]


def on_signal(number: int, frame: Any) -> None:
    last_raised_at[:] = [*raised_at[-12:], "and\n", *traceback.format_stack(frame)[-12:]]
    raised_at[:] = traceback.format_stack(frame)
    times_raised[0] += 1
    raise RAISED[times_raised[0] % kinds[0]]


unraisable: list[str] = []
"""Interrupts that Python could not raise (see `sys.unraisablehook`)."""


def on_unraisable(args: Any) -> None:
    if isinstance(args.exc_value, RAISED):
        unraisable.append(str(args.object))


class Sender:
    """Sends SIGINT to this process at random moments, one at a time."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._wanted, self.sent_at, self.lost_at = threading.Event(), 0.0, 0.0
        self.is_sent = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def arm(self) -> None:
        self.is_sent.clear()
        self._wanted.set()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            time.sleep(self._random.choice((0.002, 0.02, 0.2, 0.6)) * self._random.random())
            self.sent_at, self.lost_at = time.perf_counter(), time.process_time() + WAIT_S
            self.is_sent.set()
            os.kill(os.getpid(), signal.SIGINT)


def work(compile_: Callable[..., Any], seed: int) -> Iterator[None]:
    """Compiles and runs programs in an endless loop."""
    choice = random.Random(seed)
    number = 0
    while True:
        number += 1
        choice.choice(PROGRAMS)(compile_, number)
        yield


def one_process(engine: str, count: int, seed: int) -> Findings:
    kinds[0] = 2 if engine == "plain" else len(RAISED)  # stock itself replaces each Exception
    signal.signal(signal.SIGINT, on_signal)
    sys.unraisablehook = on_unraisable
    compile_, after = _engine(engine)
    with suppress(*RAISED), _observed(engine):
        for program in PROGRAMS:
            program(compile_, 0)  # the first call imports modules and fills caches
    before, found, sender = state(), Findings(), Sender(seed)
    for _ in range(count):
        try:
            _interrupt(engine, found, sender, work(compile_, sender._random.randrange(10**6)))
        except Exception:
            print(*found.wrong[:1], "the last interrupts were raised at", *last_raised_at, sep="\n", file=sys.stderr)
            raise
        after()
        for thread in threading.enumerate():
            if thread.name.startswith("cutaway-build"):  # it stops, and removes its folder
                thread.join(WAIT_S)
        where = "".join(raised_at[-16:])
        found.wrong += [f"{k}: {v} after an interrupt at\n{where}" for k, v in state().items() if v != before[k]]
    return found


def _interrupt(engine: str, found: Findings, sender: Sender, working: Iterator[None]) -> None:
    found.sent += 1
    interrupted = False
    try:
        sender.arm()
        with _observed(engine):
            while not (sender.is_sent.is_set() and time.process_time() > sender.lost_at):
                next(working)
    except RAISED:
        interrupted = True
    except Exception as error:
        if engine == "core" or in_ours():
            raise
        with suppress(*RAISED):
            while not sender.is_sent.is_set():  # the error came before the signal
                time.sleep(0.01)
            time.sleep(0.1)
        where = place() if raised_at else "unknown"
        found.note_lost("in_pytorch", f"{where}: {type(error).__name__}: {str(error)[:200]}")
        return
    late = time.perf_counter() - sender.sent_at
    if interrupted:
        found.delivered += 1
        found.slowest_s = max(found.slowest_s, late)
    elif unraisable:
        found.note_lost("in_destructors", f"{unraisable.pop()[:60]}, {place()}")
    elif engine != "core" and not in_ours():
        found.note_lost("in_pytorch", place())
    else:
        found.wrong.append("lost; the handler raised it at\n" + "".join(raised_at[-16:]))


def _engine(name: str) -> tuple[Callable[..., Any], Callable[[], None]]:
    """Returns the compile function of an engine, and a function to call after each interrupt."""
    if name == "core":
        backends = itertools.cycle(("eager", "aot_eager", None))

        def compile_by_core(function: Any, dynamic: bool | None = None) -> Any:
            return compiler_core.compile(function, backend=next(backends), dynamic=dynamic)

        return compile_by_core, lambda: None

    def compile_(function: Any, dynamic: bool | None = None) -> Any:
        return torch.compile(function, backend="aot_eager", dynamic=dynamic)

    return compile_, torch._dynamo.reset


def _observed(name: str) -> AbstractContextManager[Any]:
    return compiler_core.record("interrupts", engine="torch") if name == "torch" else nullcontext()


# ---- all processes


def run(engine: str, count: int, seed: int = 0) -> Findings:
    """Sends `count` interrupts, in separate processes."""
    total = Findings()
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"TMPDIR": folder, "CUTAWAY_CACHE_DIR": f"{folder}/cache"}
        while total.sent < count and total.deaths_of_pytorch < 10:
            here, seed = min(CHUNK, count - total.sent), seed + 1
            command = [
                sys.executable,
                "-m",
                "tests.sweeps.interrupts",
                "--engine",
                engine,
                "--count",
                str(here),
                "--child",
            ]
            command += ["--seed", str(seed)]
            try:
                done = subprocess.run(
                    command, env=env, capture_output=True, text=True, check=False, timeout=HANG_S + LIMIT_S * here
                )
                total.add(_parse_findings(done, here))
            except subprocess.TimeoutExpired:
                total.add(Findings(sent=here, died=1, wrong=[f"hangs: {' '.join(command)}"]))
    return total


def _parse_findings(done: subprocess.CompletedProcess[str], count: int) -> Findings:
    if done.returncode == 0:
        return Findings(**json.loads(done.stdout.splitlines()[-1]))
    if "compiler_core" not in done.stderr and "terminate called" in done.stderr:
        return Findings(deaths_of_pytorch=1)
    return Findings(sent=count, died=1, wrong=[f"ended with {done.returncode}: {done.stderr[-9000:]}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--engine", choices=["core", "torch", "plain"], default="core", help="plain: stock torch.compile, not observed"
    )
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=1.0, help="seconds from a signal to its exception")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(asdict(one_process(options.engine, options.count, options.seed))))
        return
    found = run(options.engine, options.count, options.seed)
    print(json.dumps(asdict(found), indent=1))
    sys.exit(not found.is_ok(options.engine) or found.slowest_s > options.limit)


if __name__ == "__main__":
    main()
