"""Prints the packages that an extra of pyproject.toml asks for, Cutaway itself left out: ``packages.py EXTRA``.

`make` installs them by pip while npm installs the browser half's, and Cutaway afterwards.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def packages(extra: str) -> Iterator[str]:
    """Yields the requirements of an extra and of the extras that it contains."""
    for requirement in PROJECT["optional-dependencies"][extra]:
        if contained := re.fullmatch(r"cutaway\[([\w-]+)\]", requirement):
            yield from packages(contained[1])
        else:
            yield requirement


print(*PROJECT["dependencies"], *packages(sys.argv[1]), sep="\n")  # noqa: T201
