"""`sweep`: runs cases through an executor, each in its own process, and writes a row for each to a file.

A sweep that was stopped, by an interrupt or a power cut, continues when it is called again with the same file: cases
that have a row are not run again.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from compiler_core.errors import UsageError
from compiler_core.tools.sweep import isolate
from compiler_core.tools.sweep.cases import Case
from compiler_core.tools.sweep.results import Sweep
from compiler_core.tools.sweep.store import RENEW_S, Store

POLL_S = 0.05
MEASURE = "compiler_core.tools.sweep.measure:measure_case"
"""The function that the process of a case calls."""

OnProgress = Callable[[int, int, float], Any]
"""Called with the number of finished cases, the number of all, and the seconds that are probably left."""


@dataclass(frozen=True)
class Settings:
    """What is the same for all cases of a sweep; a file holds the rows of one."""

    engine: str
    options: dict[str, Any]
    timeout: float | None
    memory: int | None
    seconds: float
    calls: int


def sweep(
    cases: Iterable[Case],
    path: str | Path = "sweep.sqlite",
    *,
    executor: Any = None,
    workers: int | None = None,
    engine: Literal["torch", "core"] = "torch",
    options: Mapping[str, Any] | None = None,
    timeout: float | None = 600,
    memory: int | None = None,
    retries: int = 1,
    seconds: float = 1.0,
    calls: int = 2,
    records: bool = True,
    progress: OnProgress | bool = True,
) -> Sweep:
    """Compiles many models, each in its own process, and returns a row of results for each.

    Called again with the same `path`, it runs only the cases that have no row yet.  An interrupt stops the running
    cases, keeps what is done, and is raised.

    Args:
        cases: the cases; `compiler_core.tools.sweep.ready` has lists of them.
        path: the file of results (SQLite).  The cases' records are saved in a folder beside it.
        executor: has ``submit(function, *args)``, as those of `concurrent.futures`; None: processes on this machine.
            Its workers need this package, the modules of the cases, and `path`.
        workers: without an `executor`, how many cases run at a time; by default half of the CPUs.  PyTorch uses the
            CPUs' share of each, unless ``OMP_NUM_THREADS`` is set.
        engine: ``torch``, stock `torch.compile`, or ``core``, our compiler.
        options: keyword arguments of `torch.compile` or `compiler_core.compile`: plain values only.
        timeout: seconds after which a case is ended; None: never.
        memory: bytes that the process of a case may take; None: any number.  The workers must run Linux.
        retries: how often a case is run again if it raised, its process crashed, or its worker was lost.
        seconds: for how long a case is timed beside plain PyTorch; 0: not at all.
        calls: how often a case is called with its arguments; the first call compiles.
        records: save the record of each case.
        progress: print a line with the time left on standard error; or a function that is called instead.

    Returns:
        The rows of all cases of the file, with their table, flags and groups.

    Raises:
        UsageError: a wrong argument, or `path` has a sweep with other settings.

    Example::

        from compiler_core.tools.sweep import ready

        result = compiler_core.sweep(ready.torchvision(), "models.sqlite", workers=2)
        result.table()  # a pandas DataFrame
    """
    listed = list(cases)
    names = [case.name for case in listed]
    if repeated := sorted({name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()):
        raise UsageError(f"each case needs another name: {', '.join(map(repr, repeated[:5]))}")
    if engine not in ("torch", "core"):
        raise UsageError(f"unknown engine {engine!r}; choose from torch and core")
    if memory is not None and executor is None and not isolate.resident_bytes(os.getpid()):
        raise UsageError(
            "a limit of memory needs Linux's /proc, which this system lacks; leave `memory` (--memory) out"
        )
    specs = {case.name: case.spec() for case in listed}
    store = Store(Path(path).absolute())
    settings = asdict(Settings(engine, dict(options or {}), timeout, memory, seconds, calls))
    store.create(settings, names)
    if records:
        store.records.mkdir(exist_ok=True)
    cpus = os.cpu_count() or 2
    workers = workers or max(1, cpus // 2)
    pool = executor or ThreadPoolExecutor(workers)
    left = [name for name in names if name not in store.finished()]
    orders = settings | {"sys_path": _import_path(), "records": records, "retries": retries, "measure": MEASURE}
    if executor is None:  # else the threads of cases that run at the same time wait for one another
        orders["threads"] = max(1, cpus // workers)
    driver = _Driver(pool, store, {name: specs[name] for name in left}, orders, _reporter(progress, len(names)))
    try:
        driver.run()
    except BaseException:
        driver.stop()
        raise
    finally:
        if executor is None:
            pool.shutdown(wait=True, cancel_futures=True)
    return Sweep(store.path)


class _Driver:
    """Submits cases and waits for them; a case whose worker was lost is submitted again."""

    def __init__(
        self, pool: Any, store: Store, specs: Mapping[str, Any], orders: Mapping[str, Any], report: OnProgress
    ) -> None:
        self._pool, self._store, self._specs, self._orders, self._report = pool, store, specs, orders, report
        self._futures: dict[str, Any] = {}
        self._lost: dict[str, int] = {}
        self._began = time.monotonic()

    def run(self) -> None:
        for name in self._specs:
            self._submit(name)
        done = 0
        self._report(done, len(self._specs), 0.0)
        while self._futures:
            ended = [name for name, future in self._futures.items() if future.done()]
            for name in ended:
                done += self._end(name, self._futures.pop(name))
                spent = time.monotonic() - self._began
                self._report(done, len(self._specs), spent / done * (len(self._specs) - done) if done else 0.0)
            if not ended:
                time.sleep(POLL_S)

    def stop(self) -> None:
        """Cancels what has not begun, and ends the cases that run on this machine."""
        for future in self._futures.values():
            getattr(future, "cancel", lambda: None)()
        isolate.stop_all()

    def _submit(self, name: str) -> None:
        future = self._pool.submit(run_and_store, str(self._store.path), self._specs[name], dict(self._orders))
        self._futures[name] = future

    def _end(self, name: str, future: Any) -> bool:
        """Handles the end of a case; returns whether it has a row now."""
        try:
            future.result()
            return True
        except Exception as error:
            if name in self._store.finished():
                return True
            self._lost[name] = self._lost.get(name, 0) + 1
            if self._lost[name] <= self._orders["retries"] and self._resubmit(name):
                return False
            reason = f"its worker was lost: {type(error).__name__}: {error}"
            self._store.finish(name, {"state": "lost", "reason": reason[:2000]})
            return True

    def _resubmit(self, name: str) -> bool:
        try:
            self._submit(name)
        except Exception:  # the executor is broken
            return False
        return True


def run_and_store(path: str, spec: Mapping[str, Any], orders: Mapping[str, Any]) -> str:
    """Runs a case unless it has a row already, and writes its row; the function that executors run.

    Returns how the case ended: the state of its row, or ``done before``.
    """
    store, name = Store(path), str(spec["name"])
    for attempt in range(int(orders["retries"]) + 1):
        if not store.claim(name):
            return "done before"
        record = store.records / f"{file_name(name)}.json" if orders["records"] else None
        try:
            row = isolate.run_isolated(spec, {**orders, "record": str(record or "")}, _renewer(store, name))
        except BaseException as error:
            store.release(name, "stopped")
            if isinstance(error, isolate.Stopped):
                return "stopped"
            raise
        if row["state"] in ("failed", "crashed") and attempt < orders["retries"]:
            store.release(name, row["state"])
            continue
        if record is not None and record.exists():
            row["record"] = f"{store.records.name}/{record.name}"
        store.finish(name, row)
        return str(row["state"])
    raise AssertionError("the last attempt returns")


def _renewer(store: Store, name: str) -> Callable[[], None]:
    last = time.monotonic()

    def renew() -> None:
        nonlocal last
        if time.monotonic() - last > RENEW_S:
            last = time.monotonic()
            store.renew(name)

    return renew


def file_name(name: str) -> str:
    """Returns a case's name as one part of a path, different for different names."""
    import hashlib
    import re

    plain = re.sub(r"[^\w.+-]+", "_", name).strip(".")[:80] or "case"
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _import_path() -> list[str]:
    """Returns where modules are found here, for the processes of the cases."""
    return [os.path.abspath(entry) for entry in sys.path if not entry.endswith(".zip")]


def _reporter(progress: OnProgress | bool, total: int) -> OnProgress:
    if callable(progress):
        return progress
    if not progress or not sys.stderr.isatty():
        return lambda done, left, seconds: None

    def report(done: int, of: int, seconds: float) -> None:
        before = total - of
        sys.stderr.write(f"\r\x1b[K{before + done:,} of {total:,} cases, {_duration(seconds)} left")
        if done == of:
            sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

    return report


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes}:{rest:02}"
