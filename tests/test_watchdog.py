"""A test that holds the GIL forever ends as one failure with its name and its stacks, and the run goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests import warm_python
from tests.sampling import sample

ROOT = Path(__file__).parents[1]
CONFTEST = "from tests.conftest import pytest_configure"
STUCK = """
import ctypes, subprocess, sys

def wait_forever():
    mutex = ctypes.create_string_buffer(64)
    lock = ctypes.PyDLL(None).pthread_mutex_lock  # which `PyDLL` calls with the GIL held
    lock(mutex)
    lock(mutex)
"""
IN_A_TEST = f"""{STUCK}
def test_before():
    pass

def test_stuck():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    open("child", "w").write(str(child.pid))
    wait_forever()

def test_after():
    open("after", "w").close()
"""
AT_THE_END = f"""{STUCK}
import atexit

def test_passes():
    atexit.register(wait_forever)
"""

IN_ITS_OWN_PROCESS = f"""{STUCK}
import os, pytest

@pytest.mark.own_process
def test_aborts():
    os.abort()

@pytest.mark.own_process
def test_stuck():
    wait_forever()

@pytest.mark.own_process
def test_after():
    open("after", "w").write(str(os.getppid()))

def test_here():
    pass
"""


def run(folder: Path, text: str, *options: str) -> tuple[int, str]:
    """Runs the tests of a text; returns the exit status and all that is printed."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_planted.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\ntimeout = 3\nmarkers = own_process\n")
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    env = {name: value for name, value in env.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        command,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.slow
def test_a_worker_that_stands_still_is_one_failure(tmp_path: Path) -> None:
    status, printed = run(tmp_path, IN_A_TEST, "-n", "1")
    assert status == 1, printed
    assert "1 failed, 2 passed" in printed
    assert "crashed while running 'test_planted.py::test_stuck'" in printed
    assert "stands still in test_planted.py::test_stuck" in printed
    assert 'test_planted.py", line 8 in wait_forever' in printed
    assert (tmp_path / "after").exists()
    child = (tmp_path / "child").read_text()
    assert f"process {child} of it is killed" in printed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "where"), sample([(AT_THE_END, "the end of the process"), (IN_A_TEST, "test_planted.py::test_stuck")], 2)
)
def test_a_run_of_one_process_ends_with_the_name(text: str, where: str, tmp_path: Path) -> None:
    status, printed = run(tmp_path, text)
    assert status == -9, printed
    assert f"stands still in {where}" in printed
    assert f"watchdog: {where} did not end" in printed


@pytest.mark.slow
@pytest.mark.sweep
def test_a_process_beside_the_worker_ends_alone(tmp_path: Path) -> None:
    status, printed = run(tmp_path, IN_ITS_OWN_PROCESS)
    assert status == 1, printed
    assert "2 failed, 2 passed" in printed
    assert "ended with status -6" in printed
    assert "ended with status -9" in printed
    assert "stands still in test_planted.py::test_stuck" in printed
    assert (tmp_path / "after").exists()


@pytest.mark.slow
def test_a_forked_program_that_does_not_end_is_killed_with_its_children_and_says_where_they_stood() -> None:
    program = "import os, time\nchild = os.fork()\nprint(os.getpid(), flush=True)\ntime.sleep(1000)  # in both"
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        warm_python.run(["-c", program], timeout=3)
    printed, stacks = caught.value.__notes__
    assert stacks.count('File "<string>", line 4 in <module>') == 2
    assert not any(psutil.pid_exists(int(pid)) for pid in printed.split())


@pytest.mark.skipif(warm_python.SHARED not in os.environ, reason="for the workers of pytest-xdist")
def test_the_process_that_all_workers_share_is_no_child_of_a_worker_which_is_killed_with_its_children() -> None:
    assert warm_python.run(["-c", "print(1)"]).stdout == "1\n"
    commands = [each.cmdline() for each in psutil.Process().children(recursive=True)]
    assert not [command for command in commands if "tests.warm_python" in command]
