"""Finds whose code a file is, on this machine or on the one that made a record: a package's, Python's or the user's."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

_FOLDER = re.compile(r".*[\\/](?:site|dist)-packages[\\/](\w+).*")
"""Packages lie in folders of these names: of an environment, of the Python that it builds on, of the user (``pip
install --user``), of Debian."""
STANDARD_LIBRARY, OWN = "the standard library", "Cutaway"
_STANDARD_LIBRARY = re.compile(r".*[\\/](?:lib[\\/]python3\.\d+t?|Python3\d+[\\/]Lib)[\\/].*|<frozen [\w.]+>")
_FOLDERS = tuple(str(Path(__file__).parents[2] / name) + os.sep for name in ("compiler_core", "kernel_magics"))
"""The folders of Cutaway, which is no installed package if it is developed."""


def package_of(filename: str) -> str:
    """Returns the name of the installed package that a file belongs to; empty if it belongs to none."""
    found = _FOLDER.fullmatch(filename)
    return found[1] if found else ""


@functools.lru_cache(4096)
def library_of(filename: str) -> str:
    """Returns whose code a file is: a package, Python's standard library or Cutaway; empty if it is the user's."""
    if package := package_of(filename):
        return package
    if _STANDARD_LIBRARY.fullmatch(filename):
        return STANDARD_LIBRARY
    return OWN if filename.startswith((*_FOLDERS, "<cutaway ")) else ""
