"""Produces each fault of docs/faults.md: the message is the documented one, and results are right."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from compiler_core.codegen.build import external
from compiler_core.errors import TimedOut
from tests import warm_python
from tests.cases.processes import is_alive
from tests.limits import HANG_S

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STRANGER = 54321
PROGRAM = """
import os, sys, warnings
import torch, compiler_core
{before}
def program(x):
    return (x.softmax(-1) * 2).cos() + {number}

x = torch.linspace(0, 1, 64).view(4, 16)
want = program(x)
with warnings.catch_warnings(record=True) as heard, compiler_core.record() as record:
    warnings.simplefilter("always")
    got = compiler_core.compile(program)(x)
{after}
torch.testing.assert_close(got, want)
compiled = not any("runs as plain PyTorch" in str(each.message) for each in heard)
print("compiled" if compiled else "plain")
for each in heard:
    print(type(each.message).__name__, str(each.message))
"""


class Fault:
    """How the fault of one row of the table is produced."""

    def __init__(
        self,
        *,
        compiled: bool = False,
        before: str = "",
        after: str = "",
        prepare: Callable[[Path], dict[str, str]] = lambda _: {},
        needs_root: bool = False,
    ) -> None:
        self.compiled, self.before, self.after = compiled, before, after
        self.prepare, self.needs_root = prepare, needs_root


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{textwrap.dedent(text)}")
    path.chmod(0o755)
    return str(path)


KERNELS_ONLY = """
case "$*" in *--version*) exec g++ "$@";; esac
for last in "$@"; do :; done
source=$(for a in "$@"; do case "$a" in *.cpp) echo "$a";; esac; done)
if grep -q 'int one()' "$source"; then exec g++ "$@"; fi
"""
"""A compiler that works for --version and for a library of one function; ``$last`` is the library's path."""


def small_disk(tmp_path: Path) -> dict[str, str]:
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20k", "none", place], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    return {"CUTAWAY_CACHE_DIR": str(place)}


def wrong_format(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "cxx"
    path.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\xff\x7f" + bytes(100))
    path.chmod(0o755)
    return {"CXX": str(path)}


def of_others(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "cutaway").mkdir()
    os.chown(tmp_path / "cutaway", STRANGER, STRANGER)
    return {"CUTAWAY_CACHE_DIR": str(tmp_path)}


def open_to_all(tmp_path: Path) -> dict[str, str]:
    tmp_path.chmod(0o777)
    return {"CUTAWAY_CACHE_DIR": str(tmp_path)}


def with_others(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "cutaway").mkdir()
    (tmp_path / "cutaway" / "letter.txt").write_text("Dear")
    return {"CUTAWAY_CACHE_DIR": str(tmp_path)}


LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_{}, ({}, resource.getrlimit(resource.RLIMIT_{})[1]))"
BE_A_STRANGER = f"""
import resource
compiler_core.compile(lambda x: x.sin() + 1, backend='aot_eager')(torch.ones(3))
import compiler_core.pipeline.graph
os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER})
"""
FEW_FILES = """
import compiler_core.pipeline.graph, compiler_core.codegen.build.compilers
compiler_core.codegen.build.compilers.toolchain()
compiler_core.compile(lambda x: x.sin() + 1)(torch.ones(3))
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    os.close(taken.pop())
    os.close(taken.pop())
"""
ALL_CLOSED = """
for each in taken:
    os.close(each)
"""
FAULTS = {
    "no C++ compiler": Fault(prepare=lambda _: {"PATH": "", "CXX": ""}),
    "a compiler that does not run": Fault(prepare=lambda _: {"CXX": "false"}),
    "a program for another machine in `CXX`": Fault(prepare=wrong_format),
    "something other than a compiler in `CXX`": Fault(prepare=lambda _: {"CXX": "true"}),
    "a compiler that hangs": Fault(
        prepare=lambda tmp_path: {
            "CXX": script(tmp_path / "cxx", "sleep 600"),
            "CUTAWAY_COMPILE_TIMEOUT": "1",
        }
    ),
    "a compiler that hangs at one kernel": Fault(
        prepare=lambda tmp_path: {
            "CXX": script(tmp_path / "cxx", f"{KERNELS_ONLY}sleep 600"),
            "CUTAWAY_COMPILE_TIMEOUT": "20",
        },
        before="from compiler_core.codegen.build import compilers as build; build.load(build.TRIVIAL_SOURCE)\n"
        "os.environ['CUTAWAY_COMPILE_TIMEOUT'] = '1'",
    ),
    "a compiler that writes an incomplete library": Fault(
        prepare=lambda tmp_path: {
            "CXX": script(
                tmp_path / "cxx",
                f'{KERNELS_ONLY}g++ "$@"; truncate -s 9000 "$last"',
            )
        }
    ),
    "an error in another encoding": Fault(
        prepare=lambda tmp_path: {
            "CXX": script(
                tmp_path / "cxx",
                f"{KERNELS_ONLY}printf 'error: \\377\\376 \\351\\n' >&2; exit 1",
            )
        }
    ),
    "a full disk": Fault(compiled=True, prepare=small_disk, needs_root=True),
    "a cache that you may not write to": Fault(compiled=True, before=BE_A_STRANGER, needs_root=True),
    "a cache that others can change": Fault(compiled=True, prepare=open_to_all),
    "a cache that belongs to another user": Fault(compiled=True, prepare=of_others, needs_root=True),
    "other files where the cache would be": Fault(compiled=True, prepare=with_others),
    "an unknown user in `CUTAWAY_CACHE_DIR`": Fault(
        compiled=True, prepare=lambda _: {"CUTAWAY_CACHE_DIR": "~nosuchuser/cache"}
    ),
    "too many open files": Fault(before=LIMIT.format("NOFILE", 200, "NOFILE") + FEW_FILES, after=ALL_CLOSED),
    "a limit of the size of files": Fault(before=LIMIT.format("FSIZE", 4096, "FSIZE")),
    "too little memory for the compiler": Fault(
        prepare=lambda tmp_path: {
            "CXX": script(
                tmp_path / "cxx",
                f"{KERNELS_ONLY}exec g++ -wrapper sh,-c,'kill -9 $$' \"$@\"",  # as the kernel does without memory
            )
        }
    ),
    "too many processes": Fault(before=BE_A_STRANGER + LIMIT.format("NPROC", 0, "NPROC"), needs_root=True),
}


def rows() -> dict[str, list[str]]:
    """Returns the first table of docs/faults.md: the cells of each row, by the first cell."""
    lines = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8").partition("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {row[0]: row for row in cells[1:]}


def test_the_table_has_each_fault_that_is_produced() -> None:
    assert [*rows()] == [*FAULTS]


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_reported_and_results_are_right(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    if fault.needs_root and os.geteuid():
        pytest.skip("only root can make it")
    environment = os.environ | {"CUTAWAY_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    environment |= {"OMP_NUM_THREADS": "1"}  # OpenMP threads count as processes
    environment.pop("CXX", None)
    environment |= fault.prepare(tmp_path)
    program = PROGRAM.format(before=fault.before, after=fault.after, number=f"{abs(hash(name)) % 9973}.5")
    try:
        done = warm_python.run(["-c", program], env=environment)
    finally:
        if name == "a full disk":
            subprocess.run(["umount", "-l", tmp_path / "disk"], check=True)
    assert done.returncode == 0, done.stderr
    how, _, output = done.stdout.partition("\n")
    assert rows()[name][1] in output
    assert how == ("compiled" if fault.compiled else "plain"), output
    assert ("not kept on disk" in output) == fault.compiled


# ---- programs ------------------------------------------------------------------------------------


def test_a_program_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    tree = script(tmp_path / "tree", f"sleep 600 & echo $! > {tmp_path}/child; (sleep 600 & wait) & wait")
    for limit in (2, 20, 200):
        with pytest.raises(TimedOut, match=rf"tree did not end within {limit} s"):
            external.run([tree], timeout=limit)
        if (tmp_path / "child").exists():
            break  # it was not ended before it had started the others
    assert not is_alive(int((tmp_path / "child").read_text()))


def test_what_a_program_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    """A child process keeps the outputs open."""
    done = external.run(["sh", "-c", f"echo said; sleep 600 & echo $! > {tmp_path}/child"], timeout=HANG_S)
    assert (done.status, done.out) == (0, "said\n")
    assert not is_alive(int((tmp_path / "child").read_text()))


def test_what_a_program_says_is_bounded_and_of_any_encoding() -> None:
    done = external.run(["sh", "-c", r"printf '\377\n'; head -c 50000000 /dev/zero"], timeout=HANG_S, limit=1000)
    assert done.cut
    assert done.out == "\ufffd\n" + "\0" * 998
    assert external.run(["sh", "-c", "kill -9 $$"], timeout=HANG_S).status == -signal.SIGKILL


def test_a_program_gets_no_input() -> None:
    assert external.run(["cat"], timeout=HANG_S).out == ""


def test_a_compiler_with_arguments(tmp_path: Path) -> None:
    """CXX='ccache g++'."""
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin" / "ccache", f'echo "$1" >> {tmp_path}/ran; exec "$@"')
    environment = os.environ | {
        "CXX": "ccache g++ -DSOMETHING='a b'",
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "CUTAWAY_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": str(ROOT),
    }
    program = PROGRAM.format(before="", after="", number=1)
    done = warm_python.run(["-c", program], env=environment)
    assert done.stdout == "compiled\n", done.stderr + done.stdout
    assert {*(tmp_path / "ran").read_text().split()} == {"g++"}


INTERRUPTED = """
import signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process started in the background ignores it
def interrupt():
    while not os.path.exists(os.environ["STARTED"]):
        time.sleep(0.01)
    os.kill(os.getpid(), 2)
threading.Thread(target=interrupt, daemon=True).start()
from compiler_core.codegen.build import compilers as build
build.load(build.TRIVIAL_SOURCE)
try:
    compiler_core.compile(lambda x: x.cos() + 1)(torch.ones(5))
except KeyboardInterrupt:
    print("interrupted")
os.environ["CXX"] = "g++"
"""


def test_an_interrupt_ends_the_compiler(tmp_path: Path) -> None:
    started = tmp_path / "started"
    slow = f"{KERNELS_ONLY}sleep 600 & echo $! > {started}.new; "
    slow += f"mv {started}.new {started}; wait"
    environment = os.environ | {
        "CXX": script(tmp_path / "cxx", slow),
        "STARTED": str(started),
        "CUTAWAY_COMPILE_TIMEOUT": "3600",
        "CUTAWAY_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": str(ROOT),
    }
    program = PROGRAM.format(before=INTERRUPTED, after="", number=1)
    done = warm_python.run(["-c", program], env=environment)
    assert done.stdout == "interrupted\ncompiled\n", done.stderr
    assert not is_alive(int(started.read_text()))
    assert not list((tmp_path / "cache").rglob("*building-*"))


ENDED = """
import os, signal, sys, threading
from compiler_core.codegen.build import external
from compiler_core.codegen.build import external

os.setsid()
report = external._report

def report_and_tell(change, session):  # the program waits for this: before, the watcher does not know of it
    report(change, session)
    open(f"{os.environ['FOLDER']}/{change}_{session}", "w").close()

external._report = report_and_tell

def run():
    external.run(["sh", "-c", "echo ended"], timeout=600)
    external.run([os.environ["TREE"]], timeout=600)

if sys.argv[1] == "fork":  # the child has no copy of the watcher's pipe
    external.run(["true"], timeout=600)
    if not os.fork():
        signal.pause()
threading.Thread(target=run, daemon=True).start()
print("runs", flush=True)
signal.pause()
"""


@pytest.mark.parametrize("way", ["SIGTERM", "SIGKILL", "fork"])
def test_a_program_ends_with_the_process_that_started_it(tmp_path: Path, way: str) -> None:
    known = f"while [ ! -e {tmp_path}/start_$$ ]; do sleep 0.01; done"
    tree = f"{known}; sleep 600 & echo $! $$ $PPID > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/started; wait"
    environment = os.environ | {
        "TREE": script(tmp_path / "tree", tree),
        "FOLDER": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    with ThreadPoolExecutor() as executor:
        running = executor.submit(warm_python.run, ["-c", ENDED, way], env=environment)
        while not (tmp_path / "started").exists():
            assert not running.done(), running.result().stderr
            time.sleep(0.01)
        child, leader, process = map(int, (tmp_path / "started").read_text().split())
        sent = signal.SIGTERM if way == "SIGTERM" else signal.SIGKILL
        try:
            os.kill(process, sent)
            assert running.result().returncode == -sent
            assert not is_alive(child)
            assert not is_alive(leader)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)


def test_the_watcher_of_programs_ends_with_the_process() -> None:
    program = """
from compiler_core.codegen.build import external
from compiler_core.codegen.build import external
external.run(["true"], timeout=600)
print(external._watcher.pid)
"""
    done = warm_python.run(["-c", program], env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert not done.stderr
    assert not is_alive(int(done.stdout))


# ---- the check command ---------------------------------------------------------------------------


def checked(**environment: str) -> tuple[int, str]:
    done = warm_python.run(["-m", "compiler_core.tools.check"], env=os.environ | environment)
    assert not done.stderr
    return done.returncode, done.stdout


def test_check_of_a_machine_without_faults(tmp_path: Path) -> None:
    status, output = checked(CUTAWAY_CACHE_DIR=str(tmp_path))
    assert status == 0, output
    assert "no problems" in output
    assert "builds and loads a library" in output
    assert f"kernel cache: {tmp_path}/cutaway" in output


def test_check_says_what_is_wrong_and_what_to_do(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    status, output = checked(CUTAWAY_CACHE_DIR=str(tmp_path), CXX="true", CUTAWAY_CACHE_READ_FROM=str(tmp_path / "no"))
    assert status == 1
    assert "does not build a library of one function" in output
    assert re.search(rf"PROBLEM .*parent folder {tmp_path} can be changed by every user.*\n +-> run `chmod \+t", output)
    assert "CUTAWAY_CACHE_READ_FROM" in output
    assert "problems: 3" in output


def test_the_output_of_a_program_that_ends_between_two_looks_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it may write and end after nothing was ready, and before it is asked whether it has ended."""

    def has_ended_meanwhile(process: subprocess.Popen[bytes]) -> bool:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return True

    monkeypatch.setattr(external, "_has_ended", has_ended_meanwhile)
    done = external.run(["sh", "-c", "sleep 0.5; seq 1000; echo last >&2"], timeout=HANG_S)
    assert (done.out.splitlines()[-1], done.err) == ("1000", "last\n")
