"""Tests of the kernel cache's security: it changes only its own files and runs nothing that others could write."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compiler_core.codegen.build import compilers as build
from compiler_core.codegen.build import disk_cache
from tests import warm_python

ROOT = Path(__file__).parents[2]
ANSWER = 'extern "C" int answer() { return 42; }\n'
FOREIGN = 'extern "C" int answer() { return 666; }\n'
STRANGER = 54321
"""The id of a user without a name."""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of CUTAWAY_CACHE_DIR, which all users can enter; no library is loaded yet."""
    result = Path(tempfile.mkdtemp())
    result.chmod(0o755)
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(result / "base"))
    (result / "base").mkdir(mode=0o755)
    forget_libraries()
    yield result / "base"
    forget_libraries()
    shutil.rmtree(result)


def forget_libraries() -> None:
    build._libraries.clear()
    build._timed_out.clear()
    build._inspect.cache_clear()
    build._with_supported_flags.cache_clear()
    disk_cache.take_problems()


def answer(source: str = ANSWER) -> int:
    return int(build.load(source).answer())


def library(source: str = ANSWER) -> Path:
    return disk_cache.path_of("cpp", build.digest(source, build._with_supported_flags(build.toolchain())))


def problem_texts() -> str:
    return "\n".join(str(error) for error in disk_cache.take_problems())


def as_stranger(function: Callable[[], None]) -> int:
    """Runs a function as another user, in a separate process, and returns the exit status."""
    pid = os.fork()
    if not pid:
        try:
            os.setgroups([])
            os.setgid(STRANGER)
            os.setuid(STRANGER)
            forget_libraries()
            function()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def build_is_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_build", lambda *_: pytest.fail("it was built"))


# ---- its own files -------------------------------------------------------------------------


def test_files_of_the_users_survive(base: Path) -> None:
    """1.2 GB of other files, older than all kernels, beside the cache and inside it."""
    assert answer() == 42
    inside = base / "cutaway"
    places = [base / "photos" / "a.raw", base / "cpp" / "b.so", inside / "mine" / "c", inside / "cpp" / "notes.txt"]
    for each in places:
        each.parent.mkdir(exist_ok=True)
        each.touch()
        os.truncate(each, 300 << 20)
        os.utime(each, (0, 0))
    (base / "cpp" / "building-a-house").mkdir()
    for number in range(3):
        assert answer(f"{ANSWER}// {number}\n") == 42
    assert all(each.stat().st_size == 300 << 20 for each in places)
    assert (base / "cpp" / "building-a-house").exists()


@pytest.mark.parametrize("mode", [0o1777, 0o2755, 0o700])
def test_no_rights_are_changed(base: Path, mode: int) -> None:
    base.chmod(mode)
    assert answer() == 42
    assert stat.S_IMODE(base.stat().st_mode) == mode
    assert library().exists()


def test_nor_those_of_a_folder_that_is_refused(base: Path) -> None:
    base.chmod(0o2777)
    assert answer() == 42
    assert stat.S_IMODE(base.stat().st_mode) == 0o2777
    assert not (base / "cutaway").exists()
    assert f"`chmod +t {base}` or `chmod go-w {base}`" in problem_texts()


def test_a_folder_that_holds_other_things_is_not_taken_for_the_cache(base: Path) -> None:
    (base / "cutaway").mkdir()
    (base / "cutaway" / "thesis.tex").write_text("all of it")
    assert answer() == 42
    assert [p.name for p in (base / "cutaway").iterdir()] == ["thesis.tex"]
    assert "is not marked as one, and it contains other files (thesis.tex)" in problem_texts()


def test_the_cache_of_an_earlier_version_is_taken_over(base: Path) -> None:
    (base / "cutaway" / "cpp").mkdir(parents=True)
    (base / "cutaway" / "engines.json").write_text("{}")
    assert answer() == 42
    assert (base / "cutaway" / "CACHEDIR.TAG").read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55\n")
    assert library().exists()


# ---- links and special files instead of files ------------------------------------------------


@pytest.mark.parametrize("at", ["cutaway/cpp", "cutaway"])
@pytest.mark.parametrize("whose", [0, STRANGER])
@as_root
def test_a_planted_link_is_not_followed(base: Path, at: str, whose: int) -> None:
    """A link that the user made, from the cache's path to another folder, is followed."""
    elsewhere = base / "elsewhere"
    elsewhere.mkdir()
    (base / at).parent.mkdir(exist_ok=True)
    (base / at).symlink_to(elsewhere)
    os.lchown(base / at, whose, whose)
    assert answer() == 42
    followed = at == "cutaway" and whose == 0
    assert bool(list(elsewhere.iterdir())) == followed
    assert bool(problem_texts()) == (not followed)


def test_a_link_in_the_place_of_a_library_is_not_followed(base: Path) -> None:
    assert answer(FOREIGN) == 666
    foreign = library(FOREIGN)
    forget_libraries()
    answer('extern "C" int other() { return 1; } extern "C" int answer() { return 0; }\n')
    library().symlink_to(foreign.rename(base / "foreign.so"))
    forget_libraries()
    assert answer() == 42
    assert not library().is_symlink(), "made anew in the link's place"


@as_root
def test_without_a_home_no_planted_link_is_followed(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In /tmp another user may have created the cache's path."""
    victim = base / "victim"
    victim.mkdir()
    os.chown(victim, STRANGER, STRANGER)
    base.chmod(0o1777)
    planted = base / f"cutaway-{STRANGER}"
    planted.symlink_to(victim)
    os.lchown(planted, 65534, 65534)
    for name in ("CUTAWAY_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(base))
    monkeypatch.setattr(tempfile, "tempdir", None)

    def builds() -> None:
        assert answer() == 42
        assert f"{planted} is a symbolic link made by another user (nobody)" in problem_texts()

    assert as_stranger(builds) == 0
    assert not list(victim.iterdir())


IN_THE_WAY: dict[str, Callable[[Path], None]] = {
    "FIFO": os.mkfifo,
    "folder": os.mkdir,
    "device": lambda path: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5)),  # endless zeros
    "socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
}
LOADS = """
from compiler_core.codegen.build import compilers as build
assert build.load({source!r}).answer() == 42
"""


@pytest.mark.parametrize("what", IN_THE_WAY)
def test_what_is_no_file_is_not_opened(base: Path, what: str) -> None:
    if what == "device" and os.geteuid():
        pytest.skip("only root can make one")
    answer(FOREIGN)
    IN_THE_WAY[what](library())
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = warm_python.run(["-c", LOADS.format(source=ANSWER)], env=environment)
    assert done.returncode == 0, done.stderr


# ---- libraries that are not the user's ------------------------------------------------------


def test_what_was_looked_at_is_what_is_loaded(base: Path) -> None:
    """Another process replaces the user's library, and the folder with it, at the same time."""
    assert answer() == 42
    path = library()
    folder, hidden, planted = path.parent, base / "hidden", base / "planted"
    planted.mkdir(mode=0o700)
    foreign = build._build_in(planted, FOREIGN, build._with_supported_flags(build.toolchain()), 60)
    (planted / path.name).write_bytes(foreign)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for one, other in ((folder, hidden), (planted, folder), (folder, planted), (hidden, folder)):
                with contextlib.suppress(OSError):
                    one.rename(other)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        found = []
        for _ in range(100):
            build._libraries.clear()
            found.append(answer())
    finally:
        stop.set()
        swapping.join()
    assert found == [42] * 100


@as_root
@pytest.mark.parametrize("level", ["file", "folder", "cache", "above"])
def test_what_belongs_to_another_user_is_not_used(base: Path, level: str) -> None:
    """An entry that another user wrote is refused, even with complete content and a valid checksum."""
    answer()
    expected = library()
    shutil.copy(expected, base / "copy")
    answer(FOREIGN)
    library(FOREIGN).replace(expected)  # to write into a library that is loaded would change it
    place = {"file": expected, "folder": expected.parent, "cache": expected.parents[1], "above": base}[level]
    os.chown(place, STRANGER, STRANGER)
    if level in ("cache", "above"):
        disk_cache._close(disk_cache._open_folders.pop("cpp"))  # as in a new process
    forget_libraries()
    assert answer() == 42
    assert "belongs to another user" in problem_texts()


@pytest.mark.parametrize("level", ["file", "folder", "cache"])
def test_what_another_user_can_change_is_not_used(base: Path, level: str) -> None:
    answer()
    expected = library()
    answer(FOREIGN)
    library(FOREIGN).replace(expected)  # to write into a library that is loaded would change it
    place = {"file": expected, "folder": expected.parent, "cache": expected.parents[1]}[level]
    place.chmod(0o777)
    if level == "cache":
        disk_cache._close(disk_cache._open_folders.pop("cpp"))  # as in a new process
    forget_libraries()
    assert answer() == 42
    output = problem_texts()
    assert "can be changed by every user" in output
    assert f"`chmod go-w {place}`" in output
    if level != "file":
        assert stat.S_IMODE(place.stat().st_mode) == 0o777


# ---- read-only caches ------------------------------------------------------------------------


def fill(base: Path) -> None:
    assert answer() == 42
    subprocess.run(["chmod", "-R", "go+rX", str(base)], check=True)


@as_root
def test_a_read_only_cache_is_used(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container image: root wrote the cache, another user reads it."""
    fill(base)
    path = library()
    os.utime(path, (1, 1))

    def loads() -> None:
        build_is_disabled(monkeypatch)
        assert answer() == 42
        assert not problem_texts()

    assert as_stranger(loads) == 0
    assert path.stat().st_mtime == 1


@as_root
def test_what_a_read_only_cache_lacks_is_built_and_not_kept(base: Path) -> None:
    fill(base)

    def builds() -> None:
        assert answer(FOREIGN) == 666
        assert "cannot be used: you have no permission to write there" in problem_texts()

    assert as_stranger(builds) == 0


@as_root
def test_a_cache_of_a_team_is_read_where_it_is_named(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    team = base / "team"
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(team))
    fill(base)
    for each in (team, *team.rglob("*")):
        os.chown(each, STRANGER, STRANGER)
    monkeypatch.setenv("CUTAWAY_CACHE_DIR", str(base / "own"))
    forget_libraries()
    with monkeypatch.context() as patch:
        build_is_disabled(patch)
        with pytest.raises(pytest.fail.Exception, match="it was built"):
            answer()
        patch.setenv("CUTAWAY_CACHE_READ_FROM", f"{base / 'not there'}:{team}")
        forget_libraries()
        assert answer() == 42
        (team / "cutaway").chmod(0o777)  # a folder that everybody can write to cannot be trusted
        forget_libraries()
        with pytest.raises(pytest.fail.Exception, match="it was built"):
            answer()
    monkeypatch.setenv("CUTAWAY_CACHE_READ_FROM", str(team))
    before = {p: p.stat().st_mtime_ns for p in team.rglob("*")}
    assert answer(FOREIGN) == 666
    assert {p: p.stat().st_mtime_ns for p in team.rglob("*")} == before, "it is only read"


# ---- libraries --------------------------------------------------------------------------------


def test_each_library_that_is_cut_short_is_known(base: Path) -> None:
    tools = build._with_supported_flags(build.toolchain())
    content = build._build(ANSWER, tools, build.digest(ANSWER, tools))
    assert build.damage_in(content) == ""
    assert [length for length in range(0, len(content), 13) if not build.damage_in(content[:length])] == []
    assert build.missing_symbols(content, ["answer", "question"]) == ["question"]


def test_descriptors_that_come_again_are_not_taken_for_one_library(base: Path) -> None:
    """The dynamic loader identifies libraries by their paths."""
    sources = [f'extern "C" int answer() {{ return {number}; }}\n' for number in range(8)]
    assert [answer(source) for source in sources] == list(range(8))
    forget_libraries()
    assert [answer(source) for source in sources] == list(range(8))
    files = {os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}
    assert not any(name.endswith(".so") for name in files), "none is held open"


def test_from_a_disk_that_no_program_runs_from(base: Path) -> None:
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "none", base], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        assert answer() == 42
        assert library().exists()
        with pytest.raises(OSError, match=r"not permitted|failed to map"):
            ctypes.CDLL(str(library()))
        forget_libraries()
        assert answer() == 42
    finally:
        subprocess.run(["umount", "-l", base], check=True)
