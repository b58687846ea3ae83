"""Worker processes that run cases with a time limit each; a crash costs one case.

A worker is ``python -m tests.sweeps.gpu.worker``: it reads jobs, one JSON object a line, and answers each with events:
``{"at": case}`` before a case, ``{"case": ..., "verdict": ..., "detail": ...}`` after it, ``{"next": number}`` at the
end of a job: the number of the case at which to continue the job, or null if it is done.
"""

from __future__ import annotations

import collections
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
OK, DIFFERS, CRASHED, TIMED_OUT, SKIPPED = "ok", "differs", "crashed", "timed out", "skipped"
MEMCHECK = ["compute-sanitizer", "--tool", "memcheck", "--print-limit", "3", "--log-file", "build/memcheck-%p.txt"]
"""NVIDIA's tool ends a process whose kernel accesses memory outside of allocations; its reports are in `build`."""
GRACE = 20.0
"""Seconds that a running case may take after the end of its section."""


@dataclass(frozen=True)
class Job:
    """Cases of one section, from the `start`-th on."""

    section: str
    item: str
    start: int = 0


@dataclass(frozen=True)
class Result:
    """The result of one case."""

    section: str
    case: str
    verdict: str
    detail: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


class _Ended(Exception):
    """The worker ended or exceeded its time."""

    def __init__(self, verdict: str, detail: str) -> None:
        super().__init__(detail)
        self.verdict, self.detail = verdict, detail


class _Worker:
    """A worker process."""

    def __init__(self, device: str, gpu: int, memcheck: bool) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [*(MEMCHECK if memcheck else ()), sys.executable, "-m", "tests.sweeps.gpu.worker", "--device", device],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(gpu) | ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} if memcheck else {}),
        )
        self._rest = b""

    def send(self, job: Job, seconds: float) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(vars(job) | {"seconds": seconds}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise _Ended(CRASHED, self._why()) from None

    def event(self, until: float) -> dict[str, Any]:
        """Returns the next event; raises _Ended if there is none by then."""
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], max(until - time.monotonic(), 0))
            if not ready:
                raise _Ended(TIMED_OUT, "took too long")
            read = os.read(self._process.stdout.fileno(), 1 << 16)
            if not read:
                raise _Ended(CRASHED, self._why())
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    def _why(self) -> str:
        status = self._process.wait()
        name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        self._errors.seek(0)
        return f"{name}: {self._errors.read()[-1500:].decode(errors='replace')}"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()


def _environment(gpu: int) -> dict[str, str]:
    """One thread for each worker, as there is a worker for each core, and one of the GPUs."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpu + 1)))
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
    return os.environ | threads | {"CUDA_VISIBLE_DEVICES": visible.split(",")[gpu]}


class Pool:
    """A pool of workers that run the jobs of one section after the other."""

    def __init__(self, count: int, device: str, gpus: int, memcheck: bool = False) -> None:
        self._device, self._gpus, self._memcheck = device, gpus, memcheck
        self._idle: list[_Worker | None] = [None] * count
        self._lock = threading.Condition()
        self._jobs: collections.deque[Job] = collections.deque()
        self._results: collections.deque[Result] = collections.deque()
        self._at_work = 0

    def run(
        self, jobs: Sequence[Job], seconds: float, case_seconds: float, slice_: float, workers: int
    ) -> Iterator[Result]:
        """Yields results as they arrive, for at most this many seconds; `left` then has the unfinished jobs.

        A job is suspended after `slice_` seconds, so that each gets a turn.  At most `workers` processes run.
        """
        self._jobs.extend(jobs)
        end = time.monotonic() + seconds
        arguments = (end, case_seconds, slice_)
        for number in range(workers, len(self._idle)):
            self._replace(number)
        threads = [threading.Thread(target=self._serve, args=(i, *arguments)) for i in range(workers)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) or self._results:
            with self._lock:
                self._lock.wait_for(lambda: bool(self._results), timeout=1)
            while self._results:
                yield self._results.popleft()

    def left(self) -> list[Job]:
        """Returns the unfinished jobs and removes them."""
        left = list(self._jobs)
        self._jobs.clear()
        return left

    def close(self) -> None:
        for worker in self._idle:
            if worker is not None:
                worker.end()

    # ------------------------------------------------------------ the threads, one for each worker

    def _serve(self, number: int, end: float, case_seconds: float, slice_: float) -> None:
        while time.monotonic() < end:
            with self._lock:
                if not self._jobs and not self._at_work:
                    return
                job = self._jobs.popleft() if self._jobs else None
                self._at_work += job is not None
            if job is None:
                time.sleep(0.1)  # another worker may lay one aside
                continue
            again = self._do(number, job, end, case_seconds, slice_)
            with self._lock:
                self._at_work -= 1
                if again is not None:
                    self._jobs.append(again)

    def _do(self, number: int, job: Job, end: float, case_seconds: float, slice_: float) -> Job | None:
        """Runs a job and returns the rest of it, or None."""
        gpu = number % self._gpus
        worker = self._idle[number] = self._idle[number] or _Worker(self._device, gpu, self._memcheck)
        at, case, began = job.start, job.item, False
        limit = case_seconds + 60  # a new worker imports PyTorch first
        try:
            worker.send(job, min(slice_, max(end - time.monotonic(), 0)))
            while True:
                event = worker.event(min(time.monotonic() + limit, end + GRACE))
                limit = case_seconds
                if "at" in event:
                    case, at, began = event["at"], event["number"], True
                elif "next" in event:
                    if event.get("ends"):
                        self._replace(number)
                    return None if event["next"] is None else Job(job.section, job.item, event["next"])
                else:
                    self._add(Result(job.section, **event))
        except _Ended as ended:
            self._replace(number)
            if ended.verdict == TIMED_OUT and time.monotonic() >= end:
                return Job(job.section, job.item, at)  # the section ended, not the case
            self._add(Result(job.section, case, ended.verdict, ended.detail))
            return Job(job.section, job.item, at + 1) if began else None

    def _replace(self, number: int) -> None:
        worker, self._idle[number] = self._idle[number], None
        if worker is not None:
            worker.end()

    def _add(self, result: Result) -> None:
        with self._lock:
            self._results.append(result)
            self._lock.notify_all()
