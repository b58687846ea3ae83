"""Tests of building: the cache on disk, concurrent processes, damaged files, and a machine without a compiler."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import stat
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import compiler_core
from compiler_core.codegen.build import compilers as build
from compiler_core.codegen.build import disk_cache as cache_files
from compiler_core.errors import BuildError
from tests.cases.kernel_programs import compiled
from tests.limits import HANG_S

ANSWER = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and nothing loaded yet."""
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path / "cache"))
    _forget()
    yield tmp_path / "cache" / "cutaway" / "cpp"
    _forget()


def _forget() -> None:
    build._libraries.clear()
    build._timed_out.clear()
    build._suspected.clear()
    cache_files.take_problems()
    build._inspect.cache_clear()
    build._with_supported_flags.cache_clear()


def _libraries(cache: Path) -> list[Path]:
    return sorted(cache.glob("*.so"))


def _library(source: str) -> Path:
    return cache_files.path_of("cpp", build.digest(source, build._with_supported_flags(build.toolchain())))


def _answer(library: ctypes.CDLL) -> int:
    return int(library.answer())


def test_builds_once_and_finds_it_again(cache: Path) -> None:
    assert _answer(build.load(ANSWER)) == 42
    result = _library(ANSWER).stat().st_ino
    _forget()
    assert _answer(build.load(ANSWER)) == 42
    assert _library(ANSWER).stat().st_ino == result


def test_what_was_found_on_disk_was_not_built(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build.load(ANSWER)
    _forget()
    monkeypatch.setattr(build, "_build", lambda *_: pytest.fail("it was built again"))
    assert _answer(build.load(ANSWER)) == 42


def test_another_source_or_flag_is_another_library(cache: Path) -> None:
    tools = build.toolchain()
    fewer = build.Toolchain(tools.path, tools.version, tools.flags[1:])
    newer = build.Toolchain(tools.path, tools.version + "1", tools.flags)
    keys = {build.digest(s, t) for s in (ANSWER, ANSWER + "\n") for t in (tools, fewer, newer)}
    assert len(keys) == 6


def test_the_cache_is_the_users_alone(cache: Path) -> None:
    before = os.umask(0)
    try:
        build.load(ANSWER)
    finally:
        os.umask(before)
    for path in (cache, *_libraries(cache)):
        assert not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)


@pytest.mark.parametrize("damage", ["truncated", "emptied", "changed", "extended"])
def test_a_damaged_library_is_built_again(cache: Path, damage: str) -> None:
    build.load(ANSWER)
    _forget()
    path = _library(ANSWER)
    content = path.read_bytes()
    at = len(content) // 2
    changed = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
    damaged = {"truncated": content[:1000], "emptied": b"", "changed": changed, "extended": content + b"x"}[damage]
    path.unlink()  # the old file stays mapped in this process: it must not be written to
    path.write_bytes(damaged)
    assert _answer(build.load(ANSWER)) == 42
    assert cache_files.read("cpp", path.stem) is not None


def _load_and_report(number: int, queue: multiprocessing.Queue[int], source: str) -> None:
    time.sleep(0.01 * (number % 3))
    queue.put(_answer(build.load(source)))


@pytest.mark.own_process
def test_many_processes_build_at_once(cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[int] = context.Queue()
    workers = [context.Process(target=_load_and_report, args=(n, queue, ANSWER)) for n in range(6)]
    for worker in workers:
        worker.start()
    answers = [queue.get(timeout=HANG_S) for _ in workers]
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert answers == [42] * 6
    assert cache_files.read("cpp", _library(ANSWER).stem) is not None
    assert not list(cache.glob("*building-*"))


@pytest.mark.own_process
def test_a_fork_while_another_thread_builds(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The child process builds too, and does not wait for a lock held by a thread of its parent."""
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\n[ -e {tmp_path}/fork ] && touch {tmp_path}/builds && sleep 3\nexec g++ "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("CXX", str(slow))
    build.load("// all is imported\n" + ANSWER)
    (tmp_path / "fork").touch()
    building = threading.Thread(target=build.load, args=(ANSWER,))
    building.start()
    while not (tmp_path / "builds").exists():
        time.sleep(0.01)
    pid = os.fork()
    if not pid:
        signal.alarm(HANG_S)
        os._exit(_answer(build.load("// in the child\n" + ANSWER)))
    building.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42


def test_no_compiler_says_how_to_get_one(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BuildError, match="install one"):
        build.load(ANSWER)
    with pytest.raises(BuildError, match="install one"):
        compiled(lambda x: (x + 1,), torch.ones(3))


def test_a_wrong_cxx_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BuildError, match="no-such-compiler"):
        build.load(ANSWER)
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(BuildError, match="does not run"):
        build.load(ANSWER)


@pytest.mark.parametrize(("hangs_at", "runs"), [("--version", 1), ("-shared", 2)])
def test_a_compiler_that_hangs_is_waited_for_once(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hangs_at: str, runs: int
) -> None:
    """Each graph then runs as plain PyTorch."""
    hangs = tmp_path / "hangs"
    hangs.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/runs\ncase "$*" in *{hangs_at}*) sleep 600;; esac\nexec g++ "$@"\n'
    )
    hangs.chmod(0o755)
    monkeypatch.setenv("CXX", str(hangs))
    monkeypatch.setenv("CUTAWAY_COMPILE_TIMEOUT", "1")
    x = torch.linspace(0, 1, 8)
    for number in (1.5, 2.5):
        with compiler_core.record() as record, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = compiler_core.compile(lambda x: x.sin() * number)(x)  # noqa: B023
        assert torch.equal(got, x.sin() * number)
        assert [failure.kind for failure in record.compiles[0].failures] == ["tool"]
        assert "set CXX to one" in record.compiles[0].failures[0].message
    assert len((tmp_path / "runs").read_text().splitlines()) == runs


def test_a_compiler_that_hangs_at_each_kernel_is_given_up(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After a kernel that was not built in time, the next has a short limit; after two, none is tried for a while."""
    hangs = tmp_path / "hangs"
    hangs.write_text(
        f'#!/bin/sh\ncase "$*" in *--version*) exec g++ "$@";; esac\necho >> {tmp_path}/runs\n'
        f'[ -e {tmp_path}/hang ] && sleep 600\nexec g++ "$@"\n'
    )
    hangs.chmod(0o755)
    monkeypatch.setenv("CXX", str(hangs))
    build.load(build.TRIVIAL_SOURCE)
    (tmp_path / "hang").touch()
    (tmp_path / "runs").unlink()
    monkeypatch.setenv("CUTAWAY_COMPILE_TIMEOUT", "1")
    monkeypatch.setattr(build, "VERSION_TIMEOUT_S", 0.3)
    limits = ["within 1 s", r"within 0\.3 s", "2 kernels in a row; it is tried again in", "2 kernels in a row"]
    for number, limit in enumerate(limits):
        with pytest.raises(BuildError, match=limit):
            build.load(f"// {number}\n{ANSWER}")
    assert len((tmp_path / "runs").read_text().splitlines()) == 2

    monkeypatch.setattr(build, "_SUSPECTED_S", 0.0)
    (tmp_path / "hang").unlink()
    monkeypatch.setenv("CUTAWAY_COMPILE_TIMEOUT", "60")
    assert _answer(build.load(f"// 4\n{ANSWER}")) == 42
    assert not build._suspected


def test_an_error_in_the_source_shows_the_compilers_output(cache: Path) -> None:
    with pytest.raises(BuildError, match="nonsense"):
        build.load("int f() { return nonsense; }")
    assert not list(cache.glob("*building-*"))


def test_flags_that_the_compiler_lacks_are_left_out(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = build.toolchain().path
    picky = tmp_path / "picky"
    refuse = 'for a in "$@"; do [ "$a" = -fopenmp ] && echo "no OpenMP" >&2 && exit 1; done'
    picky.write_text(f'#!/bin/sh\n{refuse}\nexec {real} "$@"\n')
    picky.chmod(0o755)
    monkeypatch.setenv("CXX", str(picky))
    assert _answer(build.load(ANSWER)) == 42
    run, _ = compiled(lambda x: (x.softmax(-1),), torch.randn(4, 8))
    assert run([torch.zeros(4, 8)])[0][0, 0] == 0.125


def test_an_unusable_cache_folder_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _forget()
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(file))
    assert _answer(build.load(ANSWER)) == 42, "built in a temporary folder"
    (why,) = cache_files.take_problems()
    assert "CUTAWAY_CACHE_DIR" in str(why)
    _forget()


def test_one_openmp_runtime_in_the_process() -> None:
    """Generated and PyTorch's kernels share an OpenMP runtime, so `torch.set_num_threads` applies to both."""
    compiled(lambda x: (x.softmax(-1),), torch.randn(4, 8))
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("only Linux lists what is mapped")
    mapped = {line.split()[-1] for line in maps.read_text().splitlines() if "libgomp" in line}
    assert len(mapped) == 1
