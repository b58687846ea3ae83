"""A record's texts as files: names from a record cannot leave the folder."""

from __future__ import annotations

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
    with pytest.raises(UsageError, match="the name ends in"):
        export.check(name)


def test_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(UsageError, match="is a file, not a folder"):
        export.check(f"{tmp_path}/out/")
