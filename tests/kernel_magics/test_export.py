"""Tests of saving a record as files: names in a record cannot select paths outside of the folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compiler_core.errors import UsageError
from compiler_core.records import Record
from kernel_magics.display import export


def test_names_stay_inside_the_folder(tmp_path: Path) -> None:
    record = Record()
    record.source("../../../etc/x.py", 1, ["x = 1"])
    compile_ = record.compile(record.frame("f", "f.py", 1, "root"))
    for name in ("../../up", "/etc/passwd", "..", "a\0b", "kernel.cpp", "n" * 400):
        compile_.artifact("kernel", name, "cpp", f"// {name}")
    folder = export.save_folder(record, tmp_path / "out")
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert all(folder in p.parents for p in files)
    assert (folder / "0_0" / "kernel.cpp").read_text() == "// kernel.cpp"
    assert (folder / "source" / "0_x.py").read_text() == "x = 1"
    assert len(list((folder / "0_0").iterdir())) == 6


def test_equal_file_names_do_not_overwrite_each_other(tmp_path: Path) -> None:
    record = Record()
    frame = record.frame("f", "f.py", 1, "root")
    compile_ = record.compile(frame)
    for name in ("a b", "a_b", "A/b", "a_b_2", "a_b.py", "run_forward"):
        compile_.artifact("kernel", name, "python", name)
    compile_.artifact("kernel", "a:b", "cpp", "cpp")
    for id_ in ("1/0", "1_0", "source"):
        other = record.compile(frame)
        other.artifact("kernel", "k", "cpp", id_)
        other.id = id_
    folder = export.save_folder(record, tmp_path / "out")
    texts = {p.name: p.read_text() for p in (folder / "0_0").iterdir()}
    assert texts == {
        "a_b.py": "a b",
        "a_b_2.py": "a_b",
        "A_b_3.py": "A/b",
        "a_b_2_2.py": "a_b_2",
        "a_b_4.py": "a_b.py",
        "run_forward_2.py": "run_forward",
        "a_b.cpp": "cpp",
    }
    saved = {p.parent.name: p.read_text() for p in folder.rglob("k.cpp")}
    assert saved == {"1_0": "1/0", "1_0_2": "1_0", "source_2": "source"}


@pytest.mark.parametrize("name", ["..", "../..", "../../up", "/etc", "a/../../b", "", ".", "0/0"])
def test_ids_stay_inside_the_folder(name: str, tmp_path: Path) -> None:
    record = Record()
    compile_ = record.compile(record.frame("f", "f.py", 1, "root"))
    compile_.artifact("kernel", "kernel.cpp", "cpp", "// 1")
    compile_.id = name
    folder = export.save_folder(record, tmp_path / "out")
    files = [p.resolve() for p in tmp_path.rglob("*") if p.is_file()]
    assert all(len(p.relative_to(folder).parts) == 2 for p in files if p.name == "kernel.cpp")
    assert [p for p in files if p.name == "kernel.cpp"]


def test_folder_may_be_new_or_there_already(tmp_path: Path) -> None:
    for _ in range(2):
        assert export.save(Record(title="t"), f"{tmp_path}/deep/er/").is_dir()
    assert Record.load(tmp_path / "deep" / "er" / "record.json").title == "t"


@pytest.mark.parametrize("name", ["out", "out.txt", "out.html.gz", ""])
def test_unknown_ending(name: str) -> None:
    with pytest.raises(UsageError, match="the path must end in"):
        export.check_path(name)


def test_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(UsageError, match="is a file, not a folder"):
        export.check_path(f"{tmp_path}/out/")


@pytest.mark.parametrize("name", ["record.json", "deep/er/"])
def test_folder_that_cannot_be_written(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    export.check_path(name)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root can write to folders of any mode
    with pytest.raises(UsageError, match=f"{tmp_path} cannot be written"):
        export.check_path(name)
