"""Finds the installed package that a file belongs to, on this machine or on the one that made a record."""

from __future__ import annotations

import re

_FOLDER = re.compile(r".*[\\/](?:site|dist)-packages[\\/](\w+).*")
"""Packages lie in folders of these names: of an environment, of the Python that it builds on, of the user (``pip
install --user``), of Debian."""


def package_of(filename: str) -> str:
    """Returns the name of the installed package that a file belongs to; empty if it belongs to none."""
    found = _FOLDER.fullmatch(filename)
    return found[1] if found else ""
