"""``--save``: a record as an HTML report, as JSON, or as a folder of plain files."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from compiler_core.errors import UsageError
from compiler_core.records import Artifact, Record
from compiler_core.records.steps import steps_text

SUFFIXES = {"python": ".py", "cpp": ".cpp", "triton": ".py", "asm": ".s", "ptx": ".ptx", "mlir": ".mlir", "llvm": ".ll"}
LONGEST_NAME = 100


def check(path: str) -> None:
    """UsageError unless `save` knows what to write to `path`, and there is a folder to write it in."""
    target = Path(path).expanduser()
    if not path.endswith(("/", ".html", ".json")):
        raise UsageError(f"--save {path}: the name ends in .html (a report), .json (the record) or / (a folder)")
    if path.endswith("/"):
        if target.exists() and not target.is_dir():
            raise UsageError(f"--save {path}: that is a file, not a folder")
    elif not target.parent.is_dir():
        raise UsageError(f"--save {path}: there is no folder {target.parent}")


def save(record: Record, path: str) -> Path:
    """Write `record` to `path`, whose ending says how; OSError where that is not possible."""
    target = Path(path).expanduser()
    if path.endswith("/"):
        return save_folder(record, target)
    if path.endswith(".json"):
        return record.save(target)
    from kernel_magics.display.report import write_report

    return write_report(record, target)


def save_folder(record: Record, folder: Path) -> Path:
    """Every text of the record as a file of its own, ``<compile id>/<artifact>``, and a summary;
    the steps of the symbolic interpreter, where they were recorded, one a line; and each graph's kernels with what
    launches them as a Python file that runs on its own."""
    from compiler_core.api.standalone_script import script
    from kernel_magics.display import summary

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.txt").write_text(summary.text(record) + "\n", encoding="utf-8", errors="backslashreplace")
    record.save(folder / "record.json")
    for number, source in enumerate(record.sources):
        _write(folder / "source" / f"{number}_{_file_name(Path(source.name).stem)}.py", source.text)
    for compile_ in record.compiles:
        inside = folder / _file_name(compile_.id)
        for artifact in compile_.artifacts:
            _write(inside / _artifact_name(artifact), artifact.text)
        for which in ("forward", "backward"):
            with suppress(UsageError):  # not every graph has kernels, or can stand alone
                _write(inside / f"run_{which}.py", script(compile_, which))
        if compile_.steps:
            _write(inside / "steps.txt", steps_text(compile_.steps))
    return folder


def _artifact_name(artifact: Artifact) -> str:
    """The artifact's own name, with an ending that editors know."""
    name, suffix = _file_name(artifact.name), SUFFIXES.get(artifact.language, ".txt")
    return name if name.endswith(suffix) else name + suffix


def _file_name(name: str) -> str:
    """`name` as one harmless part of a path, whatever a record says."""
    return re.sub(r"[^\w.+-]+", "_", name).strip(".")[:LONGEST_NAME] or "unnamed"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")  # half of a surrogate pair is no character
