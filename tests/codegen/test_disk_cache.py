"""Tests of the disk cache: damaged entries, permissions, size limits, and many processes."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from compiler_core import config
from compiler_core.codegen.build import disk_cache
from compiler_core.errors import BuildError
from compiler_core.tools.machine_code import compiled_forms
from tests import warm_python
from tests.tools.test_machine_code import SOFTMAX

ROOT = Path(__file__).parents[2]


A, B, C = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of one kind of entries."""
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(tmp_path / "cache"))
    disk_cache.take_problems()
    return tmp_path / "cache" / "cutaway" / "graphs"


def test_what_was_written_is_read(folder: Path) -> None:
    disk_cache.write("graphs", A, b"content")
    assert disk_cache.read("graphs", A) == b"content"
    assert disk_cache.read("graphs", B) is None
    assert [p.name for p in folder.iterdir()] == [A]
    assert sorted(p.name for p in folder.parent.iterdir()) == ["CACHEDIR.TAG", "graphs"]
    assert not disk_cache.take_problems()


@pytest.mark.parametrize(
    "damaged",
    [b"", b"content", disk_cache.with_checksum(b"content")[:-1], b"x" + disk_cache.with_checksum(b"content")[1:]],
)
def test_a_damaged_or_foreign_file_is_not_read(folder: Path, damaged: bytes) -> None:
    disk_cache.write("graphs", B, b"other")
    (folder / A).write_bytes(damaged)
    assert disk_cache.read("graphs", A) is None
    disk_cache.write("graphs", A, b"new")
    assert disk_cache.read("graphs", A) == b"new"


def test_it_is_the_users_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        disk_cache.write("graphs", A, b"content")
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / A).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_what_was_not_used_longest_goes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 10 * (1000 + disk_cache.CHECKSUM_BYTES)
    monkeypatch.setitem(disk_cache.KINDS, "graphs", disk_cache.KINDS["graphs"]._replace(limit=limit))
    keys = [f"{number:064x}" for number in range(11)]
    for number, key in enumerate(keys[:10]):
        disk_cache.write("graphs", key, bytes(1000))
        os.utime(folder / key, (number, number))
    disk_cache.write("tuned", A, bytes(1000))
    assert disk_cache.read("graphs", keys[0]) is not None, "it was used just now"
    disk_cache.write("graphs", keys[10], bytes(1000))
    assert {p.name for p in folder.iterdir()} == {keys[0], *keys[4:]}, "other kinds have limits of their own"
    assert disk_cache.read("tuned", A) is not None


@pytest.mark.parametrize("when", ["mkdtemp", "open"])
def test_a_workshop_that_is_taken_for_one_left_behind_before_its_lock(
    folder: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Another process removes the temporary file between two steps of writing it."""
    disk_cache.write("graphs", A, b"content")
    module: Any = {"mkdtemp": tempfile, "open": os}[when]
    step, taken = getattr(module, when), list[Any]()

    def and_tidied(*args: Any, **kwargs: Any) -> Any:
        result = step(*args, **kwargs)
        if not taken:
            taken.append(result)
            evict(folder)
        return result

    monkeypatch.setattr(module, when, and_tidied)
    with disk_cache.build_folder(folder) as inside:
        assert taken
        assert sorted(folder.iterdir()) == sorted([folder / A, inside])


def evict(folder: Path) -> None:
    """Evicts entries as a process does at its first write to the folder."""
    at = os.open(folder, os.O_RDONLY)
    disk_cache._evict(at, folder.name)
    os.close(at)


def test_a_workshop_in_use_is_left_alone_and_one_left_behind_is_not(folder: Path) -> None:
    disk_cache.write("graphs", A, b"content")
    (folder / "cutaway-building-dead").mkdir()
    (folder / "cutaway-building-dead" / "made").write_bytes(b"half")
    (folder / "cutaway-building-file").write_bytes(b"half")
    with disk_cache.build_folder(folder) as inside:
        disk_cache.write("graphs", B, b"content")
        assert [p for p in folder.iterdir() if p.is_dir()] == [inside]
    assert sorted(p.name for p in folder.iterdir()) == [A, B]


def test_a_folder_that_is_in_the_way_says_what_to_do(folder: Path) -> None:
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    with pytest.raises(BuildError, match=r"is not a folder .*; move that file away, or set CUTAWAY_CACHE_DIR"):
        disk_cache.write("graphs", A, b"content")


def test_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CUTAWAY_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert config.cache_dir() == tmp_path / "cutaway"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert config.cache_dir() == tmp_path / "home" / ".cache" / "cutaway"
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", "~/mine")
    assert config.cache_dir() == tmp_path / "home" / "mine" / "cutaway"


def test_a_damaged_triton_kernel_is_compiled_again(folder: Path) -> None:
    result = compiled_forms.compiled_forms(SOFTMAX, "sm_90")
    kept = sorted(folder.parent.glob("triton/*"))
    assert [p.suffix for p in kept] == [".zip", ".zip"]
    before = [p.stat().st_ino for p in kept]
    assert compiled_forms.compiled_forms(SOFTMAX, "sm_90") == result
    assert [p.stat().st_ino for p in kept] == before, "found, not made"
    kept[0].write_bytes(b"nonsense")
    assert compiled_forms.compiled_forms(SOFTMAX, "sm_90") == result
    assert disk_cache.read("triton", kept[0].stem) is not None


# ---- many processes --------------------------------------------------------------------------

CHECK = """
import torch, compiler_core

def program(n):
    return lambda x: (x.softmax(-1) * n).cos()

def check():
    for n in range(2):
        fast = compiler_core.compile(program(n + 0.5), strict=True)
        torch.testing.assert_close(fast(x), program(n + 0.5)(x))

x = torch.linspace(0, 1, 64).view(4, 16)
"""
AT_ONCE = """
import os, signal, time
from pathlib import Path

def is_building(pid):  # whether it is running the C++ compiler
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text())

compiler_core.compile(program(1), backend="aot_eager")(x)  # imports everything before the processes run
workers = []
for _ in range(5):
    if not (pid := os.fork()):
        check()
        os._exit(0)
    workers.append(pid)
while not is_building(workers[0]):
    time.sleep(0.001)
os.kill(workers[0], signal.SIGKILL)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers])
"""
LATER = """
with compiler_core.record() as record:
    check()
print([e.detail.partition(":")[0] for c in record.compiles for e in c.events if e.stage == "backend"])
"""


def test_processes_at_once_one_killed_while_it_builds(tmp_path: Path) -> None:
    """The same programs on an empty cache: results are right, no entry is damaged, no temporary file remains."""
    environment = os.environ | {"CUTAWAY_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = warm_python.run(["-c", CHECK + AT_ONCE], env=environment)
    assert done.stdout == f"{[-signal.SIGKILL, *[0] * 4]}\n", done.stderr
    evict(tmp_path / "cutaway" / "cpp")
    kept = sorted(tmp_path.glob("cutaway/*/*"))
    # two programs, the launcher, and the library that tests the compiler's flags
    assert [p.parent.name for p in kept] == ["cpp"] * 4 + ["graphs"] * 2
    assert all(disk_cache.verified_content(p.read_bytes()) is not None for p in kept)
    command = [sys.executable, "-c", CHECK + LATER]  # with another seed of `hash`
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == f"{['found'] * 2}\n", done.stderr
