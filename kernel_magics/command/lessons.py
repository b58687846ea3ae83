"""``cutaway lessons``: copies the notebooks to a folder of the user's, without replacing what is there."""

from __future__ import annotations

import shutil
from pathlib import Path

PACKAGED = Path(__file__).parents[1] / "notebooks"
"""The notebooks in a wheel."""
CLONED = Path(__file__).parents[2] / "notebooks"
"""The notebooks in a clone of the repository."""
LEFT_OUT = shutil.ignore_patterns(".*", "source", "__pycache__")


def copy_lessons(folder: Path) -> tuple[list[Path], list[Path]]:
    """Copies the notebooks to `folder`; returns the files that were written, and those that were there and stay.

    Raises OSError if `folder` is a file, or something in it cannot be written.
    """
    written: list[Path] = []
    kept: list[Path] = []

    def copy(source: str, target: str) -> str:
        is_there = Path(target).exists()
        (kept if is_there else written).append(Path(target))
        return target if is_there else str(shutil.copy(source, target))

    source = PACKAGED if PACKAGED.exists() else CLONED
    if folder.is_file():
        raise OSError(f"{folder} is a file; name a folder")
    try:
        shutil.copytree(source, folder, ignore=LEFT_OUT, copy_function=copy, dirs_exist_ok=True)
    except shutil.Error as errors:  # a list of what could not be copied
        _, _, why = errors.args[0][0]
        raise OSError(why) from None
    return sorted(written), sorted(kept)
