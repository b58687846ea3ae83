"""Writes a record as an HTML report, as JSON, as a trace, or as a folder of plain files (``--save``)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from compiler_core.errors import UsageError
from compiler_core.records import Artifact, Record
from compiler_core.tools.questions.step_states import steps_text

SUFFIXES = {"python": ".py", "cpp": ".cpp", "triton": ".py", "asm": ".s", "ptx": ".ptx", "mlir": ".mlir", "llvm": ".ll"}
MAX_NAME_LENGTH = 100
_IMPORTS = "import math\nfrom math import inf, nan\n\nimport torch\nfrom torch import device\n\n"


def check_path(path: str) -> None:
    """Raises UsageError unless `path` has an ending that `save` supports, and its folder exists and can be written."""
    target = Path(path).expanduser()
    if not path.endswith(("/", ".html", ".json")):
        raise UsageError(
            f"--save {path}: the path must end in .html (a report), .trace.json (the time of compiling), "
            ".json (the record) or / (a folder)"
        )
    if path.endswith("/"):
        if target.exists() and not target.is_dir():
            raise UsageError(f"--save {path}: this is a file, not a folder")
    elif not target.parent.is_dir():
        raise UsageError(f"--save {path}: there is no folder {target.parent}")
    existing = next(each for each in (target, *target.absolute().parents) if each.exists())
    if not os.access(existing, os.W_OK):
        raise UsageError(f"--save {path}: {existing} cannot be written")


def save(record: Record, path: str) -> Path:
    """Writes `record` to `path` and returns the path written.

    The ending selects the format: ``.html`` a report, ``.trace.json`` the time of compiling in Chrome's trace format,
    ``.json`` the record, ``/`` a folder of plain files.  Raises OSError if the file or folder cannot be written.
    """
    target = Path(path).expanduser()
    if path.endswith("/"):
        return save_folder(record, target)
    if path.endswith(".trace.json"):
        from compiler_core.tools.timing.chrome_trace import save_trace

        return save_trace(record, target)
    if path.endswith(".json"):
        return record.save(target)
    from kernel_magics.display.report import write_report

    return write_report(record, target)


def save_folder(record: Record, folder: Path) -> Path:
    """Writes a record as a folder.

    Each text becomes a file ``<compile id>/<artifact>``; those in Python run on their own.  Beside them are
    ``summary.txt``, ``record.json``, the user's files in ``source``, the guards with their costs (``guards.py``), the
    steps of the symbolic interpreter (``steps.txt``, if recorded), and for each graph with kernels a Python file that
    runs it (``run_forward.py``, ``run_backward.py``).
    """
    from compiler_core.tools.inspection.compiled_before import guards_text
    from compiler_core.tools.standalone_script import standalone_script
    from kernel_magics.display import summary

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.txt").write_text(summary.text(record) + "\n", encoding="utf-8", errors="backslashreplace")
    record.save(folder / "record.json")
    for number, source in enumerate(record.sources):
        _write(folder / "source" / f"{number}_{_file_name(Path(source.name).stem)}.py", source.text)
    folder_names = _UniqueNames(["source"])
    for compile_ in record.compiles:
        inside = folder / folder_names.take(_file_name(compile_.id))
        file_names = _UniqueNames(["run_forward.py", "run_backward.py", "guards.py", "steps.txt"])
        for artifact in compile_.artifacts:
            if artifact.pane != "guards" or artifact.language != "python":
                _write(inside / file_names.take(*_artifact_name(artifact)), _runnable(artifact))
        if compile_.guards:
            _write(inside / "guards.py", guards_text(record, compile_))
        for which in ("forward", "backward"):
            with suppress(UsageError):  # not every graph has kernels, or can stand alone
                _write(inside / f"run_{which}.py", standalone_script(compile_, which))
        if compile_.steps:
            _write(inside / "steps.txt", steps_text(compile_.steps))
    return folder


def _runnable(artifact: Artifact) -> str:
    """Returns the text of an artifact; Python text with what it needs to run as a file."""
    text = artifact.text
    if artifact.language != "python" or artifact.pane == "source":
        return text
    if artifact.pane == "decompiled":  # constants that have no text
        text = re.sub(r"(?<![<\w'\"])<(\w+(?: [\w.<>]+)?)>", r'"\1"', text)
    if "torch" in text and not re.search(r"^(?:import|from) torch\b", text, re.MULTILINE):
        text = _IMPORTS + text
    return text


class _UniqueNames:
    """Names within one folder.  Names that differ only in case are the same on some file systems."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self._taken = {name.casefold() for name in reserved}

    def take(self, stem: str, suffix: str = "") -> str:
        """Returns ``stem + suffix``, with a number after the stem if that name is taken: ``name_2.py``."""
        name, number = stem + suffix, 1
        while name.casefold() in self._taken:
            number += 1
            name = f"{stem}_{number}{suffix}"
        self._taken.add(name.casefold())
        return name


def _artifact_name(artifact: Artifact) -> tuple[str, str]:
    """Returns the file name of an artifact without its suffix, and the suffix of its language."""
    suffix = SUFFIXES.get(artifact.language, ".txt")
    return _file_name(artifact.name).removesuffix(suffix), suffix


def _file_name(name: str) -> str:
    """Makes `name`, which comes from the record and may be anything, safe as one part of a path."""
    return re.sub(r"[^\w.+-]+", "_", name).strip(".")[:MAX_NAME_LENGTH] or "unnamed"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")  # for lone surrogates
