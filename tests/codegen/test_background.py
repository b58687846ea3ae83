"""Kernels are built in threads, while the rest is compiled."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import compiler_core
from compiler_core.codegen.build import compilers, external
from compiler_core.codegen.build.background import BackgroundBuild
from compiler_core.errors import TimedOut
from compiler_core.pipeline import compiled_region
from compiler_core.torch_private import convert_frame

HANG_S = 30


def test_the_forward_is_built_while_the_backward_is_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A build that waits for the other one ends only if both run at a time, and neither in this thread."""
    both, build = threading.Barrier(2, timeout=60), compilers._build
    threads = set()

    def built(*args: Any) -> bytes:
        both.wait()
        threads.add(threading.current_thread())
        return build(*args)

    x = torch.randn(8, requires_grad=True)
    compilers.load(compilers.TRIVIAL_SOURCE)  # tries the compiler out
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compilers, "_libraries", {})
    monkeypatch.setattr(compilers, "_build", built)
    with compiler_core.record() as record:
        compiler_core.compile(lambda x: x.sin().exp(), strict=True)(x).sum().backward()
    torch.testing.assert_close(x.grad, x.sin().exp() * x.cos())
    assert len(threads) == 2
    assert threading.main_thread() not in threads
    assert not any(thread.is_alive() for thread in threads)
    steps = [(e.stage, e.name) for e in record.compiles[0].events]
    assert steps.index(("codegen", "backward")) < steps.index(("build", "forward"))


def test_what_a_build_raises_is_raised_where_it_is_waited_for() -> None:
    def fail() -> None:
        raise TimedOut("too slow")

    build = BackgroundBuild(fail)
    with pytest.raises(TimedOut, match="too slow"):
        build.result()


def test_a_build_is_stopped_if_its_compile_fails() -> None:
    ended = threading.Event()

    def run() -> None:
        try:
            external.run(["sleep", "600"], timeout=600)
        finally:
            ended.set()

    def compile_both() -> None:
        with external.stopped_on_error():
            builds.append(BackgroundBuild(run))
            raise ZeroDivisionError

    builds: list[BackgroundBuild[None]] = []
    with pytest.raises(ZeroDivisionError):
        compile_both()
    assert ended.wait(60)
    with pytest.raises(external.Stopped):
        builds[0].result()
    assert external.run(["true"], timeout=60).status == 0  # other programs still run


def test_without_another_thread_the_build_runs_where_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert BackgroundBuild(threading.current_thread).result() is threading.current_thread()


@pytest.mark.usefixtures("_interruptible")
def test_a_signal_while_a_build_is_waited_for() -> None:
    build = BackgroundBuild(lambda: time.sleep(1))
    threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        build.result()


def test_a_function_that_another_thread_deletes_does_not_wait_for_a_compile() -> None:
    """A garbage collection in the thread of a build does so, and the compile waits for the build."""
    functions: list[Any] = [compiler_core.compile(lambda x: x + 1, backend="eager", strict=True)]
    functions[0](torch.ones(2))
    deleting = threading.Thread(target=functions.clear)
    with convert_frame.compile_lock:
        deleting.start()
        deleting.join(HANG_S)
        was_waiting = deleting.is_alive()
    deleting.join(HANG_S)
    assert not was_waiting
    assert compiled_region._closed
    compiler_core.compile(lambda x: x + 2, backend="eager", strict=True)(torch.ones(2))
    assert not compiled_region._closed
